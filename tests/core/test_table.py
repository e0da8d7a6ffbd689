"""Tables against the plainest model of them: rows in a dictionary, a stack of free rows."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apportion.core.kernels.codes import BLOCK_BYTES, LANES
from apportion.core.state.keyindex import KeyIndex
from apportion.core.state.state import State
from apportion.core.state.table import PAGE_ROWS, Column, Table, key_code, key_codes


class Pairs(Table):
    """A table with two columns."""

    left: Column
    right: Column


STEPS = st.sampled_from(["add", "add", "add", "add many", "remove", "restore", "write", "hash", "copy"])


def naive_physical(table: Table) -> list[bytes]:
    """Return what identifies a table's contents, every page hashed anew."""
    pages = -(-table.used // PAGE_ROWS)
    parts = [table.block[:, page * PAGE_ROWS : (page + 1) * PAGE_ROWS].tobytes() for page in range(pages)]
    hashes = b"".join(hashlib.sha256(part).digest() for part in parts)
    return [np.array([table.used, *table.free], dtype=np.int64).tobytes(), *([hashes] if pages else [])]


@settings(derandomize=True, max_examples=60, deadline=None)
@given(st.lists(st.tuples(STEPS, st.integers(0, 200)), max_size=200))
def test_a_table_is_a_dictionary_whose_rows_are_reused_last_in_first_out(steps: list[tuple[str, int]]) -> None:
    table, model, free, used, made = Pairs(), dict[int, tuple[str, int]](), list[int](), 0, 0
    for action, number in steps:
        if action == "add":
            made += 1
            row = table.add(f"key-{made}")
            if free:
                assert row == free.pop()
            else:
                assert row == used
                used += 1
            assert (int(table.left[row]), int(table.right[row])) == (0, 0), "a reused row carries nothing over"
            table.left[row] = number
            model[row] = (f"key-{made}", number)
        elif action == "add many":
            keys = [f"key-{made + k + 1}" for k in range(number % 90)]
            made += len(keys)
            reused = min(len(keys), len(free))
            taken = [free.pop() for _ in range(reused)] + list(range(used, used + len(keys) - reused))
            used += len(keys) - reused
            assert table.coming(len(keys)).tolist() == taken
            assert table.add_all(keys).tolist() == taken
            for row, key in zip(taken, keys, strict=True):
                assert (int(table.left[row]), table.keys[row]) == (0, key)
                table.left[row] = number
                model[row] = (key, number)
        elif action == "remove" and model:
            row = sorted(model)[number % len(model)]
            table.remove(row)
            del model[row]
            free.append(row)
        elif action == "restore":
            before = table.physical()
            columns: dict[str, Any] = {name: table.column(name).tobytes() for name in table.names}
            fresh = Pairs()
            fresh.restore(table.used, table.free, table.keys, columns)
            table = fresh
            assert table.physical() == before
        elif action == "write" and model:
            row = sorted(model)[number % len(model)]
            table.left[row] = number
            model[row] = (model[row][0], number)
        elif action == "hash":
            assert table.physical() == naive_physical(table), "whatever was hashed before"
        elif action == "copy":
            other = Pairs()
            for _ in range(number):
                other.add()
            other.physical()
            other.copy_from(table)
            table = other
            assert table.physical() == naive_physical(table), "also where it hashed more pages than it has now"

        assert len(table) == len(model)
        assert table.live_rows() == sorted(model)
        assert table.free == free
        assert table.row_of == {key: row for row, (key, _) in model.items()}
        assert {row: int(table.left[row]) for row in model} == {row: value for row, (_, value) in model.items()}


def test_the_bytes_of_a_table_tell_names_and_free_rows_apart() -> None:
    def bytes_of(*keys: str, remove: tuple[int, ...] = ()) -> bytes:
        table = Pairs()
        for key in keys:
            table.add(key)
        for row in remove:
            table.remove(row)
        return b"".join(table.physical())

    assert bytes_of("a", "b") == bytes_of("a", "b")
    assert bytes_of("a", "b") != bytes_of("b", "a")
    assert bytes_of("a", "b", remove=(0, 1)) != bytes_of("a", "b", remove=(1, 0)), "the next row depends on it"
    assert bytes_of("a") != bytes_of("a", "b", remove=(1,))


def test_a_key_is_taken_once() -> None:
    table = Pairs()
    table.add("a")

    with pytest.raises(KeyError, match="exists"):
        table.add("a")
    assert table.add() != table.add(), "rows without a key are not compared"


LENGTHS = st.sampled_from([0, 1, 7, 8, 9, 63, BLOCK_BYTES - 1, BLOCK_BYTES]) | st.integers(0, BLOCK_BYTES)
KEYS = st.builds(lambda text, length: (text * BLOCK_BYTES)[:length], st.text("abz059#:_-./~ ", min_size=1), LENGTHS)


@settings(derandomize=True, max_examples=100, deadline=None)
@given(st.lists(KEYS, max_size=3 * LANES), st.integers(0, 3 * LANES))
def test_the_codes_of_many_keys_are_those_of_each(keys: list[str], repeated: int) -> None:
    keys += keys[:1] * repeated

    assert key_codes(keys).tolist() == [key_code(key) for key in keys]


@pytest.mark.parametrize("other", ["x" * (BLOCK_BYTES + 1), "two\nlines", "\n", "", "ü" * (BLOCK_BYTES // 2), "ü" * BLOCK_BYTES])
def test_keys_that_are_no_lines_of_a_block_are_hashed_as_well(other: str) -> None:
    many = ["a"] * (2 * LANES)
    for keys in ([other] * len(many), [*many, other], [other, *many]):
        assert key_codes(keys).tolist() == [key_code(key) for key in keys]


@pytest.mark.parametrize("run_nos", [[], [1], [7, 7, 7], [1, 2, 1], [10, 10]])
def test_the_keys_of_many_runs_are_those_of_each(run_nos: list[int]) -> None:
    state, workloads = State(), [f"w-{number}" for number, _run_no in enumerate(run_nos)]

    assert state.run_refs(workloads, run_nos) == [state.run_ref(*one) for one in zip(workloads, run_nos, strict=True)]


@pytest.mark.parametrize("rows", [[], [1], [2, 0, 2, 3]])
def test_the_keys_of_many_rows_are_told_in_their_order(rows: list[int]) -> None:
    table = Pairs()
    table.add_all(["a", "b", "c", "d"])

    assert table.keys_of(np.array(rows, dtype=np.int64)) == [table.keys[row] for row in rows]


def test_a_table_grows_at_once_to_what_is_reserved() -> None:
    table = Pairs()
    table.reserve(1_000)

    assert (table.capacity, table.used) == (1_984, 0)


def test_rows_lie_in_pages_and_no_two_columns_in_the_same_lines_of_a_cache() -> None:
    table, seen = Pairs(), set()
    for number in range(5_000):
        table.add(f"k{number}")
        seen.add(table.capacity)
    assert len(seen) > 5
    for capacity in seen:
        assert capacity % PAGE_ROWS == 0  # or a page would lie half outside
        assert capacity == 64 or capacity & (capacity - 1)


def test_a_name_is_found_in_a_table_of_every_size() -> None:
    table = Pairs()
    index, capacity = KeyIndex(table), 0
    for number in range(3_000):
        table.add(f"k{number}")
        if table.capacity == capacity:
            continue
        capacity = table.capacity
        index.sync()
        assert len(index.slots) & (len(index.slots) - 1) == 0  # or a search would not come to all of them
        for known in range(number + 1):
            assert index.find(f"k{known}") == known
        assert index.find("k-1") is None

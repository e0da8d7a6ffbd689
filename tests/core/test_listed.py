"""Decisions in columns say, byte by byte, what the same decisions say as structs, whatever stands in them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apportion.adapters.bench.worlds.cycles.world import World
from apportion.adapters.simulation.stated import tick_event
from apportion.core import events as ev
from apportion.core.decided import Decided
from apportion.core.decision import Decision
from apportion.core.decisions import (
    AnyDecision,
    CycleBatch,
    Elsewhere,
    FundingChanged,
    PendingExplained,
    Piece,
    RunClosed,
    RunPlaced,
    WorkloadAdmitted,
    WorkloadClosed,
    decode_batch,
    encode_batch,
)
from apportion.core.engine import Core
from apportion.core.envelope import Record, encode
from apportion.core.kernels import spelling
from apportion.core.listed import Column, Listed, Named, Numbers, Places, Texts, texts_of
from apportion.core.policy import cycle, telling
from apportion.core.state import bulk
from apportion.core.units import MS_PER_HOUR, PPM
from tests.core.story import Story

KINDS = (RunPlaced, WorkloadAdmitted, PendingExplained, RunClosed, WorkloadClosed, FundingChanged)
odd = st.sampled_from(["", "a/b", 'say "\\"', "\n\x00\x7f", "é中\u2028"])
words = odd | st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
numbers = st.integers(-(2**63) + 1, 2**63 - 1) | st.integers(-1, 12) | st.sampled_from([10**k for k in range(19)])
pieces = st.lists(
    st.builds(Piece, words, st.lists(st.integers(0, 99), max_size=4).map(tuple), st.integers(0, 1_000)), max_size=4
).map(tuple)
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "pieces": pieces,
    "numbers": st.dictionaries(words, numbers, max_size=4),
    "others": st.lists(words, max_size=2).map(tuple),
    "blamed": st.lists(words, max_size=2).map(tuple),
    "skipped": st.dictionaries(words, words, max_size=2),
    "elsewhere": st.lists(st.builds(Elsewhere, words, words), max_size=2).map(tuple),
    "beneficiary": st.booleans(),
    "requeued": st.booleans(),
}


@st.composite
def decisions(draw: st.DrawFn) -> list[Decision]:
    """Return decisions of one kind, some fields of all of which may be at their default."""
    kind = draw(st.sampled_from(KINDS))
    told = msgspec.structs.fields(kind)
    left_out = {field.name for field in told if not field.required and draw(st.booleans())}
    say = {
        field.name: FIELDS.get(field.name, words if field.type is str else numbers)
        for field in told if field.name not in left_out
    }  # fmt: skip
    return draw(st.lists(st.fixed_dictionaries(say).map(lambda words: kind(**words)), min_size=1, max_size=6))


def column_of(values: list[Any]) -> Column:
    """Return values of a field as the column of their kind; texts each by itself, or each once."""
    if isinstance(values[0], int) and not isinstance(values[0], bool):
        return Numbers(np.array(values, dtype=np.int64))
    if isinstance(values[0], dict) and all(isinstance(number, int) for one in values for number in one.values()):
        names = list(dict.fromkeys(name for one in values for name in one))
        rows = [[one.get(name, spelling.ABSENT) for one in values] for name in names]
        return Named(names, np.array(rows, dtype=np.int64).reshape(len(names), len(values)))
    if isinstance(values[0], tuple) and all(isinstance(piece, Piece) for one in values for piece in one):
        every = [piece for one in values for piece in one]
        sizes, gpus = [len(one) for one in values], [len(piece.gpus) for piece in every]
        first, first_gpu = (np.cumsum([0, *count], dtype=np.int64) for count in (sizes, gpus))
        each = np.array([piece.milli_each for piece in every], dtype=np.int64)
        positions = np.array([gpu for piece in every for gpu in piece.gpus], dtype=np.int64)
        return Places(first, Texts([piece.node for piece in every]), first_gpu, positions, each)
    distinct = list({encode(value): value for value in values}.values())
    return Texts(distinct, np.array([distinct.index(value) for value in values], dtype=np.int64))


def _default(field: Any) -> Any:
    return field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()


def listed(told: list[Decision]) -> Listed[Decision]:
    """Return the same decisions as columns; a field that no column tells is at its default in all."""
    kind = type(told[0])
    columns: dict[str, Column] = {}
    for field in msgspec.structs.fields(kind):
        values = [getattr(one, field.name) for one in told]
        if field.required or any(value != _default(field) for value in values):
            columns[field.name] = column_of(values)
    return Listed(kind, len(told), columns)


@settings(derandomize=True, max_examples=400, deadline=None)
@given(st.lists(decisions(), min_size=1, max_size=3))
def test_columns_are_spelled_and_read_as_their_structs(stretches: list[list[Decision]]) -> None:
    plain = [one for told in stretches for one in told]
    assert listed(stretches[0]).encoded() == encode(stretches[0])[1:-1]

    mixed = Decided[Decision]([stretches[0], *(listed(told) for told in stretches[1:])])

    assert mixed.encoded() == encode(plain)
    assert mixed == plain == list(mixed)
    assert [mixed[at] for at in range(-len(plain), len(plain))] == plain + plain
    assert list(mixed[1:]) == plain[1:]
    batch = CycleBatch(core=1, cycle=1, seq=1, time_ms=1, chain="", digest="", decisions=cast_all(mixed))
    body = encode_batch(batch)
    assert body == encode(msgspec.structs.replace(batch, decisions=tuple(plain)))
    assert decode_batch(body) == batch, "a batch that was read equals the one that was made"


def cast_all(told: Any) -> Any:
    """Return decisions as those of a batch, which any of the kinds is."""
    return told


def test_decisions_differ_where_one_of_them_does() -> None:
    told: list[AnyDecision] = [WorkloadClosed(workload="a", outcome="succeeded", runs=1)]
    other: list[AnyDecision] = [WorkloadClosed(workload="a", outcome="succeeded", runs=2)]

    assert Decided([told]) == Decided([[], told])
    assert Decided([told]) != Decided([other])
    assert Decided([told]) != Decided([told, other])
    assert Decided([told]) != "a"
    assert "runs=2" in repr(Decided([other]))
    assert Decided[AnyDecision]([]).encoded() == b"[]"
    for beyond in (1, -2):
        with pytest.raises(IndexError, match=f"decision {beyond} of 1"):
            Decided([told])[beyond]


@given(st.lists(st.integers(0, 9)))
def test_each_text_of_rows_is_made_once(rows: list[int]) -> None:
    made: list[int] = []

    texts = texts_of(np.array(rows, dtype=np.int64), 10, lambda distinct: made.extend(distinct) or [str(row) for row in distinct])

    assert texts.told("") == [str(row) for row in rows]
    assert made == sorted(set(rows))


def crowds() -> Iterator[World | Story]:
    """Return cores whose pending cycle admits, starts and tells many: of a large queue, and of who accepts several pools."""
    world = World(16, 5)
    world.submit(400)
    world.tick(60_000)
    yield world
    for minute in range(3):
        world.decide()
        world.end(40)
        world.submit(150)
        world.tick(MS_PER_HOUR if minute else 60_000)
        yield world
    story = Story()
    story.open()
    for pool, nodes in (("p", 3), ("q", 2)):
        story.tell(ev.PoolDefined(pool=pool))
        story.tell(ev.BudgetSet(pool=pool, budget="A", share_ppm=PPM))
        for number in range(nodes):
            story.tell(ev.NodeJoined(node=f"{pool}{number}", pool=pool, gpus=4))
    story.tell(ev.MemberGranted(budget="A", member="u"))
    for number in range(120):
        pools = (("p",), ("p", "q"), ("q", "p", "nowhere"))[number % 3]
        milli = (500, 1_000, 2_000, 4_000)[number % 4]
        story.tell(ev.WorkloadSubmitted(workload=f"w{number}", budget="A", pools=pools, gpus_milli=milli), "u")
    story.records.append(Record(story.core.seq + 1, story.now_ms, "ap.ev.core.clock.tick", tick_event(story.now_ms, 1).body))
    story.core.fold(story.records[-1])
    yield story


def test_a_cycle_decides_the_same_in_columns_and_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = set[str]()
    for told in crowds():
        before, bodies = told.core.snapshot(), list[bytes]()
        for few in (1, 10**9):
            monkeypatch.setattr(bulk, "FEW", few)
            monkeypatch.setattr(cycle, "MANY", few)
            monkeypatch.setattr(telling, "MANY", few)
            core = Core.from_snapshot(before)
            bodies.append(core.decide())
            if few == 1 and core.last_batch is not None:
                kinds |= {type(part[0]).__name__ for part in parts_of(core.last_batch) if isinstance(part, Listed)}
            trusting = Core.from_snapshot(before)
            trusting.trust(bodies[-1])

        assert bodies[0] == bodies[1]
    assert kinds == {"WorkloadAdmitted", "RunPlaced", "PendingExplained"}, "each of them was in columns"


def parts_of(batch: CycleBatch) -> list[Any]:
    """Return the parts in which the decisions of a batch are held."""
    return batch.decisions._parts if isinstance(batch.decisions, Decided) else [batch.decisions]

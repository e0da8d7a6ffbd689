"""Questions about all budget lines: the kernels answer what recursion over the tree answers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from apportion.core.kernels import lines
from apportion.core.state.memo import Reserved
from apportion.core.units import NEVER_MS
from tests.strategies import Trees, column, milli, trees

quick = settings(derandomize=True, max_examples=60, deadline=None)
ENDED = 4


def draws(data: st.DataObject, tree: Trees, *values: int) -> list[int]:
    return [data.draw(st.sampled_from(values)) for _ in range(tree.rows)]


def sum_of_leaves(tree: Trees, row: int, own: Sequence[int]) -> int:
    below = tree.children_of(row)
    return sum(sum_of_leaves(tree, child, own) for child in below) if below else own[row]


@quick
@given(trees(), st.data())
def test_reserved_is_what_runs_inside_their_protected_time_hold_own_and_below(tree: Trees, data: st.DataObject) -> None:
    run = st.tuples(st.integers(0, tree.rows - 1), milli(), st.integers(-5, 5), st.sampled_from([0, 1]), st.integers(1, ENDED))
    runs = data.draw(st.lists(run, max_size=12))
    now_ms, later_ms = 1_000, data.draw(st.integers(0, 6))
    left_us, gpus = np.full(tree.rows, -7, dtype=np.int64), np.full(tree.rows, -7, dtype=np.int64)

    until_ms = lines.reserved(
        now_ms, len(runs), ENDED, column([now_ms + left for _, _, left, _, _ in runs]), column([r[3] for r in runs]),
        column([r[4] for r in runs]), column([r[0] for r in runs]), column([r[1] for r in runs]),
        tree.rows, column(tree.parent), column(tree.child_counts()), left_us, gpus,
    )  # fmt: skip

    def sums(at_ms: int, *, timed: bool) -> list[int]:
        own = [0] * tree.rows
        for line, gpus_milli, left, reserves, state in runs:
            if reserves and now_ms + left > at_ms and state != ENDED:
                own[line] += gpus_milli * (now_ms + left - at_ms if timed else 1)
        return [sum_of_leaves(tree, row, own) for row in range(tree.rows)]

    assert list(gpus) == sums(now_ms, timed=False)
    assert list(left_us) == sums(now_ms, timed=True)
    stays = now_ms + later_ms < until_ms
    assert not stays or list(Reserved(now_ms, until_ms, left_us, gpus).at(now_ms + later_ms)) == sums(now_ms + later_ms, timed=True)
    ends = [now_ms + left for _, _, left, reserves, state in runs if reserves and left > 0 and state != ENDED]
    assert until_ms == min(ends, default=NEVER_MS)


@quick
@given(trees(), st.data())
def test_barred_is_closed_or_spent_or_below_such_a_line(tree: Trees, data: st.DataObject) -> None:
    closed, metered = draws(data, tree, 0, 0, 0, 1), draws(data, tree, 0, 1)
    granted, charged, outstanding = (draws(data, tree, 0, 1, 5) for _ in range(3))
    got = np.full(tree.rows, -7, dtype=np.int64)

    lines.barred(
        tree.rows, column(tree.parent), column(closed), column(metered), column(granted), column(charged), column(outstanding), got
    )

    def is_barred(row: int) -> bool:
        spent = metered[row] and granted[row] - charged[row] - outstanding[row] <= 0
        return bool(closed[row] or spent) or (tree.parent[row] >= 0 and is_barred(tree.parent[row]))

    assert list(got) == [int(is_barred(row)) for row in range(tree.rows)]


@quick
@given(trees(), st.data())
def test_forgivable_is_a_leaf_that_cannot_take_what_it_is_owed(tree: Trees, data: st.DataObject) -> None:
    lag, running, pending = draws(data, tree, -1, 0, 0, 1), draws(data, tree, 0, 500), draws(data, tree, 0, 500)
    barred = draws(data, tree, 0, 0, 1)

    got = lines.forgivable(
        tree.rows, column(tree.child_counts()), column(lag), column(running), column(pending), column(barred)
    )

    assert bool(got) == any(
        not tree.children_of(row) and lag[row] > 0 and (barred[row] or not (running[row] or pending[row]))
        for row in range(tree.rows)
    )


@quick
@given(trees(), st.data())
def test_books_that_add_up_are_even_and_one_changed_number_is_not(tree: Trees, data: st.DataObject) -> None:
    """A leaf's lag stands after what it forfeited and was forgiven; an inner line's is the plain integral."""
    integral, forfeited, forgiven = ([0] * tree.rows for _ in range(3))
    for pool in range(len(tree.root)):
        leaves = tree.leaves(pool)
        for amounts in (integral, forfeited, forgiven):
            for leaf in leaves:
                amounts[leaf] = data.draw(st.integers(0, 9))
        integral[leaves[0]] -= sum(integral[leaf] for leaf in leaves)
        forgiven[leaves[0]] += sum(forfeited[leaf] - forgiven[leaf] for leaf in leaves)
    columns = [[sum_of_leaves(tree, row, own) for row in range(tree.rows)] for own in (integral, forfeited, forgiven)]
    for row in range(tree.rows):
        if not tree.children_of(row):
            columns[0][row] += columns[2][row] - columns[1][row]

    def uneven() -> int:
        return int(lines.uneven(tree.rows, column(tree.parent), column(tree.child_counts()), *map(column, columns)))

    assert uneven() == -1
    changed, row = data.draw(st.integers(0, 2)), data.draw(st.integers(0, tree.rows - 1))
    columns[changed][row] += data.draw(st.sampled_from([-1, 1]))
    assert uneven() >= 0


def path(tree: Trees, row: int) -> list[int]:
    return [row, *path(tree, tree.parent[row])] if tree.parent[row] >= 0 else [row]


@quick
@given(trees(), st.data())
def test_a_fork_is_where_two_paths_part_and_who_may_lose_is_strictly_above_it(tree: Trees, data: st.DataObject) -> None:
    leaves = [row for row in range(tree.rows) if not tree.children_of(row)]
    taker, need = data.draw(st.sampled_from(leaves)), data.draw(st.sampled_from([0, 500, 8_000]))
    running, weight = draws(data, tree, 0, 500, 1_000, 8_000), draws(data, tree, 0, 1, 3)
    runs = data.draw(st.lists(st.sampled_from(leaves), max_size=6))
    mine, theirs = np.full(tree.rows, -7, dtype=np.int64), np.full(tree.rows, -7, dtype=np.int64)

    lines.takers_forks(
        taker, need, column(tree.parent), column(weight), column(running), len(runs), np.arange(max(1, len(runs))),
        column(runs or [0]), mine, theirs,
    )  # fmt: skip

    for row in range(tree.rows):
        expected = (-1, -1)
        if row in runs and row != taker:
            ones, others = path(tree, taker), path(tree, row)
            while ones[-1] == others[-1]:
                ones.pop()
                others.pop()
            one, other = ones[-1], others[-1]
            assert lines.fork(column(tree.parent), taker, row) == (one, other)
            if (running[one] + need) * max(1, weight[other]) < running[other] * max(1, weight[one]):
                expected = (one, other)
        assert (int(mine[row]), int(theirs[row])) == expected

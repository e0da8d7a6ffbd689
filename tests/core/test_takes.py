"""Plans of preemption made in a row are those that the rules make one by one: the same victims and GPUs, the same states."""

from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np
from hypothesis import event, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from apportion.adapters.bench.worlds.cycles.world import World
from apportion.core.events import BudgetClosed, BudgetSet
from apportion.core.kernels import taking
from apportion.core.kernels.losers import Losers
from apportion.core.policy import choosing, preempting
from apportion.core.policy.taking import Taking
from apportion.core.state import schema
from apportion.core.units import MILLI, MS_PER_HOUR
from tests.core.test_columns import measured
from tests.core.test_victims import Crowd, cluster_of, crowds

I64 = NDArray[np.int64]

SOMEBODY = 1_000  # workload row + 1 that is nobody's here


def losers_of(crowd: Crowd) -> Losers:
    """Return all runs of a crowd as losers; who may go is told apart."""
    field, state = crowd.field, crowd.state
    rows = [(alloc, run) for run in range(len(crowd.pieces)) for alloc in allocs_of(crowd, run)]
    where = {alloc: at for at, (alloc, _run) in enumerate(sorted(rows))}
    alloc, owner = (np.array(column, dtype=np.int64) for column in zip(*sorted(rows), strict=True))
    gpu = state.alloc.gpu[alloc]
    card, spot = np.unique(gpu, return_inverse=True)
    node, place = np.unique(state.gpu.node[gpu], return_inverse=True)
    lines, zeros = np.arange(len(field.room)), np.zeros(len(field.room), dtype=np.int64)
    begin = np.append(0, np.cumsum([len(pieces) for pieces in crowd.pieces]))
    return Losers(
        np.arange(len(field.milli)), np.zeros(len(field.milli), dtype=np.uint8), np.maximum(field.leaf, 0),
        (field.leaf >= 0).astype(np.uint8), field.milli, field.cost.copy(), lines, zeros, zeros + 1, lines.copy(), zeros.copy(),
        begin, np.array([where[alloc] for alloc, _run in rows]), owner, gpu, spot, place, state.alloc.milli[alloc],
        np.zeros(len(alloc), dtype=np.int64), node, card,
    )  # fmt: skip


def allocs_of(crowd: Crowd, run: int) -> list[int]:
    rows, alloc = list[int](), int(crowd.state.run.first_alloc[run])
    while alloc >= 0:
        rows.append(alloc)
        alloc = int(crowd.state.alloc.next[alloc])
    return rows


def by_the_rules(crowd: Crowd) -> tuple[list[int], list[int]] | None:
    """Return whom the workload takes from, in order, and the GPUs it gets, as ``preempting`` plans one."""
    state, field, need = crowd.state, crowd.field, int(crowd.state.workload.gpus_milli[0])
    found = choosing.least_plan(state, field, 0, crowd.masked)
    if found is None:
        return None
    victims = preempting._in_order(state, field, found[0])
    return (victims, found[1]) if preempting._allowed(state, field, victims, need) else None


shapes = st.one_of(
    st.tuples(st.integers(1, 3), st.integers(1, 4).map(lambda gpus: gpus * MILLI)),
    st.tuples(st.just(1), st.sampled_from([250, 500])),
)


@settings(derandomize=True, max_examples=400, deadline=None)
@given(crowds(), st.lists(shapes, min_size=1, max_size=5), st.sampled_from([1, 3, 7, 40, choosing.STEPS_MAX]), st.data())
def test_one_plan_after_the_other_is_what_the_rules_make_of_each(
    crowd: Crowd, asked: list[tuple[int, int]], steps_max: int, data: st.DataObject
) -> None:
    state, field, runs = crowd.state, crowd.field, len(crowd.pieces)
    if not runs:
        return
    state.pool.packing[0] = schema.BEST_FIT
    field.rank[:] = data.draw(st.permutations(range(len(field.rank))))
    state.run.column("placed_ms")[:], state.workload.event_seq[1 : runs + 1] = 100 - field.cost[:, 5], 100 - field.cost[:, 6]
    losers, until_ms = losers_of(crowd), np.where(crowd.masked > 0, 100, 0)
    held, none = state.gpu.column("held_by"), np.zeros(state.node.used, dtype=np.int64)
    plans = 0
    for nodes, each in asked:
        state.workload.put(0, {"nodes": nodes, "milli_per_node": each, "gpus_milli": nodes * each})
        room, stock = measured(cluster_of(crowd), state.gpu.column("used_milli"), until_ms, crowd.masked * SOMEBODY, none)
        stock.memory_mib[:] = 0
        victims, gpus = np.empty(runs, dtype=np.int64), np.empty(state.gpu.used + nodes * 8, dtype=np.int64)
        may_go, idle_milli = field.eligible.astype(np.uint8), int((MILLI - state.gpu.column("used_milli")).sum())
        used, loose_milli = stock.used.copy(), int(field.milli[may_go == 1].sum())
        known = room.nodes[0].tolist() + [0] * 8  # nodes with at least so many GPUs free
        open_ = known[each // MILLI] if each >= MILLI else int(known[1] > 0 or int(room.shared[0]) >= each)
        too_little = not loose_milli or loose_milli + idle_milli < nodes * each

        answer, going, count = taking.plan_for(
            losers, may_go, loose_milli, idle_milli, field.room, field.rank, stock, 0, nodes, each,
            open_, steps_max, victims, gpus,
        )  # fmt: skip

        with mock.patch.object(choosing, "STEPS_MAX", steps_max):
            expected = by_the_rules(crowd)
        assert stock.used.tolist() == used.tolist(), "what was imagined is taken back"
        if expected is None:
            assert answer == (taking.NOBODY if each >= MILLI or too_little else taking.ELSEWHERE)
            continue
        assert answer == taking.FOUND
        assert (victims[:going].tolist(), gpus[:count].tolist()) == expected
        held[gpus[:count]] = SOMEBODY
        field.eligible[victims[:going]] = 0
        for run in victims[:going].tolist():
            if field.leaf[run] >= 0:
                field.room[field.leaf[run]] -= 2 * field.milli[run]
        plans += 1
    event(f"plans: {plans}, steps: {steps_max}")


@settings(derandomize=True, max_examples=6, deadline=None)
@given(st.integers(8, 32), st.integers(1, 10_000), st.integers(0, 3))
def test_a_cycle_that_makes_many_plans_at_once_is_the_one_that_folds_each(nodes: int, seed: int, closed: int) -> None:
    walked, listed = Taking.walk, [0]

    def one_by_one(self: Taking, *arguments: Any, plain: bool) -> tuple[int, int]:
        return walked(self, *arguments, plain=False)

    def at_once(self: Taking, *arguments: Any, plain: bool) -> tuple[int, int]:
        found = walked(self, *arguments, plain=plain)
        listed[0] = max(listed[0], int(self._takes.counts[1]))
        return found

    digests = list[list[str]]()
    for way in (one_by_one, at_once):
        digests.append(digests_of(way, nodes, seed, closed))
    assert digests[0] == digests[1]
    event(f"at once: {min(listed[0], 8)}")


def digests_of(way: Any, nodes: int, seed: int, closed: int) -> list[str]:
    """Let budgets be owed much and others be closed, hour by hour; return what each cycle comes to."""
    world, found = World(nodes, seed), list[str]()
    leaves, pool = world.setting.leaves(), world.setting.pool
    world.submit(nodes * 14)
    with mock.patch.object(Taking, "walk", way):
        for hour in range(8):
            world.cycle(MS_PER_HOUR if hour > 1 else 60_000)
            found.append(world.core.digest())
            world.end(nodes // 4)
            world.submit(nodes)
            for one in range(closed * hour):
                path = leaves[(seed * 31 + hour * 17 + one * 7) % len(leaves)]
                if one % 2 and hour == 3:
                    world.say(BudgetClosed(pool=pool, budget=path))
                elif hour in (2, 4):
                    world.say(BudgetSet(pool=pool, budget=path, share_ppm=200_000 if one % 2 else 1_000))
    return found



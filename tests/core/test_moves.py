"""Moves that are found let the workload start and leave nobody without a place; where trying all finds none, none is found."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from hypothesis import event, given, settings
from hypothesis import strategies as st

from apportion.core.policy.moving import Plan, movable_runs, plan_for
from apportion.core.policy.reserving import Reservations
from apportion.core.state import schema
from apportion.core.state.holdings import gpus_of_run
from apportion.core.state.state import State
from tests.strategies import add_nodes

QUANTUM_MS, NOW_MS = 600_000, 100_000_000


@dataclass
class Crowd:
    """Nodes with runs on them, and a workload (row 0) that wants ``nodes`` x ``each`` whole GPUs."""

    state: State
    sizes: list[int]
    nodes: int
    each: int


@st.composite
def crowds(draw: st.DrawFn) -> Crowd:
    """Draw two to four nodes, runs on one node or several, of which some may be moved and some are protected."""
    sizes = draw(st.lists(st.sampled_from([3, 4, 4]), min_size=2, max_size=4))
    state = State()
    state.counters.time_ms, state.counters.seq = NOW_MS, 100
    state.pool.add("p")
    state.pool.quantum_ms[0] = QUANTUM_MS
    state.budget.add("p:A")
    add_nodes(state, sizes)
    wanted = state.workload.add("a1")
    nodes, each = draw(st.sampled_from([(1, 3), (1, 4), (1, 4), (2, 3), (2, 4), (3, 3)]))
    shape_of(state, wanted, nodes, each)
    for number in range(draw(st.integers(2, 6))):
        parts, size = draw(st.sampled_from([(1, 1), (1, 1), (1, 1), (1, 2), (2, 1), (1, 3)]))
        able = [node for node in range(len(sizes)) if len(unused(state, node)) >= size]
        if len(able) >= parts:
            chosen = sorted(draw(st.permutations(able))[:parts])
            spots = [gpu for node in chosen for gpu in draw(st.permutations(unused(state, node)))[:size]]
            add_run(state, number, parts, size, spots)
            row = state.run.row_of[f"b{number}#1"]
            state.workload.movable[int(state.run.workload[row])] = draw(st.sampled_from([1, 1, 1, 0]))
            state.run.state[row] = draw(st.sampled_from([schema.STARTED] * 5 + [schema.PLACED, schema.STOPPING]))
            state.run.placed_ms[row] = NOW_MS - draw(st.sampled_from([QUANTUM_MS, QUANTUM_MS - 1, 5 * QUANTUM_MS]))
            state.run.protected_until_ms[row] = NOW_MS + draw(st.sampled_from([0, 0, 0, 0, 1]))
            state.run.checkpoint_ms[row] = NOW_MS - draw(st.sampled_from([0, 1_000, 2_000, 3_000]))
            state.run.idle_cycles[row] = draw(st.sampled_from([0, 0, 0, 1]))
    state.pool.idle_milli[0] = 1_000 * int((state.gpu.column("used_milli") == 0).sum())
    return Crowd(state, sizes, nodes, each)


def shape_of(state: State, workload: int, nodes: int, each: int) -> None:
    table = state.workload
    table.nodes[workload], table.milli_per_node[workload] = nodes, 1_000 * each
    table.gpus_milli[workload] = 1_000 * nodes * each


def unused(state: State, node: int) -> list[int]:
    rows = np.flatnonzero((state.gpu.column("node") == node) & (state.gpu.column("used_milli") == 0))
    return [int(row) for row in rows]


def add_run(state: State, number: int, nodes: int, each: int, gpus: list[int]) -> None:
    """Lay a run on these GPUs."""
    owner = state.workload.add(f"b{number}")
    shape_of(state, owner, nodes, each)
    state.workload.event_seq[owner] = 10 + number
    run, last = state.run.add(f"b{number}#1"), -1
    state.run.workload[run], state.run.first_alloc[run] = owner, -1
    state.run.gpus_milli[run] = 1_000 * len(gpus)
    for gpu in sorted(gpus):
        alloc = state.alloc.add()
        state.alloc.run[alloc], state.alloc.gpu[alloc], state.alloc.milli[alloc] = run, gpu, 1_000
        state.alloc.next[alloc] = -1
        state.gpu.used_milli[gpu] = 1_000
        if last < 0:
            state.run.first_alloc[run] = alloc
        else:
            state.alloc.next[last] = alloc
        last = alloc


def may_move(state: State, run: int) -> bool:
    """The rule, again."""
    if not state.workload.movable[int(state.run.workload[run])] or int(state.run.state[run]) != schema.STARTED:
        return False
    ran_ms = NOW_MS - int(state.run.placed_ms[run])
    return int(state.run.protected_until_ms[run]) <= NOW_MS and (not state.run.idle_cycles[run] or ran_ms >= QUANTUM_MS)


def cost_of(state: State, runs: tuple[int, ...]) -> tuple[int, ...]:
    """Work since the last checkpoint, at most a quantum of each; idle cycles count after that; GPUs; ages."""
    total = [0] * 6
    for run in runs:
        milli, idle = int(state.run.gpus_milli[run]), bool(state.run.idle_cycles[run])
        lost = milli * min(QUANTUM_MS, NOW_MS - int(state.run.checkpoint_ms[run]))
        age = NOW_MS - int(state.run.placed_ms[run])
        since = 100 - int(state.workload.event_seq[int(state.run.workload[run])])
        parts = (0 if idle else lost, 0 if idle else milli, lost if idle else 0, milli, age, since)
        total = [one + other for one, other in zip(total, parts, strict=True)]
    return tuple(total)


def spreads(free: list[int], shapes: list[tuple[int, int]]) -> bool:
    """Tell whether all shapes fit on what is free per node, by trying every choice of nodes."""
    if not shapes:
        return True
    (parts, each), rest = shapes[0], shapes[1:]
    return any(
        spreads([left - each * (node in chosen) for node, left in enumerate(free)], rest)
        for chosen in combinations([node for node, left in enumerate(free) if left >= each], parts)
    )


def workable(crowd: Crowd, runs: tuple[int, ...]) -> bool:
    """Tell whether the workload could start if these runs moved to GPUs that are free now; freed ones are for it alone."""
    state = crowd.state
    free = [len(unused(state, node)) for node in range(len(crowd.sizes))]
    freed = [0] * len(crowd.sizes)
    for run in runs:
        for gpu in gpus_of_run(state, run):
            freed[int(state.gpu.node[gpu])] += 1
    table = state.workload
    owners = [int(state.run.workload[run]) for run in runs]
    shapes = [(int(table.nodes[owner]), int(table.milli_per_node[owner]) // 1_000) for owner in owners]
    able = [node for node in range(len(crowd.sizes)) if free[node] + freed[node] >= crowd.each]
    return any(
        spreads([left - max(0, crowd.each - freed[n]) * (n in chosen) for n, left in enumerate(free)], shapes)
        for chosen in combinations(able, crowd.nodes)
    )


def plans(crowd: Crowd) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Yield (cost, runs) of all sets of runs by whose moves the workload starts, of no more GPUs than needed and one run."""
    movable = [run for run in crowd.state.run.live_rows() if may_move(crowd.state, run)]
    for count in range(1, len(movable) + 1):
        for runs in combinations(movable, count):
            sizes = [int(crowd.state.run.gpus_milli[run]) for run in runs]
            bound = 1_000 * crowd.nodes * crowd.each + max(sizes)
            if sum(sizes) <= bound and workable(crowd, runs):
                yield cost_of(crowd.state, runs), runs


def check(crowd: Crowd, plan: Plan) -> None:
    """The workload has its shape on GPUs that are free or will be, each moved run its own on others that are free now."""
    state = crowd.state
    node = state.gpu.column("node")
    leaving = {gpu for run in plan.moves for gpu in gpus_of_run(state, run)}
    free = {int(gpu) for gpu in np.flatnonzero(state.gpu.column("used_milli") == 0)}
    assert set(plan.gpus) <= free | leaving
    assert sorted(np.unique(node[plan.gpus], return_counts=True)[1].tolist()) == [crowd.each] * crowd.nodes
    taken = set(plan.gpus)
    for run, gpus in plan.moves.items():
        owner = int(state.run.workload[run])
        assert may_move(state, run)
        assert set(gpus) <= free - taken, f"run {run} goes where it cannot"
        taken |= set(gpus)
        parts = np.unique(node[gpus], return_counts=True)[1].tolist()
        assert parts == [int(state.workload.milli_per_node[owner]) // 1_000] * int(state.workload.nodes[owner])


@settings(derandomize=True, max_examples=400, deadline=None)
@given(crowds())
def test_moves_are_such_that_all_have_a_place_and_none_is_found_where_there_are_none(crowd: Crowd) -> None:
    state = crowd.state
    assert movable_runs(state, 0).tolist() == [may_move(state, run) for run in range(state.run.used)]
    free = [len(unused(state, node)) for node in range(len(crowd.sizes))]
    if spreads(free, [(crowd.nodes, crowd.each)]):
        return  # it starts as things are, and nobody looks for moves

    plan = plan_for(state, 0, Reservations.none(state))
    all_plans = sorted(plans(crowd))

    if plan is not None:
        check(crowd, plan)
        least = all_plans[0][0]
        mine = cost_of(state, tuple(plan.moves))
        assert mine >= least
        event("the least plan" if mine == least else "a plan")
    else:
        event("no plan, and there is one" if all_plans else "no plan, and there is none")

"""Moves: runs that may be moved go elsewhere so that a waiting workload fits, where enough GPUs are free but not together.

For who is funded and can neither start nor preempt, and for the first in line of a budget, though nobody would pay for it yet. The
plan is the set of runs whose going costs least (``choosing``, at the prices of victims: work since the last checkpoint first) and
that all fit elsewhere *now*: on GPUs that are free, that nobody has held or reserved, and that the workload itself does not get. A
run is moved only if it is asked for nothing that was promised to it: its workload said ``movable``, it has started, and its
protected time is over; on idle cycles, which have none, a quantum stands for it. So nobody is moved twice within it, and as the
workload gets what it waits for, every move ends in a start: moves cannot chase each other.

Under rule ``propose`` the plan is shown, each time it changes; under ``carry_out`` the runs are stopped with their grace, their new
GPUs and those of the workload are held from that moment on, and each goes on at once from what is safe. That is no failure, no
back-off counts it, and what it lost is given back by the pool's rule for drains. In the order of its budget it stands where its new
start puts it. Runs of a group that keeps apart are not moved.

The first plan may not fit elsewhere although another would: then the run that found no place is left where it is and the search is
made again, ``PLANS_MAX`` times. So a plan is valid, and the least of those that leave these runs; not always the least of all
(naive: all subsets of the movable runs, each with all places). A pure function of the state; writes nothing but decisions.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from apportion.core.decisions import Move, MovesProposed
from apportion.core.policy.certifying import write_moves
from apportion.core.policy.choosing import Field, costs_of, least_plan
from apportion.core.policy.emit import Emit
from apportion.core.policy.fitting import find_gpus
from apportion.core.policy.reserving import Reservations
from apportion.core.state import schema
from apportion.core.state.holdings import gpus_of_run, pieces_of
from apportion.core.state.space import Space
from apportion.core.state.state import State
from apportion.core.state.wishes import wish_of
from apportion.core.state.work import unsaved_us
from apportion.core.units import MILLI

I64 = NDArray[np.int64]

ASKED_MAX = 8  # workloads for which moves are looked for, per pool and cycle
PLANS_MAX = 4  # searches for each of them


@dataclass
class Plan:
    """Who starts where, and who goes where so that it can: run row to GPU rows."""

    gpus: list[int]
    moves: dict[int, list[int]]


@dataclass
class Moves:
    """What one cycle has looked for in one pool."""

    kind: int  # MOVES_NONE, MOVES_PROPOSE, MOVES_CARRY_OUT
    asked: dict[int, None] = field(default_factory=dict)  # workloads, in order

    @classmethod
    def of(cls, state: State, pool: int) -> Moves:
        """Return the rule of a pool; where nothing may be moved there is nothing to look for."""
        run, kind = state.run, int(state.pool.moves[pool])
        if kind == schema.MOVES_NONE:
            return cls(kind)
        any_movable = bool((state.workload.movable[run.column("workload")][run.column("pool") == pool] == 1).any())
        return cls(kind if any_movable else schema.MOVES_NONE)


def move_for(state: State, emit: Emit, moves: Moves, workload: int, reservations: Reservations, *, funded: bool) -> bool:
    """Look for moves by which the workload starts, and write them as the pool's policy says; tell whether they are carried out."""
    need, free = int(state.workload.gpus_milli[workload]), int(state.pool.idle_milli[int(state.workload.pool[workload])])
    if moves.kind == schema.MOVES_NONE or free < need or workload in moves.asked or len(moves.asked) >= ASKED_MAX:
        return False
    moves.asked[workload] = None
    plan = plan_for(state, workload, reservations)
    if plan is not None and moves.kind == schema.MOVES_CARRY_OUT:
        write_moves(state, emit, workload, plan.gpus, plan.moves, funded=funded)
        return True
    _propose(state, emit, workload, plan)
    return False


def withdraw(state: State, emit: Emit, moves: list[Moves]) -> None:
    """Say of proposals that nobody has looked at again that there are none."""
    memo = state.memo.at(state.moved)
    if memo.proposed is None:
        memo.proposed = np.flatnonzero(state.workload.column("proposed")).tolist()
    asked = {workload for each in moves for workload in each.asked}
    for row in memo.proposed:
        if row not in asked:
            _propose(state, emit, row, None)


def _propose(state: State, emit: Emit, workload: int, plan: Plan | None) -> None:
    table, run = state.workload, state.run
    proposal = MovesProposed(workload=table.keys[workload])
    if plan is not None:
        told = tuple(
            Move(
                workload=table.keys[int(run.workload[row])],
                run=int(run.run_no[row]),
                pieces=pieces_of(state, gpus, _each(state, int(run.workload[row]))),
                lost_gpu_us=unsaved_us(state, row, state.counters.time_ms),
            )
            for row, gpus in plan.moves.items()
        )
        lost_us = sum(move.lost_gpu_us for move in told)
        pieces = pieces_of(state, plan.gpus, _each(state, workload))
        proposal = MovesProposed(workload=proposal.workload, pieces=pieces, moves=told, lost_gpu_us=lost_us)
    if proposal.mark != int(table.proposed[workload]):
        emit(proposal)


def _each(state: State, workload: int) -> int:
    return min(MILLI, int(state.workload.milli_per_node[workload]))


def movable_runs(state: State, pool: int) -> NDArray[np.bool_]:
    """Return per run row whether it may be moved now."""
    run, workload, now_ms = state.run, state.workload, state.counters.time_ms
    owner = run.column("workload")
    quantum_ms = np.where(run.column("idle_cycles") == 1, int(state.pool.quantum_ms[pool]), 0)
    over_ms = np.maximum(run.column("protected_until_ms"), run.column("placed_ms") + quantum_ms)
    result: NDArray[np.bool_] = (run.column("pool") == pool) & (run.column("state") == schema.STARTED) & (over_ms <= now_ms)
    result &= (workload.movable[owner] == 1) & (workload.cancel_seq[owner] == 0)
    for row in np.flatnonzero(result & (workload.wish[owner] > 0)).tolist():
        result[row] = not wish_of(state, int(owner[row])).group
    return result


def plan_for(state: State, workload: int, reservations: Reservations) -> Plan | None:
    """Return the moves by which the workload would start; None when there are none, or none were found."""
    run, pool = state.run, int(state.workload.pool[workload])
    milli = run.column("gpus_milli")
    eligible, nobody = movable_runs(state, pool), np.full(run.used, -1, dtype=np.int64)
    eligible &= _fit_elsewhere(state, np.flatnonzero(eligible), reservations)
    masked = reservations.from_takers(state, workload)
    counted = np.where(run.column("idle_cycles") == 1, 0, milli)
    cost = costs_of(state, counted, np.zeros_like(milli), int(state.pool.quantum_ms[pool]))
    room = np.zeros(state.budget.used, dtype=np.int64)
    for _search in range(PLANS_MAX):
        if not eligible.any():
            return None
        able = Field(eligible.astype(np.int64), np.where(eligible[:, None], cost, 0), nobody, milli, room, room)
        found = least_plan(state, able, workload, masked)
        if found is None:
            return None
        places, stuck = _places(state, workload, *found, reservations)
        if stuck < 0:
            return Plan(found[1], places)
        others_first = _others_first(state, workload, found[0], masked, reservations)
        if others_first is not None:
            return others_first
        eligible[stuck] = False
    return None


def _fit_elsewhere(state: State, rows: I64, reservations: Reservations) -> NDArray[np.bool_]:
    """Return per run row whether it alone would fit on GPUs that are free now; asked once per shape and wish.

    As if its node gave no CPU and memory back: who needs those too is left to the plan.
    """
    table, now = state.workload, Space.now(state)
    result, known = np.zeros(state.run.used, dtype=np.bool_), dict[tuple[int, int, int], bool]()
    kept = (reservations.until_ms > 0).astype(np.int64)  # for nobody that runs
    for row in rows.tolist():
        owner = int(state.run.workload[row])
        wish = wish_of(state, owner)._replace(cpu_milli=0, memory_mib=0)
        shape = int(table.nodes[owner]), int(table.milli_per_node[owner]), int(table.wish[owner])
        if shape not in known:
            known[shape] = bool(find_gpus(state, owner, now, kept, wish))
        result[row] = known[shape]
    return result


def _places(
    state: State, workload: int, runs: list[int], gpus: list[int], reservations: Reservations
) -> tuple[dict[int, list[int]], int]:
    """Return where these runs go when the workload gets ``gpus``, the largest first; and the first that has no place, -1 = none."""
    space = Space.copy(state)
    for run in runs:
        space.step_aside(run)
    _take(state, space, workload, gpus)
    return _spread(state, space, runs, reservations, np.zeros(state.node.used, dtype=np.int64))


def _spread(
    state: State, space: Space, runs: list[int], reservations: Reservations, masked: I64
) -> tuple[dict[int, list[int]], int]:
    places: dict[int, list[int]] = {}
    for run in sorted(runs, key=lambda row: (-int(state.run.gpus_milli[row]), row)):
        owner = int(state.run.workload[run])
        places[run] = find_gpus(state, owner, space, masked | reservations.from_takers(state, owner))
        if not places[run]:
            return {}, run
        _take(state, space, owner, places[run])
    return places, -1


def _take(state: State, space: Space, workload: int, gpus: list[int]) -> None:
    """Imagine a workload on these GPUs, which nobody shares then, with all else that it takes of their nodes."""
    wish, node_of = wish_of(state, workload), state.gpu.node
    space.gpu_milli[gpus] = MILLI
    nodes = [int(node_of[gpu]) for gpu in gpus]
    for node in nodes if wish.loose else dict.fromkeys(nodes):
        space.cpu_milli[node] += wish.cpu_milli
        space.memory_mib[node] += wish.memory_mib


def _others_first(state: State, workload: int, runs: list[int], masked: I64, reservations: Reservations) -> Plan | None:
    """Return the plan in which these runs choose first, away from the nodes they leave, if the workload then fits."""
    space, leaving = Space.copy(state), np.zeros(state.node.used, dtype=np.int64)
    for run in runs:
        space.step_aside(run)
        leaving[state.gpu.node[gpus_of_run(state, run)]] = 1
    places, stuck = _spread(state, space, runs, reservations, leaving)
    if stuck >= 0:
        return None
    after = Space.copy(state)
    for run in runs:
        after.take_out(run)
    for run, gpus in places.items():
        _take(state, after, int(state.run.workload[run]), gpus)
    found = find_gpus(state, workload, after, masked)
    return Plan(found, places) if found else None

"""Starts: held workloads first, then funded heads in fair order (with preemption and reservations), then everybody.

Fair order: from the root of the pool's tree to the child with the largest (allowance - running) / share. Pass 1 serves what is
funded, from the heads of the budgets' queues on; one that does not fit may preempt. The first of each budget that can do
neither gets a reservation (``reserving``), after which others start, and preempt, only where they do not delay it. Whoever is
*stuck* so keeps his part of the allowance: what stands behind him in his budget is served in pass 1 while it is funded beside
him. (On whole nodes one large gang would else stop all preemption for hours, and everybody would live on leftovers: at 2.2
times demand some budgets got 1.4 times their due, others 0.95.) Then nodes are kept for the first in line of budgets that will
be funded before their nodes could be ready. Pass 2 serves all queues in depth, but nothing overtakes the first of its own
budget so that this would be funded later (``precedence``); pass 3 does the same for what nobody else could use, with all work
that is over when the first of its budget could start, so that no GPU idles while something placeable waits; pass 4 work that
asked for idle cycles only. What a budget could have and does not use is lent to all in these passes, not to its siblings first.
A budget that lost a run in this cycle starts nothing in it. Where runs may be moved (``moving``), whoever is stuck in pass 1
may start by that, and at the end the first of each budget.

Naive equivalent: after each start, sort all pending workloads anew and try them in order. Here a shape that did not fit is not
tried again in the cycle, because starts only take space. A pool under a baseline policy is served by ``baselines`` instead.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from apportion.core.kernels import queue as queue_kernels
from apportion.core.kernels import share
from apportion.core.policy.baselines import BASELINES
from apportion.core.policy.baselines.serving import serve
from apportion.core.policy.emit import Emit
from apportion.core.policy.fitting import find_gpus
from apportion.core.policy.funding import Shares, fundable
from apportion.core.policy.moving import Moves, move_for, withdraw
from apportion.core.policy.precedence import Ends, Place, place_for
from apportion.core.policy.preempting import preempt_for
from apportion.core.policy.reserving import Reservations, reserve, says_over_ms
from apportion.core.policy.starting import add_running, count_held_as_running, start, start_held
from apportion.core.state import schema
from apportion.core.state.space import Space
from apportion.core.state.state import State

I64 = NDArray[np.int64]

SHAPES_TRIED_MAX = 512
RESERVATIONS_MAX = 8  # per pool and cycle
STUCK_MAX = 8  # shapes per budget that pass 1 finds stuck in a cycle: each costs a search for victims


class Tried:
    """Shapes that did not fit in this cycle; starts only take space, so they need not be tried again."""

    def __init__(self, most: int) -> None:
        self.shapes = np.zeros((most, 4), dtype=np.int64)  # nodes, milli per node, wish, when it would have been over
        self.count = 0

    @property
    def full(self) -> bool:
        """No more can be noted."""
        return self.count == len(self.shapes)

    def note(self, state: State, workload: int) -> None:
        """Remember the shape of a workload."""
        table = state.workload
        shape = int(table.nodes[workload]), int(table.milli_per_node[workload]), int(table.wish[workload])
        self.shapes[self.count] = (*shape, says_over_ms(state, workload))
        self.count += 1


@dataclass
class Turn:
    """What the passes over one pool share. ``queue`` is the queue as it was; rows that started meanwhile are skipped by state."""

    pool: int
    queue: I64
    first: I64
    last: I64
    reservations: Reservations
    moves: Moves
    blocked: I64  # per budget row: lost a run in this cycle
    tried: Tried = field(default_factory=lambda: Tried(SHAPES_TRIED_MAX))


def place_all(state: State, emit: Emit, shares: Shares) -> list[Reservations]:
    """Emit the starts, holds and preemptions of this cycle; returns the reservation of each pool."""
    count_held_as_running(state, shares)
    start_held(state, emit, shares)
    made, looked = list[Reservations](), list[Moves]()
    for pool in range(state.pool.used):
        baseline = BASELINES.get(int(state.pool.policy[pool]))
        if baseline is None:
            looked.append(Moves.of(state, pool))
            made.append(_place_pool(state, emit, shares, pool, looked[-1]))
        else:
            made.append(serve(state, emit, shares, pool, baseline))
    withdraw(state, emit, looked)
    return made


def _place_pool(state: State, emit: Emit, shares: Shares, pool: int, moves: Moves) -> Reservations:
    rows = state.budget.used
    turn = Turn(
        pool=pool,
        queue=state.queue[: state.queued].copy(),
        first=np.zeros(rows, dtype=np.int64),
        last=np.zeros(rows, dtype=np.int64),
        reservations=Reservations.none(state),
        moves=moves,
        blocked=np.zeros(rows, dtype=np.int64),
    )
    if state.queued:
        queue_kernels.segments(turn.queue, state.queued, state.workload.budget, turn.first, turn.last)
        _funded(state, emit, shares, turn)
        ends = Ends(state)
        _reserve_ahead(state, emit, shares, turn, ends)
        for idle_cycles, in_time_free in ((0, False), (0, True), (1, False)):
            if int(state.pool.idle_milli[pool]) > 0:
                _everybody(state, emit, shares, turn, ends, idle_cycles, in_time_free=in_time_free)
        _move_for_heads(state, emit, shares, turn)
    return turn.reservations


def _candidate(
    state: State, turn: Turn, leaf: int, start: int, idle_cycles: int, tried: Tried, place: Place | None = None
) -> int:
    table, place = state.workload, place or Place.free()
    return int(
        queue_kernels.next_candidate(
            turn.queue, start, int(turn.last[leaf]), state.counters.time_ms, turn.reservations.instants_ms,
            place.head, place.until_ms, place.spare_us, int(state.pool.horizon_ms[turn.pool]), int(place.in_time_free), idle_cycles,
            table.state, schema.PENDING, table.nodes, table.milli_per_node, table.wish, table.min_runtime_ms,
            table.expected_runtime_ms, table.progress_ms, table.not_before_ms, tried.shapes, tried.count,
        )
    )  # fmt: skip


def _next_leaf(state: State, turn: Turn, allowance: I64, running: I64, ready: I64) -> int:
    budget, root = state.budget, int(state.pool.root[turn.pool])
    return int(
        share.next_leaf(
            root, budget.used, budget.pool, budget.parent, budget.children, budget.share_ppm,
            allowance, running, ready,
        )
    )  # fmt: skip


def _fit(state: State, turn: Turn, workload: int) -> list[int]:
    return find_gpus(state, workload, Space.now(state), turn.reservations.beside(state, workload))


def _funded(state: State, emit: Emit, shares: Shares, turn: Turn) -> None:
    rows = state.budget.used
    position = turn.first.copy()
    candidate = np.full(rows, -1, dtype=np.int64)
    ready = np.zeros(rows, dtype=np.int64)
    stuck_milli = np.zeros(rows, dtype=np.int64)  # funded and cannot start, own and below
    tried: dict[int, Tried] = {}  # per leaf: whom one may preempt depends on who asks

    def look(leaf: int) -> None:
        shapes = tried.setdefault(leaf, Tried(STUCK_MAX))
        found = -1 if shapes.full else _candidate(state, turn, leaf, int(position[leaf]), 0, shapes)
        ready[leaf] = 0
        if found >= 0 and not turn.blocked[leaf]:
            position[leaf], candidate[leaf] = found, int(turn.queue[found])
            ready[leaf] = int(fundable(state, shares, int(candidate[leaf]), int(stuck_milli[leaf]))[0])

    for busy in np.flatnonzero((turn.last > turn.first) & (state.budget.column("pool") == turn.pool)):
        look(int(busy))
    while (leaf := _next_leaf(state, turn, shares.allowance, shares.running + stuck_milli, ready)) >= 0:
        workload = int(candidate[leaf])
        gpus = _fit(state, turn, workload)
        if gpus:
            start(state, emit, shares, workload, gpus)
            turn.reservations.look_again()
        elif (losers := preempt_for(state, emit, shares, workload, turn.reservations.from_takers(state, workload))) is not None:
            add_running(state, shares, workload, 1)
            turn.reservations.look_again()
            for loser in losers:
                add_running(state, shares, loser, -1)
                turn.blocked[int(state.workload.budget[loser])] = 1
                ready[int(state.workload.budget[loser])] = 0
        elif move_for(state, emit, turn.moves, workload, turn.reservations, funded=True):
            add_running(state, shares, workload, 1)
            turn.reservations.look_again()
        else:
            if not stuck_milli[leaf] and len(turn.reservations.starts_ms) < RESERVATIONS_MAX:
                reserve(state, turn.reservations, workload)
            tried[leaf].note(state, workload)
            position[leaf] += 1
            line = leaf
            while line >= 0:
                stuck_milli[line] += int(state.workload.gpus_milli[workload])
                line = int(state.budget.parent[line])
        look(leaf)


def _reserve_ahead(state: State, emit: Emit, shares: Shares, turn: Turn, ends: Ends) -> None:
    """Keep nodes for the first in line of budgets that will be funded before their nodes could be ready, in fair order."""
    reservations = turn.reservations
    ready = _waiting(state, turn)
    for workload in reservations.starts_ms:
        ready[int(state.workload.budget[workload])] = 0
    for _look in range(2 * RESERVATIONS_MAX):
        leaf = _next_leaf(state, turn, shares.allowance, shares.running, ready)
        if leaf < 0 or len(reservations.starts_ms) >= RESERVATIONS_MAX:
            return
        ready[leaf] = 0
        place = _place(state, shares, turn, ends, leaf)
        if place.head >= 0 and place.until_ms and not _move_unpaid(state, emit, shares, turn, place.head):
            reserve(state, reservations, place.head, place.until_ms)


def _move_for_heads(state: State, emit: Emit, shares: Shares, turn: Turn) -> None:
    """Let the first in line of budgets start by moves, though unfunded: on GPUs on which nobody could start as they lie."""
    ready = _waiting(state, turn) * int(turn.moves.kind != schema.MOVES_NONE)
    while (leaf := _next_leaf(state, turn, shares.allowance, shares.running, ready)) >= 0:
        ready[leaf] = 0
        head = _candidate(state, turn, leaf, int(turn.first[leaf]), 0, Tried(0))
        if head >= 0 and int(turn.queue[head]) not in turn.reservations.starts_ms:
            _move_unpaid(state, emit, shares, turn, int(turn.queue[head]))


def _move_unpaid(state: State, emit: Emit, shares: Shares, turn: Turn, workload: int) -> bool:
    if not move_for(state, emit, turn.moves, workload, turn.reservations, funded=False):
        return False
    add_running(state, shares, workload, 1)
    turn.reservations.look_again()
    return True


def _waiting(state: State, turn: Turn) -> I64:
    """Return per budget row 1 where something waits that may start in this cycle."""
    mine = state.budget.column("pool") == turn.pool
    waiting: I64 = ((turn.last > turn.first) & (turn.blocked == 0) & mine).astype(np.int64)
    return waiting


def _everybody(
    state: State, emit: Emit, shares: Shares, turn: Turn, ends: Ends, idle_cycles: int, *, in_time_free: bool
) -> None:
    position = turn.first.copy()
    allowance = shares.allowance.copy()
    places: dict[int, Place] = {}  # per leaf, until something of it starts
    ready = _waiting(state, turn)
    while (leaf := _next_leaf(state, turn, allowance, shares.running, ready)) >= 0:
        if leaf not in places:
            places[leaf] = Place.free() if idle_cycles else _place(state, shares, turn, ends, leaf)
            places[leaf].in_time_free = in_time_free
        found = _candidate(state, turn, leaf, int(position[leaf]), idle_cycles, turn.tried, places[leaf])
        if found < 0:
            ready[leaf] = 0
            _lend(state, allowance, leaf, int(allowance[leaf] - shares.running[leaf]))
            continue
        position[leaf] = found
        workload = int(turn.queue[found])
        gpus = _fit(state, turn, workload)
        if gpus:
            start(state, emit, shares, workload, gpus)
            ends.add(workload)
            del places[leaf]
        elif turn.tried.full:
            ready[leaf] = 0
        else:
            turn.tried.note(state, workload)


def _lend(state: State, allowance: I64, leaf: int, surplus_milli: int) -> None:
    """Take what a budget does not use now out of the order of its path: it goes to all by need, not to its siblings first.

    They alone would be in debt for it, more than they could pay back out of what they are entitled to: a saving budget's catch-up
    would then be capped, for a large gang for ever.
    """
    line = leaf
    while surplus_milli > 0 and line >= 0:
        allowance[line] -= surplus_milli
        line = int(state.budget.parent[line])


def _place(state: State, shares: Shares, turn: Turn, ends: Ends, leaf: int) -> Place:
    """Return what a budget keeps for the first of its queue that may start now."""
    head = _candidate(state, turn, leaf, int(turn.first[leaf]), 0, Tried(0))
    if head < 0:
        return Place.free()
    return place_for(state, shares, ends, turn.reservations, int(turn.queue[head]))

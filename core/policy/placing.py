"""Starts: held workloads first, then funded heads in fair order (with preemption and reservations), then everybody.

Fair order: from the root of the pool's tree to the child with the largest (allowance - running) / share. Pass 1 serves what is
funded, from the heads of the budgets' queues on; one that does not fit may preempt. The first of each budget that can do neither
gets a reservation (``reserving``), after which others start, and preempt, only where they do not delay it. Whoever is *stuck* so
keeps his part of the allowance: what stands behind him in his budget is served in pass 1 while it is funded beside him. (On whole
nodes one large gang would else stop all preemption for hours, and everybody would live on leftovers: at 2.2 times demand some
budgets got 1.4 times their due, others 0.95.) Then nodes are kept for the first in line of budgets that will be funded before
their nodes could be ready. Pass 2 serves all queues in depth, but nothing overtakes the first of its own budget so that this would
be funded later (``precedence``); pass 3 does the same for what nobody else could use, with all work that is over when the first
of its budget could start, so that no GPU idles while something placeable waits; pass 4 work that asked for idle cycles only. What
a budget could have and does not use is lent to all in these passes, not to its siblings first. A budget that lost a run in this
cycle starts nothing in it. Who starts so on nodes that idle for somebody else no longer needs those that were kept for him: they
are free again, and the passes look once more. Where runs may be moved (``moving``), whoever is stuck in pass 1 may start by that,
and at the end the first of each budget.

Pass 1 ends after ``SEARCHES_MAX`` searches for victims: when many budgets are closed at once, thousands of runs may go and
thousands wait for their GPUs. The rest is for the next cycle, which comes when the first of them have gone.

With conservative backfill (``planning``) a plan of the time to come takes the place of reservations: it is made first and starts
who is to start now; pass 1 then only preempts, and the other passes start only whom the plan leaves GPUs for. Nothing is moved
then: where a run goes somebody may be planned.

When all pools have been served, whoever still waits and accepts other pools is offered to these (``visiting``).

Naive equivalent: after each start, sort all pending workloads anew and try them in order. Here a shape that did not fit is not
tried again in the cycle, because starts only take space. A pool under a baseline policy is served by
``baselines`` instead, one under ``horizon`` by that.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from apportion.core.kernels import serve
from apportion.core.policy import planning
from apportion.core.policy.baselines import BASELINES
from apportion.core.policy.baselines.serving import serve as serve_baseline
from apportion.core.policy.emit import Emit
from apportion.core.policy.fitting import find_gpus, keep_releases, releases_of
from apportion.core.policy.funding import Shares
from apportion.core.policy.horizon.carrying import serve_horizon
from apportion.core.policy.moving import Moves, move_for, withdraw
from apportion.core.policy.precedence import ends_of, places_of
from apportion.core.policy.preempting import preempt_for
from apportion.core.policy.reserving import Reservations, expected_end, free_times, reserve
from apportion.core.policy.starting import add_running, count_held_as_running, start, start_held, start_listed
from apportion.core.policy.taking import Taking
from apportion.core.policy.turn import SHAPES_TRIED_MAX, STUCK_MAX, Turn, note
from apportion.core.policy.visiting import visit
from apportion.core.state import schema
from apportion.core.state.queue import end_loan
from apportion.core.state.space import Space
from apportion.core.state.state import State

I64 = NDArray[np.int64]

SEARCHES_MAX = 256  # for victims, per pool and cycle: each may take tens of milliseconds where thousands of runs may go


def place_all(state: State, emit: Emit, shares: Shares) -> list[Reservations]:
    """Emit the starts, holds and preemptions of this cycle; returns the reservation of each pool."""
    count_held_as_running(state, shares)
    start_held(state, emit, shares)
    made, looked = list[Reservations](), list[Moves]()
    for pool in range(state.pool.used):
        baseline = BASELINES.get(int(state.pool.policy[pool]))
        if int(state.pool.policy[pool]) == schema.HORIZON:
            made.append(serve_horizon(state, emit, shares, pool))
        elif baseline is None:
            looked.append(Moves.of(state, pool))
            made.append(_place_pool(state, emit, shares, pool, looked[-1]))
        else:
            made.append(serve_baseline(state, emit, shares, pool, baseline))
    visit(state, emit, shares, made)
    end_loan(state)
    withdraw(state, emit, looked)
    return made


def _place_pool(state: State, emit: Emit, shares: Shares, pool: int, moves: Moves) -> Reservations:
    reservations = Reservations.none(state)
    if not state.queued:
        return reservations
    turn, places = Turn(state, shares, pool, reservations), places_of(state)
    if int(state.pool.backfill[pool]) == schema.CONSERVATIVE:
        reservations.planned_ms = _plan(state, emit, shares, turn)
        places.known[:], places.head[:] = 1, -1  # the plan keeps the order, inside budgets too
        moves.kind = schema.MOVES_NONE
    _funded(state, emit, shares, turn, moves)
    ends = ends_of(state)
    if not len(turn.profile):
        _reserve_ahead(state, emit, shares, turn, ends, places, moves)
    _unfunded(state, emit, shares, turn, ends, places)
    while not len(turn.profile) and reservations.let_go(state):  # one started where another's nodes idle: his own are free again
        before, turn = turn, Turn(state, shares, pool, reservations)
        turn.blocked = before.blocked
        _unfunded(state, emit, shares, turn, ends_of(state), places_of(state))
    if moves.kind != schema.MOVES_NONE:
        _move_for_heads(state, emit, shares, turn, moves)
    reservations.profile = turn.profile
    return reservations


def _plan(state: State, emit: Emit, shares: Shares, turn: Turn) -> dict[int, int]:
    """Plan the time to come and start who is to start now; returns when the others of the plan are to start."""
    order, starts = planning.plan(state, turn)
    turn.measure()
    late = starts > turn.now_ms
    planned_ms = dict(zip(order[late].tolist(), starts[late].tolist(), strict=True))
    for workload in order[starts == turn.now_ms].tolist():
        gpus = [] if serve.was_tried(turn.jobs, turn.room, turn.tried, workload, turn.now_ms) else _fit(state, turn, workload)
        if gpus:
            start(state, emit, shares, workload, gpus)
            continue
        planning.take(state, turn, workload, -1)
        if int(turn.tried.counts[1]) < SHAPES_TRIED_MAX:
            note(turn, workload)
    turn.seen[planning.positions(turn, order)] = serve.OUT
    turn.measure()
    return planned_ms


def _fit(state: State, turn: Turn, workload: int) -> list[int]:
    return find_gpus(state, workload, Space.now(state), turn.reservations.beside(state, workload))


def _funded(state: State, emit: Emit, shares: Shares, turn: Turn, moves: Moves) -> None:
    rows, jobs, lines = state.budget.used, turn.jobs, turn.lines
    position, candidate, stuck_milli = jobs.first.copy(), np.full(rows, -1, dtype=np.int64), np.zeros(rows, dtype=np.int64)
    taken = shares.running.copy()  # and what is funded and cannot start, own and below
    # per leaf: whom one may preempt depends on who asks
    shapes, count = np.zeros((rows, STUCK_MAX, 4), dtype=np.int64), np.zeros(rows, dtype=np.int64)
    found = np.zeros(1, dtype=np.int64)
    planned = len(turn.profile) > 0  # then whoever may start without preemption has started, and no nodes are kept
    most = 0 if planned else int(state.pool.reservations_max[turn.pool])
    kept_all, ask_all = int(most == 0), int(moves.kind != schema.MOVES_NONE)
    searches, quantum_ms = 0, int(state.pool.quantum_ms[turn.pool])
    taking = Taking(turn, SEARCHES_MAX)

    def look(leaves: I64) -> None:
        serve.look_and_choose(
            jobs, lines, turn.room, leaves, turn.now_ms, turn.blocked, stuck_milli, taken, position, candidate, shapes, count
        )

    look(np.flatnonzero((jobs.last > jobs.first) & turn.mine))
    if not kept_all:
        free_times(state, guess=True)  # somebody will ask
    while True:
        starts = turn.starts(runs=False)
        made, ready = turn.reservations, releases_of(state, turn.pool, guess=True)
        kept = np.empty((0 if made.drains else max(0, most - len(made.starts_ms)), 2), dtype=np.int64)
        leaf, kept_here = taking.walk(
            starts, turn.runs(), quantum_ms, turn.root, turn.now_ms, int(turn.plain and not planned), kept_all, ask_all,
            turn.blocked, stuck_milli, taken, position, candidate, shapes, count, found, ready, kept,
            plain=not planned and not made.drains,
        )  # fmt: skip
        if kept_here:
            made.note_kept(kept[:kept_here])
            kept_all = int(len(made.starts_ms) >= most)
            turn.keep_anew(bound=True)
        listed, plans = _start_listed(state, emit, shares, starts), taking.write(emit, shares)
        if plans:
            searches += plans
            turn.measure(turn.room)
        if leaf < 0:
            return
        if plans:
            continue  # what he was told by is as it was before them
        known, workload = int(found[0]), int(candidate[leaf])
        if known == serve.FULL or (known == serve.OPEN and not planned and turn.rank()):
            continue
        if known == serve.STUCK and listed and not kept_all:
            continue  # he may get a reservation there, now that these are told of
        if known == serve.UNFIT and taking.plain and (listed or kept_here):
            continue  # and he may take there
        gpus = _fit(state, turn, workload) if known == serve.OPEN and not planned else []
        losers = None
        if gpus:
            start(state, emit, shares, workload, gpus)
        elif known != serve.STUCK:
            if searches == SEARCHES_MAX:
                return
            searches += 1
            if not taking.nobody:
                losers = preempt_for(state, emit, shares, workload, turn.reservations.from_takers(state, workload))
        if losers is not None:
            add_running(state, shares, workload, 1)
            for loser in losers:
                add_running(state, shares, loser, -1)
                turn.blocked[int(state.workload.budget[loser])] = 1
                lines.ready[int(state.workload.budget[loser])] = 0
        if gpus or losers is not None:
            turn.look_again(leaf)
        elif not _move(state, emit, shares, turn, moves, workload, funded=True):
            if not stuck_milli[leaf] and not kept_all:
                reserve(state, turn.reservations, workload)
                kept_all = int(len(turn.reservations.starts_ms) >= most)
                turn.keep_anew(bound=True)
            serve.note_stuck(jobs, lines, leaf, turn.now_ms, stuck_milli, taken, position, candidate, shapes, count)
        look(np.array([leaf], dtype=np.int64))


def _start_listed(state: State, emit: Emit, shares: Shares, starts: serve.Starts) -> int:
    """Write the starts that are listed, and let what is known of releases tell of them; returns how many there were."""
    kept, count = state.memo.at(state.moved).outliving, int(starts.counts[0])
    if start_listed(state, emit, shares, starts):
        keep_releases(state, kept, starts.workload[:count])
    return count


def _move(state: State, emit: Emit, shares: Shares, turn: Turn, moves: Moves, workload: int, *, funded: bool) -> bool:
    """Let a workload start by moves, if that is possible and allowed."""
    if not move_for(state, emit, moves, workload, turn.reservations, funded=funded):
        return False
    add_running(state, shares, workload, 1)
    turn.measure()
    return True


def _reserve_ahead(
    state: State, emit: Emit, shares: Shares, turn: Turn, ends: serve.Ends, places: serve.Places, moves: Moves
) -> None:
    """Keep nodes for the first in line of budgets that will be funded before their nodes could be ready, in fair order."""
    reservations, lines = turn.reservations, turn.lines
    lines.ready[:] = turn.waiting()
    for workload in reservations.starts_ms:
        lines.ready[int(state.workload.budget[workload])] = 0
    serve.choose_all(lines, lines.allowance, lines.running)
    most, plain = int(state.pool.reservations_max[turn.pool]), moves.kind == schema.MOVES_NONE and not reservations.drains
    looks, kept = np.array([2 * most], dtype=np.int64), np.zeros((most, 2), dtype=np.int64)
    while len(reservations.starts_ms) < most:
        if plain:
            known, count = releases_of(state, turn.pool, guess=False), len(reservations.starts_ms)
            leaf, by_then = serve.keep_ahead(
                turn.jobs, lines, turn.room, ends, places, turn.root, turn.now_ms, turn.horizon_ms, turn.starts_ms, looks,
                known, reservations.until_ms, reservations.holder, kept, count, most,
            )  # fmt: skip
            reservations.note_kept(kept[count:by_then])
        else:
            leaf = serve.next_ahead(
                turn.jobs, lines, turn.room, ends, places, turn.root, turn.now_ms, turn.horizon_ms, turn.starts_ms, looks
            )
        if leaf < 0:
            break
        head = int(places.head[leaf])
        if _move(state, emit, shares, turn, moves, head, funded=False):
            places.known[leaf] = 0
            serve.choose_all(lines, lines.allowance, lines.running)
        elif reserve(state, reservations, head, int(places.until_ms[leaf])):
            places.known[leaf] = 0  # it now starts when that says so
    turn.keep_anew(bound=False)


def _move_for_heads(state: State, emit: Emit, shares: Shares, turn: Turn, moves: Moves) -> None:
    """Let the first in line of budgets start by moves, though unfunded: on GPUs on which nobody could start as they lie."""
    lines = turn.lines
    lines.ready[:] = turn.waiting()
    serve.choose_all(lines, lines.allowance, lines.running)
    while (leaf := serve.next_leaf(lines, turn.root)) >= 0:
        lines.ready[leaf] = 0
        head = serve.first_in_line(turn.jobs, leaf, turn.now_ms)
        if head >= 0 and head not in turn.reservations.starts_ms:
            _move(state, emit, shares, turn, moves, head, funded=False)
        serve.choose_all(lines, lines.allowance, lines.running)


def _unfunded(state: State, emit: Emit, shares: Shares, turn: Turn, ends: serve.Ends, places: serve.Places) -> None:
    """Passes 2 to 4."""
    if int(state.pool.idle_milli[turn.pool]) <= 0:
        return
    open_ = turn.open()
    for idle_cycles, in_time_free in ((0, 0), (0, 1), (1, 0)):
        if int(state.pool.idle_milli[turn.pool]) > 0 and serve.is_open(turn.room, turn.now_ms, open_, idle_cycles):
            _everybody(state, emit, shares, turn, ends, places, open_, idle_cycles, in_time_free)


def _everybody(
    state: State, emit: Emit, shares: Shares, turn: Turn, ends: serve.Ends, places: serve.Places, open_: serve.Open,
    idle_cycles: int, in_time_free: int,
) -> None:  # fmt: skip
    position, allowed, lines = open_.first[idle_cycles].copy(), shares.allowance.copy(), turn.lines
    lines.ready[:] = turn.waiting()
    serve.choose_all(lines, allowed, lines.running)
    found = np.zeros(1, dtype=np.int64)
    while True:
        starts = turn.starts()
        leaf = serve.start_all(
            turn.jobs, lines, turn.room, ends, places, turn.tried, turn.stock, turn.ranks, starts, turn.root, turn.now_ms,
            turn.horizon_ms, turn.starts_ms, turn.plain, in_time_free, idle_cycles, open_, allowed, position, found,
        )  # fmt: skip
        start_listed(state, emit, shares, starts)
        if leaf < 0:
            return
        if int(found[0]) == serve.FULL or turn.rank():
            continue
        workload = int(turn.jobs.queue[open_.at[idle_cycles, position[leaf]]])
        gpus = _fit(state, turn, workload)
        if gpus:
            start(state, emit, shares, workload, gpus)
            if len(turn.profile):
                planning.take(state, turn, workload)
            else:
                run = int(state.workload.run[workload])
                if not state.run.idle_cycles[run]:
                    ends_ms, milli = expected_end(state, run), int(state.run.gpus_milli[run])
                    serve.add_end(run, leaf, ends_ms, milli, ends)
                places.known[leaf] = 0
            turn.measure()
        elif int(turn.tried.counts[1]) >= SHAPES_TRIED_MAX:
            lines.ready[leaf] = 0
        else:
            note(turn, workload)
        serve.choose_all(lines, allowed, lines.running)

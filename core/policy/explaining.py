"""Why a workload waits: one reason with its numbers, written when it first waits and when it changes at the head of a queue.

A head that would be funded if it could start now says since when (``funded_since_ms``): that wait is what its budget is owed an
answer for, and it is written again when it begins and when it ends.

Who has a reservation is told when it moves back: by a quantum of its pool or more, and, when the instant told is past because a run
there overstays what it said, how late it is, again each time that has doubled.

Under conservative backfill a head also says when it is planned to start (``planned_ms``): a promise, for all runs that keep their
time. It is said again, with the instant it moved from, when it becomes later by more than a bucket, as by an overrun.

Who accepts several pools is also told of the others, why he did not start there (``elsewhere``): from what is free now, so after
the starts of the cycle. It is told again when the reason of one of them changes.

The reason comes from the same functions that place, and is found once for all whose reason cannot differ. Only heads are looked
at again: for the rest the answer is "the same, behind ``ahead`` others of its budget", and the number of decisions stays
proportional to what changes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from apportion.core.decisions import Elsewhere
from apportion.core.kernels import room, serve
from apportion.core.kernels import waits as wait_kernels
from apportion.core.policy.emit import Emit
from apportion.core.policy.fitting import find_gpus, healthy_parts_for
from apportion.core.policy.funding import Shares
from apportion.core.policy.reserving import Reservations, says_over_ms
from apportion.core.policy.telling import Answer, Elsewheres, Fresh, Teller, moved_back
from apportion.core.policy.turn import jobs_of, lines_of
from apportion.core.reasons import Pending
from apportion.core.state import schema
from apportion.core.state.asks import Ask, ask_at, ask_of, choices_of
from apportion.core.state.codes import PENDING_CODE
from apportion.core.state.holdings import held_gpus
from apportion.core.state.memo import Offered
from apportion.core.state.queue import parts_of
from apportion.core.state.space import Space
from apportion.core.state.state import State
from apportion.core.state.wishes import Wish, wish_at
from apportion.core.units import BUCKET_MS, MAX_NODE_GPUS, MILLI

I64 = NDArray[np.int64]

_PROTECTED_RUNS = PENDING_CODE[Pending.PROTECTED_RUNS.value]


def explain(state: State, emit: Emit, shares: Shares, reservations: list[Reservations]) -> None:
    """Emit the reasons that are new."""
    table, queued = state.workload, state.queued
    if not queued:
        return
    jobs, now_ms = jobs_of(state, state.queue[:queued], state.asks[:queued]), state.counters.time_ms
    parts_of(state, jobs.first, jobs.last)
    holders = np.array([workload for made in reservations for workload in made.starts_ms], dtype=np.int64)
    untold = np.array(list(state.untold), dtype=np.int64)
    looks = np.empty(len(jobs.first) + len(untold) + len(holders), dtype=np.int64)
    count = wait_kernels.mark(
        jobs.queue, jobs.first, jobs.last, table.budget, table.priority, table.event_seq, untold, holders, looks
    )
    instants_ms = np.concatenate([made.instants_ms for made in reservations])
    first_instant = np.cumsum([0, *(len(made.instants_ms) for made in reservations)], dtype=np.int64)
    drains = any(made.drains for made in reservations)
    waiting = np.empty((wait_kernels.COLUMNS, count), dtype=np.int64)
    rep, since_ms = np.empty(count, dtype=np.int64), np.empty(count, dtype=np.int64)
    made_slots = wait_kernels.collect(
        jobs.queue, looks[:count], jobs.first, state.waits, state.budget.pool, table.state,
        (table.reason, table.funded_ms, table.planned_ms, table.hold, table.choices), schema.HELD, now_ms, instants_ms,
        first_instant, int(drains), waiting, np.full(1 << (2 * count).bit_length(), -1, dtype=np.int64), rep,
    )  # fmt: skip
    row, ahead, head, slot, class_, reason_code, funded_ms, planned_ms, hold, choices = waiting
    serve.funded_since(jobs, lines_of(state, shares), now_ms, hold, schema.HOLD_FUNDED, row, head, funded_ms, since_ms)
    told: dict[tuple[int, int], Answer] = {}  # by slot and class: numbers may tell of nodes that are kept
    offers = Offers(state)
    code = np.zeros(made_slots + 1, dtype=np.int64)  # the last one for those with a reason of their own
    for number, one in enumerate(rep[:made_slots].tolist()):
        answer = told[number, int(class_[one])] = _answer(state, reservations, int(row[one]), int(ahead[one]), offers)
        code[number] = answer.code
    planned = _planned(state, reservations, row, head)
    moved, elsewhere = _moved(planned, planned_ms), _elsewhere(state, reservations, row, choices, offers)
    known = (since_ms == funded_ms) & ~moved
    alone = np.flatnonzero(known & (slot < 0))
    known[alone] = _were_told_so(state, reservations, row[alone].tolist(), reason_code[alone].tolist(), offers)
    known &= (slot < 0) | (code[slot] == reason_code)
    known[[at for at, (news, _reasons) in elsewhere.items() if news]] = False
    fresh = np.flatnonzero(~known)
    if len(fresh):
        named = Fresh(
            fresh, row[fresh], ahead[fresh], slot[fresh], class_[fresh], since_ms[fresh], planned[fresh], planned_ms[fresh],
            moved[fresh],
        )  # fmt: skip
        Teller(state, lambda one, others: _answer(state, reservations, one, others, offers), told, elsewhere, named).tell(emit)


def _elsewhere(
    state: State, reservations: list[Reservations], rows: I64, choices: I64, offers: Offers
) -> Elsewheres:
    """Return, by position in ``rows``, why it did not start in other pools, and whether that is news."""
    choice, now_ms, found = state.choice.cells, state.counters.time_ms, Elsewheres()
    told: dict[tuple[int, ...], tuple[Pending, dict[str, int]]] = {}
    for at in np.flatnonzero(choices).tolist():
        workload, reasons, news = int(rows[at]), list[Elsewhere](), False
        if int(state.workload.state[workload]) == schema.HELD or int(state.workload.not_before_ms[workload]) > now_ms:
            continue
        for row in choices_of(state, workload):
            pool = choice.pool[row]
            if choice.refusal[row] or pool == state.workload.cells.pool[workload]:
                continue
            ask, made = ask_at(state, row), reservations[pool]
            class_ = int(np.searchsorted(made.instants_ms, says_over_ms(state, workload)))
            key = (pool, ask.nodes, ask.milli_per_node, ask.wish, class_)
            if key not in told:
                told[key] = reason_for(state, workload, made, 1, offers, ask)  # a guest stands behind all that waits there
            reason, numbers = told[key]
            reasons.append(Elsewhere(state.pool.keys[pool], reason.value, numbers))
            news = news or choice.reason[row] != PENDING_CODE[reason.value]
        found[at] = news, tuple(reasons)
    return found


def _were_told_so(
    state: State, reservations: list[Reservations], workloads: list[int], codes: list[int], offers: Offers
) -> list[bool]:
    """Tell, of those with a reason of their own, whether it is that they have a reservation, as was told before: most often it is.

    False tells nothing: then ``reason_for`` is asked. ``codes`` are the reasons that were told.
    """
    cells, now_ms, same = state.workload.cells, state.counters.time_ms, list[bool]()
    for workload, code in zip(workloads, codes, strict=True):
        made = reservations[cells.pool[workload]]
        starts_ms = made.starts_ms.get(workload, -1)
        mine = code == _PROTECTED_RUNS and starts_ms >= 0 and not made.drains
        mine = mine and cells.state[workload] != schema.HELD and cells.not_before_ms[workload] <= now_ms
        mine = mine and offers.parts_for(ask_of(state, workload)) >= cells.nodes[workload]
        same.append(mine and not moved_back(state, workload, {"earliest_ms": starts_ms}))
    return same


def _planned(state: State, reservations: list[Reservations], rows: I64, heads: I64) -> I64:
    """Return when heads are to start by the plans, 0 = nothing is planned."""
    planned = np.zeros(len(rows), dtype=np.int64)
    if any(made.planned_ms for made in reservations):
        by_row = np.zeros(state.workload.used, dtype=np.int64)
        for made in reservations:
            by_row[list(made.planned_ms)] = list(made.planned_ms.values())
        planned = np.where(heads == 1, by_row[rows], 0)
    return planned


def _moved(planned_ms: I64, told_ms: I64) -> NDArray[np.bool_]:
    """Tell where what is planned is news: nothing was told yet, or it is later than was told."""
    result: NDArray[np.bool_] = np.where(told_ms > 0, planned_ms > told_ms + BUCKET_MS, planned_ms > 0)
    return result


def _answer(state: State, reservations: list[Reservations], workload: int, ahead: int, offers: Offers) -> Answer:
    reason, numbers = reason_for(state, workload, reservations[state.workload.cells.pool[workload]], ahead, offers)
    word = reason.value
    return Answer(reason, numbers, word, PENDING_CODE[word])


def reason_for(
    state: State, workload: int, reservations: Reservations, ahead: int, offers: Offers, ask: Ask | None = None
) -> tuple[Pending, dict[str, int]]:
    """Return the most specific reason that holds, with its numbers; ``ahead`` others of its budget wait before it.

    ``ask`` stands for what it is where it waits: what holds it back elsewhere.
    """
    table, ask = state.workload, ask_of(state, workload) if ask is None else ask
    pool, need = ask.pool, ask.gpus_milli
    if int(table.state[workload]) == schema.HELD:
        return Pending.HELD, {"held_milli": len(held_gpus(state, workload)) * MILLI, "need_milli": need}
    if int(table.not_before_ms[workload]) > state.counters.time_ms:
        return Pending.BACKOFF, {"until_ms": int(table.not_before_ms[workload])}
    everywhere = offers.everywhere
    able = offers.parts_for(ask)
    if able < ask.nodes:
        return Pending.NO_CAPACITY, {"nodes_able": able, "nodes_needed": ask.nodes}
    closing = None  # nodes that are drained before it would be over
    if reservations.drains:
        closing = reservations.closing(says_over_ms(state, workload)) * (state.node.column("pool") == pool)
    if closing is not None and closing.any():
        until_ms = int(reservations.closes_ms[closing > 0].min())
        able = healthy_parts_for(state, ask, closing)
        if able < ask.nodes:
            return Pending.DRAINING, {"until_ms": until_ms, "nodes_able": able, "nodes_needed": ask.nodes}
    if workload in reservations.starts_ms:
        earliest_ms = reservations.starts_ms[workload]
        return Pending.PROTECTED_RUNS, {"earliest_ms": earliest_ms, "need_milli": need, **offers.of(ask)}
    free = int(state.pool.idle_milli[pool])
    if free < need:
        return Pending.NO_FREE_GPUS, {"free_milli": free, "need_milli": need}
    now = Space.now(state)
    kept = reservations.beside(state, workload)
    if int(state.pool.policy[pool]) == schema.HORIZON and find_gpus(state, workload, now, kept, ask=ask):
        return Pending.PLANNED, {"free_milli": free, "need_milli": need}
    if ahead and find_gpus(state, workload, now, kept, ask=ask):
        return Pending.BUDGET_ORDER, {"free_milli": free, "need_milli": need}
    if find_gpus(state, workload, now, everywhere, ask=ask):
        if closing is not None and closing.any() and not find_gpus(state, workload, now, closing, ask=ask):
            return Pending.DRAINING, {"until_ms": until_ms, "free_milli": free, "need_milli": need}
        others = reservations.until_ms[(kept > 0) & (reservations.until_ms > 0)]
        earliest_ms = int(others.min()) if len(others) else 0
        return Pending.RESERVED, {"earliest_ms": earliest_ms, "free_milli": free, "need_milli": need}
    wish = wish_at(state, ask.wish)
    if wish.within and find_gpus(state, workload, now, everywhere, wish._replace(within=0), ask):
        return Pending.NO_DOMAIN, {"free_milli": free, "need_milli": need}
    if not wish.plain:
        bare = Wish(wish.within, wish.near, wish.loose, exclusive=wish.exclusive if wish.aligned else 0, aligned=wish.aligned)
        if find_gpus(state, workload, now, everywhere, bare, ask):
            return Pending.NO_ROOM, {"free_milli": free, "need_milli": need}
    return Pending.NO_BLOCK, {"free_milli": free, "need_milli": need, **offers.of(ask)}


class Offers:
    """What nodes in service offer, looked at once for all who are told of it in a cycle."""

    def __init__(self, state: State) -> None:
        self._state = state
        self.everywhere = np.zeros(state.node.used, dtype=np.int64)  # no node is left out
        self._parts: dict[tuple[int, int, int, int], int] = {}
        self._known: dict[int, Offered] = {}

    def _offered(self, pool: int) -> Offered:
        """Return what nodes of a pool offer, wishes apart."""
        if pool in self._known:  # nothing moves while it is told
            return self._known[pool]
        state, kept = self._state, self._state.memo.at(self._state.moved).offers
        if pool not in kept:
            ever, now = (np.empty(MAX_NODE_GPUS + 2, dtype=np.int64) for _column in range(2))
            node, gpu = state.node, state.gpu
            room.measure_offers(
                pool, node.used, node.pool, node.first_gpu, node.gpus, gpu.used_milli, gpu.out, gpu.held_by, ever, now
            )
            kept[pool] = Offered(
                ever.tolist(), now.tolist(), int(np.count_nonzero(ever[1:])), int(np.count_nonzero(now[1:]))
            )
        self._known[pool] = kept[pool]
        return kept[pool]

    def parts_for(self, ask: Ask) -> int:
        """Return how many parts of a shape they could hold when empty."""
        if not ask.wish:  # it asks for nothing but GPUs
            return self._offered(ask.pool).ever[max(1, ask.milli_per_node // MILLI)]
        shape = ask.pool, ask.nodes, ask.milli_per_node, ask.wish
        if shape not in self._parts:
            self._parts[shape] = healthy_parts_for(self._state, ask, self.everywhere)
        return self._parts[shape]

    def of(self, ask: Ask) -> dict[str, int]:
        """Return the largest they offer now and at most, or how many nodes a gang could have now."""
        if wish_at(self._state, ask.wish).loose:
            return {}
        offered = self._offered(ask.pool)
        if ask.nodes > 1:
            return {"nodes_free": offered.now[-(-ask.milli_per_node // MILLI)], "nodes_needed": ask.nodes}
        return {"largest_free_milli": offered.largest_now * MILLI, "largest_node_milli": offered.largest * MILLI}

"""Why a workload waits: one reason with its numbers, written when it first waits and when it changes at the head of a queue.

A head that would be funded if it could start now says since when (``funded_since_ms``): that wait is what its budget is owed an
answer for, and it is written again when it begins and when it ends.

Who has a reservation is told when it moves back: by a quantum of its pool or more, and, when the instant told is past because a run
there overstays what it said, how late it is, again each time that has doubled.

The reason comes from the same functions that place. Only heads are looked at again: for the rest the answer is "the same, behind
``ahead`` others of its budget", and the number of decisions stays proportional to what changes.
"""

from __future__ import annotations

import numpy as np

from apportion.core.decisions import PendingExplained
from apportion.core.policy.emit import Emit
from apportion.core.policy.fitting import find_gpus, healthy_parts_for
from apportion.core.policy.funding import Shares, fundable
from apportion.core.policy.reserving import Reservations, says_over_ms
from apportion.core.reasons import Pending
from apportion.core.state import schema
from apportion.core.state.codes import PENDING_CODE
from apportion.core.state.holdings import held_gpus
from apportion.core.state.space import Space
from apportion.core.state.state import State
from apportion.core.state.wishes import Wish, wish_of
from apportion.core.units import MILLI


def explain(state: State, emit: Emit, shares: Shares, reservations: list[Reservations]) -> None:
    """Emit the reasons that are new."""
    table = state.workload
    queue = state.queue[: state.queued]
    budgets = table.budget[queue]
    starts = np.ones(len(queue), dtype=np.bool_)
    starts[1:] = budgets[1:] != budgets[:-1]
    first_of = np.maximum.accumulate(np.where(starts, np.arange(len(queue)), 0))
    reserved = np.zeros(len(queue), dtype=np.bool_)
    for made in reservations:
        reserved |= np.isin(queue, np.array(list(made.starts_ms), dtype=np.int64))  # they need not be first in their queues
    heads = starts | reserved
    for position in np.flatnonzero(heads | (table.reason[queue] == 0) | (table.funded_ms[queue] > 0)):
        row = int(queue[position])
        ahead = int(position) - int(first_of[position])
        reason, numbers = reason_for(state, row, reservations[int(table.pool[row])], ahead)
        since_ms = _funded_since(state, shares, row) if heads[position] else 0
        news = PENDING_CODE[reason.value] != int(table.reason[row]) or since_ms != int(table.funded_ms[row])
        if _moved_back(state, row, reason, numbers) or news:
            numbers["ahead"] = ahead
            if since_ms:
                numbers["funded_since_ms"] = since_ms
            emit(PendingExplained(workload=table.keys[row], reason=reason.value, numbers=numbers))


def _moved_back(state: State, workload: int, reason: Pending, numbers: dict[str, int]) -> bool:
    """Tell whether its reservation is later than it was told, and not just a little; adds how late it is to the numbers."""
    table, now_ms = state.workload, state.counters.time_ms
    told_ms, earliest_ms = int(table.told_ms[workload]), numbers.get("earliest_ms", 0)
    if reason is not Pending.PROTECTED_RUNS or not told_ms:
        return False
    if earliest_ms > now_ms:
        return earliest_ms - told_ms >= int(state.pool.quantum_ms[int(table.pool[workload])])
    if earliest_ms == 0 or told_ms >= now_ms:
        return False
    numbers["late_ms"] = now_ms - told_ms
    return numbers["late_ms"] >= 2 * int(table.late_ms[workload])


def _funded_since(state: State, shares: Shares, workload: int) -> int:
    """Return since when a head waits although it would be funded; 0 = it would not be. Who was when GPUs were freed for it, is."""
    held = int(state.workload.hold[workload]) == schema.HOLD_FUNDED
    if not held and not fundable(state, shares, workload)[0]:
        return 0
    return int(state.workload.funded_ms[workload]) or state.counters.time_ms


def reason_for(state: State, workload: int, reservations: Reservations, ahead: int) -> tuple[Pending, dict[str, int]]:
    """Return the most specific reason that holds, with its numbers; ``ahead`` others of its budget wait before it."""
    table, pool = state.workload, int(state.workload.pool[workload])
    need = int(table.gpus_milli[workload])
    if int(table.state[workload]) == schema.HELD:
        return Pending.HELD, {"held_milli": len(held_gpus(state, workload)) * MILLI, "need_milli": need}
    if int(table.not_before_ms[workload]) > state.counters.time_ms:
        return Pending.BACKOFF, {"until_ms": int(table.not_before_ms[workload])}
    everywhere = np.zeros(state.node.used, dtype=np.int64)
    able = healthy_parts_for(state, workload, everywhere)
    if able < int(table.nodes[workload]):
        return Pending.NO_CAPACITY, {"nodes_able": able, "nodes_needed": int(table.nodes[workload])}
    closing = reservations.closing(says_over_ms(state, workload)) * (state.node.column("pool") == pool)
    if closing.any():
        until_ms = int(reservations.closes_ms[closing > 0].min())
        able = healthy_parts_for(state, workload, closing)
        if able < int(table.nodes[workload]):
            return Pending.DRAINING, {"until_ms": until_ms, "nodes_able": able, "nodes_needed": int(table.nodes[workload])}
    if workload in reservations.starts_ms:
        earliest_ms = reservations.starts_ms[workload]
        return Pending.PROTECTED_RUNS, {"earliest_ms": earliest_ms, "need_milli": need, **_offers(state, workload)}
    free = int(state.pool.idle_milli[pool])
    if free < need:
        return Pending.NO_FREE_GPUS, {"free_milli": free, "need_milli": need}
    now = Space.now(state)
    kept = reservations.beside(state, workload)
    if ahead and find_gpus(state, workload, now, kept):
        return Pending.BUDGET_ORDER, {"free_milli": free, "need_milli": need}
    if find_gpus(state, workload, now, everywhere):
        if closing.any() and not find_gpus(state, workload, now, closing):
            return Pending.DRAINING, {"until_ms": until_ms, "free_milli": free, "need_milli": need}
        others = reservations.until_ms[(kept > 0) & (reservations.until_ms > 0)]
        earliest_ms = int(others.min()) if len(others) else 0
        return Pending.RESERVED, {"earliest_ms": earliest_ms, "free_milli": free, "need_milli": need}
    wish = wish_of(state, workload)
    if wish.within and find_gpus(state, workload, now, everywhere, wish._replace(within=0)):
        return Pending.NO_DOMAIN, {"free_milli": free, "need_milli": need}
    if not wish.plain:
        bare = Wish(wish.within, wish.near, wish.loose, exclusive=wish.exclusive if wish.aligned else 0, aligned=wish.aligned)
        if find_gpus(state, workload, now, everywhere, bare):
            return Pending.NO_ROOM, {"free_milli": free, "need_milli": need}
    return Pending.NO_BLOCK, {"free_milli": free, "need_milli": need, **_offers(state, workload)}


def _offers(state: State, workload: int) -> dict[str, int]:
    """Return what nodes in service offer: the largest now and at most, or how many nodes a gang could have now."""
    table, node, gpu = state.workload, state.node, state.gpu
    if wish_of(state, workload).loose:
        return {}
    of_pool = (node.column("pool") == table.pool[workload])[gpu.column("node")] & (gpu.column("out") == 0)
    free = of_pool & (gpu.column("used_milli") == 0) & (gpu.column("held_by") == 0)
    able_now, able = (np.bincount(gpu.column("node")[rows], minlength=1) * MILLI for rows in (free, of_pool))
    nodes = int(table.nodes[workload])
    if nodes > 1:
        return {"nodes_free": int((able_now >= table.milli_per_node[workload]).sum()), "nodes_needed": nodes}
    return {"largest_free_milli": int(able_now.max()), "largest_node_milli": int(able.max())}

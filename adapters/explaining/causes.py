"""Every cause for which a job waits, ranked, each with its numbers.

A pure function of a ``Cycle``. The first is the one that the core reports (``policy.explaining.reason_for``); then, where nobody
would pay for it, why, because who is not funded has nobody asked to go for him; then all others, each tested by itself with the one
feasibility function: what is kept for others as if it were all that is wrong, and so on. Words are made of them by
``adapters.text.wording``.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from apportion.adapters.explaining.moment import Cycle
from apportion.core.kernels import serve
from apportion.core.policy.explaining import Offers, reason_for
from apportion.core.policy.fitting import find_gpus, healthy_parts_for
from apportion.core.policy.funding import fundable
from apportion.core.policy.reserving import Reservations, says_over_ms
from apportion.core.policy.turn import Turn
from apportion.core.reasons import Funding, Pending
from apportion.core.state import schema
from apportion.core.state.asks import Ask, ask_at, ask_of, choices_of
from apportion.core.state.space import Space
from apportion.core.state.state import State
from apportion.core.state.wishes import Wish, wish_at
from apportion.core.units import MILLI

I64 = NDArray[np.int64]
Numbers = dict[str, int | str]

CAUSES_MAX = 12
PLACES_MAX = 256  # budgets that are counted in fair order


class Cause(NamedTuple):
    """One cause: ``enum`` and ``reason`` as ``adapters.text.wording`` knows them, and what it is about."""

    enum: str  # pending | funding
    reason: str
    numbers: Numbers
    pool: str = ""  # of a pool that it accepts beside the one in which it waits


def causes_of(cycle: Cycle, workload: int) -> list[Cause]:
    """Return the causes for which a workload (row, waiting or held) does not run after the cycle; the core's own first."""
    state, pool = cycle.state, int(cycle.state.workload.pool[workload])
    made, offers, before = cycle.reservations[pool], Offers(cycle.state), ahead_of(state, workload)
    reason, told = reason_for(state, workload, made, len(before), offers)
    first: Numbers = {**told, "ahead": len(before)}
    if since_ms := int(state.workload.funded_ms[workload]):
        first["funded_since_ms"] = since_ms
    if planned_ms := made.planned_ms.get(workload, 0):
        first["planned_ms"] = planned_ms
    found = [Cause("pending", reason.value, first)]
    if reason is Pending.HELD:
        return found
    funded, why = fundable(state, cycle.shares, workload)
    if not funded:
        found.append(Cause("funding", why.value, _money(cycle, workload, why)))
    others = _others(state, workload, made, [] if funded else before.tolist(), offers)
    found += [Cause("pending", each.value, others[each]) for each in Pending if each in others and each is not reason]
    return found[:CAUSES_MAX]


def elsewhere(cycle: Cycle, workload: int) -> list[Cause]:
    """Return why it does not start in the other pools that it accepts, one cause each."""
    state, offers, found = cycle.state, Offers(cycle.state), list[Cause]()
    for choice in choices_of(state, workload):
        pool = int(state.choice.pool[choice])
        if state.choice.refusal[choice] or pool == int(state.workload.pool[workload]):
            continue
        reason, told = reason_for(state, workload, cycle.reservations[pool], 1, offers, ask_at(state, choice))
        found.append(Cause("pending", reason.value, {**told}, state.pool.keys[pool]))
    return found


def ahead_of(state: State, workload: int) -> I64:
    """Return the rows that wait in its budget before it, in order."""
    queue, table = state.queue[: state.queued], state.workload
    of_budget = table.budget[queue]
    line = int(table.budget[workload])
    part = queue[np.searchsorted(of_budget, line, "left") : np.searchsorted(of_budget, line, "right")]
    at = np.flatnonzero(part == workload)
    return part[: int(at[0])] if len(at) else part[:0]


def place_of(cycle: Cycle, workload: int) -> tuple[int, int]:
    """Return the place of its budget among those that wait in its pool, in the order in which they are served, and how many do.

    0: it is behind the first ``PLACES_MAX``, or its pool is not served in fair order.
    """
    state, pool = cycle.state, int(cycle.state.workload.pool[workload])
    if int(state.pool.policy[pool]) != schema.FAIR or not state.queued:
        return 0, 0
    turn = Turn(state, cycle.shares, pool, cycle.reservations[pool])
    lines, mine = turn.lines, int(state.workload.budget[workload])
    lines.ready[:] = turn.waiting()
    waiting = int(lines.ready.sum())
    for place in range(1, min(waiting, PLACES_MAX) + 1):
        serve.choose_all(lines, lines.allowance, lines.running)
        leaf = int(serve.next_leaf(lines, turn.root))
        if leaf < 0:
            break
        if leaf == mine:
            return place, waiting
        lines.ready[leaf] = 0
    return 0, waiting


def _money(cycle: Cycle, workload: int, why: Funding) -> Numbers:
    state, line = cycle.state, int(cycle.state.workload.budget[workload])
    numbers: Numbers = {"need_milli": int(state.workload.gpus_milli[workload])}
    if why is Funding.ABOVE_ALLOWANCE:
        numbers |= {
            "allowance_milli": int(cycle.shares.allowance[line]),
            "running_milli": int(cycle.shares.running[line]),
            "entitled_milli": int(cycle.shares.entitled[line]),
        }
    while why is Funding.BALANCE_SPENT and line >= 0:  # the first line, from below, that cannot promise it
        left_us = own_balance_us(cycle, line)
        needs_us = int(state.workload.gpus_milli[workload]) * int(state.workload.min_runtime_ms[workload])
        if left_us is not None and left_us < needs_us:
            return numbers | {"left_gpu_us": left_us, "needs_gpu_us": needs_us, "line": state.budget_path(line)}
        line = int(state.budget.parent[line])
    return numbers


def own_balance_us(cycle: Cycle, line: int) -> int | None:
    """Return what a line itself may still promise after the cycle, whatever those above it may; None = not metered."""
    budget = cycle.state.budget
    if not budget.metered[line]:
        return None
    return int(budget.granted_us[line]) - int(budget.charged_us[line]) - int(cycle.shares.reserved_us[line])


def _others(state: State, workload: int, made: Reservations, before: list[int], offers: Offers) -> dict[Pending, Numbers]:
    """Return every reason that holds by itself, with its numbers; ``before`` is who may hold it back in its budget."""
    ask, now_ms = ask_of(state, workload), state.counters.time_ms
    pool, need, free = ask.pool, ask.gpus_milli, int(state.pool.idle_milli[ask.pool])
    found: dict[Pending, Numbers] = {}
    if int(state.workload.not_before_ms[workload]) > now_ms:
        found[Pending.BACKOFF] = {"until_ms": int(state.workload.not_before_ms[workload])}
    able = offers.parts_for(ask)
    if able < ask.nodes:
        found[Pending.NO_CAPACITY] = {"nodes_able": able, "nodes_needed": ask.nodes}
    closing = made.closing(says_over_ms(state, workload)) * (state.node.column("pool") == pool)
    if closing.any():
        able = healthy_parts_for(state, ask, closing)
        if able < ask.nodes or part_fits(state, workload, ask, closing):
            until_ms = int(made.closes_ms[closing > 0].min())
            found[Pending.DRAINING] = {"until_ms": until_ms, "nodes_able": able, "nodes_needed": ask.nodes}
    if workload in made.starts_ms:
        found[Pending.PROTECTED_RUNS] = {"earliest_ms": made.starts_ms[workload], "need_milli": need, **offers.of(ask)}
    kept = np.where(made.beside(state, workload) > closing, 1, 0)
    if kept.any() and part_fits(state, workload, ask, kept):
        until = made.until_ms[(kept > 0) & (made.until_ms > 0)]
        numbers: Numbers = {"earliest_ms": int(until.min()) if len(until) else 0, "kept_milli": free_on(state, kept)}
        found[Pending.RESERVED] = {**numbers, "free_milli": free, "need_milli": need}
    if free < need:
        found[Pending.NO_FREE_GPUS] = {"free_milli": free, "need_milli": need}
    else:
        found |= _shape(state, workload, ask, offers)
    first = [row for row in before if state.workload.min_runtime_ms[row]]  # idle cycles hold nobody back, nor are they held back
    if first and ask.min_runtime_ms and int(state.pool.policy[pool]) == schema.FAIR:
        found[Pending.BUDGET_ORDER] = {"ahead": len(before), "first": state.workload.keys[first[0]]}
    if made.planned_ms.get(workload, 0) > now_ms:
        found[Pending.PLANNED] = {"planned_ms": made.planned_ms[workload], "free_milli": free, "need_milli": need}
    return found


def _shape(state: State, workload: int, ask: Ask, offers: Offers) -> dict[Pending, Numbers]:
    """Return which of its wishes what is free cannot meet, each beside its bare shape, as if nothing were kept."""
    wish, numbers = wish_at(state, ask.wish), {"free_milli": int(state.pool.idle_milli[ask.pool]), "need_milli": ask.gpus_milli}

    def fits(other: Wish) -> bool:
        return bool(find_gpus(state, workload, Space.now(state), offers.everywhere, other, ask))

    bare = Wish(loose=wish.loose)
    if fits(wish):
        return {}
    if not fits(bare._replace(aligned=wish.aligned)):
        return {Pending.NO_BLOCK: {**numbers, **offers.of(ask)}}
    found: dict[Pending, Numbers] = {}
    lacking = [name for name, part in parts_of(wish).items() if not fits(part._replace(loose=wish.loose))]
    if lacking:
        found[Pending.NO_ROOM] = {**numbers, "lacks": ", ".join(lacking)}
    if wish.within and not fits(bare._replace(within=wish.within)):
        found[Pending.NO_DOMAIN] = {**numbers}
    return found


def parts_of(wish: Wish) -> dict[str, Wish]:
    """Return each thing that a wish asks of a node by itself, by a word for it."""
    parts = {f"label {label}": Wish(labels=(label,)) for label in wish.labels}
    words = {"GPU memory": "gpu_memory_mib", "CPU": "cpu_milli", "memory": "memory_mib", "exclusive": "exclusive"}
    for word, field in words.items():
        if value := getattr(wish, field):
            parts[word] = Wish(**{field: value})
    if wish.group:
        parts["apart"] = Wish(group=wish.group, apart_level=wish.apart_level)
    return parts


def part_fits(state: State, workload: int, ask: Ask, only: I64) -> bool:
    """Tell whether a part of its shape would find GPUs now on nodes of which ``only`` (per node row) is above 0."""
    one = ask._replace(nodes=1, gpus_milli=ask.milli_per_node)
    return bool(find_gpus(state, workload, Space.now(state), np.where(only > 0, 0, 1), ask=one))


def free_on(state: State, only: I64) -> int:
    """Return what is free and held for nobody on nodes of which ``only`` is above 0, in milli-GPU."""
    gpu = state.gpu
    open_ = (only[gpu.column("node")] > 0) & (gpu.column("out") == 0) & (gpu.column("held_by") == 0)
    return int((MILLI - gpu.column("used_milli")[open_]).sum())

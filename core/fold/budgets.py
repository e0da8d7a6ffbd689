"""Fold of the budget tree and of people's rights on it.

A line is created by its first ``budget.set``; parents first, and an open line has an open parent. Shares of siblings may not
exceed 1,000,000 ppm, neither now nor at any instant that is planned. Workloads charge leaves only, so a line with live
workloads cannot get children; its lag and usage move to its first child, so that lags of leaves keep summing to
zero.
"""

from __future__ import annotations

import numpy as np

from apportion.core import ledger, planned
from apportion.core.events import (
    BudgetClosed,
    BudgetSet,
    MemberGranted,
    MemberRevoked,
)
from apportion.core.fold import users
from apportion.core.fold.access import ROLES, No, is_operator, may_administer, not_permitted
from apportion.core.reasons import Refusal
from apportion.core.state.state import ADMINISTER, CHARGE, WEIGHT_SHIFT, State
from apportion.core.units import NEVER_MS, PPM


def find_line(state: State, pool: str, path: str) -> int | No:
    """Return the row of a budget line, or why there is none."""
    if pool not in state.pool.row_of:
        return No(Refusal.UNKNOWN_POOL, "pool", entity=pool)
    row = state.budget.row_of.get(state.budget_key(pool, path))
    if row is None:
        return No(Refusal.UNKNOWN_BUDGET, "budget", entity=path)
    return row


def drop_schedule(state: State, line: int) -> None:
    """Grant nothing more to a line by the calendar; what it was given stays."""
    row = state.schedule.row_of.get(state.budget.keys[line])
    if row is not None:
        state.schedule.remove(row)


def budget_set(state: State, event: BudgetSet, principal: str, _seq: int) -> No | None:
    """Create a line, or change what it is entitled to from one instant until another."""
    above = event.budget.rpartition("/")[0]
    if not (is_operator(state, principal) or (above and may_administer(state, principal, above))):
        return not_permitted(principal, f"set the share of {event.budget}: that is for an administrator of what is above it")
    parent = find_line(state, event.pool, above)
    if isinstance(parent, No):
        return parent
    budget = state.budget
    row = budget.row_of.get(state.budget_key(event.pool, event.budget))
    from_ms = max(event.from_ms, state.counters.time_ms)
    until_ms = event.until_ms or NEVER_MS
    if until_ms <= from_ms:
        return No(Refusal.INVALID_DATA, "until_ms", "must be after the beginning", {"from_ms": from_ms}, event.budget)
    if row is not None and len(planned.changes_of(state, row)) > planned.PLANNED_MAX - 2:
        limit = {"limit": planned.PLANNED_MAX}
        return No(Refusal.INVALID_DATA, "from_ms", "too many changes are planned already", limit, event.budget)
    for at_ms in planned.instants(state, [parent], from_ms, until_ms):
        if planned.entitlement_at(state, parent, at_ms)[1]:
            return No(Refusal.BUDGET_CLOSED, "budget", f"{above} is closed then", {"at_ms": at_ms}, above)
    no = _overcommitted(state, event, parent, row, from_ms, until_ms)
    if no is not None:
        return no
    if row is None and budget.users[parent]:
        return No(Refusal.BUDGET_IN_USE, "budget", f"{above} is shared among its users", entity=above)
    no = users.cannot_share(state, row, event.users) if row is not None and event.users is not None else None
    if no is not None:
        return no
    if row is None and budget.workloads[parent]:
        return No(Refusal.BUDGET_IN_USE, "budget", f"{above} has live workloads of its own", entity=above)
    ledger.accrue(state, state.counters.time_ms)
    if row is None:
        row = users.add_line(state, state.budget_key(event.pool, event.budget), state.pool.row_of[event.pool], parent)
        planned.paint_new(state, row, from_ms, until_ms, (event.share_ppm, 0))
    else:
        planned.paint(state, row, from_ms, until_ms, (event.share_ppm, 0))
    if event.users is not None:
        budget.users[row] = users.USERS[event.users]
        users.share_out(state, row)
    state.counters.fair_stale = 1
    ledger.refresh_barred(state)
    state.counters.dirty = 1
    return None


def _overcommitted(
    state: State, event: BudgetSet, parent: int, row: int | None, from_ms: int, until_ms: int
) -> No | None:
    """Refuse when at some instant the open siblings' shares would exceed the whole; the first such instant is told."""
    siblings = [int(line) for line in np.flatnonzero(state.budget.column("parent") == parent) if line != row]
    for at_ms, others_ppm in planned.sums(state, siblings, from_ms, until_ms):
        total = event.share_ppm + others_ppm
        if total > PPM:
            numbers = {"sum_ppm": total, "limit_ppm": PPM, "at_ms": at_ms}
            return No(Refusal.OVERCOMMITTED, "share_ppm", numbers=numbers, entity=event.budget)
    return None


def budget_closed(state: State, event: BudgetClosed, principal: str, _seq: int) -> No | None:
    """Close a line without open children: nothing new is admitted, what runs becomes unfunded, what was planned is off."""
    above = event.budget.rpartition("/")[0]
    if not (is_operator(state, principal) or (above and may_administer(state, principal, above))):
        return not_permitted(principal, f"close {event.budget}")
    row = find_line(state, event.pool, event.budget)
    if isinstance(row, No):
        return row
    budget = state.budget
    if not planned.ever_open(state, row):
        return No(Refusal.BUDGET_CLOSED, "budget", entity=event.budget)
    below = [int(child) for child in np.flatnonzero((budget.column("parent") == row) & (budget.column("user") == 0))]
    if any(planned.ever_open(state, child) for child in below):
        return No(Refusal.BUDGET_IN_USE, "budget", "close the budgets below it first", entity=event.budget)
    ledger.accrue(state, state.counters.time_ms)
    planned.paint(state, row, state.counters.time_ms, NEVER_MS, (int(budget.share_ppm[row]), 1))
    drop_schedule(state, row)
    ledger.refresh_barred(state)
    state.counters.dirty = 1
    return None


def _known_path(state: State, path: str) -> bool:
    return any(state.budget_key(pool, path) in state.budget.row_of for pool in state.pool.keys)


def member_granted(state: State, event: MemberGranted, principal: str, _seq: int) -> No | None:
    """Give a role on a path."""
    if not may_administer(state, principal, event.budget):
        return not_permitted(principal, f"grant roles on {event.budget}")
    if not _known_path(state, event.budget):
        return No(Refusal.UNKNOWN_BUDGET, "budget", entity=event.budget)
    key = f"{event.budget} {event.member}"
    roles = (state.members.get(key, 0) & (CHARGE | ADMINISTER)) | ROLES[event.role]
    state.members[key] = roles | event.weight_milli << WEIGHT_SHIFT
    users.reweigh(state)
    return None


def member_revoked(state: State, event: MemberRevoked, principal: str, _seq: int) -> No | None:
    """Take a role back."""
    if not may_administer(state, principal, event.budget):
        return not_permitted(principal, f"revoke roles on {event.budget}")
    key = f"{event.budget} {event.member}"
    roles = state.members.get(key, 0)
    if not roles & ROLES[event.role]:
        return No(Refusal.STALE, "member", f"{event.member} does not hold that role", entity=event.budget)
    left = roles & ~ROLES[event.role]
    if left & (CHARGE | ADMINISTER):
        state.members[key] = left
    else:
        del state.members[key]
    users.reweigh(state)
    return None

"""Fold of money: GPU time put into budget lines by hand or by the calendar, taken back, and moved between them.

A line is metered from its first grant on; time it charged before counts against nothing. By the calendar: the event stands in
the ``schedule``, a cycle decides what a period that is due brings and takes (``policy.granting``), and ``issued`` applies it. So
a period begins once, whoever restarts when.
"""

from __future__ import annotations

from apportion.core import ledger, planned
from apportion.core.decisions import GrantIssued
from apportion.core.events import BudgetGranted, BudgetTransferred, BudgetWithdrawn, GrantScheduled
from apportion.core.fold.access import No, is_operator, may_administer, not_permitted
from apportion.core.fold.budgets import drop_schedule, find_line
from apportion.core.reasons import Refusal
from apportion.core.state import schema
from apportion.core.state.state import State
from apportion.core.units import MAX_BALANCE_GPU_US

MONTHS = {"none": 0, "monthly": 1, "quarterly": 3}
CARRY = {"none": schema.CARRY_NONE, "all": schema.CARRY_ALL, "cap": schema.CARRY_CAP}


def _grantable(state: State, event: BudgetGranted | GrantScheduled, principal: str) -> int | No:
    """Return the row of the line, if the principal may put time into it and it is not closed for good."""
    if not is_operator(state, principal):
        return not_permitted(principal, f"grant GPU time to {event.budget}: that is for operators")
    row = find_line(state, event.pool, event.budget)
    if isinstance(row, No):
        return row
    given = state.budget.granted_us if state.budget.metered[row] else state.budget.charged_us
    if int(given[row]) + event.gpu_us > MAX_BALANCE_GPU_US:
        limit = {"limit_gpu_us": MAX_BALANCE_GPU_US}
        return No(Refusal.INVALID_DATA, "gpu_us", "the sum of grants would exceed the limit", limit)
    if not planned.ever_open(state, row):
        return No(Refusal.BUDGET_CLOSED, "budget", entity=event.budget)
    return row


def _put_in(state: State, line: int, amount_us: int) -> None:
    budget = state.budget
    if not budget.metered[line]:
        # time charged before the first grant was not counted against anything: the balance starts at the grant
        budget.granted_us[line] = budget.charged_us[line]
        budget.metered[line] = 1
    budget.granted_us[line] += amount_us


def budget_granted(state: State, event: BudgetGranted, principal: str, _seq: int) -> No | None:
    """Put GPU time into a line; meters it from now on."""
    row = _grantable(state, event, principal)
    if isinstance(row, No):
        return row
    ledger.accrue(state, state.counters.time_ms)
    _put_in(state, row, event.gpu_us)
    ledger.refresh_barred(state)
    state.counters.dirty = 1
    return None


def budget_withdrawn(state: State, event: BudgetWithdrawn, principal: str, _seq: int) -> No | None:
    """Take unspent time out of a metered line; what is spent, or promised to protected runs, stays."""
    if not is_operator(state, principal):
        return not_permitted(principal, f"take GPU time back from {event.budget}: that is for operators")
    row = find_line(state, event.pool, event.budget)
    if isinstance(row, No):
        return row
    if not state.budget.metered[row]:
        return No(Refusal.INVALID_DATA, "budget", "it was never granted GPU time", entity=event.budget)
    ledger.accrue(state, state.counters.time_ms)
    left = int(state.budget.granted_us[row]) - ledger.committed_us(state, row)
    if event.gpu_us > left:
        return No(Refusal.BALANCE_TOO_LOW, "gpu_us", numbers={"left_gpu_us": left}, entity=event.budget)
    state.budget.granted_us[row] -= event.gpu_us
    ledger.refresh_barred(state)
    state.counters.dirty = 1
    return None


def budget_transferred(state: State, event: BudgetTransferred, principal: str, _seq: int) -> No | None:
    """Move unspent time between two metered lines of a pool."""
    source = find_line(state, event.pool, event.from_budget)
    target = find_line(state, event.pool, event.to_budget)
    for row in (source, target):
        if isinstance(row, No):
            return row
    if isinstance(source, No) or isinstance(target, No):  # told to the type checker
        return None
    if not may_administer(state, principal, event.from_budget):
        return not_permitted(principal, f"transfer out of {event.from_budget}")
    budget = state.budget
    if source == target or not budget.metered[source] or not budget.metered[target]:
        return No(Refusal.INVALID_DATA, "to_budget", "both budgets must differ and have been granted GPU time")
    ledger.accrue(state, state.counters.time_ms)
    left = int(budget.granted_us[source]) - ledger.committed_us(state, source)
    if event.gpu_us > left:
        return No(Refusal.BALANCE_TOO_LOW, "gpu_us", numbers={"left_gpu_us": left}, entity=event.from_budget)
    budget.granted_us[source] -= event.gpu_us
    budget.granted_us[target] += event.gpu_us
    ledger.refresh_barred(state)
    state.counters.dirty = 1
    return None


def grant_scheduled(state: State, event: GrantScheduled, principal: str, seq: int) -> No | None:
    """Grant by the calendar from the next period on, in place of what was scheduled for the line before."""
    line = _grantable(state, event, principal)
    if isinstance(line, No):
        return line
    table, now_ms, key = state.schedule, state.counters.time_ms, state.budget.keys[line]
    row = table.row_of.get(key)
    if row is None and not event.gpu_us:
        return No(Refusal.INVALID_DATA, "gpu_us", "nothing is scheduled that could end", entity=event.budget)
    begin_ms = max(event.from_ms, now_ms)
    if row is not None and table.opened[row] and not event.from_ms:
        begin_ms = int(table.next_ms[row])
    if event.until_ms and event.until_ms <= begin_ms:
        return No(Refusal.INVALID_DATA, "until_ms", "must be after the first grant", {"from_ms": begin_ms}, event.budget)
    if row is None:
        row = table.add(key)
        table.budget[row] = line
    table.event_seq[row] = seq
    table.amount_us[row] = event.gpu_us
    table.period_months[row] = MONTHS[event.period]
    table.carry[row] = CARRY[event.carry]
    table.cap_ppm[row] = event.carry_cap_ppm
    table.next_ms[row] = begin_ms
    table.until_ms[row] = event.until_ms if event.gpu_us else begin_ms
    state.counters.dirty = 1
    return None


def issued(state: State, decision: GrantIssued) -> None:
    """Apply what a period brings and takes; the next one is due when the decision says."""
    ledger.accrue(state, state.counters.time_ms)
    table, key = state.schedule, state.budget_key(decision.pool, decision.budget)
    row = table.row_of[key]
    line = int(table.budget[row])
    state.budget.granted_us[line] -= decision.lapsed_gpu_us
    if decision.gpu_us:
        _put_in(state, line, decision.gpu_us)
    if not decision.until_ms:
        drop_schedule(state, line)
        return
    table.next_ms[row] = decision.until_ms
    table.opened[row] = 1
    table.given_us[row] = decision.carried_gpu_us + decision.gpu_us
    table.base_us[row] = ledger.committed_us(state, line)

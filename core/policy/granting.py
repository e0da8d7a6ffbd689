"""Scheduled grants that are due: GPU time per period, and what becomes of what was not spent.

At the first instant of a period, or the first cycle after it, the line's period is settled and the next amount put in. What was
given for a period is spent first: unspent is what was given (with what was carried into it) less what the line charged or promised
since, never more than it has left. Of that the rule keeps nothing, all, or at most a part of an amount; the rest lapses. Grants
made by hand and transfers never lapse. A period that nobody was there to begin is begun later, one after the other; the instant
of the next one is in the state, so none begins twice.

A pure function of the state at the folded tick; emits decisions and must never write the state itself.
"""

from __future__ import annotations

import numpy as np

from apportion.core import ledger
from apportion.core.calendar import period_end_ms
from apportion.core.decisions import GrantIssued
from apportion.core.policy.emit import Emit
from apportion.core.state import schema
from apportion.core.state.state import State
from apportion.core.units import MAX_BALANCE_GPU_US, PPM


def issue_due(state: State, emit: Emit) -> None:
    """Settle and begin every period that is due, per line in order of time."""
    table, now_ms = state.schedule, state.counters.time_ms
    due = [int(row) for row in np.flatnonzero((table.column("next_ms") > 0) & (table.column("next_ms") <= now_ms))]
    for key in [table.keys[row] for row in due]:
        while 0 < _next_ms(state, key) <= now_ms:
            emit(_issue(state, table.row_of[key]))


def _next_ms(state: State, key: str) -> int:
    row = state.schedule.row_of.get(key)
    return 0 if row is None else int(state.schedule.next_ms[row])


def _issue(state: State, row: int) -> GrantIssued:
    table, budget = state.schedule, state.budget
    line, begin_ms = int(table.budget[row]), int(table.next_ms[row])
    unspent = _unspent_us(state, row)
    kept = {
        schema.CARRY_NONE: 0, schema.CARRY_ALL: unspent,
        schema.CARRY_CAP: min(unspent, int(table.amount_us[row]) * int(table.cap_ppm[row]) // PPM),
    }[int(table.carry[row])]  # fmt: skip
    until_ms, months = int(table.until_ms[row]), int(table.period_months[row])
    over = bool(until_ms) and begin_ms >= until_ms
    end_ms = 0 if over else until_ms
    if months and not over:
        end_ms = min(period_end_ms(begin_ms, months), until_ms or 1 << 60)
    granted = int(budget.granted_us[line]) if budget.metered[line] else int(budget.charged_us[line])
    room = MAX_BALANCE_GPU_US - granted
    return GrantIssued(
        pool=state.pool.keys[int(budget.pool[line])],
        budget=state.budget_path(line),
        event_seq=int(table.event_seq[row]),
        period_ms=begin_ms,
        until_ms=end_ms,
        gpu_us=0 if over or budget.closed[line] else min(int(table.amount_us[row]), room),
        carried_gpu_us=kept,
        lapsed_gpu_us=unspent - kept,
    )


def _unspent_us(state: State, row: int) -> int:
    """Return what is left of what was given for the period that ends."""
    table, line = state.schedule, int(state.schedule.budget[row])
    if not table.opened[row]:
        return 0
    committed = ledger.committed_us(state, line)
    left = int(state.budget.granted_us[line]) - committed
    spent = max(0, committed - int(table.base_us[row]))
    return max(0, min(left, int(table.given_us[row]) - spent))

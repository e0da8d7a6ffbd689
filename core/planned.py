"""Entitlements over time: what each budget line is entitled to at any instant, as it is planned now.

A line's entitlement is a step function: what it is now (``share_ppm``, ``closed``) and planned changes, each with its instant.
``budget.set`` *paints* an interval [from, until) of it, over whatever was there before; without ``until`` the interval has no end,
so later changes that were planned before are gone. At ``until`` the line is entitled to what it would have been without the
event; a line that did not exist before is then entitled to 0 and stays open. Before the first ``from`` it is closed.

A pure function of the state. Changes take effect in ``ledger.accrue``, exactly at their instant of log time, with accounts
and lags brought up to it at the old rates; must never be applied anywhere else.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from apportion.core.state.state import State
from apportion.core.units import NEVER_MS

PLANNED_MAX = 100  # changes ahead, per line

Entitlement = tuple[int, int]  # share_ppm, closed


def changes_of(state: State, line: int) -> list[int]:
    """Return the rows of a line's planned changes, in order of time."""
    table = state.planned
    rows = [int(row) for row in np.flatnonzero((table.column("at_ms") > 0) & (table.column("budget") == line))]
    return sorted(rows, key=lambda row: int(table.at_ms[row]))


def entitlement_at(state: State, line: int, at_ms: int) -> Entitlement:
    """Return what a line is planned to be entitled to at an instant that is not past."""
    found = (int(state.budget.share_ppm[line]), int(state.budget.closed[line]))
    for row in changes_of(state, line):
        if int(state.planned.at_ms[row]) <= at_ms:
            found = (int(state.planned.share_ppm[row]), int(state.planned.closed[row]))
    return found


def instants(state: State, lines: list[int], from_ms: int, until_ms: int) -> list[int]:
    """Return ``from_ms`` and every later instant before ``until_ms`` at which one of the lines changes, ascending."""
    times = {from_ms: None}
    for line in lines:
        for row in changes_of(state, line):
            if from_ms < int(state.planned.at_ms[row]) < until_ms:
                times[int(state.planned.at_ms[row])] = None
    return sorted(times)


def sums(state: State, lines: list[int], from_ms: int, until_ms: int) -> Iterator[tuple[int, int]]:
    """Yield (instant, sum of share_ppm of those of the lines that are open then), for ``from_ms`` and what ``instants`` names.

    One pass over the changes in order of time. The naive equivalent asks ``entitlement_at`` of every line at every instant.
    """
    table, budget = state.planned, state.budget
    among = np.zeros(budget.used, dtype=np.bool_)
    among[lines] = True
    share = {line: 0 if budget.closed[line] else int(budget.share_ppm[line]) for line in lines}
    total, at_ms = sum(share.values()), from_ms
    ahead = np.flatnonzero((table.column("at_ms") > 0) & among[table.column("budget")])
    for row in ahead[np.argsort(table.column("at_ms")[ahead], kind="stable")].tolist():
        changes_ms = int(table.at_ms[row])
        if changes_ms >= until_ms:
            break
        if changes_ms > at_ms:
            yield at_ms, total
            at_ms = changes_ms
        line = int(table.budget[row])
        total -= share[line]
        share[line] = 0 if table.closed[row] else int(table.share_ppm[row])
        total += share[line]
    yield at_ms, total


def ever_open(state: State, line: int) -> bool:
    """Tell whether a line is open now or at any planned instant."""
    planned = state.planned
    return not state.budget.closed[line] or any(not planned.closed[row] for row in changes_of(state, line))


def paint(state: State, line: int, from_ms: int, until_ms: int, entitlement: Entitlement) -> None:
    """Make ``entitlement`` hold in [from, until); the caller has accrued, checked the sums, and refreshes what depends on it."""
    afterwards = entitlement_at(state, line, until_ms)
    _paint(state, line, from_ms, until_ms, entitlement, afterwards)


def paint_new(state: State, line: int, from_ms: int, until_ms: int, entitlement: Entitlement) -> None:
    """Likewise for a line that was just made: closed before, open and entitled to nothing after."""
    state.budget.closed[line] = 1
    _paint(state, line, from_ms, until_ms, entitlement, (0, 0))


def _paint(
    state: State, line: int, from_ms: int, until_ms: int, entitlement: Entitlement, afterwards: Entitlement
) -> None:
    for row in changes_of(state, line):
        if from_ms <= int(state.planned.at_ms[row]) <= until_ms:
            state.planned.remove(row)
    if until_ms < NEVER_MS:
        _plan(state, line, until_ms, afterwards)
    if from_ms > state.counters.time_ms:
        _plan(state, line, from_ms, entitlement)
    else:
        state.budget.share_ppm[line], state.budget.closed[line] = entitlement
    _note_next(state)


def _plan(state: State, line: int, at_ms: int, entitlement: Entitlement) -> None:
    row = state.planned.add()
    state.planned.budget[row] = line
    state.planned.at_ms[row] = at_ms
    state.planned.share_ppm[row], state.planned.closed[row] = entitlement


def _note_next(state: State) -> None:
    times = state.planned.column("at_ms")
    ahead = times[times > 0]
    state.counters.planned_ms = int(ahead.min()) if len(ahead) else 0


def take_effect(state: State) -> None:
    """Apply what is planned for the next instant, ``counters.planned_ms``; the caller has accrued to it."""
    table = state.planned
    for row in np.flatnonzero(table.column("at_ms") == state.counters.planned_ms):
        line = int(table.budget[row])
        state.budget.share_ppm[line] = table.share_ppm[row]
        state.budget.closed[line] = table.closed[row]
        table.remove(int(row))
    state.counters.fair_stale = 1
    state.counters.dirty = 1
    _note_next(state)

"""Fold of users below a budget: who submits to a shared budget gets a line of his own, ``lab/olmo/~ann``.

Such a line is a leaf like any other, so order, funding and ledger need no further rule: its runs charge it and so the budget above
it, and the users of a budget are served in fair order. Its share is its part of all users of the budget that have ever
submitted, equal or by the weight of their membership; a user who asks for nothing leaves his part to the others, as any budget.
It cannot be set, granted or closed by itself, and is closed with the budget.
"""

from __future__ import annotations

import numpy as np

from apportion.core import lag, ledger
from apportion.core.fold.access import No, principal_row, weight_milli
from apportion.core.reasons import Refusal
from apportion.core.state import schema
from apportion.core.state.state import State
from apportion.core.units import PPM, apportion

USERS = {"none": schema.USERS_NONE, "equal": schema.USERS_EQUAL, "weighted": schema.USERS_WEIGHTED}


def add_line(state: State, key: str, pool: int, parent: int) -> int:
    """Make a line below another one; the first takes over what its parent was owed."""
    budget = state.budget
    row = budget.add(key)
    state.moved += 1
    budget.pool[row] = pool
    budget.parent[row] = parent
    if not budget.children[parent]:
        lag.hand_down(state, parent, row)
        budget.usage_us[row] = budget.usage_us[parent]
        budget.usage_us[parent] = 0
    budget.children[parent] += 1
    return row


def lines_of(state: State, line: int) -> list[int]:
    """Return the lines of a budget's users, ascending."""
    budget = state.budget
    return [int(row) for row in np.flatnonzero((budget.column("parent") == line) & (budget.column("user") > 0))]


def cannot_share(state: State, line: int, users: str) -> No | None:
    """Tell why a budget cannot be shared like this: what it has already must stay a leaf, or stay below it."""
    own, path = lines_of(state, line), state.budget_path(line)
    if users == "none" and own:
        return No(Refusal.BUDGET_IN_USE, "users", "its users have lines of their own", entity=path)
    if users != "none" and int(state.budget.children[line]) > len(own):
        return No(Refusal.BUDGET_IN_USE, "users", "there are budgets below it", entity=path)
    if users != "none" and state.budget.workloads[line]:
        return No(Refusal.BUDGET_IN_USE, "users", "it has live workloads of its own", entity=path)
    return None


def line_of(state: State, line: int, principal: str) -> int:
    """Return the line of a user below a shared budget, making it when it is his first submission."""
    key = f"{state.budget.keys[line]}/~{principal}"
    row = state.budget.row_of.get(key)
    if row is None:
        ledger.accrue(state, state.counters.time_ms)
        row = add_line(state, key, int(state.budget.pool[line]), line)
        state.budget.user[row] = 1 + principal_row(state, principal)
        share_out(state, line)
    return row


def share_out(state: State, line: int) -> None:
    """Give every user of a budget his part of it; the caller has accrued or does it by its own change."""
    ledger.accrue(state, state.counters.time_ms)
    own, path = lines_of(state, line), state.budget_path(line)
    equal = int(state.budget.users[line]) == schema.USERS_EQUAL
    weights = [
        1 if equal else weight_milli(state, state.principal.keys[int(state.budget.user[row]) - 1], path) for row in own
    ]
    for row, share_ppm in zip(own, apportion(PPM if own else 0, weights), strict=True):
        state.budget.share_ppm[row] = share_ppm
    state.counters.fair_stale = 1
    ledger.refresh_barred(state)


def reweigh(state: State) -> None:
    """After a change of memberships: give the users of all budgets that are shared by weight their parts anew."""
    for line in np.flatnonzero(state.budget.column("users") == schema.USERS_WEIGHTED):
        share_out(state, int(line))

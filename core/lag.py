"""The second book: what each budget is owed (FUNDING rules 1.2, 1.3), exact, never money.

A line's lag grows by what it would get of the GPUs delivered now, less what it holds, posted on every level of the tree: a
parent's lag is the sum of its children's, and the lags of a pool sum to zero. Only leaves forfeit: what is owed to a leaf
that cannot take it is struck from its lag and, to the last unit, from the debts of others. Both sides are posted, per line,
own and below: ``forfeited_us`` and ``forgiven_us``. So on every level

    sum of the lags of the leaves below = lag of the line - forfeited + forgiven

where an inner line's ``lag_us`` is the plain integral; ``check_lags`` holds the identity after every cycle, in production.

A *barred* line (``ledger.barred_lines``) can pay for nothing. What waits on it is no demand here, what it runs is: so it is owed
nothing for time in which it could not pay, and owes what it runs above its part of what is delivered. What it was owed
when it became barred is forfeited like that of an idle line. What it ran into debt for stays, being what others are owed.

Called by the ledger and the fold; reads no clock; must never touch an account of money.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from apportion.core.errors import check
from apportion.core.kernels import lines, share
from apportion.core.state.state import State
from apportion.core.units import PPM, apportion, gpu_us

I64 = NDArray[np.int64]


def refresh_rates(state: State) -> None:
    """Set dL/dt of every line to (what it would get of the delivered GPUs) - (what it holds)."""
    budget = state.budget
    share.lag_rates(
        state.pool.root, state.pool.used, budget.used, budget.pool, budget.parent, budget.share_ppm,
        budget.running_milli, budget.pending_milli, budget.barred, budget.lag_milli,
    )  # fmt: skip
    state.counters.fair_stale = 0


def forgive(state: State) -> None:
    """Clear what is owed to leaves that are idle or barred, and the same amount of debt of others, pro rata (rule 1.3).

    Debts owed to nobody would depress allowances for ever; both sides move, so the sum of lags stays zero. By policy an idle
    leaf stays owed up to ``bank_ms`` of its share of the pool; a barred one banks nothing.
    """
    budget = state.budget
    if not lines.forgivable(
        budget.used, budget.children, budget.lag_us, budget.running_milli, budget.pending_milli, budget.barred
    ):
        return
    lag, leaf = budget.column("lag_us"), budget.column("children") == 0
    idle = (budget.column("running_milli") == 0) & (budget.column("pending_milli") == 0)
    owed = leaf & (lag > 0) & (idle | (budget.column("barred") == 1))
    for row in (int(r) for r in np.flatnonzero(owed)):
        in_pool = budget.column("pool") == budget.pool[row]
        debtors = [int(other) for other in np.flatnonzero(leaf & in_pool & (lag < 0))]
        debts = [-int(lag[other]) for other in debtors]
        amount = min(int(lag[row]) - _banked_us(state, row), sum(debts))
        if amount <= 0:
            continue
        budget.lag_us[row] -= amount
        _post(state, row, "forfeited_us", amount)
        for other, part in zip(debtors, apportion(amount, debts), strict=True):
            budget.lag_us[other] += part
            _post(state, other, "forgiven_us", part)


def _banked_us(state: State, leaf: int) -> int:
    """Return what an idle leaf may stay owed: its part of the GPUs in supply for the time of the pool's policy."""
    budget, pool = state.budget, int(state.budget.pool[leaf])
    if not state.pool.bank_ms[pool] or budget.barred[leaf]:
        return 0
    part_milli, row = int(state.pool.supply_milli[pool]), leaf
    while row >= 0:
        part_milli = part_milli * int(budget.share_ppm[row]) // PPM
        row = int(budget.parent[row])
    return gpu_us(part_milli, int(state.pool.bank_ms[pool]))


def settle(state: State, pool: int) -> None:
    """Nobody owes anybody anything any more: what leaves are owed is forfeited, what they owe is forgiven."""
    budget = state.budget
    for row in np.flatnonzero((budget.column("pool") == pool) & (budget.column("children") == 0)):
        amount = int(budget.lag_us[row])
        budget.lag_us[row] = 0
        _post(state, int(row), "forfeited_us" if amount > 0 else "forgiven_us", abs(amount))


def _post(state: State, row: int, column: str, amount: int) -> None:
    array = getattr(state.budget, column)
    while row >= 0:
        array[row] += amount
        row = int(state.budget.parent[row])


def hand_down(state: State, parent: int, child: int) -> None:
    """A leaf gets its first child, which takes over its lag and what was posted on it; the parent keeps the integral."""
    budget = state.budget
    for name in ("lag_us", "forfeited_us", "forgiven_us"):
        column = getattr(budget, name)
        column[child] = column[parent]
    budget.lag_us[parent] += budget.forfeited_us[parent] - budget.forgiven_us[parent]


def owed_us(state: State) -> I64:
    """Return per line what it is owed now, negative when it owes: a leaf's lag, an inner line's sum over its leaves."""
    budget = state.budget
    inner = budget.column("children") > 0
    settled = budget.column("forgiven_us") - budget.column("forfeited_us")
    result: I64 = budget.column("lag_us") + np.where(inner, settled, 0)
    return result


def check_lags(state: State) -> None:
    """Stop unless lags and forfeits add up on every level of every tree."""
    budget, seq = state.budget, state.counters.seq
    wrong = lines.uneven(
        budget.used, budget.parent, budget.children, budget.lag_us, budget.forfeited_us, budget.forgiven_us
    )
    if wrong < 0:
        return
    parent = budget.column("parent")
    below = parent >= 0
    inner = budget.column("children") > 0
    for name, own in (
        ("lag", owed_us(state)), ("forfeited", budget.column("forfeited_us")), ("forgiven", budget.column("forgiven_us")),
    ):  # fmt: skip
        sums = np.zeros(budget.used, dtype=np.int64)
        np.add.at(sums, parent[below], own[below])
        for row in np.flatnonzero(inner & (sums != own)):
            check(False, seq, f"{name} of {budget.keys[int(row)]}: {own[row]}, its children's sum to {sums[row]}")
    for root in state.pool.column("root"):
        given, taken = int(budget.forfeited_us[root]), int(budget.forgiven_us[root])
        check(given == taken, seq, f"{budget.keys[int(root)]} forfeited {given}, forgiven {taken}")
        check(int(budget.lag_us[root]) == 0, seq, f"lags under {budget.keys[int(root)]} do not sum to zero")
    check(False, seq, f"lags and forfeits of {budget.keys[wrong]} do not add up")

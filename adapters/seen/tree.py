"""Pools with their accounts, and the budget tree: shares, what each line is entitled to and allowed, what it used and owes.

Pure functions of a ``Sight``. Entitlement and allowance are those of the last cycle; everything else is of the record itself.
"""

from __future__ import annotations

from typing import Any

from apportion.adapters.seen.sight import Sight
from apportion.core import lag, ledger
from apportion.core.policy.funding import Shares
from apportion.core.state.codes import POLICIES
from apportion.core.state.state import State


def pools(sight: Sight) -> list[dict[str, Any]]:
    """Return a row per pool."""
    state, rows = sight.core.state, []
    for row, books in enumerate(ledger.books(state)):
        pool, root = state.pool, int(state.pool.root[row])
        rows.append(
            {
                "pool": books.pool,
                "policy": POLICIES.get(int(pool.policy[row]), "?"),
                "gpus_milli": int(pool.supply_milli[row]),
                "funded_milli": int(state.budget.funded_milli[root]),
                "unfunded_milli": int(pool.unfunded_milli[row]),
                "idle_milli": int(pool.idle_milli[row]),
                "down_milli": int(pool.down_milli[row]),
                "pending_milli": books.pending_milli,
                "supply_gpu_us": books.supply,
                "funded_gpu_us": books.funded,
                "unfunded_gpu_us": books.unfunded,
                "idle_gpu_us": books.idle,
                "down_gpu_us": books.down,
            }
        )
    return rows


def budgets(sight: Sight) -> list[dict[str, Any]]:
    """Return a row per line of the tree, by pool and path; the line of a user of one is ``path/~user``, as in the core."""
    state = sight.core.state
    table, owed = state.budget, lag.owed_us(state)
    shares = sight.cycle.shares if sight.cycle is not None else None
    rows = []
    for row in table.live_rows():
        path = state.budget_path(row)
        if not path:
            continue
        metered = bool(table.metered[row])
        rows.append(
            {
                "pool": state.pool.keys[int(table.pool[row])],
                "budget": path,
                "share_ppm": int(table.share_ppm[row]),
                "closed": bool(table.closed[row]),
                **_allowed(state, shares, row),
                "funded_milli": int(table.funded_milli[row]),
                "unfunded_milli": int(table.unfunded_milli[row]),
                "pending_milli": int(table.pending_milli[row]),
                "charged_gpu_us": int(table.charged_us[row]),
                "unfunded_gpu_us": int(table.unfunded_us[row]),
                "granted_gpu_us": int(table.granted_us[row]) if metered else None,
                "left_gpu_us": int(table.granted_us[row]) - int(table.charged_us[row]) if metered else None,
                "lag_gpu_us": int(owed[row]),
            }
        )
    return sorted(rows, key=lambda found: (found["pool"], found["budget"]))


def _allowed(state: State, shares: Shares | None, row: int) -> dict[str, Any]:
    """Return what the last cycle gave the line; nothing for one that is younger."""
    if shares is None or row >= len(shares.entitled):
        return {"entitled_milli": None, "allowance_milli": None, "reserved_gpu_us": None, "barred": None}
    return {
        "entitled_milli": int(shares.entitled[row]),
        "allowance_milli": int(shares.allowance[row]),
        "reserved_gpu_us": int(shares.reserved_us[row]),
        "barred": bool(shares.barred[row]),
    }

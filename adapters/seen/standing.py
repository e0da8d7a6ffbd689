"""How every budget stands at a record, in the core's own numbers: what its allowance is, why, and what it runs.

A pure function of a ``Core``, whose accounts it brings to its time: the caller throws the core away. Entitlements, allowances
and the cap come from ``policy.funding.shares_of``, the function that decides; nothing is worked out a second time here, so
what people read is what was decided by. It must never be asked for a core that goes on deciding.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from apportion.core.units import PPM

if TYPE_CHECKING:
    from apportion.core.engine import Core
    from apportion.core.policy.funding import Shares
    from apportion.core.state.state import State

PROTECTED, FUNDED, UNFUNDED = "protected", "funded", "unfunded"
STANDINGS = (PROTECTED, FUNDED, UNFUNDED)


def standing_of(payer: str, protected_until_ms: int, now_ms: int) -> str:
    """Return which of the three states of a run people see: protected, else funded or unfunded."""
    if protected_until_ms > now_ms:
        return PROTECTED
    return FUNDED if payer == "budget" else UNFUNDED


def pools(core: Core) -> list[dict[str, Any]]:
    """Return what the allowances of each pool rest on."""
    from apportion.core.lag import owed_us
    from apportion.core.policy.funding import capacity_milli, shares_of

    state, shares = _now(core), shares_of(core.state)
    lags, rows = owed_us(state), []
    for row in range(state.pool.used):
        root = int(state.pool.root[row])
        rows.append(
            {
                "pool": state.pool.keys[row],
                "policy": _policy(state, row),
                "capacity_milli": capacity_milli(state, row),
                "horizon_ms": int(state.pool.horizon_ms[row]),
                "entitled_milli": int(shares.entitled[root]),
                "allowance_milli": int(shares.allowance[root]),
                "catch_up_milli": int(shares.catch_up[row]),
                "given_up_milli": int(shares.given_up[row]),
                "lag_gpu_us": int(lags[root]),
            }
        )
    return rows


def gaps(core: Core) -> dict[str, dict[str, Any]]:
    """Return, by name of the pool, its packing and what its free GPUs are good for, as the core measures it."""
    from apportion.core.policy.gaps import gaps_of
    from apportion.core.state.codes import PACKINGS

    state, found = core.state, {}
    for row in range(state.pool.used):
        gap = gaps_of(state, row)
        found[state.pool.keys[row]] = {
            "packing": PACKINGS[int(state.pool.packing[row])],
            "free_milli": gap.free_milli,
            "fragment_milli": gap.fragment_milli,
            "fragment_ppm": gap.fragment_milli * PPM // gap.free_milli if gap.free_milli else None,
            "free_blocks_after_limits": {str(size): count for size, count in gap.blocks_after_limits.items()},
        }
    return found


def budgets(core: Core) -> list[dict[str, Any]]:
    """Return one row per budget line, in the order of the tree; an inner line is the sum of its leaves."""
    from apportion.core.lag import owed_us
    from apportion.core.policy.funding import shares_of

    state, shares = _now(core), shares_of(core.state)
    runs, lags = _runs(state), owed_us(state)
    live = (int(row) for row in state.budget.live_rows())
    rows = [_line(state, shares, row, runs[row], int(lags[row])) for row in live if state.budget_path(row)]
    return sorted(rows, key=lambda found: (found["pool"], found["budget"].split("/")))


def _policy(state: State, pool: int) -> str:
    """Return the name of a pool's policy; allowances bind under ``fair`` only."""
    from apportion.core.state.codes import POLICIES

    return POLICIES[int(state.pool.policy[pool])]


def _now(core: Core) -> State:
    from apportion.core import ledger

    ledger.accrue(core.state, core.time_ms)
    return core.state


def _line(state: State, shares: Shares, row: int, runs: dict[str, int], lag_us: int) -> dict[str, Any]:
    table, pool = state.budget, int(state.budget.pool[row])
    leaf = int(table.children[row]) == 0
    horizon_ms = int(state.pool.horizon_ms[pool])
    return {
        "pool": state.pool.keys[pool],
        "budget": state.budget_path(row),
        "policy": _policy(state, pool),
        "is_leaf": leaf,
        "closed": bool(table.closed[row]),
        "entitled_milli": int(shares.entitled[row]),
        "lag_gpu_us": lag_us,
        "horizon_ms": horizon_ms,
        "forfeited_gpu_us": int(table.forfeited_us[row]),  # owed to it, and struck while it could not take it
        "forgiven_gpu_us": int(table.forgiven_us[row]),  # owed by it, and struck with what others forfeited
        "owed_milli": lag_us // horizon_ms if leaf else None,  # floor, also below zero
        "demand_milli": int(table.running_milli[row]) + int(table.pending_milli[row]),
        "wanted_milli": int(shares.wanted[row]) if leaf else None,
        "catch_up_milli": int(shares.catch_up[pool]),
        "given_up_milli": int(shares.given_up[pool]),
        "barred": bool(shares.barred[row]),
        "allowance_milli": int(shares.allowance[row]),
        "reserved_gpu_us": int(shares.reserved_us[row]),
        **{f"runs_{name}_milli": runs[name] for name in (*STANDINGS, "idle_cycles")},
        "pending_milli": int(table.pending_milli[row]),
    }


def _runs(state: State) -> list[dict[str, int]]:
    """Return per budget line the GPUs of its runs by standing, those below it included."""
    from apportion.core.state import schema

    table, now_ms = state.run, state.counters.time_ms
    sums = [dict.fromkeys((*STANDINGS, "idle_cycles"), 0) for _ in range(state.budget.used)]
    for run in (int(row) for row in table.live_rows()):
        if int(table.state[run]) == schema.ENDED:
            continue
        payer = "budget" if int(table.payer[run]) == schema.PAYER_BUDGET else UNFUNDED
        name = standing_of(payer, int(table.protected_until_ms[run]), now_ms)
        line, milli = int(table.budget[run]), int(table.gpus_milli[run])
        while line >= 0:
            sums[line][name] += milli
            sums[line]["idle_cycles"] += milli if table.idle_cycles[run] else 0
            line = int(state.budget.parent[line])
    return sums

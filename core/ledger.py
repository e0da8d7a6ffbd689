"""Money: accounts in GPU-microseconds, exact at every record, and the rates they grow by.

Per pool: ``supply = down + idle + unfunded + funded``, where funded is the charge of the pool's root budget and each budget's
charge is the sum over its leaves. A GPU's 1,000 milli are split at each instant into what runs hold (paid by a budget or
unfunded) and the rest, which is ``down`` when the GPU is out of service and ``idle`` otherwise. Rates change only through
the functions here; between two changes every account is rate x time, so nothing is sampled and nothing is rounded.

Beside the money stands the *lag* of fair share (``lag.py``), accrued here with it.

Called by the fold; reads no clock; must never be called with a time before ``accrued_ms``.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from apportion.core import lag, planned, usage
from apportion.core.decisions import PoolBooks
from apportion.core.errors import check
from apportion.core.kernels import accrue as accrue_kernels
from apportion.core.kernels import lines
from apportion.core.state import schema
from apportion.core.state.memo import Reserved
from apportion.core.state.state import State
from apportion.core.units import MAX_ELAPSED_MS, MILLI, gpu_us

I64 = NDArray[np.int64]


def accrue(state: State, now_ms: int) -> None:
    """Bring all accounts and lags to ``now_ms``; must precede every change of a rate.

    Entitlements that were planned for an instant on the way change exactly there.
    """
    while 0 < state.counters.planned_ms <= now_ms:
        _accrue(state, state.counters.planned_ms)
        planned.take_effect(state)
        _store_barred(state)
    _accrue(state, now_ms)


def _accrue(state: State, now_ms: int) -> None:
    """Accrue at the rates that hold now, in steps no product of which leaves int64.

    One record steps at most ``MAX_ELAPSED_MS`` ahead, but several may come between two changes of a rate.
    """
    while now_ms > state.counters.accrued_ms:
        _step(state, min(now_ms, state.counters.accrued_ms + MAX_ELAPSED_MS))


def _step(state: State, now_ms: int) -> None:
    elapsed = now_ms - state.counters.accrued_ms
    if state.counters.fair_stale:
        lag.refresh_rates(state)
    if state.counters.decaying:
        usage.accrue_usage(state, state.counters.accrued_ms, now_ms)
    budget, pool = state.budget, state.pool
    accrue_kernels.accrue_budgets(
        budget.used, elapsed, budget.funded_milli, budget.unfunded_milli, budget.lag_milli,
        budget.charged_us, budget.unfunded_us, budget.lag_us,
    )  # fmt: skip
    accrue_kernels.accrue_pools(
        pool.used, elapsed, pool.supply_milli, pool.down_milli, pool.idle_milli, pool.unfunded_milli,
        pool.supply_us, pool.down_us, pool.idle_us, pool.unfunded_us,
    )  # fmt: skip
    state.counters.accrued_ms = now_ms


def begin_policy(state: State, pool: int, policy: int) -> None:
    """Change who judges the pool: what the policy before it owed is owed by nobody, what was used is forgotten."""
    state.pool.policy[pool] = policy
    lag.settle(state, pool)
    state.budget.column("usage_us")[state.budget.column("pool") == pool] = 0
    state.counters.decaying = int((state.pool.column("policy") == schema.FAIR_TREE).sum())


def _add_to_path(state: State, row: int, column: memoryview, delta: int) -> None:
    """Add ``delta`` to cells of a budget line and of all lines above it."""
    parent = state.budget.cells.parent
    while row >= 0:
        column[row] += delta
        row = parent[row]


def add_demand(state: State, budget_row: int, delta_milli: int) -> None:
    """Change the pending demand of a budget line (and of those above it)."""
    _add_to_path(state, budget_row, state.budget.cells.pending_milli, delta_milli)
    state.counters.fair_stale = 1


def _add_to_paths(state: State, rows: I64, column: I64, deltas: I64) -> None:
    """Add to cells of many budget lines, and of all lines above each."""
    sums = np.zeros(state.budget.used, dtype=np.int64)
    np.add.at(sums, rows, deltas)
    lines.add_up(state.budget.used, state.budget.parent, sums, column)


def add_demands(state: State, budget_rows: I64, deltas_milli: I64) -> None:
    """Change the pending demand of many budget lines (and of those above them)."""
    _add_to_paths(state, budget_rows, state.budget.pending_milli, deltas_milli)
    state.counters.fair_stale = 1


def add_demand_of_lines(state: State, deltas_milli: I64) -> None:
    """Change the pending demand of all budget lines (and of those above them); ``deltas_milli``, one per line, is used up."""
    lines.add_up(state.budget.used, state.budget.parent, deltas_milli, state.budget.pending_milli)
    state.counters.fair_stale = 1


def add_gpu(state: State, pool: int, gpu: int) -> None:
    """Take a new, unused GPU into supply."""
    state.pool.supply_milli[pool] += MILLI
    (state.pool.down_milli if state.gpu.out[gpu] else state.pool.idle_milli)[pool] += MILLI


def remove_gpu(state: State, pool: int, gpu: int) -> None:
    """Take an unused GPU out of supply."""
    check(int(state.gpu.used_milli[gpu]) == 0, state.counters.seq, f"GPU row {gpu} leaves while it is used")
    state.pool.supply_milli[pool] -= MILLI
    (state.pool.down_milli if state.gpu.out[gpu] else state.pool.idle_milli)[pool] -= MILLI


def set_out(state: State, pool: int, gpu: int, out: bool) -> None:
    """Move the unused part of a GPU between ``idle`` and ``down``."""
    if bool(state.gpu.out[gpu]) == out:
        return
    rest = MILLI - int(state.gpu.used_milli[gpu])
    sign = 1 if out else -1
    state.pool.down_milli[pool] += sign * rest
    state.pool.idle_milli[pool] -= sign * rest
    state.gpu.out[gpu] = int(out)


def use_gpu(state: State, pool: int, gpu: int, delta_milli: int) -> None:
    """Give ``delta_milli`` of a GPU to a run (negative: back)."""
    cells, pools = state.gpu.cells, state.pool.cells
    used = cells.used_milli[gpu] + delta_milli
    if not 0 <= used <= MILLI:
        check(False, state.counters.seq, f"GPU row {gpu} would be used by {used} of {MILLI} milli")
    cells.used_milli[gpu] = used
    (pools.down_milli if cells.out[gpu] else pools.idle_milli)[pool] -= delta_milli


def use_gpus(state: State, pools: I64, gpus: I64, milli: I64) -> None:
    """Give so much of each of many GPUs, of these pools, to runs; the caller knows that there is so much left."""
    out = state.gpu.out[gpus] > 0
    np.add.at(state.gpu.used_milli, gpus, milli)
    np.subtract.at(state.pool.down_milli, pools[out], milli[out])
    np.subtract.at(state.pool.idle_milli, pools[~out], milli[~out])


def _rate(state: State, run: int, sign: int) -> None:
    cells, budgets = state.run.cells, state.budget.cells
    milli, budget = sign * cells.gpus_milli[run], cells.budget[run]
    if cells.payer[run] == schema.PAYER_BUDGET:
        _add_to_path(state, budget, budgets.funded_milli, milli)
    else:
        _add_to_path(state, budget, budgets.unfunded_milli, milli)
        state.pool.cells.unfunded_milli[cells.pool[run]] += milli


def begin_run(state: State, run: int, payer: int, now_ms: int) -> None:
    """Start charging a run to ``payer``. The caller has accrued and given it its GPUs."""
    cells = state.run.cells
    cells.payer[run] = payer
    cells.payer_since_ms[run] = now_ms
    cells.changed_ms[run] = now_ms
    _rate(state, run, 1)
    if not cells.idle_cycles[run]:
        _add_to_path(state, cells.budget[run], state.budget.cells.running_milli, cells.gpus_milli[run])
    state.counters.fair_stale = 1


def begin_runs(state: State, runs: I64, payers: I64, now_ms: int) -> None:
    """Start charging many runs, as ``begin_run`` does each."""
    run, budget = state.run, state.budget
    run.payer[runs], run.payer_since_ms[runs], run.changed_ms[runs] = payers, now_ms, now_ms
    milli, leaf, funded = run.gpus_milli[runs], run.budget[runs], payers == schema.PAYER_BUDGET
    _add_to_paths(state, leaf[funded], budget.funded_milli, milli[funded])
    _add_to_paths(state, leaf[~funded], budget.unfunded_milli, milli[~funded])
    np.add.at(state.pool.unfunded_milli, run.pool[runs[~funded]], milli[~funded])
    counted = run.idle_cycles[runs] == 0
    _add_to_paths(state, leaf[counted], budget.running_milli, milli[counted])
    state.counters.fair_stale = 1


def settle_run(state: State, run: int, now_ms: int) -> None:
    """Bring the run's own totals to ``now_ms``."""
    cells = state.run.cells
    amount = gpu_us(cells.gpus_milli[run], now_ms - cells.payer_since_ms[run])
    (cells.charged_us if cells.payer[run] == schema.PAYER_BUDGET else cells.unfunded_us)[run] += amount
    cells.payer_since_ms[run] = now_ms


def change_payer(state: State, run: int, payer: int, now_ms: int) -> None:
    """From ``now_ms`` on ``payer`` pays."""
    settle_run(state, run, now_ms)
    _rate(state, run, -1)
    state.run.payer[run] = payer
    state.run.changed_ms[run] = now_ms
    _rate(state, run, 1)


def end_run(state: State, run: int, now_ms: int) -> None:
    """Stop charging a run. The caller gives its GPUs back."""
    cells = state.run.cells
    settle_run(state, run, now_ms)
    _rate(state, run, -1)
    if not cells.idle_cycles[run]:
        _add_to_path(state, cells.budget[run], state.budget.cells.running_milli, -cells.gpus_milli[run])
    state.counters.fair_stale = 1


def refund(state: State, budget_row: int, pool: int, charged_us: int, unfunded_us: int) -> None:
    """Move time that hardware lost from its payers to ``down``."""
    _add_to_path(state, budget_row, state.budget.cells.charged_us, -charged_us)
    _add_to_path(state, budget_row, state.budget.cells.unfunded_us, -unfunded_us)
    state.pool.unfunded_us[pool] -= unfunded_us
    state.pool.down_us[pool] += charged_us + unfunded_us


def reserved_us(state: State, now_ms: int) -> I64:
    """Return per budget line the protected time of funded runs that is reserved and not yet charged."""
    return _reserved(state, now_ms).left_us


def reserved_milli(state: State, now_ms: int) -> I64:
    """Return per budget line the GPUs of funded runs inside their reserved time."""
    return _reserved(state, now_ms).milli


def promised(state: State) -> Reserved:
    """Return both, as they stay until the next change of a run; asked between records only, not by the fold."""
    memo, now_ms = state.memo.at(state.moved), state.counters.time_ms
    if memo.reserved is None or not memo.reserved.from_ms <= now_ms < memo.reserved.until_ms:
        memo.reserved = _reserved(state, now_ms)
    return memo.reserved


def _reserved(state: State, now_ms: int) -> Reserved:
    run, budget = state.run, state.budget
    left_us, milli = np.empty(budget.used, dtype=np.int64), np.empty(budget.used, dtype=np.int64)
    until_ms = lines.reserved(
        now_ms, run.used, schema.ENDED, run.protected_until_ms, run.reserved, run.state, run.budget, run.gpus_milli, budget.used,
        budget.parent, budget.children, left_us, milli,
    )  # fmt: skip
    return Reserved(now_ms, until_ms, left_us, milli)


def committed_us(state: State, budget_row: int) -> int:
    """Return what a line has charged or promised up to ``accrued_ms``."""
    return int(state.budget.charged_us[budget_row]) + int(reserved_us(state, state.counters.accrued_ms)[budget_row])


def available_us(state: State, budget_row: int, outstanding: I64) -> int | None:
    """Return what a line may still promise: the least balance over the metered lines of its path; None = not metered."""
    least: int | None = None
    budget = state.budget
    row = budget_row
    while row >= 0:
        if budget.metered[row]:
            left = int(budget.granted_us[row]) - int(budget.charged_us[row]) - int(outstanding[row])
            least = left if least is None else min(least, left)
        row = int(budget.parent[row])
    return least


def barred_lines(state: State, outstanding: I64) -> I64:
    """Return 1 per budget line that funds nothing: closed, or metered with nothing left to promise, or below such a line."""
    budget = state.budget
    barred = np.empty(budget.used, dtype=np.int64)
    lines.barred(
        budget.used, budget.parent, budget.closed, budget.metered, budget.granted_us, budget.charged_us, outstanding, barred
    )
    return barred


def refresh_barred(state: State) -> None:
    """Store which lines are barred from now on: after every cycle, and whenever money moves or a line opens or closes."""
    accrue(state, state.counters.time_ms)
    _store_barred(state)


def end_cycle(state: State) -> None:
    """Store which lines are barred from now on, and stop unless the books add up."""
    accrue(state, state.counters.time_ms)
    _store_barred(state, promised(state).at(state.counters.time_ms))
    check_conservation(state)


def _store_barred(state: State, outstanding: I64 | None = None) -> None:
    barred = barred_lines(state, reserved_us(state, state.counters.accrued_ms) if outstanding is None else outstanding)
    stored = state.budget.column("barred")
    if stored.tobytes() != barred.tobytes():
        stored[:] = barred
        state.counters.fair_stale = 1


def books(state: State) -> tuple[PoolBooks, ...]:
    """Return the accounts of every pool."""
    pool, budget = state.pool.cells, state.budget.cells
    return tuple(
        PoolBooks(
            pool=state.pool.keys[row],
            supply=pool.supply_us[row],
            down=pool.down_us[row],
            idle=pool.idle_us[row],
            unfunded=pool.unfunded_us[row],
            funded=budget.charged_us[pool.root[row]],
            pending_milli=budget.pending_milli[pool.root[row]],
            free_milli=pool.idle_milli[row],
        )
        for row in range(state.pool.used)
    )


def check_conservation(state: State) -> None:
    """Stop unless the accounts, and the rates, of every pool add up. Runs after every cycle, in production."""
    pool, budget, seq = state.pool.cells, state.budget.cells, state.counters.seq
    for row in range(state.pool.used):
        root, supply, unfunded = pool.root[row], pool.supply_us[row], pool.unfunded_us[row]
        total = pool.down_us[row] + pool.idle_us[row] + unfunded + budget.charged_us[root]
        rate = pool.down_milli[row] + pool.idle_milli[row] + pool.unfunded_milli[row] + budget.funded_milli[root]
        if supply != total or pool.supply_milli[row] != rate or unfunded != budget.unfunded_us[root]:
            name = state.pool.keys[row]
            check(supply == total, seq, f"pool {name}: supply {supply} != {total}")
            check(pool.supply_milli[row] == rate, seq, f"pool {name}: rates {pool.supply_milli[row]} != {rate}")
            check(False, seq, f"pool {name}: unfunded {unfunded} != {budget.unfunded_us[root]} by budget")
    lag.check_lags(state)

"""Who is funded: allowances of budgets, and the payer of each run (FUNDING rules 1.1, 1.4, 1.5).

A budget's allowance ``f`` is what it is entitled to of the GPUs in service now, plus what it is owed over the horizon, capped so
that allowances never exceed capacity. Inside a budget runs are funded in order (priority, start, submission) while at least
half of the run fits. Beside that stand two facts of money: protected time that was reserved from the budget stays paid by it,
and a *barred* budget (closed, or granted GPU time and nothing left of it, or below such a line) funds nothing. So that it keeps no
part of the pool either, its demand is only what is inside that paid time: others are entitled to the rest at once.
Under a baseline policy the allowance of a budget that is not barred is all that it asks for: whatever runs is paid by its budget.

Pure functions of the state; the result is recomputed in every cycle and never stored.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from apportion.core import ledger
from apportion.core.decisions import FundingChanged
from apportion.core.kernels import serve, share
from apportion.core.policy.emit import Emit
from apportion.core.policy.idling import demoted
from apportion.core.reasons import Funding, Payer
from apportion.core.state import schema
from apportion.core.state.asks import Ask, ask_of
from apportion.core.state.memo import Payers
from apportion.core.state.phases import runs_in
from apportion.core.state.state import State
from apportion.core.units import MILLI

I64 = NDArray[np.int64]

ANSWERS = {
    serve.IDLE_CYCLES: Funding.IDLE_CYCLES,
    serve.BUDGET_CLOSED: Funding.BUDGET_CLOSED,
    serve.BALANCE_SPENT: Funding.BALANCE_SPENT,
    serve.ABOVE_ALLOWANCE: Funding.ABOVE_ALLOWANCE,
    serve.WITHIN_ALLOWANCE: Funding.WITHIN_ALLOWANCE,
}
_PAID_BY = np.array([schema.PAYER_UNFUNDED, schema.PAYER_BUDGET], dtype=np.int64)  # nobody; its budget


@dataclass
class Shares:
    """What the cycle knows of budgets; one entry per budget row, milli-GPU."""

    entitled: I64  # a
    allowance: I64  # f; an inner row is the sum of its leaves
    running: I64  # r without runs that are stopping, kept current while the cycle starts and stops runs; inner rows are sums
    reserved_us: I64  # protected time promised and not yet charged
    # why the allowance is what it is, for people who recompute it
    wanted: I64  # f of a leaf before the cap
    barred: I64  # 1 = funds nothing: closed, or its grant is spent, or one above it is so
    catch_up: I64  # per pool: the sum of what leaves want above what they are entitled to
    given_up: I64  # per pool: the sum of what other leaves fall short of it; catch-up is scaled to at most this


def shares_of(state: State) -> Shares:
    """Compute entitlements and allowances of all pools."""
    rows, pools = state.budget.used, state.pool.used
    reserved = ledger.promised(state).at(state.counters.time_ms)
    barred = ledger.barred_lines(state, reserved)
    entitled, allowance, wanted = (np.zeros(rows, dtype=np.int64) for _column in range(3))
    catch_up, given_up = (np.zeros(pools, dtype=np.int64) for _column in range(2))
    made = Shares(entitled, allowance, staying_milli(state), reserved, wanted, barred, catch_up, given_up)
    demand = demand_milli(state, barred)
    for pool in range(pools):
        _share_out(state, made, pool, demand)
    return made


def shares_with(state: State, shares: Shares, pool: int, guests_milli: I64) -> Shares:
    """Return the shares of a pool as they would be if ``guests_milli`` (per line, leaves) waited in it too.

    What runs and what is promised are the same arrays: starts keep both current. Other pools are as they were.
    """
    changed = (shares.entitled, shares.allowance, shares.wanted, shares.catch_up, shares.given_up)
    entitled, allowance, wanted, catch_up, given_up = (column.copy() for column in changed)
    made = Shares(entitled, allowance, shares.running, shares.reserved_us, wanted, shares.barred, catch_up, given_up)
    _share_out(state, made, pool, demand_milli(state, shares.barred, guests_milli))
    return made


def demand_milli(state: State, barred: I64, guests_milli: I64 | None = None) -> I64:
    """Return per budget line what runs and waits, with what guests ask of leaves: only leaves are looked at.

    Who can pay for nothing keeps no part of the pool but what he has paid: the rest may go once somebody pays for it.
    """
    budget = state.budget
    demand: I64 = budget.column("running_milli") + budget.column("pending_milli")
    if guests_milli is not None:
        demand = demand + guests_milli
    if barred.any():
        demand = np.where(barred == 1, ledger.reserved_milli(state, state.counters.time_ms), demand)
    return demand


def _share_out(state: State, made: Shares, pool: int, demand: I64) -> None:
    """Fill in a pool's lines."""
    budget, rows = state.budget, state.budget.used
    root, capacity = int(state.pool.root[pool]), capacity_milli(state, pool)
    share.water_fill(root, capacity, rows, budget.pool, budget.parent, budget.share_ppm, demand, made.entitled)
    made.catch_up[pool], made.given_up[pool] = share.allowances(
        root, capacity, int(state.pool.horizon_ms[pool]), rows, budget.pool, budget.children, demand, made.entitled,
        budget.lag_us, made.barred, made.wanted, made.allowance,
    )  # fmt: skip
    if int(state.pool.policy[pool]) not in (schema.FAIR, schema.HORIZON):
        mine = (budget.column("pool") == pool) & (budget.column("children") == 0)
        made.allowance[mine] = np.where(made.barred[mine] == 1, 0, demand[mine])  # no baseline bounds what a budget pays for
    share.sum_up(root, rows, budget.pool, budget.parent, budget.children, made.allowance)


def staying_milli(state: State) -> I64:
    """Return per budget line what runs and has not been asked to stop, or only to move; idle-cycle runs are nobody's."""
    run, budget = state.run, state.budget
    running = budget.column("running_milli").copy()
    going = np.array(runs_in(state, schema.STOPPING), dtype=np.int64)
    going = going[(run.stop_cause[going] != schema.STOP_MOVE) & (run.idle_cycles[going] == 0)] if len(going) else going
    if len(going):
        leaves = budget.column("children") == 0
        np.subtract.at(running, run.budget[going], run.gpus_milli[going])
        running[~leaves] = 0
        for pool in range(state.pool.used):
            share.sum_up(int(state.pool.root[pool]), budget.used, budget.pool, budget.parent, budget.children, running)
    return running


def capacity_milli(state: State, pool: int) -> int:
    """Return the GPUs of the pool that are in service, used or not, and what still runs on drained nodes: that they are to be empty
    makes nobody there unfunded.
    """
    kept = state.memo.at(state.moved).capacity_milli
    if pool not in kept:
        node, gpu = state.node.column, state.gpu.column
        place, out = gpu("node"), gpu("out") == 1
        leaving = np.where(node("drain_set_ms")[place] > 0, gpu("used_milli"), 0)
        kept[pool] = int(np.where(out, leaving, MILLI)[node("pool")[place] == pool].sum())
    return kept[pool]


def fundable(
    state: State, shares: Shares, workload: int, ahead_milli: int = 0, ask: Ask | None = None
) -> tuple[bool, Funding]:
    """Tell whether a pending workload would be funded if it started now, and why.

    ``ahead_milli`` is what waits in its budget before it and keeps its part of the allowance; ``ask`` stands for what it is where
    it waits.
    """
    budget, ask = state.budget, ask_of(state, workload) if ask is None else ask
    answer = serve.fundable(
        ask.budget, ask.gpus_milli, ask.min_runtime_ms, ahead_milli, budget.parent, budget.closed, budget.metered,
        budget.granted_us, budget.charged_us, shares.reserved_us, shares.running, shares.allowance,
    )  # fmt: skip
    return answer == serve.WITHIN_ALLOWANCE, ANSWERS[answer]


def fund_runs(state: State, emit: Emit, shares: Shares) -> None:
    """Write ``funding.changed`` for every run whose payer is not what the rule says now."""
    run, table, now_ms = state.run, state.workload, state.counters.time_ms  # ended runs have been closed by now
    if not len(run):
        return
    known = state.memo.at(state.moved).payers
    if known is not None and now_ms < known.until_ms and _within(2 * shares.allowance, known):
        return
    room, before = np.empty(run.used, dtype=np.int64), np.zeros(run.used, dtype=np.int64)
    least, most = np.empty(state.budget.used, dtype=np.int64), np.empty(state.budget.used, dtype=np.int64)
    count, until_ms = share.changed_payers(
        now_ms, run.used, run.state, schema.PLACED, schema.STARTED, run.idle_cycles, run.idle_since_ms, state.pool.idle_demotes,
        run.pool, run.reserved, run.protected_until_ms, run.payer, _PAID_BY, run.budget, run.gpus_milli, run.workload,
        table.priority, run.placed_ms, table.event_seq, state.budget.used, shares.allowance, room, before, least, most,
    )  # fmt: skip
    if not count:
        state.memo.payers = Payers(until_ms, least, most)
        return
    changed, off = room[:count], demoted(state)
    workload = run.workload[changed]
    keys = (table.event_seq[workload], run.placed_ms[changed], -table.priority[workload])
    for row in changed[np.lexsort(keys)].tolist():  # lexsort is stable and the sequence unique: a total order
        paid = int(run.payer[row]) == schema.PAYER_UNFUNDED
        if off[row]:
            why, idle_since_ms = Funding.IDLE_HOLD, int(run.idle_since_ms[row])
        else:
            why, idle_since_ms = _why(state, shares, row, paid=paid), 0
        payer, allowance_milli = (Payer.BUDGET if paid else Payer.UNFUNDED), int(shares.allowance[int(run.budget[row])])
        _change(state, emit, row, payer, why, allowance_milli, int(before[row]), idle_since_ms)


def _within(twice: I64, known: Payers) -> bool:
    return bool(((known.least <= twice) & (twice < known.most)).all())


def _change(
    state: State, emit: Emit, run: int, payer: Payer, why: Funding, allowance_milli: int, before_milli: int, idle_since_ms: int = 0
) -> None:
    """Write that a run has another payer from now on."""
    emit(
        FundingChanged(
            workload=state.workload.keys[int(state.run.workload[run])],
            run=int(state.run.run_no[run]),
            budget=state.budget_path(int(state.run.budget[run])),
            payer=payer.value,
            why=why.value,
            allowance_milli=allowance_milli,
            before_milli=before_milli,
            idle_since_ms=idle_since_ms,
        )
    )


def demote_spent(state: State, emit: Emit, shares: Shares) -> None:
    """After the cycle's starts: whoever promised his last microsecond in them pays for nothing but what he promised.

    This includes runs that are stopping, which otherwise keep their payer to their end: nobody pays what he does not have.
    """
    run, now_ms = state.run, state.counters.time_ms
    barred = ledger.barred_lines(state, shares.reserved_us)
    if not barred.any():
        return
    phases = run.column("state")
    paying = ((phases == schema.PLACED) | (phases == schema.STARTED) | (phases == schema.STOPPING)) & (
        run.column("payer") == schema.PAYER_BUDGET
    )
    promised = (run.column("reserved") == 1) & (now_ms < run.column("protected_until_ms"))
    for row in np.flatnonzero(paying & ~promised & (barred[run.column("budget")] == 1)).tolist():
        _change(state, emit, row, Payer.UNFUNDED, _why(state, shares, row, paid=False), 0, 0)


def _why(state: State, shares: Shares, run: int, *, paid: bool) -> Funding:
    """Return why a run's payer changes; reserved time never changes hands, so it is not among the reasons."""
    leaf = int(state.run.budget[run])
    if paid:
        return Funding.WITHIN_ALLOWANCE
    if state.budget.closed[leaf]:
        return Funding.BUDGET_CLOSED
    left = ledger.available_us(state, leaf, shares.reserved_us)
    return Funding.BALANCE_SPENT if left is not None and left <= 0 else Funding.ABOVE_ALLOWANCE

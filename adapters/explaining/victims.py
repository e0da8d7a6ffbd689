"""Who might have been preempted: every run of the pool as a cycle began to look for victims, and what spoke against it.

A pure function of a ``Moment`` at whose cycle somebody was preempted. Whether a run may go, and what it would cost, is asked of the
function that plans preemptions (``preempting.field_of``); which rule kept the others is read off the columns it reads. The cycle
may have started others before it came to this beneficiary; shares are those from before.
"""

from __future__ import annotations

from typing import Any

from apportion.adapters.explaining.holders import run_told
from apportion.adapters.explaining.moment import Moment
from apportion.core.policy.preempting import field_of
from apportion.core.state import schema
from apportion.core.state.state import State

RULES = ("may_go", "stopping", "funded", "protected", "own_budget", "just_took", "within_share")
SHOWN_MAX = 12


def considered(moment: Moment, beneficiary: str) -> dict[str, Any] | None:
    """Return how many runs each rule kept, and who could go at what cost, the cheapest first; None: no such rule or job."""
    cycle = moment.before_starts
    state = cycle.state
    row = state.workload.row_of.get(beneficiary)
    if row is None:
        return None
    pool, taker = int(state.workload.pool[row]), int(state.workload.budget[row])
    if int(state.pool.policy[pool]) != schema.FAIR:
        return None  # its rule is another, and its certificate tells that rule's numbers
    field, _loose = field_of(state, cycle.shares, row)
    runs = [run for run in state.run.live_rows() if int(state.run.pool[run]) == pool and int(state.run.state[run]) != schema.ENDED]
    counts = dict.fromkeys(RULES, 0)
    milli = dict.fromkeys(RULES, 0)
    could = list[int]()
    for run in runs:
        rule = "may_go" if field is not None and field.eligible[run] else _rule(state, run, taker)
        counts[rule] += 1
        milli[rule] += int(state.run.gpus_milli[run])
        if rule == "may_go":
            could.append(run)
    if field is not None:
        could.sort(key=lambda run: (*field.cost[run].tolist(), run))
    rows = [
        {
            **run_told(state, run), "cost_lost_gpu_us": int(field.cost[run, 0]),
            "ran_ms": state.counters.time_ms - int(state.run.placed_ms[run]),
        }
        for run in could[:SHOWN_MAX]
        if field is not None
    ]
    return {
        "runs": len(runs), "could_go": len(could),
        "rules": {rule: {"runs": counts[rule], "gpus_milli": milli[rule]} for rule in RULES},
        "cheapest": rows,
    }  # fmt: skip


def _rule(state: State, run: int, taker: int) -> str:
    """Return the first rule by which a run may not go."""
    table, now_ms, line = state.run, state.counters.time_ms, int(state.run.budget[run])
    quantum_ms, took_ms = int(state.pool.quantum_ms[int(table.pool[run])]), int(state.budget.took_ms[line])
    if int(table.state[run]) == schema.STOPPING:
        return "stopping"
    if int(table.payer[run]) == schema.PAYER_BUDGET:
        return "funded"
    if int(table.protected_until_ms[run]) > now_ms:
        return "protected"
    if line == taker:
        return "own_budget"
    return "just_took" if took_ms and now_ms - took_ms < quantum_ms else "within_share"



def standing(moment: Moment, workload: str, run_no: int) -> dict[str, Any] | None:
    """Return what a run was as the cycle began to look for victims, None if it was not there."""
    state = moment.before_starts.state
    row = state.run.row_of.get(state.run_ref(workload, run_no))
    return None if row is None else run_told(state, row)

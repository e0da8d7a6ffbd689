"""When must the next cycle run, if nothing happens until then? A pure function of the state.

The least of: a node's silence becoming a timeout, a placed run's start limit, a stopping run's last moment, a back-off's end, the
end of a protected time, a granted budget's last microsecond, a planned change of an entitlement, a scheduled grant, the deadline of
a drain and when it asks runs to go, when a service may grow or shrink, the next step of a plan, the instant after a start in
another pool than home (what was kept at home is free then), and the review interval while there is work. Too early is harmless (a
cycle that decides nothing), too late is not.
"""

from __future__ import annotations

import numpy as np

from apportion.core import ledger
from apportion.core.policy import resizing
from apportion.core.policy.draining import instants
from apportion.core.policy.expire import STOP_MARGIN_MS, heard_since_stop
from apportion.core.policy.horizon import carrying
from apportion.core.reasons import TickWhy
from apportion.core.state import schema
from apportion.core.state.asks import way_home
from apportion.core.state.state import State


def due_ms(state: State) -> int | None:
    """Return the instant of the next deadline, None when there is none."""
    times: list[int] = []
    _node_times(state, times)
    _run_times(state, times)
    times.extend(int(at_ms) for at_ms in state.schedule.column("next_ms") if at_ms)
    times.extend(instants(state))
    times.extend(resizing.instants(state))
    times.extend(carrying.instants(state))
    if state.counters.planned_ms:
        times.append(state.counters.planned_ms)
    waiting = state.queue[: state.queued]
    if state.queued or len(state.run):
        live = state.pool.column("review_ms")
        times.append(state.counters.cycle_ms + int(live.min()))
        until = state.workload.not_before_ms[waiting]
        later = until[until > state.counters.cycle_ms]
        if len(later):
            times.append(int(later.min()))
    return min(times) if times else None


def why_due(state: State, now_ms: int) -> TickWhy:
    """Return why a tick is written for a deadline that has come by ``now_ms``: a step of a rolling plan, or any other."""
    return TickWhy.PLAN if any(at_ms <= now_ms for at_ms in carrying.instants(state)) else TickWhy.DUE


def _node_times(state: State, times: list[int]) -> None:
    node = state.node
    watched = (node.column("gpus") > 0) & (node.column("silent") == 0)
    if watched.any():
        limit = state.pool.heartbeat_timeout_ms[node.column("pool")]
        times.append(int((node.column("last_seen_ms") + limit)[watched].min()) + 1)
        # the leader's own ticks keep the log from looking silent, else a lone dead node would be excused for ever
        times.append(state.counters.time_ms + state.counters.silence_ms)


def _run_times(state: State, times: list[int]) -> None:
    run, now_ms = state.run, state.counters.cycle_ms
    phase = run.column("state")
    placed = phase == schema.PLACED
    if placed.any():
        limit = state.pool.start_timeout_ms[run.column("pool")]
        times.append(int((run.column("placed_ms") + limit)[placed].min()) + 1)
    for row in (int(r) for r in np.flatnonzero(phase == schema.STOPPING)):
        if heard_since_stop(state, row):
            times.append(int(run.stop_by_ms[row]) + STOP_MARGIN_MS + 1)
    begun = np.flatnonzero(placed & (run.column("placed_ms") == now_ms))
    begun = begun[state.workload.choices[run.workload[begun]] > 0]
    if any(way_home(state, int(run.workload[row])) for row in begun.tolist()):
        times.append(now_ms + 1)
    ends = run.column("protected_until_ms")
    ends = ends[(phase > 0) & (ends > now_ms)]
    if len(ends):
        times.append(int(ends.min()))
    _balance_times(state, times)


def _balance_times(state: State, times: list[int]) -> None:
    """Add when each metered line runs dry: protected time is paid already, so only the other funded runs eat the balance."""
    budget = state.budget
    paying = np.flatnonzero((budget.column("metered") == 1) & (budget.column("funded_milli") > 0))
    if len(paying):
        now_ms = state.counters.accrued_ms
        outstanding = ledger.reserved_us(state, now_ms)
        prepaid = ledger.reserved_milli(state, now_ms)
        for row in paying:
            left = int(budget.granted_us[row]) - int(budget.charged_us[row]) - int(outstanding[row])
            rate = int(budget.funded_milli[row]) - int(prepaid[row])
            if left > 0 and rate > 0:
                times.append(now_ms + -(-left // rate))

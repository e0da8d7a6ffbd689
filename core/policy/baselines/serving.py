"""One cycle of a pool under a baseline: try what waits in its order, preempt where it may, reserve once, backfill behind.

The first workload that can neither start nor take gets the reservation; from then on nobody takes, and others start only where
they do not delay it. Work on idle cycles is tried after all other, and never takes.
"""

from __future__ import annotations

from apportion.core.policy.baselines.baseline import Baseline
from apportion.core.policy.baselines.evicting import evict_for
from apportion.core.policy.emit import Emit
from apportion.core.policy.fitting import find_gpus
from apportion.core.policy.funding import Shares
from apportion.core.policy.shadowing import Shadow, shadow_for
from apportion.core.policy.starting import add_running, start
from apportion.core.state.state import State


def serve(state: State, emit: Emit, shares: Shares, pool: int, baseline: Baseline) -> Shadow:
    """Emit the starts and preemptions of the pool; returns its reservation."""
    shadow = Shadow.none(state)
    if not state.queued:
        return shadow
    order = baseline.order(state, shares, pool)
    for idle_cycles in (0, 1):
        if idle_cycles and int(state.pool.idle_milli[pool]) <= 0:
            break
        while (workload := order.next(shadow, idle_cycles)) >= 0:
            used = state.gpu.column("used_milli")
            gpus = find_gpus(state, workload, used, shadow.beside(state, workload))
            if gpus:
                start(state, emit, shares, workload, gpus)
            elif shadow.workload >= 0 or idle_cycles:
                order.failed(workload, short=shadow.workload < 0 or shadow.is_short(state, workload))
            elif not _take(state, emit, shares, workload, baseline):
                order.failed(workload, short=True)
                shadow = shadow_for(state, workload)
            if shadow.workload >= 0 and int(state.pool.idle_milli[pool]) <= 0:
                return shadow
    return shadow


def _take(state: State, emit: Emit, shares: Shares, workload: int, baseline: Baseline) -> bool:
    """Let others make room; the beneficiary has its GPUs from now on, as far as order and money go."""
    losers = evict_for(state, emit, shares, workload, baseline)
    if losers is None:
        return False
    add_running(state, shares, workload, 1)
    for loser in losers:
        add_running(state, shares, loser, -1)
    return True

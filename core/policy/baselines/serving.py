"""One cycle of a pool under a baseline: try what waits in its order, preempt where it may, reserve once, backfill behind.

Pass 1, for baselines that preempt, starts what fits and lets the rest look for victims. Pass 2 goes over all that waits, in depth,
and pass 3 over work on idle cycles; neither takes. The first workload that can neither start nor take gets the reservation; from
then on others start, and take, only where they do not delay it.
"""

from __future__ import annotations

from apportion.core.policy.baselines.baseline import Baseline
from apportion.core.policy.baselines.evicting import evict_for
from apportion.core.policy.baselines.waiting import Order
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
    if baseline.preempts:
        order.begin(0, takes=True)
        shadow = _pass(state, emit, shares, order, shadow, baseline, pool)
    for idle_cycles in (0, 1):
        if int(state.pool.idle_milli[pool]) > 0 or (shadow.workload < 0 and not idle_cycles):
            order.begin(idle_cycles, takes=False)
            shadow = _pass(state, emit, shares, order, shadow, None, pool, reserves=not idle_cycles)
    return shadow


def _pass(
    state: State,
    emit: Emit,
    shares: Shares,
    order: Order,
    shadow: Shadow,
    taker: Baseline | None,
    pool: int,
    *,
    reserves: bool = True,
) -> Shadow:
    while (workload := order.next(shadow)) >= 0:
        masked = shadow.beside(state, workload)
        gpus = find_gpus(state, workload, state.gpu.column("used_milli"), masked)
        if gpus:
            start(state, emit, shares, workload, gpus)
            continue
        losers = evict_for(state, emit, shares, workload, masked, taker) if taker is not None else None
        if losers is not None:
            add_running(state, shares, workload, 1)
            for loser in losers:
                add_running(state, shares, loser, -1)
            continue
        order.failed(workload, short=not masked.any())
        if reserves and shadow.workload < 0:
            shadow = shadow_for(state, workload)
        if taker is None and int(state.pool.idle_milli[pool]) <= 0:
            break
    return shadow

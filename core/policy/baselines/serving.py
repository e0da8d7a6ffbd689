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
from apportion.core.policy.reserving import Reservations, reserve
from apportion.core.policy.starting import add_running, start
from apportion.core.state.space import Space
from apportion.core.state.state import State


def serve(state: State, emit: Emit, shares: Shares, pool: int, baseline: Baseline) -> Reservations:
    """Emit the starts and preemptions of the pool; returns its reservation."""
    reservations = Reservations.none(state)
    if not state.queued:
        return reservations
    order = baseline.order(state, shares, pool)
    if baseline.preempts:
        order.begin(0, takes=True)
        _pass(state, emit, shares, order, reservations, baseline, pool)
    for idle_cycles in (0, 1):
        if int(state.pool.idle_milli[pool]) > 0 or (not reservations.starts_ms and not idle_cycles):
            order.begin(idle_cycles, takes=False)
            _pass(state, emit, shares, order, reservations, None, pool, reserves=not idle_cycles)
    return reservations


def _pass(
    state: State,
    emit: Emit,
    shares: Shares,
    order: Order,
    reservations: Reservations,
    taker: Baseline | None,
    pool: int,
    *,
    reserves: bool = True,
) -> None:
    while (workload := order.next(reservations)) >= 0:
        masked = reservations.beside(state, workload)
        gpus = find_gpus(state, workload, Space.now(state), masked)
        if gpus:
            start(state, emit, shares, workload, gpus)
            continue
        losers = None
        if taker is not None:  # however short it is: who is asked to go may take his grace
            losers = evict_for(state, emit, shares, workload, reservations.from_takers(state, workload), taker)
        if losers is not None:
            add_running(state, shares, workload, 1)
            for loser in losers:
                add_running(state, shares, loser, -1)
            continue
        order.failed(workload)
        if reserves and not reservations.starts_ms:
            reserve(state, reservations, workload)
        if taker is None and int(state.pool.idle_milli[pool]) <= 0:
            break

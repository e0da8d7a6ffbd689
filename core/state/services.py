"""Questions about realtime services: how many replicas traffic needs, which replicas there are, what is forecast.

Pure functions of the state, used by fold and policy alike; they never change it.
"""

from __future__ import annotations

import numpy as np

from apportion.core.state.state import State
from apportion.core.units import MAX_SERVICE_REPLICAS, MILLI


def needed(state: State, service: int, traffic_milli: int) -> int:
    """Return the replicas that so much traffic needs, whatever the service may have; absurd traffic needs the most there can be."""
    cells = state.service.cells
    gpus_milli = cells.nodes[service] * cells.milli_per_node[service]
    return min(-(-traffic_milli * cells.milli_per_traffic[service] // (MILLI * gpus_milli)), MAX_SERVICE_REPLICAS)


def replicas_of(state: State, service: int) -> list[int]:
    """Return the workload rows of its replicas that are not retired, ascending."""
    workload = state.workload
    return np.flatnonzero((workload.column("service") == service + 1) & (workload.column("retired") == 0)).tolist()


def recent_peak(state: State, service: int, now_ms: int) -> int:
    """Return the most replicas that observed traffic needed in the hold time before now: exactly, between that and twice that.

    Time is cut in parts of ``hold_ms``; of the one that runs and the one before it the most is remembered. Kubernetes' horizontal
    pod autoscaler shrinks by such a window (its stabilization window, 5 minutes by default) so that noise does not make it flap.
    """
    cells = state.service.cells
    hold_ms = cells.hold_ms[service]
    behind = now_ms // hold_ms - cells.observed_ms[service] // hold_ms
    if behind == 0:
        return max(cells.peak[service], cells.peak_before[service])
    return cells.peak[service] if behind == 1 else 0


def peak_ends_ms(state: State, service: int, now_ms: int) -> int:
    """Return when the next part of time begins, after which the peak may be lower."""
    hold_ms = state.service.cells.hold_ms[service]
    return (now_ms // hold_ms + 1) * hold_ms


def forecast_traffic(state: State, service: int, from_ms: int, until_ms: int, *, median: bool = False) -> int:
    """Return the most traffic that is forecast for a time, in thousandths, at the quantile kept ready for; -1 where nothing is."""
    table = state.forecast
    mine = table.column("service") == service + 1
    mine &= (table.column("from_ms") <= until_ms) & (table.column("until_ms") > from_ms)
    values = table.column("median_milli" if median else "traffic_milli")[mine]
    return int(values.max()) if len(values) else -1

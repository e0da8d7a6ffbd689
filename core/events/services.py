"""Events of realtime services: how many replicas they may have, the traffic they see, what is forecast.

Pure data; bounds are checked at the door, the fold applies them.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from apportion.core.events.event import Event
from apportion.core.fields import Count, Duration, Instant, Name, SharePpm
from apportion.core.units import MAX_POOL_MILLI, MAX_SERVICE_REPLICAS, MS_PER_DAY, MS_PER_HOUR

Replicas = Annotated[int, Meta(ge=0, le=MAX_SERVICE_REPLICAS)]


class Service(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What makes a realtime workload elastic: it is as many replicas of the submitted shape as its traffic needs.

    ``gpus_milli_per_traffic``: GPUs that one unit of traffic needs. ``swap_replicas``: by how many it may differ between two
    instants of the pool's plan (``policy.activated`` ``step_ms``); none = no bound, 0 = it stays as it started.
    """

    min_replicas: Replicas = 1
    max_replicas: Annotated[int, Meta(ge=1, le=MAX_SERVICE_REPLICAS)]
    gpus_milli_per_traffic: Annotated[int, Meta(ge=1, le=MAX_POOL_MILLI)]
    swap_replicas: Replicas | None = None
    startup_ms: Annotated[int, Meta(ge=0, le=MS_PER_HOUR)] = 0  # until a replica serves; forecasts are read ahead by it
    hold_ms: Annotated[int, Meta(ge=1_000, le=MS_PER_DAY)] = 300_000  # it shrinks to the most that it needed in this time
    penalty: Annotated[int, Meta(ge=1, le=100)] = 7  # of unmet demand in the plan, times its priority


def replica_name(service: str, number: int) -> str:
    """Return the workload id of a replica."""
    return f"{service}:{number}"


def replica_of(workload: str) -> tuple[str, str]:
    """Return the service and the number of a workload that is known to be a replica."""
    service, _, number = workload.rpartition(":")
    return service, number


class DemandObserved(Event, frozen=True):
    """Traffic of a realtime service at this moment, in thousandths of its unit of traffic."""

    workload: Name
    traffic_milli: Count


class ForecastPublished(Event, frozen=True):
    """A forecaster's statement: traffic of a service per step from ``from_ms`` on, or how long a workload will run.

    ``values`` has one row of steps per quantile, ascending quantiles: thousandths of a unit of traffic, or milliseconds. With no
    ``step_ms`` there is one value per quantile. Whoever publishes for an unknown target is refused.
    """

    model: Name
    target: Name
    horizon_ms: Duration
    of: Literal["traffic", "runtime"] = "traffic"
    from_ms: Instant = 0  # 0 = from when it was published
    step_ms: Duration = 0
    quantiles_ppm: Annotated[tuple[SharePpm, ...], Meta(max_length=32)] = ()
    values: Annotated[tuple[Count, ...], Meta(max_length=4_096)] = ()

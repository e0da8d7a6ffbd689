"""Realtime services: what they are, the traffic that was seen and forecast, and how many replicas they were to have.

A pure function of accepted events and of decisions. The replicas are workloads, and rows of ``workloads``.
"""

from __future__ import annotations

from apportion.core import events
from apportion.core.decisions import ServiceResized, WorkloadAdmitted
from apportion.projections.moment import Decided, Said
from apportion.projections.sheet import Sheet


class Services:
    """Rows about services."""

    def __init__(self) -> None:
        self.asked = Sheet(
            "fact.service", "workload", "seq", "admitted_seq", "admitted_ms", "pool", "budget", "gpus_milli", "min_replicas",
            "max_replicas", "gpus_milli_per_traffic", "swap_replicas", "startup_ms", "hold_ms", "penalty",
        )  # fmt: skip
        self.sizes = Sheet(
            "fact.resize", "seq", "position", "time_ms", "workload", "before", "replicas", "gpus_milli", "why", "bound", "need",
            "traffic_milli",
        )  # fmt: skip
        self.demands = Sheet("fact.demand", "seq", "time_ms", "workload", "traffic_milli")
        self.forecasts = Sheet(
            "fact.forecast", "seq", "time_ms", "principal", "model", "target", "of", "quantile_ppm", "from_ms", "until_ms", "value"
        )

    def admitted(self, at: Decided, decision: WorkloadAdmitted, service: events.Service) -> None:
        """It has its size decided from now on."""
        swap_replicas = -1 if service.swap_replicas is None else service.swap_replicas
        self.asked.rows.append((
            decision.workload, decision.event_seq, at.seq, at.time_ms, decision.pool, decision.budget,
            decision.nodes * decision.milli_per_node, service.min_replicas, service.max_replicas, service.gpus_milli_per_traffic,
            swap_replicas, service.startup_ms, service.hold_ms, service.penalty,
        ))  # fmt: skip

    def resized(self, at: Decided, decision: ServiceResized) -> None:
        """It is to have another number of replicas."""
        numbers = decision.numbers
        self.sizes.rows.append((
            at.seq, at.position, at.time_ms, decision.workload, decision.before, decision.replicas, decision.gpus_milli,
            decision.why, decision.bound, numbers["need"], numbers.get("traffic_milli", -1),
        ))  # fmt: skip

    def observed(self, at: Said, event: events.DemandObserved) -> None:
        """Traffic was seen."""
        self.demands.rows.append((at.seq, at.time_ms, event.workload, event.traffic_milli))

    def forecast(self, at: Said, event: events.ForecastPublished) -> None:
        """Somebody says how it will be."""
        from_ms, step_ms = event.from_ms or at.time_ms, event.step_ms or event.horizon_ms
        steps = len(event.values) // len(event.quantiles_ppm)
        for place, value in enumerate(event.values):
            begin_ms = from_ms + place % steps * step_ms
            self.forecasts.rows.append((
                at.seq, at.time_ms, at.principal, event.model, event.target, event.of, event.quantiles_ppm[place // steps],
                begin_ms, begin_ms + step_ms, value,
            ))  # fmt: skip

"""A watcher of realtime services: how many replicas each must have, from all that was ever observed and forecast.

``Asked`` remembers submissions by workload, those of replicas under the service's.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from apportion.core import events as ev
from apportion.core.decisions import (
    CycleBatch,
    RunClosed,
    RunRetired,
    ServiceResized,
    WorkloadAdmitted,
    WorkloadClosed,
)
from apportion.core.engine import Core
from apportion.core.envelope import Record
from tests.core.story import Accepted

STALE_MS = 900_000
WATCHED = ("workload.submitted", "workload.cancelled", "policy.activated", "demand.observed", "forecast.published")


class Asked(dict[str, ev.WorkloadSubmitted]):
    """Submissions by workload."""

    def __missing__(self, name: str) -> ev.WorkloadSubmitted:
        """Return the service's that the replica is of."""
        service = name.rpartition(":")[0]
        if service not in self:
            raise KeyError(name)
        return self[service]


@dataclass
class One:
    """What is known of a service."""

    asked: ev.WorkloadSubmitted
    pool: str
    each_milli: int
    seen: list[tuple[int, int]] = field(default_factory=list)
    forecast: list[tuple[int, int, int]] = field(default_factory=list)
    sizes: list[tuple[int, int]] = field(default_factory=list)  # instants and replicas
    replicas: dict[str, bool] = field(default_factory=dict)  # live ones; True = retired
    cancelled: bool = False


class Serving:
    """Recomputes the size of each service after each cycle."""

    def __init__(self) -> None:
        self.asked: dict[str, ev.WorkloadSubmitted] = {}
        self.services: dict[str, One] = {}
        self.step_ms: dict[str, int] = defaultdict(lambda: 1_800_000)
        self.demand_ppm: dict[str, int] = defaultdict(lambda: 841_345)
        self.accepted = Accepted(*WATCHED)
        self.checked = self.grown = self.shrunk = 0

    def after(self, core: Core, record: Record, batch: CycleBatch | None) -> None:
        """Take in an accepted event; check a cycle."""
        if (event := self.accepted.event(core, record)) is not None:
            self._said(event, core.time_ms)
        if batch is None:
            return
        said = {name: len(one.sizes) for name, one in self.services.items()}
        for decision in batch.decisions:
            self._decided(decision, batch)
        for name, one in self.services.items():
            self._check(core, name, one, said.get(name, 0), batch.time_ms)

    def _said(self, event: ev.Event, time_ms: int) -> None:
        match event:
            case ev.WorkloadSubmitted() if event.service is not None:
                self.asked[event.workload] = event
            case ev.PolicyActivated():
                self.step_ms[event.pool] = event.step_ms or self.step_ms[event.pool]
                self.demand_ppm[event.pool] = self.demand_ppm[event.pool] if event.demand_ppm is None else event.demand_ppm
            case ev.DemandObserved():
                self._about(event.workload).seen.append((time_ms, event.traffic_milli))
            case ev.ForecastPublished() if event.of == "traffic":
                self._about(event.target).forecast = self._points(event, time_ms)
            case ev.WorkloadCancelled() if event.workload in self.services or event.workload in self.asked:
                self._about(event.workload).cancelled = True

    def _about(self, name: str) -> One:
        if name not in self.services:
            self.services[name] = One(self.asked[name], "", 0)
        return self.services[name]

    def _points(self, event: ev.ForecastPublished, time_ms: int) -> list[tuple[int, int, int]]:
        steps = len(event.values) // len(event.quantiles_ppm)
        pool = self._about(event.target).asked.pools[0]
        enough = [at for at, ppm in enumerate(event.quantiles_ppm) if ppm >= self.demand_ppm[pool]]
        row = enough[0] if enough else len(event.quantiles_ppm) - 1
        begin_ms, step_ms = event.from_ms or time_ms, event.step_ms or event.horizon_ms
        values = event.values[row * steps : (row + 1) * steps]
        return [(begin_ms + at * step_ms, begin_ms + (at + 1) * step_ms, value) for at, value in enumerate(values)]

    def _decided(self, decision: object, batch: CycleBatch) -> None:
        match decision:
            case WorkloadAdmitted() if decision.workload in self.asked:
                one = self._about(decision.workload)
                one.pool, one.each_milli = decision.pool, decision.nodes * decision.milli_per_node
            case WorkloadAdmitted() if (service := decision.workload.rpartition(":")[0]) in self.services:
                self.services[service].replicas[decision.workload] = False
            case ServiceResized():
                one = self.services[decision.workload]
                assert decision.before == (one.sizes[-1][1] if one.sizes else 0)
                assert decision.gpus_milli == one.each_milli
                one.sizes.append((batch.time_ms, decision.replicas))
                self.grown += decision.replicas > decision.before
                self.shrunk += decision.replicas < decision.before
            case RunRetired():
                assert not self.services[decision.service].replicas[decision.workload], f"{decision.workload} is retired twice"
                self.services[decision.service].replicas[decision.workload] = True
            case WorkloadClosed() if decision.workload in self.services:
                assert not self.services[decision.workload].replicas, f"{decision.workload} is over, but has replicas"
                del self.services[decision.workload]
            case WorkloadClosed() if (service := decision.workload.rpartition(":")[0]) in self.services:
                self.services[service].replicas.pop(decision.workload, None)
            case RunClosed() if (service := decision.workload.rpartition(":")[0]) in self.services:
                retired = self.services[service].replicas.get(decision.workload)
                assert retired is None or not (retired and decision.requeued)

    def _needed(self, one: One, traffic_milli: int) -> int:
        assert one.asked.service is not None
        milli = traffic_milli * one.asked.service.gpus_milli_per_traffic
        return min(-(-milli // (1_000 * one.each_milli)), 4_096)

    def target(self, one: One, now_ms: int) -> int:
        """Return the replicas that it must have."""
        service, step_ms = one.asked.service, self.step_ms[one.pool]
        assert service is not None
        has = one.sizes[-1][1] if one.sizes else 0
        needs = [
            self._needed(one, traffic) for begin_ms, end_ms, traffic in one.forecast
            if begin_ms <= now_ms + service.startup_ms and end_ms > now_ms
        ]  # fmt: skip
        stale = bool(one.seen) and now_ms - one.seen[-1][0] > STALE_MS
        if stale and not needs:
            needs = [has]
        elif one.seen and (not stale or needs):
            part = now_ms // service.hold_ms
            last = one.seen[-1][0] // service.hold_ms  # what was seen before that part and the one before it is forgotten
            near = [traffic for at_ms, traffic in one.seen if at_ms // service.hold_ms in (part, part - 1)]
            near += [traffic for at_ms, traffic in one.seen if part == last and at_ms // service.hold_ms == part - 1]
            needs += [self._needed(one, traffic) for traffic in near]
            if not stale:
                needs.append(self._needed(one, one.seen[-1][1]))
        wanted = min(max([*needs, service.min_replicas]), service.max_replicas)
        step = now_ms // step_ms
        if service.swap_replicas is not None and one.sizes:
            base = [replicas for at_ms, replicas in one.sizes if at_ms // step_ms < step]
            begun = base[-1] if base else one.sizes[0][1]
            if not base and one.sizes[0][0] // step_ms != step:
                begun = has
            if base or one.sizes[0][0] // step_ms == step:
                wanted = min(max(wanted, begun - service.swap_replicas), begun + service.swap_replicas)
        return wanted

    def _check(self, core: Core, name: str, one: One, said: int, now_ms: int) -> None:
        if one.cancelled or not one.pool:
            return
        has = one.sizes[-1][1] if one.sizes else 0
        before = One(one.asked, one.pool, one.each_milli, one.seen, one.forecast, one.sizes[:said])
        must = self.target(before, now_ms)
        assert has == must, f"{name} has {has} replicas to be, {must} are right"
        table = core.state.workload
        live = [row for row in table.live_rows() if table.keys[row] in one.replicas and not one.replicas[table.keys[row]]]
        staying = [row for row in live if not table.cancel_seq[row]]
        stopping = [row for row in staying if table.run[row] >= 0 and int(core.state.run.state[int(table.run[row])]) == 3]
        assert has <= len(staying) <= has + len(stopping), f"{name} has {len(staying)} replicas, {has} are right"
        self.checked += 1

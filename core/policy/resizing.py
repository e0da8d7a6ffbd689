"""Realtime services: how many replicas each is to have now, which are made, and which are retired.

A service is to have what its traffic needs: the most of what was observed last, of what it needed in its hold time, and of what is
forecast for when a replica that is placed now would serve. So it grows at once and shrinks after its hold time. That is bounded by
its minimum and maximum, and by how far it may be from what it had when the step of the plan began. Without news of its traffic it
does not shrink, unless there is a forecast.

What is missing is made as workloads, which this cycle may place; what is too much is retired: who waits first, then unfunded ones
before funded ones, the youngest first. A run that was asked to stop for another reason is never asked twice.

A pure function of the state at a tick; what it emits is applied by the fold. Must never look at whether there are GPUs.
"""

from __future__ import annotations

from typing import NamedTuple

from apportion.core.decisions import RunRetired, ServiceResized, WorkloadAdmitted, WorkloadClosed
from apportion.core.events import replica_name, replica_of
from apportion.core.policy.emit import Emit
from apportion.core.reasons import Bound, Outcome, Resize
from apportion.core.state import schema
from apportion.core.state.services import forecast_traffic, needed, peak_ends_ms, recent_peak, replicas_of
from apportion.core.state.state import State
from apportion.core.units import DEMAND_STALE_MS, NEVER_MS


class Target(NamedTuple):
    """How many replicas a service is to have, and why."""

    replicas: int
    why: Resize
    bound: str  # Bound, or ""
    need: int
    traffic_milli: int  # that the need was told by; -1 = none


def resize(state: State, emit: Emit) -> None:
    """Emit what becomes of each service, in row order."""
    for service in state.service.live_rows():
        if int(state.service.state[service]) == schema.NEW:
            _admit(state, emit, service, state.service.keys[service])
        if state.service.cancel_seq[service]:
            _end(state, emit, service)
            continue
        target = target_of(state, service)
        if target.replicas != int(state.service.replicas[service]):
            _say(state, emit, service, target)
        _make_it_so(state, emit, service)


def target_of(state: State, service: int) -> Target:
    """Return how many replicas the service is to have now."""
    cells, now_ms = state.service.cells, state.counters.time_ms
    forecast_milli = forecast_traffic(state, service, now_ms, now_ms + cells.startup_ms[service])
    known = cells.observed_ms[service] > 0
    stale = known and now_ms - cells.observed_ms[service] > DEMAND_STALE_MS
    need, why, traffic_milli = -1, Resize.LEAST, -1
    if known and not stale:
        traffic_milli = cells.traffic_milli[service]
        need, why = needed(state, service, traffic_milli), Resize.TRAFFIC
    if forecast_milli >= 0 and (ahead := needed(state, service, forecast_milli)) > need:
        need, why, traffic_milli = ahead, Resize.FORECAST, forecast_milli
    if known and (held := recent_peak(state, service, now_ms)) > need >= 0:
        need, why, traffic_milli = held, Resize.HELD, cells.traffic_milli[service]
    least, most, has = cells.min_replicas[service], cells.max_replicas[service], cells.replicas[service]
    replicas, bound = need, ""
    if stale and forecast_milli < 0:
        need, why, replicas, bound = has, Resize.HELD, has, Bound.STALE.value
    if replicas < least:
        replicas, bound = least, Bound.LEAST.value if need >= 0 else ""
    if replicas > most:
        replicas, bound = most, Bound.MOST.value
    swap, low = cells.swap_replicas[service], _base(state, service)
    if swap >= 0 and cells.step[service] and not low - swap <= replicas <= low + swap:
        replicas, bound = min(max(replicas, low - swap), low + swap), Bound.SWAP.value
    return Target(replicas, why, bound, max(need, 0), traffic_milli)


def _base(state: State, service: int) -> int:
    """Return the replicas that it was to have when this step of the plan began."""
    cells = state.service.cells
    step = state.counters.time_ms // state.pool.cells.step_ms[cells.pool[service]]
    return cells.base[service] if step == cells.step[service] else cells.replicas[service]


def _say(state: State, emit: Emit, service: int, target: Target) -> None:
    numbers = {"need": target.need}
    if target.traffic_milli >= 0:
        numbers["traffic_milli"] = target.traffic_milli
    if target.bound == Bound.SWAP.value:
        numbers["base"] = _base(state, service)
    cells = state.service.cells
    emit(
        ServiceResized(
            workload=state.service.keys[service],
            budget=state.budget_path(cells.budget[service]),
            pool=state.pool.keys[cells.pool[service]],
            before=cells.replicas[service],
            replicas=target.replicas,
            gpus_milli=cells.nodes[service] * cells.milli_per_node[service],
            why=target.why.value,
            bound=target.bound,
            numbers=numbers,
        )
    )


def _make_it_so(state: State, emit: Emit, service: int) -> None:
    """Make the replicas that are missing, retire those that are too many."""
    wanted, table = int(state.service.replicas[service]), state.workload
    have = [row for row in replicas_of(state, service) if not table.cancel_seq[row]]
    name, number = state.service.keys[service], int(state.service.made[service])
    for _missing in range(wanted - len(have)):
        number += 1
        while any(replica_name(name, number) in taken.row_of for taken in (table, state.service, state.closed)):
            number += 1  # somebody has submitted a workload or service of that name
        replica = replica_name(name, number)
        _admit(state, emit, service, replica)
    if len(have) > wanted:
        able = sorted((row for row in have if not _stopping(state, row)), key=lambda row: _staying(state, row))
        for row in able[: len(have) - wanted]:
            _retire(state, emit, service, row)


def _stopping(state: State, workload: int) -> bool:
    run = int(state.workload.run[workload])
    return run >= 0 and int(state.run.state[run]) not in (schema.PLACED, schema.STARTED)


def _staying(state: State, workload: int) -> tuple[int, int, int, int]:
    """Return the place of a replica in the order in which they are retired."""
    run, number = int(state.workload.run[workload]), int(replica_of(state.workload.keys[workload])[1])
    if run < 0:
        return 0, 0, 0, -number
    funded = int(state.run.payer[run]) == schema.PAYER_BUDGET
    return 1, int(funded), -int(state.run.placed_ms[run]), -number


def _admit(state: State, emit: Emit, service: int, name: str) -> None:
    cells = state.service.cells
    emit(
        WorkloadAdmitted(
            workload=name,
            event_seq=cells.event_seq[service],
            budget=state.budget_path(cells.budget[service]),
            pool=state.pool.keys[cells.pool[service]],
            nodes=cells.nodes[service],
            milli_per_node=cells.milli_per_node[service],
            min_runtime_ms=cells.min_runtime_ms[service],
        )
    )


def _retire(state: State, emit: Emit, service: int, workload: int) -> None:
    table, run = state.workload, int(state.workload.run[workload])
    if run < 0:
        emit(WorkloadClosed(workload=table.keys[workload], outcome=Outcome.RETIRED.value, runs=int(table.run_no[workload])))
        return
    emit(
        RunRetired(
            workload=table.keys[workload],
            run=int(state.run.run_no[run]),
            service=state.service.keys[service],
            grace_until_ms=state.counters.time_ms + int(table.grace_ms[workload]),
        )
    )


def _end(state: State, emit: Emit, service: int) -> None:
    """Close a cancelled service once it has no replicas; they were cancelled with it."""
    if not (state.workload.column("service") == service + 1).any():
        name, seq = state.service.keys[service], int(state.service.cancel_seq[service])
        emit(WorkloadClosed(workload=name, outcome=Outcome.CANCELLED.value, runs=0, event_seq=seq))


def instants(state: State) -> list[int]:
    """Return when services may change without an event: a peak may be over, a step begins, a forecast comes near."""
    times: list[int] = []
    now_ms, cells, table = state.counters.cycle_ms, state.service.cells, state.forecast
    for service in state.service.live_rows():
        step_ms = state.pool.cells.step_ms[cells.pool[service]]
        has, target = cells.replicas[service], target_of(state, service)
        if target.bound == Bound.SWAP.value:
            times.append((now_ms // step_ms + 1) * step_ms)
        if cells.observed_ms[service] and has > cells.min_replicas[service]:
            times.append(peak_ends_ms(state, service, now_ms))
        if cells.forecast_ms[service] > now_ms:
            mine = table.column("service") == service + 1
            comes_ms = table.column("from_ms")[mine] - cells.startup_ms[service]
            later = comes_ms[comes_ms > now_ms]
            times.append(int(later.min()) if len(later) else cells.forecast_ms[service])
    return [at_ms for at_ms in times if now_ms < at_ms < NEVER_MS]

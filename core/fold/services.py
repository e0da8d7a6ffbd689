"""Fold of realtime services: what they are, the traffic they see, what is forecast, and how many replicas they are to have.

A replica is a workload of its own, named ``service:number``: it waits, is placed, funded, preempted, drained and charged as any
other, so a service needs no second rule for money or GPUs. A replica that ends by itself is started again; one that is retired is
over, and its number is not used again.
"""

from __future__ import annotations

import numpy as np

from apportion.core.decisions import RunRetired, ServiceResized, WorkloadAdmitted
from apportion.core.errors import check
from apportion.core.events import DemandObserved, ForecastPublished, WorkloadSubmitted, replica_of
from apportion.core.fold.access import No, is_operator, may_administer, not_permitted, principal_row
from apportion.core.fold.shapes import Shape
from apportion.core.fold.waiting import enqueue
from apportion.core.fold.wishes import take_wish
from apportion.core.reasons import Refusal
from apportion.core.state import schema
from apportion.core.state.services import needed
from apportion.core.state.state import State
from apportion.core.state.unsettled import note_unsettled
from apportion.core.units import MAX_DURATION_MS, MAX_TIME_MS, SERVICE_AHEAD

SERVICE_NAME_MAX = 112
COPIED = ("budget", "pool", "submitter", "event_seq", "nodes", "milli_per_node", "wish", "min_runtime_ms", "grace_ms", "priority")


def cannot_serve(state: State, pool: int, event: WorkloadSubmitted, shape: Shape) -> No | None:
    """Tell why this is no service that the pool could hold."""
    service = event.service
    if service is None:
        return None
    if event.kind != "realtime":
        detail = f"only work of kind realtime is elastic, not {event.kind}"
        return No(Refusal.INVALID_DATA, "service", detail, entity=event.workload)
    if len(event.workload) > SERVICE_NAME_MAX:
        detail = f"at most {SERVICE_NAME_MAX} characters, its replicas are named after it"
        return No(Refusal.INVALID_DATA, "workload", detail, {"characters": len(event.workload)}, event.workload)
    numbers = {"min_replicas": service.min_replicas, "max_replicas": service.max_replicas}
    if service.min_replicas > service.max_replicas:
        return No(Refusal.INVALID_DATA, "service.min_replicas", "above max_replicas", numbers, event.workload)
    each_milli, supply_milli = shape.nodes * shape.milli_per_node, int(state.pool.supply_milli[pool])
    if service.max_replicas * each_milli > supply_milli:
        numbers = {**numbers, "gpus_milli": each_milli, "largest_milli": supply_milli // each_milli * each_milli}
        return No(Refusal.NEVER_FITS, "service.max_replicas", "more than the pool has", numbers, event.workload)
    return None


def take_service(state: State, event: WorkloadSubmitted, line: int, pool: int, shape: Shape, principal: str, seq: int) -> None:
    """Take a service in; the next cycle admits it and makes its first replicas."""
    asked = event.service
    if asked is None:
        return
    quantum = int(state.pool.quantum_ms[pool])
    row = state.service.add(event.workload)
    values = {
        "state": schema.NEW,
        "budget": line,
        "pool": pool,
        "submitter": principal_row(state, principal),
        "event_seq": seq,
        "nodes": shape.nodes,
        "milli_per_node": shape.milli_per_node,
        "wish": take_wish(state, shape.wish),
        "min_runtime_ms": quantum if event.min_runtime_ms is None else event.min_runtime_ms,
        "grace_ms": event.grace_ms,
        "priority": event.priority + SERVICE_AHEAD,
        "min_replicas": asked.min_replicas,
        "max_replicas": asked.max_replicas,
        "milli_per_traffic": asked.gpus_milli_per_traffic,
        "swap_replicas": -1 if asked.swap_replicas is None else asked.swap_replicas,
        "startup_ms": asked.startup_ms,
        "hold_ms": asked.hold_ms,
        "penalty": asked.penalty,
    }
    state.service.put(row, values)
    state.budget.cells.workloads[line] += 1
    state.counters.dirty = 1


def demand_observed(state: State, event: DemandObserved, principal: str, _seq: int) -> No | None:
    """Note the traffic of a service; a cycle follows when it needs another number of replicas than it has."""
    row = state.service.row_of.get(event.workload)
    if row is None:
        return _no_service(state, event.workload)
    if (no := _may_report(state, row, principal)) is not None:
        return no
    cells, now_ms = state.service.cells, state.counters.time_ms
    need = needed(state, row, event.traffic_milli)
    behind = now_ms // cells.hold_ms[row] - cells.observed_ms[row] // cells.hold_ms[row]
    if behind:
        cells.peak_before[row] = cells.peak[row] if behind == 1 else 0
        cells.peak[row] = 0
    cells.peak[row] = max(cells.peak[row], need)
    cells.traffic_milli[row] = event.traffic_milli
    cells.observed_ms[row] = now_ms
    if need != cells.replicas[row]:
        state.counters.dirty = 1
    return None


def forecast_published(state: State, event: ForecastPublished, principal: str, _seq: int) -> No | None:
    """Replace what was forecast for a target."""
    if event.of == "runtime":
        return _runtime_forecast(state, event, principal)
    row = state.service.row_of.get(event.target)
    if row is None:
        return _no_service(state, event.target)
    if (no := _may_report(state, row, principal)) is not None:
        return no
    step_ms = event.step_ms or event.horizon_ms
    from_ms, rows = event.from_ms or state.counters.time_ms, len(event.quantiles_ppm)
    if (no := _misshaped(event, step_ms)) is not None:
        return no
    if from_ms + event.horizon_ms > MAX_TIME_MS or from_ms + event.horizon_ms <= state.counters.time_ms:
        numbers = {"from_ms": from_ms, "horizon_ms": event.horizon_ms, "time_ms": state.counters.time_ms}
        return No(Refusal.STALE, "horizon_ms", "the time it forecasts is over, or after all time", numbers, event.target)
    steps = len(event.values) // rows
    wanted_ppm = int(state.pool.demand_ppm[int(state.service.pool[row])])
    upper = next((at for at, ppm in enumerate(event.quantiles_ppm) if ppm >= wanted_ppm), rows - 1)
    median = min(range(rows), key=lambda at: abs(event.quantiles_ppm[at] - 500_000))
    table = state.forecast
    for old in np.flatnonzero(table.column("service") == row + 1).tolist():
        table.remove(old)
    for step in range(steps):
        begin_ms = from_ms + step * step_ms
        values = {
            "service": row + 1, "from_ms": begin_ms, "until_ms": begin_ms + step_ms,
            "traffic_milli": event.values[upper * steps + step], "median_milli": event.values[median * steps + step],
        }  # fmt: skip
        table.put(table.add(), values)
    state.service.cells.forecast_ms[row] = from_ms + event.horizon_ms
    state.counters.dirty = 1
    return None


def _misshaped(event: ForecastPublished, step_ms: int) -> No | None:
    """Tell what is wrong with the numbers of a forecast."""
    rows, count = len(event.quantiles_ppm), len(event.values)
    if not rows or not count or count % rows:
        numbers = {"values": count, "quantiles": rows}
        return No(Refusal.INVALID_DATA, "values", "as many values for each quantile, at least one", numbers, event.target)
    if (no := _disordered(event)) is not None:
        return no
    if not step_ms or count // rows != -(-event.horizon_ms // step_ms):
        numbers = {"steps": count // rows, "horizon_ms": event.horizon_ms, "step_ms": event.step_ms}
        return No(Refusal.INVALID_DATA, "step_ms", "the steps of a row must fill the horizon", numbers, event.target)
    return None


def _disordered(event: ForecastPublished) -> No | None:
    """Refuse quantiles that do not ascend: the first that is high enough would not be the right one."""
    if list(event.quantiles_ppm) == sorted(dict.fromkeys(event.quantiles_ppm)):
        return None
    return No(Refusal.INVALID_DATA, "quantiles_ppm", "must ascend", entity=event.target)


def _runtime_forecast(state: State, event: ForecastPublished, principal: str) -> No | None:
    row = state.workload.row_of.get(event.target)
    if row is None:
        known = event.target in state.closed.row_of
        return No(Refusal.WORKLOAD_ENDED if known else Refusal.UNKNOWN_WORKLOAD, "target", entity=event.target)
    path = state.budget_path(int(state.workload.budget[row]))
    if not may_administer(state, principal, path):
        return not_permitted(principal, f"forecast for {event.target}: that is for operators and who administers {path}")
    if not event.quantiles_ppm or len(event.values) != len(event.quantiles_ppm):
        numbers = {"values": len(event.values), "quantiles": len(event.quantiles_ppm)}
        return No(Refusal.INVALID_DATA, "values", "one runtime for each quantile", numbers, event.target)
    if (no := _disordered(event)) is not None:
        return no
    wanted_ppm = int(state.pool.demand_ppm[int(state.workload.pool[row])])
    upper = next((at for at, ppm in enumerate(event.quantiles_ppm) if ppm >= wanted_ppm), len(event.values) - 1)
    state.workload.forecast_ms[row] = min(event.values[upper], MAX_DURATION_MS)
    return None


def _no_service(state: State, name: str) -> No:
    """Refuse what is said about something that is no service."""
    if name in state.workload.row_of:
        return No(Refusal.INVALID_DATA, "workload", "it was submitted without service, so its size is fixed", entity=name)
    known = name in state.closed.row_of
    return No(Refusal.WORKLOAD_ENDED if known else Refusal.UNKNOWN_WORKLOAD, "workload", entity=name)


def _may_report(state: State, service: int, principal: str) -> No | None:
    """Tell why the principal may not report about a service."""
    name, path = state.service.keys[service], state.budget_path(int(state.service.budget[service]))
    owner = state.principal.keys[int(state.service.submitter[service])]
    if principal == owner or is_operator(state, principal) or may_administer(state, principal, path):
        return None
    return not_permitted(principal, f"report demand of {name}: that is for {owner}, operators and who administers {path}")


def admitted(state: State, decision: WorkloadAdmitted) -> None:
    """Admit a service, or make a replica of one: it waits from now on."""
    service = state.service.row_of.get(decision.workload)
    if service is not None:
        state.service.state[service] = schema.RUNNING
        return
    name, number = replica_of(decision.workload)
    service = state.service.row_of.get(name, -1)
    check(service >= 0, state.counters.seq, f"{decision.workload} is admitted but was never asked for")
    cells = state.service.cells
    row = state.workload.add(decision.workload)
    values = {column: getattr(cells, column)[service] for column in COPIED}
    values |= {
        "state": schema.NEW,
        "submit_ms": state.counters.time_ms,
        "gpus_milli": values["nodes"] * values["milli_per_node"],
        "auto_resume": 1,
        "run": -1,
        "service": service + 1,
    }
    state.workload.put(row, values)
    if values["wish"]:
        state.wish.cells.workloads[values["wish"] - 1] += 1
    state.budget.cells.workloads[values["budget"]] += 1
    cells.made[service] = int(number)
    enqueue(state, row)


def resized(state: State, decision: ServiceResized) -> None:
    """From now on it is to have another number of replicas."""
    row, cells = state.service.row_of[decision.workload], state.service.cells
    step = state.counters.time_ms // state.pool.cells.step_ms[cells.pool[row]]
    if step != cells.step[row]:
        begins_with = cells.replicas[row] if cells.step[row] else decision.replicas  # a service begins with what it needs
        cells.base[row], cells.step[row] = begins_with, step
    cells.replicas[row] = decision.replicas


def retired(state: State, decision: RunRetired) -> None:
    """Note that the service needs the workload no more."""
    row = state.workload.row_of[decision.workload]
    state.workload.retired[row] = 1
    note_unsettled(state, row)


def remove_service(state: State, row: int) -> None:
    """Forget a service that has no replicas."""
    cells, table = state.service.cells, state.forecast
    for old in np.flatnonzero(table.column("service") == row + 1).tolist():
        table.remove(old)
    state.budget.cells.workloads[cells.budget[row]] -= 1
    state.service.remove(row)

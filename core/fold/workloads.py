"""Fold of what people ask for: submissions, cancellations, order inside a budget.

A submission is checked whole at the door: rights, budget, pool, shape (``shapes``). The cycle answers with ``workload.admitted``.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from apportion.core import ledger
from apportion.core.events import WorkloadCancelled, WorkloadReprioritized, WorkloadSubmitted
from apportion.core.fold import users
from apportion.core.fold.access import No, is_operator, may_administer, may_charge, not_permitted, principal_row
from apportion.core.fold.shapes import Shape, shape_of
from apportion.core.fold.wishes import take_wish
from apportion.core.reasons import Refusal
from apportion.core.state import schema
from apportion.core.state.queue import insert_all_queued, insert_queued, remove_all_queued, remove_queued
from apportion.core.state.state import State

I64 = NDArray[np.int64]


def _line_for(state: State, event: WorkloadSubmitted) -> tuple[int, int, Shape] | No:
    """Return (budget row, pool row, shape) for the first acceptable pool that can take it."""
    refusal = No(Refusal.UNKNOWN_POOL, "pools", entity=event.pools[0])
    for name in event.pools:
        pool = state.pool.row_of.get(name)
        if pool is None:
            continue
        line = state.budget.row_of.get(state.budget_key(name, event.budget))
        if line is None:
            refusal = No(Refusal.UNKNOWN_BUDGET, "budget", f"pool {name} has no such budget", entity=event.budget)
        elif state.budget.cells.closed[line]:
            refusal = No(Refusal.BUDGET_CLOSED, "budget", entity=event.budget)
        elif state.budget.cells.children[line] and not state.budget.cells.users[line]:
            refusal = No(Refusal.BUDGET_NOT_LEAF, "budget", "name one of the budgets below it", entity=event.budget)
        elif (event.min_runtime_ms or 0) > (cap := state.pool.cells.protected_cap_ms[pool]):
            refusal = No(Refusal.MIN_RUNTIME_ABOVE_CAP, "min_runtime_ms", numbers={"cap_ms": cap})
        else:
            shape = shape_of(state, pool, event)
            if not isinstance(shape, No):
                return line, pool, shape
            refusal = shape
    return refusal


def workload_submitted(state: State, event: WorkloadSubmitted, principal: str, seq: int) -> No | None:
    """Take a workload in; the next cycle admits it."""
    if not may_charge(state, principal, event.budget):
        return not_permitted(principal, f"charge {event.budget}")
    if event.workload in state.workload.row_of or event.workload in state.closed.row_of:
        return No(Refusal.DUPLICATE, "workload", "the id is taken", entity=event.workload)
    found = _line_for(state, event)
    if isinstance(found, No):
        return found
    line, pool, shape = found
    if state.budget.users[line]:
        line = users.line_of(state, line, principal)
    if event.movable and not event.auto_resume:
        return No(Refusal.INVALID_DATA, "movable", "what is moved is started again: it must resume", entity=event.workload)
    table = state.workload
    row = table.add(event.workload)
    quantum = int(state.pool.quantum_ms[pool])
    values = {
        "state": schema.NEW,
        "budget": line,
        "pool": pool,
        "submitter": principal_row(state, principal),
        "event_seq": seq,
        "submit_ms": state.counters.time_ms,
        "nodes": shape.nodes,
        "milli_per_node": shape.milli_per_node,
        "gpus_milli": shape.nodes * shape.milli_per_node,
        "wish": take_wish(state, shape.wish),
        "min_runtime_ms": quantum if event.min_runtime_ms is None else event.min_runtime_ms,
        "expected_runtime_ms": event.expected_runtime_ms,
        "grace_ms": event.grace_ms,
        "priority": event.priority,
        "auto_resume": int(event.auto_resume),
        "movable": int(event.movable),
        "max_failures": event.max_failures,
        "run": -1,
    }
    table.put(row, values)
    state.budget.cells.workloads[line] += 1
    state.counters.dirty = 1
    return None


def _find(state: State, name: str, principal: str, what: str) -> int | No:
    row = state.workload.row_of.get(name)
    if row is None:
        known = name in state.closed.row_of
        return No(Refusal.WORKLOAD_ENDED if known else Refusal.UNKNOWN_WORKLOAD, "workload", entity=name)
    path = state.budget_path(int(state.workload.budget[row]))
    owner = state.principal.keys[int(state.workload.submitter[row])]
    if principal != owner and not is_operator(state, principal) and not may_administer(state, principal, path):
        return not_permitted(principal, f"{what} {name}: it belongs to {owner}")
    return row


def workload_cancelled(state: State, event: WorkloadCancelled, principal: str, seq: int) -> No | None:
    """Withdraw; the cycle closes it, or stops its run."""
    row = _find(state, event.workload, principal, "cancel")
    if isinstance(row, No):
        return row
    if state.workload.cancel_seq[row]:
        return No(Refusal.DUPLICATE, "workload", "it is being cancelled already", entity=event.workload)
    state.workload.cancel_seq[row] = seq
    state.counters.dirty = 1
    return None


def workload_reprioritized(state: State, event: WorkloadReprioritized, principal: str, _seq: int) -> No | None:
    """Change its place in its budget's queue."""
    row = _find(state, event.workload, principal, "reprioritize")
    if isinstance(row, No):
        return row
    queued = int(state.workload.state[row]) in (schema.PENDING, schema.HELD)
    if queued:
        remove_queued(state, row)
    state.workload.priority[row] = event.priority
    if queued:
        insert_queued(state, row)
    state.counters.dirty = 1
    return None


def enqueue(state: State, row: int) -> None:
    """Make a workload pending and count its demand (idle-cycle work is nobody's demand)."""
    state.workload.cells.state[row] = schema.PENDING
    insert_queued(state, row)
    _count_demand(state, row, 1)


def enqueue_all(state: State, rows: list[int]) -> None:
    """Make many workloads pending."""
    table, made = state.workload, np.array(rows, dtype=np.int64)
    table.state[made] = schema.PENDING
    insert_all_queued(state, rows)
    counted = made[table.min_runtime_ms[made] > 0]
    if len(counted):
        ledger.accrue(state, state.counters.time_ms)
        ledger.add_demands(state, table.budget[counted], table.gpus_milli[counted])


def dequeue(state: State, row: int) -> None:
    """Take a workload out of the queue; its demand is running or gone."""
    remove_queued(state, row)
    _count_demand(state, row, -1)


def dequeue_all(state: State, rows: I64) -> None:
    """Take many workloads out of the queue; the caller has accrued."""
    remove_all_queued(state, rows)
    table = state.workload
    counted = rows[table.min_runtime_ms[rows] > 0]
    if len(counted):
        ledger.add_demands(state, table.budget[counted], -table.gpus_milli[counted])


def _count_demand(state: State, row: int, sign: int) -> None:
    cells = state.workload.cells
    if cells.min_runtime_ms[row]:
        ledger.accrue(state, state.counters.time_ms)
        ledger.add_demand(state, cells.budget[row], sign * cells.gpus_milli[row])

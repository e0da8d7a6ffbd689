"""Fold of what people ask for: submissions, cancellations, order inside a budget.

A submission is checked whole at the door, for each pool that it names: rights, budget, pool, shape (``shapes``), and what makes it
a service (``services``). One that may be in some of them is taken, and waits in the first; why it cannot be in the others is kept
(``choices``). The cycle answers with ``workload.admitted``.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from apportion.core.events import WorkloadCancelled, WorkloadReprioritized, WorkloadSubmitted
from apportion.core.fold import users
from apportion.core.fold.access import No, may_administer, may_charge, not_permitted, principal_row
from apportion.core.fold.choices import Offer, take_choices
from apportion.core.fold.services import cannot_serve, take_service
from apportion.core.fold.shapes import Shape, shape_of
from apportion.core.fold.wishes import take_wish
from apportion.core.reasons import Refusal
from apportion.core.state import schema
from apportion.core.state.asks import Ask
from apportion.core.state.queue import insert_queued, remove_queued
from apportion.core.state.services import replicas_of
from apportion.core.state.state import State
from apportion.core.state.unsettled import note_unsettled
from apportion.core.units import SERVICE_AHEAD


class Seat(NamedTuple):
    """Where a pool could take a submission."""

    line: int
    pool: int
    shape: Shape


def seat_in(state: State, name: str, event: WorkloadSubmitted) -> Seat | No:
    """Return where a pool takes it, or why it never can: the budget of the same path in the pool's own tree."""
    pool = state.pool.row_of.get(name)
    if pool is None:
        return No(Refusal.UNKNOWN_POOL, "pools", entity=name)
    line = state.budget.row_of.get(state.budget_key(name, event.budget))
    if line is None:
        return No(Refusal.UNKNOWN_BUDGET, "budget", f"pool {name} has no such budget", entity=event.budget)
    if state.budget.cells.closed[line]:
        return No(Refusal.BUDGET_CLOSED, "budget", entity=event.budget)
    if state.budget.cells.children[line] and not state.budget.cells.users[line]:
        return No(Refusal.BUDGET_NOT_LEAF, "budget", "name one of the budgets below it", entity=event.budget)
    if (event.min_runtime_ms or 0) > (cap := state.pool.cells.protected_cap_ms[pool]):
        return No(Refusal.MIN_RUNTIME_ABOVE_CAP, "min_runtime_ms", numbers={"cap_ms": cap})
    shape = shape_of(state, pool, event)
    if isinstance(shape, No):
        return shape
    return cannot_serve(state, pool, event, shape) or Seat(line, pool, shape)


def _refusal_of(seats: dict[str, Seat | No]) -> No | None:
    """Return why no pool takes it: the answer of the last that is known, else of the first."""
    answers = list(seats.values())
    if any(isinstance(answer, Seat) for answer in answers):
        return None
    refusals = [answer for answer in answers if isinstance(answer, No)]
    return next((no for no in reversed(refusals) if no.reason is not Refusal.UNKNOWN_POOL), refusals[0])


def _ask_of(state: State, seat: Seat, event: WorkloadSubmitted, principal: str) -> Ask:
    """Return what the workload is where it has a seat; a budget that is shared by users gets a line for this one."""
    line, pool, shape = seat
    if state.budget.users[line]:
        line = users.line_of(state, line, principal)
    min_runtime_ms = state.pool.cells.quantum_ms[pool] if event.min_runtime_ms is None else event.min_runtime_ms
    wish = take_wish(state, shape.wish)
    return Ask(pool, line, shape.nodes, shape.milli_per_node, shape.nodes * shape.milli_per_node, wish, min_runtime_ms)


def workload_submitted(state: State, event: WorkloadSubmitted, principal: str, seq: int) -> No | None:
    """Take a workload in; the next cycle admits it."""
    if not may_charge(state, principal, event.budget):
        return not_permitted(principal, f"charge {event.budget}")
    taken = (state.workload, state.service, state.closed)
    if any(event.workload in table.row_of for table in taken):
        return No(Refusal.DUPLICATE, "workload", "the id is taken", entity=event.workload)
    seats = {name: seat_in(state, name, event) for name in event.pools}
    refusal = _refusal_of(seats)
    if refusal is not None:
        return refusal
    if event.movable and not event.auto_resume:
        return No(Refusal.INVALID_DATA, "movable", "what is moved is started again: it must resume", entity=event.workload)
    if event.service is not None:
        line, pool, shape = next(seat for seat in seats.values() if isinstance(seat, Seat))  # a service stays in one pool
        if state.budget.users[line]:
            line = users.line_of(state, line, principal)
        take_service(state, event, line, pool, shape, principal, seq)
        return None
    table = state.workload
    row = table.add(event.workload)
    offers = [
        Offer(name, seat if isinstance(seat, No) else _ask_of(state, seat, event, principal)) for name, seat in seats.items()
    ]
    home = next(offer.answer for offer in offers if isinstance(offer.answer, Ask))
    values = {
        **home._asdict(),
        "state": schema.NEW,
        "submitter": principal_row(state, principal),
        "event_seq": seq,
        "submit_ms": state.counters.time_ms,
        "expected_runtime_ms": event.expected_runtime_ms,
        "grace_ms": event.grace_ms,
        "priority": event.priority,
        "auto_resume": int(event.auto_resume),
        "movable": int(event.movable),
        "max_failures": event.max_failures,
        "run": -1,
    }
    table.put(row, values)
    take_choices(state, row, offers)
    note_unsettled(state, row)
    state.counters.dirty = 1
    return None


def _find(state: State, name: str, principal: str, what: str) -> int | No:
    row = state.workload.row_of.get(name)
    if row is None:
        known = name in state.closed.row_of
        return No(Refusal.WORKLOAD_ENDED if known else Refusal.UNKNOWN_WORKLOAD, "workload", entity=name)
    path = state.budget_path(int(state.workload.budget[row]))
    owner = state.principal.keys[int(state.workload.submitter[row])]
    if principal != owner and not may_administer(state, principal, path):
        return _not_his(principal, what, name, owner)
    return row


def _not_his(principal: str, what: str, name: str, owner: str) -> No:
    return not_permitted(principal, f"{what} {name}: it belongs to {owner}")


def _find_service(state: State, name: str, principal: str, what: str) -> int | No | None:
    row = state.service.row_of.get(name)
    if row is None:
        return None
    path = state.budget_path(int(state.service.budget[row]))
    owner = state.principal.keys[int(state.service.submitter[row])]
    return row if principal == owner or may_administer(state, principal, path) else _not_his(principal, what, name, owner)


def workload_cancelled(state: State, event: WorkloadCancelled, principal: str, seq: int) -> No | None:
    """Withdraw; the cycle closes it, or stops its run. A service goes with all its replicas."""
    service = _find_service(state, event.workload, principal, "cancel")
    if isinstance(service, No):
        return service
    if service is not None:
        if state.service.cancel_seq[service]:
            return No(Refusal.DUPLICATE, "workload", "it is being cancelled already", entity=event.workload)
        state.service.cancel_seq[service] = seq
        replicas = (state.workload.column("service") == service + 1) & (state.workload.column("cancel_seq") == 0)
        state.workload.column("cancel_seq")[replicas] = seq
        for replica in np.flatnonzero(replicas).tolist():
            note_unsettled(state, replica)
        state.counters.dirty = 1
        return None
    row = _find(state, event.workload, principal, "cancel")
    if isinstance(row, No):
        return row
    if state.workload.cancel_seq[row]:
        return No(Refusal.DUPLICATE, "workload", "it is being cancelled already", entity=event.workload)
    state.workload.cancel_seq[row] = seq
    note_unsettled(state, row)
    state.counters.dirty = 1
    return None


def workload_reprioritized(state: State, event: WorkloadReprioritized, principal: str, _seq: int) -> No | None:
    """Change its place in its budget's queue; of a service, that of its replicas too."""
    service = _find_service(state, event.workload, principal, "reprioritize")
    if isinstance(service, No):
        return service
    if service is not None:
        state.service.priority[service] = event.priority + SERVICE_AHEAD
        for replica in replicas_of(state, service):
            _put_at(state, replica, event.priority + SERVICE_AHEAD)
        state.counters.dirty = 1
        return None
    row = _find(state, event.workload, principal, "reprioritize")
    if isinstance(row, No):
        return row
    if state.workload.service[row]:
        return No(Refusal.INVALID_DATA, "workload", "a replica: name its service", entity=event.workload)
    _put_at(state, row, event.priority)
    state.counters.dirty = 1
    return None


def _put_at(state: State, row: int, priority: int) -> None:
    queued = int(state.workload.state[row]) in (schema.PENDING, schema.HELD)
    if queued:
        remove_queued(state, row)
    state.workload.priority[row] = priority
    if queued:
        insert_queued(state, row)

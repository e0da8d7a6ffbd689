"""The register of events: stable names and versions, decoding through upcasters, encoding.

Pure functions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from apportion.core.envelope import encode
from apportion.core.events.budgets import (
    BudgetClosed,
    BudgetGranted,
    BudgetSet,
    BudgetTransferred,
    BudgetWithdrawn,
    GrantScheduled,
    MemberGranted,
    MemberRevoked,
)
from apportion.core.events.cluster import (
    NodeCordoned,
    NodeDrained,
    NodeHeartbeat,
    NodeJoined,
    NodeLeft,
    NodeUncordoned,
    PoolDefined,
)
from apportion.core.events.event import Event
from apportion.core.events.log import ClockTick, CoreActivated, LogOpened
from apportion.core.events.policies import PolicyActivated
from apportion.core.events.runs import RunCheckpointed, RunFinished, RunLost, RunProgressed, RunStarted
from apportion.core.events.services import DemandObserved, ForecastPublished
from apportion.core.events.workloads import WorkloadCancelled, WorkloadReprioritized, WorkloadSubmitted

EVENTS: dict[tuple[str, int], type[Event]] = {
    ("log.opened", 1): LogOpened,
    ("pool.defined", 1): PoolDefined,
    ("node.joined", 1): NodeJoined,
    ("node.heartbeat", 1): NodeHeartbeat,
    ("node.cordoned", 1): NodeCordoned,
    ("node.drained", 1): NodeDrained,
    ("node.uncordoned", 1): NodeUncordoned,
    ("node.left", 1): NodeLeft,
    ("budget.set", 1): BudgetSet,
    ("budget.granted", 1): BudgetGranted,
    ("budget.withdrawn", 1): BudgetWithdrawn,
    ("grant.scheduled", 1): GrantScheduled,
    ("budget.transferred", 1): BudgetTransferred,
    ("budget.closed", 1): BudgetClosed,
    ("member.granted", 1): MemberGranted,
    ("member.revoked", 1): MemberRevoked,
    ("policy.activated", 1): PolicyActivated,
    ("workload.submitted", 1): WorkloadSubmitted,
    ("workload.cancelled", 1): WorkloadCancelled,
    ("workload.reprioritized", 1): WorkloadReprioritized,
    ("run.started", 1): RunStarted,
    ("run.checkpointed", 1): RunCheckpointed,
    ("run.progressed", 1): RunProgressed,
    ("run.finished", 1): RunFinished,
    ("run.lost", 1): RunLost,
    ("demand.observed", 1): DemandObserved,
    ("forecast.published", 1): ForecastPublished,
    ("clock.tick", 1): ClockTick,
    ("core.activated", 1): CoreActivated,
}
EVENT_TYPES = {event_class: name for (name, _version), event_class in EVENTS.items()}

# (type, v) -> a pure function from the payload of version v, as builtins, to the payload of version v + 1.
UPCASTS: dict[tuple[str, int], Callable[[dict[str, Any]], dict[str, Any]]] = {}
NEWEST = {name: max(v for other, v in EVENTS if other == name) for name, _v in EVENTS}

_decoders = {key: msgspec.json.Decoder(event_class) for key, event_class in EVENTS.items()}


class UnknownType(msgspec.ValidationError):
    """No event of that name."""


class UnknownVersion(msgspec.ValidationError):
    """The name is known, this version is not."""


def decode_data(event_type: str, version: int, data: bytes | msgspec.Raw) -> Event:
    """Decode a payload by type and version, through upcasters where one is needed.

    Raises ``UnknownType``, ``UnknownVersion``, or msgspec's errors whose text names the field and the rule.
    """
    decoder = _decoders.get((event_type, version))
    if decoder is not None and version == NEWEST[event_type]:
        return decoder.decode(data)
    if event_type not in NEWEST:
        raise UnknownType(f"no event type {event_type!r}")
    payload: Any = None
    while (event_type, version) in UPCASTS:
        payload = msgspec.json.decode(data) if payload is None else payload
        payload = UPCASTS[event_type, version](payload)
        version += 1
    if payload is None or version != NEWEST[event_type]:
        raise UnknownVersion(f"{event_type} has versions up to {NEWEST[event_type]}, got {version}")
    return msgspec.convert(payload, EVENTS[event_type, version])


def encode_event(event: Event, *, event_id: str, at_ms: int = 0, cause: str = "", flow: str = "") -> bytes:
    """Return the body that publishes ``event`` (its subject is ``subject_of(principal, EVENT_TYPES[type(event)])``)."""
    event_type = EVENT_TYPES[type(event)]
    body: dict[str, Any] = {"at_ms": at_ms, "data": event, "id": event_id, "type": event_type, "v": NEWEST[event_type]}
    if cause:
        body["cause"] = cause
    if flow:
        body["flow"] = flow
    return encode(body)

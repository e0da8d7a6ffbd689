"""Every input event: its struct, its stable type name and version. Also the glossary.

Words (one word per idea, everywhere): a *workload* is what is asked for; a *run* is one numbered attempt of it; a
*budget* is a node of the tree, written as a path (``lab/llm/olmo``), and is kept per *pool* (GPUs of one class in one
cluster: the unit of fair share and the ledger's currency); its *entitlement* is ``share_ppm`` of its parent; a *grant*
is GPU time put into a budget; *funded* time is paid by the budget, *unfunded* time is idle capacity used by somebody.

Commands are imperatives in the API; events are past tense; decisions are in ``decisions.py``.
To add one: struct with bounds and a docstring, a line in ``EVENTS``, a fold function, a golden sample, a row in the projector.
To change one: only additive fields with defaults; anything else is a new version with an upcaster in ``UPCASTS``.
Pure data. Bounds are checked at the door by msgspec, so the fold never sees a negative or a 2^63.
"""

from __future__ import annotations

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
from apportion.core.events.register import (
    EVENT_TYPES,
    EVENTS,
    NEWEST,
    UPCASTS,
    UnknownType,
    UnknownVersion,
    decode_data,
    encode_event,
)
from apportion.core.events.runs import RunCheckpointed, RunFinished, RunLost, RunProgressed, RunStarted
from apportion.core.events.services import DemandObserved, ForecastPublished, Service, replica_name, replica_of
from apportion.core.events.workloads import WorkloadCancelled, WorkloadReprioritized, WorkloadSubmitted

__all__ = [
    "EVENTS",
    "EVENT_TYPES",
    "NEWEST",
    "UPCASTS",
    "BudgetClosed",
    "BudgetGranted",
    "BudgetSet",
    "BudgetTransferred",
    "BudgetWithdrawn",
    "ClockTick",
    "CoreActivated",
    "DemandObserved",
    "Event",
    "ForecastPublished",
    "GrantScheduled",
    "LogOpened",
    "MemberGranted",
    "MemberRevoked",
    "NodeCordoned",
    "NodeDrained",
    "NodeHeartbeat",
    "NodeJoined",
    "NodeLeft",
    "NodeUncordoned",
    "PolicyActivated",
    "PoolDefined",
    "RunCheckpointed",
    "RunFinished",
    "RunLost",
    "RunProgressed",
    "RunStarted",
    "Service",
    "UnknownType",
    "UnknownVersion",
    "WorkloadCancelled",
    "WorkloadReprioritized",
    "WorkloadSubmitted",
    "decode_data",
    "encode_event",
    "replica_name",
    "replica_of",
]  # fmt: skip

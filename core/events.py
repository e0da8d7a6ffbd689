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

from collections.abc import Callable
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from apportion.core.envelope import encode
from apportion.core.fields import (
    BudgetPath,
    Count,
    DomainName,
    Duration,
    GpuIndex,
    GpusMilli,
    GpuUs,
    Instant,
    Kind,
    Labels,
    Name,
    NodePlace,
    Principal,
    RunNumber,
    SharePpm,
    Text,
    WeightMilli,
)
from apportion.core.units import (
    MAX_GRANT_GPU_US,
    MAX_LEVELS,
    MAX_NODE_GPUS,
    MAX_PRIORITY,
    MS_PER_DAY,
)


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Base of all payloads. Unknown fields are ignored (additive evolution), missing ones need a default."""


class LogOpened(Event, frozen=True):
    """The first record of a log: who it is, where its time comes from, who may operate it."""

    log_id: Name
    time_source: Literal["stored", "stated"]
    core: Annotated[int, Meta(ge=1)] = 1
    schema: Annotated[int, Meta(ge=1)] = 1
    operators: tuple[Principal, ...] = ()


class PoolDefined(Event, frozen=True):
    """A pool exists. Its rules are defaults until ``policy.activated``."""

    pool: Name
    gpu_class: Annotated[str, Meta(max_length=64)] = ""
    weight_milli: WeightMilli = 1_000
    levels: Annotated[tuple[Name, ...], Meta(max_length=MAX_LEVELS)] = ()  # of topology, widest first; () = rack alone


class NodeJoined(Event, frozen=True):
    """A node offers its GPUs to a pool. The publishing principal is the node's agent from then on.

    Joining again while it is there, what an event does not tell (0, no rack and no domains, no labels, no place) stays as it was.
    """

    node: Name
    pool: Name
    gpus: Annotated[int, Meta(ge=1, le=MAX_NODE_GPUS)]
    gpu_memory_mib: Count = 0
    cpu_milli: Count = 0
    memory_mib: Count = 0
    rack: Annotated[str, Meta(max_length=64)] = ""  # its domain of the pool's narrowest level, if ``domains`` does not tell
    domains: Annotated[tuple[DomainName, ...], Meta(max_length=MAX_LEVELS)] = ()  # one per level of the pool, "" = in none
    place: NodePlace | None = None  # in the pool's topology order, gaps allowed: blocks over nodes are aligned in it
    labels: Labels | None = None
    agent: Principal | None = None  # set by an operator who joins nodes on behalf of agents


class NodeHeartbeat(Event, frozen=True):
    """One node's GPUs in one message. ``beat`` counts up; an old or repeated beat is dropped and counted."""

    node: Name
    beat: Annotated[int, Meta(ge=1, le=2**53)]
    gpus_down: tuple[GpuIndex, ...] = ()
    busy_milli: Count = 0  # sum over GPUs of compute use, 1000 per fully busy GPU
    memory_mib: Count = 0
    watts: Count = 0
    runs: tuple[str, ...] | None = None  # "workload#run" alive here; None = not reported this time
    idle_runs: tuple[str, ...] = ()  # of ``runs``: those that have done no work on their GPUs here since the last beat


class NodeCordoned(Event, frozen=True):
    """No new run may start on the node."""

    node: Name
    reason: Text = ""


class NodeDrained(Event, frozen=True):
    """The node is wanted empty by an instant. Until then it takes only runs that state to be over by it; then it is cordoned.

    What runs there is asked to go in time when it is unfunded and past its protected time, and is waited for when not, unless
    ``force``. A further one replaces deadline, force and reason; ``node.uncordoned`` ends it.
    """

    node: Name
    by_ms: Instant = 0  # 0, or an instant that is past: at once
    force: bool = False  # funded and protected runs are asked to go too
    reason: Text = ""


class NodeUncordoned(Event, frozen=True):
    """The node may be used again; ends a drain, and clears a suspension too."""

    node: Name
    reason: Text = ""


class NodeLeft(Event, frozen=True):
    """The node is gone; its runs are lost."""

    node: Name
    reason: Text = ""


class BudgetSet(Event, frozen=True):
    """Create a budget or change its entitlement. The parent must exist; sibling shares may not exceed 1,000,000 ppm, ever.

    The share holds from ``from_ms`` until ``until_ms`` and replaces what was planned for that time; afterwards the budget
    is entitled to what it would have been without this event, or to 0 when it did not exist.
    """

    pool: Name
    budget: BudgetPath
    share_ppm: SharePpm
    from_ms: Instant = 0  # exactly at this instant; 0, or one that is past: at once
    until_ms: Instant = 0  # 0 = until another event
    users: Literal["none", "equal", "weighted"] | None = None  # who submits here gets a line of his own; at once; None: as before
    reason: Text = ""


class BudgetGranted(Event, frozen=True):
    """Put GPU time into a budget. From its first grant on a budget is metered: at zero its runs become unfunded."""

    pool: Name
    budget: BudgetPath
    gpu_us: GpuUs
    reason: Text = ""


class GrantScheduled(Event, frozen=True):
    """Put GPU time into a budget at the first instant of every month or quarter (UTC), or once; meters it from the first one on.

    The first grant is at ``from_ms``, of the whole amount, without it at once; a budget that has a schedule keeps what it was given
    for its period and changes at its next one. What is not spent in a period lapses unless ``carry`` keeps it; ``gpu_us`` 0 ends
    the schedule at the next period. At ``until_ms`` the last period is settled by the same rule.
    """

    pool: Name
    budget: BudgetPath
    gpu_us: Annotated[int, Meta(ge=0, le=MAX_GRANT_GPU_US)]
    period: Literal["monthly", "quarterly", "none"]
    carry: Literal["none", "all", "cap"] = "none"
    carry_cap_ppm: SharePpm = 0  # of the amount; for carry = cap
    from_ms: Instant = 0
    until_ms: Instant = 0  # 0 = no end
    reason: Text = ""


class BudgetTransferred(Event, frozen=True):
    """Move unspent granted GPU time between two metered budgets of a pool."""

    pool: Name
    from_budget: BudgetPath
    to_budget: BudgetPath
    gpu_us: GpuUs
    reason: Text = ""


class BudgetClosed(Event, frozen=True):
    """No new workloads; running ones become unfunded."""

    pool: Name
    budget: BudgetPath
    reason: Text = ""


class MemberGranted(Event, frozen=True):
    """``member`` may charge (submit) or administer the budget path and everything below it, in all pools."""

    budget: BudgetPath
    member: Principal
    role: Literal["charge", "administer"] = "charge"
    weight_milli: Annotated[int, Meta(ge=1, le=1_000_000)] = 1_000  # among the users of a budget that is shared by weight
    reason: Text = ""


class MemberRevoked(Event, frozen=True):
    """Take the role back. Running work goes on."""

    budget: BudgetPath
    member: Principal
    role: Literal["charge", "administer"] = "charge"
    reason: Text = ""


class PolicyActivated(Event, frozen=True):
    """Replace the rules of a pool. Absent fields keep their value; a pool starts as ``fair``.

    Another policy begins with nothing owed and no usage remembered. ``fifo``, ``priority``, ``fair_tree`` and ``drf`` are
    baselines to compare with: under them everything that runs is paid by its budget while that has GPU time left.
    """

    pool: Name
    policy: Literal["fair", "fifo", "priority", "fair_tree", "drf"] | None = None
    quantum_ms: Annotated[int, Meta(ge=1_000, le=7 * MS_PER_DAY)] | None = None  # q: default protected time
    horizon_ms: Annotated[int, Meta(ge=1_000, le=4 * 3_600_000)] | None = None  # tau of the allowance
    protected_cap_ms: Annotated[int, Meta(ge=1_000, le=30 * MS_PER_DAY)] | None = None
    heartbeat_timeout_ms: Annotated[int, Meta(ge=1_000, le=MS_PER_DAY)] | None = None
    start_timeout_ms: Annotated[int, Meta(ge=1_000, le=MS_PER_DAY)] | None = None
    review_ms: Annotated[int, Meta(ge=1_000, le=MS_PER_DAY)] | None = None  # longest time between two cycles with work
    node_loss_refund: Literal["unconfirmed", "since_checkpoint", "whole_run"] | None = None
    idle_hold_ms: Annotated[int, Meta(ge=60_000, le=30 * MS_PER_DAY)] | None = None  # a run that does no work so long is shown
    idle_hold_action: Literal["none", "demote"] | None = None  # demote: then its budget no longer pays for it
    half_life_ms: Annotated[int, Meta(ge=60_000, le=366 * MS_PER_DAY)] | None = None  # of usage, as fair_tree remembers it
    bank_ms: Annotated[int, Meta(ge=0, le=7 * MS_PER_DAY)] | None = None  # of its share that an idle budget stays owed; 0 = none
    weight_milli: WeightMilli | None = None
    reason: Text = ""


class WorkloadSubmitted(Event, frozen=True):
    """What is asked for. ``gpus_milli`` is the total; ``nodes`` 0 lets the core take one node, or the fewest whole ones.

    ``loose``: GPUs wherever they are, however many on a node. ``within`` and ``near`` name a level of the pool's topology, or
    ``node``: all of its nodes must be in one domain of it, should be in as few as can be. ``exclusive``: whole nodes, and paid as
    such. ``block``: contiguous and aligned, a power of two of GPUs on one node, or of whole nodes. ``apart`` names a group of the
    budget: it starts in no domain of ``apart_level`` in which another of the group is.
    """

    workload: Name
    budget: BudgetPath
    pools: Annotated[tuple[Name, ...], Meta(min_length=1, max_length=8)]  # acceptable pools in order of wish
    gpus_milli: GpusMilli
    nodes: Annotated[int, Meta(ge=0, le=100_000)] = 0
    loose: bool = False
    within: Name | None = None
    near: Name | None = None
    labels: Labels = {}  # that its nodes bear
    gpu_memory_mib: Count = 0  # of each GPU at least; a fraction takes so much, or its part of the GPU's when it does not say
    cpu_milli: Count = 0  # of each node; of a loose request for each GPU
    memory_mib: Count = 0
    exclusive: bool = False
    block: bool = False
    apart: Name | None = None
    apart_level: Name | None = None  # None = node
    kind: Kind = "training"
    name: Annotated[str, Meta(max_length=128)] = ""
    min_runtime_ms: Duration | None = None  # protected time; None = the pool's quantum; 0 = idle cycles only
    expected_runtime_ms: Duration = 0  # the user's limit, for backfill; 0 = not stated
    auto_resume: bool = True
    checkpoint_interval_ms: Duration = 0
    grace_ms: Annotated[int, Meta(ge=0, le=3_600_000)] = 30_000
    priority: Annotated[int, Meta(ge=-MAX_PRIORITY, le=MAX_PRIORITY)] = 0  # inside its budget; or the policy "priority"
    max_failures: Annotated[int, Meta(ge=0, le=1_000)] = 0
    command: Annotated[tuple[str, ...], Meta(max_length=1_000)] = ()
    env: dict[str, str] = {}
    cwd: Annotated[str, Meta(max_length=4_096)] = ""


class WorkloadCancelled(Event, frozen=True):
    """Withdraw the workload; a run in progress is stopped with its grace."""

    workload: Name
    reason: Text = ""


class WorkloadReprioritized(Event, frozen=True):
    """Change the order inside its budget."""

    workload: Name
    priority: Annotated[int, Meta(ge=-MAX_PRIORITY, le=MAX_PRIORITY)]
    reason: Text = ""


class RunStarted(Event, frozen=True):
    """The node's agent has started the run's processes."""

    workload: Name
    run: RunNumber
    node: Name
    pid: Count = 0


class RunCheckpointed(Event, frozen=True):
    """The workload can resume from ``progress_ms`` of useful run time."""

    workload: Name
    run: RunNumber
    progress_ms: Duration


class RunProgressed(Event, frozen=True):
    """Useful run time so far, not yet safe."""

    workload: Name
    run: RunNumber
    progress_ms: Duration


class RunFinished(Event, frozen=True):
    """The processes are gone and the GPUs are free. ``refused``: the agent could not start it."""

    workload: Name
    run: RunNumber
    node: Name
    outcome: Literal["succeeded", "failed", "stopped", "refused"]
    exit_code: Annotated[int, Meta(ge=-255, le=255)] = 0
    detail: Text = ""


class RunLost(Event, frozen=True):
    """The agent no longer knows the run (it restarted without it, or the process vanished)."""

    workload: Name
    run: RunNumber
    node: Name
    detail: Text = ""


class DemandObserved(Event, frozen=True):
    """Traffic of a realtime workload, in thousandths of a unit of traffic. Recorded; planning follows it from core 2 on."""

    workload: Name
    traffic_milli: Count


class ForecastPublished(Event, frozen=True):
    """A forecaster's statement about a workload or a kind. Recorded; planning follows it from core 2 on."""

    model: Name
    target: Name
    horizon_ms: Duration
    quantiles_ppm: Annotated[tuple[SharePpm, ...], Meta(max_length=32)] = ()
    values: Annotated[tuple[Count, ...], Meta(max_length=4_096)] = ()


class ClockTick(Event, frozen=True):
    """A scheduling cycle runs now. Written by the leader only, when something is due or dirty."""

    why: Literal["dirty", "due", "plan"] = "due"


class CoreActivated(Event, frozen=True):
    """Cycles after this record are decided by logic number ``core``."""

    core: Annotated[int, Meta(ge=1)]
    instance: Annotated[str, Meta(max_length=128)] = ""
    reason: Text = ""


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

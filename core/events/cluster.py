"""Events of pools and nodes: what there is, and in what state.

Pure data; bounds are checked at the door, the fold applies them.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from apportion.core.events.event import Event
from apportion.core.fields import (
    Count,
    DomainName,
    GpuIndex,
    Instant,
    Labels,
    Name,
    NodePlace,
    Principal,
    Text,
    WeightMilli,
)
from apportion.core.units import MAX_LEVELS, MAX_NODE_GPUS


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

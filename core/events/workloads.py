"""Events of workloads: what is asked for, withdrawn, put in another order, expected.

Pure data; bounds are checked at the door, the fold applies them.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, field

from apportion.core.events.event import Event
from apportion.core.events.services import Service
from apportion.core.fields import BudgetPath, Count, Duration, GpusMilli, Kind, Labels, Name, Text
from apportion.core.units import MAX_PRIORITY


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
    labels: Labels = field(default_factory=dict)  # that its nodes bear
    gpu_memory_mib: Count = 0  # of each GPU at least; a fraction takes so much, or its part of the GPU's when it does not say
    cpu_milli: Count = 0  # of each node; of a loose request for each GPU
    memory_mib: Count = 0
    exclusive: bool = False
    block: bool = False
    apart: Name | None = None
    apart_level: Name | None = None  # None = node
    kind: Kind = "training"
    service: Service | None = None  # of kind realtime: the shape is that of one replica, and traffic says how many there are
    name: Annotated[str, Meta(max_length=128)] = ""
    min_runtime_ms: Duration | None = None  # protected time; None = the pool's quantum; 0 = idle cycles only
    expected_runtime_ms: Duration = 0  # the user's limit, for backfill; 0 = not stated
    auto_resume: bool = True
    movable: bool = False  # past its protected time it may be stopped, and started elsewhere, so that somebody else fits
    checkpoint_interval_ms: Duration = 0
    grace_ms: Annotated[int, Meta(ge=0, le=3_600_000)] = 30_000
    priority: Annotated[int, Meta(ge=-MAX_PRIORITY, le=MAX_PRIORITY)] = 0  # inside its budget; or the policy "priority"
    max_failures: Annotated[int, Meta(ge=0, le=1_000)] = 0
    command: Annotated[tuple[str, ...], Meta(max_length=1_000)] = ()
    env: dict[str, str] = field(default_factory=dict)
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

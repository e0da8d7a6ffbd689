"""Events of runs: what the agents say of attempts.

Pure data; bounds are checked at the door, the fold applies them.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from apportion.core.events.event import Event
from apportion.core.fields import Count, Duration, Name, RunNumber, Text


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

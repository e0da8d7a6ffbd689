"""Events of the log itself: its opening, its ticks, which logic decides.

Pure data; the fold applies them.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from apportion.core.events.event import Event
from apportion.core.fields import Name, Principal, Text


class LogOpened(Event, frozen=True):
    """The first record of a log: who it is, where its time comes from, who may operate it."""

    log_id: Name
    time_source: Literal["stored", "stated"]
    core: Annotated[int, Meta(ge=1)] = 1
    schema: Annotated[int, Meta(ge=1)] = 1
    operators: tuple[Principal, ...] = ()


class ClockTick(Event, frozen=True):
    """A scheduling cycle runs now. Written by the leader only, when something is due or dirty."""

    why: Literal["dirty", "due", "plan"] = "due"


class CoreActivated(Event, frozen=True):
    """Cycles after this record are decided by logic number ``core``."""

    core: Annotated[int, Meta(ge=1)]
    instance: Annotated[str, Meta(max_length=128)] = ""
    reason: Text = ""

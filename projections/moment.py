"""When something happened, and who said so: the context every projection function gets beside the event or decision.

Pure data, taken from the record or the batch; a projection has no other source of time or identity.
"""

from __future__ import annotations

from typing import NamedTuple


class Said(NamedTuple):
    """An accepted input event: its place and time in the log, and the principal of its subject."""

    seq: int
    time_ms: int
    principal: str


class Decided(NamedTuple):
    """A decision: ``seq`` of the tick it answers, its place in the batch, and the batch's time."""

    seq: int
    position: int
    time_ms: int

"""What the scheduler process needs of the world, beyond the core's ports: logs that can be followed, and a publisher.

Typing only. The bus and the logs in memory provide it alike, so the same service runs over either.
"""

from __future__ import annotations

from typing import Protocol

from apportion.adapters.bus.stream import Tail
from apportion.adapters.past.snapshots import SnapshotMeta
from apportion.core.envelope import Record, StoredBatch
from apportion.core.ports import DecisionLog, EventLog


class FollowedEvents(EventLog, Protocol):
    """EVENTS that can also be read live."""

    def tail(self, after_seq: int) -> Tail[Record]:
        """Return an independent live reader."""
        ...


class FollowedDecisions(DecisionLog, Protocol):
    """DECISIONS that can also be read live."""

    def tail(self, after_seq: int) -> Tail[StoredBatch]:
        """Return an independent live reader."""
        ...


class EventPublisher(Protocol):
    """Stores one event; returns its sequence first."""

    async def publish(
        self, subject: str, body: bytes, event_id: str, *, expected_last_seq: int | None = None
    ) -> tuple[int, bool]:
        """Return ``(seq, had it been stored before)``."""
        ...


class Snapshots(Protocol):
    """A snapshot store that keeps the record's hash and the position in DECISIONS beside the state."""

    def save(self, seq: int, data: bytes, *, record_hash: str = "", decision_seq: int = 0) -> None:
        """Keep a snapshot durably."""
        ...

    def load_with_meta(self, max_seq: int | None = None) -> tuple[SnapshotMeta, bytes] | None:
        """Return the newest one at or before ``max_seq``."""
        ...

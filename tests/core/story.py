"""A log being told to a core: events go in one by one, every tick is decided, and records and batches are kept for replay.

Whoever wants to look at each step (invariants, independent books) adds itself to ``watchers``.
"""

from __future__ import annotations

from typing import Protocol

from apportion.core import events
from apportion.core.decisions import CycleBatch, decode_batch
from apportion.core.engine import Core
from apportion.core.envelope import Record, decode_envelope, split_subject, subject_of

START_MS = 1_000_000_000_000
OPERATOR = "ops"


class Watcher(Protocol):
    """Sees the core after every record, and the batch when the record was a tick."""

    def after(self, core: Core, record: Record, batch: CycleBatch | None) -> None:
        """Look at the core; raise ``AssertionError`` when something does not hold."""
        ...


class Accepted:
    """Which events a core accepted, for watchers that keep books of their own."""

    def __init__(self, *types: str) -> None:
        self._types = types
        self._refused = 0

    def event(self, core: Core, record: Record) -> events.Event | None:
        """Return the event of a record that was just folded, if it was accepted and is of one of the types."""
        refused, parts = core.state.counters.refused, split_subject(record.subject)
        accepted, self._refused = refused == self._refused, refused
        if not accepted or parts is None or parts[1] not in self._types:
            return None
        envelope = decode_envelope(record.body)
        return events.decode_data(parts[1], envelope.v, envelope.data)


class Story:
    """Feeds one core; time is stated by the teller."""

    def __init__(self, *watchers: Watcher, start_ms: int = START_MS) -> None:
        self.core = Core.new()
        self.now_ms = start_ms
        self.start_ms = start_ms
        self.records: list[Record] = []
        self.batches: dict[int, bytes] = {}  # by seq of the tick
        self.watchers = watchers
        self.told = 0

    def send(self, subject: str, body: bytes, stored_ms: int | None = None) -> CycleBatch | None:
        """Append one record as it is; returns the batch when it was an accepted tick."""
        record = Record(len(self.records) + 1, self.now_ms if stored_ms is None else stored_ms, subject, body)
        self.records.append(record)
        batch = None
        if self.core.fold(record):
            body = self.core.decide()
            self.batches[record.seq] = body
            batch = decode_batch(body)
        for watcher in self.watchers:
            watcher.after(self.core, record, batch)
        return batch

    def tell(
        self, event: events.Event, by: str = OPERATOR, *, at_ms: int | None = None, event_id: str = ""
    ) -> CycleBatch | None:
        """Append an event; its id is new unless given."""
        self.told += 1
        event_type = events.EVENT_TYPES[type(event)]
        body = events.encode_event(
            event, event_id=event_id or f"event-{self.told}", at_ms=self.now_ms if at_ms is None else at_ms
        )
        return self.send(subject_of(by, event_type), body)

    def open(self, time_source: str = "stated") -> None:
        """Append the first record."""
        self.tell(events.LogOpened(log_id="story", time_source=time_source, operators=(OPERATOR,)))  # type: ignore[arg-type]  # a literal in disguise

    def tick(self) -> CycleBatch:
        """Append a tick of the leading core and return its cycle."""
        batch = self.tell(events.ClockTick(), "core")
        assert batch is not None, "the tick of the leading core was refused"
        return batch

    def refused(self) -> int:
        """Return how many inputs were refused so far."""
        return self.core.state.counters.refused

    def restart(self) -> None:
        """Replace the core by one restored from its snapshot; the digest must be the same."""
        digest = self.core.digest()
        self.core = Core.from_snapshot(self.core.snapshot())
        assert self.core.digest() == digest

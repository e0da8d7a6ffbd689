"""The log ports in memory: for tests, what-if and simulation inside one process.

They behave as the streams do, fence and lost-acknowledgement rule included, and decide nothing else. Nothing survives
the process.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Generic, TypeVar

from apportion.core.envelope import Record, StoredBatch
from apportion.core.errors import Fenced, LogGap, LogMismatch

T = TypeVar("T")
FOLLOW_LIMIT = 10_000


class MemoryEventLog:
    """EVENTS as a list. ``append`` plays the server: it assigns the sequence and the stored time."""

    def __init__(self, now_ms: Callable[[], int] = lambda: 0) -> None:
        """``now_ms`` stamps records appended without a time; the default leaves them at 0 (for stated time)."""
        self._now_ms = now_ms
        self._records: list[Record] = []
        self._seq_by_id: dict[str, int] = {}
        self._tails: set[MemoryTail[Record]] = set()

    def append(self, subject: str, body: bytes, *, stored_ms: int | None = None, event_id: str = "") -> int:
        """Store one record and return its sequence; an ``event_id`` seen before returns the first one's."""
        if event_id and event_id in self._seq_by_id:
            return self._seq_by_id[event_id]
        seq = len(self._records) + 1
        self._records.append(Record(seq, self._now_ms() if stored_ms is None else stored_ms, subject, body))
        if event_id:
            self._seq_by_id[event_id] = seq
        for tail in self._tails:
            tail.notify()
        return seq

    async def last_seq(self) -> int:
        """Return the sequence of the newest record, 0 when empty."""
        return len(self._records)

    async def read(self, after_seq: int, limit: int) -> list[Record]:
        """Return up to ``limit`` records after ``after_seq``. Raises ``LogMismatch`` beyond the end."""
        if after_seq > len(self._records):
            raise LogMismatch(f"the log ends at seq {len(self._records)}, before the position {after_seq} asked for")
        return self._records[after_seq : after_seq + limit]

    async def body_at(self, seq: int) -> bytes | None:
        """Return the body at ``seq``, None when there is no such record."""
        return self._records[seq - 1].body if 0 < seq <= len(self._records) else None

    def tail(self, after_seq: int) -> MemoryTail[Record]:
        """Return an independent live reader; close it after use."""
        return MemoryTail(self._records, after_seq, self._tails)

    async def follow(self, after_seq: int) -> AsyncIterator[list[Record]]:
        """Yield records as they are appended, without end."""
        tail = self.tail(after_seq)
        try:
            while True:
                if records := await tail.take(FOLLOW_LIMIT):
                    yield records
        finally:
            await tail.close()


class MemoryDecisionLog:
    """DECISIONS as a list, fenced by the expected last sequence."""

    def __init__(self) -> None:
        self._batches: list[StoredBatch] = []
        self._tails: set[MemoryTail[StoredBatch]] = set()

    async def last_seq(self) -> int:
        """Return the sequence of the newest batch, 0 when empty."""
        return len(self._batches)

    async def read(self, after_seq: int, limit: int) -> list[StoredBatch]:
        """Return up to ``limit`` batches after ``after_seq``. Raises ``LogMismatch`` beyond the end."""
        if after_seq > len(self._batches):
            raise LogMismatch(f"the log ends at seq {len(self._batches)}, before the position {after_seq} asked for")
        return self._batches[after_seq : after_seq + limit]

    async def commit(self, body: bytes, input_seq: int, expected_last_seq: int) -> int:
        """Append one batch iff the log ends at ``expected_last_seq``; identical bytes there already are a commit."""
        last_seq = len(self._batches)
        if last_seq < expected_last_seq:
            raise LogMismatch(f"the decisions end at seq {last_seq}, the batch was to follow seq {expected_last_seq}")
        if last_seq > expected_last_seq:
            if self._batches[expected_last_seq].body != body:
                raise Fenced(
                    f"another core has written seq {expected_last_seq + 1} with other bytes than this core derived for "
                    f"input seq {input_seq}; this core stops"
                )
            return expected_last_seq + 1
        self._batches.append(StoredBatch(last_seq + 1, input_seq, body))
        for tail in self._tails:
            tail.notify()
        return last_seq + 1

    def tail(self, after_seq: int) -> MemoryTail[StoredBatch]:
        """Return an independent live reader; close it after use."""
        return MemoryTail(self._batches, after_seq, self._tails)

    async def follow(self, after_seq: int) -> AsyncIterator[list[StoredBatch]]:
        """Yield batches as they are committed, without end."""
        tail = self.tail(after_seq)
        try:
            while True:
                if batches := await tail.take(FOLLOW_LIMIT):
                    yield batches
        finally:
            await tail.close()


class MemoryTail(Generic[T]):
    """A list being followed: the same contract as a stream's tail."""

    def __init__(self, items: Sequence[T], after_seq: int, tails: set[MemoryTail[T]]) -> None:
        if after_seq > len(items):
            raise LogMismatch(f"the log ends at seq {len(items)}, before the position {after_seq} asked for")
        self._items = items
        self._position = after_seq
        self._event = asyncio.Event()
        self._woken = False
        self._tails = tails
        tails.add(self)

    async def take(self, limit: int, timeout_s: float | None = None) -> list[T]:
        """Return the next items, at least one; none after ``timeout_s`` or a ``wake``."""
        while True:
            taken = list(self._items[self._position : self._position + limit])
            if taken:
                self._position += len(taken)
                return taken
            if self._woken:
                self._woken = False
                return []
            self._event.clear()
            try:
                async with asyncio.timeout(timeout_s):
                    await self._event.wait()
            except TimeoutError:
                return []

    def notify(self) -> None:
        """Tell that there may be more items."""
        self._event.set()

    def wake(self) -> None:
        """Let a waiting ``take``, or else the next one, return at once."""
        self._woken = True
        self._event.set()

    async def close(self) -> None:
        """Stop following."""
        self._tails.discard(self)


def check_contiguous(records: Sequence[Record], after_seq: int) -> None:
    """Raise ``LogGap`` unless ``records`` continue ``after_seq`` without a hole."""
    for expected_seq, record in enumerate(records, after_seq + 1):
        if record.seq != expected_seq:
            raise LogGap(expected_seq, record.seq)


class MemoryPublisher:
    """Publishes into a ``MemoryEventLog`` as the bus's publisher does into the stream."""

    def __init__(self, log: MemoryEventLog) -> None:
        self._log = log

    async def publish(
        self, subject: str, body: bytes, event_id: str, *, expected_last_seq: int | None = None
    ) -> tuple[int, bool]:
        """Store one event and return ``(seq, was it there already)``. Raises ``LogMismatch`` when not as expected."""
        before = await self._log.last_seq()
        if expected_last_seq is not None and before != expected_last_seq:
            raise LogMismatch(f"the log ends at seq {before}, expected {expected_last_seq}")
        seq = self._log.append(subject, body, event_id=event_id)
        await asyncio.sleep(0)
        return seq, seq <= before

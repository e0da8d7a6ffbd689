"""EVENTS as the port ``EventLog``: records in order, without gaps, from the caller's own cursor.

``NatsEventLog`` is a pure view of the stream; it writes nothing and keeps no position on the server. ``read`` serves
replays (large, filled lists and a definite end), ``tail`` and ``follow`` serve live readers (whatever is there, at once).
The end of the log is ``last_seq`` of STREAM.INFO, asked of the stream's leader, and nothing else.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import repeat
from typing import Any

from apportion.adapters.bus.connection import Connection
from apportion.adapters.bus.frames import Scanner
from apportion.adapters.bus.kept import kept_record
from apportion.adapters.bus.messages import get_message, last_seq
from apportion.adapters.bus.stream import StreamTail
from apportion.adapters.bus.topology import EVENTS
from apportion.core.envelope import Record
from apportion.core.errors import LogMismatch

FOLLOW_LIMIT = 10_000
SCAN_FROM = 50_000  # records to read from which on the compiled scan is worth its loading


class NatsEventLog:
    """The stream EVENTS. ``read`` is for one caller at a time; every ``tail`` reads independently of the others."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._tail: StreamTail[Record] | None = None
        self._position = 0
        self._known_last = 0

    async def last_seq(self) -> int:
        """Return the sequence of the newest record, 0 when empty; waits while the server is away."""
        self._known_last = await last_seq(self._connection, EVENTS)
        return self._known_last

    async def read(self, after_seq: int, limit: int) -> list[Record]:
        """Return the records after ``after_seq``: ``limit`` of them, or all there are; none at the end of the log.

        Consecutive calls go on from where the last one ended without asking the server for a new consumer. Raises
        ``LogGap`` when a record is missing and ``LogMismatch`` when ``after_seq`` is beyond the log.
        """
        if self._known_last <= after_seq and await self.last_seq() <= after_seq:
            if self._known_last < after_seq:
                raise LogMismatch(
                    f"EVENTS ends at seq {self._known_last}, before the position {after_seq} asked for: "
                    "this is another log, or its end is missing"
                )
            await self.close()  # at the end: let the server forget the consumer
            return []
        if self._tail is None or self._position != after_seq:
            await self.close()
            self._tail = self.tail(after_seq, compiled=self._known_last - after_seq >= SCAN_FROM)
        self._position = -1  # until all is well: a call that fails or is cancelled has moved the tail
        wanted = min(limit, self._known_last - after_seq)
        records: list[Record] = []
        while len(records) < wanted:
            taken = await self._tail.take(wanted - len(records))
            if records:
                records += taken
            else:
                records = taken
        self._position = after_seq + len(records)
        return records

    def tail(self, after_seq: int, *, compiled: bool = False) -> StreamTail[Record]:
        """Return an independent live reader from ``after_seq + 1`` on; close it after use.

        ``compiled`` takes messages apart with the scan of ``scan.py``: for long logs.
        """
        records = _Records()
        return StreamTail(self._connection, EVENTS, after_seq, records, scanner=records.scanner if compiled else None)

    async def follow(self, after_seq: int) -> AsyncIterator[list[Record]]:
        """Yield records in lists as they arrive, without end."""
        tail = self.tail(after_seq)
        try:
            while True:
                if records := await tail.take(FOLLOW_LIMIT):
                    yield records
        finally:
            await tail.close()

    async def body_at(self, seq: int) -> bytes | None:
        """Return the body stored at ``seq``, also of one that was cut and is kept for agents; None when there is none."""
        message = await get_message(self._connection, EVENTS, seq)
        return await kept_record(self._connection, seq) if message is None else message.body

    async def close(self) -> None:
        """Stop reading; the object may be used again."""
        if self._tail is not None:
            await self._tail.close()
            self._tail = None


class _Subjects(dict[bytes, str]):
    """Text of the subjects seen; they are few and repeat."""

    def __missing__(self, subject: bytes) -> str:
        if len(self) >= 20_000:
            self.clear()
        text = self[subject] = subject.decode(errors="replace")
        return text


class _Records:
    """Makes records of messages, one by one or a buffer's run at a time."""

    def __init__(self) -> None:
        self._subjects = _Subjects()

    def __call__(self, seq: int, stored_ns: int, subject: bytes, _header: bytes, body: bytes) -> Record:
        return Record(seq, stored_ns // 1_000_000, self._subjects[subject], body)

    def scanner(self, tail: StreamTail[Record]) -> Scanner:
        from apportion.adapters.bus import scan  # loads compiled code; only readers of long logs need it

        out = scan.table()
        subjects, record = self._subjects, Record
        make: Any = tuple.__new__  # a record is a tuple; its own constructor would only copy the fields once more

        def scanner(data: bytes, position: int) -> int:
            state = tail.position
            if state is None:
                return position
            sid, next_seq, consumer_seq = state
            count, after = scan.scan_buffer(data, position, sid, next_seq, consumer_seq, out)
            if count:
                starts, ends, bodies, after_bodies, stored_ms = out[:, :count].tolist()
                texts = [subjects[data[start:end]] for start, end in zip(starts, ends, strict=True)]
                contents = [data[start:end] for start, end in zip(bodies, after_bodies, strict=True)]
                seqs = range(next_seq, next_seq + count)
                items = list(map(make, repeat(record), zip(seqs, stored_ms, texts, contents, strict=True)))
                tail.accept(items, data[starts[-1] : ends[-1]], contents[-1])
            return after

        return scanner

"""The log in files: what is kept when the server is gone, and what replay and audits read without one.

``export`` copies EVENTS and DECISIONS into a directory of segments (``segments.py``); ``ArchiveEventLog`` and
``ArchiveDecisionLog`` are the ports over it. An export may be repeated: it goes on where the files end. It decides
nothing and changes no log.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path

from apportion.adapters.logs.segments import (
    Chain,
    SegmentHeader,
    read_decisions,
    read_events,
    segment_bytes,
    segments_of,
)
from apportion.core.envelope import Record, StoredBatch
from apportion.core.errors import LogMismatch
from apportion.core.ports import DecisionLog, EventLog

SEGMENT_RECORDS = 65_536
SEGMENT_BODY_BYTES = 64 * 1024 * 1024
READ_LIMIT = 8_192


async def export(event_log: EventLog, decision_log: DecisionLog, directory: Path) -> tuple[int, int]:
    """Copy both logs into ``directory``, going on where its files end; return the last sequences copied.

    Decisions are read first: a tick without its batch is normal at the end of a log, a batch without its tick is not.
    Raises ``LogMismatch`` when the logs do not continue the files.
    """
    directory.mkdir(parents=True, exist_ok=True)
    last_decision = await _export_decisions(decision_log, directory)
    last_event = await _export_events(event_log, directory)
    return last_event, last_decision


async def _export_events(log: EventLog, directory: Path) -> int:
    chain = Chain(directory, "events")
    while records := await _gather_records(log, chain.last_seq):
        subjects: dict[str, int] = {}
        rows = array("i", (subjects.setdefault(record.subject, len(subjects)) for record in records))
        header = SegmentHeader(
            kind="events",
            first_seq=records[0].seq,
            last_seq=records[-1].seq,
            count=len(records),
            previous=chain.hash,
            subjects=tuple(subjects),
        )
        stored = array("q", (record.stored_ms for record in records))
        chain.append(header, segment_bytes(header, [stored, rows], [record.body for record in records]))
    return chain.last_seq


async def _export_decisions(log: DecisionLog, directory: Path) -> int:
    chain = Chain(directory, "decisions")
    while batches := await _gather_batches(log, chain.last_seq):
        header = SegmentHeader(
            kind="decisions",
            first_seq=batches[0].seq,
            last_seq=batches[-1].seq,
            count=len(batches),
            previous=chain.hash,
        )
        seqs = array("q", (batch.seq for batch in batches))
        inputs = array("q", (batch.input_seq for batch in batches))
        chain.append(header, segment_bytes(header, [seqs, inputs], [batch.body for batch in batches]))
    return chain.last_seq


async def _gather_records(log: EventLog, after_seq: int) -> list[Record]:
    """Read one segment's worth."""
    records: list[Record] = []
    size = 0
    while len(records) < SEGMENT_RECORDS and size < SEGMENT_BODY_BYTES:
        more = await log.read(after_seq, min(READ_LIMIT, SEGMENT_RECORDS - len(records)))
        if not more:
            break
        records += more
        size += sum(len(record.body) for record in more)
        after_seq = more[-1].seq
    return records


async def _gather_batches(log: DecisionLog, after_seq: int) -> list[StoredBatch]:
    batches: list[StoredBatch] = []
    size = 0
    while len(batches) < SEGMENT_RECORDS and size < SEGMENT_BODY_BYTES:
        more = await log.read(after_seq, min(READ_LIMIT, SEGMENT_RECORDS - len(batches)))
        if not more:
            break
        batches += more
        size += sum(len(batch.body) for batch in more)
        after_seq = more[-1].seq
    return batches


class ArchiveEventLog:
    """EVENTS as exported. One segment at a time is in memory."""

    def __init__(self, directory: Path) -> None:
        """Open the archive in ``directory``; its chain of headers is checked now, the content as it is read."""
        self._segments = segments_of(directory, "events")
        self._loaded: tuple[int, list[Record]] = (-1, [])

    async def last_seq(self) -> int:
        """Return the sequence of the newest record, 0 when empty."""
        return self._segments[-1].header.last_seq if self._segments else 0

    async def read(self, after_seq: int, limit: int) -> list[Record]:
        """Return up to ``limit`` records after ``after_seq``, none at the end. Raises ``LogMismatch`` on damage."""
        records: list[Record] = []
        for segment_records in self._from(after_seq):
            records += segment_records[: limit - len(records)]
            if len(records) >= limit:
                break
        return records

    def records(self, after_seq: int = 0) -> Iterator[list[Record]]:
        """Yield all records after ``after_seq``, a segment at a time, without an event loop."""
        yield from self._from(after_seq)

    async def body_at(self, seq: int) -> bytes | None:
        """Return the body at ``seq``, None when there is no such record."""
        if not 0 < seq <= await self.last_seq():
            return None
        return (await self.read(seq - 1, 1))[0].body

    def _from(self, after_seq: int) -> Iterator[list[Record]]:
        last_seq = self._segments[-1].header.last_seq if self._segments else 0
        if after_seq > last_seq:
            raise LogMismatch(f"the archive ends at seq {last_seq}, before the position {after_seq} asked for")
        for number, segment in enumerate(self._segments):
            if segment.header.last_seq <= after_seq:
                continue
            if self._loaded[0] != number:
                self._loaded = (number, read_events(segment))
            skip = max(after_seq - segment.header.first_seq + 1, 0)
            yield self._loaded[1][skip:] if skip else self._loaded[1]


def _seq_of(batch: StoredBatch) -> int:
    return batch.seq


class ArchiveDecisionLog:
    """DECISIONS as exported. It is closed: nothing can be committed to it."""

    def __init__(self, directory: Path) -> None:
        """Open the archive in ``directory``."""
        self._segments = segments_of(directory, "decisions")
        self._loaded: tuple[int, list[StoredBatch]] = (-1, [])

    async def last_seq(self) -> int:
        """Return the sequence of the newest batch, 0 when empty."""
        return self._segments[-1].header.last_seq if self._segments else 0

    async def read(self, after_seq: int, limit: int) -> list[StoredBatch]:
        """Return up to ``limit`` batches after ``after_seq``, none at the end. Raises ``LogMismatch`` on damage."""
        if after_seq > await self.last_seq():
            raise LogMismatch(
                f"the archive ends at seq {await self.last_seq()}, before the position {after_seq} asked for"
            )
        batches: list[StoredBatch] = []
        for number, segment in enumerate(self._segments):
            if segment.header.last_seq <= after_seq:
                continue
            if self._loaded[0] != number:
                self._loaded = (number, read_decisions(segment))
            start = bisect_right(self._loaded[1], after_seq, key=_seq_of)
            batches += self._loaded[1][start : start + limit - len(batches)]
            if len(batches) >= limit:
                break
        return batches

    async def commit(self, body: bytes, input_seq: int, expected_last_seq: int) -> int:
        """Refuse: an archive has no writer. Raises ``LogMismatch``."""
        raise LogMismatch(f"an archive is closed: the batch for input seq {input_seq} cannot be committed to it")

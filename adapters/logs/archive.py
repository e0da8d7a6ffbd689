r"""The log in files: what is kept when the server is gone, and what replay and audits read without one.

``export`` copies EVENTS and DECISIONS into a directory of segments; ``ArchiveEventLog`` and ``ArchiveDecisionLog`` are
the ports over it. An export may be repeated: it goes on where the files end.

A segment is a pure function of what it holds and of the segment before it::

    APSEG1\n | length of header u32 | header (JSON) | columns (int64, int32) | bodies | blake2b-256 of everything before

The header names kind, first sequence, count, the table of subjects, and the previous segment's hash: a chain. Files are
written beside, synced and renamed, so a segment is there whole or not at all; every hash is verified when a segment is
read. A missing, altered or reordered file is a ``LogMismatch`` that names it, never a silent hole.
"""

from __future__ import annotations

import hashlib
import os
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np

from apportion.core.envelope import Record, StoredBatch
from apportion.core.errors import LogGap, LogMismatch
from apportion.core.ports import DecisionLog, EventLog

MAGIC = b"APSEG1\n"
HASH_BYTES = 32
SEGMENT_RECORDS = 65_536
SEGMENT_BODY_BYTES = 64 * 1024 * 1024
READ_LIMIT = 8_192

Kind = Literal["events", "decisions"]


class SegmentHeader(msgspec.Struct, frozen=True, kw_only=True):
    """The JSON header of a segment. ``last_seq`` and ``first_seq`` are sequences of the stream."""

    kind: Kind
    first_seq: int
    last_seq: int
    count: int
    previous: str  # hex hash of the segment before, "" for the first
    subjects: tuple[str, ...] = ()


class _Segment(msgspec.Struct, frozen=True):
    path: Path
    header: SegmentHeader
    columns_at: int


def segment_bytes(header: SegmentHeader, columns: list[array[int]], bodies: list[bytes]) -> bytes:
    """Return a whole segment."""
    head = msgspec.json.encode(header)
    lengths = array("i", (len(body) for body in bodies))
    parts = [MAGIC, len(head).to_bytes(4, "little"), head, *(column.tobytes() for column in (*columns, lengths)), *bodies]
    content = b"".join(parts)
    return content + hashlib.blake2b(content, digest_size=HASH_BYTES).digest()


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
    chain = _Chain(directory, "events")
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
    chain = _Chain(directory, "decisions")
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


class _Chain:
    """The end of the segments of one kind, and the way to append."""

    def __init__(self, directory: Path, kind: Kind) -> None:
        segments = _segments(directory, kind)
        self._directory = directory
        self._kind = kind
        self.last_seq = segments[-1].header.last_seq if segments else 0
        self.hash = _verified(segments[-1])[-HASH_BYTES:].hex() if segments else ""

    def append(self, header: SegmentHeader, content: bytes) -> None:
        path = self._directory / f"{self._kind}-{header.first_seq:016d}.seg"
        write_durably(path, content)
        self.last_seq = header.last_seq
        self.hash = content[-HASH_BYTES:].hex()


def write_durably(path: Path, content: bytes) -> None:
    """Write beside, sync, rename, sync the directory: afterwards the file is there whole, also after a power cut."""
    temporary = path.with_name(f".{path.name}.tmp")
    with temporary.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _segments(directory: Path, kind: Kind) -> list[_Segment]:
    """Return the segments of one kind in order, with their headers checked against each other."""
    found = []
    next_seq, previous = 1, ""
    for path in sorted(directory.glob(f"{kind}-*.seg")):
        segment = _open(path, kind)
        header = segment.header
        if kind == "events" and header.first_seq != next_seq:
            raise LogGap(next_seq, header.first_seq)
        if header.previous != previous:
            raise LogMismatch(
                f"{path} follows a segment with hash {header.previous or 'none'}, but the one before it has "
                f"{previous or 'none'}: a file is missing or was replaced; restore the archive"
            )
        next_seq = header.last_seq + 1
        with path.open("rb") as file:
            file.seek(-HASH_BYTES, os.SEEK_END)
            previous = file.read().hex()
        found.append(segment)
    return found


def _open(path: Path, kind: Kind) -> _Segment:
    with path.open("rb") as file:
        start = file.read(len(MAGIC) + 4)
        length = int.from_bytes(start[len(MAGIC) :], "little")
        if not start.startswith(MAGIC) or length > 64 * 1024 * 1024:
            raise LogMismatch(f"{path} is no segment of an archive; restore it")
        try:
            header = msgspec.json.decode(file.read(length), type=SegmentHeader)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise LogMismatch(f"the header of {path} is damaged ({error}); restore the archive") from error
    if header.kind != kind:
        raise LogMismatch(f"{path} holds {header.kind}, expected {kind}; restore the archive")
    return _Segment(path, header, len(MAGIC) + 4 + length)


def _verified(segment: _Segment) -> bytes:
    """Read a segment and check its hash."""
    content = segment.path.read_bytes()
    view = memoryview(content)
    if hashlib.blake2b(view[:-HASH_BYTES], digest_size=HASH_BYTES).digest() != content[-HASH_BYTES:]:
        raise LogMismatch(f"{segment.path} does not carry the hash of its content: it was altered; restore the archive")
    return content


def _read_events(segment: _Segment) -> list[Record]:
    content = _verified(segment)
    header, at, count = segment.header, segment.columns_at, segment.header.count
    stored = np.frombuffer(content, np.int64, count, at).tolist()
    rows = np.frombuffer(content, np.int32, count, at + 8 * count).tolist()
    ends = (np.frombuffer(content, np.int32, count, at + 12 * count).cumsum(dtype=np.int64) + at + 16 * count).tolist()
    subjects = header.subjects
    make, record = tuple.__new__, Record
    start = at + 16 * count
    records = []
    for seq, (stored_ms, row, end) in enumerate(zip(stored, rows, ends, strict=True), header.first_seq):
        records.append(make(record, (seq, stored_ms, subjects[row], content[start:end])))
        start = end
    return records


def _read_decisions(segment: _Segment) -> list[StoredBatch]:
    content = _verified(segment)
    at, count = segment.columns_at, segment.header.count
    seqs = np.frombuffer(content, np.int64, count, at).tolist()
    inputs = np.frombuffer(content, np.int64, count, at + 8 * count).tolist()
    lengths = np.frombuffer(content, np.int32, count, at + 16 * count).tolist()
    start = at + 20 * count
    batches = []
    for seq, input_seq, length in zip(seqs, inputs, lengths, strict=True):
        batches.append(StoredBatch(seq, input_seq, content[start : start + length]))
        start += length
    return batches


class ArchiveEventLog:
    """EVENTS as exported. One segment at a time is in memory."""

    def __init__(self, directory: Path) -> None:
        """Open the archive in ``directory``; its chain of headers is checked now, the content as it is read."""
        self._segments = _segments(directory, "events")
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
                self._loaded = (number, _read_events(segment))
            skip = max(after_seq - segment.header.first_seq + 1, 0)
            yield self._loaded[1][skip:] if skip else self._loaded[1]


def _seq_of(batch: StoredBatch) -> int:
    return batch.seq


class ArchiveDecisionLog:
    """DECISIONS as exported. It is closed: nothing can be committed to it."""

    def __init__(self, directory: Path) -> None:
        """Open the archive in ``directory``."""
        self._segments = _segments(directory, "decisions")
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
                self._loaded = (number, _read_decisions(segment))
            start = bisect_right(self._loaded[1], after_seq, key=_seq_of)
            batches += self._loaded[1][start : start + limit - len(batches)]
            if len(batches) >= limit:
                break
        return batches

    async def commit(self, body: bytes, input_seq: int, expected_last_seq: int) -> int:
        """Refuse: an archive has no writer. Raises ``LogMismatch``."""
        raise LogMismatch(f"an archive is closed: the batch for input seq {input_seq} cannot be committed to it")

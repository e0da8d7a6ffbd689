"""The log in files: what is kept when the server is gone, and what replay and audits read without one.

``ArchiveEventLog`` and ``ArchiveDecisionLog`` are the ports over an archive's segments, in the order in which its manifest names
them (``manifest``). Headers and the chain of hashes are checked when it is opened, each segment's content when it is read: damage
of any kind is a ``LogMismatch`` that names the file, never a silent hole. They decide nothing and change no file.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from apportion.adapters.logs import manifest
from apportion.adapters.logs.segments import Kind, Segment, opened, read_decisions, read_events, read_sheet
from apportion.core.envelope import Record, StoredBatch
from apportion.core.errors import LogMismatch

if TYPE_CHECKING:
    from apportion.adapters.logs.sheets import Sheet
    from apportion.core.fold.text import Text

TEXT_RECORDS = 8_192  # so few that their bytes are still near when they are read
FEW = 16  # records that cost less by themselves than with all others of their segment


def segments_of(directory: Path, kind: Kind) -> list[Segment]:
    """Return the segments of one kind in order, their headers and the chain between them checked. Raises ``LogMismatch``."""
    found: list[Segment] = []
    next_seq, previous = 1, ""
    for entry in manifest.load(directory).days:
        for file in entry.events if kind == "events" else entry.decisions:
            path = directory / file.name
            segment = opened(path, kind, next_seq if kind == "events" else 0, previous)
            next_seq, previous = segment.header.last_seq + 1, segment.hash
            if previous != file.hash or segment.size != file.size:
                raise LogMismatch(f"{path} is not the file that {manifest.FILE} names: it was replaced; restore the archive")
            found.append(segment)
    return found


def _last_of(segment: Segment) -> int:
    return segment.header.last_seq


def _seq_of(batch: StoredBatch) -> int:
    return batch.seq


class ArchiveEventLog:
    """EVENTS as archived. One segment at a time is in memory."""

    def __init__(self, directory: Path) -> None:
        """Open the archive in ``directory``."""
        self.directory = directory
        self._segments = segments_of(directory, "events")
        self._loaded: tuple[int, list[Record]] = (-1, [])
        self._sheet: tuple[int, Sheet] | None = None

    async def last_seq(self) -> int:
        """Return the sequence of the newest record, 0 when empty."""
        return self._segments[-1].header.last_seq if self._segments else 0

    async def read(self, after_seq: int, limit: int) -> list[Record]:
        """Return up to ``limit`` records after ``after_seq``, none at the end. Raises ``LogMismatch`` on damage."""
        records: list[Record] = []
        if 0 < limit <= FEW and not self._is_loaded(after_seq):
            while len(records) < limit and after_seq + len(records) < await self.last_seq():
                text = self.text(after_seq + len(records), after_seq + limit)
                records += text.records(0, text.count)
            if records:
                return records
        for start, segment_records in self._from(after_seq):
            records += segment_records[start : start + limit - len(records)]
            if len(records) >= limit:
                break
        return records

    def records(self, after_seq: int = 0) -> Iterator[list[Record]]:
        """Yield all records after ``after_seq``, a segment at a time, without an event loop."""
        for start, segment_records in self._from(after_seq):
            yield segment_records[start:] if start else segment_records

    def text(self, after_seq: int, to_seq: int) -> Text:
        """Return what comes after ``after_seq``, up to ``to_seq`` at most and inside one segment: ``TEXT_RECORDS`` at most.

        Raises ``LogMismatch`` on damage, and where there is no such record.
        """
        number = bisect_right(self._segments, after_seq, key=_last_of)
        if number == len(self._segments):
            raise LogMismatch(f"the archive ends before seq {after_seq + 1}, which is asked for")
        segment = self._segments[number]
        if self._sheet is None or self._sheet[0] != number:
            self._sheet = number, read_sheet(segment)
        header = segment.header
        count = min(header.last_seq, to_seq, after_seq + TEXT_RECORDS) - after_seq
        return self._sheet[1].text(header.first_seq, after_seq + 1 - header.first_seq, count)

    async def body_at(self, seq: int) -> bytes | None:
        """Return the body at ``seq``, None when there is no such record."""
        if not 0 < seq <= await self.last_seq():
            return None
        return (await self.read(seq - 1, 1))[0].body

    def forget(self) -> None:
        """Let go of the segment in memory."""
        self._loaded, self._sheet = (-1, []), None

    def _is_loaded(self, after_seq: int) -> bool:
        return self._loaded[0] == bisect_right(self._segments, after_seq, key=_last_of)

    def _from(self, after_seq: int) -> Iterator[tuple[int, list[Record]]]:
        """Yield each segment's records from ``after_seq`` on, with the position of the first that is wanted."""
        last_seq = self._segments[-1].header.last_seq if self._segments else 0
        if after_seq > last_seq:
            raise LogMismatch(f"the archive ends at seq {last_seq}, before the position {after_seq} asked for")
        for number in range(bisect_right(self._segments, after_seq, key=_last_of), len(self._segments)):
            segment = self._segments[number]
            if self._loaded[0] != number:
                self._loaded = (number, read_events(segment))
            yield max(after_seq - segment.header.first_seq + 1, 0), self._loaded[1]


class ArchiveDecisionLog:
    """DECISIONS as archived. It is closed: nothing can be committed to it."""

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
        for number in range(bisect_right(self._segments, after_seq, key=_last_of), len(self._segments)):
            if self._loaded[0] != number:
                self._loaded = (number, read_decisions(self._segments[number]))
            start = bisect_right(self._loaded[1], after_seq, key=_seq_of)
            batches += self._loaded[1][start : start + limit - len(batches)]
            if len(batches) >= limit:
                break
        return batches

    def forget(self) -> None:
        """Let go of the segment in memory."""
        self._loaded = (-1, [])

    async def commit(self, body: bytes, input_seq: int, expected_last_seq: int) -> int:
        """Refuse: an archive has no writer. Raises ``LogMismatch``."""
        raise LogMismatch(f"an archive is closed: the batch for input seq {input_seq} cannot be committed to it")

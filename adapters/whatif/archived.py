"""Reading a range out of an archive: plain heartbeats as the columns they are kept as, everything else as records.

Nine records in ten are never made. A pure function of the segments, which it reads and verifies; who fills a history decides from
where to where. What the columns cannot vouch for (a name in another spelling, a time that does not follow) is read as records.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from apportion.adapters.logs.archive import segments_of
from apportion.adapters.logs.segments import read_sheet
from apportion.adapters.logs.sheets import Sheet
from apportion.adapters.whatif.beats import I64, Plain
from apportion.adapters.whatif.history import Reader, peeked
from apportion.core.envelope import Record
from apportion.core.kernels.reports import READ
from apportion.core.units import MAX_ELAPSED_MS, MAX_TIME_MS

RECORDS = 65_536  # at once


class Piece(NamedTuple):
    """Records of one segment: positions ``start`` to before ``stop`` of its sheet, whose first has ``first_seq``."""

    sheet: Sheet
    first_seq: int
    start: int
    stop: int

    @property
    def last_seq(self) -> int:
        """Sequence of the last one."""
        return self.first_seq + self.stop - 1


def pieces(directory: Path, after_seq: int, to_seq: int) -> Iterator[Piece]:
    """Yield what comes after a record up to another. Raises ``LogMismatch`` on damage."""
    for segment in segments_of(directory, "events"):
        first_seq, last_seq = segment.header.first_seq, min(segment.header.last_seq, to_seq)
        begin = max(after_seq + 1, first_seq)
        if begin > last_seq:
            continue
        sheet, end = read_sheet(segment), last_seq + 1 - first_seq
        for start in range(begin - first_seq, end, RECORDS):
            yield Piece(sheet, first_seq, start, min(end, start + RECORDS))


def take(reader: Reader, piece: Piece) -> None:
    """Let a reader take a piece; the batches that answer its ticks it has taken before."""
    sheet, history = piece.sheet, reader.history
    told, part = sheet.told, slice(piece.start, piece.stop)
    who, beat = told.who[part], told.beat[part]
    plain = (told.form[part] == READ) & (told.down[part] == 0) & (told.start[part] == 0)  # without any list
    plain &= (beat > 0) & np.array([bool(node) and "\\" not in node for node in sheet.nodes], dtype=bool)[who]
    here, rest = np.flatnonzero(plain), np.flatnonzero(~plain)
    text = sheet.text(piece.first_seq, piece.start, piece.stop - piece.start) if len(rest) else None
    others = [text.record(place) for place in rest.tolist()] if text is not None else []
    claimed = (told.at_ms if history.stated else told.stored_ms)[part].copy()
    claimed[rest] = [_claim(record, stated=history.stated) for record in others]
    if claimed.min() < 0 or claimed.max() > min(history.to_ms + MAX_ELAPSED_MS, MAX_TIME_MS):
        reader.take(sheet.text(piece.first_seq, piece.start, piece.stop - piece.start).records(0, piece.stop - piece.start), ())
        return
    times_ms: I64 = np.maximum.accumulate(np.maximum(claimed, history.to_ms))
    first_seq = piece.first_seq + piece.start
    speakers = list(zip(sheet.subjects, sheet.nodes, strict=True))
    beats = Plain(speakers, first_seq + here, times_ms[here], who[here], beat[here])
    reader.take_read(beats, others, times_ms[rest].tolist(), (piece.last_seq, int(times_ms[-1])))


def _claim(record: Record, *, stated: bool) -> int:
    """Return the instant that a record claims; one that cannot follow any other stays so."""
    return max(-1, min(peeked(record.body).at_ms, MAX_TIME_MS + 1)) if stated else record.stored_ms

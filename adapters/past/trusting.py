"""The state at a sequence, from the segments of an archive: the fastest way, for months and years.

Heartbeats go from their columns into the state, without their bytes; the common kinds of other records, and stored decisions, are
read and folded by one kernel where they stand (``core.fold.stretches``). Then the chain over the records is not computed but taken
from the stored batches: a replay of this kind trusts the hashes of the segments, each of which is verified, instead of that chain.
Of each batch the cycle, the tick it answers, its time and its books are compared, and the accounts are checked; the digest of the
last batch before the end is computed and compared: it covers the state whole, so all that was folded before it. From there on the
records themselves are read, chain included. A field of a stored decision that no state depends on is passed over unread: whoever
wrote the archive has decoded every batch whole. ``verify`` trusts none of that and derives everything from the bytes. A pure
function of the archive; it never writes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from apportion.adapters.logs.archive import segments_of
from apportion.adapters.logs.segments import Segment, read_decisions, read_sheet
from apportion.adapters.logs.sheets import Sheet
from apportion.adapters.past.differences import Difference
from apportion.adapters.past.driving import OnProgress, Progress
from apportion.adapters.past.replaying import core_from
from apportion.adapters.processes.build import is_kept
from apportion.adapters.processes.collector import without_collector
from apportion.core.engine import Core
from apportion.core.envelope import Record, StoredBatch
from apportion.core.errors import Divergence, InvariantBroken, LogMismatch
from apportion.core.fold.columns import Columns, Room
from apportion.core.fold.stretches import Batches

COMPILES = "compiling what folds long stretches of a log: once for this build, about a minute"


def columns_of(sheet: Sheet, first_seq: int, count: int) -> Columns:
    """Return the first ``count`` records of a sheet as the core's fold takes them."""

    def record(position: int) -> Record:
        return sheet.folded(position, first_seq)

    return Columns(first_seq, count, sheet.subjects, sheet.nodes, sheet.told, sheet.data, record)


def state_from(
    directory: Path, to_seq: int | None = None, from_snapshot: bytes | None = None, progress: OnProgress | None = None
) -> Core:
    """Return the core after record ``to_seq`` of an archive (None: the last), trusting its segments.

    Raises ``ValueError`` for a sequence outside the archive or before the snapshot, ``LogMismatch`` for damage, and ``Difference``
    when a stored cycle does not belong to the log.
    """
    return state_and_position(directory, to_seq, from_snapshot, progress)[0]


def state_and_position(
    directory: Path, to_seq: int | None = None, from_snapshot: bytes | None = None, progress: OnProgress | None = None
) -> tuple[Core, int]:
    """Return the core as ``state_from``, and the sequence of the last batch it took (0: none since the snapshot)."""
    with without_collector():
        return _replayed(core_from(from_snapshot), directory, to_seq, progress)


def _replayed(core: Core, directory: Path, to_seq: int | None, progress: OnProgress | None) -> tuple[Core, int]:
    segments = segments_of(directory, "events")
    last_seq = segments[-1].header.last_seq if segments else 0
    stop_seq = last_seq if to_seq is None else to_seq
    if not core.seq <= stop_seq <= last_seq:
        raise ValueError(f"seq {stop_seq:,} is not from {core.seq:,}, where the replay begins, to {last_seq:,}, the archive's end")
    first_day, last_day = _day_of(segments, core.seq), _day_of(segments, stop_seq)
    answers = [segment for segment in segments_of(directory, "decisions") if first_day <= segment.header.day <= last_day]
    batches = _Answers(answers, core, stop_seq)
    at = Progress(last_seq=stop_seq)
    if core.tick_pending and batches.last_input_seq >= core.seq:
        batches.trust(core)
    start_seq = core.seq
    if progress is not None and not is_kept("stretch"):
        progress(replace(at, pause=COMPILES))
    room = Room()
    for segment in segments:
        first_seq, end_seq = segment.header.first_seq, min(segment.header.last_seq, stop_seq)
        if end_seq <= core.seq:
            continue
        _fold(core, segment, first_seq, end_seq, batches, room)
        at.events, at.seq, at.time_ms, at.cycles = core.seq - start_seq, core.seq, core.time_ms, core.cycle
        if progress is not None:
            progress(at)
    return core, batches.position


def _day_of(segments: list[Segment], seq: int) -> str:
    """Return the day of a record, and so of the batch that answers it; "" before the first."""
    return max((segment.header.day for segment in segments if segment.header.first_seq <= seq), default="")


def _fold(core: Core, segment: Segment, first_seq: int, end_seq: int, batches: _Answers, room: Room) -> None:
    sheet = read_sheet(segment, room)
    blind_seq = min(end_seq, batches.last_input_seq)
    if blind_seq > core.seq:
        columns = columns_of(sheet, first_seq, blind_seq - first_seq + 1)
        position = core.seq + 1 - first_seq
        while position < columns.count:
            position = batches.fold(core, columns, position)
            if core.tick_pending:
                batches.trust(core)
    if core.seq < end_seq:  # after the last batch: the bytes, for the chain
        rest = sheet.records(first_seq)[core.seq + 1 - first_seq : end_seq + 1 - first_seq]
        if core.fold_many(rest) < len(rest):
            raise LogMismatch(f"the tick of seq {core.seq:,} has no batch, but records follow it; run `apportion verify`")


class _Answers:
    """The stored batches from the core's position up to a sequence, tick by tick."""

    def __init__(self, segments: list[Segment], core: Core, stop_seq: int) -> None:
        first_seq = core.seq + (0 if core.tick_pending else 1)
        self._rest = _batches(segments, first_seq)
        self._part = Batches((), 0)
        self._last_seq = 0  # of the last batch of the parts before this one
        self.last_input_seq = 0  # the tick that the last batch to be trusted answers
        for segment in reversed(segments):
            inputs = [batch.input_seq for batch in read_decisions(segment) if first_seq <= batch.input_seq <= stop_seq]
            if inputs:
                self.last_input_seq = inputs[-1]
                break

    @property
    def position(self) -> int:
        """Sequence of the last batch taken, 0 before the first."""
        part = self._part
        return part.batches[part.taken - 1].seq if part.taken else self._last_seq

    def _next(self) -> StoredBatch | None:
        while self._part.next() is None:
            batches = next(self._rest, None)
            if batches is None:
                return None
            self._last_seq = self.position
            self._part = Batches(batches, sum(batch.input_seq < self.last_input_seq for batch in batches))
        return self._part.next()

    def fold(self, core: Core, columns: Columns, position: int) -> int:
        """Fold columns and the batches that answer them; returns the position reached, with the tick before it pending or not."""
        self._next()
        try:
            return core.trust_columns(columns, position, self._part)
        except Divergence as error:
            raise _broken(core, error) from error

    def trust(self, core: Core) -> None:
        """Fold the batch that answers the pending tick; hash the state only where it is the last."""
        batch = self._next()
        if batch is None or batch.input_seq != core.seq:
            said = "no stored batch answers it" if batch is None else f"the next stored batch answers seq {batch.input_seq:,}"
            detail = f"the tick is seq {core.seq:,}, {said}"
            raise Difference({"what": "order", "seq": core.seq, "cycle": core.cycle + 1, "detail": detail})
        try:
            core.trust(batch.body, check=batch.input_seq >= self.last_input_seq, done=self._part.done)
        except InvariantBroken:
            raise
        except Exception as error:  # stored bytes are not to be believed: whatever they break is their fault
            raise _broken(core, error) from error
        self._part.took()


def _broken(core: Core, error: Exception) -> Difference:
    detail = f"the stored batch cannot be folded: {type(error).__name__}: {error}"
    return Difference({"what": "batch", "seq": core.seq, "cycle": core.cycle + 1, "detail": detail})


def _batches(segments: list[Segment], first_input_seq: int) -> Iterator[list[StoredBatch]]:
    for segment in segments:
        wanted = [batch for batch in read_decisions(segment) if batch.input_seq >= first_input_seq]
        if wanted:
            yield wanted

"""From two logs to a history: where a range begins and ends, and reading it once.

Reads through the ports, so a live log and one in memory are alike, and an archive as columns (``archived``); it never writes. A
range begins after a decided cycle: the first of the log at the earliest, because before it there is no cluster. ``read`` keeps the
heartbeats of a range of more than ``ALL_BEATS`` records thinned to what timeouts need, so that a month fits into memory.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from apportion.adapters.logs.archive import ArchiveEventLog
from apportion.adapters.logs.joined import JoinedEventLog
from apportion.adapters.processes.collector import without_collector
from apportion.adapters.whatif import archived
from apportion.adapters.whatif.history import History, Reader
from apportion.adapters.whatif.measures import Measured, Measures
from apportion.core.envelope import StoredBatch
from apportion.core.errors import LogMismatch
from apportion.core.ports import DecisionLog, EventLog

if TYPE_CHECKING:
    from apportion.core.engine import Core

READ_EVENTS = 10_000
READ_BATCHES = 1_000
ALL_BEATS = 5_000_000
BEATS_PER_TIMEOUT = 3

OnProgress = Callable[[int, int], None]  # records read, of how many


async def first_cycle(decisions: DecisionLog) -> int:
    """Return the tick of the first cycle of the log, 0 when nothing was decided."""
    batches = await decisions.read(0, 1)
    return batches[0].input_seq if batches else 0


class _Ahead:
    """The batches after a core, read ahead. Cycle n stands at sequence n of the decision log, or later where some came in parts."""

    def __init__(self, decisions: DecisionLog, core: Core) -> None:
        self._decisions = decisions
        self._after_seq, self._past_seq = core.cycle, core.seq
        self._waiting: list[StoredBatch] = []

    async def up_to(self, seq: int) -> list[StoredBatch]:
        """Return the batches not returned yet that answer ticks up to a record."""
        while not self._waiting or self._waiting[-1].input_seq < seq:
            try:
                more = await self._decisions.read(self._after_seq, READ_BATCHES)
            except LogMismatch:
                if not self._after_seq or self._waiting:
                    raise
                self._after_seq = 0  # the middle of a batch in parts
                continue
            if not more:
                break
            self._after_seq = more[-1].seq
            self._waiting += [batch for batch in more if batch.input_seq > self._past_seq]
        found = [batch for batch in self._waiting if batch.input_seq <= seq]
        self._waiting = self._waiting[len(found) :]
        return found


async def read(
    core: Core, events: EventLog, decisions: DecisionLog, to_seq: int, progress: OnProgress | None = None
) -> tuple[History, Measured]:
    """Return the history after ``core`` up to a record, and what was measured of it."""
    measures = Measures(core, core.time_ms)
    timeout_ms = int(core.state.pool.column("heartbeat_timeout_ms").min())
    apart_ms = timeout_ms // BEATS_PER_TIMEOUT if to_seq - core.seq > ALL_BEATS else 0
    reader, batches, seq = Reader(core, measures.take, apart_ms=apart_ms), _Ahead(decisions, core), core.seq
    with without_collector():
        if (archive := await _archive_of(events, seq)) is not None:
            for piece in archived.pieces(archive[0], seq, min(to_seq, archive[1])):
                seq = piece.last_seq
                reader.take((), await batches.up_to(seq))
                archived.take(reader, piece)
                if progress is not None:
                    progress(seq - core.seq, to_seq - core.seq)
        while seq < to_seq:
            records = await events.read(seq, min(READ_EVENTS, to_seq - seq))
            if not records:
                break
            seq = records[-1].seq
            reader.take(records, await batches.up_to(seq))
            if progress is not None:
                progress(seq - core.seq, to_seq - core.seq)
    history = reader.finish()
    if apart_ms:
        history.beats = history.beats.thinned(apart_ms)
    return history, measures.finish(history.to_ms)


async def _archive_of(events: EventLog, after_seq: int) -> tuple[Path, int] | None:
    """Return the archive that holds what follows a record, and up to which one; None where a live log does."""
    if isinstance(events, ArchiveEventLog):
        return events.directory, await events.last_seq()
    behind = await events.archived(after_seq) if isinstance(events, JoinedEventLog) else None
    return (behind.directory, behind.until_seq) if behind is not None else None

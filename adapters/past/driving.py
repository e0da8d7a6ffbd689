"""A core taken along two stored logs: record by record, and at each tick the batch that answers it.

Decides what comes next and that it fits: one accepted ``clock.tick`` is one batch, in the same order; the batch's ``input_seq`` is
the tick's sequence. A tick at the very end without a batch is a cycle in progress, not a difference. Whether a batch is trusted or
derived again is the caller's choice (``replaying``, ``verifying``). A function of the logs and the core given; no log is written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from apportion.adapters.past.differences import Difference, describe
from apportion.adapters.processes.collector import without_collector
from apportion.core.errors import InvariantBroken, LogMismatch
from apportion.core.ports import DecisionLog, EventLog

if TYPE_CHECKING:
    from apportion.core.engine import Core
    from apportion.core.envelope import StoredBatch

READ_EVENTS = 5_000
READ_BATCHES = 500


@dataclass
class Progress:
    """Where a replay is. ``last_seq`` is the sequence it will stop at; ``pause`` says why it goes no further for a while."""

    events: int = 0
    cycles: int = 0
    seq: int = 0
    last_seq: int = 0
    time_ms: int = 0
    pause: str = ""


OnProgress = Callable[[Progress], None]
OnBatch = Callable[["StoredBatch"], None]


class StoredBatches:
    """The stored batches from a position on, in order, read ahead in chunks.

    The n-th cycle is usually message n of the decision log; a batch so large that it travelled in parts takes several
    sequences. So cycle n stands at sequence n or later: reading starts there and skips what the core has folded.
    """

    def __init__(self, log: DecisionLog, cycle: int, first_input_seq: int) -> None:
        """Begin after ``cycle`` cycles, with the first batch that answers ``first_input_seq`` or a later tick."""
        self._log = log
        self._after_seq = cycle
        self._first_input_seq = first_input_seq
        self._waiting: list[StoredBatch] = []
        self._placed = False
        self.position = 0  # sequence in the decision log of the last batch handed out

    async def next(self) -> StoredBatch | None:
        """Return the next batch, None at the end of the log."""
        while not self._waiting:
            try:
                found = await self._log.read(self._after_seq, READ_BATCHES)
            except LogMismatch:
                if self._placed or self._after_seq == 0:
                    raise
                self._after_seq = 0  # the middle of a batch in parts
                continue
            if not found:
                return None
            self._after_seq = found[-1].seq
            fresh = [batch for batch in found if batch.input_seq >= self._first_input_seq]
            self._placed = self._placed or bool(fresh)
            self._waiting = fresh[::-1]
        batch = self._waiting.pop()
        self.position = batch.seq
        return batch


async def drive(
    core: Core,
    event_log: EventLog,
    decision_log: DecisionLog,
    to_seq: int | None,
    at: Progress,
    progress: OnProgress | None,
    *,
    derive: bool,
    check: bool = True,
    taken: OnBatch | None = None,
) -> StoredBatches:
    """Take ``core`` along to ``to_seq`` (None: the end) and ``at`` with it; return where it is in the batches.

    ``derive`` decides each cycle again and compares it; else it is trusted, and with ``check`` the digest is compared. ``taken`` is
    called with each batch. Raises ``Difference``, ``ValueError`` for a ``to_seq`` outside the log, and what the ports raise.
    """
    last_seq = await event_log.last_seq()
    stop_seq = last_seq if to_seq is None else to_seq
    if stop_seq > last_seq:
        raise ValueError(f"seq {stop_seq:,} is beyond the log, which ends at {last_seq:,}")
    if stop_seq < core.seq:
        raise ValueError(f"seq {stop_seq:,} is before the snapshot to start from, which is at {core.seq:,}")
    batches = StoredBatches(decision_log, core.cycle, core.seq + (0 if core.tick_pending else 1))
    at.last_seq = stop_seq
    how = _How(derive, check, taken, last_seq)
    with without_collector():
        await _go_on(core, event_log, batches, stop_seq, at, progress, how)
    return batches


async def _go_on(
    core: Core, event_log: EventLog, batches: StoredBatches, stop_seq: int, at: Progress, progress: OnProgress | None, how: _How
) -> None:
    start_seq = core.seq
    if core.tick_pending and not await _cycle(core, batches, at, how):
        return
    told_seq = core.seq
    while core.seq < stop_seq:
        read = await _next(core, event_log, stop_seq)
        while read.go_on():
            if core.tick_pending and not await _cycle(core, batches, at, how):
                return
            if core.seq - told_seq >= READ_EVENTS or core.seq == stop_seq:
                at.events, at.seq, at.time_ms = core.seq - start_seq, core.seq, core.time_ms
                told_seq = core.seq
                if progress is not None:
                    progress(at)
                await asyncio.sleep(0)  # not every log waits when it is read


@dataclass
class _Read:
    """What was read last, and how far it is folded: ``fold`` goes from a position up to the next tick, or the end at ``count``."""

    fold: Callable[[int], int]
    position: int
    count: int

    def go_on(self) -> bool:
        """Fold up to the next tick; False when nothing is left."""
        if self.position == self.count:
            return False
        self.position = self.fold(self.position)
        return True


async def _next(core: Core, event_log: EventLog, stop_seq: int) -> _Read:
    """Read what comes after the core's last record: of an archive, many in one text."""
    from apportion.adapters.logs.archive import ArchiveEventLog
    from apportion.adapters.logs.joined import JoinedEventLog

    archive: object = event_log
    if isinstance(event_log, JoinedEventLog) and (behind := await event_log.archived(core.seq)) is not None:
        archive, stop_seq = behind.log, min(stop_seq, behind.until_seq)
    if isinstance(archive, ArchiveEventLog):
        text = archive.text(core.seq, stop_seq)
        return _Read(partial(core.fold_text, text), 0, text.count)
    records = await event_log.read(core.seq, min(READ_EVENTS, stop_seq - core.seq))
    if not records:
        raise LogMismatch(f"the log promised seq {stop_seq:,} but ends at {core.seq:,}")
    return _Read(partial(core.fold_many, records), 0, len(records))


@dataclass(frozen=True)
class _How:
    """What is done with each stored batch: derived again, or trusted; and where the log ends."""

    derive: bool
    check: bool
    taken: OnBatch | None
    last_seq: int


async def _cycle(core: Core, batches: StoredBatches, at: Progress, how: _How) -> bool:
    """Decide the pending cycle; False when its batch is not written yet, which is fine at the end of the log only."""
    stored = await batches.next()
    if stored is None:
        if how.derive and core.seq < how.last_seq:
            later = "the log has records after this tick, but no batch answers it"
            raise Difference({"what": "missing batch", "seq": core.seq, "cycle": core.cycle + 1, "detail": later})
        return False
    if stored.input_seq != core.seq:
        detail = f"the tick is seq {core.seq:,}, the next stored batch answers seq {stored.input_seq:,}"
        raise Difference({"what": "order", "seq": core.seq, "cycle": core.cycle + 1, "detail": detail})
    if not how.derive:
        try:
            core.trust(stored.body, check=how.check)
        except InvariantBroken:
            raise
        except Exception as error:  # stored bytes are not to be believed: whatever they break is their fault
            detail = f"the stored batch cannot be folded: {type(error).__name__}: {error}"
            raise Difference({"what": "batch", "seq": core.seq, "cycle": core.cycle + 1, "detail": detail}) from error
    else:
        derived = core.decide()
        if derived != stored.body:
            raise Difference(describe(stored.body, derived))
    if how.taken is not None:
        how.taken(stored)
    at.cycles += 1
    return True

"""Writing an archive: both logs, day by day, each record folded and each decision trusted on the way.

A day (UTC, of record time as the core counts it) is *over* when the log has a record of a later day. Only then it is sealed: its
segments, a snapshot of the core's state at its end, and its line in the manifest, which is written last. So a day is in the
archive whole or not at all, exactly once, and a write that was interrupted goes on with the day it was at. A day that is not over
stays in the log; on request it is added open, and the next write takes its place.

Trusting checks the chain over all records and the digest of the state at every stored batch: a log that does not belong together
is not archived, it is named. Everything is a function of the two logs and of what the directory holds; neither log is changed.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

from apportion.adapters.logs.archive import ArchiveDecisionLog, ArchiveEventLog
from apportion.adapters.logs.claims import claimed_ms
from apportion.adapters.logs.manifest import DayEntry, Manifest, day_of, day_text, file_entry, load, locked
from apportion.adapters.logs.parts import DayParts, chain_end, sweep
from apportion.adapters.past.driving import OnProgress, Progress
from apportion.adapters.past.replaying import state_and_position
from apportion.adapters.past.snapshots import ARCHIVED, KEEP_ALL, DiskSnapshots, record_hash
from apportion.adapters.service.recovery import StoredCycles
from apportion.core.engine import Core
from apportion.core.envelope import Record
from apportion.core.errors import LogMismatch, SnapshotInvalid
from apportion.core.ports import DecisionLog, EventLog
from apportion.core.units import MS_PER_DAY

READ_EVENTS = 5_000


@dataclass(frozen=True)
class Written:
    """What a write did: the days it added, where archive and log end, and the day that is not over."""

    days: tuple[DayEntry, ...]
    archived_seq: int
    log_seq: int
    unfinished_day: str = ""
    waiting_seq: int = 0  # the tick whose batch is not written yet, where the write had to stop


async def write(
    event_log: EventLog,
    decision_log: DecisionLog,
    directory: Path,
    *,
    with_open_day: bool = False,
    progress: OnProgress | None = None,
) -> Written:
    """Archive every day that is over and not archived yet; with ``with_open_day`` also what there is of the last one.

    Raises ``LogMismatch`` when the logs do not continue the archive, ``LogGap``, and ``Divergence`` when a stored decision is not
    one of this log.
    """
    with locked(directory):
        manifest = load(directory)
        log_seq = await event_log.last_seq()
        core = await _resume(event_log, directory, manifest, log_seq)
        scribe = _Scribe(directory, manifest, core, decision_log)
        at = Progress(last_seq=log_seq)
        start_seq = core.seq
        while core.seq < log_seq and not scribe.waiting:
            records = await event_log.read(core.seq, min(READ_EVENTS, log_seq - core.seq))
            if not records:
                raise LogMismatch(f"the log promised seq {log_seq:,} but ends at {core.seq:,}")
            await scribe.take(records)
            at.events, at.seq, at.time_ms, at.cycles = core.seq - start_seq, core.seq, core.time_ms, core.cycle
            if progress is not None:
                progress(at)
            await asyncio.sleep(0)
        if with_open_day:
            await scribe.close(sealed=False)
        days = load(directory).days  # an open day of before stays until it is replaced
        sweep(directory, days)
        return Written(
            days=tuple(scribe.added),
            archived_seq=days[-1].last_seq if days else 0,
            log_seq=log_seq,
            unfinished_day=scribe.day_name if scribe.records else "",
            waiting_seq=core.seq if scribe.waiting else 0,
        )


async def _resume(event_log: EventLog, directory: Path, manifest: Manifest, log_seq: int) -> Core:
    """Return the core at the end of the last sealed day, after checking that the log is the one archived."""
    if not manifest.sealed:
        return Core.new()
    last = manifest.sealed[-1]
    if log_seq < last.last_seq:
        raise LogMismatch(
            f"the log ends at seq {log_seq:,}, but {directory} has archived {last.last_seq:,} records: this is another log, or "
            "its end was lost; archive it elsewhere with --to, or restore it"
        )
    found = DiskSnapshots(directory / ARCHIVED).load_with_meta(last.last_seq)
    snapshot = None
    if found is not None and found[0].seq == last.last_seq:
        meta, data = found
        record = (await event_log.read(last.last_seq - 1, 1))[0]
        if record_hash(record.subject, record.body) != meta.record_hash:
            raise LogMismatch(
                f"seq {last.last_seq:,} of the log is not the record that {directory} has archived: this is another log; "
                "archive it elsewhere with --to"
            )
        snapshot = data
    try:
        core = Core.from_snapshot(snapshot) if snapshot is not None else None
    except SnapshotInvalid:  # made by another version
        core = None
    if core is None:
        archived = ArchiveEventLog(directory), ArchiveDecisionLog(directory)
        core, _position = await state_and_position(*archived, last.last_seq)
    return core


class _Scribe:
    """Follows the log with a core and closes a day when the first record of a later one is met."""

    def __init__(self, directory: Path, manifest: Manifest, core: Core, decision_log: DecisionLog) -> None:
        self.manifest = Manifest(days=manifest.sealed)
        self.added: list[DayEntry] = []
        self.waiting = False  # for the batch of the last tick
        self.records = 0  # of the day that is being written
        self._directory = directory
        self._core = core
        self._snapshots = DiskSnapshots(directory / ARCHIVED, keep=KEEP_ALL)
        self._decision_seq = manifest.sealed[-1].last_decision if manifest.sealed else 0
        self._cycles = StoredCycles(decision_log, self._decision_seq)
        self._last: Record | None = None
        self._first_seq = core.seq + 1
        self._open()

    def _open(self) -> None:
        """Begin the day of the record that comes next; it is named when that record's time is known."""
        self.day_name, self._end_ms, self.records = "", 0, 0
        self._early: list[Record] = []
        self._events: DayParts | None = None
        self._decisions: DayParts | None = None

    async def take(self, records: list[Record]) -> None:
        """Fold and keep what follows; stops, ``waiting``, behind a tick that is not decided yet."""
        counters = self._core.state.counters
        position = 0
        while position < len(records) and not self.waiting:
            edge = position
            if self._end_ms:
                stated, end_ms = bool(counters.stated), self._end_ms
                claims = (claimed_ms(records[at], stated=stated) >= end_ms for at in range(position, len(records)))
                edge = next((at for at, later in enumerate(claims, position) if later), len(records))
            await self._keep(records[position:edge])
            if edge < len(records) and not self.waiting:
                await self._step(records[edge])
            position = edge + 1

    async def _step(self, record: Record) -> None:
        """Fold a record with which a day may begin: the first of all, or one that claims an instant after the day's end."""
        core = self._core
        before = (core.snapshot(), core.digest(), core.time_ms) if self._end_ms else None
        ticked = core.fold(record)
        if before is not None and core.time_ms >= self._end_ms:
            await self.close(sealed=True, before=before)
        if not self._end_ms and core.state.counters.opened:
            self._name(day_of(core.time_ms))
        self._add([record])
        if ticked:
            await self._decide()

    async def _keep(self, records: list[Record]) -> None:
        """Fold records of the day that is open."""
        core, at = self._core, 0
        while at < len(records) and not self.waiting:
            reached = core.fold_many(records, at)
            self._add(records[at:reached])
            at = reached
            if core.tick_pending:
                await self._decide()

    async def _decide(self) -> None:
        batch = await self._cycles.answer_to(self._core.seq)
        if batch is None:
            self.waiting = True
            return
        self._core.trust(batch.body)
        if self._decisions is not None:
            self._decisions.add([batch])
        self._decision_seq = batch.seq

    def _name(self, day: int) -> None:
        self.day_name, self._end_ms = day_text(day), (day + 1) * MS_PER_DAY
        chains = {kind: chain_end(self.manifest, kind) for kind in ("events", "decisions")}
        self._events = DayParts(self._directory, "events", self.day_name, chains["events"])
        self._decisions = DayParts(self._directory, "decisions", self.day_name, chains["decisions"])
        self._events.add(self._early)

    def _add(self, records: list[Record]) -> None:
        if not records:
            return
        if self._events is None:  # before log.opened: they are counted to the day on which the log opens
            self._early += records
        else:
            self._events.add(records)
        self.records += len(records)
        self._last = records[-1]

    async def close(self, *, sealed: bool, before: tuple[bytes, str, int] | None = None) -> None:
        """Finish the day: its files, then its snapshot, then its line. ``before``: snapshot, digest and time at its end."""
        core = self._core
        if self._events is None or self._decisions is None or self._last is None or not self.records:
            return
        data, digest, time_ms = before or (b"", core.digest(), core.time_ms)
        events, decisions = self._events.finish(), self._decisions.finish()
        snapshot = None
        if sealed:
            seal = record_hash(self._last.subject, self._last.body)
            self._snapshots.save(self._last.seq, data, record_hash=seal, decision_seq=self._decision_seq)
            snapshot = file_entry(self._directory, f"{ARCHIVED}/snapshot-{self._last.seq:016d}.bin")
        entry = DayEntry(
            day=self.day_name,
            sealed=sealed,
            first_seq=self._first_seq,
            last_seq=self._last.seq,
            last_ms=time_ms,
            stated=bool(core.state.counters.stated),
            cycles=self._decisions.count,
            last_decision=self._decision_seq,
            digest=digest,
            events=events,
            decisions=decisions,
            snapshot=snapshot,
        )
        self.manifest = Manifest(days=(*self.manifest.days, entry))
        self.manifest.save(self._directory)
        self.added.append(entry)
        self._open()
        self._first_seq = self._last.seq + 1

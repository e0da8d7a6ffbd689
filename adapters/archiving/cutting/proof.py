"""Whether a cut may be made: everything that it rests on, checked; refused with what does not hold.

- Two snapshots of the core beyond the cut are right: the second is reached from the first by the archive's records and stored
  decisions, byte for byte, and the digest that the last stored batch on the way carries is computed and compared.
- Every record and every batch that the streams hold, up to the archive's last sealed one, is the same in the archive, byte for byte
  and with its stored time. That is more than is dropped: what a replica may lose beyond the cut is covered too.
- Decisions go on beyond the cut, and whoever reads a stream now has read beyond it.

A function of archive and streams; it changes neither.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from apportion.adapters.archiving.cutting.plan import CutRefused, Plan, loaded, snapshot_of
from apportion.adapters.bus.archived import Stream
from apportion.adapters.bus.connection import Connection
from apportion.adapters.bus.decisions import NatsDecisionLog
from apportion.adapters.bus.reader import NatsEventLog
from apportion.adapters.logs.archive import ArchiveDecisionLog, ArchiveEventLog
from apportion.adapters.past.differences import Difference
from apportion.adapters.past.driving import OnProgress, Progress
from apportion.adapters.past.trusting import state_from
from apportion.core.envelope import Record, StoredBatch
from apportion.core.errors import LogGap

READ_EVENTS = 5_000
READ_BATCHES = 500


@dataclass(frozen=True)
class Proved:
    """What was compared, and how large what goes is: subjects and bodies."""

    records: int
    batches: int
    bytes_dropped: int


async def prove(connection: Connection, wanted: Plan, progress: OnProgress | None = None) -> Proved:
    """Check everything that a cut rests on. Raises ``CutRefused``, which says what does not hold, and ``LogMismatch``."""
    await asyncio.to_thread(_check_snapshots, wanted)
    await _check_readers(connection, wanted)
    records, dropped = await _same_events(connection, wanted, progress)
    batches, more = await _same_decisions(connection, wanted)
    return Proved(records, batches, dropped + more)


def _check_snapshots(wanted: Plan) -> None:
    first, second = wanted.snapshots
    loaded(wanted.directory, first)
    try:
        reached = state_from(wanted.directory, second.last_seq, snapshot_of(wanted.directory, first))
    except Difference as error:
        raise CutRefused(f"the snapshot of {first.day} does not lead to the stored decisions of {second.day}: {error}") from error
    if reached.snapshot() != snapshot_of(wanted.directory, second):
        raise CutRefused(
            f"the snapshot of {second.day} is not the state that the one of {first.day} leads to; run `apportion verify --dir "
            f"{wanted.directory}`"
        )


class _Delivered(msgspec.Struct):
    stream_seq: int = 0


class _Consumer(msgspec.Struct):
    name: str = ""
    delivered: _Delivered = msgspec.field(default_factory=_Delivered)


class _Consumers(msgspec.Struct):
    total: int = 0
    consumers: list[_Consumer] | None = None


async def _check_readers(connection: Connection, wanted: Plan) -> None:
    """Check that the log is decided beyond the cut, and that no reader of a stream is behind it."""
    live = NatsDecisionLog(connection)
    end = await live.last_seq()
    if end <= wanted.decisions.cut_seq:
        raise CutRefused(f"DECISIONS ends at seq {end:,}: nothing is decided beyond the cut; does `apportion serve` run?")
    for stream, cut in (("DECISIONS", wanted.decisions), ("EVENTS", wanted.events)):
        for consumer in await _consumers(connection, stream):
            if consumer.delivered.stream_seq < cut.cut_seq:
                raise CutRefused(
                    f"a reader of {stream} ({consumer.name}) is at seq {consumer.delivered.stream_seq:,}, before the cut at "
                    f"{cut.cut_seq:,}; wait until it is beyond (one that is gone is forgotten within a minute)"
                )


async def _consumers(connection: Connection, stream: str) -> list[_Consumer]:
    found: list[_Consumer] = []
    while True:
        page = await connection.api(f"CONSUMER.LIST.{stream}", {"offset": len(found)}, _Consumers)
        found += page.consumers or []
        if not page.consumers or len(found) >= page.total:
            return found


async def _same_events(connection: Connection, wanted: Plan, progress: OnProgress | None) -> tuple[int, int]:
    """Compare all records up to the archive's end; return how many, and the bytes of those that go."""
    log, live = ArchiveEventLog(wanted.directory), NatsEventLog(connection)
    seq, dropped, end_seq = wanted.first_seq - 1, 0, wanted.events.archived_seq
    at = Progress(last_seq=end_seq)
    try:
        while seq < end_seq:
            limit = min(READ_EVENTS, end_seq - seq)
            archived = await log.read(seq, limit)
            try:
                stored = await live.read(seq, limit)
            except LogGap:
                if seq >= wanted.gone_seq:
                    raise
                seq = wanted.gone_seq  # a killed server found some of what was cut again: it was compared before it was cut
                continue
            if archived != stored:
                raise _differing("EVENTS", wanted, archived, stored)
            dropped += sum(len(one.subject) + len(one.body) for one in stored if one.seq <= wanted.events.cut_seq)
            seq = stored[-1].seq
            at.events, at.seq, at.time_ms = seq - wanted.first_seq + 1, seq, stored[-1].stored_ms
            if progress is not None:
                progress(at)
            await asyncio.sleep(0)
    finally:
        await live.close()
    return end_seq - wanted.first_seq + 1, dropped


async def _same_decisions(connection: Connection, wanted: Plan) -> tuple[int, int]:
    """Compare all batches up to the archive's end; return how many, and the bytes of those that go."""
    log, live = ArchiveDecisionLog(wanted.directory), NatsDecisionLog(connection)
    seq, count, dropped, end_seq = wanted.first_batch_seq - 1, 0, 0, wanted.decisions.archived_seq
    if seq > 0 and (cut_through := await log.read(seq - 1, 1)):
        seq = cut_through[0].seq  # what is left of a batch in parts is none
    try:
        while seq < end_seq:
            archived = await log.read(seq, READ_BATCHES)
            try:
                stored = await live.read(seq, len(archived))
            except LogGap:
                if seq >= wanted.gone_batch_seq:
                    raise
                seq = wanted.gone_batch_seq
                continue
            if archived != stored:
                raise _differing("DECISIONS", wanted, archived, stored)
            dropped += sum(len(one.body) for one in stored if one.seq <= wanted.decisions.cut_seq)
            seq, count = stored[-1].seq, count + len(stored)
    finally:
        await live.close()
    return count, dropped


def _differing(
    stream: Stream, wanted: Plan, archived: Sequence[Record | StoredBatch], stored: Sequence[Record | StoredBatch]
) -> CutRefused:
    """Name the first item that is not the same in archive and stream."""
    one, other = next(pair for pair in zip([*archived, None], [*stored, None], strict=False) if pair[0] != pair[1])
    seq = min(item.seq for item in (one, other) if item is not None)
    return CutRefused(
        f"{wanted.directory} and {stream} differ at seq {seq:,}: the archive has {one!r:.200}, the stream {other!r:.200}; "
        "nothing was cut. Keep both, and find out which is right (`apportion archive check`, `apportion verify`)"
    )

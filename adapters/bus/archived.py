"""Finding the archive of what was cut from a stream, and checking that it is that one.

A stream says where it was cut (``cut``). An archive of it is looked for in the directories given, then where it was when the cut
was made. It is the right one when the segment that ends at ``archived_seq`` has the declared chain value, which covers all before
it, and when the first item beyond the seam is the same in both. It is read up to the cut, or as far as the stream has lost more.

Reads only. An archive that is missing, shorter or another one is a ``LogMismatch`` that says what to do, never a shorter log.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from apportion.adapters.bus import topology
from apportion.adapters.bus.connection import Connection
from apportion.adapters.bus.cut import Cut, declared
from apportion.adapters.bus.decisions import NatsDecisionLog
from apportion.adapters.bus.reader import NatsEventLog
from apportion.adapters.logs import manifest
from apportion.adapters.logs.joined import Behind, JoinedDecisionLog, JoinedEventLog
from apportion.adapters.logs.manifest import DayEntry, Manifest
from apportion.core.envelope import Record, StoredBatch
from apportion.core.errors import LogMismatch

Stream = Literal["EVENTS", "DECISIONS"]


class ArchiveMissing(LogMismatch):
    """A stream was cut, and no archive at hand holds what was cut from it."""


@dataclass(frozen=True)
class Lost:
    """What a stream no longer holds: everything up to ``until_seq``, as its cut declares."""

    cut: Cut
    until_seq: int


async def lost(connection: Connection, stream: Stream) -> Lost | None:
    """Return what was cut from a stream, None when it begins with its first message. Raises ``LogMismatch``."""
    info = await _info(connection, stream)
    try:
        cut = declared(info.config)
    except ValueError as error:
        raise LogMismatch(f"stream {stream}: {error}") from None
    return None if cut is None else Lost(cut, max(cut.cut_seq, info.state.first_seq - 1))


async def _info(connection: Connection, stream: Stream) -> topology.StreamInfo:
    """Return what the server says of a stream; waits while it is away."""
    while True:
        await connection.wait_until_up()
        try:
            return await topology.stream_info(connection, stream)
        except TimeoutError:
            await asyncio.sleep(0.05)


def joined_events(connection: Connection, directories: Sequence[Path] = ()) -> JoinedEventLog:
    """Return EVENTS; what was cut from it is read from an archive, looked for in ``directories`` first."""

    async def find(after_seq: int) -> Behind[Record] | None:
        gone = await lost(connection, "EVENTS")
        if gone is None or after_seq >= gone.until_seq:
            return None
        directory = archive_of("EVENTS", gone, directories)
        from apportion.adapters.logs.archive import ArchiveEventLog

        log, live = ArchiveEventLog(directory), NatsEventLog(connection)
        try:
            _same("EVENTS", directory, await log.read(gone.until_seq, 1), await live.read(gone.until_seq, 1))
        finally:
            await live.close()
        return Behind(directory, log, gone.until_seq)

    return JoinedEventLog(NatsEventLog(connection), find)


def joined_decisions(connection: Connection, directories: Sequence[Path] = ()) -> JoinedDecisionLog:
    """Return DECISIONS in the same way. The seam lies behind a whole batch."""

    async def find(after_seq: int) -> Behind[StoredBatch] | None:
        gone = await lost(connection, "DECISIONS")
        if gone is None or after_seq >= gone.until_seq:
            return None
        directory = archive_of("DECISIONS", gone, directories)
        from apportion.adapters.logs.archive import ArchiveDecisionLog

        log, live = ArchiveDecisionLog(directory), NatsDecisionLog(connection)
        at_seam = await log.read(gone.until_seq - 1, 1)
        until_seq = at_seam[0].seq if at_seam else gone.until_seq
        try:
            _same("DECISIONS", directory, await log.read(until_seq, 1), await live.read(until_seq, 1))
        finally:
            await live.close()
        return Behind(directory, log, until_seq)

    return JoinedDecisionLog(NatsDecisionLog(connection), find)


def archive_of(stream: Stream, gone: Lost, directories: Sequence[Path]) -> Path:
    """Return the first directory whose archive holds what was cut. Raises ``ArchiveMissing``."""
    if "numba" not in sys.modules:  # segments are read by kernels
        from apportion.adapters.processes.build import keep_kernels_apart

        keep_kernels_apart()
    looked = list(dict.fromkeys([*directories, Path(gone.cut.archive)]))
    why = []
    for directory in looked:
        wrong = _unfit(stream, gone, directory)
        if not wrong:
            return directory
        why.append(wrong)
    raise ArchiveMissing(
        f"{stream} was cut: its messages up to seq {gone.until_seq:,} are in an archive, and none here holds them "
        f"({'; '.join(why)}). Bring that archive (or a copy) to this machine and name it with $APPORTION_ARCHIVE"
    )


def _unfit(stream: Stream, gone: Lost, directory: Path) -> str:
    """Return why the archive in ``directory`` is not the one, "" when it is."""
    cut = gone.cut
    if not manifest.is_archive(directory):
        return f"{directory} is no archive"
    sealed = manifest.load(directory).sealed
    position = next((place for place, entry in enumerate(sealed) if end_of(stream, entry) == cut.archived_seq), None)
    if position is None:
        end = end_of(stream, sealed[-1]) if sealed else 0
        return f"{directory} has no day that ends at seq {cut.archived_seq:,} of {stream}, it ends at seq {end:,}"
    if chain_of(stream, sealed[: position + 1]) != cut.chain:
        return f"{directory} is the archive of another log: its chain at seq {cut.archived_seq:,} is not the one declared"
    end = end_of(stream, sealed[-1])
    return "" if end >= gone.until_seq else f"{directory} ends at seq {end:,}, before what {stream} still holds"


def end_of(stream: Stream, entry: DayEntry) -> int:
    """Return the last sequence of a stream that a day holds."""
    return entry.last_seq if stream == "EVENTS" else entry.last_decision


def chain_of(stream: Stream, days: Sequence[DayEntry]) -> str:
    """Return the chain value of the last segment of some days."""
    from apportion.adapters.logs.parts import chain_end

    return chain_end(Manifest(days=tuple(days)), "events" if stream == "EVENTS" else "decisions")


def _same(stream: Stream, directory: Path, archived: Sequence[object], live: Sequence[object]) -> None:
    """Check that archive and stream hold the same first item beyond the seam, where both have one."""
    if archived and live and archived != live:
        raise LogMismatch(
            f"the archive {directory} and {stream} do not belong together: the first item beyond the cut differs ({archived[0]!r} "
            f"in the archive, {live[0]!r} in the stream); stop, and compare both with a copy"
        )

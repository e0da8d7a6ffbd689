"""Which days of the live log may go: those that an archive has sealed, oldest first, as long as nobody needs them in the log.

The newest sealed days stay, at least the two whose snapshots are verified. Agents read the command of a job from its submission, so
the plan names the submissions among what goes whose work is not closed; they are kept apart (``bus.kept``). A function of the
archive and of what the server says of its streams; ``proof`` checks what is planned. Nothing is changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from apportion.adapters.bus import topology
from apportion.adapters.bus.archived import Stream, chain_of, end_of
from apportion.adapters.bus.connection import Connection
from apportion.adapters.bus.cut import Cut, declared
from apportion.adapters.bus.kept import Submitted
from apportion.adapters.bus.shortening import STREAMS
from apportion.adapters.logs import manifest
from apportion.adapters.logs.manifest import DayEntry
from apportion.adapters.past.snapshots import ARCHIVED, DiskSnapshots
from apportion.core.engine import Core
from apportion.core.errors import ApportionError, SnapshotInvalid

LEAST_DAYS = 2  # that stay: each ends with one of the two snapshots


class CutRefused(ApportionError):
    """The log cannot be cut: what is missing, and what to do. Nothing was changed."""


@dataclass(frozen=True)
class Open:
    """Work that is not closed as of the second snapshot."""

    jobs: tuple[Submitted, ...]
    seqs: tuple[int, ...]  # of their submissions, and of those of services


@dataclass(frozen=True)
class Plan:
    """What a cut would drop: everything up to the end of ``day``; and what of it is kept for agents."""

    directory: Path
    day: str
    days: int  # dropped now
    kept_days: int  # sealed ones that stay in the live log
    snapshots: tuple[DayEntry, DayEntry]  # the days that end with the two that are verified
    first_seq: int  # of EVENTS now
    last_seq: int
    first_batch_seq: int  # of DECISIONS now
    gone_seq: int  # up to where earlier cuts were declared
    gone_batch_seq: int
    events: Cut
    decisions: Cut
    open: Open  # submitted up to the cut
    later: Open  # submitted after it: what a replica may drop beyond the cut

    @property
    def records(self) -> int:
        """How many records would go."""
        return max(0, self.events.cut_seq - self.first_seq + 1)


async def plan(connection: Connection, directory: Path, keep_days: int) -> Plan | None:
    """Return what can be cut, None when the log holds no more than ``keep_days`` sealed days. Raises ``CutRefused``."""
    if not manifest.is_archive(directory):
        raise CutRefused(f"{directory} is no archive; `apportion archive write` makes one, of the days that are over")
    sealed = manifest.load(directory).sealed
    infos = {stream: await _required(connection, stream) for stream in STREAMS}
    gone_seqs = {}
    for stream, info in infos.items():
        before = declared(info.config)
        gone_seqs[stream] = 0 if before is None else before.cut_seq
        if before is not None:
            _check_known(stream, before, sealed, directory)
    first_seq, first_batch_seq = infos["EVENTS"].state.first_seq, infos["DECISIONS"].state.first_seq
    # Days cut before go again, whatever is kept now: a killed server may have found some of them.
    again = sum(1 for entry in sealed if entry.last_seq <= gone_seqs["EVENTS"])
    old = [
        entry for entry in sealed[: max(again, len(sealed) - max(keep_days, LEAST_DAYS), 0)]
        if entry.last_seq >= first_seq or (entry.cycles and entry.last_decision >= first_batch_seq)
    ]  # fmt: skip
    if not old:
        return None
    pair = _pair(sealed)
    if pair is None:
        raise CutRefused("no two days in a row end with a snapshot and have a cycle between; cut when more days are archived")
    core = loaded(directory, pair[1])
    may_go = [entry for entry in old if entry.last_seq < pair[0].last_seq]
    if not may_go:
        raise CutRefused(f"the newest two usable snapshots end {pair[0].day} and {pair[1].day}: no day before them is in the log")
    last = may_go[-1]
    cuts = {
        stream: Cut(
            cut_seq=end_of(stream, last), archived_seq=end_of(stream, sealed[-1]), chain=chain_of(stream, sealed),
            archive=str(directory), log_id=core.state.log_id,
        )
        for stream in STREAMS
    }  # fmt: skip
    cut_seq = cuts["EVENTS"].cut_seq
    return Plan(
        directory=directory,
        day=last.day,
        days=len(may_go),
        kept_days=len(sealed) - sealed.index(last) - 1,
        snapshots=pair,
        first_seq=first_seq,
        last_seq=infos["EVENTS"].state.last_seq,
        first_batch_seq=first_batch_seq,
        gone_seq=gone_seqs["EVENTS"],
        gone_batch_seq=gone_seqs["DECISIONS"],
        events=cuts["EVENTS"],
        decisions=cuts["DECISIONS"],
        open=_open_work(core, 0, cut_seq),
        later=_open_work(core, cut_seq, core.seq),
    )


async def _required(connection: Connection, stream: Stream) -> topology.StreamInfo:
    """Return what the server says of a stream that is as it must be. Raises ``CutRefused``."""
    info = await topology.stream_info(connection, stream)
    if findings := topology.differences(topology.REQUIRED[stream], info):
        raise CutRefused(f"stream {stream} is not as required: {'; '.join(findings)}")
    if info.lagging:
        raise CutRefused(f"replicas of {stream} are not current ({', '.join(info.lagging)}); wait until they are")
    return info


def _check_known(stream: Stream, cut: Cut, sealed: Sequence[DayEntry], directory: Path) -> None:
    """Check that what was cut before is in this archive too."""
    for position, entry in enumerate(sealed):
        if end_of(stream, entry) == cut.archived_seq and chain_of(stream, sealed[: position + 1]) == cut.chain:
            return
    raise CutRefused(
        f"{stream} was cut at seq {cut.cut_seq:,} behind another archive than {directory} (it was {cut.archive}): use that one, "
        "or a copy of it"
    )


def _pair(sealed: Sequence[DayEntry]) -> tuple[DayEntry, DayEntry] | None:
    """Return the newest two days in a row that have snapshots, and a cycle between these."""
    for before, after in zip(sealed[-2::-1], sealed[:0:-1], strict=True):
        if after.cycles and before.snapshot is not None and after.snapshot is not None:
            return before, after
    return None


def snapshot_of(directory: Path, entry: DayEntry) -> bytes:
    """Return the snapshot of a day's end, checked against the manifest and its own checksum. Raises ``CutRefused``."""
    found = None
    if entry.snapshot is not None and manifest.file_entry(directory, entry.snapshot.name) == entry.snapshot:
        found = DiskSnapshots(directory / ARCHIVED).load_with_meta(entry.last_seq)
    if found is None or found[0].seq != entry.last_seq:
        raise CutRefused(f"the snapshot of {entry.day} in {directory} is not the file that was written; restore the archive")
    return found[1]


def loaded(directory: Path, entry: DayEntry) -> Core:
    """Return the core as of a day's end, from its snapshot. Raises ``CutRefused``."""
    try:
        core = Core.from_snapshot(snapshot_of(directory, entry))
    except SnapshotInvalid as error:
        raise CutRefused(
            f"the snapshot of {entry.day} cannot be loaded ({error}); two that this version can load must lie beyond the cut: "
            "archive two more days with this version first"
        ) from error
    if core.digest() != entry.digest or core.seq != entry.last_seq:
        raise CutRefused(f"the snapshot of {entry.day} holds another state than the archive says; restore the archive")
    return core


def _open_work(core: Core, after_seq: int, until_seq: int) -> Open:
    """Return which work submitted after ``after_seq``, up to ``until_seq``, is not over.

    What is over in this state stays over, and what came after it was submitted beyond the cut: so this holds from here on.
    """
    state = core.state
    jobs = [Submitted(state.workload.keys[row], int(state.workload.event_seq[row])) for row in state.workload.live_rows()]
    services = [int(state.service.event_seq[row]) for row in state.service.live_rows()]
    jobs = [job for job in jobs if after_seq < job.seq <= until_seq]
    seqs = dict.fromkeys([*(job.seq for job in jobs), *(seq for seq in services if after_seq < seq <= until_seq)])
    return Open(tuple(jobs), tuple(sorted(seqs)))

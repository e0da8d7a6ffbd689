"""The states that a proof may be cut at: snapshots that lie in its range, and where to make more by trusting.

``kept`` looks at the snapshots of some directories and keeps those that belong to this log and this program; ``plan`` decides
which of them are used and which stretches need more cuts. Both only read. A snapshot is taken on its own word here: whether its
state is the right one is what the stretch before it proves.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from apportion.adapters.past.replaying import core_from
from apportion.adapters.past.snapshots import DiskSnapshots, record_hash
from apportion.core.errors import LogMismatch, SnapshotInvalid
from apportion.core.ports import EventLog

LEAST_RECORDS = 100_000  # of a stretch: below, the start of a process costs more than it saves
STRETCHES_PER_WORKER = 8  # so that nobody waits long for the last one


class Waypoint(NamedTuple):
    """A kept state of this log. ``source`` says where it is from."""

    seq: int
    data: bytes
    source: str


class Foreign(LogMismatch):
    """A snapshot was made from another log than this one."""

    def __init__(self, seq: int, where: Path, detail: str) -> None:
        super().__init__(f"the snapshot of seq {seq:,} in {where} was made from another log: {detail}")
        self.seq = seq


class Directory(NamedTuple):
    """A directory of snapshots. ``name`` says whose."""

    path: Path
    name: str


async def kept(
    events: EventLog, directories: Sequence[Directory], after_seq: int, to_seq: int, apart: int = 1
) -> list[Waypoint]:
    """Return usable snapshots inside ``after_seq`` to ``to_seq``, by sequence, each at least ``apart`` records from the last.

    Passed over: damaged ones, those of another version, and those of a tick that was not decided. Raises ``Foreign``.
    """
    found: list[Waypoint] = []
    last_seq = after_seq
    for seq, place in _places(directories):
        if seq - last_seq >= apart and seq < to_seq and (waypoint := await _waypoint(events, directories[place], seq)) is not None:
            found.append(waypoint)
            last_seq = seq
    return found


async def newest(events: EventLog, directories: Sequence[Directory], to_seq: int) -> Waypoint | None:
    """Return the newest usable snapshot at or before ``to_seq``, None without one. Raises ``Foreign``."""
    for seq, place in reversed(_places(directories)):
        if 0 < seq <= to_seq and (waypoint := await _waypoint(events, directories[place], seq)) is not None:
            return waypoint
    return None


def _places(directories: Sequence[Directory]) -> list[tuple[int, int]]:
    """Return all sequences that snapshots are kept of, each with the position of its directory."""
    return sorted((seq, place) for place, each in enumerate(directories) for seq in DiskSnapshots(each.path).seqs())


async def _waypoint(events: EventLog, directory: Directory, seq: int) -> Waypoint | None:
    loaded = DiskSnapshots(directory.path).load_with_meta(seq)
    if loaded is None or loaded[0].seq != seq:
        return None  # damaged, and said so in the log of errors
    meta, data = loaded
    if seq > await events.last_seq():
        return None
    record = (await events.read(seq - 1, 1))[0]
    here = record_hash(record.subject, record.body)
    if meta.record_hash not in ("", here):
        detail = f"its record {seq:,} has hash {meta.record_hash}, the one in this log has {here}"
        raise Foreign(seq, directory.path, detail)
    try:
        core = core_from(data)
    except SnapshotInvalid:
        return None
    if core.seq != seq:
        raise Foreign(seq, directory.path, f"it holds the state of seq {core.seq:,}")
    return None if core.tick_pending else Waypoint(seq, data, f"snapshot of {directory.name}")


class Cut(NamedTuple):
    """A stretch to be. ``waypoint`` is the state it begins with; None: to be made by trusting from the one before."""

    from_seq: int
    to_seq: int
    waypoint: Waypoint | None


def step_of(records: int, workers: int, least_records: int = LEAST_RECORDS) -> int:
    """Return how long a stretch is to be, about."""
    return max(least_records, records // (workers * STRETCHES_PER_WORKER))


def plan(
    start: Waypoint, waypoints: Sequence[Waypoint], to_seq: int, workers: int, least_records: int = LEAST_RECORDS
) -> list[Cut]:
    """Return the stretches of ``start.seq`` to ``to_seq``, in order; the first begins with ``start``.

    A snapshot close behind the last cut is left out; where two are far apart, the way between them is cut evenly.
    """
    step = step_of(to_seq - start.seq, workers, least_records)
    used = [start]
    for waypoint in waypoints:
        if waypoint.seq - used[-1].seq >= step // 2 and to_seq - waypoint.seq >= step // 2:
            used.append(waypoint)
    cuts: list[Cut] = []
    ends = [*(waypoint.seq for waypoint in used[1:]), to_seq]
    for waypoint, end in zip(used, ends, strict=True):
        parts = max(1, (end - waypoint.seq + step // 2) // step)
        bounds = [waypoint.seq + (end - waypoint.seq) * part // parts for part in range(parts + 1)]
        for part in range(parts):
            cuts.append(Cut(bounds[part], bounds[part + 1], waypoint if part == 0 else None))
    return cuts

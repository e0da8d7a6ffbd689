"""Which snapshots of an archive may go, and taking them away: a state that the archive has can always be made again.

Kept are the snapshots of the newest days, of the first archived day of every week or month before them, and those that a cut of the
live log was made by. ``to_thin`` is a pure function of the days; ``thin`` takes away. Segments are never touched, so verify, replay
and what-if over a day without its snapshot begin at an earlier one and read on from there: slower, and the same. A signed proof
names sequences and digests, and those stay.

The manifest goes first: it names no snapshot that is not there, whenever this is killed. A file that it no longer names is taken
away by the next run.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Literal

from apportion.adapters.logs import manifest
from apportion.adapters.logs.manifest import DayEntry, Manifest
from apportion.adapters.past.snapshots import ARCHIVED, DiskSnapshots

Every = Literal["week", "month"]
LEAST_DAYS = 2  # the next cut is proved by the snapshots of the last two


def to_thin(days: Sequence[DayEntry], keep_days: int, every: Every, named: Collection[int] = ()) -> list[DayEntry]:
    """Return the days whose snapshots may go, oldest first.

    ``named`` are ends of days that a cut was made by: their snapshots stay, and those of the days before, which led to them.
    """
    sealed = [entry for entry in days if entry.sealed]
    old = sealed[: max(0, len(sealed) - max(keep_days, LEAST_DAYS))]
    found, seen = list[DayEntry](), set[str]()
    for entry, after in zip(old, sealed[1:], strict=False):
        period = _period(entry.day, every)
        first = period not in seen
        if entry.snapshot is None:
            continue  # the first that has one stays for its period
        seen.add(period)
        if not first and entry.last_seq not in named and after.last_seq not in named:
            found.append(entry)
    return found


def _period(day: str, every: Every) -> str:
    try:
        date = datetime.date.fromisoformat(day)
    except ValueError:  # beyond the calendar: each is a period of its own, and stays
        return day
    year, week, _weekday = date.isocalendar()
    return f"{year}-W{week:02d}" if every == "week" else f"{date:%Y-%m}"


def thin(directory: Path, days: Collection[DayEntry]) -> int:
    """Take the snapshots of these days away, and what an interrupted run left; returns how many bytes. Be its only writer."""
    before = manifest.load(directory)
    gone = {entry.day for entry in days}
    after = tuple(_without(entry) if entry.day in gone else entry for entry in before.days)
    if after != before.days:
        Manifest(days=after).save(directory)
    return _sweep(directory, after)


def _without(entry: DayEntry) -> DayEntry:
    from msgspec.structs import replace

    return replace(entry, snapshot=None)


def _sweep(directory: Path, days: Sequence[DayEntry]) -> int:
    """Remove the snapshots of sealed days that name none; others are of a day that is being written."""
    bare = {entry.last_seq for entry in days if entry.sealed and entry.snapshot is None}
    freed = 0
    for seq in DiskSnapshots(directory / ARCHIVED).seqs():
        if seq in bare:
            path = directory / ARCHIVED / f"snapshot-{seq:016d}.bin"
            freed += path.stat().st_size
            path.unlink()
    return freed

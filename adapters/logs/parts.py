"""Writing one day of both logs into segments, part after part, so that a day of any size fits into memory.

A part's file carries a piece of its own hash in its name, so files of an interrupted or an open day never stand in the way of
others: equal content has an equal name. Nothing here belongs to the archive before the manifest names it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import cast

from apportion.adapters.logs.manifest import DayEntry, FileEntry, Manifest
from apportion.adapters.logs.segments import HASH_BYTES, Kind, decisions_segment, events_segment, write_durably
from apportion.core.envelope import Record, StoredBatch

PART_ITEMS = 131_072
PART_BODY_BYTES = 64 * 1024 * 1024


class DayParts:
    """The files of one kind for one day. ``previous`` is the chain value of the kind's last segment of the day before."""

    def __init__(self, directory: Path, kind: Kind, day: str, previous: str) -> None:
        self._directory = directory
        self._kind: Kind = kind
        self._day = day
        self._hash = previous
        self._items: list[Record] | list[StoredBatch] = []
        self._bytes = 0
        self.count = 0
        self.files: list[FileEntry] = []

    def add(self, items: Sequence[Record] | Sequence[StoredBatch]) -> None:
        """Take what follows."""
        size = sum([len(item.body) for item in items])
        if len(self._items) + len(items) < PART_ITEMS and self._bytes + size < PART_BODY_BYTES:
            self._items += items  # type: ignore[operator]  # one kind per instance
            self._bytes += size
            return
        for item in items:
            self._items.append(item)  # type: ignore[arg-type]  # as above
            self._bytes += len(item.body)
            if len(self._items) >= PART_ITEMS or self._bytes >= PART_BODY_BYTES:
                self._write()

    def finish(self) -> tuple[FileEntry, ...]:
        """Write the rest and return the files."""
        if self._items:
            self._write()
        return tuple(self.files)

    def _write(self) -> None:
        items = self._items
        if self._kind == "events":
            content = events_segment(self._day, self._hash, cast(list[Record], items))
        else:
            content = decisions_segment(self._day, self._hash, cast(list[StoredBatch], items))
        self._hash = content[-HASH_BYTES:].hex()
        name = f"{self._kind}-{self._day}.{len(self.files) + 1:03d}.{self._hash[:12]}.seg"
        write_durably(self._directory / name, content)
        self.files.append(FileEntry(name, len(content), self._hash))
        self.count += len(items)
        self._items, self._bytes = [], 0


def chain_end(manifest: Manifest, kind: Kind) -> str:
    """Return the chain value of the last sealed segment of a kind, "" before the first."""
    for entry in reversed(manifest.sealed):
        files = entry.events if kind == "events" else entry.decisions
        if files:
            return files[-1].hash
    return ""


def sweep(directory: Path, days: Iterable[DayEntry]) -> None:
    """Remove segments that no day names: what an interrupted write left, and the files of a day that was open."""
    named = {file.name for entry in days for file in entry.files}
    for path in (*directory.glob("events-*.seg"), *directory.glob("decisions-*.seg"), *directory.glob(".*.seg.tmp")):
        if path.name not in named:
            path.unlink(missing_ok=True)

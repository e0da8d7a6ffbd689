"""Whether the files of an archive are those that were written: every hash, the chain between them, and every sequence.

A pure function of the directory; it goes through all files and names each that is not as it should be. It re-derives nothing: that
is ``verify``, which trusts no file either.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from apportion.adapters.logs import manifest
from apportion.adapters.logs.manifest import DayEntry, FileEntry
from apportion.adapters.logs.segments import Kind, opened, read_decisions, read_events
from apportion.core.errors import LogMismatch

OnDay = Callable[[DayEntry], None]


class Finding(NamedTuple):
    """A file that is not as it was written."""

    file: str
    what: str


def findings(directory: Path, on_day: OnDay | None = None) -> list[Finding]:
    """Return what is wrong with the archive, in order; nothing when all is well. Raises ``LogMismatch`` without a manifest."""
    if not manifest.is_archive(directory):
        raise LogMismatch(f"{directory} is no archive: it has no {manifest.FILE}; `apportion archive write` makes one")
    found: list[Finding] = []
    previous = {"events": "", "decisions": ""}
    for entry in manifest.load(directory).days:
        first_seq = entry.first_seq
        kinds: tuple[tuple[Kind, tuple[FileEntry, ...]], ...] = (("events", entry.events), ("decisions", entry.decisions))
        for kind, files in kinds:
            batches = 0
            for file in files:
                try:
                    count, last_seq = _segment(directory, kind, file, first_seq if kind == "events" else 0, previous[kind])
                    if kind == "events":
                        first_seq = last_seq + 1
                    batches += count
                except LogMismatch as error:
                    found.append(Finding(file.name, str(error)))
                    first_seq = 0  # the files behind it are judged by themselves
                previous[kind] = file.hash
            if kind == "decisions" and batches != entry.cycles and not found:
                found.append(Finding(manifest.FILE, f"{entry.day} has {batches} batches, expected {entry.cycles}"))
        if first_seq not in (0, entry.last_seq + 1):
            found.append(Finding(manifest.FILE, f"{entry.day} ends with seq {first_seq - 1}, expected {entry.last_seq}"))
        found += [finding for finding in (_other(directory, file) for file in _others(entry)) if finding is not None]
        if on_day is not None:
            on_day(entry)
    return found


def _segment(directory: Path, kind: Kind, file: FileEntry, first_seq: int, previous: str) -> tuple[int, int]:
    """Read a segment whole; returns how many items it holds and the sequence of the last."""
    segment = opened(directory / file.name, kind, first_seq, previous)
    items = read_events(segment) if kind == "events" else read_decisions(segment)  # raises where its own hash is wrong
    if segment.hash != file.hash:
        raise LogMismatch(f"{directory / file.name} has another hash than {manifest.FILE} says; restore the archive")
    return len(items), items[-1].seq if items else 0


def _others(entry: DayEntry) -> tuple[FileEntry, ...]:
    return (*((entry.snapshot,) if entry.snapshot is not None else ()), *entry.parquet)


def _other(directory: Path, file: FileEntry) -> Finding | None:
    try:
        same = manifest.file_entry(directory, file.name) == file
    except LogMismatch as error:
        return Finding(file.name, str(error))
    return None if same else Finding(file.name, f"{directory / file.name} has another hash than {manifest.FILE} says; restore it")

"""The manifest of an archive: which days are in it, and which files each day consists of.

``archive.json`` is written last and replaced whole, so a day is in the archive exactly when the manifest names it: files of an
interrupted write are not read, and the next write makes them again. It decides nothing about the content of files; their hashes
are checked by who reads them (``segments``). It is text, for people too.
"""

from __future__ import annotations

import datetime
import fcntl
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from apportion.adapters.logs.segments import write_durably
from apportion.core.errors import LogMismatch
from apportion.core.units import MS_PER_DAY

FILE = "archive.json"
FORMAT = 1


class FileEntry(msgspec.Struct, frozen=True):
    """A file of the archive. ``hash`` is a segment's chain value, and the blake2b-256 of the whole file for any other."""

    name: str
    size: int
    hash: str


class DayEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A day of record time (UTC). A day that is not ``sealed`` was not over: the next write takes its place."""

    day: str
    sealed: bool
    first_seq: int
    last_seq: int
    last_ms: int  # time of the last record
    stated: bool  # the log's time is what producers stated
    cycles: int
    last_decision: int  # position in DECISIONS after the day
    digest: str = ""  # of the core's state at the day's end
    events: tuple[FileEntry, ...] = ()
    decisions: tuple[FileEntry, ...] = ()
    snapshot: FileEntry | None = None
    parquet: tuple[FileEntry, ...] = ()

    @property
    def files(self) -> tuple[FileEntry, ...]:
        """All its files."""
        return (*self.events, *self.decisions, *((self.snapshot,) if self.snapshot else ()), *self.parquet)


class Manifest(msgspec.Struct, kw_only=True):
    """The days, oldest first; days without records are not among them."""

    format: int = FORMAT
    days: tuple[DayEntry, ...] = ()

    @property
    def sealed(self) -> tuple[DayEntry, ...]:
        """The days that stay as they are."""
        return tuple(entry for entry in self.days if entry.sealed)

    def save(self, directory: Path) -> None:
        """Replace the manifest of ``directory`` durably."""
        write_durably(directory / FILE, msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n")


def is_archive(directory: Path) -> bool:
    """Tell whether ``directory`` is an archive."""
    return (directory / FILE).is_file()


def load(directory: Path) -> Manifest:
    """Return the manifest of ``directory``, an empty one where there is none yet. Raises ``LogMismatch`` when it makes no sense."""
    path = directory / FILE
    try:
        manifest = msgspec.json.decode(path.read_bytes(), type=Manifest)
    except FileNotFoundError:
        return Manifest()
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise LogMismatch(f"{path} is damaged ({error}); restore the archive") from error
    if manifest.format != FORMAT:
        raise LogMismatch(f"{path} has format {manifest.format}, this version reads {FORMAT}: install the one that wrote it")
    next_seq, last_day = 1, ""
    for entry in manifest.days:
        if entry.first_seq != next_seq or entry.last_seq < entry.first_seq or entry.day <= last_day:
            raise LogMismatch(
                f"{path}: {entry.day} begins with seq {entry.first_seq}, expected seq {next_seq} after {last_day or 'no day'}: "
                "it was altered; restore the archive"
            )
        next_seq, last_day = entry.last_seq + 1, entry.day
    return manifest


def file_entry(directory: Path, name: str) -> FileEntry:
    """Return the line of a file that is no segment. Raises ``LogMismatch`` when it cannot be read."""
    try:
        content = (directory / name).read_bytes()
    except OSError as error:
        raise LogMismatch(f"{directory / name} cannot be read ({error.strerror}); restore the archive") from None
    return FileEntry(name, len(content), hashlib.blake2b(content, digest_size=32).hexdigest())


def day_of(time_ms: int) -> int:
    """Return the day of an instant, counted from 1970-01-01."""
    return time_ms // MS_PER_DAY


def day_text(day: int) -> str:
    """Return a day as people write it: 2026-01-31. Years beyond the calendar's are written as their count of days."""
    try:
        return (datetime.date(1970, 1, 1) + datetime.timedelta(days=day)).isoformat()
    except OverflowError:
        return f"day-{day:012d}"


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Be the only writer of an archive. Raises ``LogMismatch`` when there is one."""
    directory.mkdir(parents=True, exist_ok=True)
    lock = os.open(directory / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise LogMismatch(f"another process is writing the archive {directory}; wait until it is done") from None
        yield
    finally:
        os.close(lock)

"""Files of a projection: publishing copies, swapping a rebuilt file in, throwing a broken one away.

A projection is disposable, its log is not: whatever is wrong with a file, the answer is to build another beside it and swap.
Copies for readers are made between commits and get names that never come again, because DuckDB gives a process that opens a
path again the database it had under that path before.

Two traps this module exists for. A file's ``.wal`` belongs to that file: it must be gone before another file takes the name.
And a process that opens and closes a database file by itself, if only to copy it, drops the lock that DuckDB holds on it for
that process: so copying is done by a child process, never here.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from apportion.core.errors import ApportionError
from apportion.projections.runner import Projection

PUBLISHED_KEPT = 2
_PREFIX, _SUFFIX = "projection-", ".duckdb"
_COPY = """
import os, shutil, sys
source, target = sys.argv[1:]
shutil.copyfile(source, target)
with open(target, "rb") as copy:
    os.fsync(copy.fileno())
"""


def remove(path: Path) -> None:
    """Throw a projection away, with its write-ahead log; the log first, so that it can never meet another file."""
    wal_of(path).unlink(missing_ok=True)
    path.unlink(missing_ok=True)


def wal_of(path: Path) -> Path:
    """Return the write-ahead log that belongs to a database file."""
    return path.with_name(path.name + ".wal")


def beside(path: Path) -> Path:
    """Return a name, free in this directory, for a file that is built to replace ``path``."""
    number = 1
    while True:
        candidate = path.with_name(f"{path.stem}.building-{os.getpid()}-{number}{path.suffix}")
        if not candidate.exists() and not wal_of(candidate).exists():
            return candidate
        number += 1


def clear_beside(path: Path) -> None:
    """Remove what builds that were interrupted have left."""
    for left in path.parent.glob(f"{path.stem}.building-*"):
        left.unlink(missing_ok=True)


def swap(built: Path, path: Path) -> None:
    """Put a closed, checkpointed file in place of ``path``, which nobody may have open.

    A crash in between leaves either the old file (as of its last checkpoint, so it just continues) or the new one.
    """
    if wal_of(built).exists():
        raise ApportionError(f"{built} has a write-ahead log; close it after a checkpoint before it is swapped in")
    wal_of(path).unlink(missing_ok=True)
    os.replace(built, path)
    _sync_folder(path.parent)


def publish(projection: Projection, folder: Path) -> Path:
    """Copy the projection, complete up to its position, into ``folder`` under a new name; keep the newest copies.

    Must be called between commits, with nothing staged. Returns the copy; the same one when nothing was committed since.
    """
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"{_PREFIX}{projection.position.seq:015d}{_SUFFIX}"
    if target.exists():
        return target
    projection.refresh()
    projection.con.execute("checkpoint")
    temporary = folder / f".{target.name}.{os.getpid()}.tmp"
    try:
        subprocess.run(
            [sys.executable, "-I", "-S", "-c", _COPY, projection.path, str(temporary)], check=True, capture_output=True
        )
        os.replace(temporary, target)
    except subprocess.CalledProcessError as error:
        raise ApportionError(
            f"cannot publish a copy of {projection.path} into {folder}: {error.stderr.decode(errors='replace').strip()[-300:]}"
        ) from error
    finally:
        temporary.unlink(missing_ok=True)
    _sync_folder(folder)
    for old in published(folder)[:-PUBLISHED_KEPT]:
        old.unlink(missing_ok=True)
    return target


def published(folder: Path) -> list[Path]:
    """Return the published copies, oldest first."""
    return sorted(folder.glob(f"{_PREFIX}*{_SUFFIX}"))


def newest(folder: Path) -> Path | None:
    """Return the newest published copy, None when there is none."""
    copies = published(folder)
    return copies[-1] if copies else None


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

"""The public ITP trace, read as published: the jobs of ten programs on a shared GPU cluster.

Decides what a row of the trace means here: the file (``cluster04.csv``) is the program, seconds become milliseconds,
and instants are counted from the first day asked for. A pure function of the files; the demo plays what it returns.
It must never repair a row silently: a file that is not the trace as published is refused, with its name and line.

The trace is github.com/microsoft/elasticflow-traces (MIT licence): 69,351 jobs of ten clusters over 60 days from
2021-03-04, each asking for a power of two GPUs.
"""

from __future__ import annotations

import csv
import io
import re
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from apportion.adapters.simulation.job import Job

MS_PER_SECOND = 1_000
SECONDS_PER_DAY = 86_400
TRACE_EPOCH_MS = 1_614_816_000_000  # 2021-03-04T00:00:00Z, the trace's second 0
ARCHIVE = "raw-traces.tar.gz"
COLUMNS = ("job_id", "submission_time", "duration", "num_gpu")
MAX_GPUS = 1_024
MAX_DURATION_S = 366 * SECONDS_PER_DAY
_PROGRAM = re.compile(r"^cluster\d+$")


class TraceError(Exception):
    """The path given is not the trace, or a row of it is not what it must be."""


def read_trace(path: str | Path, first_day: int = 14, days: int = 7) -> list[Job]:
    """Return the jobs submitted in ``days`` days from ``first_day``, ordered by instant, then by program and row.

    ``path`` is the folder with ``raw-traces.tar.gz``, that archive, a folder of ``cluster*.csv``, or one such file.
    Raises ``TraceError`` when it is none of these, when a row is not as published, or when no job is in the slice.
    """
    if first_day < 0 or days < 1:
        raise TraceError(f"days {first_day} to {first_day + days} are no slice; first day >= 0 and at least one day")
    begin_s = first_day * SECONDS_PER_DAY
    end_s = begin_s + days * SECONDS_PER_DAY
    jobs: list[Job] = []
    for name, text in _files(Path(path)):
        program = name.removesuffix(".csv")
        for job_id, submit_s, duration_s, gpus in _rows(name, text):
            if begin_s <= submit_s < end_s:
                submit_ms = (submit_s - begin_s) * MS_PER_SECOND
                jobs.append(Job(job_id, submit_ms, duration_s * MS_PER_SECOND, gpus, program))
    if not jobs:
        raise TraceError(
            f"{path}: no job was submitted on days {first_day} to {first_day + days}; the trace has days 0 to 60"
        )
    jobs.sort(key=lambda job: (job.submit_ms, job.program))  # stable: rows of one program keep their order
    return jobs


def _files(path: Path) -> Iterator[tuple[str, TextIO]]:
    """Yield (file name, text) of each program's file, by name."""
    if not path.exists():
        raise TraceError(
            f"{path}: no such file or folder; give the folder that holds {ARCHIVE}, the archive, or its cluster*.csv"
        )
    if path.is_dir():
        if (path / ARCHIVE).is_file():
            yield from _archived(path / ARCHIVE)
            return
        found = sorted(entry for entry in path.glob("*.csv") if _PROGRAM.match(entry.stem))
        if not found:
            raise TraceError(f"{path}: neither {ARCHIVE} nor cluster*.csv in this folder")
        for entry in found:
            with entry.open(encoding="utf-8-sig", newline="") as text:
                yield entry.name, text
    elif path.suffix == ".csv":
        if not _PROGRAM.match(path.stem):
            raise TraceError(f"{path}: the file's name is the program, so it must be cluster<number>.csv")
        with path.open(encoding="utf-8-sig", newline="") as text:
            yield path.name, text
    else:
        yield from _archived(path)


def _archived(path: Path) -> Iterator[tuple[str, TextIO]]:
    try:
        with tarfile.open(path, "r:*") as archive:
            members = [member for member in archive.getmembers() if member.isfile()]
            wanted = {Path(member.name).name: member for member in members}
            names = sorted(name for name in wanted if name.endswith(".csv") and _PROGRAM.match(name[:-4]))
            if not names:
                raise TraceError(f"{path}: no cluster*.csv in this archive")
            for name in names:
                stream = archive.extractfile(wanted[name])
                assert stream is not None  # isfile() above
                yield name, io.TextIOWrapper(stream, encoding="utf-8-sig", newline="")
    except (tarfile.TarError, EOFError, zlib.error, OSError) as error:
        raise TraceError(f"{path}: not a readable archive ({error}); the published file is {ARCHIVE}") from error


def _rows(name: str, text: TextIO) -> Iterator[tuple[str, int, int, int]]:
    reader = csv.reader(text)
    try:
        header = next(reader, None)
        if header is None or tuple(header) != COLUMNS:
            raise TraceError(
                f"{name}: the first line is {','.join(header or ())!r}, expected {','.join(COLUMNS)!r}; "
                "the traces with generated deadlines are another file, take the raw ones"
            )
        for row in reader:
            yield _row(f"{name} line {reader.line_num}", row)
    except (UnicodeDecodeError, csv.Error) as error:
        raise TraceError(f"{name}: not a text of comma-separated values ({error})") from error


def _row(where: str, row: list[str]) -> tuple[str, int, int, int]:
    if len(row) != len(COLUMNS):
        raise TraceError(f"{where}: {len(row)} fields, expected {len(COLUMNS)}")
    try:
        submit_s, duration_s, gpus = int(row[1]), int(row[2]), int(row[3])
    except ValueError as error:
        raise TraceError(f"{where}: {error}; times and GPUs are whole numbers") from None
    if not row[0] or len(row[0]) > 128:
        raise TraceError(f"{where}: job_id {row[0][:40]!r} is empty or longer than 128 characters")
    for column, value, low, high in (
        ("submission_time", submit_s, 0, MAX_DURATION_S),
        ("duration", duration_s, 1, MAX_DURATION_S),
        ("num_gpu", gpus, 1, MAX_GPUS),
    ):
        if not low <= value <= high:
            raise TraceError(f"{where}: {column} is {value}, must be {low} to {high}")
    return row[0], submit_s, duration_s, gpus

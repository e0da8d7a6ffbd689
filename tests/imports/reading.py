"""What the tests of imports share: reading a file into a history, and where the published data lies."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from apportion.adapters.imports import sacct, swf
from apportion.adapters.imports.attempt import Attempt, Note, Passed, Read, Refusal
from apportion.adapters.imports.instants import Zone
from apportion.adapters.imports.intake import Intake, take_in
from apportion.adapters.imports.lines import Line, lines_of
from apportion.projections.imported.history import History
from apportion.projections.imported.usage import CHECKS, Asked, usage

DATA = Path(os.environ.get("APPORTION_SHARED", Path(__file__).parents[3] / "shared")) / "data"
HEADING = (
    "JobIDRaw|JobID|Cluster|User|Account|Group|Partition|QOS|State|Submit|Eligible|Start|End|NNodes|NCPUS|AllocTRES|NodeList"
    "|ExitCode"
)
UTC = Zone("UTC")


def silent(_text: str) -> None:
    """Note nothing."""


def numbered(text: str) -> Iterator[Line]:
    """Yield the lines of a text."""
    return (Line(number, line) for number, line in enumerate(text.split("\n"), 1))


def dumped(rows: Iterable[str]) -> str:
    """Return a dump with its heading."""
    return "\n".join([HEADING, *rows])


def row(
    job: str,
    submit: str,
    start: str,
    end: str,
    tres: str = "billing=8,cpu=16,gres/gpu=8,node=2",
    *,
    nodes: str = "n[1-2]",
    state: str = "COMPLETED",
    account: str = "physics",
    user: str = "ana",
) -> str:
    """Return one row under ``HEADING``."""  # fmt: skip
    return "|".join(
        [job, job, "hpc", user, account, account, "batch", "normal", state, submit, submit, start, end,
         "2", "16", tres, nodes, "0:0"]
    )  # fmt: skip


def read_sacct(text: str, note: Note = silent, zone: Zone = UTC, **options: Any) -> list[Read]:
    """Return what each line of a dump is."""
    return list(sacct.read(numbered(text), zone, "hpc", note, **options))


def attempts(reads: Iterable[Read]) -> list[Attempt]:
    """Return the attempts among them."""
    return [read for read in reads if isinstance(read, Attempt)]


def refusals(reads: Iterable[Read]) -> list[Refusal]:
    """Return the refusals among them."""
    return [read for read in reads if isinstance(read, Refusal)]


def passed(reads: Iterable[Read]) -> list[str]:
    """Return why lines were passed over."""
    return [read.why for read in reads if isinstance(read, Passed)]


def kept(history: History, reads: Iterable[Read], zone: Zone = UTC, until_ms: int | None = None) -> Intake:
    """Put what was read into a history."""
    return take_in(Intake(), reads, history, zone, {"name": "a file", "kind": "test"}, until_ms=until_ms)


def imported_sacct(path: Path, zone: Zone = UTC) -> tuple[History, Intake]:
    """Return a history in memory of one dump."""
    history, intake = History(None), Intake()
    reads = sacct.read(lines_of(path), zone, path.stem, intake.note)
    return history, take_in(intake, reads, history, zone, {"name": path.name, "kind": "sacct"})


def imported_swf(path: Path, cluster: str) -> tuple[History, Intake, swf.Header]:
    """Return a history in memory of one log."""
    history, intake, header = History(None), Intake(), swf.header_of(lines_of(path))
    reads = swf.read(lines_of(path), header, cluster, intake.note)
    return (
        history,
        take_in(intake, reads, history, Zone(header.zone or "UTC"), {"name": path.name, "kind": "swf"}),
        header,
    )


def by(history: History, *names: str, **asked: Any) -> dict[Any, dict[str, Any]]:
    """Return usage by the value of these columns."""
    rows = usage(history.con, Asked(by=names, **asked))
    return {tuple(str(row[name]) for name in names) if len(names) > 1 else str(row[names[0]]): row for row in rows}


def whole(history: History, **asked: Any) -> dict[str, Any]:
    """Return all usage in one row."""
    return usage(history.con, Asked(**asked))[0]


def broken_checks(history: History) -> list[str]:
    """Return the checks that do not hold."""
    return [name for name, (_, sql) in CHECKS.items() if history.con.execute(sql).fetchall()]


Reader = Callable[[str], list[Read]]

"""Verbs that read the history of other schedulers: import sacct|swf|csv.

Each import reads one file into ``imported.duckdb`` of the installation (or ``--history``), names every line it could not read,
and exits with 1 when there was one: the rest is kept. Nothing here needs a server, and nothing of it enters a log of ours.
The other verbs of the group are in ``imported`` and ``importing_budgets``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from apportion.adapters.cli import imported, importing_budgets
from apportion.adapters.cli.failure import usage
from apportion.adapters.cli.import_report import Outcome, told
from apportion.adapters.cli.imported import HistoryFile, explained, opened
from apportion.adapters.cli.output import Answer
from apportion.adapters.cli.verbs import (
    PLACE_OPTIONS,
    Place,
    Verb,
    command_of,
    moment,
    one_of,
    table_verb,
    verb,
    where,
    write_verb,
)

if TYPE_CHECKING:
    from apportion.adapters.imports.attempt import Read
    from apportion.adapters.imports.instants import Zone
    from apportion.adapters.imports.intake import Intake
    from apportion.adapters.imports.lines import Line
    from apportion.projections.imported.history import History

PANEL = "Check and replay"

File = Annotated[Path, typer.Argument(metavar="FILE", help="The file, plain or .gz")]
Cluster = Annotated[
    str,
    typer.Option(
        "--cluster", metavar="NAME", help="Whose history, where the file does not say [default: the file's name]"
    ),
]
ZoneName = Annotated[
    str,
    typer.Option(
        "--zone", metavar="ZONE", help="Of times without zone, and of days: Europe/Berlin, UTC, -08:00"
    ),
]
Until = Annotated[
    int | None, moment("When the file was written: what had no end then is counted until then", "--until")
]
JobsFile = Annotated[
    Path | None,
    typer.Option("--jobs", metavar="FILE", help="Write submissions and demands here, for `compare --trace`"),
]
BudgetBy = Annotated[
    str,
    typer.Option(
        "--budget-by", parser=one_of("account", "group", "user", "queue", "qos", "cluster"), metavar="FIELD",
        help="Whose budget a job of --jobs charges",
    ),
]  # fmt: skip
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Show the first rows as understood, and what is wrong; keep nothing")
]


def add_to(app: typer.Typer) -> None:
    """Register the group."""
    group = typer.Typer(
        no_args_is_help=True,
        rich_markup_mode=None,
        help="Other schedulers' history and budgets: sacct, swf, csv, budgets.",
    )
    group.command("sacct")(_import_verb(sacct))
    group.command("swf")(_import_verb(swf))
    group.command("csv")(_import_verb(csv))
    group.command("budgets")(write_verb(importing_budgets.budgets))
    group.command("units")(verb(imported.units))
    group.command("usage")(table_verb(imported.usage_))
    group.command("files")(table_verb(imported.files))
    group.command("audit")(verb(imported.audit))
    app.add_typer(group, name="import", rich_help_panel=PANEL)


@dataclass(frozen=True)
class ImportPlace(Place):
    """Where the history goes, and what is wished beside, alike for all formats."""

    cluster: str = ""
    history: Path | None = None
    jobs: Path | None = None
    budget_by: str = "account"
    dry_run: bool = False

    def named(self, file: Path) -> str:
        """Return whose history a file is where it does not say."""
        return self.cluster or Path(file.name.removesuffix(".gz")).stem or file.name


_OPTIONS: dict[str, tuple[Any, Any]] = {
    "cluster": (Cluster, ""), "history": (HistoryFile, None), "jobs": (JobsFile, None), "budget_by": (BudgetBy, "account"),
    "dry_run": (DryRun, False),
}  # fmt: skip


def _import_verb(function: Verb) -> Callable[..., int]:
    """Return the function as an import: into which history, of whose jobs, and what to write of them."""

    def place(options: dict[str, Any]) -> ImportPlace:
        return ImportPlace(*where(options), **{name: options[name] for name in _OPTIONS})

    return command_of(function, {**_OPTIONS, **PLACE_OPTIONS}, place)


async def sacct(
    place: ImportPlace,
    file: File,
    columns: Annotated[
        str, typer.Option("--columns", metavar="NAMES", help="Of a dump without heading: JobIDRaw,Cluster,...")
    ] = "",
    separator: Annotated[str, typer.Option("--separator", metavar="CHAR", help="Between fields")] = "|",
    zone: ZoneName = "UTC",
    until: Until = None,
) -> Answer:
    """Import Slurm's accounting: `sacct -a -X -D -P --format=...AllocTRES`."""
    from apportion.adapters.imports import sacct as format_

    order = [name for name in columns.split(",") if name.strip()]
    between, days = _one_character("--separator", separator), _zone(zone)

    def read(lines: Iterable[Line], intake: Intake) -> Iterator[Read]:
        return format_.read(lines, days, place.named(file), intake.note, order, between)

    return _imported(place, file, days, "sacct", read, until)


async def swf(
    place: ImportPlace,
    file: File,
    as_gpus: Annotated[bool, typer.Option("--as-gpus", help="Count a processor of the log as a GPU")] = False,
    zone: Annotated[str, typer.Option("--zone", metavar="ZONE", help="Of days [default: the log's own]")] = "",
) -> Answer:
    """Import a log of the Parallel Workloads Archive (.swf, .swf.gz)."""
    from apportion.adapters.imports import swf as format_
    from apportion.adapters.imports.lines import lines_of

    with explained(file):
        header = format_.header_of(lines_of(file))
    days = _zone(zone or header.zone or "UTC")

    def read(lines: Iterable[Line], intake: Intake) -> Iterator[Read]:
        return format_.read(lines, header, place.named(file), intake.note, as_gpus)

    stated = {name: header.number(name) for name in ("MaxJobs", "MaxRecords", "MaxProcs", "MaxNodes")}
    known = {name: value for name, value in stated.items() if value is not None}
    return _imported(place, file, days, "swf", read, stated=known)


async def csv(
    place: ImportPlace,
    file: File,
    map_: Annotated[
        str,
        typer.Option(
            "--map", metavar="K=V,...", help="Our fields and their columns: job=job_id,submit=t,duration=s,gpus=n"
        ),
    ],
    delimiter: Annotated[str, typer.Option("--delimiter", metavar="CHAR", help="Between fields")] = ",",
    zone: ZoneName = "UTC",
    until: Until = None,
) -> Answer:
    """Import any CSV of jobs, its columns named by --map."""
    from apportion.adapters.imports import mapped

    try:
        mapping = mapped.parse_map(map_)
    except ValueError as error:
        raise usage(f"--map: {error}") from None
    between, days = _one_character("--delimiter", delimiter), _zone(zone)

    def read(lines: Iterable[Line], intake: Intake) -> Iterator[Read]:
        return mapped.read(lines, mapping, days, place.named(file), intake.note, between)

    return _imported(place, file, days, "csv", read, until)


def _imported(
    place: ImportPlace,
    path: Path,
    zone: Zone,
    kind: str,
    read: Callable[[Iterable[Line], Intake], Iterator[Read]],
    until_ms: int | None = None,
    stated: dict[str, int] | None = None,
) -> Answer:
    """Run one import and tell what became of it."""
    from apportion.adapters.imports.intake import Intake, take_in
    from apportion.adapters.imports.lines import lines_of, size_of
    from apportion.adapters.imports.progress import Meter
    from apportion.projections.imported.usage import Asked, kinds, usage

    intake = Intake()
    with explained(path):
        size_bytes = size_of(path)
        with (
            opened(place, place.history, in_memory=place.dry_run) as store,
            Meter(path.name, size_bytes, quiet=place.as_json) as meter,
        ):
            about = {"name": path.name, "kind": kind}
            take_in(
                intake,
                read(lines_of(path, meter.seen), intake),
                store,
                zone,
                about,
                until_ms=until_ms,
                now_ms=time.time_ns() // 1_000_000,
            )
            totals = [row for row in usage(store.con, Asked(by=("cluster",))) if row["cluster"] in intake.clusters]
            found = kinds(store.con)
            jobs = _jobs(place, store, intake)
    return told(Outcome(path, place.dry_run, place.jobs, zone.name, totals, found, jobs, stated or {}), intake)


def _jobs(place: ImportPlace, store: History, intake: Intake) -> int | None:
    from apportion.adapters.imports import jobs

    if place.jobs is None:
        return None
    try:
        return jobs.written(place.jobs, jobs.chosen(store, intake.clusters, place.budget_by))
    except OSError as error:
        raise usage(f"--jobs {place.jobs}: {error.strerror or error}", "name a file that can be written") from None


def _one_character(option: str, text: str) -> str:
    text = "\t" if text in ("\\t", "tab") else text  # as people write it in a shell
    if len(text) != 1:
        raise usage(f"{option} {text!r} is not one character", f"such as {option} ';', or {option} tab")
    return text


def _zone(name: str) -> Zone:
    from apportion.adapters.imports.instants import Zone

    try:
        return Zone(name)
    except ValueError as error:
        raise usage(f"--zone: {error}") from None



"""What the imported history says: import usage|files|audit, and import units, which tells it who belongs where.

Reads ``imported.duckdb`` of the installation, or ``--history``. ``opened`` and ``explained`` are how the other verbs of the group
find that file and tell what is wrong with one. Decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from apportion.adapters.cli.failure import FAILED, USAGE, Failure, usage
from apportion.adapters.cli.import_report import HOURS, hours
from apportion.adapters.cli.output import Answer, Section
from apportion.adapters.cli.verbs import Place, moment

if TYPE_CHECKING:
    from apportion.projections.imported.history import History

HistoryFile = Annotated[
    Path | None, typer.Option("--history", metavar="FILE", help="Keep it here [default: imported.duckdb of --dir]")
]


async def units(
    place: Place,
    hierarchy: Annotated[Path, typer.Argument(metavar="HIERARCHY", help="CSV: id, name, id of the unit above")],
    members: Annotated[Path, typer.Argument(metavar="MEMBERS", help="CSV: group or account, id of its unit")],
    history: HistoryFile = None,
) -> Answer:
    """Tell which groups belong to which departments, for `usage --by unit2`."""
    from apportion.adapters.imports import organisation

    with explained(hierarchy):
        rows = organisation.units(hierarchy, members)
    with opened(place, history) as store:
        store.set_units(rows)
    return Answer(lines=[f"{len(rows):,} groups have a place in the organisation"], document={"members": len(rows)})


async def usage_(
    place: Place,
    by: Annotated[
        str,
        typer.Option(
            "--by", metavar="FIELDS", help="day, cluster, user, account, group, queue, qos, state, size, unit1..3, ..."
        ),
    ] = "account",
    since: Annotated[int | None, moment("Only what was held from then on", "--since")] = None,
    until: Annotated[int | None, moment("Only what was held before then", "--until")] = None,
    cluster: Annotated[str, typer.Option("--cluster", metavar="NAME", help="Only this one")] = "",
    history: HistoryFile = None,
) -> Answer:
    """Who used what of the imported history."""
    from apportion.core.units import MAX_TIME_MS
    from apportion.projections.imported.usage import SUMS, Asked, UsageRefused, split_of, usage

    try:
        asked = Asked(
            split_of([name.strip() for name in by.split(",") if name.strip()]),
            since or 0,
            until if until is not None else MAX_TIME_MS,
            cluster,
        )
    except UsageRefused as error:
        raise Failure(USAGE, str(error)) from None
    with opened(place, history, read_only=True) as store:
        rows = usage(store.con, asked)
    total = {name: sum(row[name] for row in rows) for name in SUMS[1:]}
    shown = [{**row, **{name: hours(row[name]) for name in HOURS}} for row in rows]
    shown_total = {**total, **{name: hours(total[name]) for name in HOURS}}
    section = Section(
        rows, [*asked.by, *SUMS], shown=shown, headings={"gpus_milli": "GPUs", **HOURS}, total=shown_total,
        empty="nothing ran then; `apportion import files` tells what was imported", drop=("wait_ms", "wall_ms"),
    )  # fmt: skip
    return Answer([section], more={"total": total})


async def files(place: Place, history: HistoryFile = None) -> Answer:
    """Show which files were imported."""
    from apportion.projections.imported.usage import sources

    with opened(place, history, read_only=True) as store:
        rows = sources(store.con)
    columns = ["file", "name", "kind", "zone", "lines", "attempts", "refused", "passed", "imported_ms"]
    return Answer([Section(rows, columns, empty="nothing was imported yet")])


async def audit(place: Place, history: HistoryFile = None) -> Answer:
    """Check that the imported history adds up."""
    from apportion.projections.imported.usage import CHECKS

    found = []
    with opened(place, history, read_only=True) as store:
        for name, (question, sql) in CHECKS.items():
            rows = store.con.execute(sql).fetchall()
            found.append(
                {"check": name, "question": question, "violations": len(rows), "rows": [list(row) for row in rows[:20]]}
            )
    failed = [row for row in found if row["violations"]]
    lines = [f"{len(failed)} of {len(found)} checks do not hold" if failed else f"all {len(found)} checks hold"]
    section = Section(found, ["violations", "check", "question"], key="checks", shown=failed or found)
    return Answer([section], lines=lines, code=FAILED if failed else 0)


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn what is wrong with a file as a whole into the user's error."""
    from apportion.adapters.imports.attempt import BadFile

    try:
        yield
    except BadFile as error:
        text = str(error)
        raise usage(text if str(path) in text else f"{path}: {text}") from None


@contextmanager
def opened(
    place: Place, history: Path | None, *, read_only: bool = False, in_memory: bool = False
) -> Iterator[History]:
    """Open the history of the installation, or the one named. Raises ``Failure`` (2)."""
    from apportion.projections.imported.history import History, HistoryError

    path = history or place.home.root / "imported.duckdb"
    if read_only and not path.is_file():
        raise usage(
            f"{path} is not there: nothing was imported yet",
            "`apportion import sacct FILE`, `swf FILE` or `csv FILE` make it",
        )
    try:
        store = History(None if in_memory else path, read_only=read_only)
    except HistoryError as error:
        raise usage(str(error)) from None
    with store:
        yield store

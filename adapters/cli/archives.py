"""Verbs of the archive: write, list, check; ``cut`` is in ``cutting``, ``thin`` in ``thinning``.

An archive is a directory of both logs in daily files, with a snapshot of the core at each day's end. ``--dir`` of an archive makes
``verify``, ``replay``, ``events`` and ``audit`` read it, without a server. Nothing here changes a log.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from apportion.adapters.cli.cutting import cut
from apportion.adapters.cli.failure import FAILED, usage
from apportion.adapters.cli.output import Answer, Section
from apportion.adapters.cli.showing import progress
from apportion.adapters.cli.stores import ARCHIVE, archive_meant, existing_archive, open_logs
from apportion.adapters.cli.thinning import thin
from apportion.adapters.cli.verbs import Place, table_verb, use_kernels, verb
from apportion.adapters.text import render

PANEL = "Check and replay"


def add_to(app: typer.Typer) -> None:
    """Register the group."""
    group = typer.Typer(
        no_args_is_help=True, rich_markup_mode=None,
        help="The log in daily files: write, list, check, cut, thin (read it with --dir).",
    )  # fmt: skip
    group.command("write")(verb(write))
    group.command("list")(table_verb(list_))
    group.command("check")(verb(check))
    group.command("cut")(verb(cut))
    group.command("thin")(verb(thin))
    app.add_typer(group, name="archive", rich_help_panel=PANEL)


async def write(
    place: Place,
    to: Annotated[
        Path | None, typer.Option("--to", metavar="DIR", help="The archive [default: archive in the installation's directory]")
    ] = None,
    parquet: Annotated[bool, typer.Option("--parquet", help="Also as Parquet, for notebooks and other engines")] = False,
    with_open_day: Annotated[
        bool, typer.Option("--open-day", help="Also the day that is not over; the next write takes its place")
    ] = False,
) -> Answer:
    """Archive every day of the log that is over, checked on the way."""
    directory = archive_meant(place, to)
    if directory == place.home.root:
        raise usage(f"{directory} is itself an archive or an installation", "name another directory with --to")
    use_kernels()
    from apportion.adapters.archiving.writing import write as write_days

    async with open_logs(place) as logs:
        with progress("archive", quiet=place.as_json) as show:
            written = await write_days(
                logs.events, logs.decisions, directory, with_open_day=with_open_day, progress=show
            )
    made = []
    if parquet:
        from apportion.adapters.archiving.parquet import complete

        made = complete(directory)
    lines = [
        f"{render.many(len(written.days), 'day')} added to {directory}; "
        f"it ends at seq {written.archived_seq:,}, the log at {written.log_seq:,}"
    ]
    if made:
        lines.append(f"{len(made)} Parquet files in {directory / 'parquet'}")
    if written.unfinished_day and written.archived_seq < written.log_seq:
        lines.append(f"{written.unfinished_day} is not over: it stays in the log (--open-day adds what there is of it)")
    if written.waiting_seq:
        lines.append(f"the tick of seq {written.waiting_seq:,} is not decided yet: what follows it comes with the next write")
    section = _section(written.days)
    more = {
        "archive": str(directory), "archived_seq": written.archived_seq, "log_seq": written.log_seq,
        "parquet": [file.name for file in made],
    }  # fmt: skip
    return Answer([section] if written.days else [], lines=lines, more=more | ({} if written.days else {"days": []}))


_COLUMNS = ["day", "first_seq", "last_seq", "cycles", "files", "bytes", "state", "chain"]


def _row(entry: Any) -> dict[str, Any]:
    return {
        "day": entry.day,
        "first_seq": entry.first_seq,
        "last_seq": entry.last_seq,
        "cycles": entry.cycles,
        "files": len(entry.files),
        "bytes": sum(file.size for file in entry.files),
        "state": "sealed" if entry.sealed else "open",
        "chain": entry.events[-1].hash if entry.events else "",
        "digest": entry.digest,
    }


def _section(days: Sequence[Any]) -> Section:
    rows = [_row(entry) for entry in days]
    shown = [{**row, "chain": row["chain"][:12]} for row in rows]
    return Section(rows, _COLUMNS, key="days", empty="no day is archived yet", shown=shown)


async def list_(place: Place, archive: ARCHIVE = None) -> Answer:
    """List the days of an archive."""
    from apportion.adapters.logs.manifest import load

    directory = existing_archive(place, archive)
    return Answer([_section(load(directory).days)], lines=[f"archive {directory}"], after=[f"apportion archive check {directory}"])


async def check(place: Place, archive: ARCHIVE = None) -> Answer:
    """Check every file of an archive against its hash, and the chain between them."""
    use_kernels()
    from apportion.adapters.archiving.checking import findings
    from apportion.adapters.logs.manifest import load
    from apportion.adapters.past.driving import Progress

    directory = existing_archive(place, archive)
    days = load(directory).days
    last_seq = days[-1].last_seq if days else 0
    with progress("check", quiet=place.as_json) as show:
        bad = findings(
            directory, lambda entry: show(Progress(entry.last_seq, entry.cycles, entry.last_seq, last_seq, entry.last_ms))
        )
    rows = [finding._asdict() for finding in bad]
    files, size = sum(len(entry.files) for entry in days), sum(file.size for entry in days for file in entry.files)
    document = {"archive": str(directory), "ok": not bad, "days": len(days), "files": files, "bytes": size, "last_seq": last_seq,
                "findings": rows}  # fmt: skip
    if bad:
        section = Section(rows, ["file", "what"], key="findings")
        what = f"{len(bad)} of {render.many(files, 'file')} of {directory} are not as they were written"
        return Answer([section], lines=[what], document=document, code=FAILED)
    chain = days[-1].events[-1].hash if days and days[-1].events else "none"
    lines = [
        f"ok: {render.many(len(days), 'day')}, {render.many(files, 'file')}, {size:,} bytes, "
        f"seq 1 to {last_seq:,}: every file has its hash, and follows the one before it",
        f"chain {chain}",
    ]
    return Answer(lines=lines, document=document)

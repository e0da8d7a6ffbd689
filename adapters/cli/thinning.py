"""The verb that takes snapshots out of an archive: ``archive thin``.

Where the installation's server, or its store, is at hand, it is asked which days a cut was made by: their snapshots stay. What goes
is decided in ``archiving.thinning``.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Annotated

import typer

from apportion.adapters.cli.asking import server_url
from apportion.adapters.cli.output import Answer, Section
from apportion.adapters.cli.stores import ARCHIVE, existing_archive, open_server
from apportion.adapters.cli.verbs import Place, one_of, whole
from apportion.adapters.text import render

KEEP_DAYS = 60


async def thin(
    place: Place,
    archive: ARCHIVE = None,
    keep: Annotated[
        int, typer.Option("--keep", parser=whole(2), metavar="DAYS", help="The newest days, whose snapshots all stay")
    ] = KEEP_DAYS,
    every: Annotated[
        str, typer.Option("--every", parser=one_of("week", "month"), metavar="PERIOD", help="Of older ones the first of each stays")
    ] = "month",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would go; remove nothing")] = False,
) -> Answer:
    """Remove daily snapshots of long ago from an archive: what is made from them is made from earlier ones."""
    from apportion.adapters.archiving import thinning
    from apportion.adapters.logs import manifest

    directory = existing_archive(place, archive)
    named = await _named(place)
    with nullcontext() if dry_run else manifest.locked(directory):
        days = manifest.load(directory).days
        wanted = thinning.to_thin(days, keep, "week" if every == "week" else "month", named)
        size = sum(entry.snapshot.size for entry in wanted if entry.snapshot is not None)
        freed = 0 if dry_run else thinning.thin(directory, wanted)
    left = sum(1 for entry in days if entry.snapshot is not None) - len(wanted)
    rows = [
        {"day": entry.day, "last_seq": entry.last_seq, "bytes": entry.snapshot.size, "file": entry.snapshot.name}
        for entry in wanted
        if entry.snapshot is not None
    ]
    what = f"{render.many(len(wanted), 'snapshot')} of {directory}, {size:,} bytes" if wanted else f"no snapshot of {directory}"
    lines = [f"{'would go' if dry_run else 'gone'}: {what}; {left:,} stay, of the newest {keep} days and the first of each {every}"]
    if freed > size:
        lines.append(f"and {freed - size:,} bytes that an interrupted run had left")
    document = {"archive": str(directory), "dry_run": dry_run, "bytes": size, "freed_bytes": freed, "left": left, "thinned": rows}
    section = Section(rows, ["day", "last_seq", "bytes", "file"], key="thinned")
    return Answer([section] if rows else [], lines=lines, document=document)


async def _named(place: Place) -> set[int]:
    """Return the ends of days that a cut of the live log was made by, as far as its streams are at hand."""
    from apportion.adapters.bus.cut import declared
    from apportion.adapters.bus.topology import stream_info

    if server_url(place) is None and not place.home.jetstream.is_dir():
        return set()
    async with open_server(place) as connection:
        cut = declared((await stream_info(connection, "EVENTS")).config)
    return set() if cut is None else {cut.cut_seq, cut.archived_seq}

"""The verb that shortens the live log: ``archive cut``.

It drops nothing unless all that the cut rests on was checked. A cut that was interrupted is opened first, then planned and checked
anew, so the verb may simply be run again.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from apportion.adapters.cli.failure import FAILED, Failure
from apportion.adapters.cli.output import Answer
from apportion.adapters.cli.showing import progress
from apportion.adapters.cli.stores import ARCHIVE, existing_archive, open_server
from apportion.adapters.cli.verbs import Place, use_kernels, whole

if TYPE_CHECKING:
    from apportion.adapters.archiving.cutting.plan import Plan
    from apportion.adapters.archiving.cutting.proof import Proved
    from apportion.adapters.bus.connection import Connection

KEEP_DAYS = 30


async def cut(
    place: Place,
    archive: ARCHIVE = None,
    keep: Annotated[
        int, typer.Option("--keep", parser=whole(2), metavar="DAYS", help="Archived days that stay in the log")
    ] = KEEP_DAYS,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check everything and say what would go; drop nothing")] = False,
) -> Answer:
    """Drop days from the live log that its archive has, once that is proved."""
    use_kernels()
    from apportion.adapters.archiving.cutting.plan import CutRefused
    from apportion.adapters.bus.connection import ApiError
    from apportion.adapters.bus.permission import NotPermitted
    from apportion.adapters.logs import manifest

    directory = existing_archive(place, archive)
    async with open_server(place) as connection:
        try:
            with manifest.locked(directory):
                return await _cut(place, connection, directory, keep, dry_run)
        except CutRefused as error:
            raise Failure(FAILED, str(error), "nothing was dropped") from None
        except NotPermitted as error:
            do = "name the archivist of deploy/nats.conf with --server; run it again: it opens what it has fenced and goes on"
            raise Failure(FAILED, str(error), do) from None
        except ApiError as error:
            raise Failure(FAILED, str(error), "run it again: it opens what it has fenced and goes on") from None
        except TimeoutError as error:
            do = "a user who may call STREAM.UPDATE is needed (deploy/nats.conf); run it again: it opens what it has fenced"
            raise Failure(FAILED, str(error), do) from None


async def _cut(place: Place, connection: Connection, directory: Path, keep: int, dry_run: bool) -> Answer:
    from apportion.adapters.archiving.cutting.carrying import carry_out
    from apportion.adapters.archiving.cutting.plan import plan
    from apportion.adapters.archiving.cutting.proof import prove
    from apportion.adapters.bus.shortening import open_again
    from apportion.adapters.bus.topology import stream_info

    opened = [f"the fence that an interrupted cut left at {stream} is gone" for stream in await open_again(connection)]
    wanted = await plan(connection, directory, keep)
    if wanted is None:
        line = f"nothing to cut: the log holds no archived day but the newest {keep}"
        return Answer(lines=[*opened, line], document={"cut": False, "days": 0, "records": 0, "archive": str(directory)})
    with progress("compare", quiet=place.as_json) as show:
        proved = await prove(connection, wanted, show)
    sizes = [(await stream_info(connection, stream)).state.bytes for stream in ("EVENTS", "DECISIONS")]
    behind = () if dry_run else await carry_out(connection, wanted)
    after = [(await stream_info(connection, stream)).state.bytes for stream in ("EVENTS", "DECISIONS")]
    freed = sum(sizes) - sum(after)
    return _answer(wanted, proved, opened, dry_run, freed, behind)


def _answer(wanted: Plan, proved: Proved, opened: list[str], dry_run: bool, freed: int, behind: tuple[str, ...]) -> Answer:
    first, second = wanted.snapshots
    days = f"{wanted.days} day{'s' * (wanted.days != 1)}"
    lines = [
        *opened,
        f"proved: {proved.records:,} records and {proved.batches:,} batches are in {wanted.directory} byte for byte; "
        f"the snapshots of {first.day} and {second.day} are right",
        f"{'would go' if dry_run else 'dropped'}: {days} up to {wanted.day}, {wanted.records:,} records (seq {wanted.first_seq:,} "
        f"to {wanted.events.cut_seq:,}), {proved.bytes_dropped:,} bytes of subjects and bodies",
        f"the log {'would begin' if dry_run else 'begins'} with seq {wanted.events.cut_seq + 1:,}, {wanted.kept_days} archived "
        "days stay in it" + ("" if dry_run else f"; the streams are {freed:,} bytes smaller"),
    ]
    if wanted.open.seqs:
        kept = f"{len(wanted.open.seqs):,} submissions of it {'would be' if dry_run else 'are'} kept apart for agents"
        lines.append(f"{kept}: {len(wanted.open.jobs):,} jobs are not closed, and their commands are read from there")
    after = [] if dry_run else [f"{wanted.directory} is the only place that has what was dropped: keep a copy of it elsewhere"]
    if behind:
        records, batches = (cut.archived_seq - cut.cut_seq for cut in (wanted.events, wanted.decisions))
        after.append(
            f"replica {', '.join(behind)} was not there when the limit was lifted: for each message written before it is back, "
            f"it drops one more. The archive covers {records:,} records and {batches:,} batches of that; if it stays away longer, "
            "empty its store before it starts: the others fill it"
        )
    document: dict[str, Any] = {
        "cut": not dry_run, "archive": str(wanted.directory), "up_to_day": wanted.day, "days": wanted.days,
        "kept_days": wanted.kept_days, "first_seq": wanted.first_seq, "cut_seq": wanted.events.cut_seq,
        "cut_decision": wanted.decisions.cut_seq, "records": wanted.records, "bytes": proved.bytes_dropped,
        "freed_bytes": 0 if dry_run else freed, "compared_records": proved.records, "compared_batches": proved.batches,
        "archived_seq": wanted.events.archived_seq, "snapshots": [first.last_seq, second.last_seq],
        "kept_submissions": len(wanted.open.seqs), "open_jobs": len(wanted.open.jobs), "opened": opened, "replicas_behind": behind,
    }  # fmt: skip
    return Answer(lines=lines, after=after, document=document)

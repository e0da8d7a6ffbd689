"""Verbs that ask the projection as a whole: audit, sql.

``audit`` runs every check of ``projections.audit`` and exits with 1 when one does not hold. With the server stopped it
reads the projection's file; where there is none that this program can read, it builds one in memory from the log.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from apportion.adapters.cli.asking import Reply, answered, connected, projection_file, server_url, warn
from apportion.adapters.cli.failure import FAILED, Failure
from apportion.adapters.cli.output import Answer, Section
from apportion.adapters.cli.showing import progress
from apportion.adapters.cli.stores import open_logs
from apportion.adapters.cli.verbs import Place, verb

PANEL = "Check and replay"
READ_EVENTS = 10_000
READ_BATCHES = 1_000


def add_to(app: typer.Typer) -> None:
    """Register the verbs."""
    app.command("audit", rich_help_panel=PANEL)(verb(audit))


async def audit(
    place: Place,
    check: Annotated[str, typer.Argument(metavar="CHECK", help="Only this check, with the rows that break it")] = "",
    all_: Annotated[bool, typer.Option("--all", help="List the checks that hold too")] = False,
    from_log: Annotated[
        bool, typer.Option("--from-log", help="Build a projection from the log and check that one")
    ] = False,
) -> Answer:
    """Check that everything adds up: log, decisions, allocations, ledger."""
    params = {"check": check} if check else {}
    reply = await _audited(place, params, from_log)
    failed = [row for row in reply.rows if row["violations"]]
    answer = Answer(as_of=reply.as_of, code=FAILED if failed else 0)
    answer.document = {
        "as_of": reply.as_of.document(),
        "checks": len(reply.rows),
        "failed": len(failed),
        "findings": [{**row, "holds": not row["violations"]} for row in reply.rows],
    }
    if failed:
        answer.lines = [f"{len(failed)} of {len(reply.rows)} checks do not hold"]
    elif check:
        answer.lines = [f"{check} holds: {reply.rows[0]['question']}"]
    else:
        answer.lines = [f"all {len(reply.rows)} checks hold"]
    listed = reply.rows if all_ else failed
    if listed and not check:
        answer.sections.append(Section(listed, ["violations", "check", "question"]))
        if failed:
            answer.after = [f"apportion audit {failed[0]['check']}   shows the rows that break it"]
    elif failed:
        rows = [dict(row) for row in failed[0]["rows"]]
        answer.lines.append(f"{failed[0]['question']}")
        answer.sections.append(Section(rows, list(rows[0]) if rows else []))
        if failed[0]["violations"] > len(rows):
            answer.after = [f"the first {len(rows)} of {failed[0]['violations']:,} rows"]
    return answer


async def _audited(place: Place, params: dict[str, Any], from_log: bool) -> Reply:
    """Ask the running projector, else the file, else a projection made from the log here and now."""
    if from_log:
        return await _from_log(place, params)
    if server_url(place) is not None:
        from apportion.adapters.cli.asking import asked

        async with connected(place) as connection:
            return await asked(connection.client, "audit", **params)
    if place.home.projection.is_file():
        try:
            with projection_file(place) as file:
                return answered(file, "audit", params)
        except Failure as failure:
            warn(f"{failure.what}; building a projection from the log instead")
    return await _from_log(place, params)


async def _from_log(place: Place, params: dict[str, Any]) -> Reply:
    """Build a projection in memory from the log and check it."""
    from apportion.adapters.replaying import Progress
    from apportion.projections.runner import Projection

    with Projection() as projection:
        async with open_logs(place) as logs:
            at = Progress(last_seq=await logs.events.last_seq())
            with progress("audit", quiet=place.as_json) as show:
                while True:
                    records = await logs.events.read(projection.wants_after_seq, READ_EVENTS)
                    batches = await logs.decisions.read(projection.wants_after_decision_seq, READ_BATCHES)
                    if not records and not batches:
                        break
                    projection.ingest(records, batches)
                    at.events = at.seq = projection.wants_after_seq
                    at.time_ms = projection.position.time_ms
                    show(at)
        projection.refresh()
        return answered(projection.con, "audit", params)

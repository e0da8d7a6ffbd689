"""Verbs that ask the projection as a whole: audit, sql.

``audit`` runs every check of ``projections.audit`` and exits with 1 when one does not hold. With the server stopped it
reads the projection's file; where there is none that this program can read, it builds one in memory from the log.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from apportion.adapters.cli.asking import Reply, answered, connected, no_server, projection_file, server_url, warn
from apportion.adapters.cli.failure import FAILED, USAGE, Failure, unreachable, usage
from apportion.adapters.cli.output import Answer, AsOf, Section
from apportion.adapters.cli.stores import open_logs
from apportion.adapters.cli.verbs import Place, lasting, table_verb, verb, whole
from apportion.adapters.text import render

PANEL = "Check and replay"


def add_to(app: typer.Typer) -> None:
    """Register the verbs."""
    app.command("audit", rich_help_panel=PANEL)(verb(audit))
    app.command("sql", rich_help_panel="Look")(table_verb(sql))


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
        answer.lines = ["the check holds" if len(reply.rows) == 1 else f"all {len(reply.rows)} checks hold"]
    listed = reply.rows if all_ else failed
    if listed and not check:
        answer.sections.append(Section(listed, ["violations", "check", "question"]))
        if failed:
            answer.after = [f"apportion audit {failed[0]['check']}   shows the rows that break it"]
    elif failed:
        rows = [dict(row) for row in failed[0]["rows"]]
        answer.lines.append(f"{failed[0]['question']}")
        answer.sections.append(Section(rows, list(rows[0]) if rows else [], raw=True))
        if failed[0]["violations"] > len(rows):
            answer.after = [f"the first {len(rows)} of {render.many(failed[0]['violations'], 'row')}"]
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
            warn(place, f"{failure.what}; building a projection from the log instead")
    return await _from_log(place, params)


async def _from_log(place: Place, params: dict[str, Any]) -> Reply:
    """Build a projection in memory from the log and check it."""
    from apportion.adapters.projector.building import feed
    from apportion.projections.runner import Projection

    with Projection() as projection:
        warn(place, "building a projection from the log")
        async with open_logs(place) as logs:
            await feed(projection, logs.events, logs.decisions)
        projection.refresh()
        return answered(projection.con, "audit", params)


TABLES = """
select t.name, t.kind, string_agg(c.column_name, ', ' order by c.column_index) as columns
from (
    select schema_name, table_name, schema_name || '.' || table_name as name, 'table' as kind
    from duckdb_tables() where not internal
    union all
    select schema_name, view_name, schema_name || '.' || view_name, 'view' from duckdb_views() where not internal
) as t join duckdb_columns() as c using (schema_name, table_name)
group by t.name, t.kind order by t.name
"""


async def sql(
    place: Place,
    query: Annotated[str, typer.Argument(metavar="QUERY", help="One SELECT; without it the tables are listed")] = "",
    file: Annotated[
        Path | None, typer.Option("--file", "-f", metavar="FILE", help="Read the query from here (- is stdin)")
    ] = None,
    timeout: Annotated[int, lasting("Stop it after this", "10s")] = 10_000,
    history: Annotated[
        Path | None, typer.Option("--history", metavar="FILE", help="Ask this imported history instead (see `import`)")
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", parser=whole(1, 10_000), metavar="N", help="At most so many rows")
    ] = 10_000,
) -> Answer:
    """Ask the newest published copy of the projection, in a sandbox."""
    import asyncio

    from apportion.adapters.projector.sandbox import Limits, SandboxRefused, run_sql

    if query and file is not None:
        raise usage("a query and --file cannot both be given", "choose one of them")
    text = _read(file) if file is not None else query
    if history is not None and not history.is_file():
        raise usage(f"{history} is not there", "`apportion import` makes one: imported.duckdb in the installation's directory")
    copy = history.resolve() if history is not None else _copy(place)
    try:
        answer = await asyncio.to_thread(run_sql, copy, text or TABLES, Limits(time_s=timeout / 1000, rows=limit))
    except SandboxRefused as refused:
        code = USAGE if refused.kind == "usage" else FAILED
        raise Failure(code, str(refused), _SQL_HELP.get(refused.kind, "")) from None
    section = Section(answer.dicts(), list(answer.columns), empty="no rows", raw=True)
    note = "published copy" if copy.parent == place.home.published else "projection file as it was left"
    after = [f"only the first {limit:,} rows are shown"] if answer.truncated else []
    if not text:
        after = ["views of the mart and their macros answer most questions; ask for example:",
                 "  apportion sql 'select budget, sum(gpus_milli) from fact.alloc_open group by all'"]  # fmt: skip
    as_of = AsOf(answer.as_of_seq, answer.as_of_ms, note=note) if history is None else None
    return Answer([section], after=after, more={"truncated": answer.truncated}, as_of=as_of)


_SQL_HELP = {
    "usage": "`apportion sql` without a query lists the tables and their columns",
    "time": "narrow it down, or give it longer with --timeout",
    "memory": "narrow it down: fewer columns, a time range, an aggregate",
}


def _read(file: Path) -> str:
    import sys

    try:
        return sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise usage(f"cannot read {file}: {error}", "name a text file with one SELECT") from None


def _copy(place: Place) -> Path:
    """Return the file to ask: the newest published copy; the projection itself only while nobody writes it."""
    from apportion.projections.storage import newest

    if place.server and not place.home.published.is_dir():
        raise unreachable(
            "ad-hoc SQL reads a published copy on this machine, and there is none",
            "run it on the machine of the projector, or name its directory with --dir",
        )
    copy = newest(place.home.published)
    if copy is not None:
        return copy
    if place.home.projection.is_file() and server_url(place) is None:
        return place.home.projection
    if place.home.projection.is_file():
        raise unreachable(
            "no copy of the projection has been published yet", "one is made every 30 s; try again in a moment"
        )
    raise no_server(place)

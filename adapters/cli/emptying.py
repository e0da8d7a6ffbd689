"""``node drain`` and ``node show``: a node that is wanted empty, what it costs whom, and how far it is.

What becomes of each run comes from the core's own function on its state (``adapters.seen.emptying``), what is there from the
projection. Nobody has to be asked by telephone: who states his end is left, who may be moved is moved at a checkpoint, and who is
waited for stands here with his name and the instant until which.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from apportion.adapters.cli import arguments
from apportion.adapters.cli.asking import Opened, opened
from apportion.adapters.cli.cores import core_if_readable
from apportion.adapters.cli.deciding import send
from apportion.adapters.cli.failure import usage
from apportion.adapters.cli.finding import node_of
from apportion.adapters.cli.output import Answer, Section
from apportion.adapters.cli.publishing import checked, event_document, now_ms
from apportion.adapters.cli.verbs import ReadPlace, WritePlace, typed
from apportion.adapters.seen import emptying
from apportion.adapters.text import render
from apportion.adapters.text.wording import words_of

Node = Annotated[str, typer.Argument(metavar="NODE", help="The node's name")]
_OPTIONS = {"node": "the node", "by_ms": "--by", "force": "--force", "reason": "--reason"}
_COLUMNS = ("workload", "run", "gpus_milli", "becomes", "gone_ms", "why")
_WITHOUT = "what becomes of each run needs the log, which cannot be read here"


async def drain(
    place: WritePlace,
    node: Node,
    by: Annotated[
        int | None,
        typer.Option(
            parser=typed(lambda text: arguments.instant_or_after_ms(text, now_ms())),
            metavar="TIME",
            help="When it is to be empty: 2026-01-02T15:04 (UTC), or from now 2h [default: at once]",
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Funded and protected runs have to go too, their grace before the deadline")
    ] = False,
) -> Answer:
    """Empty a node by a time: nothing new that would pass it, who may be moved is moved. --dry-run shows the plan."""
    from apportion.core.events import NodeDrained

    by_ms = by or 0
    if by_ms and by_ms <= now_ms():
        raise usage(f"--by {render.when(by_ms)} is past", "leave it out to drain at once")
    event = checked(NodeDrained, _OPTIONS, node=node, by_ms=by_ms, force=force, reason=place.reason)
    async with opened(place) as source:
        before = await node_of(source, node)
        if place.dry_run:
            return await _dry_run(source, place, event, before)
        outcome = await send(source, place, event, _OPTIONS)
        answer = outcome.answer(subject=f"drain {node}", node=node)
        if outcome.decided and outcome.as_of is not None:
            core = await core_if_readable(place, outcome.as_of.seq, _WITHOUT)
            rows = emptying.plan(core, node) if core else []
            answer.document |= {"plan": rows, "empty_ms": emptying.empty_ms(rows, core.time_ms) if core else None}
            answer.lines += _told(node, rows, core.time_ms) if core else []
            answer.after.append(f"`apportion node show {node}` shows how far it is; `apportion node uncordon {node}` ends it")
        return answer


async def _dry_run(source: Opened, place: WritePlace, event: Any, row: dict[str, Any]) -> Answer:
    """Return what would become of each run, decided by nobody."""
    document = event_document(place, event)
    reply = await source.ask("nodes", node=event.node)
    answer = Answer(lines=[f"would publish {document['type']} as {place.principal}; nothing was sent"], as_of=reply.as_of)
    core = await core_if_readable(place, reply.as_of.seq, _WITHOUT)
    rows: list[dict[str, Any]] = []
    refused = ""
    if core is not None:
        refused = emptying.imagine(core, event, place.principal, now_ms())
        rows = emptying.plan(core, event.node)
        told = _told(event.node, rows, core.time_ms)
        answer.lines += [f"it would be refused: {words_of('refusal', refused)[0]}"] if refused else told
    answer.document = {
        "dry_run": True, "event": document, "known": {"node": [row]}, "refused": refused or None, "plan": rows,
        "empty_ms": emptying.empty_ms(rows, core.time_ms) if core is not None else None,
    }  # fmt: skip
    return answer


async def show(place: ReadPlace, node: Node) -> Answer:
    """Show one node: state, drain and by when, and what becomes of each run there."""
    async with opened(place) as source:
        await node_of(source, node)
        reply = await source.ask("nodes", node=node)
    row = reply.rows[0]
    core = await core_if_readable(place, reply.as_of.seq, _WITHOUT) if row["runs"] else None
    rows = emptying.plan(core, node) if core else []
    shown = [{**found, "why": why(found)} for found in rows]
    headings = {"gpus_milli": "GPUs", "gone_ms": "until", "becomes": "is"}
    section = Section(rows, _COLUMNS, key="runs", shown=shown, headings=headings, empty="nothing runs here", drop=("run",))
    drained, known = row["drain_by_ms"] is not None, bool(core) or not row["runs"]
    more = {"node": row, "empty_ms": emptying.empty_ms(rows, reply.as_of.time_ms) if drained and known else None}
    after = [_expected(node, rows, reply.as_of.time_ms)] if drained and known else []
    return Answer([section] if known else [], headline(row), after=after, more=more, as_of=reply.as_of)


def headline(row: dict[str, Any]) -> list[str]:
    """Return a node's state in sentences."""
    runs = render.many(len(row["runs"]), "run")
    used = f"{render.gpu_count(row['used_milli'])} of {render.gpus(row['gpus'] * 1_000)} used by {runs}"
    lines = [f"node {row['node']} in pool {row['pool']}: {row['state']}, {used}"]
    if row["drain_by_ms"] is not None:
        lines.append(drain_words(row))
    elif row["reason"]:
        reason = words_of("node", row["reason"], {})[0] if row["state"] == "suspended" else render.clean(row["reason"])
        lines.append(f"  {reason}" + (f", by {row['principal']}" if row["state"] == "cordoned" else ""))
    return lines


def drain_words(row: dict[str, Any]) -> str:
    """Return by when, by whom and why a node is drained."""
    forced = ", with force" if row["drain_force"] else ""
    reason = f": {render.clean(row['reason'])}" if row["reason"] else ""
    return f"  drained by {render.when(row['drain_by_ms'])}{forced}, ordered by {row['principal']}{reason}"


def _told(node: str, rows: list[dict[str, Any]], now_ms: int) -> list[str]:
    lines = [f"{render.many(len(rows), 'run')} on {node}:" if rows else f"nothing runs on {node}"]
    for row in rows:
        lines.append(f"  {row['workload']} run {row['run']}, {render.gpus(row['gpus_milli'])}: {row['becomes']}: {why(row)}")
    return [*lines, _expected(node, rows, now_ms)] if rows else lines


def _expected(node: str, rows: list[dict[str, Any]], now_ms: int) -> str:
    if not rows:
        return f"{node} is empty"
    at_ms = emptying.empty_ms(rows, now_ms)
    if at_ms is None:
        unknown = render.many(sum(row["gone_ms"] is None for row in rows), "run is", "runs are")
        return f"when {node} is empty is not known: {unknown} waited for without a stated end (--force does not wait)"
    return f"{node} is expected to be empty by {render.when(at_ms)}"


def why(row: dict[str, Any]) -> str:
    """Return what becomes of a run, and why, in a few words."""
    by = f"by {render.when(row['asked_ms'])}" if row["asked_ms"] is not None else ""
    force = ", although it is funded or protected" if row["forced"] else ""
    match row["becomes"]:
        case emptying.LEFT:
            return f"it states to end by {render.when(row['stated_end_ms'])}"
        case emptying.MOVED:
            return f"asked to go at its last checkpoint in time, at the latest {by}{force}"
        case emptying.STOPPED:
            return f"asked to go {by} unless it saves before{force}"
        case emptying.WAITED:
            ends = f", it states to end by {render.when(row['stated_end_ms'])}" if row["stated_end_ms"] else ", it states no end"
            return ("funded" if row["payer"] == "budget" else "protected") + ends
        case emptying.STOPPING:
            return f"it was asked to go and has until {render.when(row['gone_ms'])}"
        case _:
            return "nothing asks it to go"

"""Verbs of operators on nodes: node list|show|cordon|uncordon|drain.

Cordoning stops new runs only, and says what still runs there and until when. Draining plans: see ``emptying``.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from apportion.adapters.cli.asking import Opened, opened
from apportion.adapters.cli.deciding import written
from apportion.adapters.cli.emptying import drain, drain_words, show
from apportion.adapters.cli.finding import node_of
from apportion.adapters.cli.output import Answer, Section
from apportion.adapters.cli.publishing import checked
from apportion.adapters.cli.verbs import ReadPlace, WritePlace, read_verb, write_verb
from apportion.adapters.text import render
from apportion.adapters.text.wording import words_of

PANEL = "Nodes"
Node = Annotated[str, typer.Argument(metavar="NODE", help="The node's name")]
_OPTIONS = {"node": "the node", "reason": "--reason"}


def add_to(app: typer.Typer) -> None:
    """Register the group ``node``."""
    node = typer.Typer(
        no_args_is_help=True, rich_markup_mode=None, help="Nodes: what is there, and what may run on it."
    )
    node.command("list")(read_verb(list_))
    node.command("cordon")(write_verb(cordon))
    node.command("uncordon")(write_verb(uncordon))
    node.command("drain")(write_verb(drain))
    node.command("show")(read_verb(show))
    app.add_typer(node, name="node", rich_help_panel=PANEL)


async def list_(
    place: ReadPlace, pool: Annotated[str, typer.Option(metavar="POOL", help="Only this pool")] = ""
) -> Answer:
    """Show the nodes: state, GPUs, what is free, last heartbeat."""
    async with opened(place) as source:
        reply = await source.ask("nodes", **({"pool": pool} if pool else {}))
    columns = ["node", "pool", "state", "gpus", "free_milli", "runs", "busy_ppm", "last_beat_ms", "reason"]
    shown = [
        {
            **row,
            "free_milli": row["unused_milli"] if takes_work(row, reply.as_of.time_ms) else 0,
            "runs": len(row["runs"]),
            "reason": node_reason(row),
        }
        for row in reply.rows
    ]
    section = Section(
        reply.rows,
        columns,
        shown=shown,
        headings={"free_milli": "free", "busy_ppm": "busy", "last_beat_ms": "last heard"},
        empty="no node has joined; start an agent: apportion agent --node NAME --gpus 8",
        drop=("pool", "busy_ppm", "last_beat_ms"),
    )
    return Answer([section], as_of=reply.as_of)


def takes_work(row: dict[str, Any], now_ms: int) -> bool:
    """Tell whether something may start on a node, if only what is over by its deadline."""
    return bool(row["state"] == "in service" or (row["state"] == "draining" and row["drain_by_ms"] > now_ms))


def node_reason(row: dict[str, Any]) -> str:
    """Return why a node is not, or not wholly, in service."""
    told = []
    reason = row["reason"] or ""
    if row["state"] == "suspended":
        told.append(words_of("node", reason, {})[0])
    elif row["drain_by_ms"] is not None:
        left = f"; {render.many(len(row['runs']), 'run')} left" if row["runs"] else ""
        told.append(drain_words(row).strip().removeprefix("drained ") + left)
    elif row["state"] == "cordoned":
        told.append(f"by {row['principal']}" + (f": {reason}" if reason else ""))
    if row["gpus_broken"]:
        told.append(f"broken GPUs: {', '.join(str(gpu) for gpu in row['gpus_broken'])}")
    return render.clean("; ".join(told))


async def cordon(place: WritePlace, node: Node) -> Answer:
    """Let nothing new start on a node; what runs there goes on."""
    from apportion.core.events import NodeCordoned

    async with opened(place) as source:
        await node_of(source, node)
        event = checked(NodeCordoned, _OPTIONS, node=node, reason=place.reason)
        answer = await written(source, place, event, _OPTIONS, f"cordon {node}", {"node": node})
        answer.lines += [] if place.dry_run else await _still_running(source, node)
        return answer


async def uncordon(place: WritePlace, node: Node) -> Answer:
    """Use a node again; also ends a suspension."""
    from apportion.core.events import NodeUncordoned

    async with opened(place) as source:
        await node_of(source, node)
        event = checked(NodeUncordoned, _OPTIONS, node=node, reason=place.reason)
        return await written(source, place, event, _OPTIONS, f"uncordon {node}", {"node": node})


async def _still_running(source: Opened, node: str) -> list[str]:
    """Say what goes on on a node, and how long each of it is protected."""
    found = (await source.ask("nodes", node=node)).first
    references = [str(reference) for reference in (found or {}).get("runs", [])]
    if not references:
        return [f"nothing runs on {node}: it is empty"]
    lines = [f"1 run on {node} goes on:" if len(references) == 1 else f"{len(references)} runs on {node} go on:"]
    for reference in references:
        workload, _, number = reference.rpartition("#")
        run = next(
            (row for row in (await source.ask("runs", workload=workload)).rows if str(row["run"]) == number), None
        )
        if run is None:
            continue
        until = run["protected_until_ms"]
        limit = (await source.ask("workload", workload=workload)).rows[0]["expected_runtime_ms"]
        ends = f"; it stated to end by {render.when(run['placed_ms'] + limit)}" if limit else "; it has stated no limit"
        lines.append(
            f"  {workload} run {number}, {render.gpus(run['gpus_milli'])}, protected until {render.when(until)}{ends}"
        )
    return lines

"""Verbs of operators: node list|show|cordon|uncordon|drain, policy set.

Cordoning stops new runs only, and says what still runs there and until when. Draining plans: see ``emptying``.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from apportion.adapters import render
from apportion.adapters.cli import arguments
from apportion.adapters.cli.asking import Opened, opened
from apportion.adapters.cli.deciding import known_of, send
from apportion.adapters.cli.emptying import counted, drain, drain_words, show
from apportion.adapters.cli.failure import usage
from apportion.adapters.cli.finding import node_of, one_pool
from apportion.adapters.cli.output import Answer, Section
from apportion.adapters.cli.publishing import checked
from apportion.adapters.cli.verbs import ReadPlace, WritePlace, lasting, one_of, read_verb, typed, whole, write_verb
from apportion.adapters.wording import words_of

PANEL = "Nodes"
BACKFILLS = ("easy", "conservative")
POLICIES = ("fair", "fifo", "priority", "fair_tree", "drf")
PACKINGS = ("best_fit", "fgd", "balanced")
REFUNDS = ("unconfirmed", "since_checkpoint", "whole_run")
Node = Annotated[str, typer.Argument(metavar="NODE", help="The node's name")]
_OPTIONS = {
    "node": "the node", "pool": "the pool", "quantum_ms": "--quantum", "horizon_ms": "--horizon",
    "protected_cap_ms": "--protected-cap", "heartbeat_timeout_ms": "--heartbeat-timeout", "review_ms": "--review",
    "start_timeout_ms": "--start-timeout", "node_loss_refund": "--node-loss-refund", "reason": "--reason",
    "policy": "--policy", "half_life_ms": "--half-life", "bank_ms": "--bank", "weight_milli": "--weight",
    "packing": "--packing", "idle_hold_ms": "--idle-hold", "idle_hold_action": "--idle-action", "moves": "--moves",
    "reservations_max": "--reservations", "backfill": "--backfill", "backfill_depth": "--backfill-depth",
}  # fmt: skip


def add_to(app: typer.Typer) -> None:
    """Register the groups ``node`` and ``policy``."""
    node = typer.Typer(
        no_args_is_help=True, rich_markup_mode=None, help="Nodes: what is there, and what may run on it."
    )
    node.command("list")(read_verb(list_))
    node.command("cordon")(write_verb(cordon))
    node.command("uncordon")(write_verb(uncordon))
    node.command("drain")(write_verb(drain))
    node.command("show")(read_verb(show))
    app.add_typer(node, name="node", rich_help_panel=PANEL)
    policy = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Policy: the rules of a pool.")
    policy.command("set")(write_verb(policy_set))
    app.add_typer(policy, name="policy", rich_help_panel=PANEL)


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
        left = f"; {counted(len(row['runs']))} left" if row["runs"] else ""
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
        if place.dry_run:
            return await known_of(source, place, event, node=node)
        answer = (await send(source, place, event, _OPTIONS)).answer(subject=f"cordon {node}", node=node)
        answer.lines += await _still_running(source, node)
        return answer


async def uncordon(place: WritePlace, node: Node) -> Answer:
    """Use a node again; also ends a suspension."""
    from apportion.core.events import NodeUncordoned

    async with opened(place) as source:
        await node_of(source, node)
        event = checked(NodeUncordoned, _OPTIONS, node=node, reason=place.reason)
        if place.dry_run:
            return await known_of(source, place, event, node=node)
        return (await send(source, place, event, _OPTIONS)).answer(subject=f"uncordon {node}", node=node)


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


async def policy_set(
    place: WritePlace,
    pool: Annotated[str, typer.Argument(metavar="POOL", help="The pool")],
    quantum: Annotated[int | None, lasting("Default protected time of a run")] = None,
    horizon: Annotated[int | None, lasting("Over how long a budget catches up")] = None,
    protected_cap: Annotated[int | None, lasting("Largest min_runtime accepted")] = None,
    heartbeat_timeout: Annotated[int | None, lasting("Silence after which a node is suspended")] = None,
    start_timeout: Annotated[int | None, lasting("How long a run may take to start")] = None,
    review: Annotated[int | None, lasting("Longest time between two cycles while there is work")] = None,
    policy: Annotated[
        str | None,
        typer.Option(
            parser=one_of(*POLICIES),
            metavar="NAME",
            help="Who is served: fair, or a baseline to compare with: fifo, priority, fair_tree, drf",
        ),
    ] = None,
    bank: Annotated[int | None, lasting("Up to so long of its share an idle budget stays owed")] = None,
    weight: Annotated[
        int | None,
        typer.Option(parser=typed(arguments.gpus_milli), metavar="N", help="Of a GPU, in sums over pools (usage --weighted)"),
    ] = None,
    half_life: Annotated[int | None, lasting("After which usage counts half, for fair_tree")] = None,
    idle_hold: Annotated[int | None, lasting("A run that does no work for so long is shown to its owner and manager")] = None,
    idle_action: Annotated[
        str | None,
        typer.Option(
            parser=one_of("none", "demote"),
            metavar="WHAT",
            help="What happens to it then: none, or demote: its budget no longer pays for it, so it makes room for others",
        ),
    ] = None,
    packing: Annotated[
        str | None,
        typer.Option(
            parser=one_of(*PACKINGS),
            metavar="RULE",
            help="Which of the nodes that would do: the fullest (best_fit), the one where least is lost for what waits and runs "
            "(fgd), or with an eye on the CPU that is left beside the GPUs too (balanced)",
        ),
    ] = None,
    moves: Annotated[
        str | None,
        typer.Option(
            parser=one_of("none", "propose", "carry_out"),
            metavar="WHAT",
            help="Moves of movable runs, so that somebody fits for whom enough is free but not together: none, propose, carry_out",
        ),
    ] = None,
    reservations: Annotated[
        int | None, typer.Option(parser=whole(0), metavar="N", help="Waiting jobs that nodes are kept for, at most")
    ] = None,
    backfill: Annotated[
        str | None,
        typer.Option(
            parser=one_of(*BACKFILLS),
            metavar="HOW",
            help="Who may start before others: easy, or conservative: only who delays nobody of the first --backfill-depth",
        ),
    ] = None,
    backfill_depth: Annotated[
        int | None, typer.Option(parser=whole(1), metavar="N", help="Waiting jobs that conservative backfill plans")
    ] = None,
    node_loss_refund: Annotated[
        str | None,
        typer.Option(
            parser=one_of(*REFUNDS),
            metavar="RULE",
            help="What is given back when a node is lost: unconfirmed, since_checkpoint or whole_run",
        ),
    ] = None,
) -> Answer:
    """Change the rules of a pool; what is not named stays as it is."""
    from apportion.core.events import PolicyActivated

    changes = {
        "quantum_ms": quantum,
        "horizon_ms": horizon,
        "protected_cap_ms": protected_cap,
        "heartbeat_timeout_ms": heartbeat_timeout,
        "start_timeout_ms": start_timeout,
        "review_ms": review,
        "policy": policy,
        "half_life_ms": half_life,
        "bank_ms": bank,
        "weight_milli": weight,
        "idle_hold_ms": idle_hold,
        "idle_hold_action": idle_action,
        "packing": packing,
        "moves": moves,
        "node_loss_refund": node_loss_refund,
        "reservations_max": reservations,
        "backfill": backfill,
        "backfill_depth": backfill_depth,
    }
    if all(value is None for value in changes.values()):
        raise usage("no rule is named, so nothing would change", "name one, such as --quantum 1h")
    async with opened(place) as source:
        event = checked(PolicyActivated, _OPTIONS, pool=await one_pool(source, pool), reason=place.reason, **changes)
        if place.dry_run:
            return await known_of(source, place, event, pools=[pool])
        return (await send(source, place, event, _OPTIONS)).answer(subject=f"policy of {pool}", pool=pool)

"""The verb usage: who used how many GPU-hours, split by day, pool, budget, user or kind.

Asks the projector, which splits exactly, and arranges the answer; the total is the sum of the rows.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from apportion.adapters.cli.asking import Opened, Reply, opened
from apportion.adapters.cli.failure import usage as usage_failure
from apportion.adapters.cli.finding import budget_of
from apportion.adapters.cli.output import Answer, Section
from apportion.adapters.cli.reads import PANEL, BudgetOption, Pool, User, given
from apportion.adapters.cli.verbs import ReadPlace, moment, read_verb
from apportion.adapters.text import render

FIELDS = ("day", "pool", "budget", "user", "kind")


def add_to(app: typer.Typer) -> None:
    """Register the verb."""
    app.command("usage", rich_help_panel=PANEL)(read_verb(usage))


async def usage(
    place: ReadPlace,
    by: Annotated[
        str, typer.Option("--by", metavar="FIELDS", help="Split by any of day, pool, budget, user, kind")
    ] = "budget",
    since: Annotated[int | None, moment("From then on")] = None,
    until: Annotated[int | None, moment("Up to then")] = None,
    budget: BudgetOption = "",
    user: User = "",
    pool: Pool = "",
    weighted: Annotated[
        bool, typer.Option("--weighted", help="Count a GPU of each pool by the pool's weight")
    ] = False,
) -> Answer:
    """Show who used how many GPU-hours."""
    names = [name.strip() for name in by.split(",") if name.strip()]
    for name in names:
        if name not in FIELDS:
            raise usage_failure(f"--by {name!r} is not possible", f"any of {', '.join(FIELDS)}, such as --by day,budget")
    async with opened(place) as source:
        if budget:
            await budget_of(source, budget)
        reply = await _usage(
            source, names, given(since_ms=since, until_ms=until, budget=budget, principal=user, pool=pool), weighted
        )
        weights = (await source.ask("pools", seq=reply.as_of.seq)).rows if weighted else []
    told = [
        "weighted: a GPU-hour counts "
        + ", ".join(f"{render.gpu_count(row['weight_milli'])} in pool {row['pool']}" for row in weights)
    ] if weighted else []
    rows = [{name: value for name, value in row.items() if name not in FIELDS or name in names} for row in reply.rows]
    for row in rows:
        row["gpu_us"] = row["funded_gpu_us"] + row["unfunded_gpu_us"]
    rows = [row for row in rows if row["gpu_us"] or row["refunded_gpu_us"]]
    rows.sort(key=lambda row: tuple(str(row[name]) for name in names))
    amounts = ["funded_gpu_us", "unfunded_gpu_us", "gpu_us"] + (
        ["refunded_gpu_us"] if any(r["refunded_gpu_us"] for r in rows) else []
    )
    total = {name: sum(row[name] for row in rows) for name in amounts}
    section = Section(
        rows,
        [*names, *amounts],
        headings={
            "funded_gpu_us": "funded h",
            "unfunded_gpu_us": "unfunded h",
            "gpu_us": "total GPU-h",
            "refunded_gpu_us": "refunded h",
        },
        drop=("refunded_gpu_us",),
        total={names[0]: "total", **total} if names and rows else None,
        empty="no GPU time was used in that period; `apportion queue` shows what runs now",
        flexible=names[-1] if names else "",
    )
    return Answer([section], told, more={"total": total}, as_of=reply.as_of)


async def _usage(source: Opened, names: list[str], filters: dict[str, Any], weighted: bool) -> Reply:
    split = {f"by_{name}": name in names for name in FIELDS}
    return await source.ask("usage", **split, **filters, **({"weighted": True} if weighted else {}))

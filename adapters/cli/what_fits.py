"""``what-fits``: how many of each usual shape could start now, beside what is kept for others, and else when one could.

Nothing is worked out here: the numbers are those of ``adapters.seen.offers``, which asks the core's own functions on its state.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from apportion.adapters.cli.asking import opened
from apportion.adapters.cli.cores import core_at
from apportion.adapters.cli.output import Answer, Section
from apportion.adapters.cli.reads import PANEL, Pool
from apportion.adapters.cli.verbs import ReadPlace, lasting, read_verb
from apportion.adapters.text import render

KEPT_SHOWN = 3
_NO_POOL = "no pool is defined yet; `apportion up` opens a log with one"
_NO_NODE = "no node has joined; start an agent: apportion agent --node NAME --gpus 8"
HEADINGS = {"size": "each", "now": "fit now", "earliest": "if funded"}
LEGEND = (
    "How many could start side by side, each row and column for itself, as far as free GPUs go; whether a budget is funded, "
    "`apportion share` tells. block, within: as `submit --block`, `--within`. If funded: where none fits, when one could start for "
    "a budget that pays, by what runs state and by when unfunded ones may be asked to go; - if nobody knows."
)


def add_to(app: typer.Typer) -> None:
    """Register the verb."""
    app.command("what-fits", rich_help_panel=PANEL)(read_verb(what_fits))


async def what_fits(
    place: ReadPlace,
    pool: Pool = "",
    runtime: Annotated[int, lasting("What the work says it runs at most", "it does not say")] = 0,
) -> Answer:
    """Show what could start now: sizes, shapes, pools."""
    from apportion.adapters.seen.offers import offers

    async with opened(place) as source:
        reply = await source.ask("status")
    if pool and pool not in {row["pool"] for row in reply.rows}:
        from apportion.adapters.cli.finding import nearest

        raise nearest(pool, (str(row["pool"]) for row in reply.rows), "pool", "`apportion status` lists the pools")
    core = await core_at(place, reply.as_of.seq)
    pools = [found for found in offers(core, runtime) if not pool or found["pool"] == pool]
    if place.form.as_json or place.form.as_csv or place.form.only:
        rows = [row for found in pools for row in found["rows"]]
        more = {"pools": [{name: value for name, value in found.items() if name != "rows"} for found in pools]}
        return Answer([Section(rows, list(rows[0]) if rows else [])], more=more, as_of=reply.as_of)
    answer = Answer([_section(found, reply.as_of.time_ms) for found in pools], after=[LEGEND], as_of=reply.as_of)
    if not pools:
        answer.lines, answer.after = [_NO_POOL], []
    return answer


def _section(pool: dict[str, Any], now_ms: int) -> Section:
    """Return one table: a row per size, a column per way in which the GPUs must lie."""
    sizes: dict[tuple[int, int], dict[str, dict[str, Any]]] = {}
    for row in pool["rows"]:
        sizes.setdefault((row["nodes"], row["milli_per_node"]), {})[row["shape"]] = row
    kinds = dict.fromkeys(row["shape"] for row in pool["rows"] if row["shape"] != "any")
    shown = []
    for (nodes, milli), found in sizes.items():
        plain = found.get("any")
        line = {"size": size_words(nodes, milli), "now": count(plain), "short": count(plain, "fits_short")}
        line |= {kind: count(found.get(kind)) for kind in kinds}
        line["earliest"] = from_words(plain, now_ms)
        shown.append(line)
    short = next((row["short_until_ms"] for row in pool["rows"] if row["short_until_ms"]), None)
    columns = ["size", "now", *(["short"] if short else []), *kinds, "earliest"]
    headings = {**HEADINGS, "short": f"if over in {render.duration(short - now_ms)}" if short else ""}
    return Section(shown, columns, title=_title(pool, now_ms), headings=headings, empty=_NO_NODE)


def size_words(nodes: int, milli: int) -> str:
    """Return ``0.25 GPU``, ``8 GPUs`` or ``4 x 8 GPUs``."""
    return render.gpus(milli) if nodes == 1 else f"{nodes:,} x {render.gpus(milli)}"


def count(row: dict[str, Any] | None, name: str = "fits") -> str:
    """Return a number of copies as text: ``12``, ``1,000+``, ``-`` for what the pool could never have."""
    from apportion.adapters.seen.offers import FITS_MAX

    if row is None or row[name] is None:
        return "-"
    return f"{row[name]:,}" + ("+" if row[name] >= FITS_MAX else "")


def from_words(row: dict[str, Any] | None, now_ms: int) -> str:
    """Return when one could start, where none can now."""
    if row is None or row["fits"]:
        return ""
    if not row["earliest_ms"]:
        return "-"
    return f"in {render.duration(row['earliest_ms'] - now_ms)}" if row["earliest_ms"] > now_ms else "now"


def _title(pool: dict[str, Any], now_ms: int) -> str:
    title = f"{pool['pool']}: {render.gpu_count(pool['free_milli'])} of {render.gpus(pool['gpus_milli'])} free"
    if not pool["kept_nodes"]:
        return title
    named = [
        f"{one['workload']} ({render.gpus(one['gpus_milli'])}, in {render.duration(one['starts_ms'] - now_ms)})"
        for one in pool["kept_for"]
        if one["starts_ms"]
    ]
    rest = f" and {len(named) - KEPT_SHOWN} more" if len(named) > KEPT_SHOWN else ""
    nodes = render.many(pool["kept_nodes"], "node is", "nodes are")
    return f"{title}; {nodes} kept for {', '.join(named[:KEPT_SHOWN])}{rest}"

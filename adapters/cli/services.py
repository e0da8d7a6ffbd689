"""Realtime services: what ``submit`` asks for, ``demand`` (traffic, as a gateway would publish it), and how large each is and was.

What a service means is ``events.services``; its size is the core's answer.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from apportion.adapters.cli import arguments
from apportion.adapters.cli.asking import Opened, opened
from apportion.adapters.cli.deciding import known_of, send
from apportion.adapters.cli.failure import usage
from apportion.adapters.cli.finding import workload_of
from apportion.adapters.cli.output import Answer, Section
from apportion.adapters.cli.publishing import checked
from apportion.adapters.cli.reads import BudgetOption, Pool, given
from apportion.adapters.cli.verbs import ReadPlace, WritePlace, lasting, read_verb, typed, write_verb
from apportion.adapters.text import render
from apportion.adapters.text.wording import words_of

Replicas = Annotated[
    arguments.Between | None,
    typer.Option(
        "--replicas", parser=typed(arguments.between), metavar="MIN-MAX", show_default=False,
        help="A realtime service of so many replicas of --gpus each, as its traffic needs",
    ),
]  # fmt: skip
PerTraffic = Annotated[
    int | None,
    typer.Option(
        "--gpus-per-traffic", parser=typed(arguments.gpus_milli), metavar="N", show_default=False,
        help="GPUs that one unit of its traffic needs",
    ),
]  # fmt: skip
Swap = Annotated[
    int | None, typer.Option("--swap", metavar="N", show_default=False, help="Replicas it may change by in a step of the plan")
]
Startup = Annotated[int | None, lasting("From its start until a replica serves", "0")]
Hold = Annotated[int | None, lasting("It shrinks to the most it needed in this time", "5m")]
Penalty = Annotated[
    int | None, typer.Option("--penalty", metavar="N", show_default=False, help="Weight of unmet demand in the plan [default: 7]")
]
OPTIONS = {
    "service": "--replicas", "min_replicas": "--replicas", "max_replicas": "--replicas", "swap_replicas": "--swap",
    "gpus_milli_per_traffic": "--gpus-per-traffic", "startup_ms": "--startup", "hold_ms": "--hold", "penalty": "--penalty",
}  # fmt: skip
_DEMAND = {"traffic_milli": "TRAFFIC", "workload": "JOB"}
HEADINGS = {
    "workload": "service", "gpus_milli": "each", "need": "needs", "replicas": "to have", "running": "has", "traffic": "traffic",
    "why": "why",
}  # fmt: skip
CURVE = {"from_ms": "from", "traffic": "traffic", "need_milli": "needs", "wanted_milli": "to have", "held_milli": "held", "bar": ""}
BAR_WIDTH = 40
NEWS_MS = 2_000  # a change of size, or a refusal, is decided at once


def add_to(app: typer.Typer) -> None:
    """Register the verbs."""
    app.command("service", rich_help_panel="Look")(read_verb(service))
    app.command("demand", rich_help_panel="Act")(write_verb(demand))


def service_of(
    kind: str, replicas: arguments.Between | None, per_traffic: int | None, **more: int | None
) -> dict[str, Any] | None:
    """Return the service that was typed, or None; raises when it is half of one."""
    if replicas is None:
        named = [OPTIONS[name] for name, value in {"gpus_milli_per_traffic": per_traffic, **more}.items() if value is not None]
        if named:
            raise usage(f"{named[0]} is for services", "give --replicas MIN-MAX too, such as --replicas 2-24")
        return None
    if kind != "realtime":
        raise usage("--replicas is for realtime services", "give --kind realtime too")
    if per_traffic is None:
        raise usage("nobody knows how many replicas its traffic needs", "--gpus-per-traffic N, such as 0.25 for 4 units on a GPU")
    fields = {"min_replicas": replicas.least, "max_replicas": replicas.most, "gpus_milli_per_traffic": per_traffic, **more}
    return {name: value for name, value in fields.items() if value is not None}


async def demand(
    place: WritePlace,
    job: Annotated[str, typer.Argument(metavar="JOB", help="The service: its id, or its name")],
    traffic: Annotated[
        int, typer.Argument(parser=typed(arguments.traffic_milli), metavar="TRAFFIC", help="Units of traffic now, such as 12.5")
    ],
) -> Answer:
    """Report the traffic that a service sees now; print what was decided."""
    from apportion.core.events import DemandObserved

    async with opened(place) as source:
        workload = (await workload_of(source, job))["workload"]
        event = checked(DemandObserved, _DEMAND, workload=workload, traffic_milli=traffic)
        if place.dry_run:
            return await known_of(source, place, event, workload=workload)
        waiting = replace(place, timeout_ms=min(place.timeout_ms, NEWS_MS))
        outcome = await send(source, waiting, event, _DEMAND, workload=workload)
    if not outcome.decided and not outcome.detached:  # no cycle comes for traffic that changes nothing
        said = f"{workload}: noted (seq {outcome.seq:,}); its size stays"
        return Answer(lines=[said], more={"job": workload, "event_seq": outcome.seq})
    return outcome.answer(subject=workload, job=workload)


async def service(
    place: ReadPlace,
    job: Annotated[str, typer.Argument(metavar="[JOB]", help="This one: how it breathed", show_default=False)] = "",
    pool: Pool = "",
    budget: BudgetOption = "",
    step: Annotated[int, lasting("One line for so long a time", "10m")] = 600_000,
    hours: Annotated[int, typer.Option("--hours", min=1, metavar="N", help="Of the last N hours")] = 24,
    svg: Annotated[Path | None, typer.Option("--svg", metavar="FILE", help="Write its curve as a picture")] = None,
) -> Answer:
    """Show realtime services: their traffic, what it needs, what they have; with JOB the curve of one."""
    async with opened(place) as source:
        if job:
            return await _curve(source, place, job, step, hours, svg)
        reply = await source.ask("services", **given(pool=pool, budget=budget))
    if svg is not None:
        raise usage("--svg is for one service", "name it: apportion service JOB --svg FILE")
    rows = [{**row, "traffic": _traffic(row["traffic_milli"]), "why": why_words(row)} for row in reply.rows]
    columns = ["workload", "budget", "gpus_milli", "traffic", "need", "replicas", "running", "why"]
    empty = "no service; submit one with --kind realtime --replicas MIN-MAX --gpus-per-traffic N"
    return Answer([Section(rows, columns, headings=HEADINGS, empty=empty)], as_of=reply.as_of)


def why_words(row: dict[str, Any]) -> str:
    """Return why a service is to have as many replicas as it is to have."""
    if not row.get("why"):
        return "its size is not decided yet"
    numbers = {"need": row["said_need"] or 0}
    sentence, _action = words_of("resize", row["why"], numbers)
    bound = f"; {words_of('bound', row['bound'], numbers)[0]}" if row["bound"] else ""
    now = f"; now it needs {row['need']}" if row["need"] is not None and row["need"] != row["said_need"] else ""
    missing = f"; {row['unmet_replicas']} too few run" if row["unmet_replicas"] else ""
    return f"{sentence}{bound}{now}{missing}"


async def why_service(source: Opened, workload: str) -> Answer:
    """Return why a service is as large as it is, and what would help."""
    reply = await source.ask("services", workload=workload)
    row = reply.rows[0]
    lines = [f"{workload}: to have {render.many(row['replicas'], 'replica')}, has {row['running']}: {why_words(row)}"]
    if row["why"]:
        action = words_of("bound", row["bound"], {})[1] if row["bound"] else words_of("resize", row["why"], {})[1]
        lines += [f"  what helps: {action}"] if action else []
    if row["pending"]:
        waits = f"{row['pending']} of them wait" if row["pending"] > 1 else "one of them waits"
        lines.append(f"  {waits}: `apportion queue --budget {row['budget']}` lists them, `apportion why` tells of one why")
    return Answer(lines=lines, more={"service": row, "lines": lines}, as_of=reply.as_of)


async def _curve(source: Opened, place: ReadPlace, job: str, step_ms: int, hours: int, svg: Path | None) -> Answer:
    workload = (await workload_of(source, job))["workload"]
    reply = await source.ask("services", workload=workload)
    if not reply.rows:
        raise usage(f"{workload} is no live service", "`apportion service` lists them; `apportion job JOB` shows any job")
    found, as_of = reply.rows[0], reply.as_of
    since_ms = max(0, as_of.time_ms - hours * 3_600_000)
    curve = await source.ask("service_curve", workload=workload, step_ms=step_ms, since_ms=since_ms, seq=as_of.seq)
    most = max([row["held_milli"] for row in curve.rows] + [row["need_milli"] or 0 for row in curve.rows] + [1])
    rows = [{**row, "traffic": _traffic(row["traffic_milli"]), "bar": _bar(row, most)} for row in curve.rows]
    if svg is not None:
        from apportion.adapters.charts.services import chart

        svg.write_text(chart(found, curve.rows, step_ms, render.when(as_of.time_ms)), encoding="utf-8")
    each = render.gpus(found["gpus_milli"])
    bounds = f"{found['min_replicas']} to {render.many(found['max_replicas'], 'replica')} of {each}"
    swap = "" if found["swap_replicas"] < 0 else f", changing by at most {found['swap_replicas']} in a step of the plan"
    lines = [
        f"{workload}: {bounds} of {found['budget']} in pool {found['pool']}{swap}",
        f"  to have {found['replicas']}, has {found['running']}: {why_words(found)}",
    ]
    after = ["# = held and needed, + = held beyond that, . = needed and not held"]
    after += [f"picture: {svg}"] if svg is not None else []
    columns = list(CURVE) if not (place.form.as_json or place.form.as_csv) else [name for name in CURVE if name != "bar"]
    return Answer([Section(rows, columns, headings=CURVE)], lines, after=after, more={"service": found}, as_of=as_of)


def _bar(row: dict[str, Any], most_milli: int) -> str:
    held: int = row["held_milli"]
    need: int = held if row["need_milli"] is None else row["need_milli"]
    both, either = (BAR_WIDTH * milli // most_milli for milli in (min(held, need), max(held, need)))
    return "#" * both + ("+" if held > need else ".") * (either - both)


def _traffic(milli: int | None) -> str:
    return "-" if milli is None else render.gpu_count(milli)

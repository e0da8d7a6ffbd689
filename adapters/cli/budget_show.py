"""``budget show``: one budget's balance, its burn-down, when it runs dry, who may use it, and every change with its author.

Asks the projection and lets ``adapters.statements.burndown`` make days and outlooks of it, which refuses what does not add up.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from apportion.adapters.cli.asking import Opened, opened
from apportion.adapters.cli.failure import usage
from apportion.adapters.cli.finding import budget_of
from apportion.adapters.cli.output import Answer, AsOf, Section
from apportion.adapters.cli.sharing import bar
from apportion.adapters.cli.verbs import ReadPlace, whole
from apportion.adapters.seen.standing import STANDINGS
from apportion.adapters.statements.burndown import MEAN_DAYS, Outlook, days_of, outlooks
from apportion.adapters.text import render
from apportion.core.units import MS_PER_DAY

DAYS = 14
BAR = 20


async def show(
    place: ReadPlace,
    budget: Annotated[str, typer.Argument(metavar="BUDGET", help="Path, such as lab/llm/olmo")],
    pool: Annotated[str, typer.Option("--pool", metavar="POOL", help="Only this pool")] = "",
    days: Annotated[
        int, typer.Option("--days", parser=whole(1, 366), metavar="N", help="So many days", show_default=True)
    ] = DAYS,
    svg: Annotated[Path | None, typer.Option("--svg", metavar="FILE", help="Draw the burn-down (one pool)")] = None,
) -> Answer:
    """Show one budget: balance, burn-down, when it runs dry, members and changes."""
    filters = {"pool": pool} if pool else {}
    async with opened(place) as source:
        await budget_of(source, budget)
        reply = await source.ask("budget", budget=budget, **filters)
        at = {**filters, "seq": reply.as_of.seq}
        standings = (await source.ask("standings", **at)).rows
        found = [row for row in (await source.ask("budgets", **at)).rows if row["budget"] == budget]
        lines = [{**row, **_standing(row, standings)} for row in found]
        if not lines:
            raise usage(f"budget {budget} is not in pool {pool!r}", f"apportion budget show {budget}")
        if svg is not None and len(lines) > 1:
            raise usage(f"{budget} is in {len(lines)} pools and --svg draws one", f"--pool {lines[0]['pool']}")
        burned = [await _burned(source, row, reply.as_of, days) for row in lines]
    after = []
    if svg is not None:
        after = [_drawn(svg, lines[0], *burned[0], reply.as_of)]
    told = [text for row, (_days, ends) in zip(lines, burned, strict=True) for text in _told(row, ends, reply.as_of)]
    sections = [_burn_section(row, rows) for row, (rows, _ends) in zip(lines, burned, strict=True)]
    sections += _change_sections(reply.rows)
    more = {
        "budget": [
            {**row, "balance_gpu_us": _balance(row), "outlooks": [vars(end) for end in ends]}
            for row, (_days, ends) in zip(lines, burned, strict=True)
        ]
    }
    return Answer(sections, told, after, more=more, as_of=reply.as_of)


async def _burned(
    source: Opened, row: dict[str, Any], as_of: AsOf, days: int
) -> tuple[list[dict[str, Any]], list[Outlook]]:
    """Return the days of one budget in one pool, and when it runs dry."""
    now_ms = as_of.time_ms
    where = {"seq": as_of.seq, "budget": row["budget"], "pool": row["pool"]}
    told = await source.ask("entitlement", **where)
    began_ms = int(told.rows[0]["began_ms"]) if told.rows else now_ms
    first_ms = max(now_ms // MS_PER_DAY - days + 1, began_ms // MS_PER_DAY) * MS_PER_DAY
    edges = await source.ask("balance", **where, from_ms=first_ms, to_ms=now_ms + 1)
    burned = await source.ask("burn_down", **where, from_ms=first_ms)
    rows = days_of(first_ms, now_ms, edges.rows, burned.rows)
    if not row["metered"]:
        for day in rows:
            told = await source.ask("entitlement", budget=row["budget"], pool=row["pool"], **_moment(day, as_of))
            day["entitled_ppm"] = told.rows[0]["entitled_ppm"] if told.rows else None
        return rows, []
    recent = await source.ask("balance", **where, from_ms=max(0, now_ms - MEAN_DAYS * MS_PER_DAY), to_ms=now_ms + 1)
    balance = _balance(row)
    return rows, outlooks(now_ms, balance or 0, row["funded_milli"], recent.rows)


def _standing(row: dict[str, Any], standings: list[dict[str, Any]]) -> dict[str, int]:
    """Return the GPUs of a budget's runs by standing, those below it included."""
    path = str(row["budget"])
    own = [
        found for found in standings if found["pool"] == row["pool"] and f"{found['budget']}/".startswith(f"{path}/")
    ]
    return {f"runs_{name}_milli": sum(found[f"{name}_milli"] for found in own) for name in STANDINGS}


def _moment(day: dict[str, Any], as_of: AsOf) -> dict[str, int]:
    return {"seq": as_of.seq} if day["until_ms"] >= as_of.time_ms else {"seq": as_of.seq, "at_ms": day["until_ms"] - 1}


def _balance(row: dict[str, Any]) -> int | None:
    """Return what is in a metered budget's account; of it, ``reserved`` is promised."""
    return row["left_gpu_us"] + row["reserved_gpu_us"] if row["metered"] else None


def _told(row: dict[str, Any], ends: list[Outlook], as_of: AsOf) -> list[str]:
    """Return how a budget stands in sentences."""
    closed = ", closed" if row["closed"] else ""
    standing = [
        f"{render.gpu_count(row[f'runs_{name}_milli'])} {name}"
        for name in STANDINGS
        if row[f"runs_{name}_milli"]
    ]
    shown = f" ({', '.join(standing)})" if standing else ""
    lines = [
        f"{row['budget']} in pool {row['pool']}{closed}: {render.percent(row['share_ppm'])} of "
        f"{row['parent'] or 'the pool'}, so {render.percent(row['entitled_ppm'])} of the pool's time",
        f"  {render.gpus(row['running_milli'])} running{shown}, {render.gpus(row['pending_milli'])} waiting",
    ]
    balance = _balance(row)
    if balance is None:
        return [*lines, "  never granted GPU time: no balance, its share alone counts"]
    moved = row["transferred_gpu_us"]
    parts = [f"granted {render.gpu_hours(row['granted_gpu_us'])}"]
    parts += [f"transferred {'in' if moved > 0 else 'out'} {render.gpu_hours(abs(moved))}"] if moved else []
    parts += [f"lapsed {render.gpu_hours(row['lapsed_gpu_us'])}"] if row.get("lapsed_gpu_us") else []
    parts += [f"charged {render.gpu_hours(row['charged_gpu_us'] + row['refunded_gpu_us'])}"]
    parts += [f"refunded {render.gpu_hours(row['refunded_gpu_us'])}"] if row["refunded_gpu_us"] else []
    lines.append(f"  balance {render.gpu_time(balance)} ({', '.join(parts)}, in GPU-h since the first grant)")
    if row["reserved_gpu_us"]:
        promised = render.gpu_time(row["reserved_gpu_us"])
        lines.append(
            f"  of it {promised} promised to protected runs; {render.gpu_time(row['left_gpu_us'])} left to promise"
        )
    return lines + list(dict.fromkeys(f"  {_outlook(end, as_of)}" for end in ends))


def _outlook(end: Outlook, as_of: AsOf) -> str:
    rate = "at the rate of now" if end.basis == "now" else f"at the mean of {end.basis}"
    rate += f" ({render.gpus(max(0, end.rate_milli))} funded)"
    if end.ends_ms is None:
        return f"does not run dry {rate}"
    if end.ends_ms <= as_of.time_ms:
        return "is spent: nothing is funded until the next grant or transfer"
    left = render.duration(end.ends_ms - as_of.time_ms)
    return f"runs dry {render.when(end.ends_ms)} (in {left}) {rate}; no further grant counted"


def _burn_section(row: dict[str, Any], days: list[dict[str, Any]]) -> Section:
    """Return the days as a table with bars: the balance against the most it was, or what it got against its entitlement."""
    most = max([1, *(day["balance_gpu_us"] or 0 for day in days)])
    if row["metered"]:
        columns = [
            "day",
            "balance_gpu_us",
            "posted_gpu_us",
            "charged_gpu_us",
            "refunded_gpu_us",
            "unfunded_gpu_us",
            "bar",
        ]
        bars = ["#" * (max(0, day["balance_gpu_us"]) * BAR // most) for day in days]
        title = f"burn-down in pool {row['pool']}, balance at the end of each day"
    else:
        columns = ["day", "funded_gpu_us", "unfunded_gpu_us", "got_ppm", "entitled_ppm", "bar"]
        bars = [bar(day["got_ppm"], day["entitled_ppm"]) for day in days]
        title = f"used by day in pool {row['pool']}: part of all that was used, and its share (|)"
    if not any(day["refunded_gpu_us"] for day in days) and "refunded_gpu_us" in columns:
        columns.remove("refunded_gpu_us")
    headings = {
        "balance_gpu_us": "balance h", "posted_gpu_us": "in or out h", "charged_gpu_us": "charged h", "refunded_gpu_us": "refund h",
        "unfunded_gpu_us": "unfunded h", "funded_gpu_us": "funded h", "got_ppm": "got", "entitled_ppm": "entitled", "bar": "",
    }  # fmt: skip
    shown = [{**day, "day": render.when(day["day_ms"])[:10], "bar": text} for day, text in zip(days, bars, strict=True)]
    return Section(days, columns, key="burn", title=title, shown=shown, headings=headings, empty="nothing yet",
                   drop=("unfunded_gpu_us", "refunded_gpu_us"), flexible="bar")  # fmt: skip


def _change_sections(rows: list[dict[str, Any]]) -> list[Section]:
    """Return who changed what: shares, money, members."""
    parts: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        parts.setdefault(str(row["section"]), []).append(row)
    versions = [{**row, "what": "closed" if row["what"] == "closed" else "set"} for row in parts.pop("version", [])]
    planned = parts.pop("planned", [])
    members = parts.pop("member", [])
    parts.pop("burn", None)
    money = sorted((row for found in parts.values() for row in found), key=lambda row: int(row["seq"]))
    return [
        Section(versions, ["time_ms", "pool", "what", "share_ppm", "principal", "reason"], key="versions", title="shares",
                headings={"time_ms": "at", "principal": "by"}, drop=("pool",)),
        *([Section(planned, ["time_ms", "pool", "what", "share_ppm", "principal", "reason"], key="planned", title="planned shares",
                   headings={"time_ms": "from", "principal": "by"}, drop=("pool",))] if planned else []),
        Section(money, ["time_ms", "pool", "what", "gpu_us", "principal", "reason"], key="money", title="grants and transfers",
                headings={"time_ms": "at", "principal": "by"}, drop=("pool",),
                empty="never granted GPU time: not metered, its share alone counts"),
        Section(members, ["member", "what", "budget", "principal", "reason"], key="members", title="members",
                headings={"what": "may", "principal": "by", "budget": "granted on"}, drop=("principal",),
                empty="nobody but operators: apportion member grant BUDGET MEMBER"),
    ]  # fmt: skip


def _drawn(path: Path, row: dict[str, Any], days: list[dict[str, Any]], ends: list[Outlook], as_of: AsOf) -> str:
    from apportion.adapters.charts.burndown import chart

    kind = "Balance" if row["metered"] else "Share"
    title = f"{kind} of {row['budget']} in pool {row['pool']}"
    try:
        path.write_text(chart(title, days, ends, as_of.line(), metered=bool(row["metered"])), encoding="utf-8")
    except OSError as error:
        raise usage(f"cannot write {path}: {error.strerror}", "choose another file with --svg") from None
    return f"drawn to {path}"

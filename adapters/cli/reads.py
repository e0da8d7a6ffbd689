"""Verbs that look at everything: status, queue, usage.

Each asks the projector one or two named queries and arranges the answer; sentences come from ``adapters.text.wording``. JSON
and CSV carry the rows as the projection has them, plus the sentences made from their reasons.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from apportion.adapters.cli.asking import Opened, Reply, opened
from apportion.adapters.cli.cores import core_if_readable
from apportion.adapters.cli.failure import usage as usage_failure
from apportion.adapters.cli.finding import budget_of
from apportion.adapters.cli.output import Answer, Section
from apportion.adapters.cli.verbs import ReadPlace, moment, one_of, principal_now, read_verb, whole
from apportion.adapters.seen import standing
from apportion.adapters.seen.standing import PROTECTED, STANDINGS
from apportion.adapters.text import render
from apportion.adapters.text.wording import label_of, words_of

PANEL = "Look"
STATES = ("pending", "placed", "running", "stopping", "all")
Pool = Annotated[str, typer.Option("--pool", metavar="POOL", help="Only this pool")]
BudgetOption = Annotated[str, typer.Option("--budget", metavar="PATH", help="Only this budget and those below it")]


def add_to(app: typer.Typer) -> None:
    """Register the verbs."""
    app.command("status", rich_help_panel=PANEL)(read_verb(status))
    app.command("queue", rich_help_panel=PANEL)(read_verb(queue))
    app.command("usage", rich_help_panel=PANEL)(read_verb(usage))


def given(**params: Any) -> dict[str, Any]:
    """Return the parameters that were given at all."""
    return {name: value for name, value in params.items() if value not in (None, "")}


def without_constant(columns: list[str], rows: list[dict[str, Any]], *names: str) -> list[str]:
    """Return the columns without those of ``names`` that say the same in every row."""
    constant = {name for name in names if len({str(row.get(name)) for row in rows}) <= 1}
    return [name for name in columns if name not in constant]


# -- status ------------------------------------------------------------------------------------------------------------


async def status(
    place: ReadPlace,
    pool: Pool = "",
    gaps: Annotated[
        bool, typer.Option("--gaps", help="What the free GPUs are good for, now and after the runs' limits; reads the log")
    ] = False,
) -> Answer:
    """Show what the GPUs do now and did: capacity, pillars, what waits."""
    async with opened(place) as source:
        reply = await source.ask("status")
        standings = (await source.ask("standings", seq=reply.as_of.seq)).rows
        idle = (await source.ask("idle", seq=reply.as_of.seq)).rows
    core = await core_if_readable(place, reply.as_of.seq, _WITHOUT) if gaps else None
    rows = [{**row, **_standings(row, standings)} for row in reply.rows if not pool or row["pool"] == pool]
    if pool and not rows:
        from apportion.adapters.cli.finding import nearest

        raise nearest(pool, (str(row["pool"]) for row in reply.rows), "pool", "`apportion status` lists the pools")
    found = standing.gaps(core) if core is not None else {}
    rows = [{**row, **found.get(row["pool"], {})} for row in rows]
    if place.form.as_json or place.form.as_csv or place.form.only:
        return Answer([Section(rows, list(reply.columns), empty=_NO_POOL)], as_of=reply.as_of)
    sections, lines = [], []
    for row in rows:
        sections.append(_pool_section(row))
        lines.append([*_pool_lines(row), *gap_lines(row), *_idle_lines([held for held in idle if held["pool"] == row["pool"]])])
    answer = Answer(sections, as_of=reply.as_of, after=_live_reads(place))
    if not rows:
        answer.lines = [_NO_POOL]
    for section, told in zip(sections, lines, strict=True):
        section.after = told
    return answer


def _live_reads(place: ReadPlace) -> list[str]:
    """Return where the same is answered over HTTP."""
    from apportion.adapters.projector.listening import running

    found = running(place.home) if not place.server else None
    return [f"live reads: {found.url}/q"] if found is not None else []


_WITHOUT = "what the free GPUs are good for needs the log, which cannot be read here"
_NO_POOL = "no pool is defined yet; `apportion up` opens a log with one"


def _pool_section(row: dict[str, Any]) -> Section:
    installed = row["installed_milli"]
    nodes = row["nodes"]
    gpu_class = f" ({row['gpu_class']})" if row["gpu_class"] else ""
    books = []
    for name in ("funded", "unfunded", "idle", "down"):
        milli, day = row[f"{name}_milli"], row[f"day_{name}_gpu_us"]
        books.append(
            {
                "what": name,
                "gpus_milli": milli,
                "now_ppm": _ppm(milli, installed),
                "day_gpu_us": day,
                "day_ppm": _ppm(day, row["day_supply_gpu_us"]),
                "all_gpu_us": row[f"{name}_gpu_us"],
                "all_ppm": _ppm(row[f"{name}_gpu_us"], row["supply_gpu_us"]),
            }
        )
    total = {
        "what": "installed", "gpus_milli": installed, "day_gpu_us": row["day_supply_gpu_us"], "all_gpu_us": row["supply_gpu_us"]
    }  # fmt: skip
    headings = {
        "what": "", "gpus_milli": "GPUs now", "now_ppm": "", "day_gpu_us": "GPU-h, 24 h", "day_ppm": "",
        "all_gpu_us": "GPU-h, all", "all_ppm": "",
    }  # fmt: skip
    return Section(
        books,
        list(headings),
        title=f"pool {row['pool']}: {render.gpus(installed)}{gpu_class} on {render.many(nodes, 'node')}",
        headings=headings,
        total=total,
    )


def _pool_lines(row: dict[str, Any]) -> list[str]:
    pillars = ", ".join(
        f"{name} {percent_or_dash(row[f'day_{name}_ppm'])}"
        for name in ("availability", "occupancy", "impact", "utilization")
    )
    lines = [f"last 24 h: {pillars}"]
    running = row["running_count"]
    parts = [
        f"{render.gpu_count(row[f'runs_{name}_milli'])} {name}" for name in STANDINGS if row[f"runs_{name}_milli"]
    ]
    lines.append(
        f"{render.many(running, 'run')} in progress, on {render.gpus(row['funded_milli'] + row['unfunded_milli'])}"
        + (f": {', '.join(parts)}" if parts else "")
    )
    if row["pending_count"]:
        jobs = row["pending_count"]
        lines.append(f"{render.many(jobs, 'job waits', 'jobs wait')} for {render.gpus(row['pending_milli'])}:")
        for reason, count in sorted(_pairs(row["pending_by_reason"]), key=lambda pair: (-pair[1], pair[0])):
            sentence = "not explained yet" if reason == "none" else label_of("pending", str(reason))
            lines.append(f"  {count:,} x {sentence}")
    else:
        lines.append("nothing waits")
    blocks = sorted((int(size), count) for size, count in _pairs(row["free_blocks"]))
    if blocks:
        lines.append(f"free blocks, each size by itself: {_listed(blocks)}")
    return lines


def gap_lines(row: dict[str, Any]) -> list[str]:
    """Return what a pool's free GPUs are good for, where it was asked."""
    if "fragment_milli" not in row:
        return []
    after = _listed(sorted((int(size), count) for size, count in _pairs(row["free_blocks_after_limits"])))
    lost = f" ({render.percent(row['fragment_ppm'])})" if row["fragment_ppm"] is not None else ""
    return [
        f"packing {row['packing']}: of {render.gpus(row['free_milli'])} free, {render.gpu_count(row['fragment_milli'])}{lost} are "
        "no use to one more of what waits and runs, on average",
        f"free blocks when every run that states a limit is over: {after or 'none'}",
    ]


def _listed(blocks: list[tuple[int, int]]) -> str:
    return ", ".join(f"{count:,} of {size}" for size, count in blocks)


def _standings(row: dict[str, Any], standings: list[dict[str, Any]]) -> dict[str, int]:
    """Return the GPUs of a pool's runs by standing."""
    own = [found for found in standings if found["pool"] == row["pool"]]
    return {f"runs_{name}_milli": sum(found[f"{name}_milli"] for found in own) for name in STANDINGS}


IDLE_SHOWN = 3


def _idle_lines(runs: list[dict[str, Any]]) -> list[str]:
    """Return who holds GPUs and does no work, the dearest first."""
    lines = [
        f"{run['workload']} run {run['run']} of {run['budget']} ({run['principal']}) holds {render.gpus(run['gpus_milli'])} "
        f"and does no work since {render.when(run['since_ms'])}; cost so far {render.gpu_time(run['idle_gpu_us'])}"
        for run in runs[:IDLE_SHOWN]
    ]
    more = runs[IDLE_SHOWN:]
    if more:
        held = render.gpus(sum(run["gpus_milli"] for run in more))
        lines.append(f"{render.many(len(more), 'more holds', 'more hold')} {held} and do no work")
    return lines


def _pairs(value: Any) -> list[tuple[Any, int]]:
    return list(value.items()) if isinstance(value, dict) else []


def _ppm(part: int, whole: int) -> int | None:
    return (part * 1_000_000 + whole // 2) // whole if whole else None


def percent_or_dash(ppm: int | None) -> str:
    """Return a part as percent, and a dash where there is none."""
    return "-" if ppm is None else render.percent(ppm)


# -- queue -------------------------------------------------------------------------------------------------------------


async def queue(
    place: ReadPlace,
    mine: Annotated[bool, typer.Option("--mine", help="Only what you submitted")] = False,
    user: Annotated[str, typer.Option("--user", metavar="NAME", help="Only what this principal submitted")] = "",
    budget: BudgetOption = "",
    pool: Pool = "",
    state: Annotated[
        str, typer.Option("--state", parser=one_of(*STATES), metavar="STATE", help=f"One of {', '.join(STATES)}")
    ] = "all",
    limit: Annotated[int, typer.Option("--limit", "-n", parser=whole(1), metavar="N", help="At most so many")] = 1_000,
) -> Answer:
    """Show what runs and what waits, in which place, and why."""
    who = principal_now(None) if mine and not user else user
    async with opened(place) as source:
        if budget:
            await budget_of(source, budget)
        reply = await source.ask(
            "queue", state=state, row_limit=limit, **given(budget=budget, pool=pool, principal=who)
        )
        waits = await source.ask(
            "funded_waits", seq=reply.as_of.seq, row_limit=1, **given(budget=budget, pool=pool, principal=who)
        )
    now_ms = reply.as_of.time_ms
    rows = [{**row, "funded_wait_ms": funded_wait(row, now_ms), **reason_words(row)} for row in reply.rows]
    rows.sort(
        key=lambda row: (row["pool"], row["state"] == "pending")
    )  # what runs first; the projection's order inside
    shown = [{**row, "earliest_ms": (row["numbers"] or {}).get("earliest_ms"), "why": row["short"]} for row in rows]
    for row in rows:
        del row["short"]
    columns = [
        "position",
        "workload",
        "state",
        "gpus_milli",
        "budget",
        "pool",
        "principal",
        "age_ms",
        "funded_wait_ms",
        "earliest_ms",
        "why",
    ]
    unsaid = [name for name in ("earliest_ms", "funded_wait_ms") if not any(row[name] for row in shown)]
    section = Section(
        rows,
        without_constant(columns, shown, "pool", "principal", *unsaid),
        shown=shown,
        headings={"position": "#", "gpus_milli": "GPUs", "principal": "user", "earliest_ms": "starts by",
                  "funded_wait_ms": "funded for"},
        empty=_nothing_queued(who, budget),
        drop=("earliest_ms", "funded_wait_ms", "age_ms", "principal", "pool"),
    )
    after = [longest_funded_wait(row) for row in waits.rows]
    after += [f"the first {limit:,} are shown; --limit shows more"] if len(rows) == limit else []
    return Answer([section], after=after, as_of=reply.as_of)


def funded_wait(row: dict[str, Any], now_ms: int) -> int | None:
    """Return for how long a job has waited at the head of its queue although it would be funded."""
    return now_ms - row["funded_since_ms"] if row["state"] == "pending" and row["funded_since_ms"] else None


def longest_funded_wait(row: dict[str, Any]) -> str:
    """Return the longest wait of a funded request, with its owner and its reason."""
    sentence, _action = words_of("pending", str(row["reason"]), row.get("numbers") or {})
    return (
        f"longest wait of a funded request: {row['principal']}'s {row['workload']}, {render.gpus(row['gpus_milli'])} on "
        f"{row['budget']}, for {render.duration(row['funded_wait_ms'])}: {sentence}"
    )


def _nothing_queued(who: str, budget: str) -> str:
    whose = f" of {who}" if who else ""
    where = f" in {budget}" if budget else ""
    return f"nothing{whose} runs or waits{where}; submit with: apportion submit --budget PATH --gpus N -- COMMAND"


def reason_words(row: dict[str, Any]) -> dict[str, str]:
    """Return ``why`` and ``action`` for a row of the queue, and ``short``: the same as a label."""
    reason = str(row.get("reason") or "")
    if row["state"] == "pending":
        if not reason:
            return {"why": "not explained yet", "action": "", "short": "not explained yet"}
        sentence, action = words_of("pending", reason, row.get("numbers") or {})
        return {
            "why": sentence,
            "action": action.replace("JOB", str(row["workload"])),
            "short": label_of("pending", reason),
        }
    if not reason:
        return {"why": "", "action": "", "short": ""}
    sentence, action = words_of("funding", reason, {})
    stands = standing_words(row)
    return {"why": f"{stands}: {sentence}", "action": action, "short": f"{stands}, {label_of('funding', reason)}"}


def standing_words(row: dict[str, Any]) -> str:
    """Return how a run stands: protected until when, and funded or unfunded, which counts after that."""
    paid = "funded" if row.get("payer") == "budget" else "unfunded"
    if row.get("standing") != PROTECTED:
        return paid
    return f"protected to {render.when(row['protected_until_ms'])[5:16]}, {paid}"


# -- usage -------------------------------------------------------------------------------------------------------------


async def usage(
    place: ReadPlace,
    by: Annotated[
        str, typer.Option("--by", metavar="FIELDS", help="Split by any of day, pool, budget, user, kind")
    ] = "budget",
    since: Annotated[int | None, moment("From then on")] = None,
    until: Annotated[int | None, moment("Up to then")] = None,
    budget: BudgetOption = "",
    user: Annotated[str, typer.Option("--user", metavar="NAME", help="Only what this principal submitted")] = "",
    pool: Pool = "",
    weighted: Annotated[
        bool, typer.Option("--weighted", help="Count a GPU of each pool by the pool's weight")
    ] = False,
) -> Answer:
    """Show who used how many GPU-hours."""
    names = [name.strip() for name in by.split(",") if name.strip()]
    known = ("day", "pool", "budget", "user", "kind")
    for name in names:
        if name not in known:
            raise usage_failure(f"--by {name!r} is not possible", f"any of {', '.join(known)}, such as --by day,budget")
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
    rows = [{name: value for name, value in row.items() if name not in known or name in names} for row in reply.rows]
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
    split = {f"by_{name}": name in names for name in ("day", "pool", "budget", "user", "kind")}
    return await source.ask("usage", **split, **filters, **({"weighted": True} if weighted else {}))

"""The verb status: what the GPUs of each pool do now and did, how many wait, and what the free ones are good for.

Asks the projector, and arranges the answer; sentences come from ``adapters.text.wording``. JSON and CSV carry the rows as the
projection has them.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from apportion.adapters.cli.asking import opened
from apportion.adapters.cli.cores import core_if_readable
from apportion.adapters.cli.output import Answer, Section
from apportion.adapters.cli.reads import PANEL, Pool, percent_or_dash
from apportion.adapters.cli.verbs import ReadPlace, read_verb
from apportion.adapters.seen import standing
from apportion.adapters.seen.standing import STANDINGS
from apportion.adapters.text import render
from apportion.adapters.text.wording import label_of


def add_to(app: typer.Typer) -> None:
    """Register the verb."""
    app.command("status", rich_help_panel=PANEL)(read_verb(status))


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

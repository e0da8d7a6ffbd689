"""A plan as a picture: jobs as labelled rectangles of their blocks, services as areas below; one self-contained SVG.

A pure function of the rows of ``plan``, ``plan_jobs`` and ``plan_services``. GPUs of the pool's line go up, time to the right. A
service has no place in the line until it is given GPUs, so its area has a panel of its own. The text alternative tells all of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from apportion.adapters.charts.sheet import Box, Panel, Style, document, steps, tenths
from apportion.adapters.text import render

Row = dict[str, Any]
WIDTH, LEFT, RIGHT, TOP, BOTTOM, BETWEEN = 960, 56, 16, 60, 32, 28
LINE_HEIGHT, AREA_HEIGHT = 400, 120
LABEL_WIDTH, LABEL_HEIGHT = 7, 11  # of a letter; of a line of text
COLOURS = ("#9bbfd9", "#f2c48d", "#a9d6b8", "#dcb6d0", "#e3d98b", "#b9c2d0")
STYLE = Style(
    light="--line:#b3470f;--served:#0b62a4;--edge:#fff",
    dark="--line:#f0a070;--served:#4a97d0;--edge:#161616",
    rules=".need{fill:none;stroke:var(--line);stroke-width:2}.served{fill:var(--served)}.job{stroke:var(--edge)}"
    ".label{font-size:10px;fill:#111}",
)


def chart(plan: Row, jobs: Sequence[Row], services: Sequence[Row]) -> str:
    """Return the document."""
    planned = [row for row in jobs if row["start"] >= 0]
    needs, held = _sums(plan, services, "needs"), _sums(plan, services, "held")
    title = f"{plan['plan']}: the plan of pool {plan['pool']} from {render.when(plan['from_ms'])}"
    drawn = render.many(len(planned), "job")
    legend = f"{drawn} on the {plan['gpus']:,} GPUs of the pool in one line; blank: running work, services, idle"
    if services:
        legend += "; below: GPUs that services are to hold, and what they need as a line"
    height = TOP + LINE_HEIGHT + (BETWEEN + AREA_HEIGHT if services else 0) + BOTTOM
    line = _panel(plan, TOP, LINE_HEIGHT, plan["gpus"])
    parts = [line.grid(_marks(plan["gpus"]))]
    budgets = list(dict.fromkeys(row["budget"] for row in planned))
    parts += [_block(plan, row, COLOURS[budgets.index(row["budget"]) % len(COLOURS)]) for row in planned]
    below = line
    if services:
        most = max(*held, *needs, 1)
        below, every = _panel(plan, TOP + LINE_HEIGHT + BETWEEN, AREA_HEIGHT, most), range(plan["steps"])
        parts += [below.grid(_marks(most)), below.area("served", steps(every, 1, held)), below.line("need", steps(every, 1, needs))]
    hours = range(0, plan["steps"], max(1, plan["steps"] // 12))
    parts.append(below.instants((step, render.when(plan["from_ms"] + step * plan["step_ms"])[11:16]) for step in hours))
    return document(WIDTH, height, LEFT, STYLE, (title, legend), words(plan, jobs, services), parts)


def words(plan: Row, jobs: Sequence[Row], services: Sequence[Row]) -> str:
    """Return all that the picture shows as one text."""
    told = [
        f"{row['workload']} of {row['budget']}: {render.gpus(row['gpus_milli'])} from {render.when(row['start_ms'])[5:16]} "
        f"to {render.when(row['end_ms'])[5:16]}, GPUs {row['first']} to {row['first'] + row['gpus'] - 1} of the line"
        for row in jobs
        if row["start"] >= 0
    ]
    told += [f"{row['workload']} had waited too long, and has no place" for row in jobs if row["start"] < 0]
    needs, held = _sums(plan, services, "needs"), _sums(plan, services, "held")
    for step, (need, have) in enumerate(zip(needs, held, strict=True) if services else ()):
        told.append(f"{render.when(plan['from_ms'] + step * plan['step_ms'])[11:16]}: services need {need}, hold {have}")
    return "; ".join(told) or "nothing is planned"


def _sums(plan: Row, services: Sequence[Row], name: str) -> list[int]:
    sums = [0] * plan["steps"]
    for row in services:
        sums[row["step"]] += row[name]
    return sums


def _panel(plan: Row, top: int, tall: int, most: int) -> Panel:
    return Panel(Box(LEFT, WIDTH - RIGHT, top, top + tall), 0, plan["steps"], most)


def _marks(most: int) -> list[tuple[int, str]]:
    step = next((size for size in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512) if size * 8 >= most), 1_024)
    return [(gpus, str(gpus)) for gpus in range(0, most + 1, step)]


def _block(plan: Row, row: Row, colour: str) -> str:
    end = min(row["start"] + row["steps"], plan["steps"])
    tall = LINE_HEIGHT * 10 * row["gpus"] // plan["gpus"]
    wide = (end - row["start"]) * (WIDTH - LEFT - RIGHT) * 10 // plan["steps"]
    top = (TOP + LINE_HEIGHT) * 10 - LINE_HEIGHT * 10 * (row["first"] + row["gpus"]) // plan["gpus"]
    x = LEFT * 10 + row["start"] * (WIDTH - LEFT - RIGHT) * 10 // plan["steps"]
    name = escape(row["workload"])
    drawn = (
        f'<rect class="job" x="{tenths(x)}" y="{tenths(top)}" width="{tenths(wide)}" height="{tenths(tall)}" fill="{colour}">'
        f"<title>{name}</title></rect>"
    )
    if len(row["workload"]) * LABEL_WIDTH * 10 <= wide and tall >= LABEL_HEIGHT * 10:  # a label that does not fit is in the title
        drawn += f'<text class="label" x="{tenths(x + 30)}" y="{tenths(top + tall // 2 + 35)}">{name}</text>'
    return drawn


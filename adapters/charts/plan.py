"""A plan as a picture: jobs as labelled rectangles of their blocks, services as areas below; one self-contained SVG.

A pure function of the rows of ``plan``, ``plan_jobs`` and ``plan_services``. GPUs of the pool's line go up, time to the right. A
service has no place in the line until it is given GPUs, so its area has a panel of its own. The text alternative tells all of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from apportion.adapters.text import render

Row = dict[str, Any]
WIDTH, LEFT, RIGHT, TOP, BOTTOM, BETWEEN = 960, 56, 16, 60, 32, 28
LINE_HEIGHT, AREA_HEIGHT = 400, 120
LABEL_WIDTH, LABEL_HEIGHT = 7, 11  # of a letter; of a line of text
COLOURS = ("#9bbfd9", "#f2c48d", "#a9d6b8", "#dcb6d0", "#e3d98b", "#b9c2d0")
STYLE = (
    "svg{font:12px system-ui,sans-serif;--ink:#222;--line:#b3470f;--served:#0b62a4;--grid:#8884;--edge:#fff}"
    "@media (prefers-color-scheme:dark){svg{--ink:#ddd;--line:#f0a070;--served:#4a97d0;--edge:#161616}}"
    "text{fill:var(--ink)}.grid{stroke:var(--grid)}.need{fill:none;stroke:var(--line);stroke-width:2}"
    ".served{fill:var(--served)}.job{stroke:var(--edge)}.label{font-size:10px;fill:#111}"
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
    parts = [_grid(plan["gpus"], TOP, LINE_HEIGHT)]
    budgets = list(dict.fromkeys(row["budget"] for row in planned))
    parts += [_block(plan, row, COLOURS[budgets.index(row["budget"]) % len(COLOURS)]) for row in planned]
    if services:
        parts.append(_area(plan, held, needs))
    parts.append(_hours(plan, height - BOTTOM))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" aria-labelledby="t d">\n'
        f'<title id="t">{escape(title)}</title>\n<desc id="d">{escape(words(plan, jobs, services))}</desc>\n'
        f"<style>{STYLE}</style>\n"
        f'<text x="{LEFT}" y="18" font-size="14" font-weight="600">{escape(title)}</text>\n'
        f'<text x="{LEFT}" y="36">{escape(legend)}</text>\n' + "\n".join(parts) + "\n</svg>\n"
    )


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


def _x(plan: Row, step: int) -> str:
    return _tenth(LEFT * 10 + step * (WIDTH - LEFT - RIGHT) * 10 // plan["steps"])


def _block(plan: Row, row: Row, colour: str) -> str:
    end = min(row["start"] + row["steps"], plan["steps"])
    tall = LINE_HEIGHT * 10 * row["gpus"] // plan["gpus"]
    wide = (end - row["start"]) * (WIDTH - LEFT - RIGHT) * 10 // plan["steps"]
    top = (TOP + LINE_HEIGHT) * 10 - LINE_HEIGHT * 10 * (row["first"] + row["gpus"]) // plan["gpus"]
    x = LEFT * 10 + row["start"] * (WIDTH - LEFT - RIGHT) * 10 // plan["steps"]
    name = escape(row["workload"])
    drawn = (
        f'<rect class="job" x="{_tenth(x)}" y="{_tenth(top)}" width="{_tenth(wide)}" height="{_tenth(tall)}" fill="{colour}">'
        f"<title>{name}</title></rect>"
    )
    if len(row["workload"]) * LABEL_WIDTH * 10 <= wide and tall >= LABEL_HEIGHT * 10:  # a label that does not fit is in the title
        drawn += f'<text class="label" x="{_tenth(x + 30)}" y="{_tenth(top + tall // 2 + 35)}">{name}</text>'
    return drawn


def _area(plan: Row, held: Sequence[int], needs: Sequence[int]) -> str:
    top, most = TOP + LINE_HEIGHT + BETWEEN, max(*held, *needs, 1)

    def y(gpus: int) -> str:
        return _tenth((top + AREA_HEIGHT) * 10 - gpus * AREA_HEIGHT * 10 // most)

    outline = " ".join(f"{_x(plan, step)},{y(gpus)} {_x(plan, step + 1)},{y(gpus)}" for step, gpus in enumerate(held))
    line = " ".join(f"{_x(plan, step)},{y(gpus)} {_x(plan, step + 1)},{y(gpus)}" for step, gpus in enumerate(needs))
    return (
        _grid(most, top, AREA_HEIGHT)
        + f'\n<polygon class="served" points="{_x(plan, 0)},{y(0)} {outline} {_x(plan, plan["steps"])},{y(0)}"/>'
        + f'\n<polyline class="need" points="{line}"/>'
    )


def _grid(most: int, top: int, height: int) -> str:
    step = next((size for size in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512) if size * 8 >= most), 1_024)
    marks = [(gpus, _tenth((top + height) * 10 - gpus * height * 10 // most)) for gpus in range(0, most + 1, step)]
    return "\n".join(
        f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}"/>'
        f'<text x="{LEFT - 6}" y="{y}" dy="4" text-anchor="end">{gpus}</text>'
        for gpus, y in marks
    )


def _hours(plan: Row, bottom: int) -> str:
    every = max(1, plan["steps"] // 12)
    return "\n".join(
        f'<text x="{_x(plan, step)}" y="{bottom + 18}">{render.when(plan["from_ms"] + step * plan["step_ms"])[11:16]}</text>'
        for step in range(0, plan["steps"], every)
    )


def _tenth(tenths: int) -> str:
    return f"{tenths // 10}.{tenths % 10}"

"""The burn-down as a picture: one self-contained SVG, readable in light and dark, with its numbers in words for screen readers.

A pure function of the days and outlooks of ``adapters.statements.burndown``. With a balance: the balance at the end of each
day as a line, what was charged as bars, the outlook dashed. Without one: the part of the pool's used time it got, beside its
entitlement.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from apportion.adapters.charts.sheet import Box, Panel, Style, document
from apportion.adapters.statements.burndown import Outlook
from apportion.adapters.text import render
from apportion.core.units import MS_PER_DAY, PPM

Row = dict[str, Any]
WIDTH, HEIGHT, LEFT = 720, 320, 64
BOX = Box(LEFT, WIDTH - 16, 48, HEIGHT - 40)
STYLE = Style(
    light="--line:#0b62a4;--bar:#9bbfd9;--mark:#b3470f",
    dark="--line:#7cc0f2;--bar:#2f5f80;--mark:#f0a070",
    rules=".line{fill:none;stroke:var(--line);stroke-width:2}.bar{fill:var(--bar)}"
    ".mark{fill:none;stroke:var(--mark);stroke-width:2;stroke-dasharray:5 4}",
)


def chart(title: str, days: Sequence[Row], outlooks: Sequence[Outlook], as_of: str, *, metered: bool) -> str:
    """Return the document; ``days`` are not empty."""
    drawn = _balance(days, outlooks) if metered else _shares(days)
    return document(WIDTH, HEIGHT, LEFT, STYLE, (title, as_of), _words(days, metered=metered), drawn)


def _words(days: Sequence[Row], *, metered: bool) -> str:
    if metered:
        return "; ".join(f"{_day(row)}: balance {render.gpu_hours(row['balance_gpu_us'])} GPU-h" for row in days)
    return "; ".join(
        f"{_day(row)}: got {_percent(row['got_ppm'])}, entitled to {_percent(row['entitled_ppm'])}" for row in days
    )


def _day(row: Row) -> str:
    return render.when(row["day_ms"])[:10]


def _percent(ppm: int | None) -> str:
    return "-" if ppm is None else render.percent(ppm)


def _dates(panel: Panel, days: Sequence[Row]) -> str:
    return panel.instants((row["day_ms"], _day(row)[5:]) for row in days[:: max(1, (len(days) + 7) // 8)])


def _bars(panel: Panel, days: Sequence[Row], values: Sequence[int]) -> str:
    return panel.bars("bar", ((row["day_ms"], row["until_ms"], value) for row, value in zip(days, values, strict=True)))


def _balance(days: Sequence[Row], outlooks: Sequence[Outlook]) -> list[str]:
    charged = [row["charged_gpu_us"] - row["refunded_gpu_us"] for row in days]
    before = days[0]["balance_gpu_us"] - days[0]["posted_gpu_us"] + charged[0]
    top = max(1, before, *(row["balance_gpu_us"] for row in days), *charged)
    last = days[-1]
    ends = min((outlook.ends_ms for outlook in outlooks if outlook.ends_ms is not None), default=None)
    # the outlook takes at most as much of the sheet as the past
    edge_ms = min(
        max(last["until_ms"], ends or 0), last["until_ms"] + max(MS_PER_DAY, last["until_ms"] - days[0]["day_ms"])
    )
    panel = Panel(BOX, days[0]["day_ms"], edge_ms - days[0]["day_ms"], top)
    points = [(days[0]["day_ms"], before), *((row["until_ms"], row["balance_gpu_us"]) for row in days)]
    ticks = [(top * part // 4, render.gpu_hours(top * part // 4)) for part in range(5)]
    drawn = [panel.grid(ticks), _dates(panel, days), _bars(panel, days, charged), panel.line("line", points)]
    if ends is not None and ends > last["until_ms"]:
        left = last["balance_gpu_us"] * (ends - edge_ms) // (ends - last["until_ms"]) if ends > edge_ms else 0
        drawn.append(panel.line("mark", [(last["until_ms"], last["balance_gpu_us"]), (edge_ms, left)]))
    return [*drawn, _legend("line: balance, GPU-h; bars: charged that day; dashed: the nearest outlook")]


def _shares(days: Sequence[Row]) -> list[str]:
    got = [row["got_ppm"] or 0 for row in days]
    entitled = [row["entitled_ppm"] or 0 for row in days]
    top = min(PPM, max(1, *got, *entitled) * 5 // 4)
    panel = Panel(BOX, days[0]["day_ms"], days[-1]["until_ms"] - days[0]["day_ms"], top)
    edge = "".join(
        f"{'M' if not number else 'L'}{panel.x(row['day_ms'])} {panel.y(value)}H{panel.x(row['until_ms'])}"
        for number, (row, value) in enumerate(zip(days, entitled, strict=True))
    )
    ticks = [(top * part // 4, render.percent(top * part // 4)) for part in range(5)]
    legend = _legend("bars: got, part of the GPU time the pool used; dashed: entitled")
    return [panel.grid(ticks), _dates(panel, days), _bars(panel, days, got), f'<path class="mark" d="{edge}"/>', legend]


def _legend(text: str) -> str:
    return f'<text x="{LEFT}" y="{HEIGHT - 6}">{text}</text>'

"""The burn-down as a picture: one self-contained SVG, readable in light and dark, with its numbers in words for screen readers.

A pure function of the days and outlooks of ``adapters.statements.burndown``. With a balance: the balance at the end of each
day as a line, what was charged as bars, the outlook dashed. Without one: the part of the pool's used time it got, beside its
entitlement.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from apportion.adapters.statements.burndown import Outlook
from apportion.adapters.text import render
from apportion.core.units import MS_PER_DAY, PPM

Row = dict[str, Any]
WIDTH, HEIGHT = 720, 320
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 48, 40
STYLE = (
    "svg{font:12px system-ui,sans-serif;--ink:#222;--line:#0b62a4;--bar:#9bbfd9;--mark:#b3470f;--grid:#8884}"
    "@media (prefers-color-scheme:dark){svg{--ink:#ddd;--line:#7cc0f2;--bar:#2f5f80;--mark:#f0a070}}"
    "text{fill:var(--ink)}.grid{stroke:var(--grid)}.line{fill:none;stroke:var(--line);stroke-width:2}.bar{fill:var(--bar)}"
    ".mark{fill:none;stroke:var(--mark);stroke-width:2;stroke-dasharray:5 4}"
)


def chart(title: str, days: Sequence[Row], outlooks: Sequence[Outlook], as_of: str, *, metered: bool) -> str:
    """Return the document; ``days`` are not empty."""
    drawn = _balance(days, outlooks) if metered else _shares(days)
    text = _words(days, metered=metered)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-labelledby="t d">\n'
        f'<title id="t">{escape(title)}</title>\n<desc id="d">{escape(text)}</desc>\n<style>{STYLE}</style>\n'
        f'<text x="{LEFT}" y="18" font-size="14" font-weight="600">{escape(title)}</text>\n'
        f'<text x="{LEFT}" y="36">{escape(as_of)}</text>\n{drawn}\n</svg>\n'
    )


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


class _Frame:
    """Where a time and a value are on the sheet; whole pixels are not needed, tenths are enough."""

    def __init__(self, first_ms: int, last_ms: int, top: int) -> None:
        self.first_ms, self.span_ms, self.top = first_ms, max(1, last_ms - first_ms), max(1, top)

    def x(self, at_ms: int) -> str:
        return _tenth(LEFT * 10 + (at_ms - self.first_ms) * (WIDTH - LEFT - RIGHT) * 10 // self.span_ms)

    def y(self, value: int) -> str:
        inside = min(max(value, 0), self.top)
        return _tenth((HEIGHT - BOTTOM) * 10 - inside * (HEIGHT - BOTTOM - TOP) * 10 // self.top)

    def axes(self, ticks: Sequence[tuple[int, str]], days: Sequence[Row]) -> str:
        """Return grid lines with their values, and the dates."""
        lines = [
            f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{self.y(value)}" y2="{self.y(value)}"/>'
            f'<text x="{LEFT - 6}" y="{self.y(value)}" dy="4" text-anchor="end">{escape(text)}</text>'
            for value, text in ticks
        ]
        step = max(1, (len(days) + 7) // 8)
        lines += [
            f'<text x="{self.x(row["day_ms"])}" y="{HEIGHT - BOTTOM + 18}">{_day(row)[5:]}</text>'
            for row in days[::step]
        ]
        return "\n".join(lines)

    def bars(self, days: Sequence[Row], values: Sequence[int]) -> str:
        return "\n".join(
            f'<path class="bar" d="M{self.x(row["day_ms"])} {self.y(0)}V{self.y(value)}H{self.x(row["until_ms"])}V{self.y(0)}Z"/>'
            for row, value in zip(days, values, strict=True)
        )


def _tenth(value: int) -> str:
    return f"{value // 10}.{value % 10}"


def _balance(days: Sequence[Row], outlooks: Sequence[Outlook]) -> str:
    charged = [row["charged_gpu_us"] - row["refunded_gpu_us"] for row in days]
    before = days[0]["balance_gpu_us"] - days[0]["posted_gpu_us"] + charged[0]
    top = max(1, before, *(row["balance_gpu_us"] for row in days), *charged)
    last = days[-1]
    ends = min((outlook.ends_ms for outlook in outlooks if outlook.ends_ms is not None), default=None)
    # the outlook takes at most as much of the sheet as the past
    edge_ms = min(
        max(last["until_ms"], ends or 0), last["until_ms"] + max(MS_PER_DAY, last["until_ms"] - days[0]["day_ms"])
    )
    frame = _Frame(days[0]["day_ms"], edge_ms, top)
    points = [(days[0]["day_ms"], before), *((row["until_ms"], row["balance_gpu_us"]) for row in days)]
    path = " ".join(f"{frame.x(at_ms)},{frame.y(value)}" for at_ms, value in points)
    ticks = [(top * part // 4, render.gpu_hours(top * part // 4)) for part in range(5)]
    drawn = [frame.axes(ticks, days), frame.bars(days, charged), f'<polyline class="line" points="{path}"/>']
    if ends is not None and ends > last["until_ms"]:
        left = last["balance_gpu_us"] * (ends - edge_ms) // (ends - last["until_ms"]) if ends > edge_ms else 0
        drawn.append(
            f'<polyline class="mark" points="{frame.x(last["until_ms"])},{frame.y(last["balance_gpu_us"])} '
            f'{frame.x(edge_ms)},{frame.y(left)}"/>'
        )
    drawn.append(_legend("line: balance, GPU-h; bars: charged that day; dashed: the nearest outlook"))
    return "\n".join(drawn)


def _shares(days: Sequence[Row]) -> str:
    got = [row["got_ppm"] or 0 for row in days]
    entitled = [row["entitled_ppm"] or 0 for row in days]
    top = min(PPM, max(1, *got, *entitled) * 5 // 4)
    frame = _Frame(days[0]["day_ms"], days[-1]["until_ms"], top)
    steps = "".join(
        f"{'M' if not number else 'L'}{frame.x(row['day_ms'])} {frame.y(value)}H{frame.x(row['until_ms'])}"
        for number, (row, value) in enumerate(zip(days, entitled, strict=True))
    )
    ticks = [(top * part // 4, render.percent(top * part // 4)) for part in range(5)]
    return "\n".join(
        [
            frame.axes(ticks, days),
            frame.bars(days, got),
            f'<path class="mark" d="{steps}"/>',
            _legend("bars: got, part of the GPU time the pool used; dashed: entitled"),
        ]
    )


def _legend(text: str) -> str:
    return f'<text x="{LEFT}" y="{HEIGHT - 6}">{text}</text>'

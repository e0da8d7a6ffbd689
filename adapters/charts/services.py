"""A service's day as a picture: what its traffic needs as a line, the GPUs it held as an area; one self-contained SVG.

A pure function of the rows of the query ``service_curve``. With batch work of the same pool given, that lies on top of the area:
how one breathes over the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from apportion.adapters.text import render

Row = dict[str, Any]
WIDTH, HEIGHT = 720, 320
LEFT, RIGHT, TOP, BOTTOM = 56, 16, 56, 36
STYLE = (
    "svg{font:12px system-ui,sans-serif;--ink:#222;--line:#b3470f;--served:#0b62a4;--batch:#9bbfd9;--grid:#8884}"
    "@media (prefers-color-scheme:dark){svg{--ink:#ddd;--line:#f0a070;--served:#4a97d0;--batch:#2f5f80}}"
    "text{fill:var(--ink)}.grid{stroke:var(--grid)}.need{fill:none;stroke:var(--line);stroke-width:2}"
    ".served{fill:var(--served)}.batch{fill:var(--batch)}"
)


def chart(
    service: Row, curve: Sequence[Row], step_ms: int, as_of: str, *, batch_milli: Sequence[int] = (), pool_milli: int = 0
) -> str:
    """Return the document. ``batch_milli`` are the GPUs that other work held, per row; ``pool_milli`` is drawn as the top."""
    title = f"{service['workload']}: GPUs held, and needed by its traffic"
    others = list(batch_milli) or [0] * len(curve)
    tops = [row["held_milli"] + other for row, other in zip(curve, others, strict=True)]
    needs = [row["need_milli"] for row in curve]
    most = max([*tops, *(need or 0 for need in needs), pool_milli, 1_000])
    first_ms = curve[0]["from_ms"] if curve else 0
    span = max(1, len(curve)) * step_ms

    def x(at_ms: int) -> str:
        return _tenth(LEFT * 10 + (at_ms - first_ms) * (WIDTH - LEFT - RIGHT) * 10 // span)

    def y(milli: int) -> str:
        return _tenth((HEIGHT - BOTTOM) * 10 - milli * (HEIGHT - BOTTOM - TOP) * 10 // most)

    starts = [row["from_ms"] for row in curve]
    parts = [_grid(most, y), _hours(starts, step_ms, x)]
    if any(others):
        parts.append(_area("batch", starts, step_ms, tops, x, y))
    parts.append(_area("served", starts, step_ms, [row["held_milli"] for row in curve], x, y))
    known = [(at_ms, need) for at_ms, need in zip(starts, needs, strict=True) if need is not None]
    if known:
        path = " ".join(f"{x(at_ms)},{y(need)} {x(at_ms + step_ms)},{y(need)}" for at_ms, need in known)
        parts.append(f'<polyline class="need" points="{path}"/>')
    words = "; ".join(
        f"{render.when(row['from_ms'])[11:16]}: needs {_gpus(row['need_milli'])}, held {_gpus(row['held_milli'])}" for row in curve
    )
    legend = "area: held by the service" + ("; pale: held by other work" if any(others) else "") + "; line: needed by its traffic"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-labelledby="t d">\n'
        f'<title id="t">{escape(title)}</title>\n<desc id="d">{escape(words)}</desc>\n<style>{STYLE}</style>\n'
        f'<text x="{LEFT}" y="18" font-size="14" font-weight="600">{escape(title)}</text>\n'
        f'<text x="{LEFT}" y="36">{escape(legend)}; as of {escape(as_of)}</text>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def _area(name: str, starts: Sequence[int], step_ms: int, values: Sequence[int], x: Any, y: Any) -> str:
    points = [f"{x(starts[0])},{y(0)}"]
    for at_ms, value in zip(starts, values, strict=True):
        points += [f"{x(at_ms)},{y(value)}", f"{x(at_ms + step_ms)},{y(value)}"]
    points.append(f"{x(starts[-1] + step_ms)},{y(0)}")
    return f'<polygon class="{name}" points="{" ".join(points)}"/>'


def _grid(most_milli: int, y: Any) -> str:
    step = next(size for size in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000) if size * 6_000 >= most_milli)
    lines = [
        f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(gpus * 1_000)}" y2="{y(gpus * 1_000)}"/>'
        f'<text x="{LEFT - 6}" y="{y(gpus * 1_000)}" dy="4" text-anchor="end">{gpus}</text>'
        for gpus in range(0, most_milli // 1_000 + 1, step)
    ]
    return "\n".join(lines)


def _hours(starts: Sequence[int], step_ms: int, x: Any) -> str:
    every = max(1, len(starts) // 8)
    return "\n".join(
        f'<text x="{x(at_ms)}" y="{HEIGHT - BOTTOM + 18}">{render.when(at_ms)[11:16]}</text>' for at_ms in starts[::every]
    )


def _gpus(milli: int | None) -> str:
    return "-" if milli is None else render.gpu_count(milli)


def _tenth(tenths: int) -> str:
    return f"{tenths // 10}.{tenths % 10}"

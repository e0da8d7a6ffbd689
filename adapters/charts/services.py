"""A service's day as a picture: what its traffic needs as a line, the GPUs it held as an area; one self-contained SVG.

A pure function of the rows of the query ``service_curve``. With batch work of the same pool given, that lies on top of the area:
how one breathes over the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from apportion.adapters.charts.sheet import Box, Panel, Style, document, steps
from apportion.adapters.text import render

Row = dict[str, Any]
WIDTH, HEIGHT, LEFT = 720, 320, 56
BOX = Box(LEFT, WIDTH - 16, 56, HEIGHT - 36)
STYLE = Style(
    light="--line:#b3470f;--served:#0b62a4;--batch:#9bbfd9",
    dark="--line:#f0a070;--served:#4a97d0;--batch:#2f5f80",
    rules=".need{fill:none;stroke:var(--line);stroke-width:2}.served{fill:var(--served)}.batch{fill:var(--batch)}",
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
    starts = [row["from_ms"] for row in curve]
    panel = Panel(BOX, starts[0] if starts else 0, len(curve) * step_ms, most)
    hours = starts[:: max(1, len(starts) // 8)]
    parts = [panel.grid(_marks(most)), panel.instants((at_ms, render.when(at_ms)[11:16]) for at_ms in hours)]
    if any(others):
        parts.append(panel.area("batch", steps(starts, step_ms, tops)))
    parts.append(panel.area("served", steps(starts, step_ms, [row["held_milli"] for row in curve])))
    known = [(at_ms, need) for at_ms, need in zip(starts, needs, strict=True) if need is not None]
    if known:
        parts.append(panel.line("need", steps([at_ms for at_ms, _need in known], step_ms, [need for _at_ms, need in known])))
    words = "; ".join(
        f"{render.when(row['from_ms'])[11:16]}: needs {_gpus(row['need_milli'])}, held {_gpus(row['held_milli'])}" for row in curve
    )
    legend = "area: held by the service" + ("; pale: held by other work" if any(others) else "") + "; line: needed by its traffic"
    return document(WIDTH, HEIGHT, LEFT, STYLE, (title, f"{legend}; as of {as_of}"), words, parts)


def _marks(most_milli: int) -> list[tuple[int, str]]:
    step = next(size for size in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000) if size * 6_000 >= most_milli)
    return [(gpus * 1_000, str(gpus)) for gpus in range(0, most_milli // 1_000 + 1, step)]


def _gpus(milli: int | None) -> str:
    return "-" if milli is None else render.gpu_count(milli)


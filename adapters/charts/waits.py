"""The axes of waiting times: which part of the work had started after so long, time on a logarithmic scale.

Draws on a picture and returns where a wait and a part are; it knows no data.
"""

from __future__ import annotations

from collections.abc import Callable
from math import log

from apportion.adapters.charts.svg import Picture
from apportion.core.units import MS_PER_DAY, PPM

Scale = Callable[[float], float]

MINUTE_MS = 60_000
MARKS = ((1, "1 min"), (10, "10 min"), (60, "1 h"), (360, "6 h"), (1_440, "1 d"), (4_320, "3 d"), (10_080, "7 d"), (43_200, "30 d"))


def axes(picture: Picture, left: float, right: float, above: float, below: float, length_ms: int) -> tuple[Scale, Scale, int]:
    """Draw them for a range of ``length_ms``; return where a wait in ms is, where a part in ppm is, and the longest wait."""
    marks = [mark for mark in MARKS if mark[0] * MINUTE_MS <= max(length_ms, 2 * MS_PER_DAY)]
    last_ms = marks[-1][0] * MINUTE_MS

    def x(wait_ms: float) -> float:
        return left + (right - left) * log(max(wait_ms, MINUTE_MS) / MINUTE_MS) / log(last_ms / MINUTE_MS)

    def y(ppm: float) -> float:
        return below - (below - above) * ppm / PPM

    for ppm in range(0, PPM + 1, 200_000):
        picture.line((left, y(ppm)), (right, y(ppm)), "grid")
        picture.text((left - 8, y(ppm) + 4), f"{ppm // 10_000} %", anchor="end")
    for minutes, name in marks:
        at = x(minutes * MINUTE_MS)
        picture.line((at, above), (at, below + 4), "grid")
        picture.text((at, below + 20), name, anchor="middle")
    picture.line((left, below), (right, below))
    picture.text(((left + right) / 2, below + 42), "waited at most (who still waits at the end is counted)", anchor="middle")
    return x, y, last_ms

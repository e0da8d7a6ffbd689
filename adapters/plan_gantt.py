"""A plan as text: services as curves, then a line per job, in columns of time that fit the terminal.

A pure function of the rows of ``plan``, ``plan_jobs`` and ``plan_services`` and of a width. Names are never cut: one that is too
long has a line of its own. A column is as many steps as it takes to fit; a job is drawn in each column that it touches.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from apportion.adapters import render

Row = dict[str, Any]
NAME_MAX = 24
LEVELS = 6  # lines of a curve
LEAST_WIDTH = 60


class Frame(NamedTuple):
    """Where columns of time begin: ``left`` characters of words, then columns of ``group`` steps each."""

    name: int
    left: int
    group: int
    columns: int

    def place(self, step: int) -> int:
        """Return the column of a step."""
        return step // self.group


def frame_of(plan: Row, names: Iterable[str], width: int) -> Frame:
    """Return the frame for a width: the fewest steps a column that fit."""
    name = max([4, *(len(one) for one in names if len(one) <= NAME_MAX)])
    left = name + 2 + 4 + 2 + 7 + 2
    steps = int(plan["steps"])
    room = max(width, LEAST_WIDTH) - left - 1
    group = -(-steps // max(1, room))
    return Frame(name, left, group, -(-steps // group))


def gantt(plan: Row, jobs: Sequence[Row], services: Sequence[Row], width: int) -> str:
    """Return the lines, each no wider than ``width`` where that is at least ``LEAST_WIDTH``; ``jobs`` in order of start."""
    curves: dict[str, list[Row]] = {}
    for row in services:
        curves.setdefault(row["workload"], []).append(row)
    frame = frame_of(plan, [*curves, *(row["workload"] for row in jobs)], width)
    lines = [_hours(plan, frame)]
    for name, rows in curves.items():
        lines += _curve(name, rows, frame)
    if curves and jobs:
        lines.append("")
    if jobs:
        lines.append(f"{'job':<{frame.name}}  {'GPUs':>4}  {'starts':>7}")
    for row in jobs:
        lines += _bar(plan, row, frame)
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _hours(plan: Row, frame: Frame) -> str:
    """Return the line of clock times, as many as have room."""
    cells = [" "] * (frame.columns + 8)
    column = 0
    while column < frame.columns:
        text = render.when(plan["from_ms"] + column * frame.group * plan["step_ms"])[11:16]
        if column + len(text) <= frame.columns:
            cells[column : column + len(text)] = text
        column += 8
    return " " * frame.left + "".join(cells)


def _curve(name: str, rows: Sequence[Row], frame: Frame) -> list[str]:
    """Return a service's lines, the highest first: ``#`` held, ``.`` needed and not held."""
    held, needs = [0] * frame.columns, [0] * frame.columns
    for row in rows:
        column = frame.place(row["step"])
        held[column], needs[column] = max(held[column], row["held"]), max(needs[column], row["needs"])
    most = max(*held, *needs, 1)
    height = min(LEVELS, most)
    lines = [] if len(name) <= NAME_MAX else [name]
    for level in range(height, 0, -1):
        # a line is drawn where more than the line below stands for is held
        floor = (level - 1) * most // height
        cells = ["#" if have > floor else "." if need > floor else " " for have, need in zip(held, needs, strict=True)]
        word = name if level == height and len(name) <= NAME_MAX else ""
        gpus = level * most // height
        lines.append(f"{word:<{frame.name}}  {gpus:>4}{'':>{frame.left - frame.name - 6}}" + "".join(cells))
    return lines


def _bar(plan: Row, row: Row, frame: Frame) -> list[str]:
    gpus, name = render.gpu_count(row["gpus_milli"] or row["gpus"] * 1_000), row["workload"]
    lines = [] if len(name) <= NAME_MAX else [name]
    word = name if not lines else ""
    if row["start"] < 0:
        return [*lines, f"{word:<{frame.name}}  {gpus:>4}  {'late':>7}"]
    first, last = frame.place(row["start"]), frame.place(min(row["start"] + row["steps"], plan["steps"]) - 1)
    cells = " " * first + "#" * (last - first + 1) + (">" if row["start"] + row["steps"] > plan["steps"] else "")
    starts = "now" if not row["start"] else "+" + render.duration(row["start"] * plan["step_ms"])
    return [*lines, f"{word:<{frame.name}}  {gpus:>4}  {starts:>7}  {cells}"]

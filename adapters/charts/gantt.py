"""A plan as text: services as curves, then a line per job, in columns of time that fit the terminal.

A pure function of the rows of ``plan``, ``plan_jobs`` and ``plan_services`` and of a width. Names are never cut: one that is too
long has a line of its own. A column is as many steps as it takes to fit; a job is drawn in each column that it touches.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from apportion.adapters.text import render

Row = dict[str, Any]
NAME_MAX = 24
LEVELS = 6  # lines of a curve
LEAST_WIDTH = 60
GAP = 2


class Frame(NamedTuple):
    """The widths of the words on the left, and the columns of time beside them, of ``group`` steps each."""

    name: int
    gpus: int
    starts: int
    group: int
    columns: int

    def words(self, name: str, gpus: str, starts: str) -> str:
        """Return the words of a line, up to where its columns begin."""
        return f"{name:<{self.name}}{'':{GAP}}{gpus:>{self.gpus}}{'':{GAP}}{starts:>{self.starts}}{'':{GAP}}"

    def place(self, step: int) -> int:
        """Return the column of a step."""
        return step // self.group


def gantt(plan: Row, jobs: Sequence[Row], services: Sequence[Row], width: int) -> str:
    """Return the lines, each no wider than ``width`` where that is at least ``LEAST_WIDTH``; ``jobs`` in order of start."""
    curves: dict[str, list[Row]] = {}
    for row in services:
        curves.setdefault(row["workload"], []).append(row)
    frame = _frame(plan, jobs, curves, width)
    lines = [_hours(plan, frame)]
    for name, rows in curves.items():
        lines += _curve(name, rows, frame)
    if curves and jobs:
        lines.append("")
    if jobs:
        lines.append(frame.words("job", "GPUs", "starts"))
    for row in jobs:
        lines += _bar(plan, row, frame)
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _frame(plan: Row, jobs: Sequence[Row], curves: dict[str, list[Row]], width: int) -> Frame:
    """Return the frame for a width: the fewest steps a column that fit."""
    names = [*curves, *(row["workload"] for row in jobs)]
    most = max((max(row["held"], row["needs"]) for rows in curves.values() for row in rows), default=0)
    name = max([3, *(len(one) for one in names if len(one) <= NAME_MAX)])
    gpus = max([4, len(f"{most:,}"), *(len(_gpus(row)) for row in jobs)])
    starts = max([6, *(len(_starts(plan, row)) for row in jobs)])
    steps = int(plan["steps"])
    room = max(width, LEAST_WIDTH) - (name + gpus + starts + 3 * GAP) - 1  # one for what goes on beyond the plan
    group = -(-steps // max(1, room))
    return Frame(name, gpus, starts, group, -(-steps // group))


def _hours(plan: Row, frame: Frame) -> str:
    """Return the line of clock times, as many as have room."""
    cells = [" "] * frame.columns
    for column in range(0, frame.columns, 8):
        text = render.when(plan["from_ms"] + column * frame.group * plan["step_ms"])[11:16]
        if column + len(text) <= frame.columns:
            cells[column : column + len(text)] = text
    return frame.words("", "", "") + "".join(cells)


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
        floor = (level - 1) * most // height  # a cell is drawn where more than the line below it stands for is held
        cells = ["#" if have > floor else "." if need > floor else " " for have, need in zip(held, needs, strict=True)]
        word = name if level == height and not lines else ""
        lines.append(frame.words(word, f"{level * most // height:,}", "") + "".join(cells))
    return lines


def _bar(plan: Row, row: Row, frame: Frame) -> list[str]:
    name, cells = row["workload"], ""
    lines = [] if len(name) <= NAME_MAX else [name]
    if row["start"] >= 0:
        end = row["start"] + row["steps"]
        first, last = frame.place(row["start"]), frame.place(min(end, plan["steps"]) - 1)
        cells = " " * first + "#" * (last - first + 1) + (">" if end > plan["steps"] else "")
    return [*lines, frame.words("" if lines else name, _gpus(row), _starts(plan, row)) + cells]


def _gpus(row: Row) -> str:
    return render.gpu_count(row["gpus_milli"] or row["gpus"] * 1_000)


def _starts(plan: Row, row: Row) -> str:
    if row["start"] < 0:
        return "late"
    return "+" + render.duration(row["start"] * plan["step_ms"]) if row["start"] else "now"

"""The two pictures of a comparison: who held which part of the cluster over time, and how long workloads waited.

Pure functions of the outcomes. Solid lines are what was, dashed lines what was due.
"""

from __future__ import annotations

from collections.abc import Sequence

from apportion.adapters.charts.svg import COLOURS, REST, Picture, Point
from apportion.adapters.charts.waits import axes
from apportion.adapters.comparing.playing import WAIT_BOUNDS_MS, Outcome
from apportion.adapters.comparing.story import Story
from apportion.core.units import MS_PER_DAY, PPM

SHOWN = 4  # programs with a line of their own
WIDTH = 960
LEFT, RIGHT, TOP = 64, 24, 88
PANEL_HEIGHT, PANEL_GAP = 150, 46


def shares_over_time(story: Story, outcomes: Sequence[Outcome]) -> str:
    """Return a panel per policy: the largest programs' parts of all GPU time in service, and what was due to them."""
    programs = [path for path, _ppm in story.tree if path.count("/") == 1]
    by_due = sorted(programs, key=lambda path: (-sum(outcomes[0].due_ppm[path]), path))
    shown, rest = by_due[:SHOWN], by_due[SHOWN:]
    height = TOP + len(outcomes) * (PANEL_HEIGHT + PANEL_GAP) + 20
    picture = Picture(WIDTH, height, "Share of the cluster over time")
    picture.text((LEFT, 30), "Share of the cluster over time, by policy", css="title")
    names = [(path.rpartition("/")[2], COLOURS[number]) for number, path in enumerate(shown)]
    if rest:
        names.append((f"{len(rest)} others", REST))
    _legend(picture, names, LEFT, 56)
    picture.text((WIDTH - RIGHT, 56), "solid: got; dashed: due (water-filled by demand)", anchor="end", css="note")
    top = 1
    for outcome in outcomes:
        for path in shown:
            top = max(top, *outcome.got_ppm[path], *outcome.due_ppm[path])
    step = 200_000 if top > 500_000 else 100_000
    top = min(PPM, -(-top // step) * step)
    for number, outcome in enumerate(outcomes):
        above = TOP + number * (PANEL_HEIGHT + PANEL_GAP)
        _panel(picture, story, outcome, (shown, rest), above, (top, step))
    return picture.render()


def _panel(
    picture: Picture, story: Story, outcome: Outcome, paths: tuple[list[str], list[str]], above: float, scale: tuple[int, int]
) -> None:
    shown, rest = paths
    top_ppm, step = scale
    days = story.world.length_ms / MS_PER_DAY
    count = len(outcome.got_ppm[shown[0]])
    right, below = WIDTH - RIGHT, above + PANEL_HEIGHT

    def x(day: float) -> float:
        return LEFT + (right - LEFT) * day / days

    def y(ppm: float) -> float:
        return below - PANEL_HEIGHT * min(ppm, top_ppm) / top_ppm

    for ppm in range(0, top_ppm + 1, step):
        picture.line((LEFT, y(ppm)), (right, y(ppm)), "grid")
        picture.text((LEFT - 8, y(ppm) + 4), f"{ppm // 10_000} %", anchor="end")
    for day in range(int(days) + 1):
        picture.line((x(day), below), (x(day), below + 4))
        picture.text((x(day), below + 18), f"day {day}", anchor="middle")
    picture.line((LEFT, below), (right, below))
    picture.text((LEFT, above - 8), outcome.policy, css="panel")
    error = f"misplaced {outcome.misplaced_pct:.1f} %, occupancy {outcome.occupancy_pct:.1f} %"
    picture.text((right, above - 8), error, anchor="end", css="note")

    def through(values: Sequence[int]) -> list[Point]:
        return [(x((position + 0.5) * days / count), y(value)) for position, value in enumerate(values)]

    others = [sum(outcome.got_ppm[path][position] for path in rest) for position in range(count)]
    owed = [sum(outcome.due_ppm[path][position] for path in rest) for position in range(count)]
    if rest:
        picture.curve(through(owed), REST, width=1.3, dash="4 4")
        picture.curve(through(others), REST)
    for number, path in enumerate(shown):
        picture.curve(through(outcome.due_ppm[path]), COLOURS[number], width=1.3, dash="4 4")
        picture.curve(through(outcome.got_ppm[path]), COLOURS[number])


def waiting_times(story: Story, outcomes: Sequence[Outcome]) -> str:
    """Return the part of workloads that start within a time, a line per policy, time on a logarithmic scale."""
    height = 460
    picture = Picture(WIDTH, height, "Waiting time to the first start")
    picture.text((LEFT, 30), "Waiting time to the first start", css="title")
    _legend(picture, [(outcome.policy, COLOURS[number]) for number, outcome in enumerate(outcomes)], LEFT, 56)
    note = f"{story.source}, demand {story.demand_milli / 1_000:.1f} x capacity"
    picture.text((WIDTH - RIGHT, 56), note, anchor="end", css="note")
    above, below = 80.0, height - 56.0
    x, y, last_ms = axes(picture, LEFT, WIDTH - RIGHT, above, below, story.world.length_ms)
    picture.text((18, (above + below) / 2), "workloads started", anchor="middle", turned=True)
    for number, outcome in enumerate(outcomes):
        points = [
            (x(bound), y(ppm))
            for bound, ppm in zip(WAIT_BOUNDS_MS, outcome.started_within_ppm, strict=True)
            if bound <= last_ms
        ]
        picture.curve(points, COLOURS[number])
    return picture.render()


def _legend(picture: Picture, names: Sequence[tuple[str, str]], left: float, below: float) -> None:
    at = left
    for name, colour in names:
        picture.curve([(at, below - 4), (at + 18, below - 4)], colour, width=3)
        picture.text((at + 24, below), name)
        at += 24 + 7.2 * len(name) + 22

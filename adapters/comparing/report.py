"""A comparison as one table for people and one dictionary for scripts.

Pure functions of story and outcomes: they round and word what was measured, and measure nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from apportion.adapters.comparing.playing import Outcome, window
from apportion.adapters.comparing.story import Story
from apportion.adapters.comparing.waits import Quantile
from apportion.adapters.text import render
from apportion.core.units import MS_PER_DAY


def document(story: Story, outcomes: Sequence[Outcome], files: Sequence[str]) -> dict[str, Any]:
    """Return everything measured."""
    from_ms, to_ms = window(story)
    return {
        "source": story.source,
        "jobs": len(story.jobs),
        "gpus": story.world.layout.gpus,
        "demand": story.demand_milli / 1_000,
        "days": story.world.length_ms / MS_PER_DAY,
        "from_ms": from_ms,
        "to_ms": to_ms,
        "entitled_ppm": dict(story.tree),
        "policies": {outcome.policy: msgspec.to_builtins(outcome) for outcome in outcomes},
        "files": list(files),
    }


_ROWS: tuple[tuple[str, Callable[[Outcome], str]], ...] = (
    ("program error, worst, % of its due", lambda one: f"{one.program_err_pct:.1f}"),
    ("leaf error, worst, % of its due", lambda one: f"{one.leaf_err_pct:.1f}"),
    ("misplaced, % of all GPU time", lambda one: f"{one.misplaced_pct:.1f}"),
    ("occupancy, %", lambda one: f"{one.occupancy_pct:.1f}"),
    ("lost work, %", lambda one: f"{one.lost_work_pct:.2f}"),
    ("preemptions per 1,000 GPU-h", lambda one: f"{one.preemptions_per_1000_gpu_h:.1f}"),
    ("alternations within an hour", lambda one: f"{one.alternations:,}"),
    ("runs preempted > 3 times, %", lambda one: f"{one.runs_preempted_over_3_pct:.2f}"),
    ("workloads started", lambda one: f"{one.started:,}"),
    ("wait p50", lambda one: _wait(one.waits[0])),
    ("wait p90", lambda one: _wait(one.waits[1])),
    ("wait p99", lambda one: _wait(one.waits[2])),
)


def lines(story: Story, outcomes: Sequence[Outcome], files: Sequence[str]) -> list[str]:
    """Return the table, with what it is about above and what its words mean below."""
    from_ms, to_ms = window(story)
    days = story.world.length_ms / MS_PER_DAY
    head = (
        f"{story.source}: {render.many(len(story.jobs), 'job')} in {days:g} {'day' if days == 1 else 'days'} on "
        f"{story.world.layout.gpus:,} GPUs, "
        f"{story.demand_milli / 1_000:.1f} times what there is"
    )
    names = [name for name, _cell in _ROWS]
    width = max(map(len, names))
    columns = [[outcome.policy, *(cell(outcome) for _name, cell in _ROWS)] for outcome in outcomes]
    widths = [max(map(len, column)) for column in columns]
    rows = []
    for position, name in enumerate(["", *names]):
        cells = "  ".join(f"{column[position]:>{wide}}" for column, wide in zip(columns, widths, strict=True))
        rows.append(f"{name:<{width}}  {cells}".rstrip())
    counted = "all of it" if from_ms == story.world.start_ms else f"the last {render.duration(to_ms - from_ms)}"
    notes = [
        f"counted: {counted}. due: the GPU time delivered, water-filled over the tree by demand, at every instant; budgets due",
        "less than 1 % of it do not count in errors. misplaced: what budgets got above their due, together. > : longer than that;",
        "it has not ended. Waits count who has not started (Kaplan-Meier). lost: done again after preemptions, failures, outages.",
    ]
    wrong = [f"WRONG    {outcome.policy}: {complaint}" for outcome in outcomes for complaint in outcome.complaints[:3]]
    pictures = [f"picture  {name}" for name in files]
    return [head, "", *rows, "", *notes, *wrong, *pictures]


def _wait(found: Quantile) -> str:
    return ("> " if found.open else "") + render.duration(found.wait_ms // 60_000 * 60_000)

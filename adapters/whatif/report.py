"""A difference in words and tables for people.

A pure function of what was measured. Every number stands twice, history's before the what-if's; what rests on an assumption is said
below, with how much of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from apportion.adapters.text import render
from apportion.adapters.whatif.calibration import PERCENTS, Calibration, quantile, worst_ppm
from apportion.adapters.whatif.difference import Difference, budgets_of
from apportion.adapters.whatif.measures import Account, Wait

SHOWN_JOBS = 10
_CENSORED = {
    "running": "were still running at the end of the range",
    "waiting": "had not started by then",
    "cancelled": "were cancelled",
}


def headline(found: Difference) -> list[str]:
    """Return what was asked, over which time."""
    before = found.before
    length = render.duration(before.to_ms - before.from_ms)
    lines = [f"what if, from {render.when(before.from_ms)} to {render.when(before.to_ms)} ({length}):"]
    return lines + [f"  {word}" for word in found.words or ("nothing is changed",)]


def budget_rows(found: Difference) -> list[dict[str, Any]]:
    """Return a row per budget as a table shows it."""
    return [_row(name, was, now) for name, was, now in budgets_of(found)]


def total_row(found: Difference) -> dict[str, Any]:
    """Return the row of all budgets."""
    return _row("all", found.before.total, found.after.total)


def _row(name: str, was: Account, now: Account) -> dict[str, Any]:
    got_was, got_now = was.funded_gpu_us + was.unfunded_gpu_us, now.funded_gpu_us + now.unfunded_gpu_us
    return {
        "budget": name,
        "funded": _two(_hours(was.funded_gpu_us), _hours(now.funded_gpu_us)),
        "unfunded": _two(_hours(was.unfunded_gpu_us), _hours(now.unfunded_gpu_us)),
        "change": f"{'+' if got_now >= got_was else '-'}{_hours(abs(got_now - got_was))}",
        "starts": _two(f"{was.starts:,}", f"{now.starts:,}"),
        "ended": _two(f"{was.ended:,}", f"{now.ended:,}"),
        "preempted": _two(f"{was.preemptions:,}", f"{now.preemptions:,}"),
        "wait_p50": _two(_wait(was.waits, 0), _wait(now.waits, 0)),
        "wait_p90": _two(_wait(was.waits, 1), _wait(now.waits, 1)),
    }


def _two(was: str, now: str) -> str:
    return f"{was} -> {now}"


def _hours(gpu_us: int) -> str:
    return render.gpu_hours(gpu_us)


def _wait(waits: Sequence[Wait], place: int) -> str:
    if len(waits) <= place:
        return "-"
    wait = waits[place]
    return f"{'> ' if wait.open else ''}{render.duration(wait.wait_ms // 60_000 * 60_000)}"


def totals(found: Difference) -> list[str]:
    """Return what the cluster as a whole came to."""
    was, now = found.before, found.after
    lines = []
    for name, left, right in (("history", was, was.total), ("what if", now, now.total)):
        idle_pct = 100 * left.idle_gpu_us / max(1, left.supply_gpu_us)
        lines.append(
            f"{name}: of {_hours(left.supply_gpu_us)} GPU-h idle {_hours(left.idle_gpu_us)} ({idle_pct:.1f} %), "
            f"down {_hours(left.down_gpu_us)}; lost work {_hours(right.lost_gpu_us)} GPU-h, "
            f"{render.many(right.preemptions, 'preemption')}, {right.started:,} of {right.jobs:,} new jobs started"
        )
    return lines


def assumptions(found: Difference) -> list[str]:
    """Return what of the what-if rests on needs that history does not know, and what it refused."""
    assumed = found.assumed
    remade = render.many(assumed.remade_runs, "run was", "runs were")
    lines = [f"{remade} made again by the model of run times (`--calibrate` tells its error)"]
    if assumed.by_reason:
        parts = ", ".join(f"{count:,} {_CENSORED.get(reason, reason)}" for reason, count in sorted(assumed.by_reason.items()))
        part_pct = 100 * assumed.gpu_us / max(1, found.after.total.funded_gpu_us + found.after.total.unfunded_gpu_us)
        lines.append(
            f"needs not known: of the jobs it ran {parts}; they got {_hours(assumed.gpu_us)} GPU-h ({part_pct:.1f} %). Each "
            "needs what is drawn from those of its like that needed more than it was seen to; beyond all of them, its limit"
        )
    for reason, count in sorted(assumed.refusals.items()):
        lines.append(f"{render.many(count, 'event was', 'events were')} refused in the changed world and not in history: {reason}")
    return lines


def moved_rows(found: Difference) -> list[dict[str, Any]]:
    """Return the jobs that moved most."""
    return [
        {
            "workload": one.workload,
            "budget": one.budget,
            "gpus_milli": one.gpus_milli,
            "start": _two(_instant(one.first_ms[0]), _instant(one.first_ms[1])),
            "end": _two(_instant(one.end_ms[0]), _instant(one.end_ms[1])),
        }
        for one in found.moved[:SHOWN_JOBS]
    ]


def _instant(at_ms: int) -> str:
    return render.when(at_ms)[5:16] if at_ms >= 0 else "not yet"


def calibration(found: Calibration) -> list[str]:
    """Return what the what-if of this range is worth, in sentences."""
    exact, held, alone = found.exact, found.held_back, found.alone
    lines = [f"nothing changed: {exact.cycles - exact.differing:,} of {exact.cycles:,} cycles decided what history decided"]
    if exact.first_difference is not None:
        lines.append(f"  the first that did not is the one of seq {exact.first_difference[0]:,}")
    before, after = alone.before.total, alone.after.total
    worst = percent_of(worst_ppm(alone))
    lines += [
        f"the model alone, no run taken from history: {before.starts:,} -> {render.many(after.starts, 'start')}, "
        f"{before.preemptions:,} -> {render.many(after.preemptions, 'preemption')}, "
        f"{before.ended:,} -> {render.many(after.ended, 'job')} over",
        f"  the GPU time of each budget within {worst} of all GPU time given: what changes by less is no finding",
    ]
    sizes = sorted(abs(error) for error in held.end_ms)
    told = ", ".join(f"p{percent} {render.duration(quantile(sizes, percent))}" for percent in PERCENTS)
    lines.append(f"held back, made of the time up to {render.when(held.split_ms)} and asked about the rest:")
    ends = f"ends of {len(sizes):,} recorded runs, by their start and demand: error {told}" if sizes else "no run ended there"
    lines.append(f"  {ends}")
    if held.needs_gpu_us:
        predicted, true = (sum(pair[side] for pair in held.needs_gpu_us) for side in (0, 1))
        beyond = f"; for {held.beyond:,} more it knows no need" if held.beyond else ""
        lines.append(
            f"  needs of {render.many(len(held.needs_gpu_us), 'job')} as if they were not known: {_hours(predicted)} GPU-h "
            f"instead of {_hours(true)}{beyond}"
        )
    return lines


def percent_of(ppm: int) -> str:
    """Return parts per million as percent with two decimals."""
    return f"{ppm // 10_000}.{ppm // 100 % 100:02d} %"

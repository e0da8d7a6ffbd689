"""The planner of the horizon against first come first served, and against what no plan can exceed.

Seven scenarios (``worlds.horizon.scenarios``) on seeds that nothing was tuned on (21, 22, ..; tuning saw 11 to 20) and
``clock`` ones drawn from the clock, all printed; ``bound_s`` seconds of HiGHS for each upper bound (0: no gaps, no solver
needed); a rolling week for each of ``weeks`` seeds; 1,024 GPUs with 500 jobs; and one real day (GenTD26 requests and ITP jobs),
where ``data`` or
``../shared/data`` has them. ``candidates`` 0: as many as the planner usually tries. Every plan goes through the validator, and none
may be worth more than its bound: the first that fails stops the bench.

``gap_pct``: (bound - plan) / bound; part of it is the bound's own where the program was not ``proved``. ``utilization_pct``:
GPU-steps of jobs and of served demand, within the day. ``weighted_output``: priority x GPU-steps x decay. ``jobs_done``: ended
within the day.
``cpu_ms``: of the slowest seed, all of the planner. Rolling figures are of the worst week. Progress goes to stderr.
"""

from __future__ import annotations

import multiprocessing
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from apportion.adapters.bench.worlds.horizon import real_day, rolling, scenarios
from apportion.adapters.bench.worlds.horizon.bound import Bound, solver, upper_bound
from apportion.adapters.bench.worlds.horizon.fifo import fifo, fifo_plus
from apportion.core.horizon import check
from apportion.core.horizon.instance import ONE, Instance
from apportion.core.horizon.plan import Plan
from apportion.core.horizon.planner import plan, usual_candidates

TUNED_TO = 20
PLANNERS = ("fifo", "fifo_plus", "ours")
STUDY = {
    "best_utilization": "up to +33 points against FIFO",
    "best_weighted_output": "better in all seven, up to +105 %",
    "scale-64x30": "utilization 44.9 % and 27 of 30 jobs done, equal to FIFO; +15.9 % weighted value",
    "uniform-priority": "utilization 76.8 -> 87.5 %, +23.1 % value",
}
NOTE = (
    "The study's instances are not public: these scenarios share their names alone, so these are not the same days. Per cents "
    "over FIFO say how bad FIFO is made; most of the gain in utilization is already in fifo_plus. What can be compared is the gap."
)


class InvalidPlan(AssertionError):
    """A plan that the validator refuses, or worth more than can be: a bug, and no figure of this bench counts."""


class Row(NamedTuple):
    """What came of one instance."""

    proved: bool
    gap_pct: float
    cpu_ms: float
    utilization_pct: dict[str, float]
    weighted_output: dict[str, float]
    unmet_pct: dict[str, float]
    jobs_done: dict[str, float]


def run(
    seeds: int = 3, clock: int = 1, bound_s: float = 10.0, candidates: int = 0, weeks: int = 2, large: int = 1, data: str = "",
    workers: int = 2,
) -> dict[str, Any]:  # fmt: skip
    """Return ``scenarios``, ``rolling``, ``large``, ``gentd26`` (null without its files), ``study`` beside ours, and the seeds."""
    if bound_s > 0:
        solver()  # says how to get it, before anything is measured
    drawn = [time.time_ns() % 1_000_000_000 + 1_000 + number for number in range(clock)]
    numbers = [*range(TUNED_TO + 1, TUNED_TO + 1 + seeds), *drawn]
    tasks = [(name, seed, bound_s, candidates) for name in scenarios.SCENARIOS for seed in numbers]
    rows: dict[str, list[Row]] = {name: [] for name in scenarios.SCENARIOS}
    for (name, seed, _bound, _candidates), row in zip(tasks, _mapped(tasks, workers), strict=True):
        rows[name].append(row)
        print(f"{name} seed {seed}: gap {row.gap_pct:.2f} %, {row.cpu_ms:.0f} ms", file=sys.stderr, flush=True)
    table = {name: _summary(found) for name, found in rows.items()}
    return {
        "scenarios": table,
        "rolling": _rolling(weeks),
        "large": _large(bound_s, candidates) if large else None,
        "gentd26": _real(data, bound_s, candidates),
        "study": {claim: {"study": said, "ours": _beside(claim, table)} for claim, said in STUDY.items()},
        "note": NOTE,
        "seeds": numbers,
    }


def measured(instance: Instance, seconds: float, candidates: int, what: str) -> Row:
    """Plan an instance in three ways, and bound it; raises ``InvalidPlan``."""
    plan(instance, 1)  # loads machine code
    began = time.process_time()
    ours = plan(instance, candidates or usual_candidates(instance))
    cpu_ms = 1_000 * (time.process_time() - began)
    plans = dict(zip(PLANNERS, (fifo(instance), fifo_plus(instance), ours), strict=True))
    for name, made in plans.items():
        wrong = check.violations(instance, made)
        if wrong:
            raise InvalidPlan(f"{what}, {name}: {wrong}")
    bound = upper_bound(instance, seconds) if seconds > 0 else Bound(0, False)
    if seconds > 0 and max(made.objective for made in plans.values()) > bound.objective:
        raise InvalidPlan(f"{what}: a plan is worth more than the bound {bound.objective}")
    gap_pct = 100 * (bound.objective - ours.objective) / abs(bound.objective) if bound.objective else 0.0
    return Row(
        bound.proved, gap_pct, cpu_ms,
        {name: utilization_pct(instance, made) for name, made in plans.items()},
        {name: weighted_output(instance, made) for name, made in plans.items()},
        {name: 100 * made.unmet / max(1, int(instance.services.demand.sum())) for name, made in plans.items()},
        {name: float(jobs_done(instance, made)) for name, made in plans.items()},
    )  # fmt: skip


def utilization_pct(instance: Instance, made: Plan) -> float:
    """Return GPU-steps of jobs and of demand served, of all in the horizon."""
    work, steps = instance.jobs, instance.steps
    batch = sum(
        int(gpus) * min(int(duration), steps - int(start))
        for gpus, duration, start in zip(work.gpus, work.duration, made.start, strict=True)
        if start >= 0
    )
    return 100 * (batch + int(instance.services.demand.sum()) - made.unmet) / (instance.gpus * steps)


def weighted_output(instance: Instance, made: Plan) -> float:
    """Return what the jobs are worth, in priority x GPU-steps at their full worth."""
    services = instance.services
    reward = int((services.demand.sum(axis=1) * services.priority).sum()) * ONE
    unmet = (services.demand - made.held).clip(min=0).sum(axis=1)
    return (made.objective - reward + ONE * int((unmet * services.priority * (1 + services.penalty)).sum())) / ONE


def jobs_done(instance: Instance, made: Plan) -> int:
    """Return how many jobs end within the horizon."""
    return int(((made.start >= 0) & (made.start + instance.jobs.duration <= instance.steps)).sum())


def _row(task: tuple[str, int, float, int]) -> Row:
    """Measure one scenario; runs in a worker process."""
    name, seed, seconds, candidates = task
    return measured(scenarios.scenario(name, seed), seconds, candidates, f"{name} seed {seed}")


def _mapped(tasks: list[tuple[str, int, float, int]], workers: int) -> list[Row]:
    if workers <= 1:
        return [_row(task) for task in tasks]
    with ProcessPoolExecutor(max_workers=workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        return list(pool.map(_row, tasks))


def _summary(rows: list[Row]) -> dict[str, Any]:
    gaps = [row.gap_pct for row in rows]
    figures: dict[str, Any] = {
        "gap_pct_mean": round(sum(gaps) / len(gaps), 3),
        "gap_pct_max": round(max(gaps), 3),
        "proved": sum(row.proved for row in rows),
    }
    for key in ("utilization_pct", "weighted_output", "unmet_pct", "jobs_done"):
        digits = 2 if key == "unmet_pct" else 1
        figures[key] = {name: round(sum(getattr(row, key)[name] for row in rows) / len(rows), digits) for name in PLANNERS}
    figures["cpu_ms"] = round(max(row.cpu_ms for row in rows), 1)
    return figures


def _rolling(weeks: int) -> dict[str, Any] | None:
    """Return the worst of each figure over some weeks."""
    played = []
    for seed in range(TUNED_TO + 1, TUNED_TO + 1 + weeks):
        played.append(rolling.week(seed))
        print(f"week of seed {seed}: {played[-1]}", file=sys.stderr, flush=True)
    if not played:
        return None
    return {
        "utilization_pct": round(min(week.utilization_pct for week in played), 2),
        "unmet_pct": round(max(week.unmet_pct for week in played), 3),
        "max_wait_h": max(week.max_wait_h for week in played),
        "wait_bound_h": played[0].wait_bound_h,
        "replan_ms": round(max(week.replan_ms for week in played), 1),
    }


def _large(bound_s: float, candidates: int) -> dict[str, Any]:
    row = measured(scenarios.large(TUNED_TO + 1), 6 * bound_s, candidates, "large")
    return {"cpu_ms": round(row.cpu_ms, 1), "gap_pct": round(row.gap_pct, 3), "proved": row.proved}


def _real(data: str, bound_s: float, candidates: int) -> dict[str, Any] | None:
    """Return the same columns on the real day, or None where its files are not."""
    folder = Path(data) if data else Path(__file__).resolve().parents[2].parent / "shared" / "data"
    if not data and not (folder / "gentd26").is_dir():
        print(f"{folder}: no gentd26 there, so the real day is left out; --set data=DIR", file=sys.stderr)
        return None
    return _summary([measured(real_day.day(folder), 3 * bound_s, candidates, "gentd26")])


def _beside(claim: str, table: dict[str, Any]) -> str:
    """Return our figure for a claim of the study."""
    points = {name: row["utilization_pct"]["ours"] - row["utilization_pct"]["fifo"] for name, row in table.items()}
    more = {
        name: 100 * (row["weighted_output"]["ours"] / row["weighted_output"]["fifo"] - 1)
        for name, row in table.items()
        if row["weighted_output"]["fifo"] > 0
    }
    if claim == "best_utilization":
        best = max(points, key=lambda name: points[name])
        return f"up to {points[best]:+.1f} points ({best})"
    if claim == "best_weighted_output":
        best = max(more, key=lambda name: more[name])
        return f"better in {sum(value > 0 for value in more.values())} of {len(table)}, up to {more[best]:+.1f} % ({best})"
    used, done = table[claim]["utilization_pct"], table[claim]["jobs_done"]
    return (
        f"utilization {used['fifo']} -> {used['ours']} %, jobs done {done['fifo']} -> {done['ours']}, "
        f"{more.get(claim, 0.0):+.1f} % weighted output"
    )

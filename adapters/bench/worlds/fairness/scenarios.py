"""The scenarios of the bench: who asks for what, what happens meanwhile, and the numbers each play yields.

Each is a pure function of setting and seed: it plays one history through the core and returns its figures by name. Windows begin
after one day; the first day fills the cluster.

- ``steady``: every budget asks for three times what it is entitled to; gangs up to ``reach`` of a budget's share.
- ``budget_change``: after a day and a half two programs swap 35 % and 15 %.
- ``parking``: one budget holds whatever it can get with work that never ends.
- ``big_gang``: a budget of 10 % asks for gangs of 512 GPUs only.
- ``nights``: 60 days in which half of the pool is without demand every night: what it would have asked for then, it asks for at
  eight in the morning, and at eight in the evening it withdraws what is left.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from apportion.adapters.bench.worlds.fairness.play import Limits, Play, Watcher
from apportion.adapters.bench.worlds.fairness.service import Rate, Service
from apportion.adapters.bench.worlds.fairness.waiting import Allowed, Waits
from apportion.adapters.bench.worlds.fairness.workload import Demand, duration_ms, generate
from apportion.adapters.comparing.measures import Shares
from apportion.adapters.comparing.setting import MINUTE_MS, START_MS, Setting, Tree
from apportion.adapters.comparing.toll import Toll
from apportion.adapters.simulation.dice import Dice
from apportion.adapters.simulation.job import Job
from apportion.adapters.simulation.stated import OPERATOR, stated
from apportion.core.events import BudgetSet
from apportion.core.units import MILLI, MS_PER_DAY, MS_PER_HOUR

Figures = dict[str, float]
Progress = Callable[[int], None]

RICH, POOR = "llm", "safety"
PARKER = "llm/tuning"
GANG_BUDGET, GANG_GPUS = "science/climate", 512
NIGHT_FROM_H, NIGHT_TO_H = 20, 8
NIGHT_CYCLE_MS = 5 * MINUTE_MS


def steady(
    setting: Setting, seed: int, *, days: int = 8, reach_milli: int = 1_000, limits: Limits = "exact"
) -> Figures:
    """Return the figures of a stream of made-up jobs."""
    return ordinary(setting, generate(seed, setting, Demand(days=days, reach_milli=reach_milli)), days=days, limits=limits)


def ordinary(setting: Setting, jobs: list[Job], *, days: int = 8, limits: Limits = "exact") -> Figures:
    """Return share errors, occupancy, lost work, preemptions and waits of any jobs."""
    from_ms, to_ms = START_MS + MS_PER_DAY, START_MS + days * MS_PER_DAY
    shares, toll = Shares(setting.tree, from_ms, to_ms), Toll(from_ms, to_ms, setting.quantum_ms, setting.restart_ms)
    waits = Waits(from_ms)
    _play(setting, jobs, to_ms, [shares, toll, waits], limits=limits)
    return {
        "program_err_pct": shares.worst_error_pct(shares.programs()),
        "leaf_err_pct": shares.worst_error_pct(shares.leaf_paths()),
        "occupancy_pct": toll.occupancy_pct,
        "lost_work_pct": toll.lost_pct,
        "preemptions_per_1000_gpu_h": toll.preemptions_per_1000_gpu_h,
        "alternations": toll.alternations,
        "runs_preempted_over_3_pct": toll.often_pct,
        "funded_wait_max_h": waits.funded.longest_ms / MS_PER_HOUR,
        "funded_wait_p99_h": waits.funded.percentile_ms(99) / MS_PER_HOUR,
        "head_wait_max_h": waits.first.longest_ms / MS_PER_HOUR,
        "head_wait_p99_h": waits.first.percentile_ms(99) / MS_PER_HOUR,
        "workloads_run": len(toll.ran),
    }


def budget_change(setting: Setting, seed: int) -> Figures:
    """Return the hours until both programs' last two hours are within 10 % of their new share (so 2.0 at least)."""
    at_ms, to_ms = START_MS + 36 * MS_PER_HOUR, START_MS + 84 * MS_PER_HOUR
    shares = dict(setting.tree)
    swapped: Tree = ((RICH, shares[POOR]), (POOR, shares[RICH]))
    script = [
        stated(at_ms, OPERATOR, BudgetSet(pool=setting.pool, budget=path, share_ppm=ppm), f"change.{path}")
        for path, ppm in swapped
    ]
    rates = {path: Rate(path, 2 * MS_PER_HOUR) for path, _ppm in swapped}
    jobs = generate(seed, setting, Demand(days=4, times_milli=6_000))  # three times the new share of the new rich
    _play(setting, jobs, to_ms, list(rates.values()), script=script)
    hours = 0.0
    for path, ppm in swapped:
        goal_milli = setting.gpus * MILLI * ppm // 1_000_000
        hours = max(hours, rates[path].reached_ms(at_ms, goal_milli, to_ms) / MS_PER_HOUR)
    return {"budget_change_h": hours}


def parking(setting: Setting, seed: int) -> Figures:
    """Return the least part of its due that anybody but the parker got."""
    from_ms, to_ms = START_MS + MS_PER_DAY, START_MS + 8 * MS_PER_DAY
    others = tuple(leaf for leaf in setting.leaves() if leaf != PARKER)
    count = 5 * setting.guarantee_milli(PARKER) // MILLI // 8
    parked = [Job(f"parked-{number:05d}", 0, 20 * MS_PER_DAY, 8, PARKER) for number in range(count)]
    jobs = sorted([*parked, *generate(seed, setting, Demand(), others)], key=lambda job: (job.submit_ms, job.job_id))
    shares, toll = Shares(setting.tree, from_ms, to_ms), Toll(from_ms, to_ms, setting.quantum_ms, setting.restart_ms)
    _play(setting, jobs, to_ms, [shares, toll])
    above = PARKER.rpartition("/")[0]
    rest = [path for path in shares.paths if path not in (PARKER, above)]
    return {
        "parking_min_share": min(shares.part_of_due(path) for path in rest),
        "parking_parker_share": shares.part_of_due(PARKER),
        "parking_preemptions_per_1000_gpu_h": toll.preemptions_per_1000_gpu_h,
    }


def big_gang(setting: Setting, seed: int) -> Figures:
    """Return what the budget of the big gangs got of its due, and the longest time it ran nothing."""
    from_ms, to_ms = START_MS + MS_PER_DAY, START_MS + 8 * MS_PER_DAY
    others = tuple(leaf for leaf in setting.leaves() if leaf != GANG_BUDGET)
    dice = Dice(seed, "fairness", "big gang")
    gangs = [Job(f"gang-{number:05d}", 0, duration_ms(dice), GANG_GPUS, GANG_BUDGET) for number in range(60)]
    jobs = sorted([*gangs, *generate(seed, setting, Demand(), others)], key=lambda job: (job.submit_ms, job.job_id))
    shares, service = Shares(setting.tree, from_ms, to_ms), Service(GANG_BUDGET, from_ms, to_ms)
    toll = Toll(from_ms, to_ms, setting.quantum_ms, setting.restart_ms)
    _play(setting, jobs, to_ms, [shares, service, toll])
    return {
        "big_gang_share": shares.part_of_due(GANG_BUDGET),
        "big_gang_gap_h": service.longest_gap_ms() / MS_PER_HOUR,
        "big_gang_occupancy_pct": toll.occupancy_pct,
    }


def nights(setting: Setting, seed: int, *, days: int = 60) -> Figures:
    """Return the mean sum of allowances, in parts of capacity, in the first and the last week."""
    setting = setting._replace(cycle_ms=NIGHT_CYCLE_MS)
    idle = tuple(leaf for leaf in setting.leaves() if leaf.partition("/")[0] in (RICH, POOR))
    jobs = [
        job if job.program not in idle else job._replace(submit_ms=_by_day(job.submit_ms))
        for job in generate(seed, setting, Demand(days=days, smallest=8))
    ]
    jobs.sort(key=lambda job: (job.submit_ms, job.job_id))
    withdrawals = [(START_MS + day * MS_PER_DAY + NIGHT_FROM_H * MS_PER_HOUR, idle) for day in range(days)]
    allowed, to_ms = Allowed(), START_MS + days * MS_PER_DAY
    _play(setting, jobs, to_ms, [allowed], withdrawals=withdrawals)
    week = 7 * MS_PER_DAY
    return {
        "nights_allowed_first_week": allowed.mean(START_MS, START_MS + week),
        "nights_allowed_last_week": allowed.mean(to_ms - week, to_ms),
        "nights_allowed_max": max(part for _at_ms, part in allowed.samples),
    }


def _by_day(at_ms: int) -> int:
    """Return the next instant by day; the last cycle before the evening is night, for what is asked then would stay."""
    seen_ms = at_ms + NIGHT_CYCLE_MS
    hour = seen_ms // MS_PER_HOUR % 24
    if NIGHT_TO_H <= hour < NIGHT_FROM_H:
        return at_ms
    day = seen_ms // MS_PER_DAY + (1 if hour >= NIGHT_FROM_H else 0)
    return day * MS_PER_DAY + NIGHT_TO_H * MS_PER_HOUR


def _play(setting: Setting, jobs: list[Job], to_ms: int, watchers: list[Watcher], **more: Any) -> None:
    play = Play(setting, jobs, watchers, **more)
    play.run(to_ms + setting.cycle_ms)

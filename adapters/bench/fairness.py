"""Fair share under three times the demand: share errors, waste, preemptions and waits, for each policy over seeds.

Plays the scenarios of ``worlds.fairness`` through the core: 1,024 GPUs, four programs, nine budgets, cycles of a
minute, seven days counted after one. ``seeds`` fixed ones (1, 2, ..) and ``clock`` ones drawn from the clock, all printed;
``policies`` by comma; ``parts`` chooses scenarios; ``trace`` plays eight days of the ITP or Philly jobs instead; ``limits`` is
what people state of run times (exact, loose: 1 to 4 times, none). Eight days of one policy and seed take about half a minute of
a core, so the defaults take some ten minutes on two free cores, and the whole table (``--set seeds=10 --set clock=10``, five
policies) two to three hours.

Errors are in per cent of what was due; ``worst`` is the worst seed, ``mean`` the mean over seeds of the worst budget; other figures
are of the worst seed, with the mean beside. ``steady`` and ``big`` (gangs up to 4 times a budget's share) run over all seeds, the
others over the fixed ones. Progress goes to stderr.
"""

from __future__ import annotations

import multiprocessing
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import Any, Literal, NamedTuple, cast

from apportion.adapters.bench.worlds.fairness import bound, kernels, scenarios
from apportion.adapters.bench.worlds.fairness.play import Limits
from apportion.adapters.comparing import traces
from apportion.adapters.comparing.setting import Setting
from apportion.core.units import MS_PER_DAY

Part = Literal["steady", "big", "change", "parking", "gang", "nights", "trace"]
PARTS: tuple[Part, ...] = ("steady", "big", "change", "parking", "gang", "nights", "trace")
NAMES = {"apportion": "fair"}  # what the table calls a policy -> what the core calls it
SMALLEST_IS_WORST = {
    "occupancy_pct", "parking_min_share", "parking_parker_share", "big_gang_share", "big_gang_occupancy_pct",
    "nights_allowed_first_week", "nights_allowed_last_week", "workloads_run",
}  # fmt: skip
ERRORS = ("program_err_pct", "leaf_err_pct")
NIGHTS_SEEDS = 1


class Task(NamedTuple):
    """One play."""

    policy: str
    part: Part
    seed: int
    days: int
    limits: Limits
    trace: str


def run(
    policies: str = "apportion",
    seeds: int = 3,
    clock: int = 1,
    days: int = 8,
    limits: str = "exact",
    parts: str = "steady,big,change,parking,gang,nights",
    trace: str = "",
    workers: int = 2,
) -> dict[str, Any]:
    """Return ``seeds``, ``policies`` with the figures of each, and ``kernel_ms``."""
    drawn = [time.time_ns() % 1_000_000_000 + 1_000 + number for number in range(clock)]
    numbers = [*range(1, seeds + 1), *drawn]
    names = [name.strip() for name in policies.split(",")]
    wanted = [part.strip() for part in parts.split(",")] if not trace else ["trace"]
    for part in wanted:
        if part not in PARTS:
            raise ValueError(f"there is no part {part!r}; there are {', '.join(PARTS)}")
    tasks = [
        Task(name, cast(Part, part), seed, days, cast(Limits, limits), trace)
        for part in wanted
        for name in names
        for seed in _seeds_of(part, numbers, numbers[: max(1, seeds)])
        if part != "nights" or name == "apportion"  # only ours has allowances
    ]
    found: dict[tuple[str, str], list[scenarios.Figures]] = {}
    for task, figures in zip(tasks, _played(tasks, workers), strict=True):
        found.setdefault((task.policy, task.part), []).append(figures)
    measured = kernels.measure()
    return {
        "seeds": numbers if not trace else [],
        "policies": {name: _summary({part: found.get((name, part), []) for part in PARTS}) for name in names},
        "kernel_ms": round(measured["kernel_ms"], 3),
        "kernel_best_ms": round(measured["kernel_best_ms"], 3),
    }


def _seeds_of(part: str, all_of_them: list[int], fixed: list[int]) -> list[int]:
    if part == "trace":
        return [0]
    if part == "nights":
        return fixed[:NIGHTS_SEEDS]
    return all_of_them if part in ("steady", "big") else fixed


def play(task: Task) -> scenarios.Figures:
    """Play one scenario; runs in a worker process."""
    policy = NAMES.get(task.policy, task.policy)
    if task.part == "trace":
        trace = traces.load(task.trace, policy)
        figures = scenarios.ordinary(trace.setting, trace.jobs, limits=task.limits)
        to_ms = traces.DAYS * MS_PER_DAY
        return figures | {"occupancy_bound_pct": bound.most_busy_pct(trace.jobs, trace.setting.gpus, MS_PER_DAY, to_ms)}
    setting = Setting(policy=policy)
    if task.part in ("steady", "big"):
        reach_milli = 4_000 if task.part == "big" else 1_000
        return scenarios.steady(setting, task.seed, days=task.days, limits=task.limits, reach_milli=reach_milli)
    others: dict[str, Callable[[Setting, int], scenarios.Figures]] = {
        "change": scenarios.budget_change,
        "parking": scenarios.parking,
        "gang": scenarios.big_gang,
        "nights": scenarios.nights,
    }
    return others[task.part](setting, task.seed)


def _played(tasks: list[Task], workers: int) -> list[scenarios.Figures]:
    """Return the figures in the order of ``tasks``; progress to stderr."""
    began, done = time.monotonic(), dict[int, scenarios.Figures]()

    def note(number: int, figures: scenarios.Figures) -> None:
        done[number] = figures
        task, elapsed_s = tasks[number], time.monotonic() - began
        said = f"{len(done)}/{len(tasks)} {elapsed_s:6.0f} s  {task.policy} {task.part} seed {task.seed}"
        print(said, {name: round(value, 3) for name, value in figures.items()}, file=sys.stderr, flush=True)

    if workers <= 1:
        for number, task in enumerate(tasks):
            note(number, play(task))
    else:
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(max_workers=workers, mp_context=context) as pool:
            waiting = {pool.submit(play, task): number for number, task in enumerate(tasks)}
            for future in as_completed(waiting):
                note(waiting[future], future.result())
    return [done[number] for number in range(len(tasks))]


def _summary(found: dict[Part, list[scenarios.Figures]]) -> dict[str, Any]:
    """Return worst and mean over seeds; figures of gangs up to four times the share are apart, under ``gangs_4x``."""
    figures: dict[str, Any] = {}
    for part in PARTS:
        plays = found[part]
        if not plays:
            continue
        target = figures.setdefault("gangs_4x", {}) if part == "big" else figures
        for key in plays[0]:
            values = [one[key] for one in plays]
            worst, mean = min(values) if key in SMALLEST_IS_WORST else max(values), sum(values) / len(values)
            target[f"{key}_worst" if key in ERRORS else key] = round(worst, 3)
            target[f"{key}_mean"] = round(mean, 3)
    return figures

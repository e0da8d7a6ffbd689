"""Seeded jobs: every budget asks for so many times what it is entitled to, in gangs of powers of two.

A pure function of seed and demand. Sizes follow a power law (weight 2^-0.7 per doubling) up to a bound given per budget; durations
are log-normal with a median of two hours (sigma 1), cut to five minutes and two days, in whole minutes; arrivals are a
Poisson stream, preceded by a queue at the opening that makes demand complete from the first minute on. Draws are integers of
``dice``; logarithm and normal quantile are floats, rounded to minutes before anything depends on them.
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import NamedTuple

from apportion.adapters.comparing.setting import MINUTE_MS, Setting
from apportion.adapters.simulation.dice import Dice
from apportion.adapters.simulation.job import Job
from apportion.core.units import MILLI

# relative number of jobs per doubling of the size, 2^-0.7 each, in thousandths of the first
SIZE_WEIGHTS = (1000, 616, 379, 233, 144, 88, 54, 34, 21, 13)
MEDIAN_MINUTES = 120
SIGMA = 1.0
SHORTEST_MINUTES, LONGEST_MINUTES = 5, 2 * 24 * 60
MEAN_MINUTES = 197  # of the distribution as cut
OPENING_HOURS = 6  # of the stream, submitted at once at the opening
_UNIT = 1 << 53
_NORMAL = NormalDist()


class Demand(NamedTuple):
    """How much is asked for. ``reach_milli`` bounds a gang in thousandths of its budget's GPUs (1,000 = its share)."""

    days: int = 8
    times_milli: int = 3_000  # of the entitlement
    reach_milli: int = 1_000
    smallest: int = 1  # GPUs


def sizes_for(setting: Setting, leaf: str, demand: Demand) -> list[int]:
    """Return the sizes in GPUs that a budget's gangs have."""
    bound = min(setting.guarantee_milli(leaf) * demand.reach_milli // MILLI // MILLI, setting.gpus)
    sizes = [1 << power for power in range(len(SIZE_WEIGHTS))]
    return [size for size in sizes if demand.smallest <= size <= max(bound, demand.smallest)]


def generate(seed: int, setting: Setting, demand: Demand, leaves: tuple[str, ...] = ()) -> list[Job]:
    """Return the jobs of ``leaves`` (all by default) by instant; equal arguments give equal jobs."""
    jobs = []
    for leaf in leaves or setting.leaves():
        jobs.extend(_stream(Dice(seed, "fairness", leaf), setting, leaf, demand))
    jobs.sort(key=lambda job: (job.submit_ms, job.job_id))
    return jobs


def _stream(dice: Dice, setting: Setting, leaf: str, demand: Demand) -> list[Job]:
    sizes = sizes_for(setting, leaf, demand)
    weights = SIZE_WEIGHTS[: len(sizes)]
    total = sum(weights)
    mean_gpu_minutes = sum(weight * size for weight, size in zip(weights, sizes, strict=True)) / total * MEAN_MINUTES
    per_minute = setting.guarantee_milli(leaf) * demand.times_milli / MILLI / MILLI / mean_gpu_minutes
    jobs: list[Job] = []
    at_minutes = -60.0 * OPENING_HOURS
    while True:
        at_minutes += -math.log((dice.below(_UNIT) + 1) / _UNIT) / per_minute
        if at_minutes >= demand.days * 24 * 60:
            return jobs
        draw, position = dice.below(total), 0
        while draw >= weights[position]:
            draw -= weights[position]
            position += 1
        submit_ms = max(0, int(at_minutes)) * MINUTE_MS
        jobs.append(Job(f"{leaf.replace('/', '.')}-{len(jobs) + 1:06d}", submit_ms, duration_ms(dice), sizes[position], leaf))


def duration_ms(dice: Dice) -> int:
    """Return one duration."""
    quantile = _NORMAL.inv_cdf((dice.below(_UNIT - 1) + 1) / _UNIT)
    minutes = round(MEDIAN_MINUTES * math.exp(SIGMA * quantile))
    return min(max(minutes, SHORTEST_MINUTES), LONGEST_MINUTES) * MINUTE_MS

"""Seven days on 64 GPUs, each with one difficulty, made from a seed. They share the names of a study whose instances are not
public.

Decides what each name means here; a pure function of name and seed. 48 steps of half an hour; jobs are of powers of two and must
end within the day; what a job is worth falls by half in 16 hours (32 steps); a service's demand is a daily curve with noise and
bursts.

================  ===========================================================================================================
scale-64x30       30 jobs and one service: there is room for all, and only the order matters
uniform-priority  60 jobs of one priority, a little more than there is room for: only packing matters
heavy-realtime    two services whose peaks take two thirds of the GPUs, and valleys to fill
bursty-realtime   two services that jump to several times their level for an hour or two, with small caps
fragmentation     sizes from 1 to 32 GPUs, short and long mixed: blocks, not GPUs, are scarce
long-training     few jobs of 8 to 32 GPUs for 8 to 20 hours, beside small ones: each blocks the others
overload          120 jobs, about three times what there is room for
================  ===========================================================================================================
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from apportion.adapters.simulation.dice import Dice
from apportion.core.horizon import instance as inst

GPUS, STEPS = 64, 48
KEEP = 64_132  # of 65,536 each step: half in 32 steps
NO_BOUND = 1 << 30


class Work(NamedTuple):
    """Jobs of one sort."""

    jobs: int
    sizes: tuple[int, ...]  # GPUs, equally likely
    steps: tuple[int, int]
    priorities: tuple[int, int]
    earliest: int = 12  # half of the jobs are there at step 0, the others come until this step


class Curve(NamedTuple):
    """The demand of one service, in GPUs."""

    low: int
    high: int
    cap: int
    peak: int  # step
    noise: int = 1
    bursts: int = 0
    height: int = 0
    priority: int = 4
    penalty: int = 7


class Scenario(NamedTuple):
    """What a day is made of."""

    work: tuple[Work, ...]
    curves: tuple[Curve, ...]


SCENARIOS: dict[str, Scenario] = {
    "scale-64x30": Scenario((Work(30, (1, 2, 4, 8, 16), (4, 14), (1, 10)),), (Curve(6, 20, 4, 28),)),
    "uniform-priority": Scenario((Work(60, (1, 2, 4, 8, 16), (4, 16), (5, 5)),), (Curve(6, 20, 4, 28),)),
    "heavy-realtime": Scenario(
        (Work(60, (1, 2, 4, 8, 16), (3, 12), (1, 10)),), (Curve(6, 26, 4, 26, 2), Curve(4, 16, 3, 34, 1, priority=3))
    ),
    "bursty-realtime": Scenario(
        (Work(60, (1, 2, 4, 8, 16), (3, 12), (1, 10)),),
        (Curve(5, 10, 6, 26, 1, 4, 20), Curve(3, 7, 4, 30, 1, 3, 12, priority=3)),
    ),
    "fragmentation": Scenario(
        (Work(30, (1, 2), (2, 20), (1, 6)), Work(18, (4, 8), (2, 10), (1, 8)), Work(8, (16, 32), (3, 8), (2, 10))),
        (Curve(4, 10, 3, 28),),
    ),
    "long-training": Scenario(
        (Work(7, (8, 16, 32), (16, 40), (4, 10)), Work(14, (1, 2, 4), (2, 10), (1, 6))), (Curve(6, 18, 4, 28),)
    ),
    "overload": Scenario((Work(120, (1, 2, 4, 8, 16, 32), (3, 16), (1, 10)),), (Curve(6, 18, 4, 28),)),
}

LARGE_GPUS = 1_024
LARGE = Scenario(
    (Work(440, (1, 2, 4, 8, 16, 32), (2, 12), (1, 10)), Work(60, (64, 128), (2, 12), (1, 10))),
    (Curve(60, 240, 24, 28, 8), Curve(30, 90, 12, 34, 4, 2, 140, priority=3), Curve(10, 40, 8, 20, 2, priority=5)),
)


def large(seed: int) -> inst.Instance:
    """Return a day of 1,024 GPUs and 500 jobs."""
    return day(LARGE, Dice(seed, "horizon", "large"), LARGE_GPUS)


def scenario(name: str, seed: int) -> inst.Instance:
    """Return one day; raises ``ValueError`` for a name that is not there."""
    if name not in SCENARIOS:
        raise ValueError(f"there is no scenario {name!r}; there are {', '.join(SCENARIOS)}")
    dice = Dice(seed, "horizon", name)
    return day(SCENARIOS[name], dice)


def day(made_of: Scenario, dice: Dice, gpus: int = GPUS, steps: int = STEPS) -> inst.Instance:
    """Return an instance of a scenario."""
    rows: list[tuple[int, ...]] = []
    for work in made_of.work:
        for _job in range(work.jobs):
            earliest = 0 if dice.chance(500_000) else dice.between(0, work.earliest)
            size = work.sizes[dice.below(len(work.sizes))]
            rows.append((len(rows), size, dice.between(*work.steps), dice.between(*work.priorities), earliest, NO_BOUND, 0))
    return inst.Instance(
        gpus, steps, inst.jobs(rows), inst.pinned([]), services(made_of.curves, dice, steps), inst.decaying(2 * steps, KEEP),
        inst.unprotected(steps), whole=True,
    )  # fmt: skip


def services(made_of: tuple[Curve, ...], dice: Dice, steps: int) -> inst.Services:
    """Return services of which each may hold nothing up to its highest demand and a quarter more."""
    demand = np.array([curve(one, dice, steps) for one in made_of], dtype=np.int64).reshape(len(made_of), steps)
    most = np.repeat(demand.max(axis=1, initial=0)[:, None] * 5 // 4, steps, axis=1)
    return inst.Services(
        least=np.zeros_like(demand), demand=demand, most=most, cap=_column([one.cap for one in made_of]),
        initial=_column([inst.ANYWHERE for _one in made_of]), priority=_column([one.priority for one in made_of]),
        penalty=_column([one.penalty for one in made_of]),
    )  # fmt: skip


def curve(one: Curve, dice: Dice, steps: int) -> list[int]:
    """Return a day's demand: low at night, high about the peak, noise, and bursts of two to four steps."""
    high = one.high - one.low
    values = [one.low + high * _hill(t - one.peak) // 1_000 + dice.between(-one.noise, one.noise) for t in range(steps)]
    for _burst in range(one.bursts):
        begin, length = dice.below(steps), dice.between(2, 4)
        for t in range(begin, min(steps, begin + length)):
            values[t] = max(values[t], one.height + dice.between(-2, 2))
    return [max(0, value) for value in values]


def _hill(away: int) -> int:
    """Return thousandths of a hill 24 steps to each side: (1 - (x/24)^2)^2, repeated each day."""
    away = (away + 24) % 48 - 24
    square = 1_000 - away * away * 1_000 // 576
    return square * square // 1_000


def _column(values: list[int]) -> inst.I64:
    return np.array(values, dtype=np.int64)

"""A week of plans of which only the present instant is carried out: jobs come, traffic is not quite what was forecast.

Decides how the world answers; a pure function of seed and setting. 64 GPUs, half-hour steps, a plan of 24 hours made again each
step. The traffic of the present step is known (it is observed, and services are resized to it). Later steps are forecast with a
relative error, an autoregression that is 0 now and reaches ``sigma`` within hours (of 0.25: 0.15 in the next step, 0.24 after three
hours), drawn anew for each plan; each step is planned with a margin of ``margin`` times its spread.
Whoever has waited ``wait_bound`` steps must start (``latest`` of his job). Each plan is validated, and so is what happened: nobody
is interrupted, no GPU is used twice. Utilization counts GPU-steps of jobs and of demand that is served, not what is held.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from apportion.adapters.bench.worlds.horizon.scenarios import KEEP, Curve, curve
from apportion.adapters.simulation.dice import Dice
from apportion.core.horizon import check as checking
from apportion.core.horizon import instance as inst
from apportion.core.horizon.plan import Plan
from apportion.core.horizon.planner import plan

Planner = Callable[[inst.Instance], Plan]
CURVES: tuple[Curve, ...] = (Curve(6, 18, 4, 27, 1), Curve(3, 9, 3, 32, 1, priority=3))
SIZES = (1, 1, 2, 2, 4, 4, 8, 8, 16, 16)
STEP_H = 0.5
# What is promised to the planner is earlier than the bound by these steps: places of one plan may not be there in the next.
SLACK = 8
CANDIDATES = 3_000  # of each plan
CORRELATION = 0.8  # of the error from one step to the next
WEEKEND_MILLI = 700  # of traffic on two of seven days


class Setting(NamedTuple):
    """What the week is like."""

    gpus: int = 64
    days: int = 7
    steps: int = 48
    sigma: float = 0.25
    margin: float = 1.0
    wait_bound: int = 96
    load_milli: int = 950  # GPU-time asked for by jobs and served demand, of what there is
    backlog_steps: int = 12  # work that waits at the beginning, as steps of all GPUs


class Waiting(NamedTuple):
    """A job that has come."""

    id: int
    gpus: int
    duration: int
    priority: int
    came: int


class Week(NamedTuple):
    """What came of it."""

    utilization_pct: float
    unmet_pct: float
    max_wait_h: float
    wait_bound_h: float
    replan_ms: float
    started: int
    came: int
    late: int
    widened: int  # (service, step) whose range had to be brought into reach


def replan(instance: inst.Instance) -> Plan:
    """Return the plan of one step."""
    return plan(instance, CANDIDATES)


def week(seed: int, setting: Setting | None = None, planner: Planner = replan) -> Week:
    """Play it; raises ``AssertionError`` when a plan is not valid, or what happened is not."""
    setting = setting or Setting()
    world = _World(seed, setting)
    for now in range(setting.days * 48):
        instance = world.instance(now)
        began = time.process_time()
        made = planner(instance)
        world.took_ms.append(1_000 * (time.process_time() - began))
        wrong = checking.violations(instance, made)
        assert not wrong, f"seed {seed}, step {now}: {wrong}"
        world.commit(now, made)
    return world.result()


class _World:
    def __init__(self, seed: int, setting: Setting) -> None:
        self.setting, self.end = setting, setting.days * 48
        dice = Dice(seed, "rolling")
        self.noise = np.random.Generator(np.random.PCG64(seed))
        self.demand = np.array([self._traffic(one, dice) for one in CURVES], dtype=np.int64)
        self.jobs = self._jobs(dice)
        self.next, self.waiting = 0, list[Waiting]()
        self.running: list[tuple[int, int, int]] = []  # first GPU, GPUs, last step + 1
        self.held = np.full(len(CURVES), inst.ANYWHERE, dtype=np.int64)
        self.used, self.served, self.unmet, self.late, self.widened = 0, 0, 0, 0, 0
        self.waits: list[int] = []
        self.took_ms: list[float] = []

    def _traffic(self, one: Curve, dice: Dice) -> list[int]:
        days = [curve(one, dice, 48) for _day in range(self.setting.days + 2)]
        parts = [WEEKEND_MILLI if day % 7 >= 5 else 1_000 for day in range(len(days))]
        return [value * part // 1_000 for part, values in zip(parts, days, strict=True) for value in values]

    def _jobs(self, dice: Dice) -> list[Waiting]:
        """Return jobs by arrival: as many as make the load, evenly by GPU time with chance in between."""
        setting, made, work = self.setting, list[Waiting](), 0
        room = setting.gpus * self.end
        wanted = room * setting.load_milli // 1_000 - int(self.demand[:, : self.end].sum())
        backlog = setting.gpus * setting.backlog_steps
        while work < wanted + backlog:
            gpus, duration = SIZES[dice.below(len(SIZES))], dice.between(2, 20)
            at = 0 if work < backlog else (work - backlog) * self.end // max(1, wanted)
            came = 0 if work < backlog else min(self.end - 1, max(0, at + dice.between(-8, 8)))
            made.append(Waiting(len(made), gpus, duration, dice.between(1, 10), came))
            work += gpus * duration
        return sorted(made, key=lambda job: (job.came, job.id))

    def instance(self, now: int) -> inst.Instance:
        """Return what is known now."""
        setting = self.setting
        while self.next < len(self.jobs) and self.jobs[self.next].came <= now:
            self.waiting.append(self.jobs[self.next])
            self.next += 1
        bound = setting.wait_bound
        rows: list[tuple[int, ...]] = [
            (job.id, job.gpus, job.duration, job.priority, 0, max(0, job.came + bound - SLACK - now), now - job.came)
            for job in self.waiting
        ]
        pinned: list[tuple[int, ...]] = [(first, gpus, end - now) for first, gpus, end in self.running]
        left = np.full(setting.steps, setting.gpus, dtype=np.int64)
        for _first, gpus, remaining in pinned:
            left[:remaining] -= gpus
        asked = self._forecast(now)
        peak = self.demand.max(axis=1) * 5 // 4
        services = inst.Services(
            least=np.zeros_like(asked), demand=asked, most=np.maximum(asked, peak[:, None]),
            cap=np.array([one.cap for one in CURVES], dtype=np.int64), initial=self.held.copy(),
            priority=np.array([one.priority for one in CURVES], dtype=np.int64),
            penalty=np.array([one.penalty for one in CURVES], dtype=np.int64),
        )  # fmt: skip
        services, changed = inst.reachable(services, left)
        self.widened += changed
        return inst.Instance(
            setting.gpus, setting.steps, inst.jobs(rows), inst.pinned(pinned), services, inst.decaying(4 * setting.steps, KEEP),
            inst.unprotected(setting.steps),
        )  # fmt: skip

    def _forecast(self, now: int) -> inst.I64:
        setting = self.setting
        true = self.demand[:, now : now + setting.steps]
        drawn, error = self.noise.standard_normal(true.shape), np.zeros(true.shape)
        spread = np.sqrt(1 - CORRELATION ** (2 * np.arange(setting.steps)))  # of the error at each step, given that of now is 0
        for t in range(1, setting.steps):
            error[:, t] = CORRELATION * error[:, t - 1] + (1 - CORRELATION**2) ** 0.5 * drawn[:, t]
        planned = np.ceil(true * np.maximum(0, 1 + setting.sigma * error) * (1 + setting.margin * setting.sigma * spread))
        asked: inst.I64 = np.minimum(planned, setting.gpus).astype(np.int64)
        return asked

    def commit(self, now: int, made: Plan) -> None:
        """Carry out step 0 of a plan."""
        busy = np.zeros(self.setting.gpus, dtype=np.int64)
        for j in np.flatnonzero(made.start == 0):
            job = self.waiting[int(j)]
            self.running.append((int(made.first[j]), job.gpus, now + job.duration))
            self.waits.append(now - job.came)
            self.late += now - job.came > self.setting.wait_bound
        for first, gpus, _end in self.running:
            busy[first : first + gpus] += 1
        self.held = made.held[:, 0].copy()
        assert busy.max(initial=0) <= 1, f"step {now}: two runs on one GPU"
        assert int(busy.sum()) + int(self.held.sum()) <= self.setting.gpus, f"step {now}: more is held than there is"
        true = self.demand[:, now]
        self.used += int(busy.sum())
        self.served += int(np.minimum(true, self.held).sum())
        self.unmet += int(np.maximum(0, true - self.held).sum())
        gone = set(np.flatnonzero(made.start == 0).tolist())
        self.waiting = [job for k, job in enumerate(self.waiting) if k not in gone]
        self.running = [run for run in self.running if run[2] > now + 1]

    def result(self) -> Week:
        """Return the figures; who still waits counts with what he has waited."""
        waits = self.waits + [self.end - job.came for job in self.waiting]
        return Week(
            utilization_pct=100 * (self.used + self.served) / (self.setting.gpus * self.end),
            unmet_pct=100 * self.unmet / max(1, self.served + self.unmet),
            max_wait_h=STEP_H * max(waits, default=0),
            wait_bound_h=STEP_H * self.setting.wait_bound,
            replan_ms=sorted(self.took_ms)[len(self.took_ms) // 2],
            started=len(self.waits), came=len(self.jobs), late=self.late, widened=self.widened,
        )  # fmt: skip

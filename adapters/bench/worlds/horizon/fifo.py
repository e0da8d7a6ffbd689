"""First come, first served, as it is commonly run, and with what a good one adds; for comparison with the planner.

``fifo``: a service reserves its day's peak all day; jobs start in the order in which they came, and nobody before one in front of
him. ``fifo_plus``: services hold the least curve that serves their demand, and whoever fits starts as early as he delays nobody in
front of him (conservative backfill). Both see all jobs of the instance, as the planner does, and pure functions of it; neither cuts
a service for a job. Their plans are checked as any other.
"""

from __future__ import annotations

import numpy as np

from apportion.core.horizon import check as checking
from apportion.core.horizon.columns import board_of, setting_of
from apportion.core.horizon.instance import Instance, check, highest
from apportion.core.horizon.plan import Plan
from apportion.core.kernels import horizon


def fifo(instance: Instance) -> Plan:
    """Return the plan of first come, first served."""
    return _planned(instance, strict=True)


def fifo_plus(instance: Instance) -> Plan:
    """Return the same with backfill and services that follow their demand."""
    return _planned(instance, strict=False)


def _planned(instance: Instance, strict: bool) -> Plan:
    check(instance)
    setting = setting_of(instance)
    board, running = board_of(instance)
    lines = setting.ceilings.copy()
    if strict:
        for k, a in enumerate(setting.rows):
            peak = np.full(instance.steps, int(setting.demand[k].max(initial=0)), dtype=np.int64)
            lines[k] = np.minimum(np.maximum(peak, setting.floors[k]), highest(instance.services, int(a)))
    board.room[:] -= lines.sum(axis=0)
    board.lines[horizon.OPEN] -= lines.sum(axis=0)
    horizon.settle(board, running, lines, setting.floors, setting.services)
    work = instance.jobs
    order = np.lexsort((work.id, work.earliest - work.age))
    start, first = np.full(len(order), -1, dtype=np.int64), np.full(len(order), -1, dtype=np.int64)
    jobs = setting.jobs.copy()
    jobs[:, horizon.LATEST] = jobs[:, horizon.LAST]  # it knows no bound
    horizon.follow(board, jobs, order, int(strict), start, first)
    held = np.zeros_like(lines)
    held[setting.rows] = lines
    unmet = int(np.maximum(0, instance.services.demand - held).sum())
    late = np.flatnonzero((work.latest < instance.steps) & ((start < 0) | (start > work.latest)))
    plan = Plan(start, first, held, 0, unmet, late, joint=False, candidates=0)
    return plan._replace(objective=checking.objective(instance, plan))

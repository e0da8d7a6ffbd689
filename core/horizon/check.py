"""What is wrong with a plan: the validator, which shares no line with the planner.

Decides nothing about plans; returns every violation with its numbers, none for a plan that may be carried out. A pure function of
an instance that was checked, and a plan. It draws every GPU and step as one cell of a grid and counts, so it is slow on purpose:
O(GPUs x steps), and for a job that is late every start and place that it might have had. Who publishes a plan applies it first.

The constraints: one task per GPU and instant; a service within its range and cap; work in contiguous aligned blocks of a power of
two, within its allowed starts; running work left where it is; what is kept for a budget left to it; nobody past his wait bound who
could have been in time. And the objective, the unmet demand and the late jobs are what the plan says they are.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from apportion.core.horizon.instance import ONE, Instance
from apportion.core.horizon.plan import Plan

I64 = NDArray[np.int64]

FREE, PINNED, BARRED = -1, -2, -(1 << 40)


class Violation(NamedTuple):
    """One thing that is wrong."""

    rule: str  # overlap, block, start, range, cap, capacity, interruption, protected, wait, objective, unmet, shape
    what: str


def violations(instance: Instance, plan: Plan) -> list[Violation]:
    """Return all of them."""
    shape = _shape(instance, plan)
    if shape:
        return shape
    grid, found = _grid(instance, plan)
    found += _starts(instance, plan)
    found += _ranges(instance, plan)
    taken = ((grid != FREE) & (grid != BARRED)).sum(axis=0)
    together = taken + plan.held.sum(axis=0)
    for t in np.flatnonzero(together > instance.gpus):
        found.append(
            Violation("capacity", f"step {t}: work {taken[t]} + services {together[t] - taken[t]} of {instance.gpus} GPUs")
        )
    found += _protection(instance, plan)
    found += _waits(instance, plan)
    value = objective(instance, plan)
    if value != plan.objective:
        found.append(Violation("objective", f"the plan says {plan.objective}, it is {value}"))
    lacking = sum(_unmet(instance, plan))
    if lacking != plan.unmet:
        found.append(Violation("unmet", f"the plan says {plan.unmet} GPU-steps, it is {lacking}"))
    return found


def objective(instance: Instance, plan: Plan) -> int:
    """Return what a plan is worth: priority x GPU-steps x decay of its jobs, served demand, less the penalty of what is unmet."""
    total, work, services = 0, instance.jobs, instance.services
    for j, start in enumerate(plan.start.tolist()):
        if start >= 0:
            steps = min(int(work.duration[j]), instance.steps - start)
            entry = min(int(work.age[j]) + start, len(instance.decay) - 1)
            total += int(work.priority[j]) * int(work.gpus[j]) * steps * int(instance.decay[entry])
    for a, lacking in enumerate(_unmet(instance, plan)):
        served = int(services.demand[a].sum()) - lacking
        total += ONE * int(services.priority[a]) * (served - int(services.penalty[a]) * lacking)
    return total


def _unmet(instance: Instance, plan: Plan) -> list[int]:
    """Return the GPU-steps by service that were asked for and are not held."""
    return [
        sum(max(0, asked - held) for asked, held in zip(row.tolist(), plan.held[a].tolist(), strict=True))
        for a, row in enumerate(instance.services.demand)
    ]


def _shape(instance: Instance, plan: Plan) -> list[Violation]:
    jobs = len(instance.jobs.id)
    held = (len(instance.services.cap), instance.steps)
    found = [
        Violation("shape", f"{name} has shape {column.shape}, expected ({jobs},)")
        for name, column in (("start", plan.start), ("first", plan.first))
        if column.shape != (jobs,)
    ]
    if plan.held.shape != held:
        found.append(Violation("shape", f"held has shape {plan.held.shape}, expected {held}"))
    return found


def _grid(instance: Instance, plan: Plan) -> tuple[I64, list[Violation]]:
    """Return who is on each GPU at each step, and who was to be where somebody is."""
    grid, found = np.full((instance.gpus, instance.steps), FREE, dtype=np.int64), list[Violation]()
    running, work = instance.pinned, instance.jobs
    for k in range(len(running.first)):
        first = int(running.first[k])
        grid[first : first + int(running.gpus[k]), : int(running.left[k])] = PINNED - k
    grid[np.flatnonzero(instance.barred), 0] = BARRED
    for j, start in enumerate(plan.start.tolist()):
        if start < 0:
            continue
        first, gpus = int(plan.first[j]), int(work.gpus[j])
        if first < 0 or first + gpus > instance.gpus or first % gpus or gpus & (gpus - 1):
            found.append(Violation("block", f"job {work.id[j]}: {gpus} GPUs from {first} is no aligned block of {instance.gpus}"))
            continue
        if start >= instance.steps:
            found.append(Violation("start", f"job {work.id[j]} starts at step {start} of {instance.steps}"))
            continue
        cells = grid[first : first + gpus, start : start + int(work.duration[j])]
        if (cells <= PINNED).any():
            found.append(Violation("interruption", f"job {work.id[j]} at step {start} is put on GPUs of running work or a service"))
        elif (cells != FREE).any():
            other = int(cells[cells != FREE][0])
            found.append(Violation("overlap", f"jobs {work.id[j]} and {work.id[other]} are on the same GPUs from step {start} on"))
        cells[:] = j
    return grid, found


def _starts(instance: Instance, plan: Plan) -> list[Violation]:
    work, late = instance.jobs, plan.late.tolist()
    found = []
    for j, start in enumerate(plan.start.tolist()):
        if start >= 0 and start < work.earliest[j]:
            found.append(Violation("start", f"job {work.id[j]} starts at step {start}, before {work.earliest[j]}"))
        if start >= 0 and instance.whole and start + work.duration[j] > instance.steps:
            end = start + int(work.duration[j])
            found.append(Violation("start", f"job {work.id[j]} ends at step {end}, the horizon at {instance.steps}"))
        if start > work.latest[j] and j not in late:
            found.append(Violation("wait", f"job {work.id[j]} starts at step {start}, after its bound {work.latest[j]}"))
        if start < 0 and work.latest[j] < instance.steps and j not in late:
            found.append(Violation("wait", f"job {work.id[j]} falls due at step {work.latest[j]} and is not planned"))
    return found


def _ranges(instance: Instance, plan: Plan) -> list[Violation]:
    found, services = list[Violation](), instance.services
    for a in range(len(services.cap)):
        before, cap = int(services.initial[a]), int(services.cap[a])
        for t, held in enumerate(plan.held[a].tolist()):
            least, most = int(services.least[a, t]), int(services.most[a, t])
            if not least <= held <= most:
                found.append(Violation("range", f"service {a} holds {held} GPUs at step {t}, its range is {least} to {most}"))
            if before >= 0 and abs(held - before) > cap:
                found.append(Violation("cap", f"service {a} goes from {before} to {held} GPUs at step {t}, its cap is {cap}"))
            before = held
    return found


def _used(instance: Instance, plan: Plan, rows: list[int]) -> tuple[I64, I64]:
    """Return GPUs by budget (the last row: none) and step: of planned jobs among ``rows``, and of running work."""
    budgets = len(instance.protected)
    planned, running = np.zeros((2, budgets + 1, instance.steps), dtype=np.int64)
    for j in rows:
        start = int(plan.start[j])
        if start >= 0:
            planned[int(instance.jobs.budget[j]), start : start + int(instance.jobs.duration[j])] += instance.jobs.gpus[j]
    for k in range(len(instance.pinned.first)):
        running[int(instance.pinned.budget[k]), : int(instance.pinned.left[k])] += instance.pinned.gpus[k]
    return planned, running


def _protection(instance: Instance, plan: Plan) -> list[Violation]:
    """Find steps at which a planned job takes its budget above its kept part, and what is kept for others is not free."""
    if not len(instance.protected):
        return []
    planned, running = _used(instance, plan, list(range(len(plan.start))))
    kept = np.vstack((instance.protected, np.zeros((1, instance.steps), dtype=np.int64)))
    use, found = planned + running, list[Violation]()
    free = instance.gpus - plan.held.sum(axis=0) - np.maximum(use, kept).sum(axis=0)
    for budget, t in np.argwhere((planned > 0) & (use > kept)):
        if free[t] < 0:
            found.append(
                Violation(
                    "protected",
                    f"step {t}: budget {budget} uses {use[budget, t]} GPUs, {kept[budget, t]} are kept for it, and of those kept "
                    f"for others {-free[t]} are missing",
                )
            )
    return found


def _waits(instance: Instance, plan: Plan) -> list[Violation]:
    """Find late jobs that could be in time beside running work and those that fall due before them, services at their least."""
    work, found = instance.jobs, list[Violation]()
    rows = [j for j in range(len(work.id)) if work.latest[j] < instance.steps]
    due = sorted(rows, key=lambda j: (work.latest[j], work.id[j]))
    late = [int(j) for j in plan.late]
    for j in late:
        if j not in due or 0 <= plan.start[j] <= work.latest[j]:
            found.append(Violation("wait", f"job {work.id[j]} is called late, and is not"))
            continue
        alone = plan._replace(start=np.full_like(plan.start, -1), first=np.full_like(plan.first, -1))
        before = due[: due.index(j)]
        alone.start[before], alone.first[before] = plan.start[before], plan.first[before]
        start = _earliest(instance, alone, j, before)
        if 0 <= start <= work.latest[j]:
            found.append(Violation("wait", f"job {work.id[j]} is late and could start at step {start}, by {work.latest[j]}"))
    return found


def _earliest(instance: Instance, plan: Plan, j: int, before: list[int]) -> int:
    """Return the first step at which a job could start beside those planned, or -1."""
    grid, _found = _grid(instance, plan)
    work, services, steps = instance.jobs, instance.services, instance.steps
    must = np.zeros(steps, dtype=np.int64)
    for a in range(len(services.cap)):
        cap, initial = int(services.cap[a]), int(services.initial[a])
        for t in range(steps):
            low = max(int(services.least[a, s]) - cap * abs(t - s) for s in range(steps))
            must[t] += max(0, low, initial - cap * (t + 1))
    planned, running = _used(instance, plan, before)
    kept = np.vstack((instance.protected, np.zeros((1, steps), dtype=np.int64)))
    gpus, budget = int(work.gpus[j]), int(work.budget[j])
    for start in range(int(work.earliest[j]), steps - int(work.duration[j]) + 1 if instance.whole else steps):
        end = min(steps, start + int(work.duration[j]))
        use = (planned + running)[:, start:end].copy()
        use[budget] += gpus
        sums = np.maximum(use, kept[:, start:end]).sum(axis=0)
        over = (use[budget] > kept[budget, start:end]) & (sums + must[start:end] > instance.gpus)
        if over.any() or (use.sum(axis=0) + must[start:end] > instance.gpus).any():
            continue
        if any((grid[first : first + gpus, start:end] == FREE).all() for first in range(0, instance.gpus - gpus + 1, gpus)):
            return start
    return -1

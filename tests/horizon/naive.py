"""The planner's kernels written so that one sees they are right: a grid of GPUs and steps, every start and block tried in turn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise, permutations, product

import numpy as np

from apportion.core.horizon.instance import ONE, Instance


def majorant(demand: Sequence[int], cap: int) -> list[int]:
    """The least curve at or above a demand that changes by up to ``cap``."""
    steps = range(len(demand))
    return [max(demand[s] - cap * abs(t - s) for s in steps) for t in steps]


def minorant(most: Sequence[int], cap: int) -> list[int]:
    """The greatest curve at or below a line."""
    steps = range(len(most))
    return [min(most[s] + cap * abs(t - s) for s in steps) for t in steps]


def empty(instance: Instance) -> np.ndarray:
    """A grid with running work alone."""
    grid = np.zeros((instance.gpus, instance.steps), dtype=bool)
    for first, gpus, left in zip(instance.pinned.first, instance.pinned.gpus, instance.pinned.left, strict=True):
        grid[first : first + gpus, :left] = True
    return grid


def blocks(free: np.ndarray, gpus: int) -> Iterator[tuple[int, int]]:
    """(size of the largest free aligned surrounding, first GPU) of each free aligned block; ``free`` by GPU."""
    for first in range(0, len(free) - gpus + 1, gpus):
        if free[first : first + gpus].all():
            size = gpus
            while True:
                low = first // (2 * size) * 2 * size
                if low + 2 * size > len(free) or not free[low : low + 2 * size].all():
                    break
                size *= 2
            yield size, first


def decode(instance: Instance, order: Sequence[int], held: np.ndarray) -> tuple[list[int], list[int]]:
    """Starts and first GPUs when each takes the earliest step, then the tightest block, then the lowest."""
    grid, work, steps = empty(instance), instance.jobs, instance.steps
    start, first = [-1] * len(work.id), [-1] * len(work.id)
    for j in order:
        gpus, duration = int(work.gpus[j]), int(work.duration[j])
        last = min(int(work.latest[j]), steps - duration if instance.whole else steps - 1)
        for begin in range(int(work.earliest[j]), last + 1):
            window = grid[:, begin : begin + duration]
            enough = (window.sum(axis=0) + held[begin : begin + duration] + gpus <= instance.gpus).all()
            found = sorted(blocks(~window.any(axis=1), gpus)) if enough else []
            if found:
                start[j], first[j] = begin, found[0][1]
                grid[first[j] : first[j] + gpus, begin : begin + duration] = True
                break
    return start, first


def worth(instance: Instance, start: Sequence[int]) -> int:
    """What jobs are worth at these starts."""
    work, total = instance.jobs, 0
    for j, begin in enumerate(start):
        if begin >= 0:
            entry = min(int(work.age[j]) + begin, len(instance.decay) - 1)
            steps = min(int(work.duration[j]), instance.steps - begin)
            total += int(work.priority[j]) * int(work.gpus[j]) * steps * int(instance.decay[entry])
    return total


def curves(instance: Instance) -> Iterator[np.ndarray]:
    """Every way in which the services could hold GPUs."""
    services = instance.services
    ranges = [
        [range(int(low), int(high) + 1) for low, high in zip(services.least[a], services.most[a], strict=True)]
        for a in range(len(services.cap))
    ]
    lines = []
    for a, steps in enumerate(ranges):
        cap, initial = int(services.cap[a]), int(services.initial[a])
        lines.append(
            [
                line
                for line in product(*steps)
                if all(abs(x - y) <= cap for x, y in pairwise(line))
                and (initial < 0 or abs(line[0] - initial) <= cap)
            ]
        )
    for chosen in product(*lines):
        yield np.array(chosen, dtype=np.int64).reshape(len(chosen), instance.steps)


def service_value(instance: Instance, held: np.ndarray) -> int:
    """What services are worth."""
    services = instance.services
    lacking = np.maximum(0, services.demand - held).sum(axis=1)
    served = services.demand.sum(axis=1) - lacking
    return ONE * int((services.priority * (served - services.penalty * lacking)).sum())


def best(instance: Instance) -> int:
    """The most that any plan is worth: every curve, every set of starts and blocks."""
    found, jobs = -(1 << 62), len(instance.jobs.id)
    for held in curves(instance):
        together = held.sum(axis=0)
        if (empty(instance).sum(axis=0) + together > instance.gpus).any():
            continue
        value = service_value(instance, held)
        found = max(found, value + _best_jobs(instance, empty(instance), together, 0, jobs))
    return found


def _best_jobs(instance: Instance, grid: np.ndarray, together: np.ndarray, j: int, jobs: int) -> int:
    if j == jobs:
        return 0
    work, steps = instance.jobs, instance.steps
    gpus, duration = int(work.gpus[j]), int(work.duration[j])
    found = _best_jobs(instance, grid, together, j + 1, jobs)
    last = min(int(work.latest[j]), steps - duration if instance.whole else steps - 1)
    for begin in range(int(work.earliest[j]), last + 1):
        cells = grid[:, begin : begin + duration]
        if (cells.sum(axis=0) + together[begin : begin + duration] + gpus > instance.gpus).any():
            continue
        starts = [-1] * jobs
        starts[j] = begin
        for _size, first in blocks(~cells.any(axis=1), gpus):
            cells[first : first + gpus] = True
            found = max(found, worth(instance, starts) + _best_jobs(instance, grid, together, j + 1, jobs))
            cells[first : first + gpus] = False
    return found


def best_order(instance: Instance, held: np.ndarray) -> int:
    """The most that any order of jobs decodes to beside these curves."""
    together = held.sum(axis=0)
    return max(worth(instance, decode(instance, order, together)[0]) for order in permutations(range(len(instance.jobs.id))))

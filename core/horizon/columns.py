"""An instance as the columns of the kernels: what each job is worth at each start, what each service may hold, and what is taken.

Decides nothing that the instance does not say; pure. The planner and the baselines begin with it. Services are in order of what a
GPU-step not served costs, the dearest first, so that curves give way from the end. It must never be asked about an unchecked
instance.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from apportion.core.horizon.instance import ONE, Instance, highest, lowest
from apportion.core.kernels import curves, horizon

I64 = NDArray[np.int64]

WORD = horizon.WORD


class Setting(NamedTuple):
    """Jobs and services as columns."""

    jobs: I64
    worth: I64
    services: I64
    rows: I64  # of the services in the instance
    floors: I64
    ceilings: I64
    demand: I64


def setting_of(instance: Instance) -> Setting:
    """Return jobs and services as columns."""
    work, services, steps = instance.jobs, instance.services, instance.steps
    table = np.zeros((len(work.id), horizon.COLUMNS), dtype=np.int64)
    table[:, horizon.GPUS], table[:, horizon.DURATION] = work.gpus, work.duration
    last = steps - work.duration if instance.whole else np.full(len(work.id), steps - 1, dtype=np.int64)
    table[:, horizon.EARLIEST], table[:, horizon.LATEST] = work.earliest, np.minimum(work.latest, last)
    table[:, horizon.LAST] = last
    table[:, horizon.BUDGET] = np.where(work.budget < 0, len(instance.protected), work.budget)
    table[:, horizon.PRIORITY] = work.priority
    at = np.arange(steps, dtype=np.int64)
    counted = np.minimum(work.duration[:, None], steps - at[None, :])
    decay = instance.decay[np.minimum(work.age[:, None] + at[None, :], len(instance.decay) - 1)]
    worth = (work.priority * work.gpus)[:, None] * counted * decay
    sting = services.priority * (1 + services.penalty) * ONE
    rows = np.lexsort((np.arange(len(sting)), -sting))
    columns = np.zeros((len(rows), horizon.FIELDS), dtype=np.int64)
    columns[:, horizon.CAP], columns[:, horizon.INITIAL] = services.cap[rows], services.initial[rows]
    columns[:, horizon.STING] = sting[rows]
    floors, ceilings = np.zeros((len(rows), steps), dtype=np.int64), np.zeros((len(rows), steps), dtype=np.int64)
    for k, a in enumerate(rows):
        floors[k] = lowest(services, int(a))
        curves.narrowest(services.demand[a], int(services.cap[a]), -1, ceilings[k])
        ceilings[k] = np.minimum(np.maximum(ceilings[k], floors[k]), highest(services, int(a)))
    return Setting(table, worth, columns, rows, floors, ceilings, np.ascontiguousarray(services.demand[rows]))


def board_of(instance: Instance) -> tuple[horizon.Board, I64]:
    """Return the board with running work alone, and how many GPUs of each budget that is."""
    gpus, steps, running = instance.gpus, instance.steps, instance.pinned
    count, budgets = -(-gpus // WORD), len(instance.protected)
    words = np.zeros((count, steps + 1), dtype=np.int64)
    _take(words, gpus, count * WORD, steps)
    lines = np.zeros((3 + 2 * budgets, steps), dtype=np.int64)
    use, kept = lines[1 : 2 + budgets], lines[2 + budgets :]
    for k in range(len(running.first)):
        first, left = int(running.first[k]), int(running.left[k])
        _take(words, first, first + int(running.gpus[k]), min(left, steps))
        use[int(running.budget[k]), :left] += running.gpus[k]  # no budget is -1, the last row
    for gpu in np.flatnonzero(instance.barred).tolist():
        _take(words, gpu, gpu + 1, 1)
    kept[:budgets] = instance.protected
    lines[horizon.OPEN] = gpus - np.maximum(use, kept).sum(axis=0)
    return horizon.Board(words, gpus - use.sum(axis=0), lines), use.copy()


def _take(words: I64, begin: int, end: int, steps: int) -> None:
    """Set the bits from ``begin`` to before ``end`` in the first steps."""
    for word in range(begin // WORD, -(-end // WORD)):
        low, high = max(0, begin - WORD * word), min(WORD, end - WORD * word)
        bits = (1 << high) - (1 << low)
        words[word, :steps] |= np.int64(bits - (1 << WORD) if bits >> (WORD - 1) else bits)

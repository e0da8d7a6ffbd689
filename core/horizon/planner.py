"""The planner: reservations for jobs that fall due, then a search in two halves, of which the better plan is kept.

Decides what is planned; a pure function of the instance and a number of candidates. Whoever commits step 0 of the plan applies it.
1. Each service's curve is the least that serves its demand at its cap, clipped to its range and to what is there.
2. Jobs that fall due within the horizon, the first to fall due first, get their places (``kernels.horizon.reserve``): beside the
   curves if that is in time, else the curves give way; who is late all the same goes as early as can be, and stays there.
3. Some candidates change the order of jobs only; the others also cut the curves, half of them from there on, half from the best of
   several orders by priority (``kernels.horizon.search``). Why both: cutting finds places that pinned curves hide, and wastes
   candidates where there are none; why twice: one run in ten stays where a large job blocks another (both measured).
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from apportion.core.horizon.columns import Setting, board_of, setting_of
from apportion.core.horizon.instance import ONE, Instance, check
from apportion.core.horizon.plan import Plan
from apportion.core.kernels import horizon

I64 = NDArray[np.int64]

EFFORT = 1_500_000  # candidates times jobs, about: a candidate costs what the jobs cost that it places again
MOST_WORDS = 4
PINNED_PERCENT = 20  # of the candidates are for the half whose curves stay
HEAT = 5  # jobs' mean worth over their number, times: so much worse a candidate may be at the beginning
MAX_HEAT = 1 << 48


def usual_candidates(instance: Instance) -> int:
    """Return how many candidates take about as long for few jobs as for many, and longer for more than 64 GPUs."""
    return EFFORT // (120 + len(instance.jobs.id)) * min(MOST_WORDS, -(-instance.gpus // horizon.WORD))


def plan(instance: Instance, candidates: int | None = None) -> Plan:
    """Return the plan; raises ``BadInstance`` for what cannot be planned. Without a number it takes ``usual_candidates``."""
    check(instance)
    candidates = usual_candidates(instance) if candidates is None else candidates
    setting = setting_of(instance)
    board, pinned_use = board_of(instance)
    low = setting.ceilings.copy()
    board.room[:] -= low.sum(axis=0)
    board.lines[horizon.OPEN] -= low.sum(axis=0)
    horizon.settle(board, pinned_use, low, setting.floors, setting.services)
    work = instance.jobs
    start, first = np.full(len(work.id), -1, dtype=np.int64), np.full(len(work.id), -1, dtype=np.int64)
    late = np.zeros(len(work.id), dtype=np.int64)
    due = np.lexsort((work.id, work.latest))
    due = due[work.latest[due] < instance.steps]
    stay = horizon.reserve(board, pinned_use, setting.jobs, due, low, setting.floors, setting.services, start, first, late)
    for j in due[stay:]:
        horizon.put(board, setting.jobs, j, start[j], first[j], -1)
        start[j] = first[j] = -1
    must = (work.latest < instance.steps) & (late == 0)
    search = _Search(setting, board, pinned_use, must, stay, start, first, _dice(instance))
    orders = [np.concatenate((due, rest)) for rest in _orders(instance, setting.worth)]
    few = candidates * PINNED_PERCENT // 100 if len(setting.services) else candidates
    orders.sort(key=lambda one: -search.run(one.copy(), low, 0, 0).value)
    order = orders[0].copy()
    heat = min(MAX_HEAT, int(setting.worth.max(axis=1, initial=0).sum()) // max(1, len(start) ** 2) * HEAT)
    found = search.run(order, low, few, heat)
    best = found
    for begin in (order, orders[0]) if few < candidates else ():
        joint = search.run(begin, low, (candidates - few) // 2, heat, joint=True)
        best = joint if joint.value > best.value else best
    return _told(instance, setting, best, late, best is not found, candidates)


class _Found(NamedTuple):
    value: int
    start: I64
    first: I64
    held: I64


class _Search(NamedTuple):
    """What every half of the search begins with."""

    setting: Setting
    board: horizon.Board
    pinned_use: I64
    must: NDArray[np.bool_]
    stay: int
    start: I64
    first: I64
    dice: I64

    def run(self, order: I64, low: I64, candidates: int, heat: int, joint: bool = False) -> _Found:
        """Search from an order, which is left as the search leaves it."""
        board, old = (horizon.Board(*(np.copy(column) for column in self.board)) for _copy in range(2))
        bent, start, first = low.copy(), self.start.copy(), self.first.copy()
        best_start, best_first, held = start.copy(), first.copy(), low.copy()
        setting = self.setting
        value = horizon.search(
            board, old, setting.jobs, setting.worth, self.must, order, self.stay, start, first, self.pinned_use, bent,
            setting.floors, setting.ceilings, setting.demand, setting.services, int(joint), candidates, heat,
            self.dice, best_start, best_first, held,
        )  # fmt: skip
        return _Found(int(value), best_start, best_first, held)


def _orders(instance: Instance, worth: I64) -> list[I64]:
    """Return orders of the jobs that do not fall due: by priority, large or small first, and by what each is worth."""
    work = instance.jobs
    size = work.gpus * np.minimum(work.duration, instance.steps)
    most = worth.max(axis=1, initial=0)
    ways = [
        (work.id, work.earliest, -size, -work.priority),
        (work.id, work.earliest, size, -work.priority),
        (work.id, work.earliest, -work.priority, -work.gpus),
        (work.id, work.earliest, -most),
    ]
    free = work.latest >= instance.steps
    return [order[free[order]] for order in (np.lexsort(way) for way in ways)]


def _dice(instance: Instance) -> I64:
    """Return the state of the generator: a number from 1 to 2^31 - 2, of all that the instance holds."""
    told = hashlib.blake2b(digest_size=8)
    told.update(b"%d %d" % (instance.gpus, instance.steps))
    for table in (*instance.jobs, *instance.pinned, *instance.services, instance.decay, instance.protected, instance.barred):
        told.update(np.ascontiguousarray(table).astype("<i8").tobytes())
    return np.array([1 + int.from_bytes(told.digest(), "little") % 2_147_483_646], dtype=np.int64)


def _told(instance: Instance, setting: Setting, best: _Found, late: I64, joint: bool, candidates: int) -> Plan:
    """Return the plan in the rows of the instance."""
    held = np.zeros_like(best.held)
    held[setting.rows] = best.held
    services = instance.services
    unmet = int(np.maximum(0, services.demand - held).sum())
    reward = int((services.demand.sum(axis=1) * services.priority).sum()) * ONE
    return Plan(best.start, best.first, held, best.value + reward, unmet, np.flatnonzero(late), joint, candidates)

"""How good any plan of an instance could be: the dual bound of a mixed-integer program that counts GPUs and forgets where they are.

One 0/1 column per job and start, one integer column per service and step (what it holds) and one of what it lacks; at each step all
GPUs together are no more than there are. Blocks, alignment and kept parts are left out, which can only make the optimum larger; so
its dual bound, which HiGHS (Huangfu and Hall, "Parallelizing the dual revised simplex method", Math. Prog. Comp. 10, 2018) improves
until it is proved or time is over, is never below the best plan, whenever it stops. A margin of a millionth covers its tolerances.
A pure function of the instance up to that time limit; it must never be given as the value of a plan.
"""

from __future__ import annotations

import os
import sys
from typing import Any, NamedTuple

import numpy as np

from apportion.core.horizon.instance import ONE, Instance

MARGIN = 1e-6
PROVED_GAP = 1e-6


class MissingSolver(RuntimeError):
    """The solver is not installed."""


class Bound(NamedTuple):
    """No plan is worth more than ``objective``; ``proved``: the program was solved to its end."""

    objective: int
    proved: bool


def solver() -> Any:
    """Return the module of the solver, or say how to get it."""
    try:
        import highspy
    except ImportError as error:
        raise MissingSolver(
            "the upper bound needs the solver HiGHS, which is not installed: pip install 'apportion[bounds]' (or highspy), "
            "or measure without gaps: --set bound_s=0"
        ) from error
    return highspy


def upper_bound(instance: Instance, seconds: float = 20.0) -> Bound:
    """Return what no plan can exceed."""
    highs = solver()
    rows = _Rows(instance)
    model = highs.HighsLp()
    model.num_col_, model.num_row_ = len(rows.cost), len(rows.starts) - 1
    scale = max(1.0, max((abs(value) for value in rows.cost), default=1.0))
    model.col_cost_ = np.array(rows.cost) / scale
    model.col_lower_, model.col_upper_ = np.zeros(len(rows.cost)) + np.array(rows.low), np.array(rows.high)
    model.row_lower_, model.row_upper_ = np.array(rows.at_least), np.array(rows.at_most)
    model.sense_ = highs.ObjSense.kMaximize
    model.a_matrix_.format_ = highs.MatrixFormat.kRowwise
    model.a_matrix_.num_col_, model.a_matrix_.num_row_ = model.num_col_, model.num_row_
    model.a_matrix_.start_ = np.array(rows.starts, dtype=np.int32)
    model.a_matrix_.index_ = np.array(rows.columns, dtype=np.int32)
    model.a_matrix_.value_ = np.array(rows.values, dtype=float)
    model.integrality_ = [highs.HighsVarType.kInteger] * model.num_col_
    run = _quiet(highs)
    for option, value in (("output_flag", False), ("threads", 1), ("time_limit", float(seconds)), ("mip_rel_gap", PROVED_GAP)):
        run.setOptionValue(option, value)
    run.passModel(model)
    run.run()
    proved = run.getModelStatus() == highs.HighsModelStatus.kOptimal
    dual = run.getInfo().mip_dual_bound
    if not np.isfinite(dual):  # not even the first relaxation was solved in time
        return Bound(rows.constant + int(sum(max(0.0, value) for value in rows.best)), False)
    return Bound(rows.constant + int(np.ceil(dual * scale * (1 + MARGIN if dual > 0 else 1 - MARGIN))), bool(proved))


def _quiet(highs: Any) -> Any:
    """Return a solver; it says its name on the process's standard output, which is for answers, when it is made."""
    sys.stdout.flush()
    kept = os.dup(1)
    try:
        os.dup2(2, 1)
        return highs.Highs()
    finally:
        os.dup2(kept, 1)
        os.close(kept)


class _Rows:
    """The program, row by row."""

    def __init__(self, instance: Instance) -> None:
        self.cost: list[float] = []
        self.low: list[float] = []
        self.high: list[float] = []
        self.best: list[float] = []  # of each job alone
        self.starts, self.columns, self.values = [0], list[int](), list[float]()
        self.at_least: list[float] = []
        self.at_most: list[float] = []
        self.constant = 0
        steps, work, running = instance.steps, instance.jobs, instance.pinned
        used: list[list[tuple[int, float]]] = [[] for _step in range(steps)]
        left = np.full(steps, instance.gpus)
        for k in range(len(running.first)):
            left[: int(running.left[k])] -= running.gpus[k]
        for j in range(len(work.id)):
            self._job(instance, j, used)
        for a in range(len(instance.services.cap)):
            self._service(instance, a, used)
        for t in range(steps):
            self._row(used[t], -np.inf, float(left[t]))

    def _job(self, instance: Instance, j: int, used: list[list[tuple[int, float]]]) -> None:
        work, steps = instance.jobs, instance.steps
        gpus, duration = int(work.gpus[j]), int(work.duration[j])
        last, mine, most = steps - duration if instance.whole else steps - 1, list[tuple[int, float]](), 0.0
        for start in range(int(work.earliest[j]), last + 1):  # later than its bound too: a late job may have to
            end = min(steps, start + duration)
            entry = min(int(work.age[j]) + start, len(instance.decay) - 1)
            worth = int(work.priority[j]) * gpus * (end - start) * int(instance.decay[entry])
            column = self._column(float(worth), 0, 1)
            most = max(most, float(worth))
            mine.append((column, 1.0))
            for t in range(start, end):
                used[t].append((column, float(gpus)))
        self.best.append(most)
        if mine:
            self._row(mine, -np.inf, 1.0)

    def _service(self, instance: Instance, a: int, used: list[list[tuple[int, float]]]) -> None:
        services = instance.services
        cap, initial = int(services.cap[a]), int(services.initial[a])
        sting = ONE * int(services.priority[a]) * (1 + int(services.penalty[a]))
        self.constant += ONE * int(services.priority[a]) * int(services.demand[a].sum())
        before = -1
        for t in range(instance.steps):
            low, high, asked = int(services.least[a, t]), int(services.most[a, t]), int(services.demand[a, t])
            if t == 0 and initial >= 0:
                low, high = max(low, initial - cap), min(high, initial + cap)
            held = self._column(0.0, low, high)
            lacking = self._column(-float(sting), 0, asked)
            self._row([(held, 1.0), (lacking, 1.0)], float(asked), np.inf)
            if before >= 0:
                self._row([(held, 1.0), (before, -1.0)], -float(cap), float(cap))
            used[t].append((held, 1.0))
            before = held

    def _column(self, cost: float, low: float, high: float) -> int:
        self.cost.append(cost)
        self.low.append(low)
        self.high.append(high)
        return len(self.cost) - 1

    def _row(self, entries: list[tuple[int, float]], at_least: float, at_most: float) -> None:
        self.columns += [column for column, _value in entries]
        self.values += [value for _column, value in entries]
        self.starts.append(len(self.columns))
        self.at_least.append(at_least)
        self.at_most.append(at_most)

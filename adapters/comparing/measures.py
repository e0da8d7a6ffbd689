"""What every budget got, and what was its due: pure functions of the batches, in their order.

*Due* is the hierarchical water-filling of the GPUs that were delivered, by demand (running and waiting), over time; *got* is what
its runs held. Both are counted inside the window only, and from the decisions alone: placements, final accounts, admissions.
So the measure knows nothing of lags, allowances or payers, and works for any policy.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from apportion.adapters.comparing.setting import Tree
from apportion.core.decisions import CycleBatch, RunClosed, RunPlaced, WorkloadAdmitted, WorkloadClosed
from apportion.core.engine import Core
from apportion.core.kernels import share
from apportion.core.units import PPM

I64 = NDArray[np.int64]


class Shares:
    """GPU time got and due per budget of the tree, inner budgets included, in milli-GPU x ms inside ``[from_ms, to_ms)``."""

    def __init__(self, tree: Tree, from_ms: int, to_ms: int, changes: Iterable[tuple[int, Tree]] = ()) -> None:
        self.paths = [path for path, _ppm in tree]
        self.row_of = {path: row for row, path in enumerate(self.paths, 1)}
        rows = len(tree) + 1  # row 0 is the root
        self.parent = np.full(rows, -1, dtype=np.int64)
        for path, row in self.row_of.items():
            self.parent[row] = self.row_of.get(path.rpartition("/")[0], 0)
        above = set(self.parent.tolist())
        self.leaves = [row for row in range(1, rows) if row not in above]
        self.got = np.zeros(rows, dtype=np.int64)
        self.due = np.zeros(rows, dtype=np.int64)
        self.running = np.zeros(rows, dtype=np.int64)
        self.waiting = np.zeros(rows, dtype=np.int64)
        self._weight = np.full(rows, PPM, dtype=np.int64)
        self._weight[1:] = [ppm for _path, ppm in tree]
        self._changes = sorted(changes, reverse=True)  # the next one last
        self._from_ms, self._to_ms, self._now_ms = from_ms, to_ms, 0
        self._pool = np.zeros(rows, dtype=np.int64)
        self._rates = np.zeros(rows, dtype=np.int64)
        self._stale = True
        self._milli: dict[str, int] = {}  # of workloads that are not over
        self._leaf: dict[str, int] = {}

    def take(self, _core: Core | None, batch: CycleBatch) -> None:
        """Count one batch: what ended before it, at its own instant, then what begins with it."""
        closed = [one for one in batch.decisions if isinstance(one, RunClosed)]
        for one in sorted(closed, key=lambda account: account.end_ms):
            self._advance(one.end_ms)
            self._add(self.running, self.row_of[one.budget], -one.gpus_milli)
        self._advance(batch.time_ms)
        for decision in batch.decisions:
            if isinstance(decision, WorkloadAdmitted):
                self._milli[decision.workload] = decision.nodes * decision.milli_per_node
                self._leaf[decision.workload] = self.row_of[decision.budget]
                self._wait(decision.workload, 1)
            elif isinstance(decision, RunPlaced):
                self._wait(decision.workload, -1)
                self._add(self.running, self.row_of[decision.budget], decision.gpus_milli)
            elif isinstance(decision, RunClosed) and decision.requeued:
                self._wait(decision.workload, 1)
            elif isinstance(decision, WorkloadClosed):
                if not self._ran_to_its_end(batch, decision.workload):
                    self._wait(decision.workload, -1)
                self._milli.pop(decision.workload, None)

    def _ran_to_its_end(self, batch: CycleBatch, workload: str) -> bool:
        return any(isinstance(one, RunClosed) and one.workload == workload and not one.requeued for one in batch.decisions)

    def _wait(self, workload: str, sign: int) -> None:
        self._add(self.waiting, self._leaf[workload], sign * self._milli[workload])

    def _add(self, column: I64, row: int, delta: int) -> None:
        while row >= 0:
            column[row] += delta
            row = int(self.parent[row])
        self._stale = True

    def _advance(self, now_ms: int) -> None:
        while self._changes and self._changes[-1][0] <= now_ms:
            at_ms, tree = self._changes.pop()
            self._count(at_ms)
            for path, ppm in tree:
                self._weight[self.row_of[path]] = ppm
            self._stale = True
        self._count(now_ms)

    def _count(self, now_ms: int) -> None:
        elapsed_ms = min(now_ms, self._to_ms) - max(self._now_ms, self._from_ms)
        if elapsed_ms > 0:
            if self._stale:
                demand = self.running + self.waiting
                delivered = int(self.running[0])
                share.water_fill(0, delivered, len(demand), self._pool, self.parent, self._weight, demand, self._rates)
                self._stale = False
            self.got += self.running * elapsed_ms
            self.due += self._rates * elapsed_ms
        self._now_ms = max(self._now_ms, now_ms)

    def worst_error_pct(self, paths: Iterable[str]) -> float:
        """Return how far the worst of these budgets is from its due, in per cent of it; those due under 1 % do not count."""
        least = int(self.due[0]) // 100
        rows = [self.row_of[path] for path in paths]
        errors = [abs(int(self.got[row]) / int(self.due[row]) - 1) for row in rows if int(self.due[row]) > least]
        return 100 * max(errors, default=0.0)

    def part_of_due(self, path: str) -> float:
        """Return what a budget got, as a part of its due."""
        row = self.row_of[path]
        return int(self.got[row]) / int(self.due[row]) if self.due[row] else 1.0

    def programs(self) -> list[str]:
        """Return the budgets directly below the root."""
        return [path for path in self.paths if "/" not in path]

    def leaf_paths(self) -> list[str]:
        """Return the budgets that workloads charge."""
        return [self.paths[row - 1] for row in self.leaves]

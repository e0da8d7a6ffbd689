"""Orders of waiting workloads: a fixed one, and one by budgets that changes with every start.

``next`` returns the first workload worth trying, ``failed`` tells that its shape does not fit; shapes that failed are not tried
again in the cycle, because starts only take space. Naive equivalent: after each start sort everything anew, and try it all.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from apportion.core.kernels import queue as queue_kernels
from apportion.core.kernels import share
from apportion.core.policy.shadowing import Shadow
from apportion.core.state import schema
from apportion.core.state.state import State

I64 = NDArray[np.int64]

SHAPES_TRIED_MAX = 512


class Order(Protocol):
    """An order over one class of work: ``idle_cycles`` 1 = min_runtime 0, 0 = all other."""

    def next(self, shadow: Shadow, idle_cycles: int) -> int:
        """Return the workload to try next, or -1."""
        ...

    def failed(self, workload: int, *, short: bool) -> None:
        """The workload returned last does not fit; ``short``: not even on the nodes that are kept for somebody."""
        ...


class Tried:
    """Shapes that did not fit in this cycle, and the search for the next workload of another shape."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._shapes = np.zeros((SHAPES_TRIED_MAX, 3), dtype=np.int64)
        self._count = 0

    def add(self, workload: int, *, short: bool) -> bool:
        """Remember the shape; False when there is no room for it."""
        if self._count == SHAPES_TRIED_MAX:
            return False
        table = self._state.workload
        self._shapes[self._count] = (int(table.nodes[workload]), int(table.milli_per_node[workload]), int(short))
        self._count += 1
        return True

    def find(self, rows: I64, start: int, end: int, shadow: Shadow, idle_cycles: int) -> int:
        """Return the first position of ``rows[start:end]`` that holds a workload worth trying, or -1."""
        table = self._state.workload
        return int(
            queue_kernels.next_candidate(
                rows, start, end, self._state.counters.time_ms, shadow.start_ms, idle_cycles, table.state, schema.PENDING,
                table.nodes, table.milli_per_node, table.min_runtime_ms, table.expected_runtime_ms, table.not_before_ms,
                self._shapes, self._count,
            )
        )  # fmt: skip


class Fixed:
    """Workload rows in the order given."""

    def __init__(self, state: State, rows: I64) -> None:
        self._rows = rows
        self._tried = Tried(state)
        self._at = 0
        self._class = 0

    def next(self, shadow: Shadow, idle_cycles: int) -> int:
        """Return the first of the rows that is worth trying."""
        if idle_cycles != self._class:
            self._class, self._at = idle_cycles, 0
        found = self._tried.find(self._rows, self._at, len(self._rows), shadow, idle_cycles)
        self._at = found if found >= 0 else len(self._rows)
        return int(self._rows[found]) if found >= 0 else -1

    def failed(self, workload: int, *, short: bool) -> None:
        """Go on behind it, with other shapes."""
        self._tried.add(workload, short=short)
        self._at += 1


class LeastShare:
    """From the root of the tree to the child with the least running / share, then that budget's own queue.

    A budget without a share comes after all others.
    """

    def __init__(self, state: State, running: I64, pool: int) -> None:
        budget, rows = state.budget, state.budget.used
        self._state, self._running, self._root = state, running, int(state.pool.root[pool])
        self._tried = Tried(state)
        self._queue = state.queue[: state.queued].copy()
        self._first, self._last = np.zeros(rows, dtype=np.int64), np.zeros(rows, dtype=np.int64)
        queue_kernels.segments(self._queue, state.queued, state.workload.budget, self._first, self._last)
        self._mine = (self._last > self._first) & (budget.column("pool") == pool)
        behind = np.zeros(rows, dtype=np.int64)
        behind[budget.column("share_ppm") == 0] = -int(state.pool.supply_milli[pool]) - 1
        self._behind = behind
        self._begin(0)

    def _begin(self, idle_cycles: int) -> None:
        self._class = idle_cycles
        self._at, self._ready = self._first.copy(), self._mine.astype(np.int64)
        self._leaf = -1

    def next(self, shadow: Shadow, idle_cycles: int) -> int:
        """Return the first workload worth trying of the budget with the least share."""
        if idle_cycles != self._class:
            self._begin(idle_cycles)
        budget = self._state.budget
        while True:
            leaf = int(
                share.next_leaf(
                    self._root, budget.used, budget.pool, budget.parent, budget.children, budget.share_ppm, self._behind,
                    self._running, self._ready,
                )
            )  # fmt: skip
            if leaf < 0:
                return -1
            found = self._tried.find(self._queue, int(self._at[leaf]), int(self._last[leaf]), shadow, idle_cycles)
            if found >= 0:
                self._leaf, self._at[leaf] = leaf, found
                return int(self._queue[found])
            self._ready[leaf] = 0

    def failed(self, workload: int, *, short: bool) -> None:
        """Go on behind it, with other shapes."""
        self._tried.add(workload, short=short)
        self._at[self._leaf] += 1


def waiting_in(state: State, pool: int) -> I64:
    """Return the queued workloads of a pool, by row order of the queue."""
    queue = state.queue[: state.queued]
    rows: I64 = queue[state.workload.pool[queue] == pool]
    return rows

"""Orders of waiting workloads: a fixed one, and one by budgets that changes with every start.

``next`` returns the first workload worth trying, ``failed`` tells that the one returned last does not fit. Shapes that failed are
not tried again in the pass, because starts only take space; so a pass looks at each shape once, however many wait. Naive
equivalent: after each start sort everything anew, and try it all.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from apportion.core.kernels import queue as queue_kernels
from apportion.core.kernels import share
from apportion.core.policy.reserving import Reservations, says_over_ms
from apportion.core.state import schema
from apportion.core.state.queue import parts_of
from apportion.core.state.state import State

I64 = NDArray[np.int64]

SHAPES_TRIED_MAX = 512
STUCK_MAX = 8  # shapes in a pass that takes (per budget, where the order is by budgets): each costs a search for victims


class Order(Protocol):
    """An order of what waits in a pool; passes go over it from its beginning."""

    def begin(self, idle_cycles: int, *, takes: bool) -> None:
        """Begin a pass over work on idle cycles (1) or all other (0); ``takes``: what does not fit may look for victims."""
        ...

    def next(self, reservations: Reservations) -> int:
        """Return the workload to try next, or -1."""
        ...

    def failed(self, workload: int) -> None:
        """The workload returned last does not fit."""
        ...


class Tried:
    """Shapes that did not fit in a pass, at most so many, and the search for the next workload of another shape."""

    def __init__(self, state: State, most: int) -> None:
        self._state = state
        self._shapes = np.zeros((most, 4), dtype=np.int64)  # nodes, milli per node, wish, when it would have been over
        self._count = 0

    def add(self, workload: int) -> None:
        """Remember the shape; must not be full."""
        table = self._state.workload
        shape = int(table.nodes[workload]), int(table.milli_per_node[workload]), int(table.wish[workload])
        self._shapes[self._count] = (*shape, says_over_ms(self._state, workload))
        self._count += 1

    def find(self, rows: I64, start: int, end: int, reservations: Reservations, idle_cycles: int) -> int:
        """Return the first position of ``rows[start:end]`` that holds a workload worth trying, or -1; -1 when full."""
        if self._count == len(self._shapes):
            return -1
        table = self._state.workload
        return int(
            queue_kernels.next_candidate(
                rows, start, end, self._state.counters.time_ms, reservations.instants_ms, -1, 0, 0, 0, 0, idle_cycles, table.state,
                schema.PENDING, table.nodes, table.milli_per_node, table.wish, table.min_runtime_ms, table.expected_runtime_ms,
                table.progress_ms, table.not_before_ms, self._shapes, self._count,
            )
        )  # fmt: skip


class Fixed:
    """Workload rows in the order given."""

    def __init__(self, state: State, rows: I64) -> None:
        self._state, self._rows = state, rows
        self.begin(0, takes=False)

    def begin(self, idle_cycles: int, *, takes: bool) -> None:
        """Begin at the first row."""
        self._tried = Tried(self._state, STUCK_MAX if takes else SHAPES_TRIED_MAX)
        self._at, self._class = 0, idle_cycles

    def next(self, reservations: Reservations) -> int:
        """Return the first of the rows that is worth trying."""
        found = self._tried.find(self._rows, self._at, len(self._rows), reservations, self._class)
        self._at = found if found >= 0 else len(self._rows)
        return int(self._rows[found]) if found >= 0 else -1

    def failed(self, workload: int) -> None:
        """Go on behind it, with other shapes."""
        self._tried.add(workload)
        self._at += 1


class LeastShare:
    """From the root of the tree to the child with the least running / share, then that budget's own queue.

    A budget without a share comes after all others. Whom one may ask to go depends on the budget, so in a pass that takes each
    budget has its own list of shapes that failed.
    """

    def __init__(self, state: State, running: I64, pool: int) -> None:
        budget, rows = state.budget, state.budget.used
        self._state, self._running, self._root = state, running, int(state.pool.root[pool])
        self._queue = state.queue[: state.queued].copy()
        self._first, self._last = np.zeros(rows, dtype=np.int64), np.zeros(rows, dtype=np.int64)
        parts_of(state, self._first, self._last)
        self._mine = (self._last > self._first) & (budget.column("pool") == pool)
        self._behind = np.zeros(rows, dtype=np.int64)
        self._behind[budget.column("share_ppm") == 0] = -int(state.pool.supply_milli[pool]) - 1
        self.begin(0, takes=False)

    def begin(self, idle_cycles: int, *, takes: bool) -> None:
        """Begin at the head of each queue."""
        self._class, self._takes, self._leaf = idle_cycles, takes, -1
        self._at, self._ready = self._first.copy(), self._mine.astype(np.int64)
        self._tried: dict[int, Tried] = {}

    def _tried_by(self, leaf: int) -> Tried:
        key = leaf if self._takes else -1
        if key not in self._tried:
            self._tried[key] = Tried(self._state, STUCK_MAX if self._takes else SHAPES_TRIED_MAX)
        return self._tried[key]

    def next(self, reservations: Reservations) -> int:
        """Return the first workload worth trying of the budget with the least share."""
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
            end = int(self._last[leaf])
            found = self._tried_by(leaf).find(self._queue, int(self._at[leaf]), end, reservations, self._class)
            if found >= 0:
                self._leaf, self._at[leaf] = leaf, found
                return int(self._queue[found])
            self._ready[leaf] = 0

    def failed(self, workload: int) -> None:
        """Go on behind it, with other shapes."""
        self._tried_by(self._leaf).add(workload)
        self._at[self._leaf] += 1


def waiting_in(state: State, pool: int) -> I64:
    """Return the queued workloads of a pool, in the order of the queue."""
    queue = state.queue[: state.queued]
    rows: I64 = queue[state.workload.pool[queue] == pool]
    return rows

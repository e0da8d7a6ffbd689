"""What is used of GPUs and nodes: as it is, or as it would be with some runs gone.

Who plans a preemption asks the one feasibility function about a space in which the victims are gone; everybody else about the space
as it is. Never written back: only the fold changes the columns.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from apportion.core.state.state import State

I64 = NDArray[np.int64]


class Space:
    """Columns of what is used. ``Space.now`` looks at the state's own; ``Space.copy`` may imagine."""

    def __init__(self, state: State, gpu_milli: I64, gpu_memory_mib: I64, cpu_milli: I64, memory_mib: I64) -> None:
        self._state = state
        self.gpu_milli, self.gpu_memory_mib = gpu_milli, gpu_memory_mib  # per GPU row
        self.cpu_milli, self.memory_mib = cpu_milli, memory_mib  # per node row
        self.gone: dict[int, None] = {}  # runs, in order

    @classmethod
    def now(cls, state: State) -> Space:
        """Return what is used now."""
        gpu, node = state.gpu, state.node
        return cls(
            state, gpu.column("used_milli"), gpu.column("used_memory_mib"), node.column("used_cpu_milli"),
            node.column("used_memory_mib"),
        )  # fmt: skip

    @classmethod
    def copy(cls, state: State) -> Space:
        """Return a copy of it, to take runs out of."""
        now = cls.now(state)
        return cls(state, now.gpu_milli.copy(), now.gpu_memory_mib.copy(), now.cpu_milli.copy(), now.memory_mib.copy())

    def take_out(self, run: int) -> None:
        """Imagine a run gone."""
        self._add(run, -1)
        self.gone[run] = None

    def step_aside(self, run: int) -> None:
        """Imagine a run gone that is not: it gives back all but its GPUs, so what is found is free now."""
        self.take_out(run)
        alloc = self._state.alloc.cells
        here = self._state.run.cells.first_alloc[run]
        while here >= 0:
            self.gpu_milli[alloc.gpu[here]] += alloc.milli[here]
            self.gpu_memory_mib[alloc.gpu[here]] += alloc.gpu_memory_mib[here]
            here = alloc.next[here]

    def put_back(self, run: int) -> None:
        """Imagine it there again."""
        self._add(run, 1)
        del self.gone[run]

    def _add(self, run: int, sign: int) -> None:
        alloc, node_of = self._state.alloc.cells, self._state.gpu.cells.node
        here = self._state.run.cells.first_alloc[run]
        while here >= 0:
            gpu = alloc.gpu[here]
            node = node_of[gpu]
            self.gpu_milli[gpu] += sign * alloc.milli[here]
            self.gpu_memory_mib[gpu] += sign * alloc.gpu_memory_mib[here]
            self.cpu_milli[node] += sign * alloc.cpu_milli[here]
            self.memory_mib[node] += sign * alloc.memory_mib[here]
            here = alloc.next[here]

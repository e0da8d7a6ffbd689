"""A pool's GPUs in one line, so that aligned blocks of the line are blocks of the pool: inside a node by index, then over nodes.

Each node takes a power of two of slots, the least that holds the largest node of the pool; slots without a GPU in service are
never given to anybody, and a drained node is not in the line. Nodes follow each other by their place in the topology order, then
by name. The line ends at the planner's bound: nodes beyond it are left out: replicas, and what
its block does not suit, are all that may start there.

A pure function of the state; nothing of it is stored.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from apportion.core.horizon.instance import MAX_GPUS
from apportion.core.state.state import State
from apportion.core.units import MAX_PLACES

I64 = NDArray[np.int64]


class Slots(NamedTuple):
    """The line."""

    gpu: I64  # GPU row by slot, -1 = none in service
    of_gpu: I64  # slot by GPU row, -1 = not in the line

    @property
    def length(self) -> int:
        """Slots in all."""
        return len(self.gpu)


def slots_of(state: State, pool: int) -> Slots:
    """Return the line of a pool."""
    node = state.node
    staying = (node.column("gpus") > 0) & (node.column("drain_set_ms") == 0)
    rows = np.flatnonzero((node.column("pool") == pool) & staying).tolist()
    place = node.cells.place
    rows.sort(key=lambda row: (place[row] if place[row] else MAX_PLACES + 1, node.keys[row]))
    width = 1 << max(0, int(node.gpus[rows].max(initial=1)) - 1).bit_length()
    rows = rows[: MAX_GPUS // width]
    gpu, of_gpu = np.full(len(rows) * width, -1, dtype=np.int64), np.full(state.gpu.used, -1, dtype=np.int64)
    for position, row in enumerate(rows):
        first, count = int(node.first_gpu[row]), int(node.gpus[row])
        fine = np.flatnonzero(state.gpu.out[first : first + count] == 0)
        gpu[position * width + fine] = first + fine
        of_gpu[first + fine] = position * width + fine
    return Slots(gpu, of_gpu)

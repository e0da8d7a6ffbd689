"""How much room there is: what is free on nodes. (By who asks, and if all were gone who may be asked to go: ``serve``.)

Which GPUs somebody would get is the answer of ``pack`` alone; this only counts. A pure function of the columns; O(GPUs).
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

I64 = NDArray[np.int64]

WHOLE = 1_000


@njit(cache=True)
def measure_free(
    pool: int, node_rows: int, node_pool: I64, node_first: I64, node_gpus: I64, used: I64, out: I64, held: I64, node_free: I64,
    node_part: I64, node_last: I64, lowest: I64,
) -> int:  # fmt: skip
    """Fill in what nodes have free now, and return the milli-GPU of all of it.

    Per node: whole GPUs free, the most free on one that is in use, and in ``node_last`` -1 where it is of another pool, else 0;
    per number of GPUs the lowest node on which exactly so many are free. ``serve.Stock`` is kept current from there.
    """
    free_milli = 0
    node_free[:] = 0
    node_part[:] = 0
    node_last[:] = -1
    lowest[:] = node_rows
    for node in range(node_rows):
        if node_pool[node] != pool:
            continue
        free, largest = 0, 0
        for gpu in range(node_first[node], node_first[node] + node_gpus[node]):
            if out[gpu] == 0 and held[gpu] == 0:
                if used[gpu] == 0:
                    free += 1
                else:
                    largest = max(largest, WHOLE - used[gpu])
                free_milli += WHOLE - used[gpu]
        node_free[node], node_part[node], node_last[node] = free, largest, 0
        lowest[free] = min(lowest[free], node)
    return free_milli


@njit(cache=True)
def measure_offers(
    pool: int, node_rows: int, node_pool: I64, node_first: I64, node_gpus: I64, used: I64, out: I64, held: I64, ever: I64, now: I64
) -> None:
    """Fill in how many nodes have at least k GPUs in service (``ever``), or free and not held (``now``)."""
    ever[:] = 0
    now[:] = 0
    for node in range(node_rows):
        if node_pool[node] != pool:
            continue
        size, free = 0, 0
        for gpu in range(node_first[node], node_first[node] + node_gpus[node]):
            if out[gpu] == 0:
                size += 1
                if used[gpu] == 0 and held[gpu] == 0:
                    free += 1
        ever[size] += 1
        now[free] += 1
    for k in range(len(ever) - 2, -1, -1):
        ever[k] += ever[k + 1]
        now[k] += now[k + 1]

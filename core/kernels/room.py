"""How much room there is: nodes by the GPUs that are free on them. (If all were gone who may be asked to go: ``serve``.)

Counts that rule workloads out before anybody asks whether they fit (``serve``): a shape for which too few nodes have enough does
not fit, whatever else it wishes. Which GPUs somebody would get is the answer of ``pack`` alone, who may be a victim of whom that of
``policy.preempting``: what is counted here may be too much, never too little.

A *class* of askers is those with equally many ``instants_ms`` before their end: the instants until which nodes are kept.
Pure functions of the columns; O(GPUs). Naive equivalent: ask ``find_gpus`` for every shape.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

I64 = NDArray[np.int64]

WHOLE = 1_000


@njit(cache=True)
def _before(instants_ms: I64, end_ms: int) -> int:
    """Return how many of the ascending instants are before ``end_ms``."""
    count = 0
    while count < len(instants_ms) and instants_ms[count] < end_ms:
        count += 1
    return count


@njit(cache=True)
def _last_class(until_ms: int, closes_ms: int, instants_ms: I64) -> int:
    """Return the last class from which a node is not kept."""
    last = len(instants_ms)
    if until_ms > 0:
        last = min(last, _before(instants_ms, until_ms))
    if closes_ms > 0:
        last = min(last, _before(instants_ms, closes_ms))
    return last


@njit(cache=True)
def _add_up(nodes: I64, shared: I64) -> None:
    """Count nodes for all classes they are not kept from, and for all numbers they have at least."""
    classes, most = nodes.shape[0], nodes.shape[1] - 1
    for one in range(classes - 2, -1, -1):
        shared[one] = max(shared[one], shared[one + 1])
        for k in range(most + 1):
            nodes[one, k] += nodes[one + 1, k]
    for one in range(classes):
        for k in range(most - 1, -1, -1):
            nodes[one, k] += nodes[one, k + 1]


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
def measure_classes(
    node_free: I64, node_part: I64, node_last: I64, until_ms: I64, closes_ms: I64, instants_ms: I64, nodes: I64, shared: I64
) -> None:
    """Count by class of asker: ``nodes[class, k]`` with at least k GPUs free, ``shared[class]`` the most of one in use; O(nodes).

    ``node_last`` becomes the last class that a node is not kept from; below 0: it is of another pool.
    """
    most = nodes.shape[1] - 1
    nodes[:] = 0
    shared[:] = 0
    for node in range(len(node_free)):
        if node_last[node] < 0:
            continue  # of another pool
        last = _last_class(until_ms[node], closes_ms[node], instants_ms)
        node_last[node] = last
        if node_free[node] > 0 or node_part[node] > 0:
            nodes[last, min(node_free[node], most)] += 1
            shared[last] = max(shared[last], node_part[node])
    _add_up(nodes, shared)

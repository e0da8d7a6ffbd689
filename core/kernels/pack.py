"""The one feasibility function: which GPUs would a shape get, if any?

A shape is ``nodes`` x ``milli_per_node``; a whole number of GPUs per node, or a fraction of one GPU on one node. A GPU is
usable when it is not out, not masked, and not held for somebody else. Choice: best fit. For whole GPUs the nodes with the
fewest usable free GPUs that still suffice (ties: lower row), inside a node an aligned block of that size if the size is a
power of two and one is free, else the lowest positions. For a fraction the most used GPU that still has room (ties: lower
row), else a GPU of the node that best fit would choose for one whole GPU.

Used by placing, preempting, reserving and explaining alike, on the real columns or on copies. Pure; O(GPUs of the pool).
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

I64 = NDArray[np.int64]

WHOLE = 1_000


@njit(cache=True)
def _usable(gpu: int, used: I64, out: I64, held: I64, mine: int) -> bool:
    return used[gpu] == 0 and out[gpu] == 0 and (held[gpu] == 0 or held[gpu] == mine)


@njit(cache=True)
def _take_on_node(first: int, size: int, need: int, used: I64, out: I64, held: I64, mine: int, chosen: I64, at: int) -> int:
    """Append ``need`` usable GPUs of the node to ``chosen`` from index ``at``; returns the new length."""
    if need & (need - 1) == 0:
        for start in range(0, size - need + 1, need):
            free = 0
            while free < need and _usable(first + start + free, used, out, held, mine):
                free += 1
            if free == need:
                for k in range(need):
                    chosen[at + k] = first + start + k
                return at + need
    for k in range(size):
        if need > 0 and _usable(first + k, used, out, held, mine):
            chosen[at] = first + k
            at += 1
            need -= 1
    return at


@njit(cache=True)
def find_gpus(
    pool_row: int,
    nodes: int,
    milli_per_node: int,
    mine: int,
    node_rows: int,
    node_pool: I64,
    node_first: I64,
    node_gpus: I64,
    node_masked: I64,
    used: I64,
    out: I64,
    held: I64,
    chosen: I64,
) -> int:
    """Fill ``chosen`` with GPU rows, ascending per node, and return how many; 0 when the shape does not fit now.

    ``mine`` is the workload row + 1 whose held GPUs count as usable. ``node_masked`` > 0 leaves a node out.
    ``chosen`` needs room for nodes * 72 entries.
    """
    if milli_per_node < WHOLE:
        best = -1
        for node in range(node_rows):
            if node_pool[node] != pool_row or node_masked[node] > 0:
                continue
            for k in range(node_gpus[node]):
                gpu = node_first[node] + k
                if out[gpu] > 0 or (held[gpu] > 0 and held[gpu] != mine):
                    continue
                if used[gpu] == 0 or used[gpu] + milli_per_node > WHOLE:
                    continue
                if best < 0 or used[gpu] > used[best]:
                    best = gpu
        if best >= 0:
            chosen[0] = best
            return 1
    need = max(1, milli_per_node // WHOLE)
    free = np.zeros(node_rows, dtype=np.int64)
    largest = 0
    for node in range(node_rows):
        if node_pool[node] != pool_row or node_masked[node] > 0:
            continue
        for k in range(node_gpus[node]):
            if _usable(node_first[node] + k, used, out, held, mine):
                free[node] += 1
        largest = max(largest, free[node])
    count = 0
    taken = 0
    for level in range(need, largest + 1):
        for node in range(node_rows):
            if free[node] == level:
                count = _take_on_node(node_first[node], node_gpus[node], need, used, out, held, mine, chosen, count)
                taken += 1
                if taken == nodes:
                    return count
    return 0


@njit(cache=True)
def largest_node(pool: int, nodes: int, node_pool: I64, node_gpus: I64) -> int:
    """Return the GPUs of the largest node of a pool, 0 when it has none."""
    largest = 0
    for n in range(nodes):
        if node_pool[n] == pool and node_gpus[n] > largest:
            largest = node_gpus[n]
    return largest


@njit(cache=True)
def largest_shape(
    pool_row: int, need: int, node_rows: int, node_pool: I64, node_first: I64, node_gpus: I64, out: I64, healthy_only: int
) -> int:
    """Return how many nodes of the pool could hold ``need`` whole GPUs when empty."""
    count = 0
    for node in range(node_rows):
        if node_pool[node] != pool_row:
            continue
        size = 0
        for k in range(node_gpus[node]):
            if healthy_only == 0 or out[node_first[node] + k] == 0:
                size += 1
        if size >= need:
            count += 1
    return count


@njit(cache=True)
def ready_times(
    pool_row: int,
    need: int,
    now_ms: int,
    never_ms: int,
    node_rows: int,
    node_pool: I64,
    node_first: I64,
    node_gpus: I64,
    out: I64,
    held: I64,
    gpu_free_ms: I64,
    ready_ms: I64,
) -> None:
    """Fill ``ready_ms[node]`` with the instant at which the node has ``need`` GPUs free, by what is known about its runs.

    ``gpu_free_ms[gpu]`` is when the GPU's last run is expected to release it (``now_ms`` if free, ``never_ms`` if unknown).
    """
    for node in range(node_rows):
        ready_ms[node] = never_ms
        if node_pool[node] != pool_row:
            continue
        times = np.full(node_gpus[node], never_ms, dtype=np.int64)
        size = 0
        for k in range(node_gpus[node]):
            gpu = node_first[node] + k
            if out[gpu] == 0 and held[gpu] == 0:
                # insertion into a short ascending list
                place = size
                while place > 0 and times[place - 1] > gpu_free_ms[gpu]:
                    times[place] = times[place - 1]
                    place -= 1
                times[place] = gpu_free_ms[gpu]
                size += 1
        if size >= need:
            ready_ms[node] = max(now_ms, times[need - 1])

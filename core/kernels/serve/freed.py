"""What could be freed: an upper bound on what preemption may give to anybody.

Who may be a victim of whom is the answer of ``policy.preempting``: what is counted here may be too much, never too little, and
rules out whoever could not start by it. Pure functions of the columns; they write ``evictable``, ``sums`` and what these are
counted from. Naive equivalent: plan a preemption for each.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from apportion.core.kernels.serve.columns import WHOLE, Lines, Room, Runs, Stock

I64 = NDArray[np.int64]

# as in ``effects``
BUILT_ON = {
    "serve.columns": "3e45d70c6fc9"
}  # fmt: skip

PLACED, STARTED, UNFUNDED = 1, 2, 2  # run.state, run.payer


@njit(cache=True)
def measure_freed(lines: Lines, room: Room, stock: Stock, runs: Runs, pool: int, now_ms: int, quantum_ms: int) -> None:
    """Fill in what could be freed for somebody, were he allowed to take from every budget: ``evictable[0, k]``, ``sums[1:]``.

    Who may be a victim of whom is the answer of ``policy.preempting``: what is counted here may be too much, never too little. Who
    is listed as started is paid by his budget, and may not go.
    """
    running, allowance, stays, held, out = lines.running, lines.allowance, stock.used.copy(), stock.held, stock.out
    phase, payer, protected_until_ms, leaf, milli, off = (
        runs.phase, runs.payer, runs.protected_until_ms, runs.leaf, runs.milli, runs.off,
    )  # fmt: skip
    run_pool, idle_cycles, took_ms, count = runs.pool, runs.idle_cycles, runs.took_ms, runs.sizes[0]
    keeps = running.copy()
    for run in range(count):
        if off[run] and payer[run] == UNFUNDED:
            keeps[leaf[run]] -= milli[run]
    eligible = np.zeros(count, dtype=np.uint8)
    gives, largest = np.zeros(len(running), dtype=np.int64), np.zeros(len(running), dtype=np.int64)
    freed = 0
    for run in range(count):
        if run_pool[run] != pool or (phase[run] != PLACED and phase[run] != STARTED) or payer[run] != UNFUNDED:
            continue
        if protected_until_ms[run] > now_ms:
            continue
        y = leaf[run]
        if idle_cycles[run] == 1 or off[run]:
            eligible[run] = 1
            freed += milli[run]
        elif not (took_ms[y] > 0 and now_ms - took_ms[y] < quantum_ms) and milli[run] < 2 * (keeps[y] - allowance[y]):
            eligible[run] = 1
            gives[y] += milli[run]
            largest[y] = max(largest[y], milli[run])
    for y in range(len(gives)):  # of one budget all gone must still leave it above: 2 given - smallest < room
        if gives[y] > 0:
            freed += min(gives[y], (2 * (keeps[y] - allowance[y]) + largest[y] - 1) // 2)
    alloc_run, alloc_gpu, alloc_milli = runs.alloc_run, runs.alloc_gpu, runs.alloc_milli
    if freed > 0:
        for a in range(runs.sizes[1]):
            if alloc_milli[a] > 0 and eligible[alloc_run[a]] == 1:
                stays[alloc_gpu[a]] -= alloc_milli[a]
    last, first_gpu, gpus, gone_free, gone_part = (
        stock.last,
        stock.first_gpu,
        stock.gpus,
        room.gone_free,
        room.gone_part,
    )
    for node in range(len(last)):
        able, shared = 0, 0
        if last[node] >= 0:
            for gpu in range(first_gpu[node], first_gpu[node] + gpus[node]):
                if out[gpu] == 0 and held[gpu] == 0:
                    if stays[gpu] == 0:
                        able += 1
                    shared = max(shared, WHOLE - stays[gpu])
        gone_free[node], gone_part[node] = able, shared
    room.sums[1] = freed
    count_freed(room, stock)


@njit(cache=True)
def count_freed(room: Room, stock: Stock) -> None:
    """Count the same over the nodes that nobody has."""
    evictable, last, until_ms, gone_free, gone_part = (
        room.evictable,
        stock.last,
        stock.until_ms,
        room.gone_free,
        room.gone_part,
    )
    evictable[:] = 0
    shared, most = 0, evictable.shape[1] - 1
    for node in range(len(last)):
        if last[node] >= 0 and until_ms[node] <= 0:
            evictable[0, min(gone_free[node], most)] += 1
            shared = max(shared, gone_part[node])
    for k in range(most - 1, -1, -1):
        evictable[0, k] += evictable[0, k + 1]
    room.sums[2], room.sums[3] = shared, 1

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
    "serve.columns": "00138576507d"
}  # fmt: skip

PLACED, STARTED = 1, 2  # run.state


@njit(cache=True)
def measure_freed(lines: Lines, room: Room, stock: Stock, runs: Runs, now_ms: int, quantum_ms: int) -> None:
    """Fill in what could be freed for somebody, were he allowed to take from every budget: ``evictable[0, k]``, ``sums[1:]``.

    Who may be a victim of whom is the answer of ``policy.preempting``: what is counted here may be too much, never too little. Who
    is listed as started is paid by his budget, and may not go.
    """
    allowance, keeps = lines.allowance, lines.running.copy()
    rows, phase, protected_until_ms, leaf, milli, off = (
        runs.unfunded, runs.phase, runs.protected_until_ms, runs.leaf, runs.milli, runs.off,
    )  # fmt: skip
    idle_cycles, took_ms = runs.idle_cycles, runs.took_ms
    for run in rows:
        if off[run]:
            keeps[leaf[run]] -= milli[run]
    going, count, freed = np.empty(len(rows), dtype=np.int64), 0, 0
    gives, largest = np.zeros(len(keeps), dtype=np.int64), np.zeros(len(keeps), dtype=np.int64)
    for run in rows:
        if (phase[run] != PLACED and phase[run] != STARTED) or protected_until_ms[run] > now_ms:
            continue
        y = leaf[run]
        if idle_cycles[run] == 1 or off[run]:
            freed += milli[run]
        elif not (took_ms[y] > 0 and now_ms - took_ms[y] < quantum_ms) and milli[run] < 2 * (keeps[y] - allowance[y]):
            gives[y] += milli[run]
            largest[y] = max(largest[y], milli[run])
        else:
            continue
        going[count] = run
        count += 1
    for y in range(len(gives)):  # of one budget all gone must still leave it above: 2 given - smallest < room
        if gives[y] > 0:
            freed += min(gives[y], (2 * (keeps[y] - allowance[y]) + largest[y] - 1) // 2)
    free, part, gone_free, gone_part = stock.free, stock.part, room.gone_free, room.gone_part
    for node in range(len(free)):
        gone_free[node], gone_part[node] = free[node], WHOLE if free[node] > 0 else part[node]
    if freed > 0:
        _take_out(going[:count], room, stock, runs)
    room.sums[1] = freed
    count_freed(room, stock)


@njit(cache=True)
def _take_out(going: I64, room: Room, stock: Stock, runs: Runs) -> None:
    """Count anew what would be free where these runs are: nowhere else does it differ from what is."""
    first_alloc, following, alloc_gpu, alloc_milli = runs.first_alloc, runs.alloc_next, runs.alloc_gpu, runs.alloc_milli
    last, node_of, first_gpu, gpus, used, held, out = (
        stock.last, stock.node_of, stock.first_gpu, stock.gpus, stock.used, stock.held, stock.out,
    )  # fmt: skip
    stays, met = np.empty(len(used), dtype=np.int64), np.zeros(len(last), dtype=np.uint8)
    for run in going:
        a = first_alloc[run]
        while a >= 0:
            node = node_of[alloc_gpu[a]]
            if met[node] == 0:
                met[node] = 1
                for gpu in range(first_gpu[node], first_gpu[node] + gpus[node]):
                    stays[gpu] = used[gpu]
            stays[alloc_gpu[a]] -= alloc_milli[a]
            a = following[a]
    for node in range(len(last)):
        if met[node] == 0 or last[node] < 0:
            continue
        able, shared = 0, 0
        for gpu in range(first_gpu[node], first_gpu[node] + gpus[node]):
            if out[gpu] == 0 and held[gpu] == 0:
                if stays[gpu] == 0:
                    able += 1
                shared = max(shared, WHOLE - stays[gpu])
        room.gone_free[node], room.gone_part[node] = able, shared


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

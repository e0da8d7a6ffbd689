"""When each GPU is expected to be free, by what is known of the runs on it (``policy.reserving`` tells the rule).

One pass over runs and one over what they hold. An instant that is past stands as it was told, so that what is found holds as long
as the runs do; ``as_of`` makes of it what it is at an instant. Pure functions of the columns; what is told to be filled is all that
is written. Naive equivalent: the same with NumPy, run by run, in the tests of the kernels.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from apportion.core.units import NEVER_MS, UNKNOWN_RUNTIME_MS

I64 = NDArray[np.int64]


@njit(cache=True)
def free_times(
    guess: int, runs: int, phase: I64, stopping: int, workload: I64, pool: I64, evicts: I64, payer: I64, unfunded: int,
    placed_ms: I64, checkpoint_ms: I64, protected_until_ms: I64, stop_by_ms: I64, expected_ms: I64, progress_ms: I64, allocs: int,
    alloc_run: I64, alloc_gpu: I64, alloc_milli: I64, free_ms: I64,
) -> None:  # fmt: skip
    """Fill ``free_ms`` per GPU: the last release of a run on it, 0 where there is none.

    A run that states nothing and may not be told to go: ``NEVER_MS``, unless ``guess`` is 1. ``evicts[pool]`` 1: unfunded runs may
    be asked to go when their protected time is over.
    """
    until_ms, stated_ms, done_ms = (np.zeros(runs, dtype=np.int64), np.empty(runs, dtype=np.int64), np.empty(runs, dtype=np.int64))
    for run in range(runs):  # of workloads, which lie far apart: in loops that do nothing else the misses overlap
        stated_ms[run] = expected_ms[workload[run]]
    for run in range(runs):
        done_ms[run] = progress_ms[workload[run]]
    for run in range(runs):
        if phase[run] == 0:
            continue
        if stated_ms[run] > 0:
            until = checkpoint_ms[run] + max(stated_ms[run] - done_ms[run], 0)
        else:
            until = placed_ms[run] + UNKNOWN_RUNTIME_MS if guess == 1 else NEVER_MS
        if evicts[pool[run]] == 1 and payer[run] == unfunded:
            until = min(until, protected_until_ms[run])
        if phase[run] == stopping:
            until = stop_by_ms[run]
        until_ms[run] = until
    free_ms[:] = 0
    for a in range(allocs):
        if alloc_milli[a] > 0:
            free_ms[alloc_gpu[a]] = max(free_ms[alloc_gpu[a]], until_ms[alloc_run[a]])


@njit(cache=True)
def as_of(
    now_ms: int, ready_ms: I64, order: I64, known: I64, as_of_ms: I64, now_ready_ms: I64, now_order: I64
) -> None:
    """Fill in, for each number of GPUs that is ``known``, when nodes are ready at ``now_ms``: no instant is before that.

    ``order`` lists them by ``ready_ms``, then by row, and ``now_order`` by what is filled in: who is ready by now is so at once.
    """
    for need in range(len(known)):
        if known[need] == 0 or as_of_ms[need] == now_ms:
            continue
        as_of_ms[need] = now_ms
        count, nodes = 0, ready_ms.shape[1]
        for node in range(nodes):
            now_ready_ms[need, node] = max(now_ms, ready_ms[need, node])
            if ready_ms[need, node] <= now_ms:
                now_order[need, count] = node
                count += 1
        for at in range(count, nodes):  # as many are left, and they stand last in this order too
            now_order[need, at] = order[need, at]

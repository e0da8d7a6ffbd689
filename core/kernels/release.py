"""When each GPU is expected to be free, by what is known of the runs on it (``policy.reserving`` tells the rule).

One pass over runs and one over what they hold. Pure functions of the columns; ``free_ms`` is filled, nothing else is written.
Naive equivalent: the same with NumPy, run by run, in the tests of the kernels.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from apportion.core.units import NEVER_MS, UNKNOWN_RUNTIME_MS

I64 = NDArray[np.int64]


@njit(cache=True)
def free_times(
    now_ms: int, guess: int, runs: int, phase: I64, stopping: int, workload: I64, pool: I64, evicts: I64, payer: I64, unfunded: int,
    placed_ms: I64, checkpoint_ms: I64, protected_until_ms: I64, stop_by_ms: I64, expected_ms: I64, progress_ms: I64, allocs: int,
    alloc_run: I64, alloc_gpu: I64, alloc_milli: I64, free_ms: I64,
) -> None:  # fmt: skip
    """Fill ``free_ms`` per GPU: the last release of a run on it, never before now.

    A run that states nothing and may not be told to go: ``NEVER_MS``, unless ``guess`` is 1. ``evicts[pool]`` 1: unfunded runs may
    be asked to go when their protected time is over.
    """
    until_ms = np.zeros(runs, dtype=np.int64)
    for run in range(runs):
        if phase[run] == 0:
            continue
        row = workload[run]
        if expected_ms[row] > 0:
            until = max(checkpoint_ms[run] + max(expected_ms[row] - progress_ms[row], 0), now_ms)
        else:
            until = max(placed_ms[run] + UNKNOWN_RUNTIME_MS, now_ms) if guess == 1 else NEVER_MS
        if evicts[pool[run]] == 1 and payer[run] == unfunded:
            until = min(until, protected_until_ms[run])
        if phase[run] == stopping:
            until = stop_by_ms[run]
        until_ms[run] = until
    free_ms[:] = now_ms
    for a in range(allocs):
        if alloc_milli[a] > 0:
            free_ms[alloc_gpu[a]] = max(free_ms[alloc_gpu[a]], until_ms[alloc_run[a]])

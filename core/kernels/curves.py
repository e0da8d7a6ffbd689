"""Curves that change by at most ``cap`` from one step to the next: the greatest below a line, and the least above it.

The majorant of a demand is how many GPUs a service must hold so that it has what is asked for at each step, and swaps no more than
it may. With ``initial`` >= 0 the curve also follows on from that number. Naive equivalents: the least over all steps of line +
cap x distance, and the greatest of line - cap x distance (``tests/horizon/naive.py``). Pure functions of integers; ``result``
alone is written. Whether a curve between two lines exists is not asked here: it does where the least one is nowhere above the
greatest.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

I64 = NDArray[np.int64]


@njit(cache=True)
def widest(most: I64, cap: int, initial: int, result: I64) -> None:
    """Fill ``result`` with the greatest curve at or below ``most`` that changes by up to ``cap``; ``initial`` -1: from anywhere."""
    result[:] = most
    if initial >= 0:
        result[0] = min(result[0], initial + cap)
    for t in range(1, len(most)):
        result[t] = min(result[t], result[t - 1] + cap)
    for t in range(len(most) - 2, -1, -1):
        result[t] = min(result[t], result[t + 1] + cap)


@njit(cache=True)
def narrowest(least: I64, cap: int, initial: int, result: I64) -> None:
    """Fill ``result`` with the least curve at or above ``least`` that changes by ``cap`` at most (the majorant of a demand)."""
    result[:] = least
    if initial >= 0:
        result[0] = max(result[0], initial - cap)
    for t in range(1, len(least)):
        result[t] = max(result[t], result[t - 1] - cap)
    for t in range(len(least) - 2, -1, -1):
        result[t] = max(result[t], result[t + 1] - cap)

"""What somebody who waits asks for, in one number: beside the queue, entry by entry, so that a walk over all reads nothing else.

The rows of a hundred thousand who wait lie all over the table: to read one is a cache miss, and most of them are ruled out by what
stands here. It is exact but for the time left, which is told in whole seconds, rounded down: so who is ruled out by it is ruled
out, and who is not has his row read. Bits, from the lowest: milli-GPU of a node, nodes, 1 = work on idle cycles, seconds left (all
of them set: no end is stated). Of who asks for something beside GPUs it is the complement, so below 0.

A pure function of the row of ``State.waits``, from the queue's own module; decides nothing.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from apportion.core.kernels.bare import bare
from apportion.core.units import NEVER_MS

I64 = NDArray[np.int64]

# as in ``effects``
BUILT_ON = {"bare": "6b2fd7db475f"}

_LINE, NODES, EACH, _NEED, WISH, MIN_RUNTIME_MS, LEFT_MS, _NOT_BEFORE_MS = range(8)  # columns of ``State.waits``
# each holds more than there is: 72 GPUs of a node, 100,000 nodes (or loose GPUs), eight years
EACH_BITS, NODES_BITS, LEFT_BITS, SECOND_MS = 17, 17, 28, 1_000
EACH_MOST, NODES_MOST, LEFT_MOST = (1 << EACH_BITS) - 1, (1 << NODES_BITS) - 1, (1 << LEFT_BITS) - 1
IDLE_AT = EACH_BITS + NODES_BITS
LEFT_AT = IDLE_AT + 1


@njit(cache=True)
def ask_of(waits: I64, row: int) -> int:
    """Return what a row of ``waits`` asks for."""
    idle = 1 if waits[row, MIN_RUNTIME_MS] == 0 else 0
    left_s = min(waits[row, LEFT_MS] // SECOND_MS, LEFT_MOST)
    ask = waits[row, EACH] + (waits[row, NODES] << EACH_BITS) + (idle << IDLE_AT) + (left_s << LEFT_AT)
    return ask if waits[row, WISH] == 0 else ~ask


@njit(cache=True)
def fill_asks(waits: I64, rows: I64, asks: I64) -> None:
    """Fill in the same of many rows."""
    for k in range(len(rows)):
        asks[k] = ask_of(waits, rows[k])


@bare
def plain_of(ask: int) -> int:
    """Return what is asked for as if it were nothing but GPUs."""
    return ask if ask >= 0 else ~ask


@bare
def each_of(ask: int) -> int:
    """Return how much of a node is asked for, milli-GPU."""
    return ask & EACH_MOST


@bare
def nodes_of(ask: int) -> int:
    """Return on how many nodes."""
    return (ask >> EACH_BITS) & NODES_MOST


@bare
def idle_of(ask: int) -> int:
    """Return 1 for work on idle cycles."""
    return (ask >> IDLE_AT) & 1


@bare
def left_s_of(ask: int) -> int:
    """Return the seconds that are left, ``LEFT_MOST`` when no end is stated."""
    return ask >> LEFT_AT


@bare
def over_ms_of(ask: int, now_ms: int) -> int:
    """Return when he says that he is over if he starts now, or up to a second before that; ``NEVER_MS`` if he states nothing."""
    left_s = left_s_of(ask)
    return now_ms + left_s * SECOND_MS if left_s < LEFT_MOST else NEVER_MS

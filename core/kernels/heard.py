"""What is remembered of the last list of runs that each node told: most lists are told again, six times a minute, for hours.

``heard`` has a row per node: where the list stands, and which pieces on the node are those of its runs, each as twice its row, and
1 more where its run is idle. It is true as long as the bytes of the list are where they were, and no piece was placed or released
on the node: whoever does that calls ``forget``. Derived: no part of the state. Naive equivalent: read the list again.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from apportion.core.kernels.bare import bare

I64 = NDArray[np.int64]

BUILT_ON = {"bare": "6b2fd7db475f"}  # as in ``effects``

MOST_PIECES = 64  # remembered of a node; one with more is read again
# the list's place + 1 (0: nothing is remembered) and length, how many pieces, and which
HEARD_LIST, HEARD_LENGTH, HEARD_COUNT, HEARD_PIECES = range(4)
HEARD = HEARD_PIECES + MOST_PIECES


@bare
def is_in(run: int, idle: I64, count: int) -> bool:
    """Tell whether a run is one of ``idle[:count]``."""
    found = False
    for place in range(count):
        found = found or idle[place] == run
    return found


@bare
def remember(
    heard: I64, row: int, start: int, length: int, listed: I64, known: int, idle: I64, asleep: int, first_alloc: I64,
    alloc_gpu: I64, following: I64, gpu_node: I64,
) -> None:  # fmt: skip
    """Remember which pieces are those of a list of runs, unless they are too many."""
    count, least = 0, HEARD_PIECES
    for place in range(known):
        piece, sleeps = first_alloc[listed[place]], 1 if is_in(listed[place], idle, asleep) else 0
        while piece >= 0:
            if gpu_node[alloc_gpu[piece]] == row:
                if count < MOST_PIECES:
                    heard[row, least + count] = 2 * piece + sleeps
                count += 1
            piece = following[piece]
    heard[row, HEARD_LIST] = start + 1 if count <= MOST_PIECES else 0
    heard[row, HEARD_LENGTH], heard[row, HEARD_COUNT] = length, count


@bare
def forget(heard: I64, node: int) -> None:
    """Other pieces are on a node from now on."""
    if node < len(heard):
        heard[node, HEARD_LIST] = 0

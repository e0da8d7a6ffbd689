"""Questions about all lines of the budget tree at once, asked in every cycle.

Each is one pass over the columns; a parent's row is below its children's. Naive equivalents recurse, in the tests of the kernels.
Pure functions of their columns: ``reserved`` and ``barred`` fill the array given, nothing else is written.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from apportion.core.kernels.bare import making
from apportion.core.units import NEVER_MS

I64 = NDArray[np.int64]

# as in ``effects``
BUILT_ON = {"bare": "6b2fd7db475f"}


@njit(cache=True)
def reserved(
    now_ms: int, runs: int, ended: int, protected_until_ms: I64, reserves: I64, state: I64, line: I64, gpus_milli: I64,
    rows: int, parent: I64, children: I64, left_us: I64, milli: I64,
) -> int:  # fmt: skip
    """Fill ``milli`` with the GPUs of runs inside their reserved time, own and below; ``left_us`` with these x what is left of it.

    Returns the end of the first of these times.
    """
    left_us[:rows] = 0
    milli[:rows] = 0
    until_ms = NEVER_MS
    for run in range(runs):
        left = protected_until_ms[run] - now_ms
        if reserves[run] == 1 and left > 0 and state[run] != ended:
            left_us[line[run]] += gpus_milli[run] * left
            milli[line[run]] += gpus_milli[run]
            until_ms = min(until_ms, protected_until_ms[run])
    for row in range(rows):
        if children[row] > 0:
            left_us[row] = milli[row] = 0
    for row in range(rows - 1, -1, -1):
        if parent[row] >= 0:
            left_us[parent[row]] += left_us[row]
            milli[parent[row]] += milli[row]
    return until_ms


@njit(cache=True)
def barred(
    rows: int, parent: I64, closed: I64, metered: I64, granted_us: I64, charged_us: I64, outstanding_us: I64, result: I64
) -> None:
    """Fill ``result`` with 1 for a line that is closed, or metered with nothing left to promise, or below such a line."""
    for row in range(rows):
        spent = metered[row] == 1 and granted_us[row] - charged_us[row] - outstanding_us[row] <= 0
        above = parent[row] >= 0 and result[parent[row]] == 1
        result[row] = 1 if closed[row] == 1 or spent or above else 0


@njit(cache=True)
def forgivable(rows: int, children: I64, lag_us: I64, running: I64, pending: I64, barred: I64) -> bool:
    """Tell whether a leaf is owed something that it cannot take: it is idle, or barred."""
    for row in range(rows):
        if children[row] == 0 and lag_us[row] > 0 and ((running[row] == 0 and pending[row] == 0) or barred[row] == 1):
            return True
    return False


@making
def uneven(rows: int, parent: I64, children: I64, lag_us: I64, forfeited_us: I64, forgiven_us: I64) -> int:
    """Return a line at which lags and forfeits are not the sums of those below, or a root that is owed something; else -1."""
    sums = np.zeros((3, rows), dtype=np.int64)
    for row in range(rows - 1, -1, -1):
        owed = lag_us[row]
        if children[row] > 0:
            owed += forgiven_us[row] - forfeited_us[row]
            if sums[0, row] != owed or sums[1, row] != forfeited_us[row] or sums[2, row] != forgiven_us[row]:
                return row
        above = parent[row]
        if above >= 0:
            sums[0, above] += owed
            sums[1, above] += forfeited_us[row]
            sums[2, above] += forgiven_us[row]
        elif forfeited_us[row] != forgiven_us[row] or lag_us[row] != 0:
            return row
    return -1


@njit(cache=True)
def add_up(rows: int, parent: I64, sums: I64, column: I64) -> None:
    """Add to each line of ``column`` its entry of ``sums`` and those of all lines below it; ``sums`` becomes these totals."""
    for row in range(rows - 1, -1, -1):
        if sums[row] != 0:
            column[row] += sums[row]
            if parent[row] >= 0:
                sums[parent[row]] += sums[row]


@njit(cache=True)
def fork(parent: I64, one: int, other: int) -> tuple[int, int]:
    """Return the two lines below the first that the paths of two different leaves of a pool have in common.

    Naive equivalent: both paths up to the root, without the common end, the last of each. A parent is a lower row than its child.
    """
    below_one, below_other = one, other
    while one != other:
        if one > other:
            below_one = one
            one = parent[one]
        else:
            below_other = other
            other = parent[other]
    return below_one, below_other


@njit(cache=True)
def takers_forks(
    taker: int, need_milli: int, parent: I64, weight: I64, running: I64, runs: int, rows: I64, leaf: I64, mine: I64, theirs: I64
) -> None:
    """Fill ``mine[b]`` and ``theirs[b]`` with the fork of ``taker`` and each leaf b of ``rows[:runs]`` that may lose to it.

    May lose: the taker's line, with ``need_milli`` more, stays strictly below the other, each over its weight (at least 1). Entries
    of leaves that may not are -1; the arrays have one entry per budget row, those of other rows are -1 too.
    """
    mine[:] = -1
    theirs[:] = -1
    seen = np.zeros(len(mine), dtype=np.uint8)
    for k in range(runs):
        b = leaf[rows[k]]
        if b == taker or seen[b] == 1:
            continue
        seen[b] = 1
        one, other = fork(parent, taker, b)
        if (running[one] + need_milli) * max(1, weight[other]) < running[other] * max(1, weight[one]):
            mine[b] = one
            theirs[b] = other

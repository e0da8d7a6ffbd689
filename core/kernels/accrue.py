"""Add elapsed time times rate to account columns: the only place where time becomes money.

Naive equivalent: ``total[i] += rate[i] * elapsed_ms`` for every row. Exact int64; the caller bounds ``elapsed_ms`` and the
rates (``units.py``), so no product leaves int64.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

I64 = NDArray[np.int64]


@njit(cache=True)
def accrue(total: I64, rate: I64, rows: int, elapsed_ms: int) -> None:
    """Add ``rate * elapsed_ms`` to ``total`` for the first ``rows`` rows, in place."""
    for row in range(rows):
        total[row] += rate[row] * elapsed_ms


@njit(cache=True)
def accrue_budgets(
    rows: int,
    elapsed_ms: int,
    funded: I64,
    unfunded: I64,
    lag_rate: I64,
    charged_us: I64,
    unfunded_us: I64,
    lag_us: I64,
) -> None:
    """Accrue funded time, unfunded time and lag of all budget lines, in place."""
    for row in range(rows):
        charged_us[row] += funded[row] * elapsed_ms
        unfunded_us[row] += unfunded[row] * elapsed_ms
        lag_us[row] += lag_rate[row] * elapsed_ms

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
def accrue_pools(
    rows: int,
    elapsed_ms: int,
    supply: I64,
    down: I64,
    idle: I64,
    unfunded: I64,
    supply_us: I64,
    down_us: I64,
    idle_us: I64,
    unfunded_us: I64,
) -> None:
    """Accrue the four accounts of all pools, in place."""
    for row in range(rows):
        supply_us[row] += supply[row] * elapsed_ms
        down_us[row] += down[row] * elapsed_ms
        idle_us[row] += idle[row] * elapsed_ms
        unfunded_us[row] += unfunded[row] * elapsed_ms


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

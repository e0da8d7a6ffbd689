"""Who would be paid for: whether a budget funds a workload if it starts now, or why not.

The rule is told in ``policy.funding``; this is its answer for somebody who waits, from what his budget may promise, what it runs
and what it may run. Pure functions of the columns; ``funded_since`` writes what it is given to be filled.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from apportion.core.kernels.bare import bare
from apportion.core.kernels.serve.columns import BUDGET, EACH, MIN_RUNTIME_MS, NODES, Jobs, Lines
from apportion.core.kernels.serve.shapes import milli_of

I64 = NDArray[np.int64]

# as in ``effects``
BUILT_ON = {
    "bare": "6b2fd7db475f", "serve.columns": "00138576507d", "serve.shapes": "a6b4fdc08477"
}  # fmt: skip

ALL_US = 1 << 62  # more than anybody has
IDLE_CYCLES, BUDGET_CLOSED, BALANCE_SPENT, ABOVE_ALLOWANCE, WITHIN_ALLOWANCE = range(5)  # what ``fundable`` answers


@bare
def verdict(
    min_runtime_ms: int, closed: int, left_us: int, milli: int, running_milli: int, allowance_milli: int
) -> int:
    """Answer ``fundable`` for a budget that has ``left_us`` to promise, and runs so much, what waits ahead included."""
    if min_runtime_ms == 0:
        return IDLE_CYCLES
    if closed != 0:
        return BUDGET_CLOSED
    if left_us < max(1, milli * min_runtime_ms):
        return BALANCE_SPENT
    return ABOVE_ALLOWANCE if 2 * running_milli + milli > 2 * allowance_milli else WITHIN_ALLOWANCE


@njit(cache=True, inline="always")
def promisable_us(leaf: int, parent: I64, metered: I64, granted_us: I64, charged_us: I64, reserved_us: I64) -> int:
    """Return what a budget may promise: the least that is left on its path. To hand arrays over costs more than that."""
    left_us, line = ALL_US, leaf
    while line >= 0:
        if metered[line] != 0:
            left_us = min(left_us, granted_us[line] - charged_us[line] - reserved_us[line])
        line = parent[line]
    return left_us


@njit(cache=True)
def fundable(
    leaf: int, milli: int, min_runtime_ms: int, ahead_milli: int, parent: I64, closed: I64, metered: I64, granted_us: I64,
    charged_us: I64, reserved_us: I64, running: I64, allowance: I64,
) -> int:  # fmt: skip
    """Tell whether a workload of ``leaf`` would be funded if it started now, or why not; ``ahead_milli`` wait before it."""
    left_us = promisable_us(leaf, parent, metered, granted_us, charged_us, reserved_us)
    return verdict(min_runtime_ms, closed[leaf], left_us, milli, running[leaf] + ahead_milli, allowance[leaf])


@njit(cache=True)
def fundable_row(jobs: Jobs, lines: Lines, row: int, ahead_milli: int) -> int:
    """Tell the same of a workload's row."""
    return fundable(
        jobs.waits[row, BUDGET], milli_of(jobs.waits, row), jobs.waits[row, MIN_RUNTIME_MS], ahead_milli, lines.parent,
        lines.closed, lines.metered, lines.granted_us, lines.charged_us, lines.reserved_us, lines.running, lines.allowance,
    )  # fmt: skip


@njit(cache=True)
def funded_since(
    jobs: Jobs, lines: Lines, now_ms: int, hold: I64, hold_funded: int, rows: I64, heads: I64, funded_ms: I64, since_ms: I64
) -> None:  # fmt: skip
    """Fill in since when each head of ``rows`` waits although it would be funded, 0 = it would not be, or is no head.

    Who was funded when GPUs were freed for it, still is. ``hold`` and ``funded_ms`` are per entry of ``rows``.
    """
    waits, parent, closed, metered, granted_us, charged_us, reserved_us, running, allowance = (
        jobs.waits, lines.parent, lines.closed, lines.metered, lines.granted_us, lines.charged_us, lines.reserved_us, lines.running,
        lines.allowance,
    )  # fmt: skip
    for k in range(len(rows)):
        row = rows[k]
        since_ms[k] = 0
        if heads[k] == 0:
            continue
        leaf, left_us = waits[row, BUDGET], ALL_US
        line = leaf
        while line >= 0:
            if metered[line] != 0:
                left_us = min(left_us, granted_us[line] - charged_us[line] - reserved_us[line])
            line = parent[line]
        answer = verdict(
            waits[row, MIN_RUNTIME_MS],
            closed[leaf],
            left_us,
            waits[row, NODES] * waits[row, EACH],
            running[leaf],
            allowance[leaf],
        )
        if hold[k] == hold_funded or answer == WITHIN_ALLOWANCE:
            since_ms[k] = funded_ms[k] if funded_ms[k] > 0 else now_ms

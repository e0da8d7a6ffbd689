"""What fair share costs in a cycle: water-fill, ledger and funding over 1,111 budgets with 100,000 workloads waiting.

A measurement on a state made for it: 10 programs of 10 groups of 10 budgets, and the queue's sums put where the fold would put
them. Best and median of many rounds of the core's own functions, by wall clock.
"""

from __future__ import annotations

import statistics
import time

import numpy as np

from apportion.adapters.bench.worlds.fairness.play import Play
from apportion.adapters.comparing.setting import Setting, Tree
from apportion.core import ledger
from apportion.core.policy.funding import shares_of
from apportion.core.units import MILLI

WIDTH = 10
PENDING = 100_000
RUNNING = 6_000


def tree() -> Tree:
    """Return 1,110 budgets below the root."""
    names = [f"b{number}" for number in range(WIDTH)]
    share = 1_000_000 // WIDTH
    top = [(one, share) for one in names]
    middle = [(f"{one}/{two}", share) for one in names for two in names]
    leaves = [(f"{one}/{two}/{three}", share) for one in names for two in names for three in names]
    return (*top, *middle, *leaves)


def measure(rounds: int = 300) -> dict[str, float]:
    """Return milliseconds of one accrual, one refresh of the lag rates, and one computation of all allowances."""
    setting = Setting(nodes=2_048, tree=tree())
    state = Play(setting, ()).core.state
    budget = state.budget
    leaves = np.flatnonzero(budget.column("children") == 0)
    running = np.bincount(np.arange(RUNNING) * 7_919 % len(leaves), minlength=len(leaves)) * 2 * MILLI
    waiting = np.bincount(np.arange(PENDING) * 104_729 % len(leaves), minlength=len(leaves)) * 4 * MILLI
    for leaf, run_milli, wait_milli in zip(leaves.tolist(), running.tolist(), waiting.tolist(), strict=True):
        ledger.add_demand(state, leaf, wait_milli)
        line = leaf
        while line >= 0:
            budget.running_milli[line] += run_milli
            line = int(budget.parent[line])
    times_ms = []
    for number in range(rounds + 3):
        began = time.perf_counter()
        state.counters.fair_stale = 1
        ledger.accrue(state, state.counters.accrued_ms + 60_000)
        shares_of(state)
        if number >= 3:  # the first ones load machine code
            times_ms.append(1_000 * (time.perf_counter() - began))
    return {"kernel_ms": statistics.median(times_ms), "kernel_best_ms": min(times_ms)}

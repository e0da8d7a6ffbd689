"""Who may be asked to go for somebody, and what it costs that he goes: rules (a) to (d) of ``policy.preempting``, run by run.

Two passes over the runs, between which the caller ranks the budgets that have one to give. Pure functions of the columns; what they
are told to fill is all they write. Naive equivalent: the rules in NumPy, in the tests of the kernels.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

I64 = NDArray[np.int64]


@njit(cache=True)
def eligible(
    pool: int, taker: int, entitled: int, now_ms: int, quantum_ms: int, runs: int, run_pool: I64, phase: I64, placed: int,
    started: int, payer: I64, unfunded: int, protected_until_ms: I64, idle_cycles: I64, idle_since_ms: I64, demotes: I64,
    leaf: I64, milli: I64, took_ms: I64, running: I64, allowance: I64, room: I64, may_go: I64, counts_for: I64,
    gives: NDArray[np.uint8],
) -> int:  # fmt: skip
    """Fill in who may go, alone; returns their milli-GPU.

    ``room`` becomes 2 * (running - allowance) of each budget, without its demoted runs; ``counts_for`` the budget of a run, -1 when
    it is on idle cycles or demoted; ``gives`` 1 for budgets that have a run to give which counts. ``entitled`` 0: the taker lives
    on what nobody is entitled to, and takes only from those.
    """
    total_milli = 0
    for line in range(len(room)):
        room[line] = 2 * (running[line] - allowance[line])
    for run in range(runs):
        off = idle_since_ms[run] > 0 and demotes[run_pool[run]] == 1 and payer[run] == unfunded
        if off:
            room[leaf[run]] -= 2 * milli[run]
        counts_for[run] = -1 if off or idle_cycles[run] == 1 else leaf[run]
    for run in range(runs):
        may_go[run] = 0
        if run_pool[run] != pool or (phase[run] != placed and phase[run] != started) or payer[run] != unfunded:
            continue
        if protected_until_ms[run] > now_ms:
            continue
        line = counts_for[run]
        if line >= 0:
            graced = took_ms[line] > 0 and now_ms - took_ms[line] < quantum_ms
            if entitled == 0 or line == taker or graced or milli[run] >= room[line]:
                continue
            gives[line] = 1
        may_go[run] = 1
        total_milli += milli[run]
    return total_milli


@njit(cache=True)
def costs(
    now_ms: int, seq: int, quantum_ms: int, runs: int, may_go: I64, counts_for: I64, milli: I64, checkpoint_ms: I64, placed_ms: I64,
    workload: I64, event_seq: I64, service: I64, rank: I64, cost: I64,
) -> None:  # fmt: skip
    """Fill ``cost`` of who may go: the seven numbers by which plans are compared; ``cost`` is 0 everywhere else.

    A replica of a service (``service`` > 0) has no work to save: its traffic is served (``state.work``).
    """
    for run in range(runs):
        if may_go[run] == 0:
            continue
        line = counts_for[run]
        counted = milli[run] if line >= 0 else 0
        unsaved_ms = 0 if service[workload[run]] > 0 else min(now_ms - checkpoint_ms[run], quantum_ms)
        cost[run, 0] = counted * unsaved_ms
        cost[run, 1] = counted
        cost[run, 2] = (milli[run] - counted) * unsaved_ms
        cost[run, 3] = milli[run]
        cost[run, 4] = counted * rank[line] if line >= 0 else 0
        cost[run, 5] = now_ms - placed_ms[run]
        cost[run, 6] = seq - event_seq[workload[run]]

"""Static priority over the whole pool, with preemption: the tragedy of the commons.

Whoever writes the larger number goes first and may stop what has a smaller one, so in the long run everybody writes the largest.
Here it stands as what it is; DESIGN lets priorities count inside a budget only.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from apportion.core.policy.baselines.waiting import Fixed, waiting_in
from apportion.core.policy.funding import Shares
from apportion.core.state.state import State

I64 = NDArray[np.int64]


class Priority:
    """Higher priority first; victims are runs of lower priority, least important first, then the latest."""

    preempts = True

    def order(self, state: State, shares: Shares, pool: int) -> Fixed:
        """By priority, then by sequence of submission."""
        table, rows = state.workload, waiting_in(state, pool)
        return Fixed(state, rows[np.lexsort((table.event_seq[rows], -table.priority[rows]))])

    def victims(self, state: State, shares: Shares, workload: int, runs: I64) -> Iterator[int]:
        """Those below the workload, the lowest first; among equals the latest start, then the higher row."""
        run, importance = state.run, state.workload.priority[state.run.workload[runs]]
        below = importance < int(state.workload.priority[workload])
        rows = runs[below]
        return (int(row) for row in rows[np.lexsort((-rows, -run.placed_ms[rows], importance[below]))])

    def proof(self, state: State, shares: Shares, workload: int, run: int, gone: list[int]) -> dict[str, int]:
        """Both priorities: right when the victim's is lower."""
        table = state.workload
        return {
            "beneficiary_priority": int(table.priority[workload]),
            "victim_priority": int(table.priority[int(state.run.workload[run])]),
        }

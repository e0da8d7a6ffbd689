"""First come, first served, with EASY backfill and without preemption: the rule of a cluster without rules.

The order is that of submission in the log, over all budgets; neither shares nor priorities count.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from apportion.core.policy.baselines.waiting import Fixed, waiting_in
from apportion.core.policy.funding import Shares
from apportion.core.state.state import State

I64 = NDArray[np.int64]


class Fifo:
    """Order of submission, no victims."""

    preempts = False

    def order(self, state: State, shares: Shares, pool: int) -> Fixed:
        """By sequence of submission, which is unique."""
        rows = waiting_in(state, pool)
        return Fixed(state, rows[np.argsort(state.workload.event_seq[rows], kind="stable")])

    def victims(self, state: State, shares: Shares, workload: int, runs: I64) -> Iterator[int]:
        """Nobody."""
        return iter(())

    def proof(self, state: State, shares: Shares, workload: int, run: int, gone: list[int]) -> dict[str, int]:
        """Nothing, for nobody goes."""
        return {}

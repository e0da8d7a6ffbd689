"""What distinguishes one baseline from another: the order of what waits, and who may be a victim for whom.

The types only; see the package for what is common.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from apportion.core.policy.baselines.waiting import Order
from apportion.core.policy.funding import Shares
from apportion.core.state.state import State

I64 = NDArray[np.int64]


class Baseline(Protocol):
    """Pure functions of the state, asked in each cycle anew."""

    preempts: bool  # else no run is ever asked to go, not even on idle cycles

    def order(self, state: State, shares: Shares, pool: int) -> Order:
        """Return the order in which the pool's waiting workloads are tried in this cycle."""
        ...

    def victims(self, state: State, shares: Shares, workload: int, runs: I64) -> Iterator[int]:
        """Yield those of ``runs`` that may be asked to go for ``workload``, in order; each counts those before it as gone.

        ``runs`` are rows, ascending: live, unprotected and not on idle cycles.
        """
        ...

    def proof(self, state: State, shares: Shares, workload: int, run: int, gone: list[int]) -> dict[str, int]:
        """Return the numbers that make ``run`` a victim once the runs ``gone`` are, for its certificate."""
        ...

"""How long the first in line of a budget waits, and what budgets are allowed: what the batches do not say, read from the core.

Two waits of the workload that is first in its budget's queue: since it is first, and since it is *funded* without a break (at
least half of it fits the budget's allowance, FUNDING rule 1.5, by the core's own function; the time in which its GPUs are held
for it belongs to it). Waits of what still waits at the end count too.
"""

from __future__ import annotations

import numpy as np

from apportion.core.decisions import CycleBatch
from apportion.core.engine import Core
from apportion.core.policy.funding import fundable, shares_of
from apportion.core.state import schema
from apportion.core.units import MILLI, MS_PER_HOUR


class Since:
    """Unbroken stays of workloads in some condition."""

    def __init__(self, from_ms: int) -> None:
        self.stays_ms: list[int] = []  # that ended
        self.longest_ms = 0
        self._from_ms = from_ms
        self._since_ms: dict[str, int] = {}

    def now(self, now_ms: int, keys: dict[str, None]) -> None:
        """Take in who is in the condition at this instant."""
        for key, since_ms in self._since_ms.items():
            if now_ms >= self._from_ms:
                self.longest_ms = max(self.longest_ms, now_ms - since_ms)
                if key not in keys:
                    self.stays_ms.append(now_ms - since_ms)
        self._since_ms = {key: self._since_ms.get(key, now_ms) for key in keys}

    def percentile_ms(self, percent: int) -> int:
        """Return the stay that ``percent`` of those that ended do not exceed."""
        ordered = sorted(self.stays_ms)
        return ordered[min(len(ordered) * percent // 100, len(ordered) - 1)] if ordered else 0


class Waits:
    """Both waits of the first in line."""

    def __init__(self, from_ms: int) -> None:
        self.first = Since(from_ms)
        self.funded = Since(from_ms)

    def take(self, core: Core, batch: CycleBatch) -> None:
        """Look at the queues after a batch."""
        state = core.state
        queue = state.queue[: state.queued]
        table, shares = state.workload, shares_of(state)
        heads = queue[np.flatnonzero(np.diff(table.budget[queue], prepend=-1))].tolist()
        held = queue[table.state[queue] == schema.HELD].tolist()
        first = {table.keys[row]: None for row in heads}
        funded = {
            table.keys[row]: None
            for row in dict.fromkeys([*heads, *held])
            if int(table.state[row]) == schema.HELD or fundable(state, shares, row)[0]
        }
        self.first.now(batch.time_ms, first)
        self.funded.now(batch.time_ms, funded)


class Allowed:
    """The sum of all allowances, in parts of the capacity, sampled once an hour."""

    def __init__(self) -> None:
        self.samples: list[tuple[int, float]] = []
        self._next_ms = 0

    def take(self, core: Core, batch: CycleBatch) -> None:
        """Sample when an hour has passed."""
        if batch.time_ms < self._next_ms:
            return
        self._next_ms = batch.time_ms + MS_PER_HOUR
        state = core.state
        supply_milli = int(state.pool.supply_milli[0])
        root = int(state.pool.root[0])
        self.samples.append((batch.time_ms, int(shares_of(state).allowance[root]) / max(MILLI, supply_milli)))

    def mean(self, from_ms: int, to_ms: int) -> float:
        """Return the mean of the samples in a time."""
        parts = [part for at_ms, part in self.samples if from_ms <= at_ms < to_ms]
        return sum(parts) / len(parts) if parts else 0.0

"""How long workloads wait for their first start; who has not started is not forgotten.

Pure function of the batches. A workload that still waits at the end has waited at least until then, and most of those were
submitted late, so neither leaving them out nor counting them as started is right. The distribution is estimated as is usual for
such *censored* times (Kaplan and Meier): the part that starts within t is one minus the product, over the starts after waits
w <= t, of 1 - 1 / (how many waited at least w). Who withdraws before his first start does not count.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from apportion.core.decisions import CycleBatch, RunPlaced, WorkloadAdmitted, WorkloadClosed
from apportion.core.units import PPM


class Quantile(msgspec.Struct):
    """A wait that so many per cent do not exceed; ``open``: it is longer than this, the longest that was seen."""

    percent: int
    wait_ms: int
    open: bool


class Waits:
    """Waits of the workloads admitted in ``[from_ms, to_ms)``."""

    def __init__(self, from_ms: int, to_ms: int) -> None:
        self._from_ms, self._to_ms = from_ms, to_ms
        self._since_ms: dict[str, int] = {}
        self._ended_ms: list[int] = []

    def take(self, batch: CycleBatch) -> None:
        """Look at one batch."""
        for decision in batch.decisions:
            if isinstance(decision, WorkloadAdmitted) and self._from_ms <= batch.time_ms < self._to_ms:
                self._since_ms[decision.workload] = batch.time_ms
            elif isinstance(decision, RunPlaced) and decision.workload in self._since_ms:
                self._ended_ms.append(batch.time_ms - self._since_ms.pop(decision.workload))
            elif isinstance(decision, WorkloadClosed):
                self._since_ms.pop(decision.workload, None)

    def distribution(self) -> list[tuple[int, int]]:
        """Return (wait, millionths of workloads that start within it), rising; the last one may be below a million."""
        return kaplan_meier(self._ended_ms, [self._to_ms - since_ms for since_ms in self._since_ms.values()])

    def quantile(self, percent: int) -> Quantile:
        """Return the least wait within which so many per cent start."""
        longest = max([self._to_ms - since_ms for since_ms in self._since_ms.values()], default=0)
        return quantile_of(self.distribution(), percent, longest)

    def within(self, bounds_ms: list[int]) -> list[int]:
        """Return for each bound the millionths of workloads that start within it."""
        found = self.distribution()
        return [max((part_ppm for wait_ms, part_ppm in found if wait_ms <= bound), default=0) for bound in bounds_ms]


def kaplan_meier(ended_ms: Sequence[int], still_ms: Sequence[int]) -> list[tuple[int, int]]:
    """Return (wait, millionths that start within it), rising, from waits that ended and waits that have lasted so long already."""
    times = [(wait_ms, 0) for wait_ms in ended_ms] + [(wait_ms, 1) for wait_ms in still_ms]
    times.sort()  # of equal times the ended ones first: who still waits then has waited that long
    waiting, staying = len(times), 1.0
    found: list[tuple[int, int]] = []
    for wait_ms, is_open in times:
        if not is_open:
            staying *= 1 - 1 / waiting
            found.append((wait_ms, round((1 - staying) * PPM)))
        waiting -= 1
    return found


def quantile_of(distribution: Sequence[tuple[int, int]], percent: int, longest_ms: int) -> Quantile:
    """Return the least wait within which so many per cent start; ``longest_ms`` is told where so many do not."""
    for wait_ms, part_ppm in distribution:
        if part_ppm * 100 >= percent * PPM - 100:
            return Quantile(percent, wait_ms, False)
    return Quantile(percent, longest_ms, True)

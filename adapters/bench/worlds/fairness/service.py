"""How steadily one budget is served: its rate over a sliding time, and the longest time in which it ran nothing.

Pure functions of the batches, in their order. Inner budgets count what is below them.
"""

from __future__ import annotations

from apportion.core.decisions import CycleBatch, RunClosed, RunPlaced
from apportion.core.engine import Core


class _Steps:
    """What a budget runs, as a step function of time: (instant, milli-GPU from then on)."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.steps: list[tuple[int, int]] = [(0, 0)]

    def take(self, _core: Core | None, batch: CycleBatch) -> None:
        """Add the starts and ends of one batch."""
        closed = [one for one in batch.decisions if isinstance(one, RunClosed) and self._is_mine(one.budget)]
        changes = [(one.end_ms, -one.gpus_milli) for one in sorted(closed, key=lambda account: account.end_ms)]
        changes.extend(
            (batch.time_ms, one.gpus_milli)
            for one in batch.decisions
            if isinstance(one, RunPlaced) and self._is_mine(one.budget)
        )
        for at_ms, delta in changes:
            now_ms, milli = self.steps[-1]
            if at_ms == now_ms:
                self.steps[-1] = (at_ms, milli + delta)
            else:
                self.steps.append((at_ms, milli + delta))

    def _is_mine(self, budget: str) -> bool:
        return budget == self.path or budget.startswith(f"{self.path}/")


class Rate(_Steps):
    """The mean GPUs of a budget over the last ``span_ms``."""

    def __init__(self, path: str, span_ms: int) -> None:
        super().__init__(path)
        self.span_ms = span_ms

    def mean_milli(self, from_ms: int, to_ms: int) -> float:
        """Return the mean over a time."""
        total = 0
        for position, (at_ms, milli) in enumerate(self.steps):
            until_ms = self.steps[position + 1][0] if position + 1 < len(self.steps) else to_ms
            total += milli * max(0, min(until_ms, to_ms) - max(at_ms, from_ms))
        return total / (to_ms - from_ms)

    def reached_ms(self, since_ms: int, goal_milli: int, to_ms: int, step_ms: int = 300_000) -> int:
        """Return how long after ``since_ms`` the mean over the span is within 10 % of the goal for the first time."""
        at_ms = since_ms + self.span_ms
        while at_ms < to_ms:
            if abs(self.mean_milli(at_ms - self.span_ms, at_ms) - goal_milli) <= goal_milli / 10:
                return at_ms - since_ms
            at_ms += step_ms
        return to_ms - since_ms


class Service(_Steps):
    """When a budget runs anything at all."""

    def __init__(self, path: str, from_ms: int, to_ms: int) -> None:
        super().__init__(path)
        self._from_ms, self._to_ms = from_ms, to_ms

    def longest_gap_ms(self) -> int:
        """Return the longest time inside the window in which nothing of it ran."""
        longest, idle_since_ms = 0, self._from_ms
        for at_ms, milli in [*self.steps, (self._to_ms, 1)]:
            at_ms = min(max(at_ms, self._from_ms), self._to_ms)
            if milli > 0 and idle_since_ms >= 0:
                longest, idle_since_ms = max(longest, at_ms - idle_since_ms), -1
            elif milli == 0 and idle_since_ms < 0:
                idle_since_ms = at_ms
        return longest

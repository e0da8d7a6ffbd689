"""``Emit``: take a decision into the batch and fold it.

Given to every phase by the engine, so that the policy writes no state and does not know the fold: who makes one says what folds.
Decisions come out in the order in which they were taken in; ``starts`` is the same as each by itself, and cheaper.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from apportion.core.decisions import AnyDecision, RunPlaced


class Emit:
    """The decisions of a cycle so far."""

    def __init__(self, fold: Callable[[AnyDecision], None], fold_starts: Callable[[Sequence[RunPlaced]], None]) -> None:
        self.decisions: list[AnyDecision] = []
        self._fold, self._fold_starts = fold, fold_starts

    def __call__(self, decision: AnyDecision) -> None:
        """Take in one."""
        self.decisions.append(decision)
        self._fold(decision)

    def starts(self, placed: Sequence[RunPlaced]) -> None:
        """Take in many starts."""
        self.decisions.extend(placed)
        self._fold_starts(placed)

"""``Emit``: take a decision into the batch and fold it.

Given to every phase by the engine, so that the policy writes no state and does not know the fold: who makes one says what folds.
Decisions come out in the order in which they were taken in; ``all`` is the same as each by itself, and cheaper.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from apportion.core.decisions import AnyDecision


class Emit:
    """The decisions of a cycle so far."""

    def __init__(self, fold: Callable[[AnyDecision], None], fold_all: Callable[[Sequence[AnyDecision]], None]) -> None:
        self.decisions: list[AnyDecision] = []
        self._fold, self._fold_all = fold, fold_all

    def __call__(self, decision: AnyDecision) -> None:
        """Take in one."""
        self.decisions.append(decision)
        self._fold(decision)

    def all(self, decisions: Sequence[AnyDecision]) -> None:
        """Take in many."""
        self.decisions.extend(decisions)
        self._fold_all(decisions)

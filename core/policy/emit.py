"""``Emit``: take a decision into the batch and fold it.

Given to every phase by the engine, so that the policy writes no state and does not know the fold: who makes one says what folds.
Decisions come out in the order in which they were taken in; ``all`` is the same as each by itself, and cheaper, and so is
``starts``, where what the decisions say stands in columns already.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from apportion.core.decisions import AnyDecision, RunPlaced
from apportion.core.state.started import Started


class Emit:
    """The decisions of a cycle so far."""

    def __init__(
        self,
        fold: Callable[[AnyDecision], None],
        fold_all: Callable[[Sequence[AnyDecision]], None],
        fold_starts: Callable[[Sequence[RunPlaced], Started], None],
    ) -> None:
        self.decisions: list[AnyDecision] = []
        self._fold, self._fold_all, self._fold_starts = fold, fold_all, fold_starts

    def __call__(self, decision: AnyDecision) -> None:
        """Take in one."""
        self.decisions.append(decision)
        self._fold(decision)

    def all(self, decisions: Sequence[AnyDecision]) -> None:
        """Take in many."""
        self.decisions.extend(decisions)
        self._fold_all(decisions)

    def starts(self, decisions: Sequence[RunPlaced], columns: Started) -> None:
        """Take in starts that were listed in this cycle."""
        self.decisions.extend(decisions)
        self._fold_starts(decisions, columns)

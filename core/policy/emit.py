"""``Emit``: take a decision into the batch and fold it.

Given to every phase by the engine, so that the policy writes no state and does not know the fold: who makes one says what folds.
Decisions come out in the order in which they were taken in; ``all`` is the same as each by itself, and cheaper, and so is
``starts``, where what the decisions say stands in columns already, and ``told``, where it is known whom they are about.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from apportion.core.decisions import AnyDecision, PendingExplained, RunPlaced
from apportion.core.state.started import Started


class Emit:
    """The decisions of a cycle so far."""

    def __init__(
        self,
        fold: Callable[[AnyDecision], None],
        fold_all: Callable[[Sequence[AnyDecision]], None],
        fold_starts: Callable[[Sequence[RunPlaced], Started], None],
        fold_told: Callable[[Sequence[PendingExplained], list[int]], None],
    ) -> None:
        self.decisions: list[AnyDecision] = []
        self._fold, self._fold_all, self._fold_starts, self._fold_told = fold, fold_all, fold_starts, fold_told

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

    def told(self, decisions: Sequence[PendingExplained], rows: list[int]) -> None:
        """Take in why workloads wait, each told once; ``rows`` are theirs."""
        self.decisions.extend(decisions)
        self._fold_told(decisions, rows)

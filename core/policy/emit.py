"""``Emit``: take a decision into the batch and fold it.

Given to every phase by the engine, so that the policy writes no state and does not know the fold: who makes one says what folds.
Decisions come out in the order in which they were taken in; ``all`` is the same as each by itself, and cheaper, and so is
``listed``, where what the decisions say stands in columns, and what they mean to the state in others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from apportion.core.decided import Decided
from apportion.core.decisions import AnyDecision
from apportion.core.listed import Listed
from apportion.core.state import bulk
from apportion.core.state.bulk import Bulk


class Emit:
    """The decisions of a cycle so far."""

    def __init__(
        self,
        fold: Callable[[AnyDecision], None],
        fold_all: Callable[[Sequence[AnyDecision]], None],
        fold_bulk: Callable[[Bulk], None],
    ) -> None:
        self._single: list[AnyDecision] = []  # since the last stretch
        self._parts: list[Sequence[AnyDecision]] = [self._single]
        self._fold, self._fold_all, self._fold_bulk = fold, fold_all, fold_bulk

    @property
    def decisions(self) -> Sequence[AnyDecision]:
        """The decisions so far, in their order."""
        return tuple(self._single) if len(self._parts) == 1 else Decided(self._parts)

    def __call__(self, decision: AnyDecision) -> None:
        """Take in one."""
        self._single.append(decision)
        self._fold(decision)

    def all(self, decisions: Sequence[AnyDecision]) -> None:
        """Take in many."""
        self._single.extend(decisions)
        self._fold_all(decisions)

    def listed(self, decisions: Listed[AnyDecision], meaning: Bulk) -> None:
        """Take in many of one kind; ``meaning`` is the same for the fold."""
        if len(decisions) <= bulk.FEW:
            for decision in decisions:
                self(decision)
            return
        self._single = []
        self._parts += (decisions, self._single)
        self._fold_bulk(meaning)

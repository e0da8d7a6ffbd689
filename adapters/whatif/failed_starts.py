"""Which starts of a range failed, and whose trouble that was: the node's or the workload's.

Trouble of a node is no work of the scheduler, so it stays where and when it was: a *bad spell* of a node begins with the placement
of the first of at least two failed starts in a row there, of different workloads; it ends with the placement of the next run that
started there, or when somebody put the node right (uncordoned it, let it join again, took it out). Whoever is placed there in it
fails as the last before it did. Any other start that an agent refused is the workload's own trouble (no image, no such command),
which goes where it goes: its n-th answer to a start is given again as it was, on whatever nodes; who was given up because every
start failed never starts. Where the limit passed without an answer, and not in a spell, nobody was there: heartbeats tell that.

A pure function of the recorded runs and of what operators said of nodes; it decides nothing. ``remade`` asks it when a run begins.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from apportion.adapters.whatif.demand import Attempt, Failure
from apportion.core.decisions import Piece
from apportion.core.units import NEVER_MS


class Spell(NamedTuple):
    """A time in which a node fails whoever comes: from the first instant on, until before the last."""

    from_ms: int
    until_ms: int
    node: str
    failures: tuple[Failure, ...]  # in order of placement
    placed_ms: tuple[int, ...]

    def failure(self, at_ms: int) -> Failure:
        """Return how a run fails that is placed at an instant: as the last did that was placed until then."""
        return self.failures[max(0, bisect.bisect_right(self.placed_ms, at_ms) - 1)]


class FailedStarts:
    """All failed starts of a range. ``mended``: when which node was put right, in order of the log."""

    def __init__(
        self, attempts: Mapping[str, Attempt], mended: Iterable[tuple[int, str]], given_up: frozenset[str] = frozenset()
    ) -> None:
        self._spells: dict[str, list[Spell]] = {}
        self._answers: dict[str, list[Failure | None]] = {}
        self._given_up = given_up
        self._of_nodes = self._own = frozenset[str]()  # runs whose failed start was their node's, and their workload's
        failed = {key: attempt.failure for key, attempt in attempts.items() if attempt.failure is not None}
        if not failed:
            return
        self._find_spells(attempts, failed, mended)
        self._own = frozenset(key for key, failure in failed.items() if key not in self._of_nodes and failure.said)
        workloads = {key.rpartition("#")[0] for key in self._own}
        for key, attempt in attempts.items():
            workload = key.rpartition("#")[0]
            if workload in workloads and (attempt.started_ms or key in self._own):
                self._answers.setdefault(workload, []).append(attempt.failure)

    def _find_spells(
        self, attempts: Mapping[str, Attempt], failed: Mapping[str, Failure], mended: Iterable[tuple[int, str]]
    ) -> None:
        blamed = {node: list[tuple[int, int, str]]() for failure in failed.values() for node in failure.nodes}
        for place, (key, attempt) in enumerate(attempts.items()):
            if attempt.failure is not None:
                for node in attempt.failure.nodes:
                    blamed[node].append((attempt.placed_ms, place, key))
            elif attempt.started_ms:
                for node in dict.fromkeys(piece.node for piece in attempt.pieces):
                    if node in blamed:
                        blamed[node].append((attempt.placed_ms, place, ""))
        for at_ms, node in mended:
            if node in blamed:
                blamed[node].append((at_ms, -1, ""))  # before whatever is placed at that instant
        theirs: set[str] = set()
        for node, told in blamed.items():
            told.sort()
            streak: list[str] = []
            for at_ms, _place, key in (*told, (NEVER_MS, 0, "")):
                if key:
                    streak.append(key)
                    continue
                if len({each.rpartition("#")[0] for each in streak}) > 1:
                    theirs.update(streak)
                    self._spells.setdefault(node, []).append(_spell(node, [attempts[each] for each in streak], at_ms))
                streak = []
        self._of_nodes = frozenset(theirs)

    def on(self, pieces: Iterable[Piece], at_ms: int) -> tuple[str, Failure] | None:
        """Return the first node that fails what is placed there at an instant, and how; None where all are well."""
        if not self._spells:
            return None
        for piece in pieces:
            for spell in self._spells.get(piece.node, ()):
                if spell.from_ms <= at_ms < spell.until_ms:
                    return piece.node, spell.failure(at_ms)
        return None

    def own(self, key: str) -> bool:
        """Tell whether the start of a recorded run failed, and that was its workload's trouble."""
        return key in self._own

    def of(self, workload: str, answered: int) -> Failure | None:
        """Return how a start of a workload fails that comes after ``answered`` others of its own; None: it does not."""
        answers = self._answers.get(workload)
        if answers is None:
            return None
        if answered < len(answers):
            return answers[answered]
        return answers[-1] if workload in self._given_up else None


def _spell(node: str, attempts: list[Attempt], until_ms: int) -> Spell:
    failures = [attempt.failure for attempt in attempts if attempt.failure is not None]
    placed_ms = [attempt.placed_ms for attempt in attempts]
    return Spell(placed_ms[0], until_ms, node, tuple(failures), tuple(placed_ms))

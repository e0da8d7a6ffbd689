"""In which part of their work the runs of a workload held their GPUs and did nothing.

Known from the heartbeats that list runs: a run does nothing while on each of its nodes the last list that names it says so. Told in
useful time of the workload, as its demand is, for a run that is made again comes to the same point at another instant. From where a
run resumed to where it ended its own record replaces what runs before it did there; who did nothing when seen last goes on so.
Whether it saved meanwhile is known too: to the core a checkpoint is work.

Pure functions of what was heard, in the order of the log; they decide nothing. ``History``'s reader tells, ``Needs`` is asked.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from apportion.core.units import NEVER_MS


class Span(NamedTuple):
    """Useful time from which on, and until when, a workload does nothing; and whether it saves."""

    from_ms: int
    until_ms: int
    saves: bool = False


@dataclass
class Idleness:
    """All workloads of a range."""

    _resting: dict[str, dict[str, None]] = field(default_factory=dict)  # node -> runs that its last list says do nothing
    _where: dict[str, dict[str, None]] = field(default_factory=dict)  # run -> nodes that say so
    _since_ms: dict[str, int] = field(default_factory=dict)
    _saved: dict[str, bool] = field(default_factory=dict)
    _told: dict[str, list[tuple[int, int, bool]]] = field(default_factory=dict)  # instants of a run: from, until, did it save
    _spans: dict[str, list[Span]] = field(default_factory=dict)

    def listed(self, node: str, runs: tuple[str, ...], idle: tuple[str, ...], nodes: Callable[[str], int], time_ms: int) -> None:
        """Take what a node says of its runs; ``nodes`` tells how many a run has, 0 where there is no such run."""
        resting = self._resting.get(node)
        if not idle and not resting:
            return
        resting = resting or {}
        for key in [key for key in resting if key not in idle]:
            del resting[key]
            self._works(key, node, time_ms)
        for key in idle:
            if key not in resting and key in runs and (count := nodes(key)):
                self.rests(key, node, count, time_ms)

    def rests(self, key: str, node: str, nodes: int, time_ms: int) -> None:
        """Note that a node says of a run of so many ``nodes`` that it does nothing."""
        self._resting.setdefault(node, {})[key] = None
        where = self._where.setdefault(key, {})
        where[node] = None
        if len(where) >= nodes:
            self._since_ms[key] = time_ms
            self._saved[key] = False

    def _works(self, key: str, node: str, time_ms: int) -> None:
        where = self._where.get(key)
        if where is None:
            return
        where.pop(node, None)
        if (since_ms := self._since_ms.pop(key, None)) is not None:
            self._told.setdefault(key, []).append((since_ms, time_ms, self._saved[key]))

    def saved(self, key: str) -> None:
        """Note a checkpoint."""
        if key in self._since_ms:
            self._saved[key] = True

    def over(self, key: str, resume_ms: int, done_ms: int, progress_ms: Callable[[int], int]) -> None:
        """Take a run that ended, or is at the end of the range; ``progress_ms`` tells its useful time at an instant."""
        workload = key.rpartition("#")[0]
        where, since_ms = self._where.pop(key, {}), self._since_ms.pop(key, None)
        for node in where:
            self._resting[node].pop(key, None)
        told = [
            Span(progress_ms(begin_ms), progress_ms(end_ms), saved) for begin_ms, end_ms, saved in self._told.pop(key, [])
        ]
        if since_ms is not None:
            told.append(Span(progress_ms(since_ms), NEVER_MS, self._saved[key]))
        before = self._spans.get(workload, [])
        if told or before:
            kept = [span._replace(until_ms=min(span.until_ms, resume_ms)) for span in before if span.from_ms < resume_ms]
            beyond = [span for span in before if span.from_ms >= max(done_ms, resume_ms) and since_ms is None]
            self._spans[workload] = kept + told + beyond

    def sleepers(self) -> frozenset[str]:
        """Return the workloads that did nothing at times."""
        return frozenset(workload for workload, spans in self._spans.items() if spans)

    def of(self, workload: str) -> list[Span]:
        """Return all that is known of a workload, in order."""
        return sorted(self._spans.get(workload, []))

    def at(self, workload: str, progress_ms: int) -> Span | None:
        """Return the span that covers a workload's useful time."""
        for span in self._spans.get(workload, ()):
            if span.from_ms <= progress_ms < span.until_ms:
                return span
        return None

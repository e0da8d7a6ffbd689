"""Trying a change: a copy of the core before a tick, edited events folded into it, the tick, a cycle. Did the job start?

Decides nothing: ``Core`` does, and a change counts only if it really placed the job in that cycle; or if, as it decided, the runs
that it asked to go are taken to have gone at once, and the next cycle places it. A pure function of a ``Moment``; ``Trials``
counts, and stops whoever tries without end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from apportion.adapters.explaining.moment import Moment
from apportion.core.decisions import AnyDecision, CycleBatch, GpusReserved, RunMoved, RunPlaced, RunPreempted
from apportion.core.engine import Core
from apportion.core.envelope import Record, decode_envelope, subject_of
from apportion.core.events import EVENT_TYPES, Event, RunFinished, encode_event

TRIALS_MAX = 120
AT_ONCE, AFTER_STOPS = "at once", "after stops"

Edit = tuple[str, Event]  # who says it, and what


class OutOfTrials(Exception):
    """As many changes were tried as may be."""


@dataclass(frozen=True)
class Outcome:
    """What a change led to. ``stops`` are the runs that go for it, and others that go only with it: workload, budget, GPUs."""

    starts: str  # AT_ONCE, or AFTER_STOPS: when those it makes room have gone, at the latest after their grace
    placed: RunPlaced
    stops: list[dict[str, object]] = field(default_factory=list)
    later: list[str] = field(default_factory=list)  # workloads that would have got GPUs in this cycle and now do not


@dataclass
class Trials:
    """What is tried at one moment about one job."""

    moment: Moment
    workload: str
    most: int = TRIALS_MAX
    count: int = 0

    @cached_property
    def operator(self) -> str:
        """Return somebody who may do anything."""
        table = self.moment.core.state.principal
        return next(name for row, name in enumerate(table.keys) if name and table.operator[row])

    def outcome(self, edits: Iterable[Edit], name: str = "") -> Outcome | None:
        """Return what comes of the edits for the job, called ``name`` by then; None: refused, or it does not start.

        Raises ``OutOfTrials``.
        """
        if self.count >= self.most:
            raise OutOfTrials
        self.count += 1
        core, name = self.moment.copy(), name or self.workload
        for who, event in edits:
            before = len(core.state.refused)
            say(core, self.at_ms, who, event)
            if len(core.state.refused) > before:
                return None
        batch = self._cycle(core)
        if placed := _placed(batch, name):
            return Outcome(AT_ONCE, placed, self._stops(batch, name), self._later([batch], name))
        asked = [
            one
            for one in batch.decisions
            if isinstance(one, RunPreempted | RunMoved) and one.certificate.beneficiary == name
        ]
        if not asked:
            return None
        for stop in asked:
            lead = int(core.state.run.lead[core.state.run.row_of[f"{stop.workload}#{stop.run}"]])
            gone = RunFinished(workload=stop.workload, run=stop.run, node=core.state.node.keys[lead], outcome="stopped")
            say(core, self.at_ms, self.operator, gone)
        second = self._cycle(core)
        if placed := _placed(second, name):
            return Outcome(AFTER_STOPS, placed, self._stops(batch, name), self._later([batch, second], name))
        return None

    def works(self, edits: Iterable[Edit], name: str = "") -> bool:
        """Tell whether the job starts by the edits."""
        return self.outcome(edits, name) is not None

    @cached_property
    def at_ms(self) -> int:
        """Return the time of the tick."""
        if self.moment.core.state.counters.stated:
            return max(self.moment.core.time_ms, decode_envelope(self.moment.tick.body).at_ms)
        return max(self.moment.core.time_ms, self.moment.tick.stored_ms)

    def _cycle(self, core: Core) -> CycleBatch:
        tick = self.moment.tick
        core.fold(Record(core.seq + 1, tick.stored_ms, tick.subject, tick.body))
        return core.decide_unhashed()

    @cached_property
    def _unchanged(self) -> tuple[set[str], set[str]]:
        """Return who gets GPUs in the cycle as it was, and who was asked to go, as names of runs."""
        decisions = self.moment.cycle.decisions
        return _served(decisions), {f"{one.workload}#{one.run}" for one in decisions if isinstance(one, RunPreempted | RunMoved)}

    def _stops(self, batch: CycleBatch, name: str) -> list[dict[str, object]]:
        anyhow = self._unchanged[1]
        return [
            {
                "workload": one.workload, "run": one.run, "for": one.certificate.beneficiary,
                "budget": one.certificate.victim_budget if isinstance(one, RunPreempted) else "",
                "gpus_milli": one.certificate.victim_gpus_milli if isinstance(one, RunPreempted) else one.certificate.gpus_milli,
                "lost_gpu_us": one.certificate.lost_gpu_us, "moved": isinstance(one, RunMoved),
            }
            for one in batch.decisions
            if isinstance(one, RunPreempted | RunMoved)
            and (one.certificate.beneficiary == name or f"{one.workload}#{one.run}" not in anyhow)
        ]  # fmt: skip

    def _later(self, batches: list[CycleBatch], name: str) -> list[str]:
        now = set[str]().union(*(_served(batch.decisions) for batch in batches))
        return sorted(self._unchanged[0] - now - {name, self.workload})


def say(core: Core, at_ms: int, who: str, event: Event) -> None:
    """Fold an event that nobody has sent."""
    body = encode_event(event, event_id=f"imagined.{core.seq + 1}", at_ms=at_ms)
    core.fold(Record(core.seq + 1, at_ms, subject_of(who, EVENT_TYPES[type(event)]), body))


def least(values: Sequence[int], works: Callable[[int], bool]) -> int | None:
    """Return the first of ``values`` that works, if each after one that works does too; None when the last does not.

    Whatever is returned was tried and worked, whether that holds or not.
    """
    if not values or not works(values[-1]):
        return None
    low, high = 0, len(values) - 1
    while low < high:
        middle = (low + high) // 2
        if works(values[middle]):
            high = middle
        else:
            low = middle + 1
    return values[high]


def _served(decisions: Sequence[AnyDecision]) -> set[str]:
    """Return who starts, or has GPUs freed for him."""
    return {one.workload for one in decisions if isinstance(one, RunPlaced) or (isinstance(one, GpusReserved) and one.pieces)}


def _placed(batch: CycleBatch, name: str) -> RunPlaced | None:
    return next((one for one in batch.decisions if isinstance(one, RunPlaced) and one.workload == name), None)

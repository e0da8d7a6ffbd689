"""What each workload really needed, read from the history of its runs; and what a start, a restart and a stop cost here.

A workload's *service demand* is the useful run time after which each of its runs ended by itself, in order: once after 3 h with
exit code 1 and then after 5 h with success, say. Useful time is counted as the product counts it: from where a run resumed,
from the moment it had loaded its checkpoint (known by the progress its checkpoints state). ``Recorder`` is fed with reports and
decisions in order of the log; a pure function of them.

A workload that was not over at the end of the range is *censored*: its need is unknown beyond what was seen. The rule: it needs
what is drawn, by its name, from the needs of its like that exceed what it was seen to need; a distribution estimated with the
censored ones in it (Kaplan and Meier), for leaving out who still runs would make everybody short. Its like are jobs with a
stated limit, by the part of the limit they needed, or those without, by time. Where the draw is beyond all that ended it runs
to its limit, or to the end of the range. Equal histories give equal draws. Whoever uses such a need says so.
"""

from __future__ import annotations

import bisect
import zlib
from dataclasses import dataclass, field
from statistics import median_low
from typing import NamedTuple

from apportion.adapters.comparing.waits import kaplan_meier
from apportion.adapters.whatif.idleness import Idleness, Span
from apportion.core.decisions import CycleBatch, Piece, RunClosed, RunPlaced, RunStop, WorkloadClosed
from apportion.core.events import RunCheckpointed, RunStarted, WorkloadSubmitted
from apportion.core.reasons import Outcome
from apportion.core.units import NEVER_MS, PPM

RUNNING, WAITING, CANCELLED = "running", "waiting", "cancelled"
BY_ITSELF = (Outcome.SUCCEEDED.value, Outcome.FAILED.value)
SAMPLES_MAX = 20_000


class Asked(NamedTuple):
    """What a submission states."""

    budget: str
    gpus_milli: int
    limit_ms: int = 0
    checkpoint_ms: int = 0
    service: bool = False
    submit_ms: int = 0


class Ending(NamedTuple):
    """A run that ended by itself, after so much useful time of its workload."""

    progress_ms: int
    succeeded: bool
    exit_code: int = 0


class Failure(NamedTuple):
    """A start that failed: so long after its placement, who was blamed, and whether an agent said it or the limit passed."""

    after_ms: int
    nodes: tuple[str, ...]
    said: bool
    exit_code: int = 0


@dataclass(slots=True)
class Demand:
    """What is known of one workload."""

    endings: list[Ending] = field(default_factory=list)
    checkpoints_ms: list[int] = field(default_factory=list)  # useful time between two
    startups_ms: list[int] = field(default_factory=list)
    saved: list[bool] = field(default_factory=list)  # when it was stopped
    seen_ms: int = 0  # most useful time that it was seen to have done
    censored: str = WAITING  # "" = its need is known
    given_up: bool = False  # because no start succeeded


@dataclass(slots=True)
class Attempt:
    """A run as it was: where, and how far it came."""

    placed_ms: int
    resume_ms: int
    pieces: tuple[Piece, ...] = ()
    started_ms: int = 0
    works_from_ms: int = 0  # 0 = no checkpoint has told
    saved_ms: int = 0  # progress of its last checkpoint
    saved_at_ms: int = 0
    stop_ms: int = 0
    closed_ms: int = 0
    outcome: str = ""
    end_ms: int = 0
    failure: Failure | None = None  # of its start


class Lags(NamedTuple):
    """What starts and stops cost here, medians of what was recorded."""

    startup_ms: int
    restart_ms: int
    stop_ms: int
    saves_ppm: int  # of stopped runs that write checkpoints: how many wrote one more


class Recorder:
    """Recorded service demand of a range. ``attempts`` are all runs of it, by key."""

    def __init__(self) -> None:
        self.asked: dict[str, Asked] = {}
        self.demand: dict[str, Demand] = {}
        self.attempts: dict[str, Attempt] = {}
        self.idleness = Idleness()
        self._startups: list[int] = []
        self._restarts: list[int] = []
        self._stops: list[int] = []
        self._saves = [0, 0]  # how many of how many

    def submitted(self, event: WorkloadSubmitted, time_ms: int) -> None:
        """Note a submission; the first of a name counts."""
        if event.workload not in self.asked:
            self.asked[event.workload] = Asked(
                event.budget, event.gpus_milli, event.expected_runtime_ms, event.checkpoint_interval_ms,
                event.service is not None, time_ms,
            )  # fmt: skip

    def began_before(self, workload: str, asked: Asked, key: str = "", attempt: Attempt | None = None) -> None:
        """Note a workload, and its run, that the range finds in place."""
        self.asked[workload] = asked
        demand = self._of(workload)
        if attempt is not None:
            self.attempts[key] = attempt
            demand.censored = RUNNING

    def _of(self, workload: str) -> Demand:
        found = self.demand.get(workload)
        if found is None:
            found = self.demand[workload] = Demand()
        return found

    def started(self, event: RunStarted, time_ms: int) -> None:
        """Note a start; of a gang the lead's counts, which is the first that matters to the core, so the last one wins."""
        attempt = self.attempts.get(f"{event.workload}#{event.run}")
        if attempt is None or attempt.closed_ms or attempt.started_ms:
            return
        attempt.started_ms = time_ms
        lag_ms = time_ms - attempt.placed_ms
        self._of(event.workload).startups_ms.append(lag_ms)
        _sample(self._startups, lag_ms)

    def checkpointed(self, event: RunCheckpointed, time_ms: int) -> None:
        """Note a checkpoint: it tells since when the run works, and how often it saves."""
        attempt = self.attempts.get(f"{event.workload}#{event.run}")
        if attempt is None or attempt.closed_ms:
            return
        if not attempt.works_from_ms:
            attempt.works_from_ms = time_ms - (event.progress_ms - attempt.resume_ms)
            if attempt.resume_ms and attempt.started_ms:
                _sample(self._restarts, max(0, attempt.works_from_ms - attempt.started_ms))
        if not attempt.stop_ms:
            self.idleness.saved(f"{event.workload}#{event.run}")
            self._of(event.workload).checkpoints_ms.append(event.progress_ms - max(attempt.saved_ms, attempt.resume_ms))
        attempt.saved_ms, attempt.saved_at_ms = event.progress_ms, time_ms

    def listed(self, node: str, runs: tuple[str, ...], idle: tuple[str, ...], time_ms: int) -> None:
        """Note which of a node's runs do nothing."""
        self.idleness.listed(node, runs, idle, self._nodes_of, time_ms)

    def _nodes_of(self, key: str) -> int:
        """Return how many nodes a run in progress has."""
        attempt = self.attempts.get(key)
        return 0 if attempt is None or attempt.closed_ms else len(dict.fromkeys(piece.node for piece in attempt.pieces))

    def cycle(self, batch: CycleBatch) -> None:
        """Note what a cycle decided about runs."""
        for decision in batch.decisions:
            if isinstance(decision, RunPlaced):
                key = f"{decision.workload}#{decision.run}"
                self.attempts[key] = Attempt(batch.time_ms, decision.resume_from_ms, decision.pieces)
                self._of(decision.workload).censored = RUNNING
            elif isinstance(decision, RunClosed):
                self._closed(decision, batch.time_ms)
            elif isinstance(decision, WorkloadClosed):
                demand = self._of(decision.workload)
                demand.censored = "" if decision.outcome in BY_ITSELF else CANCELLED
                demand.given_up = decision.outcome == Outcome.START_FAILED.value
            elif isinstance(decision, RunStop):
                attempt = self.attempts.get(f"{decision.workload}#{decision.run}")
                if attempt is not None:
                    attempt.stop_ms = batch.time_ms

    def _closed(self, closed: RunClosed, time_ms: int) -> None:
        attempt = self.attempts.get(f"{closed.workload}#{closed.run}")
        if attempt is None:
            return
        attempt.closed_ms, attempt.outcome, attempt.end_ms = time_ms, closed.outcome, closed.end_ms
        if closed.outcome == Outcome.START_FAILED.value:
            after_ms, said = closed.end_ms - attempt.placed_ms, closed.event_seq > 0
            attempt.failure = Failure(after_ms, closed.blamed, said, closed.exit_code)
        demand = self._of(closed.workload)
        done_ms = self.progress_ms(attempt, closed.end_ms)
        self._over(f"{closed.workload}#{closed.run}", attempt, done_ms)
        demand.seen_ms = max(demand.seen_ms, done_ms)
        if closed.outcome in BY_ITSELF:
            demand.endings.append(Ending(done_ms, closed.outcome == Outcome.SUCCEEDED.value, closed.exit_code))
        elif attempt.stop_ms and closed.event_seq and attempt.started_ms:
            _sample(self._stops, closed.end_ms - attempt.stop_ms)
            if demand.checkpoints_ms:
                saved = attempt.saved_at_ms >= attempt.stop_ms
                demand.saved.append(saved)
                self._saves = [self._saves[0] + saved, self._saves[1] + 1]

    def _over(self, key: str, attempt: Attempt, done_ms: int) -> None:
        self.idleness.over(key, attempt.resume_ms, done_ms, lambda at_ms: self.progress_ms(attempt, at_ms))

    def progress_ms(self, attempt: Attempt, at_ms: int) -> int:
        """Return the useful time of the workload at an instant of one of its runs."""
        if not attempt.started_ms:
            return attempt.resume_ms
        works_from_ms = attempt.works_from_ms or attempt.started_ms + (
            self.lags().restart_ms if attempt.resume_ms else 0
        )
        return attempt.resume_ms + max(0, at_ms - works_from_ms)

    def note_start(self, attempt: Attempt) -> None:
        """Note what the start of a run cost that is known already."""
        _sample(self._startups, attempt.started_ms - attempt.placed_ms)
        if attempt.resume_ms and attempt.works_from_ms:
            _sample(self._restarts, max(0, attempt.works_from_ms - attempt.started_ms))

    def lags(self) -> Lags:
        """Return the costs of starts and stops seen so far."""
        saves, stops = self._saves
        return Lags(
            _median(self._startups), _median(self._restarts), _median(self._stops), PPM * saves // max(1, stops)
        )

    def given_up(self) -> frozenset[str]:
        """Return the workloads that were closed because no start succeeded."""
        return frozenset(workload for workload, demand in self.demand.items() if demand.given_up)

    def finish(self, end_ms: int) -> None:
        """Note how far the runs that still run at the end have come."""
        for key, attempt in self.attempts.items():
            if not attempt.closed_ms:
                demand, done_ms = self._of(key.rpartition("#")[0]), self.progress_ms(attempt, end_ms)
                demand.seen_ms = max(demand.seen_ms, done_ms)
                self._over(key, attempt, done_ms)


class Survival:
    """How many last longer than a value, from values that are known and values that are known to be exceeded."""

    def __init__(self) -> None:
        self._known: list[int] = []
        self._exceeded: list[int] = []
        self._steps: tuple[list[int], list[int]] | None = None  # values, and the part up to each, both rising

    def add(self, value: int, *, known: bool) -> None:
        """Take a value in; not ``known``: the true one is above it."""
        (self._known if known else self._exceeded).append(value)
        self._steps = None

    def beyond(self, value: int, draw_ppm: int) -> int | None:
        """Return the quantile ``draw_ppm`` of the values above ``value``; None where it is above all that are known."""
        if self._steps is None:
            steps = kaplan_meier(self._known, self._exceeded)
            self._steps = [each for each, _part in steps], [part_ppm for _each, part_ppm in steps]
        values, parts_ppm = self._steps
        place = bisect.bisect_right(values, value)
        left_ppm = PPM - (parts_ppm[place - 1] if place else 0)
        wanted_ppm = PPM - left_ppm * (PPM - draw_ppm) // PPM
        found = bisect.bisect_left(parts_ppm, wanted_ppm, lo=place)
        return values[found] if found < len(values) else None


class Needs:
    """Needs by workload, known or by the rule for censored ones; what of it was used is counted in ``assumed``.

    The recorder must be finished: what is asked of a workload again and again is worked out once.
    """

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self._every_ms: dict[str, int] = {}  # between two checkpoints, by workload
        self.lags = recorder.lags()
        self.assumed: dict[str, str] = {}  # workload -> why its need is not known
        parts, times = Survival(), Survival()
        for workload, demand in recorder.demand.items():
            asked = recorder.asked.get(workload)
            if asked is None or asked.service or not (demand.endings or demand.seen_ms):
                continue
            known = not demand.censored and bool(demand.endings)
            need_ms = demand.endings[-1].progress_ms if known else demand.seen_ms
            if asked.limit_ms:
                parts.add(min(PPM, need_ms * PPM // asked.limit_ms), known=known)
            else:
                times.add(need_ms, known=known)
        self._parts, self._times = parts, times

    def ending(self, workload: str, ended: int) -> Ending | None:
        """Return how the workload's run ends that comes after ``ended`` others which ended by themselves; None: it does not."""
        demand, asked = self.recorder.demand.get(workload), self.recorder.asked.get(workload)
        if demand is not None and ended < len(demand.endings):
            return demand.endings[ended]
        if asked is None or asked.service:
            return None  # a replica lives until it is retired
        self.assumed[workload] = demand.censored if demand is not None and demand.censored else WAITING
        need_ms = self.guess(workload, asked, demand.seen_ms if demand is not None else 0)
        return Ending(need_ms, succeeded=True) if need_ms < NEVER_MS else None

    def guess(self, workload: str, asked: Asked, seen_ms: int) -> int:
        """Return the need of a censored workload by the rule; ``NEVER_MS``: it runs to the end of the range."""
        draw_ppm = zlib.crc32(f"need {workload}".encode()) % PPM
        if asked.limit_ms > seen_ms:
            part_ppm = self._parts.beyond(seen_ms * PPM // asked.limit_ms, draw_ppm)
            return asked.limit_ms if part_ppm is None else max(seen_ms + 1, asked.limit_ms * part_ppm // PPM)
        need_ms = self._times.beyond(seen_ms, draw_ppm)
        return NEVER_MS if need_ms is None else need_ms

    def idle(self, workload: str, progress_ms: int) -> Span | None:
        """Return the part of its work, around that useful time, in which a workload does nothing; None where it works."""
        return self.recorder.idleness.at(workload, progress_ms)

    def startup_ms(self, workload: str) -> int:
        """Return how long a start takes: as it did, else the median of all."""
        demand = self.recorder.demand.get(workload)
        return median_low(demand.startups_ms) if demand is not None and demand.startups_ms else self.lags.startup_ms

    def checkpoint_ms(self, workload: str) -> int:
        """Return the useful time between two checkpoints: as recorded, else as stated; 0 = it writes none."""
        every_ms = self._every_ms.get(workload)
        if every_ms is None:
            every_ms = self._every_ms[workload] = self._checkpoint_ms(workload)
        return every_ms

    def _checkpoint_ms(self, workload: str) -> int:
        demand, asked = self.recorder.demand.get(workload), self.recorder.asked.get(workload)
        if demand is not None and demand.checkpoints_ms:
            return max(1_000, median_low(demand.checkpoints_ms))
        ran = demand is not None and demand.seen_ms > 0
        stated_ms = asked.checkpoint_ms if asked is not None else 0
        return 0 if ran and demand is not None and demand.seen_ms > 2 * stated_ms else stated_ms

    def saves_on_stop(self, workload: str) -> bool:
        """Tell whether it writes a checkpoint when asked to stop: as it did, else for as many as did, chosen by name."""
        demand = self.recorder.demand.get(workload)
        if not self.checkpoint_ms(workload):
            return False
        if demand is not None and demand.saved:
            return demand.saved[-1]
        return zlib.crc32(workload.encode()) % PPM < self.lags.saves_ppm


def _sample(samples: list[int], value: int) -> None:
    if len(samples) < SAMPLES_MAX:
        bisect.insort(samples, value)


def _median(samples: list[int]) -> int:
    return samples[(len(samples) - 1) // 2] if samples else 0

"""Looking ahead: the newest state played on with one more request, and without it; nothing else arrives.

Answers when a job would start, where, at whose cost, who would make room, and who would start later because of it: by the
production core on a copy of its state, never by an estimate beside it. What it has to assume is how long jobs run, and there are
two bases. By *limits*: every job needs what it states, one that states nothing a day, as the core itself takes it when it plans;
one that has done more than that runs on. By *forecast*: the median that a forecaster has published, where it has. Start-up and
the answer to a stop cost nothing, checkpoints come as the last two did. All nodes that are heard of now stay; traffic of services
stays as it is. The farther ahead, the coarser are the instants: seconds, then minutes, after an hour five, after six hours
fifteen.

Pure functions of a core, which is copied; they write nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from apportion.adapters.simulation.stated import stated
from apportion.adapters.whatif.demand import Asked, Ending, Lags, Needs
from apportion.adapters.whatif.history import Entry, History, Reader
from apportion.adapters.whatif.playing import MADE, Change, OnProgress, Play
from apportion.core.decisions import (
    CycleBatch,
    FundingChanged,
    PendingExplained,
    RunClosed,
    RunPlaced,
    RunPreempted,
    WorkloadClosed,
    WorkloadRejected,
)
from apportion.core.engine import Core
from apportion.core.envelope import subject_of
from apportion.core.events import NodeHeartbeat, WorkloadSubmitted, encode_event
from apportion.core.units import MS_PER_DAY, MS_PER_HOUR, UNKNOWN_RUNTIME_MS, gpu_us

Basis = Literal["limits", "forecast"]
AHEAD_MS = 3 * MS_PER_DAY
TICK_AFTER_MS = 1_000
MS_PER_MINUTE = 60_000


class Coarser:
    """Ticks as the leader writes them at first, then on a grid that grows with the distance: what is far is not known better."""

    grid_ms = 0
    STEPS = ((30_000, TICK_AFTER_MS), (MS_PER_HOUR, MS_PER_MINUTE), (6 * MS_PER_HOUR, 5 * MS_PER_MINUTE))
    FAR_MS = 15 * MS_PER_MINUTE

    def __init__(self, from_ms: int) -> None:
        self._from_ms = from_ms

    def tick_ms(self, asked_ms: int) -> int:
        """Return when the tick comes that is asked for."""
        ahead_ms = asked_ms - self._from_ms
        step_ms = next((step_ms for up_to_ms, step_ms in self.STEPS if ahead_ms < up_to_ms), self.FAR_MS)
        return self._from_ms + (ahead_ms // step_ms + 1) * step_ms


class StatedNeeds(Needs):
    """Needs as stated or forecast, of what is in the core's tables and of what is added."""

    def __init__(self, core: Core, history: History, basis: Basis, extra: Sequence[WorkloadSubmitted]) -> None:
        super().__init__(history.recorder)
        self.lags = Lags(0, 0, 0, 1_000_000)
        table, run = core.state.workload, core.state.run
        self._need_ms: dict[str, int] = {}
        self._gap_ms: dict[str, int] = {}
        self.without_end = 0  # running, and beyond what they stated
        self.unstated = 0  # running or waiting, and nothing says how long: each is taken to run for a day
        for name, row in table.row_of.items():
            stated_ms = int(table.expected_runtime_ms[row]) or UNKNOWN_RUNTIME_MS
            forecast_ms = int(table.forecast_ms[row])
            need_ms = forecast_ms if basis == "forecast" and forecast_ms else stated_ms
            guessed = not table.service[row] and not (basis == "forecast" and forecast_ms) and not table.expected_runtime_ms[row]
            at = int(table.run[row])
            if at >= 0:
                self._gap_ms[name] = int(run.checkpoint_gap_ms[at])
                begun_ms = int(run.started_ms[at]) or int(run.placed_ms[at])
                done_ms = int(run.resume_ms[at]) + max(0, core.time_ms - begun_ms)
                if done_ms >= need_ms:
                    self.without_end += 1
                    continue
            self.unstated += guessed
            self._need_ms[name] = need_ms
        for event in extra:
            self.unstated += not event.expected_runtime_ms
            self._need_ms[event.workload] = event.expected_runtime_ms or UNKNOWN_RUNTIME_MS
            self._gap_ms[event.workload] = event.checkpoint_interval_ms
            history.recorder.asked[event.workload] = Asked(event.budget, event.gpus_milli)

    def ending(self, workload: str, ended: int) -> Ending | None:
        """Return when it is over by what is stated; None for what does not end."""
        need_ms = self._need_ms.get(workload)
        asked = self.recorder.asked.get(workload)
        return None if need_ms is None or (asked is not None and asked.service) else Ending(need_ms, succeeded=True)

    def startup_ms(self, _workload: str) -> int:
        """Return the least a start takes."""
        return 1

    def checkpoint_ms(self, workload: str) -> int:
        """Return the time between its last two checkpoints, or as it states."""
        return self._gap_ms.get(workload, 0)

    def saves_on_stop(self, workload: str) -> bool:
        """Tell whether it writes checkpoints."""
        return self.checkpoint_ms(workload) > 0


@dataclass
class Ahead:
    """What would become of a request, by one basis. Instants are of the log; None = not within ``to_ms``."""

    basis: Basis
    from_ms: int
    to_ms: int
    refusal: WorkloadRejected | None = None
    placed: RunPlaced | None = None
    start_ms: int | None = None
    end_ms: int | None = None
    waits: PendingExplained | None = None  # why it does not start at once
    victims: list[RunPreempted] = field(default_factory=list)  # that would make room for it
    funded_gpu_us: int = 0
    unfunded_gpu_us: int = 0
    preempted: int = 0  # how often it would itself make room
    later: list[tuple[str, str, int, int, int | None]] = field(default_factory=list)  # job, budget, milli, start without, with
    without_end: int = 0  # running jobs beyond what they stated
    unstated: int = 0  # jobs, this one counted, of which nothing says how long they run


class _Watch:
    """First starts of all, and everything about one workload."""

    def __init__(self, workload: str) -> None:
        self.workload = workload
        self.first: dict[str, tuple[int, str, int]] = {}
        self.batches: list[CycleBatch] = []
        self.last_ms = 0
        self.over = False

    def take(self, batch: CycleBatch) -> None:
        self.last_ms = batch.time_ms
        mine = False
        for decision in batch.decisions:
            if isinstance(decision, RunPlaced):
                self.first.setdefault(decision.workload, (batch.time_ms, decision.budget, decision.gpus_milli))
            elif isinstance(decision, RunPreempted) and decision.certificate.beneficiary == self.workload:
                mine = True
            if getattr(decision, "workload", "") == self.workload:
                mine = True
                self.over |= isinstance(decision, WorkloadClosed | WorkloadRejected)
        if mine:
            self.batches.append(batch)


def look_ahead(
    core: Core, event: WorkloadSubmitted, principal: str, *, basis: Basis = "limits", ahead_ms: int = AHEAD_MS,
    progress: OnProgress | None = None,
) -> Ahead:  # fmt: skip
    """Return what would become of a submission that arrived now."""
    with_it = _Watch(event.workload)
    needs = _play(core, with_it, [(event, principal)], basis, core.time_ms + ahead_ms, progress)
    found = _about(core, with_it, event, basis)
    found.without_end, found.unstated = needs.without_end, needs.unstated
    if found.refusal is not None:
        return found
    without = _Watch(event.workload)
    _play(core, without, [], basis, with_it.last_ms, progress)
    for workload, (at_ms, budget, milli) in without.first.items():
        then = with_it.first.get(workload)
        if then is None or then[0] > at_ms:
            found.later.append((workload, budget, milli, at_ms, then[0] if then is not None else None))
    found.later.sort(key=lambda one: (-(one[4] or found.to_ms) + one[3], one[0]))
    return found


def has_forecasts(core: Core) -> bool:
    """Tell whether a forecaster has said of any workload how long it runs."""
    return bool((core.state.workload.column("forecast_ms") > 0).any())


def _play(
    core: Core, watch: _Watch, more: Sequence[tuple[WorkloadSubmitted, str]], basis: Basis, to_ms: int, progress: OnProgress | None
) -> StatedNeeds:
    history = Reader(core).finish()
    history.to_ms = to_ms
    _hear(core, history)
    needs = StatedNeeds(core, history, basis, [event for event, _by in more])
    events = tuple(stated(core.time_ms, by, event, f"{MADE}.{event.workload}") for event, by in more)
    stop = (lambda: watch.over) if more else None
    pace = Coarser(core.time_ms)
    Play(history, needs, Change(events), watch.take, remake_all=True, told=bool(more), pace=pace, stop=stop).run(progress)
    return needs


def _hear(core: Core, history: History) -> None:
    """Let every node that is heard of now go on saying what it said last."""
    state, every_ms = core.state, max(1_000, int(core.state.pool.column("heartbeat_timeout_ms").min()) // 3)
    alive = [row for row in state.node.row_of.values() if int(state.node.gpus[row]) and not int(state.node.silent[row])]
    for number, at_ms in enumerate(range(core.time_ms + 1, history.to_ms, every_ms), 1):
        for row in alive:
            name, beat = state.node.keys[row], int(state.node.beat[row]) + number
            subject = subject_of(state.principal.keys[int(state.node.agent[row])], "node.heartbeat")
            if not int(state.node.broken[row]):
                history.beats.add(0, at_ms, subject, name, beat)
                continue
            first = int(state.node.first_gpu[row])
            broken = tuple(gpu for gpu in range(int(state.node.gpus[row])) if int(state.gpu.broken[first + gpu]))
            body = encode_event(NodeHeartbeat(node=name, beat=beat, gpus_down=broken), event_id=f"{name}.{beat}", at_ms=at_ms)
            history.entries.append(Entry(0, at_ms, "", name, subject, body))  # as it is: nobody has to die of it now


def _about(core: Core, watch: _Watch, event: WorkloadSubmitted, basis: Basis) -> Ahead:
    found = Ahead(basis, core.time_ms, watch.last_ms)
    held: tuple[bool, int, int] | None = None
    closed_ms: int | None = None  # end of its last run: the cycle that learns of it may come later

    def pay(until_ms: int) -> None:
        if held is not None:
            amount = gpu_us(held[2], max(0, until_ms - held[1]))
            found.funded_gpu_us += amount if held[0] else 0
            found.unfunded_gpu_us += 0 if held[0] else amount

    for batch in watch.batches:
        for decision in batch.decisions:
            if isinstance(decision, RunPreempted) and decision.certificate.beneficiary == event.workload:
                found.victims += [decision] if found.start_ms is None else []
            if getattr(decision, "workload", "") != event.workload:
                continue
            if isinstance(decision, WorkloadRejected):
                found.refusal = decision
            elif isinstance(decision, RunPlaced):
                if found.placed is None:
                    found.placed, found.start_ms = decision, batch.time_ms
                held = (decision.payer == "budget", batch.time_ms, decision.gpus_milli)
            elif isinstance(decision, FundingChanged) and held is not None:
                pay(batch.time_ms)
                held = (decision.payer == "budget", batch.time_ms, held[2])
            elif isinstance(decision, RunClosed):
                pay(decision.end_ms)
                held, closed_ms = None, decision.end_ms
            elif isinstance(decision, RunPreempted):
                found.preempted += 1
            elif isinstance(decision, PendingExplained) and found.start_ms is None:
                found.waits = found.waits or decision
            elif isinstance(decision, WorkloadClosed):
                found.end_ms = closed_ms if closed_ms is not None else batch.time_ms
    pay(watch.last_ms)
    return found

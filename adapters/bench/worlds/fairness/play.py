"""A light world around ``Core``: what is placed starts at once, works to its end, and saves when it is asked to stop.

Decides nothing about scheduling: jobs and scripted events go in, decisions come out, and the world answers them. Everything
happens at whole minutes, except that a run asked to stop is gone ``STOP_MS`` after it; its GPUs are taken up by the next cycle.
A resumed run first loads its checkpoint for ``setting.restart_ms``. Nodes never fail, and speak just often enough to be alive.

Pure function of setting, jobs and script. For speed, batches are not hashed; the decisions are those that ``Core.decide`` writes.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from functools import partial
from typing import Literal, NamedTuple, Protocol

from apportion.adapters.comparing.setting import START_MS, Setting, node_name, opening
from apportion.adapters.simulation.job import Job
from apportion.adapters.simulation.stated import OPERATOR, Stated, stated, tick_event
from apportion.core.decisions import CycleBatch, RunPlaced, RunStop
from apportion.core.engine import Core
from apportion.core.envelope import Record
from apportion.core.events import (
    NodeHeartbeat,
    RunCheckpointed,
    RunFinished,
    RunStarted,
    WorkloadCancelled,
    WorkloadSubmitted,
)
from apportion.core.units import MILLI, MS_PER_HOUR

STOP_MS = 20_000
BEAT_MS = 6 * MS_PER_HOUR

Limits = Literal["exact", "loose", "none"]  # the run time people state: the true one, 1 to 4 times it, nothing
What = Stated | Callable[[], Stated | None]


class Watcher(Protocol):
    """Whoever looks at the play: is shown every batch, with the core as it is after it."""

    def take(self, core: Core, batch: CycleBatch) -> None:
        """Look at one batch."""
        ...


class _Live(NamedTuple):
    """A run in progress."""

    number: int
    node: str
    works_from_ms: int
    resume_from_ms: int


class Play:
    """One world and its core."""

    def __init__(
        self,
        setting: Setting,
        jobs: Iterable[Job],
        watchers: Iterable[Watcher] = (),
        *,
        script: Iterable[Stated] = (),
        withdrawals: Iterable[tuple[int, tuple[str, ...]]] = (),  # (at_ms, budgets whose work is all cancelled then)
        limits: Limits = "exact",
    ) -> None:
        self.setting = setting
        self.core = Core.new()
        self.now_ms = START_MS
        self._watchers = tuple(watchers)
        self._limits = limits
        self._duration_ms: dict[str, int] = {}
        self._live: dict[str, _Live] = {}
        self._seq = 0
        self._coming: list[tuple[int, int, What]] = []
        self._order = 0
        self._jobs = iter(jobs)
        self._next_job = next(self._jobs, None)
        for event in opening(setting):
            self._fold(event)
        for event in script:
            self._at(event.at_ms, event)
        for at_ms, budgets in withdrawals:
            self._at(at_ms, partial(self._withdraw, at_ms, budgets))
        self._beats = 0
        self._at(START_MS + BEAT_MS, self._beat)

    def run(self, until_ms: int, progress: Callable[[int], None] | None = None) -> None:
        """Play cycle after cycle up to ``until_ms``."""
        while self.now_ms < until_ms:
            self._cycle()
            self.now_ms += self.setting.cycle_ms
            if progress is not None:
                progress(self.now_ms)

    def _at(self, at_ms: int, what: What) -> None:
        self._order += 1
        heapq.heappush(self._coming, (at_ms, self._order, what))

    def _fold(self, event: Stated) -> bool:
        self._seq += 1
        return self.core.fold(Record(self._seq, event.at_ms, event.subject, event.body))

    def _cycle(self) -> None:
        """Fold what happened up to now, then a tick, and answer its batch."""
        while self._coming and self._coming[0][0] <= self.now_ms:
            _at_ms, _order, what = heapq.heappop(self._coming)
            event = what if isinstance(what, Stated) else what()
            if event is not None:
                self._fold(event)
        while self._next_job is not None and START_MS + self._next_job.submit_ms <= self.now_ms:
            self._fold(self._submission(self._next_job))
            self._next_job = next(self._jobs, None)
        self._fold(tick_event(self.now_ms, self.core.cycle + 1))
        batch = self.core.decide_unhashed()
        for decision in batch.decisions:
            if isinstance(decision, RunPlaced):
                self._place(decision)
            elif isinstance(decision, RunStop):
                self._stop(decision.workload)
        for watcher in self._watchers:
            watcher.take(self.core, batch)

    def _submission(self, job: Job) -> Stated:
        self._duration_ms[job.job_id] = job.duration_ms
        exact_ms = job.duration_ms + self.setting.restart_ms
        if self._limits == "none":
            limit_ms = 0
        elif self._limits == "exact":
            limit_ms = exact_ms
        else:  # people state 1 to 4 times what they need, in steps of half an hour
            spread = sum(job.job_id.encode()) % 7
            limit_ms = -(-exact_ms * (2 + spread) // 2 // (MS_PER_HOUR // 2)) * (MS_PER_HOUR // 2)
        event = WorkloadSubmitted(
            workload=job.job_id,
            budget=job.program,
            pools=(self.setting.pool,),
            gpus_milli=job.gpus * MILLI,
            expected_runtime_ms=limit_ms,
        )
        return stated(START_MS + job.submit_ms, OPERATOR, event, f"submit.{job.job_id}")

    def _place(self, placed: RunPlaced) -> None:
        workload, at_ms = placed.workload, self.now_ms
        node = placed.pieces[0].node
        works_from_ms = at_ms + (self.setting.restart_ms if placed.run > 1 else 0)
        self._live[workload] = _Live(placed.run, node, works_from_ms, placed.resume_from_ms)
        started = RunStarted(workload=workload, run=placed.run, node=node)
        self._fold(stated(at_ms, node, started, f"start.{workload}.{placed.run}"))
        ends_ms = works_from_ms + self._duration_ms[workload] - placed.resume_from_ms

        def ends() -> Stated | None:
            live = self._live.get(workload)
            if live is None or live.number != placed.run:
                return None  # it was stopped before
            del self._live[workload]
            finished = RunFinished(workload=workload, run=placed.run, node=node, outcome="succeeded")
            return stated(ends_ms, node, finished, f"end.{workload}.{placed.run}")

        self._at(ends_ms, ends)

    def _stop(self, workload: str) -> None:
        run = self._live.pop(workload)
        progress_ms = run.resume_from_ms + max(0, self.now_ms - run.works_from_ms)
        saved = RunCheckpointed(workload=workload, run=run.number, progress_ms=progress_ms)
        stopped = RunFinished(workload=workload, run=run.number, node=run.node, outcome="stopped")
        at_ms = self.now_ms + STOP_MS
        self._at(at_ms, stated(at_ms, run.node, saved, f"save.{workload}.{run.number}"))
        self._at(at_ms, stated(at_ms, run.node, stopped, f"stop.{workload}.{run.number}"))

    def _withdraw(self, at_ms: int, budgets: tuple[str, ...]) -> None:
        table, lines = self.core.state.workload, self.core.state.budget.row_of
        rows = {lines[f"{self.setting.pool}:{path}"] for path in budgets}
        for row in table.live_rows():
            if int(table.budget[row]) in rows:
                event = WorkloadCancelled(workload=table.keys[row])
                self._fold(stated(at_ms, OPERATOR, event, f"cancel.{table.keys[row]}"))

    def _beat(self) -> None:
        self._beats += 1
        at_ms = self.now_ms
        for position in range(self.setting.nodes):
            node = node_name(position)
            self._fold(stated(at_ms, node, NodeHeartbeat(node=node, beat=self._beats), f"beat.{node}.{self._beats}"))
        self._at(at_ms + BEAT_MS, self._beat)

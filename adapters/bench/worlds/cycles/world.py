"""A world that keeps a ``Core`` as busy as it is told to: events in, cycles timed, agents that answer at once.

Decides nothing about scheduling. What is placed is reported started in the same instant; a run ends when ``end`` says so, oldest
first by a draw; a run that is asked to stop has saved and is gone before the next cycle. Records are folded one by one, like those
of a live log, and none is kept. A pure function of its arguments but for the clock, which only measures.
"""

from __future__ import annotations

import time
from typing import NamedTuple

import msgspec

from apportion.adapters.bench.worlds.cycles.setting import jobs, setting_of
from apportion.adapters.comparing.setting import START_MS, node_name, opening
from apportion.adapters.simulation.dice import Dice
from apportion.adapters.simulation.stated import OPERATOR, Stated, stated, tick_event
from apportion.core.decisions import CycleBatch, RunPlaced, RunPreempted, RunStop, encode_batch
from apportion.core.engine import Core
from apportion.core.envelope import Record
from apportion.core.events import (
    Event,
    NodeCordoned,
    NodeUncordoned,
    RunCheckpointed,
    RunFinished,
    RunStarted,
    WorkloadSubmitted,
)
from apportion.core.state.digest import digest


class Taken(NamedTuple):
    """What one cycle took, in milliseconds of CPU time, and what it decided."""

    decide_ms: float  # fold of its own decisions included
    hash_ms: float  # the digest of the state after it
    encode_ms: float  # the bytes of its batch
    batch: CycleBatch

    @property
    def started(self) -> int:
        """Runs it started."""
        return sum(isinstance(decision, RunPlaced) for decision in self.batch.decisions)

    @property
    def preempted(self) -> int:
        """Runs it asked to stop for others."""
        return sum(isinstance(decision, RunPreempted) for decision in self.batch.decisions)


class World:
    """One cluster, and its core."""

    def __init__(self, nodes: int, seed: int = 1, *, movable: bool = False) -> None:
        self.setting = setting_of(nodes)
        self.core = Core.new()
        self.now_ms = START_MS
        self._seq = 0
        made = jobs(self.setting, seed)
        self._jobs = (msgspec.structs.replace(job, movable=True) for job in made) if movable else made
        self._dice = Dice(seed, "cycles", "ends")
        self.live: dict[str, tuple[int, str]] = {}  # workload -> number of its run, node of its agent
        for event in opening(self.setting):
            self.fold(event)

    def fold(self, event: Stated) -> None:
        """Fold one event."""
        self._seq += 1
        self.core.fold(Record(self._seq, event.at_ms, event.subject, event.body))

    def say(self, event: Event, who: str = OPERATOR) -> None:
        """Fold what somebody says now."""
        self.fold(stated(self.now_ms, who, event, f"event.{self._seq}"))

    def submit(self, count: int) -> None:
        """Take the next ``count`` jobs in."""
        for _job in range(count):
            self.say(next(self._jobs))

    def ask(self, submission: WorkloadSubmitted) -> None:
        """Take a job in that somebody made."""
        self.say(submission)

    def close(self) -> None:
        """Cordon all nodes: what is submitted then waits."""
        for number in range(self.setting.nodes):
            self.say(NodeCordoned(node=node_name(number)))

    def open(self) -> None:
        """Take all nodes into service."""
        for number in range(self.setting.nodes):
            self.say(NodeUncordoned(node=node_name(number)))

    def end(self, count: int) -> None:
        """Let ``count`` of the runs in progress end, drawn evenly."""
        names = list(self.live)
        for _end in range(min(count, len(names))):
            at = self._dice.below(len(names))
            names[at], names[-1] = names[-1], names[at]
            workload = names.pop()
            run, node = self.live.pop(workload)
            self.say(RunFinished(workload=workload, run=run, node=node, outcome="succeeded"), node)

    def cycle(self, after_ms: int) -> Taken:
        """Let time pass, decide a cycle, and answer it."""
        self.tick(after_ms)
        return self.decide()

    def tick(self, after_ms: int) -> None:
        """Let time pass, and ask for a cycle."""
        self.now_ms += after_ms
        self.fold(tick_event(self.now_ms, self.core.cycle + 1))

    def decide(self) -> Taken:
        """Decide the cycle that was asked for, and answer it."""
        began = time.process_time()
        batch = self.core.decide_unhashed()
        decided = time.process_time()
        digest(self.core.state)
        hashed = time.process_time()
        encode_batch(batch)
        encoded = time.process_time()
        self._answer(batch)
        return Taken(1_000 * (decided - began), 1_000 * (hashed - decided), 1_000 * (encoded - hashed), batch)

    def _answer(self, batch: CycleBatch) -> None:
        for decision in batch.decisions:
            if isinstance(decision, RunPlaced):
                node = decision.pieces[0].node
                self.live[decision.workload] = decision.run, node
                self.say(RunStarted(workload=decision.workload, run=decision.run, node=node), node)
            elif isinstance(decision, RunStop):
                run, node = self.live.pop(decision.workload)
                ran_ms = self.now_ms - int(self.core.state.run.placed_ms[self.core.state.run.row_of[f"{decision.workload}#{run}"]])
                self.say(RunCheckpointed(workload=decision.workload, run=run, progress_ms=ran_ms), node)
                self.say(RunFinished(workload=decision.workload, run=run, node=node, outcome="stopped"), node)

"""The runs of a world that is played again: as recorded for as long as they are the same, made again from then on.

A run *is as it was* when it is placed at the recorded instant on the recorded GPUs with the recorded progress, and nobody has
stopped or closed it otherwise than then; its reports are those of history. Every other run is *remade*: it starts after the
workload's usual start-up, or fails to where its node or its workload is in trouble (``failed_starts``), loads its checkpoint,
saves as often as it did, does nothing where its workload did nothing (``idleness``), ends when its demand is met
(``demand.Needs``), answers a stop as it did, and dies with its node where history says that the node lost its processes. A
broken GPU ends it at once.

``of_history`` filters the records of the range, ``until`` returns what remade runs report, ``react`` takes a cycle. Pure
functions of the history and the decisions so far; the core's state is read to take over a run in progress, and never written.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import msgspec

from apportion.adapters.whatif.beats import Item
from apportion.adapters.whatif.demand import BY_ITSELF, Attempt, Failure, Needs
from apportion.adapters.whatif.failed_starts import FailedStarts
from apportion.adapters.whatif.history import BEAT, REPORTS, UNREADABLE, Cycle, Entry, History, event_of
from apportion.adapters.whatif.idleness import Span
from apportion.adapters.whatif.in_place import attempt_of
from apportion.core.decisions import CycleBatch, Piece, RunClosed, RunPlaced, RunStop
from apportion.core.envelope import Whole, subject_of
from apportion.core.events import (
    EVENT_TYPES,
    NEWEST,
    Event,
    NodeHeartbeat,
    RunCheckpointed,
    RunFinished,
    RunLost,
    RunStarted,
    encode_event,
)
from apportion.core.reasons import Outcome
from apportion.core.state import schema
from apportion.core.units import NEVER_MS

if TYPE_CHECKING:
    from apportion.core.engine import Core

SECOND_MS = 1_000
BROKEN_EXIT = 74


@dataclass(slots=True, eq=False)
class Remade:
    """A run that is made again."""

    key: str
    workload: str
    number: int
    pieces: tuple[Piece, ...]
    placed_ms: int
    resume_ms: int
    started: bool = False
    works_from_ms: int = 0
    saved_ms: int = 0
    stop_by_ms: int = 0
    token: int = 0  # rises when what was planned for it no longer holds
    failure: Failure | None = None  # its start fails
    failing: str = ""  # by the trouble of this node; "" = by its own

    def progress_ms(self, at_ms: int) -> int:
        """Return the useful time of its workload at an instant."""
        return self.resume_ms + max(0, at_ms - self.works_from_ms)


_beats = msgspec.json.Decoder(Whole[NodeHeartbeat])


def _heartbeat_of(entry: Entry) -> NodeHeartbeat | None:
    """Return what a heartbeat says, in one pass where it is of the newest version; None when it cannot be read."""
    try:
        said = _beats.decode(entry.body)
    except UNREADABLE:
        said = None
    if said is not None and said.type == BEAT and said.v == NEWEST[BEAT]:
        return said.data
    event = event_of(entry)
    return event if isinstance(event, NodeHeartbeat) else None


class RemadeWorld:
    """All runs of one play. ``remake_all``: no run is as it was, so that the model can be compared with history."""

    def __init__(self, history: History, needs: Needs, core: Core, *, remake_all: bool = False) -> None:
        self.needs = needs
        self.deviated = remake_all
        self.remade_runs = 0
        self._core = core
        self._attempts = history.recorder.attempts
        self._remake_all = remake_all
        self._same: set[str] = set()  # as they were, closed ones included: history reports about them
        self._open: dict[str, None] = {}  # as they were, and in progress
        self._live: dict[str, Remade] = {}
        self._on_node: dict[str, dict[str, Remade]] = {}  # those that hold GPUs there
        self._made: set[str] = set()  # keys that were ever remade
        self._ended: dict[str, int] = {}  # workload -> runs that ended by themselves
        self._answered: dict[str, int] = {}  # workload -> starts that succeeded, or failed by its own trouble
        self._sleepers = history.recorder.idleness.sleepers()
        self._failing = FailedStarts(self._attempts, history.mended(), history.recorder.given_up())
        self._heap: list[tuple[int, int, str, Remade, int]] = []
        self._planned = self._said = 0
        self._out: list[Item] = []
        self._losses, self._lost = history.losses, 0
        for key in history.running:
            self._same.add(key)
            self._open[key] = None
            if remake_all:
                self._take_over(key, core.time_ms)

    # -- what history still says ---------------------------------------------------------------------------------------

    def of_history(self, entry: Entry) -> Item | None:
        """Return the record as this world has it; None when it has it not."""
        body = entry.body
        if entry.kind in REPORTS:
            if entry.key not in self._same and (entry.key in self._made or entry.key in self._attempts):
                return None
        elif entry.kind == BEAT and self.deviated:
            body = self._beat(entry)
        return entry.time_ms, 0, entry.seq, entry.subject, body

    def _beat(self, entry: Entry) -> bytes:
        """Return a heartbeat that lists the runs of this world, and lets those die whose GPU is broken."""
        event = _heartbeat_of(entry)
        if event is None:
            return entry.body
        here = list(self._on_node.get(event.node, {}).values())
        asleep = {run.key for run in here if self._idle(run, entry.time_ms) is not None} if self._sleepers else set[str]()
        for run in here if event.gpus_down else ():
            if any(piece.node == event.node and set(piece.gpus) & set(event.gpus_down) for piece in run.pieces):
                self._plan(entry.time_ms, "broken", run)
        if event.runs is None:
            return entry.body
        listed = [key for key in event.runs if key in self._same or (key not in self._made and key not in self._attempts)]
        listed += [run.key for run in here]
        idle = tuple(key for key in listed if key in event.idle_runs or key in asleep)
        if (tuple(listed), idle) == (event.runs, event.idle_runs):
            return entry.body
        beat = msgspec.structs.replace(event, runs=tuple(listed), idle_runs=idle)
        return encode_event(beat, event_id=f"{event.node}.{event.beat}", at_ms=entry.time_ms)

    # -- what remade runs report ---------------------------------------------------------------------------------------

    def next_ms(self) -> int:
        """Return when the next remade run has something to say; ``NEVER_MS`` when none has."""
        heap = self._heap
        while heap and (heap[0][4] != heap[0][3].token or heap[0][3].key not in self._live):
            heapq.heappop(heap)
        return heap[0][0] if heap else NEVER_MS

    def until(self, until_ms: int) -> list[Item]:
        """Return the reports of remade runs up to an instant."""
        while self._lost < len(self._losses) and self._losses[self._lost].time_ms <= until_ms:
            loss = self._losses[self._lost]
            self._lost += 1
            for run in self._on_node.get(loss.node, {}).values():
                if run.placed_ms < loss.time_ms:
                    self._plan(loss.time_ms, f"lost {loss.node}", run)
        while self._heap and self._heap[0][0] <= until_ms:
            at_ms, _number, what, run, token = heapq.heappop(self._heap)
            if token == run.token and run.key in self._live:
                self._happen(at_ms, what, run)
        out, self._out = self._out, []
        return out

    def _idle(self, run: Remade, at_ms: int) -> Span | None:
        """Return the part of its work in which a run does nothing; None when it works."""
        if run.workload not in self._sleepers or not run.started or at_ms < run.works_from_ms:
            return None
        return self.needs.idle(run.workload, run.progress_ms(at_ms))

    def _plan(self, at_ms: int, what: str, run: Remade) -> None:
        self._planned += 1
        heapq.heappush(self._heap, (at_ms, self._planned, what, run, run.token))

    def _say(self, at_ms: int, node: str, event: Event) -> None:
        self._said += 1
        state = self._core.state
        principal = state.principal.keys[int(state.node.agent[state.node.row_of[node]])]
        body = encode_event(event, event_id=f"remade.{self._said}", at_ms=at_ms)
        self._out.append((at_ms, 1, self._said, subject_of(principal, EVENT_TYPES[type(event)]), body))

    def _happen(self, at_ms: int, what: str, run: Remade) -> None:
        if what == "start":
            self._answer(run.workload)
            self._say(at_ms, run.pieces[0].node, RunStarted(workload=run.workload, run=run.number, node=run.pieces[0].node))
            run.started = True
            run.works_from_ms = at_ms + (self.needs.lags.restart_ms if run.resume_ms else 0)
            self._go_on(at_ms, run)
        elif what == "save":
            idle = self._idle(run, at_ms)
            if idle is None or idle.saves:
                self._save(at_ms, run)
            self._plan(at_ms + self.needs.checkpoint_ms(run.workload), "save", run)
        elif what == "exit":
            ending = self.needs.ending(run.workload, self._ended.get(run.workload, 0))
            failed = ending is not None and not ending.succeeded
            self._end(at_ms, run, "failed" if failed else "succeeded", ending.exit_code if ending is not None else 0)
        elif what == "stopped":
            if run.started and at_ms < run.stop_by_ms and self.needs.saves_on_stop(run.workload):
                self._save(at_ms, run)
            self._end(at_ms, run, "stopped", -15 if at_ms < run.stop_by_ms else -9)
        elif what == "broken":
            self._end(at_ms, run, "failed", BROKEN_EXIT)
        elif what == "refused" and run.failure is not None:
            if not run.failing:
                self._answer(run.workload)
            self._end(at_ms, run, "refused", run.failure.exit_code, run.failing)
        else:
            node = what.partition(" ")[2]
            self._say(at_ms, node, RunLost(workload=run.workload, run=run.number, node=node, detail="the node restarted"))
            self._forget(run)

    def _go_on(self, at_ms: int, run: Remade) -> None:
        """Plan the next checkpoint and the end of a run that works."""
        every_ms = self.needs.checkpoint_ms(run.workload)
        if every_ms:
            done_ms = max(run.saved_ms, run.resume_ms) - run.resume_ms
            self._plan(max(at_ms + 1, run.works_from_ms + done_ms + every_ms), "save", run)
        ending = self.needs.ending(run.workload, self._ended.get(run.workload, 0))
        if ending is not None:
            self._plan(max(at_ms + SECOND_MS, run.works_from_ms + ending.progress_ms - run.resume_ms), "exit", run)

    def _save(self, at_ms: int, run: Remade) -> None:
        run.saved_ms = run.progress_ms(at_ms)
        event = RunCheckpointed(workload=run.workload, run=run.number, progress_ms=run.saved_ms)
        self._say(at_ms, run.pieces[0].node, event)

    def _end(
        self,
        at_ms: int,
        run: Remade,
        outcome: Literal["succeeded", "failed", "stopped", "refused"],
        exit_code: int,
        node: str = "",
    ) -> None:
        """Let a run's lead, or another of its nodes, say that it is over."""
        node = node or run.pieces[0].node
        event = RunFinished(workload=run.workload, run=run.number, node=node, outcome=outcome, exit_code=exit_code)
        self._say(at_ms, node, event)
        self._forget(run)

    def _forget(self, run: Remade) -> None:
        run.token += 1
        if self._live.pop(run.key, None) is not None:
            for piece in run.pieces:
                del self._on_node[piece.node][run.key]

    # -- decisions -----------------------------------------------------------------------------------------------------

    def react(self, batch: CycleBatch, past: Cycle | None) -> None:
        """Take a cycle of this world; ``past`` is what history decided at this tick, None when it had none."""
        at_ms = batch.time_ms
        for decision in batch.decisions:
            if isinstance(decision, RunPlaced):
                self._placed(at_ms, decision)
            elif isinstance(decision, RunClosed):
                self._closed(at_ms, decision)
            elif isinstance(decision, RunStop):
                self._stopped(at_ms, f"{decision.workload}#{decision.run}", decision.grace_until_ms, past)
        if past is None or not self._open:
            return
        stopped = {
            f"{decision.workload}#{decision.run}" for decision in batch.decisions if isinstance(decision, RunStop)
        } if past.stopped else set()
        for key in (*past.stopped, *past.closed):
            if key in self._open and key not in stopped:
                self._take_over(key, at_ms)  # here it goes on

    def _placed(self, at_ms: int, placed: RunPlaced) -> None:
        key = f"{placed.workload}#{placed.run}"
        was = self._attempts.get(key)
        same = was is not None and was.placed_ms == at_ms and was.pieces == placed.pieces
        if same and was is not None and was.resume_ms == placed.resume_from_ms and not self._remake_all:
            self._same.add(key)
            self._open[key] = None
            return
        run = Remade(key, placed.workload, placed.run, placed.pieces, at_ms, placed.resume_from_ms)
        self._add(run)
        self._begin(at_ms, run)

    def _begin(self, at_ms: int, run: Remade) -> None:
        """Plan the start of a run that was placed, or how it fails."""
        found = self._failing.on(run.pieces, run.placed_ms)
        if found is not None:
            run.failing, run.failure = found
        else:
            run.failure = self._failing.of(run.workload, self._answered.get(run.workload, 0))
        if run.failure is None:
            self._plan(max(at_ms + 1, run.placed_ms + self.needs.startup_ms(run.workload)), "start", run)
        elif run.failure.said:
            self._plan(max(at_ms + 1, run.placed_ms + run.failure.after_ms), "refused", run)

    def _add(self, run: Remade) -> None:
        self._live[run.key] = run
        for piece in run.pieces:
            self._on_node.setdefault(piece.node, {})[run.key] = run
        self._made.add(run.key)
        self._same.discard(run.key)
        self.deviated = True
        self.remade_runs += 1

    def _closed(self, at_ms: int, closed: RunClosed) -> None:
        key = f"{closed.workload}#{closed.run}"
        if closed.outcome in BY_ITSELF:
            self._ended[closed.workload] = self._ended.get(closed.workload, 0) + 1
        run = self._live.get(key)
        if run is not None:
            self._forget(run)
        if self._open.pop(key, 0) is None:
            was = self._attempts[key]
            refused = closed.outcome == Outcome.START_FAILED.value and self._failing.own(key)
            if refused or 0 < was.started_ms <= closed.end_ms:
                self._answer(closed.workload)
            if was.closed_ms != at_ms:
                self._same.discard(key)
                self.deviated = True

    def _answer(self, workload: str) -> None:
        self._answered[workload] = self._answered.get(workload, 0) + 1

    def _stopped(self, at_ms: int, key: str, stop_by_ms: int, past: Cycle | None) -> None:
        if key in self._open:
            if past is not None and key in past.stopped:
                return
            self._take_over(key, at_ms)
        run = self._live.get(key)
        if run is None:
            return  # it has just ended by itself
        run.stop_by_ms = max(1, stop_by_ms)
        if not run.started:
            run.token += 1
        wish_ms = at_ms + max(SECOND_MS, self.needs.lags.stop_ms)
        self._plan(max(at_ms + 1, min(wish_ms, stop_by_ms)), "stopped", run)  # an exit before that wins

    def _take_over(self, key: str, at_ms: int) -> None:
        """Make a run again, from where it stands, that was as it was until now."""
        del self._open[key]
        row = self._core.state.run.row_of[key]
        now, was = attempt_of(self._core, row), self._attempts.get(key, Attempt(at_ms, 0))
        workload, _, number = key.rpartition("#")
        run = Remade(
            key, workload, int(number), now.pieces, now.placed_ms, now.resume_ms, bool(now.started_ms),
            saved_ms=now.saved_ms,
        )  # fmt: skip
        self._add(run)
        if run.started:
            self._answer(workload)
        state = self._core.state.run
        if int(state.state[row]) == schema.STOPPING:
            run.stop_by_ms = int(state.stop_by_ms[row])
            self._plan(max(at_ms + 1, min(at_ms + max(SECOND_MS, self.needs.lags.stop_ms), run.stop_by_ms)), "stopped", run)
            run.works_from_ms = now.works_from_ms or now.started_ms
            return
        if not run.started:
            self._begin(at_ms, run)
            return
        restart_ms = self.needs.lags.restart_ms if now.resume_ms else 0
        run.works_from_ms = was.works_from_ms or now.works_from_ms or now.started_ms + restart_ms
        self._go_on(at_ms, run)

"""A past range of the log, read once: what came from outside, what runs reported, what was decided, what was needed.

``Reader`` takes records and batches in order of the log and keeps them as a ``History``: records as they are (heartbeats that tell
nothing but life as columns, see ``beats``), the recorded runs and demand of each workload (``demand``), and which nodes lost their
processes when. A pure function of the core's state at the start and of what it is fed; whoever reads the logs calls it. It decides
nothing and folds nothing: the state in the range is made by the core that plays it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import gcd
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from apportion.adapters.whatif.beats import Beats, Plain
from apportion.adapters.whatif.demand import Attempt, Recorder
from apportion.adapters.whatif.hearing import Hearing
from apportion.adapters.whatif.in_place import note_in_place
from apportion.core.decisions import (
    CycleBatch,
    Rejected,
    RunClosed,
    RunPlaced,
    RunStop,
    WorkloadRejected,
    decode_batch,
)
from apportion.core.envelope import Record, StoredBatch, split_subject
from apportion.core.events import (
    Event,
    NodeHeartbeat,
    NodeJoined,
    NodeLeft,
    NodeUncordoned,
    RunCheckpointed,
    RunFinished,
    RunLost,
    RunProgressed,
    RunStarted,
    UnknownType,
    UnknownVersion,
    WorkloadSubmitted,
    decode_data,
)
from apportion.core.units import next_time_ms

if TYPE_CHECKING:
    from apportion.core.engine import Core

TICK, BEAT = "clock.tick", "node.heartbeat"
MENDING = ("node.uncordoned", "node.joined", "node.left")
REPORTS = ("run.started", "run.checkpointed", "run.progressed", "run.finished", "run.lost")
REPORT_TYPES = (RunStarted, RunCheckpointed, RunProgressed, RunFinished, RunLost)
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError, UnknownType, UnknownVersion)
GRID_LEAST_MS = 1_000
ON_GRID_PERCENT = 95  # of ticks, where a grid was begun anew in the range
SAME_KEPT = 4


class Entry(NamedTuple):
    """One record of the range that is not a plain heartbeat. ``key``: the run of a report, the node of a heartbeat, else ""."""

    seq: int
    time_ms: int
    kind: str
    key: str
    subject: str
    body: bytes


class Cycle(NamedTuple):
    """A cycle of history: which runs it stopped and closed, and its bytes."""

    seq: int
    time_ms: int
    stopped: tuple[str, ...]
    closed: tuple[str, ...]
    body: bytes


class Loss(NamedTuple):
    """A node came back without the processes it had; known from ``time_ms`` on."""

    time_ms: int
    node: str


class Pace(NamedTuple):
    """When a leader writes ticks: on a grid, as that of a simulation does, or so long after something asks for one."""

    offset_ms: int  # of the grid; without one: how long it lets things wait, as half of the time
    grid_ms: int = 0  # 0 = none

    def tick_ms(self, asked_ms: int) -> int:
        """Return when it writes the tick that is asked for."""
        if not self.grid_ms:
            return asked_ms + self.offset_ms
        return asked_ms + (self.offset_ms - asked_ms) % self.grid_ms


class _Listed(NamedTuple):
    """What a heartbeat said of GPUs and runs, when one like it was last kept, and how many in a row were."""

    said: tuple[object, ...]
    kept_ms: int
    times: int


class Peek(msgspec.Struct, gc=False):
    """What of an envelope says when, and the payload unread."""

    type: str = ""
    v: int = 1
    at_ms: int = 0
    data: msgspec.Raw = msgspec.Raw(b"{}")


_peek = msgspec.json.Decoder(Peek)


def peeked(body: bytes) -> Peek:
    """Return when and what an envelope says; nothing where it cannot be read."""
    try:
        return _peek.decode(body)
    except UNREADABLE:
        return Peek()


def event_of(entry: Entry) -> Event | None:
    """Return an entry's payload; None when it cannot be read, as the core will say."""
    try:
        said = _peek.decode(entry.body)
        return decode_data(said.type, said.v, said.data)
    except UNREADABLE:
        return None


def _on_grid(gaps: Counter[int], grid_ms: int) -> bool:
    """Tell whether nearly all of the gaps between ticks are of a grid."""
    there = sum(times for gap_ms, times in gaps.items() if gap_ms % grid_ms == 0)
    return there * 100 >= gaps.total() * ON_GRID_PERCENT


@dataclass
class History:
    """The range ``(from_seq, to_seq]``. ``snapshot``: the core at ``from_seq``."""

    snapshot: bytes
    from_seq: int
    from_ms: int
    stated: bool
    to_seq: int = 0
    to_ms: int = 0
    entries: list[Entry] = field(default_factory=list)
    beats: Beats = field(default_factory=Beats)
    cycles: list[Cycle] = field(default_factory=list)
    recorder: Recorder = field(default_factory=Recorder)
    losses: list[Loss] = field(default_factory=list)
    running: dict[str, Attempt] = field(default_factory=dict)  # runs in place at the start
    refused: dict[str, int] = field(default_factory=dict)  # reason -> how many of the range
    records: int = 0

    def mended(self) -> list[tuple[int, str]]:
        """Return when which node was put right: uncordoned, joined again or taken out."""
        said = ((entry.time_ms, event_of(entry)) for entry in self.entries if entry.kind in MENDING)
        return [(time_ms, event.node) for time_ms, event in said if isinstance(event, NodeUncordoned | NodeJoined | NodeLeft)]

    def pace(self) -> Pace:
        """Return when the leader of the range wrote ticks."""
        waits, gaps, asked_ms, last_ms, grid_ms = list[int](), Counter[int](), -1, -1, 0
        for entry in self.entries:
            if entry.kind == TICK:
                if asked_ms >= 0:
                    waits.append(entry.time_ms - asked_ms)
                if last_ms >= 0:
                    grid_ms = gcd(grid_ms, entry.time_ms - last_ms)
                    gaps[entry.time_ms - last_ms] += 1
                asked_ms, last_ms = -1, entry.time_ms
            elif asked_ms < 0 and entry.kind != BEAT:
                asked_ms = entry.time_ms
        usual_ms = max(gaps, key=lambda gap_ms: gaps[gap_ms], default=0)
        if grid_ms < GRID_LEAST_MS <= usual_ms and _on_grid(gaps, usual_ms):
            grid_ms = usual_ms  # that was begun anew now and then
        if grid_ms >= GRID_LEAST_MS:
            return Pace(last_ms % grid_ms, grid_ms)
        waits.sort()
        return Pace(max(1, waits[len(waits) // 2]) if waits else 1_000, 0)


class Reader:
    """Fills a ``History``. ``watch`` is shown every batch, decoded.

    ``apart_ms``: of a node's heartbeats that list the same runs one in so long is kept, beside the first ``SAME_KEPT``, which are
    as many as the core counts before it gives a run up; 0 = all are.
    """

    def __init__(self, core: Core, watch: Callable[[CycleBatch], None] | None = None, *, apart_ms: int = 0) -> None:
        counters = core.state.counters
        self.history = History(core.snapshot(), core.seq, core.time_ms, bool(counters.stated), core.seq, core.time_ms)
        self._watch = watch
        self._batches: dict[int, StoredBatch] = {}
        self._apart_ms = apart_ms
        self._listed: dict[str, _Listed] = {}  # what a node listed last
        self._left_out: dict[str, Entry] = {}  # the last heartbeat that was left out
        self._on_node: dict[str, dict[str, None]] = {}  # node -> runs that hold GPUs there
        self._hearing = Hearing()
        self.history.running = note_in_place(core, self.history.recorder)
        for key, attempt in self.history.running.items():
            self._hold(key, attempt)

    def take(self, records: Sequence[Record], batches: Sequence[StoredBatch]) -> None:
        """Take records and the batches that answer ticks among them; a batch must not come later than its tick."""
        for batch in batches:
            self._batches[batch.input_seq] = batch
        for record in records:
            self._record(record)

    def finish(self) -> History:
        """Return the history."""
        for node in list(self._left_out):
            self._put_back(node)
        self.history.entries.sort()
        self.history.recorder.finish(self.history.to_ms)
        return self.history

    def take_read(self, beats: Plain, others: Sequence[Record], times_ms: Sequence[int], last: tuple[int, int]) -> None:
        """Take records whose plain heartbeats were read already; ``others`` come with their instants, ``last`` is the end of all.

        The same as ``take`` of them all in their order.
        """
        history, place = self.history, len(self.history.beats)
        for node, seqs, at_ms in beats.by_node():
            self._hearing.ahead(node, seqs, at_ms)
        for record, time_ms in zip(others, times_ms, strict=True):
            self._at(record, peeked(record.body), time_ms)
        history.to_seq, history.to_ms = last
        for node in self._hearing.waiting():
            self._catch_up(node, history.to_seq + 1)
        history.beats.add_all(place, beats)
        history.records += len(beats.seq)

    def _record(self, record: Record) -> None:
        history = self.history
        said = peeked(record.body)
        claimed = said.at_ms if history.stated else record.stored_ms
        self._at(record, said, next_time_ms(history.to_ms, claimed, stated=history.stated) or history.to_ms)

    def _at(self, record: Record, said: Peek, time_ms: int) -> None:
        """Take a record of an instant."""
        history = self.history
        history.records += 1
        history.to_seq, history.to_ms = record.seq, time_ms
        parts = split_subject(record.subject)
        kind = parts[1] if parts is not None else ""
        if kind == BEAT:
            try:
                node = history.beats.take(record.seq, time_ms, record.subject, record.body)
            except UNREADABLE:
                node = None
            if node is not None:
                self._heard(node, record.seq, time_ms)
                return
        event: Event | None = None
        if kind == BEAT or kind in REPORTS or kind == "workload.submitted":
            try:
                event = decode_data(said.type, said.v, said.data)
            except UNREADABLE:
                event = None
        alike = isinstance(event, NodeHeartbeat) and self._apart_ms > 0 and self._says_the_same(event, time_ms)
        entry = Entry(record.seq, time_ms, kind, self._note(event, record.seq, time_ms), record.subject, record.body)
        if alike:
            self._left_out[entry.key] = entry  # unless the node falls silent after it
            return
        history.entries.append(entry)
        if kind == TICK and record.seq in self._batches:
            self._cycle(self._batches.pop(record.seq))

    def _note(self, event: Event | None, seq: int, time_ms: int) -> str:
        """Take what an event tells into account; returns its key."""
        recorder = self.history.recorder
        if isinstance(event, NodeHeartbeat):
            self._heard(event.node, seq, time_ms)
            if event.runs is not None:
                recorder.listed(event.node, event.runs, event.idle_runs, time_ms)
            if event.runs is not None and (since_ms := self._hearing.gap_of(event.node)) is not None:
                self._after_gap(event.node, since_ms, event.runs, time_ms)
            return event.node
        if isinstance(event, WorkloadSubmitted):
            recorder.submitted(event, time_ms)
            return ""
        if isinstance(event, RunStarted):
            recorder.started(event, time_ms)
        elif isinstance(event, RunCheckpointed):
            recorder.checkpointed(event, time_ms)
        elif isinstance(event, RunLost):
            self._catch_up(event.node, seq)
            if self._hearing.silent(event.node, time_ms):
                self._lose(event.node, time_ms)
        return f"{event.workload}#{event.run}" if isinstance(event, REPORT_TYPES) else ""

    def _says_the_same(self, event: NodeHeartbeat, time_ms: int) -> bool:
        """Tell whether a heartbeat may be left out, for it says what the node has said often enough and not long ago."""
        said, last = (event.gpus_down, event.runs, event.idle_runs), self._listed.get(event.node)
        if last is None or last.said != said:
            self._listed[event.node] = _Listed(said, time_ms, 1)
            return False
        if last.times < SAME_KEPT or time_ms - last.kept_ms >= self._apart_ms:
            self._listed[event.node] = _Listed(said, time_ms, last.times + 1)
            return False
        return True

    def _put_back(self, node: str) -> None:
        """Keep the heartbeat that was left out last: it tells when the node was last heard."""
        if (entry := self._left_out.pop(node, None)) is not None:
            self.history.entries.append(entry)

    # -- nodes ---------------------------------------------------------------------------------------------------------

    def _heard(self, node: str, seq: int, time_ms: int) -> None:
        self._catch_up(node, seq)
        if self._hearing.heard(node, time_ms):
            self._put_back(node)

    def _catch_up(self, node: str, seq: int) -> None:
        if self._hearing.catch_up(node, seq):
            self._put_back(node)

    def _after_gap(self, node: str, since_ms: int, listed: tuple[str, ...], time_ms: int) -> None:
        attempts = self.history.recorder.attempts
        had = [
            key
            for key in self._on_node.get(node, {})
            if attempts[key].placed_ms < since_ms and attempts[key].started_ms
        ]
        if any(key not in listed for key in had):
            self._lose(node, time_ms)

    def _lose(self, node: str, time_ms: int) -> None:
        last = next((loss for loss in reversed(self.history.losses) if loss.node == node), None)
        if last is None or last.time_ms < time_ms:
            self.history.losses.append(Loss(time_ms, node))

    def _hold(self, key: str, attempt: Attempt) -> None:
        for piece in attempt.pieces:
            self._on_node.setdefault(piece.node, {})[key] = None

    # -- cycles --------------------------------------------------------------------------------------------------------

    def _cycle(self, stored: StoredBatch) -> None:
        batch, recorder = decode_batch(stored.body), self.history.recorder
        recorder.cycle(batch)
        stopped, closed = list[str](), list[str]()
        for decision in batch.decisions:
            if isinstance(decision, RunPlaced):
                key = f"{decision.workload}#{decision.run}"
                self._hold(key, recorder.attempts[key])
            elif isinstance(decision, RunClosed):
                key = f"{decision.workload}#{decision.run}"
                closed.append(key)
                attempt = recorder.attempts.get(key)
                for piece in attempt.pieces if attempt is not None else ():
                    self._on_node[piece.node].pop(key, None)
            elif isinstance(decision, RunStop):
                stopped.append(f"{decision.workload}#{decision.run}")
            elif isinstance(decision, Rejected | WorkloadRejected):
                self.history.refused[decision.reason] = self.history.refused.get(decision.reason, 0) + 1
        self.history.cycles.append(Cycle(stored.input_seq, batch.time_ms, tuple(stopped), tuple(closed), stored.body))
        if self._watch is not None:
            self._watch(batch)

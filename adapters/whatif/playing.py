"""Playing a range again: history's records and a world's reports, in order of time, through the production ``Core``.

Decides when a cycle runs: at every tick of history, and, once the world has left history, where the core is dirty or something
is due and history's next tick comes later than its leader would write one (``History.pace``). A pure function of the
history and the change. It never writes a log; ``keep`` gets the records and batches of the played world for whoever wants to
store them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from apportion.adapters.processes.collector import without_collector
from apportion.adapters.simulation.stated import Stated
from apportion.adapters.whatif.beats import Beats, Cursor, Item
from apportion.adapters.whatif.demand import Needs
from apportion.adapters.whatif.feeding import Due, Feed
from apportion.adapters.whatif.history import TICK, Cycle, Entry, History
from apportion.adapters.whatif.remade import RemadeWorld
from apportion.core.decisions import CycleBatch, Rejected, WorkloadRejected, decode_batch, encode_batch
from apportion.core.engine import Core
from apportion.core.envelope import Record, StoredBatch, subject_of
from apportion.core.events import ClockTick, encode_event
from apportion.core.units import MS_PER_HOUR, NEVER_MS

Watch = Callable[[CycleBatch], None]
Keep = Callable[[list[Record], StoredBatch | None], None]
OnProgress = Callable[[int, int], None]  # cycles of history played, of how many
Refused = Rejected | WorkloadRejected
OWN = -1  # in the order of folding, what is published besides history comes before all of the same instant
MADE = "what-if"


@dataclass(frozen=True)
class Change:
    """What is different. ``events`` are published besides those of history; ``drops`` says which of those are not."""

    events: tuple[Stated, ...] = ()
    drops: Callable[[Entry], bool] | None = None
    gone: frozenset[str] = frozenset()  # nodes whose heartbeats fall silent
    beats: Beats | None = None  # of nodes that history has not
    words: tuple[str, ...] = ()  # what is different, in sentences

    @property
    def nothing(self) -> bool:
        """Tell whether nothing is different."""
        return not self.events and self.drops is None and not self.gone and self.beats is None


class Pacing(Protocol):
    """When a leader writes the tick that is asked for; ``grid_ms``: never more than one in so long, 0 = as often as it is asked."""

    @property
    def grid_ms(self) -> int:
        """Return the least time between two ticks."""
        ...

    def tick_ms(self, asked_ms: int) -> int:
        """Return the instant of the tick."""
        ...


@dataclass
class Played:
    """What a play came to."""

    core: Core
    world: RemadeWorld
    words: tuple[str, ...] = ()  # what was different
    cycles: int = 0
    extra_cycles: int = 0  # at ticks that history has not
    differing: int = 0  # cycles whose decisions are not those of history; counted when asked for
    first_difference: tuple[int, CycleBatch, CycleBatch] | None = None  # sequence of the tick, history's batch, ours
    refusals: list[Refused] = field(default_factory=list)


@dataclass
class Play:
    """One play. ``remake_all``: no run is taken from history; ``compare``: count the cycles that differ from it.

    Who waits is told why only where ``told`` asks for it, or what is played is kept or compared: it changes nothing else.
    """

    history: History
    needs: Needs
    change: Change = field(default_factory=Change)
    watch: Watch | None = None
    keep: Keep | None = None
    remake_all: bool = False
    compare: bool = False
    told: bool = False
    pace: Pacing | None = None  # of the leader; None = as history's wrote its ticks
    stop: Callable[[], bool] | None = None  # ends the play after a cycle
    unwelcome: Callable[[Refused], None] | None = None  # is shown what the core refuses of the change itself

    def run(self, progress: OnProgress | None = None) -> Played:
        """Play the range to its end."""
        with without_collector():
            return self._run(progress)

    def _run(self, progress: OnProgress | None) -> Played:
        history = self.history
        core = Core.from_snapshot(history.snapshot)
        self._played = Played(
            core, RemadeWorld(history, self.needs, core, remake_all=self.remake_all), self.change.words
        )
        self._pace: Pacing = self.pace or history.pace()
        self._progress = progress
        self._ticker = _ticker(core, history)
        self._injected = sorted(self.change.events, key=lambda event: event.at_ms)
        self._sent = self._at = self._added = 0
        self._own: set[int] = set()  # records that are the change's
        self._noted = 0  # of its events, how many are among them
        self._beats = Cursor(history.beats, self.change.gone)
        self._feed = Feed(core, self._beats, kept=self.keep is not None)
        self._more = Cursor(self.change.beats) if self.change.beats is not None else None
        cycles = {cycle.seq: cycle for cycle in history.cycles}
        for number, (place, tick) in enumerate(
            (place, entry) for place, entry in enumerate(history.entries) if entry.kind == TICK
        ):
            if self._played.world.deviated:
                self._between(tick.time_ms)
            self._fold(self._due(place, tick.time_ms, tick.seq), tick, cycles.get(tick.seq))
            self._at = place + 1
            if progress is not None and number % 64 == 0:
                progress(number, len(cycles))
        if self._played.world.deviated:
            self._between(history.to_ms)
        if self.stop is None or not self.stop():
            self._fold(self._due(len(history.entries), history.to_ms), None, None)
        return self._played

    # -- what is folded next -------------------------------------------------------------------------------------------

    def _due(self, end: int, to_ms: int, to_seq: int | None = None) -> Due:
        """Return what comes before entry ``end`` and up to an instant."""
        world, change = self._played.world, self.change
        found = self._injections(to_ms)
        if self._more is not None:
            found += self._more.items(self._more.take(to_ms))
        for entry in self.history.entries[self._at : end]:
            if change.drops is not None and change.drops(entry):
                world.deviated = True
                continue
            item = world.of_history(entry)
            if item is not None:
                found.append(item)
        self._at = end
        found += world.until(to_ms)
        found.sort()  # by instant, then history before what was made, then in order
        return Due(self._beats.take(to_ms, to_seq), found)

    def _injections(self, to_ms: int) -> list[Item]:
        found: list[Item] = []
        while self._sent < len(self._injected) and self._injected[self._sent].at_ms <= to_ms:
            event = self._injected[self._sent]
            self._sent += 1
            found.append((event.at_ms, OWN, self._sent, event.subject, event.body))
            self._played.world.deviated = True
        return found

    def _between(self, next_ms: int) -> None:
        """Run the cycles that this world needs before history's next tick."""
        core, world = self._played.core, self._played.world
        while next_ms - core.time_ms > max(1, self._pace.grid_ms):
            due_ms = core.due_ms()
            wanted = [world.next_ms(), core.time_ms if core.dirty else NEVER_MS, NEVER_MS if due_ms is None else due_ms]
            if self._sent < len(self._injected):
                wanted.append(self._injected[self._sent].at_ms)
            at_ms = self._pace.tick_ms(max(core.time_ms + 1, min(wanted)))
            if at_ms >= next_ms:
                return
            end = self._at
            while end < len(self.history.entries) and self.history.entries[end].time_ms <= at_ms:
                end += 1
            due = self._due(end, at_ms)
            self._added += 1
            body = encode_event(ClockTick(why="due"), event_id=f"{MADE}.tick.{self._added}", at_ms=at_ms)
            self._fold(due, Entry(0, at_ms, TICK, "", subject_of(self._ticker, TICK), body), None)
            self._played.extra_cycles += 1
            if self.stop is not None and self.stop():
                return
            if self._progress is not None and not self.history.cycles:  # nothing but the time to come
                self._progress((at_ms - self.history.from_ms) // MS_PER_HOUR, (next_ms - self.history.from_ms) // MS_PER_HOUR)

    # -- folding -------------------------------------------------------------------------------------------------------

    def _fold(self, due: Due, tick: Entry | None, past: Cycle | None) -> None:
        """Fold what comes before a tick, then the tick, and decide its cycle."""
        core = self._played.core
        if self._sent > self._noted:
            self._own.update(self._feed.seqs(due, OWN))
            self._noted = self._sent
        ticks = (tick.time_ms, 0, tick.seq, tick.subject, tick.body) if tick is not None else None
        records = self._feed.fold(due, ticks)
        if not core.tick_pending:
            if self.keep is not None:
                self.keep(records, None)
            return
        batch = core.decide_unhashed(told=self.told or self.compare or self.keep is not None)
        self._played.cycles += 1
        if self.keep is not None:
            self.keep(records, StoredBatch(core.cycle, core.seq, encode_batch(batch)))
        if self.compare and past is not None:
            self._compare(batch, past)
        for decision in batch.decisions:
            if isinstance(decision, Refused):
                self._played.refusals.append(decision)
                if self.unwelcome is not None and decision.event_seq in self._own:
                    self.unwelcome(decision)
        if self.watch is not None:
            self.watch(batch)
        self._played.world.react(batch, past)

    def _compare(self, batch: CycleBatch, past: Cycle) -> None:
        was = decode_batch(past.body)
        if list(was.decisions) != list(batch.decisions) or was.books != batch.books or was.time_ms != batch.time_ms:
            self._played.differing += 1
            if self._played.first_difference is None:
                self._played.first_difference = past.seq, was, batch


def _ticker(core: Core, history: History) -> str:
    """Return who writes ticks: who wrote them in the range, else an operator."""
    for entry in history.entries:
        if entry.kind == TICK:
            return entry.subject.split(".")[2]
    operators = [name for name, row in core.state.principal.row_of.items() if core.state.principal.operator[row]]
    return operators[0] if operators else "core"

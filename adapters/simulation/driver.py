"""World and ``Core`` in one process, over a log in memory: a simulated week without a server.

Decides when the leader writes a tick: at the end of each interval of ``cycle_ms`` in which something is due or dirty,
as the production service does by its own clock. ``simulate`` is a pure function of the world, the core and the fault
model. There is no scheduling here: the core is the production class.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from apportion.adapters.simulation.stated import Stated, tick_event
from apportion.adapters.simulation.world import World
from apportion.core.decisions import CycleBatch, decode_batch
from apportion.core.engine import Core
from apportion.core.envelope import Record, StoredBatch

CYCLE_MS = 60_000

Arrive = Callable[[list[Stated], int], Iterable[Stated]]
Watch = Callable[[CycleBatch], None]


def numbered(events: Iterable[Stated], first_seq: int) -> list[Record]:
    """Return events as records ``first_seq`` and on."""
    return [Record(seq, *event) for seq, event in enumerate(events, first_seq)]


@dataclass
class Logs:
    """EVENTS and DECISIONS of a simulation, as the two streams would hold them."""

    records: list[Record] = field(default_factory=list)
    batches: list[StoredBatch] = field(default_factory=list)

    def append(self, events: Iterable[Stated]) -> list[Record]:
        """Append events to EVENTS; the stored time of each is its own, as if the server's clock were the simulation's."""
        records = numbered(events, len(self.records) + 1)
        self.records += records
        return records

    def store(self, input_seq: int, body: bytes) -> None:
        """Append a batch to DECISIONS."""
        self.batches.append(StoredBatch(len(self.batches) + 1, input_seq, body))


@dataclass
class Passing(Logs):
    """Logs of which only the lengths are kept, for plays that nobody replays."""

    events: int = 0

    def append(self, events: Iterable[Stated]) -> list[Record]:
        """Number events."""
        records = numbered(events, self.events + 1)
        self.events += len(records)
        return records

    def store(self, input_seq: int, body: bytes) -> None:
        """Let it pass."""


@dataclass
class Simulation:
    """A world, the core that schedules it, and what both have written."""

    world: World
    core: Core = field(default_factory=Core.new)
    logs: Logs = field(default_factory=Logs)
    arrive: Arrive | None = None  # what happens to events between their producers and the log
    watch: Watch | None = None  # is shown every batch
    every_interval: bool = False  # write a tick also when nothing is due or dirty

    def run(self, until_ms: int, cycle_ms: int = CYCLE_MS) -> Logs:
        """Play up to ``until_ms`` in intervals of ``cycle_ms``; may be called again to go on."""
        while self.world.now_ms < until_ms:
            self.step(min(until_ms, self.world.now_ms + cycle_ms))
        return self.logs

    def run_until_drained(self, last_ms: int, cycle_ms: int = CYCLE_MS) -> bool:
        """Play until all jobs are over, at most to ``last_ms``; tell whether they are."""
        while self.world.now_ms < last_ms and not self.world.drained:
            self.step(min(last_ms, self.world.now_ms + cycle_ms))
        return self.world.drained

    def step(self, until_ms: int) -> None:
        """Play one interval, with a cycle at its end when something is due or dirty."""
        events: Iterable[Stated] = self.world.advance(until_ms)
        if self.arrive is not None:
            events = self.arrive(list(events), until_ms)
        records, at = self.logs.append(events), 0
        while at < len(records):
            at = self.core.fold_many(records, at)
            if self.core.tick_pending:
                self._decide()
        due_ms = self.core.due_ms()
        due = self.every_interval or (due_ms is not None and due_ms <= until_ms)
        if not due and not self.core.dirty:
            return
        [tick] = self.logs.append([tick_event(until_ms, self.core.cycle + 1)])
        if self.core.fold(tick):
            self._decide()

    def _decide(self) -> None:
        body = self.core.decide()
        self.logs.store(self.core.seq, body)
        batch = decode_batch(body)
        if self.watch is not None:
            self.watch(batch)
        self.world.react(batch)


def simulate(world: World, until_ms: int, cycle_ms: int = CYCLE_MS) -> Logs:
    """Play ``world`` under a new core up to ``until_ms``; return both logs."""
    return Simulation(world).run(until_ms, cycle_ms)


def replay(logs: Logs, *, verify: bool = True, core: Core | None = None) -> Core:
    """Fold both logs into a core that has read a prefix of them (a new one by default) and return it.

    ``verify`` derives every batch and compares it, raising ``Divergence`` at the first difference; else it is trusted.
    """
    core = core or Core.new()
    cycle, records = core.cycle, logs.records
    at = core.seq
    while at < len(records) or core.tick_pending:
        if not core.tick_pending:
            at = core.fold_many(records, at)
        if core.tick_pending:
            body = logs.batches[cycle].body
            if verify:
                core.verify(body)
            else:
                core.trust(body)
            cycle += 1
    return core

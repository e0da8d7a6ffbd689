"""The archive that measurements read: ITP-like jobs at 2.2 times what a cluster can do, played through the real core into segments.

Days are written as they are played, so that a year fits into memory, with the state at the end of each. A directory where days
are missing is gone on with: the world is led through the stored decisions again and the core begins from the last day's state, so
the bytes are those of a play that was never interrupted (a test compares them). Its time is no part of any figure. Decides nothing.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from apportion.adapters.demo.generator import Shape, generate
from apportion.adapters.logs.archive import segments_of
from apportion.adapters.logs.manifest import (
    DayEntry,
    FileEntry,
    Manifest,
    day_of,
    day_text,
    file_entry,
    is_archive,
    load,
)
from apportion.adapters.logs.parts import DayParts, chain_end, sweep
from apportion.adapters.logs.segments import read_decisions
from apportion.adapters.past.replaying import core_from
from apportion.adapters.past.snapshots import ARCHIVED, KEEP_ALL, DiskSnapshots, record_hash
from apportion.adapters.processes.collector import without_collector
from apportion.adapters.simulation.cluster import Layout
from apportion.adapters.simulation.driver import Logs, Simulation, numbered
from apportion.adapters.simulation.stated import Stated
from apportion.adapters.simulation.world import World, WorldOptions
from apportion.core.decisions import decode_batch
from apportion.core.engine import Core
from apportion.core.envelope import Record, StoredBatch
from apportion.core.errors import ApportionError
from apportion.core.units import MS_PER_DAY


class ArchiveRefused(ApportionError):
    """A directory holds days of another play."""


@dataclass
class Streamed(Logs):
    """Logs that go into an archive day by day, so that a year fits into memory."""

    directory: Path = field(default_factory=Path)
    manifest: Manifest = field(default_factory=Manifest)

    def __post_init__(self) -> None:
        before = self.manifest.days[-1] if self.manifest.days else None
        self._seq, self._decision_seq = (0, 0) if before is None else (before.last_seq, before.last_decision)
        self._last_ms = 0 if before is None else before.last_ms
        self._day = self._first_seq = 0
        self._last: Record | None = None
        self._state: tuple[FileEntry, str] | None = None  # the snapshot of the day's end, and its digest
        self._parts: tuple[DayParts, DayParts] | None = None

    def append(self, events: Iterable[Stated]) -> list[Record]:
        """Append events; the first of a day closes the one before."""
        records = numbered(events, self._seq + 1)
        latest_ms = max((record.stored_ms for record in records), default=0)
        if self._parts is not None and day_of(latest_ms) <= self._day:
            self._keep(self._parts[0], records, latest_ms)
            return records
        for record in records:
            if self._parts is None or day_of(record.stored_ms) > self._day:
                self.close()
                self._parts = self._opened(day_of(record.stored_ms))
            self._keep(self._parts[0], [record], record.stored_ms)
        return records

    def _keep(self, parts: DayParts, records: list[Record], latest_ms: int) -> None:
        if records:
            parts.add(records)
            self._seq, self._last, self._last_ms = records[-1].seq, records[-1], max(self._last_ms, latest_ms)

    def _opened(self, day: int) -> tuple[DayParts, DayParts]:
        self._day, self._first_seq, name = day, self._seq + 1, day_text(day)
        return (
            DayParts(self.directory, "events", name, chain_end(self.manifest, "events")),
            DayParts(self.directory, "decisions", name, chain_end(self.manifest, "decisions")),
        )

    def store(self, input_seq: int, body: bytes) -> None:
        """Append a batch."""
        self._decision_seq += 1
        if self._parts is not None:
            self._parts[1].add([StoredBatch(self._decision_seq, input_seq, body)])

    def keep_state(self, core: Core) -> None:
        """Keep the state at the end of the day, as ``archive write`` does."""
        if self._last is None:
            return
        seal = record_hash(self._last.subject, self._last.body)
        snapshots = DiskSnapshots(self.directory / ARCHIVED, keep=KEEP_ALL)
        snapshots.save(core.seq, core.snapshot(), record_hash=seal, decision_seq=self._decision_seq)
        self._state = file_entry(self.directory, f"{ARCHIVED}/snapshot-{core.seq:016d}.bin"), core.digest()

    def close(self) -> None:
        """Finish the day."""
        if self._parts is None:
            return
        events, decisions = self._parts[0].finish(), self._parts[1].finish()
        entry = DayEntry(
            day=day_text(self._day), sealed=True, first_seq=self._first_seq, last_seq=self._seq, last_ms=self._last_ms, stated=True,
            cycles=self._parts[1].count, last_decision=self._decision_seq, events=events, decisions=decisions,
            snapshot=None if self._state is None else self._state[0], digest="" if self._state is None else self._state[1],
        )  # fmt: skip
        self.manifest = Manifest(days=(*self.manifest.days, entry))
        self.manifest.save(self.directory)
        self._parts = self._state = None


@contextmanager
def archive_of(directory: str, days: int, nodes: int, beat_s: int, seed: int) -> Iterator[Path]:
    """Yield an archive of so many days, generated unless ``directory`` holds one; without one it is gone afterwards."""
    with _place(directory) as place:
        if not is_archive(place) or len(load(place).days) < days:
            _generate(place, days, nodes, beat_s, seed)
        yield place


@contextmanager
def _place(directory: str) -> Iterator[Path]:
    if directory:
        Path(directory).mkdir(parents=True, exist_ok=True)
        yield Path(directory)
        return
    with tempfile.TemporaryDirectory(prefix="apportion-replay-") as made:
        yield Path(made)


def _generate(directory: Path, days: int, nodes: int, beat_s: int, seed: int) -> None:
    jobs = generate(seed, Shape(days=days, gpus=nodes * 8))
    options = WorldOptions(seed=seed, length_ms=days * MS_PER_DAY, layout=Layout(nodes=nodes), beat_ms=beat_s * 1_000)
    simulation, logs, had = _resumed(directory, World(jobs, options))
    for day in range(had + 1, days + 1):
        with without_collector():
            simulation.run(_end_ms(simulation.world, day))
        logs.keep_state(simulation.core)
        sys.stderr.write(f"generated day {day} of {days}, seq {simulation.core.seq:,}\n")
    logs.close()


def _resumed(directory: Path, world: World) -> tuple[Simulation, Streamed, int]:
    """Return the play and its logs after the days that ``directory`` holds, and how many these are."""
    manifest = load(directory)
    sweep(directory, manifest.days)
    logs = Streamed(directory=directory, manifest=manifest)
    if not manifest.days:
        return Simulation(world, logs=logs), logs, 0
    last = manifest.days[-1]
    found = DiskSnapshots(directory / ARCHIVED).load(last.last_seq)
    if found is None or found[0] != last.last_seq:
        raise ArchiveRefused(
            f"{directory} lacks the state at the end of {last.day}, seq {last.last_seq:,}; give another directory"
        )
    _lead(world, directory, manifest)
    return Simulation(world, core=core_from(found[1]), logs=logs), logs, len(manifest.days)


def _lead(world: World, directory: Path, manifest: Manifest) -> None:
    """Lead the world through the days that were decided. Raises ``ArchiveRefused`` where it does not tell as much as it did."""
    told = 0
    for segment in segments_of(directory, "decisions"):
        for stored in read_decisions(segment):
            batch = decode_batch(stored.body)
            told += len(world.advance(batch.time_ms)) + 1  # the tick
            _same(directory, stored.input_seq, told)
            world.react(batch)
        sys.stderr.write(f"went again through {segment.header.day}, seq {told:,}\n")
    _same(directory, manifest.days[-1].last_seq, told + len(world.advance(_end_ms(world, len(manifest.days)))))


def _end_ms(world: World, days: int) -> int:
    return world.options.start_ms + days * MS_PER_DAY - 1


def _same(directory: Path, kept_seq: int, told_seq: int) -> None:
    if kept_seq != told_seq:
        raise ArchiveRefused(
            f"{directory} holds another play: what it has up to seq {kept_seq:,} ends here at seq {told_seq:,}; "
            "give the days, nodes, beat_s and seed it was begun with, or another directory"
        )

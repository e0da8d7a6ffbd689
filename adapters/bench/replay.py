"""Trust replay from an archive: the state at the end of a month, and of a year, of 1,024 GPUs whose nodes report every ten seconds.

Plays ITP-like jobs at 2.2 times what the cluster can do through the real core, straight into the segments of an archive (its time
is not part of the figures), then rebuilds the state from them: each segment's hash is verified, heartbeats are folded as columns,
each stored batch is trusted, the last one with its digest. ``month_s`` and ``year_s`` are CPU time of this process; with fewer days
they are None, and ``day_s`` is the mean of the days there are. A measurement, not a test: it depends on the machine.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

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
from apportion.adapters.logs.parts import DayParts, chain_end
from apportion.adapters.logs.segments import read_sheet
from apportion.adapters.past.snapshots import ARCHIVED, KEEP_ALL, DiskSnapshots, record_hash
from apportion.adapters.past.trusting import COMPILES, state_from
from apportion.adapters.processes.build import is_kept
from apportion.adapters.processes.collector import without_collector
from apportion.adapters.simulation.cluster import Layout
from apportion.adapters.simulation.driver import Logs, Simulation, numbered
from apportion.adapters.simulation.stated import Stated
from apportion.adapters.simulation.world import World, WorldOptions
from apportion.core.engine import Core
from apportion.core.envelope import Record, StoredBatch
from apportion.core.units import MS_PER_DAY

MONTH, YEAR = 30, 365
_OTHERS = ("bodies", "length")  # sections of what is no heartbeat


@dataclass
class Streamed(Logs):
    """Logs that go into an archive day by day, so that a year fits into memory."""

    directory: Path = field(default_factory=Path)
    manifest: Manifest = field(default_factory=Manifest)

    def __post_init__(self) -> None:
        self._seq = self._decision_seq = self._day = 0
        self._last_ms = self._first_seq = 0
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


def run(
    days: int = MONTH, nodes: int = 128, beat_s: int = 10, seed: int = 1, rounds: int = 1, directory: str = ""
) -> dict[str, Any]:
    """Return the figures; ``directory`` keeps the archive, and is not generated again where it holds one of as many days."""
    with archive_of(directory, days, nodes, beat_s, seed) as place:
        manifest = load(place)
        first_days = manifest.days[:days]
        if not is_kept("stretch"):
            sys.stderr.write(f"{COMPILES}\n")
        state_from(place, first_days[0].last_seq)  # loads the machine code of all that a day needs
        measured: dict[int, float] = {}
        for wanted in sorted({min(days, MONTH), days}):
            measured[wanted] = min(_seconds(place, first_days[wanted - 1].last_seq) for _round in range(rounds))
        beats, beat_bytes = _heartbeats(place)
        events = first_days[-1].last_seq
        return {
            "month_s": round(measured[MONTH], 2) if MONTH in measured else None,
            "year_s": round(measured[YEAR], 2) if YEAR in measured else None,
            "day_s": round(measured[days] / days, 3),
            "days": days,
            "events": events,
            "events_per_s": int(events / measured[days]),
            "cycles": sum(entry.cycles for entry in first_days),
            "heartbeats": beats,
            "bytes_per_heartbeat": round(beat_bytes / beats, 3),
            "archive_bytes": sum(file.size for entry in first_days for file in entry.files),
            "clock": "CPU time of this process",
        }


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
    logs = Streamed(directory=directory)
    simulation = Simulation(World(jobs, options), logs=logs)
    for day in range(1, days + 1):
        with without_collector():
            simulation.run(options.start_ms + day * MS_PER_DAY - 1)
        logs.keep_state(simulation.core)
        sys.stderr.write(f"generated day {day} of {days}, seq {simulation.core.seq:,}\n")
    logs.close()


def _seconds(directory: Path, to_seq: int) -> float:
    began = time.process_time()
    state_from(directory, to_seq)
    return time.process_time() - began


def _heartbeats(directory: Path) -> tuple[int, int]:
    """Return how many heartbeats are kept as numbers, and the bytes of all segments of events but for other records' bodies."""
    beats = size = 0
    for segment in segments_of(directory, "events"):
        beats += read_sheet(segment).heartbeats
        size += segment.path.stat().st_size - sum(one.size for one in segment.header.sections if one.name in _OTHERS)
    return beats, size

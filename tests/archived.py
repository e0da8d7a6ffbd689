"""Logs to archive, and an archive of any two logs, as its files are: for those that no core would read too."""

from __future__ import annotations

import functools
from pathlib import Path

from apportion.adapters.bus.archived import Stream, chain_of, end_of
from apportion.adapters.bus.cut import Cut
from apportion.adapters.bus.local import Bus
from apportion.adapters.bus.shortening import shorten
from apportion.adapters.demo.generator import Shape, generate
from apportion.adapters.logs.manifest import DayEntry, Manifest, day_text, load
from apportion.adapters.logs.parts import DayParts, chain_end
from apportion.adapters.simulation.cluster import Layout
from apportion.adapters.simulation.driver import Logs, Simulation
from apportion.adapters.simulation.faults import ROUGH, Faults
from apportion.adapters.simulation.world import World, WorldOptions
from apportion.core.ports import DecisionLog, EventLog
from tests.projections.history import HOUR_MS, MINUTE_MS, START_MS, TROUBLED


@functools.cache
def played(seed: int, *, rough: bool, hours: int = 28) -> Logs:
    """Return the logs of one troubled node from 22:00 on, over two midnights, with a cycle every ten minutes."""
    start_ms = START_MS + 22 * HOUR_MS
    options = WorldOptions(
        seed=seed, start_ms=start_ms, length_ms=hours * HOUR_MS, layout=Layout(nodes=1), rates=TROUBLED
    )
    jobs = generate(seed, Shape(days=2, gpus=8, largest=8))
    simulation = Simulation(World(jobs, options), arrive=Faults(seed, ROUGH) if rough else None)
    return simulation.run(start_ms + hours * HOUR_MS, cycle_ms=10 * MINUTE_MS)


async def export(event_log: EventLog, decision_log: DecisionLog, directory: Path) -> tuple[int, int]:
    """Add what ``directory`` has not yet as one more day; returns the last sequences."""
    directory.mkdir(parents=True, exist_ok=True)
    manifest = load(directory)
    last = manifest.days[-1] if manifest.days else None
    after_seq, after_decision = (last.last_seq, last.last_decision) if last else (0, 0)
    day = day_text(20_000 + len(manifest.days))
    events = DayParts(directory, "events", day, chain_end(manifest, "events"))
    decisions = DayParts(directory, "decisions", day, chain_end(manifest, "decisions"))
    seq, decision_seq = after_seq, after_decision
    while records := await event_log.read(seq, 30):
        events.add(records)
        seq = records[-1].seq
    while batches := await decision_log.read(decision_seq, 30):
        decisions.add(batches)
        decision_seq = batches[-1].seq
    if seq > after_seq or decision_seq > after_decision:
        files = events.finish(), decisions.finish()
        entry = DayEntry(
            day=day, sealed=True, first_seq=after_seq + 1, last_seq=max(seq, after_seq + 1), last_ms=0, stated=False,
            cycles=decisions.count, last_decision=decision_seq, events=files[0], decisions=files[1],
        )  # fmt: skip
        Manifest(days=(*manifest.days, entry)).save(directory)
    return seq, decision_seq


async def cut_in_half(bus: Bus, directory: Path, log_id: str = "test") -> None:
    """Archive both logs of a server, and cut the first half of each from its stream: whole batches, and never all."""
    await export(bus.events, bus.decisions, directory)
    days = load(directory).days
    half = (await bus.events.last_seq()) // 2
    halves: dict[Stream, int] = {"EVENTS": half, "DECISIONS": 0}
    if last := await bus.decisions.last_seq():
        ends = [batch.seq for batch in await bus.decisions.read(0, last)]
        halves["DECISIONS"] = max((end for end in ends if end <= last // 2), default=0)
    for stream, cut_seq in halves.items():
        if cut_seq:
            end, chain = end_of(stream, days[-1]), chain_of(stream, days)
            await shorten(
                bus.connection, stream, Cut(cut_seq=cut_seq, archived_seq=end, chain=chain, archive="nowhere", log_id=log_id)
            )

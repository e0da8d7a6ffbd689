"""How long a what-if over a month of jobs takes: ``month_s``, and where the time goes.

A month of the generator's jobs (the shape of the ITP trace, ``demand_pct`` of the cluster's GPU time) on ``nodes`` nodes of 8 GPUs
is played once, with cycles of a minute, and kept as a what-if keeps a past it has read (``whatif.history``; heartbeats as columns,
thinned to what timeouts need). Then two programs exchange a part of their shares and the month is played again: that is
``month_s``, wall time of one process, with its CPU time in ``month_cpu_s``. Making the past (``past_s``) is not in it. With a
``directory`` the past is read from an archive, that of ``bench replay``, whose nodes report every ten seconds: ``past_s`` is then
how long a what-if reads. ``days`` other than 30 are scaled: ``month_s`` is then an estimate, and the document says so (``scaled``).
Progress goes to stderr.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import Any

from apportion.adapters.bench.generated import archive_of
from apportion.adapters.demo.generator import Shape, generate
from apportion.adapters.logs.archive import ArchiveDecisionLog, ArchiveEventLog
from apportion.adapters.logs.manifest import load
from apportion.adapters.past.trusting import state_from
from apportion.adapters.processes.collector import without_collector
from apportion.adapters.simulation.cluster import ROOT, Layout
from apportion.adapters.simulation.stated import tick_event
from apportion.adapters.simulation.world import World, WorldOptions
from apportion.adapters.whatif import change
from apportion.adapters.whatif.demand import Needs
from apportion.adapters.whatif.difference import difference
from apportion.adapters.whatif.history import History, Reader
from apportion.adapters.whatif.measures import Measured, Measures
from apportion.adapters.whatif.playing import Play
from apportion.adapters.whatif.reading import first_cycle, read
from apportion.core.decisions import encode_batch
from apportion.core.engine import Core
from apportion.core.envelope import Record, StoredBatch
from apportion.core.units import MS_PER_DAY

CYCLE_MS = 60_000
MONTH_DAYS = 30
DEMAND_PCT = 220
ARCHIVE_BEAT_S = 10
HOLDS, GETS = "cluster04", "cluster07"


def run(
    days: int = MONTH_DAYS, nodes: int = 128, demand_pct: int = DEMAND_PCT, seed: int = 1, directory: str = ""
) -> dict[str, Any]:
    """Return ``month_s`` and what the month was; an archive is always of the usual demand."""
    layout = Layout(nodes=nodes)
    if directory and demand_pct != DEMAND_PCT:
        raise ValueError(f"demand_pct {demand_pct}: the archive in {directory} is of {DEMAND_PCT}; leave one of the two out")
    if directory:
        with archive_of(directory, days, nodes, ARCHIVE_BEAT_S, seed) as place:
            to_seq = load(place).days[days - 1].last_seq
            began_s, past_cpu_s = time.monotonic(), time.process_time()
            history, before, core = asyncio.run(_read(place, to_seq))
    else:
        shape = Shape(days=days, gpus=layout.gpus, demand_milli=demand_pct * 10)
        options = WorldOptions(seed=seed, length_ms=days * MS_PER_DAY, layout=layout)
        began_s, past_cpu_s = time.monotonic(), time.process_time()
        with without_collector():
            history, before, core = _past(World(generate(seed, shape), options), days)
    past_s, past_cpu_s = time.monotonic() - began_s, time.process_time() - past_cpu_s
    wishes = [change.Wish(layout.pool, f"{ROOT}/{HOLDS}", 257_000), change.Wish(layout.pool, f"{ROOT}/{GETS}", 340_000)]
    cpu_s, began_s = time.process_time(), time.monotonic()
    needs, measures = Needs(history.recorder), Measures(core, history.to_ms)

    def show(done: int, whole: int) -> None:
        if done % 4_096 == 0:
            print(f"what-if: {done:,} of {whole:,} cycles, {time.monotonic() - began_s:.0f} s", file=sys.stderr, flush=True)

    changed = change.budgets(core, history, wishes, "bench")
    played = Play(history, needs, changed, measures.take).run(show)
    found = difference(history, before, measures.finish(), played, needs)
    wall_s, cpu_s = time.monotonic() - began_s, time.process_time() - cpu_s
    scale = MONTH_DAYS / days
    return {
        "month_s": round(wall_s * scale, 1),
        "month_cpu_s": round(cpu_s * scale, 1),
        "scaled": days != MONTH_DAYS,
        "days": days,
        "gpus": layout.gpus,
        "records": history.records,
        "kept_records": len(history.entries),
        "kept_beats": len(history.beats),
        "cycles": played.cycles,
        "jobs": found.after.total.jobs,
        "runs_remade": played.world.remade_runs,
        "starts": {"history": found.before.total.starts, "whatif": found.after.total.starts},
        "waiting_at_the_end": played.core.state.queued,
        "past": "read from an archive" if directory else "played",
        "past_s": round(past_s, 1),
        "past_cpu_s": round(past_cpu_s, 1),
    }


async def _read(place: Path, to_seq: int) -> tuple[History, Measured, Core]:
    """Read an archive from its first cycle on; returns what a what-if reads of it, and the core after that cycle."""
    events, decisions = ArchiveEventLog(place), ArchiveDecisionLog(place)
    core = state_from(place, await first_cycle(decisions))
    history, before = await read(core, events, decisions, to_seq)
    return history, before, core


def _past(world: World, days: int) -> tuple[History, Measured, Core]:
    """Play the month once; returns what a what-if reads of it, and the core after its first cycle."""
    core, reader, measures, start = Core.new(), None, None, None
    end_ms, began_s = world.options.start_ms + world.options.length_ms, time.monotonic()
    number = 0
    while world.now_ms < end_ms:
        number += 1
        events = [*world.advance(min(end_ms, world.now_ms + CYCLE_MS)), tick_event(world.now_ms, number)]
        records = [Record(seq, event.at_ms, event.subject, event.body) for seq, event in enumerate(events, core.seq + 1)]
        position = 0
        while position < len(records):
            position = core.fold_many(records, position)
        batch = core.decide_unhashed()
        world.react(batch)
        if reader is None:
            start = Core.from_snapshot(core.snapshot())
            measures = Measures(start, end_ms)
            reader = Reader(start, measures.take)
        else:
            reader.take(records, [StoredBatch(core.cycle, core.seq, encode_batch(batch))])
        if number % 1_440 == 0:
            print(
                f"past: day {number // 1_440} of {days}, {time.monotonic() - began_s:.0f} s, {core.state.queued:,} wait",
                file=sys.stderr, flush=True,
            )  # fmt: skip
    assert reader is not None
    assert measures is not None
    assert start is not None
    history = reader.finish()
    timeout_ms = int(start.state.pool.column("heartbeat_timeout_ms").min())
    history.beats = history.beats.thinned(timeout_ms // 3)
    return history, measures.finish(history.to_ms), start

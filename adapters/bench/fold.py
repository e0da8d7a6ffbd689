"""Folding archived history on one core: events per second, JSON decoding included.

Simulates days of a 512-GPU cluster (nine records in ten are heartbeats), then replays its log as an auditor does: every record
is decoded and folded, every stored batch is trusted, the chain over all records is computed and compared, and the last digest.
``events_only`` is the same log without its cycles' work: records folded up to each tick, whose batch is applied outside the timed
part. A measurement, not a test: the numbers depend on the machine.
"""

from __future__ import annotations

import time
from typing import Any

from apportion.adapters.demo.generator import Shape, generate
from apportion.adapters.simulation.driver import Logs, Simulation
from apportion.adapters.simulation.world import World, WorldOptions
from apportion.core.engine import Core
from apportion.core.units import MS_PER_DAY


def run(days: int = 2, rounds: int = 3, seed: int = 1) -> dict[str, Any]:
    """Return ``events_per_s`` (best of ``rounds``, CPU time of the process), and what the log was made of."""
    jobs = generate(seed, Shape(days=days))
    options = WorldOptions(seed=seed, length_ms=days * MS_PER_DAY)
    simulation = Simulation(World(jobs, options))
    logs = simulation.run(options.start_ms + days * MS_PER_DAY)
    _replay(Logs(logs.records[:2_000], logs.batches[:30]))  # loads the kernels' machine code
    measured = [_replay(logs) for _round in range(rounds)]
    events = len(logs.records)
    beats = sum(record.subject.endswith(".node.heartbeat") for record in logs.records)
    return {
        "events_per_s": int(events / min(total for total, _fold in measured)),
        "events_only_per_s": int(events / min(fold for _total, fold in measured)),
        "events": events,
        "heartbeats_percent": round(100 * beats / events, 1),
        "cycles": len(logs.batches),
        "bytes_per_event": sum(len(record.body) for record in logs.records) // events,
        "rounds_events_per_s": [int(events / total) for total, _fold in measured],
        "clock": "CPU time of this process",
    }


def _replay(logs: Logs) -> tuple[float, float]:
    """Replay both logs; returns (all, folding records only) in seconds of CPU time."""
    core, at, cycles, applied = Core.new(), 0, 0, 0.0
    began = time.process_time()
    while at < len(logs.records):
        at = core.fold_many(logs.records, at)
        if core.tick_pending:
            if cycles == len(logs.batches):
                break
            cycles += 1
            before = time.process_time()
            core.trust(logs.batches[cycles - 1].body, check=cycles == len(logs.batches))
            applied += time.process_time() - before
    total = time.process_time() - began
    return total, total - applied

"""Ingest of the projector: events per second into a DuckDB file, with the position in each commit.

Plays days of a 512-GPU cluster (nine records in ten are heartbeats) through the real core, then projects both logs into a new
file: in commits of about ``commit`` events, and in those of 10,000 that the projector makes while it is far behind. Decoding, the
chain over all records, the sync of each commit, and a last refresh are in it, so each row was made durable and is in its table
when time is taken; reading from NATS is not. A measurement, not a test.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

from apportion.adapters.demo.generator import Shape, generate
from apportion.adapters.projector.following import CATCH_UP_EVENTS, COMMIT_EVENTS
from apportion.adapters.simulation.driver import Logs, Simulation
from apportion.adapters.simulation.world import World, WorldOptions
from apportion.core.units import MS_PER_DAY
from apportion.projections import audit
from apportion.projections.runner import Projection


def run(days: int = 1, commit: int = COMMIT_EVENTS, rounds: int = 3, seed: int = 1) -> dict[str, Any]:
    """Return ``events_per_s`` (best of ``rounds``), milliseconds per commit, and what the log was made of."""
    jobs = generate(seed, Shape(days=days))
    options = WorldOptions(seed=seed, length_ms=days * MS_PER_DAY)
    logs = Simulation(World(jobs, options)).run(options.start_ms + days * MS_PER_DAY)
    events = logs.batches[-1].input_seq
    beats = sum(record.subject.endswith(".node.heartbeat") for record in logs.records[:events])
    measured = [_project(logs, commit) for _round in range(rounds)]
    behind = [_project(logs, CATCH_UP_EVENTS) for _round in range(rounds)]
    best = min(measured, key=lambda one: one["wall_s"])
    return {
        "events_per_s": int(events / best["wall_s"]),
        "events_per_cpu_s": int(events / min(one["cpu_s"] for one in measured)),
        "behind_events_per_s": int(events / min(one["wall_s"] for one in behind)),
        "behind_events_per_cpu_s": int(events / min(one["cpu_s"] for one in behind)),
        "events": events,
        "heartbeats_percent": round(100 * beats / events, 1),
        "cycles": len(logs.batches),
        "commits": best["commits"],
        "commit_p50_ms": best["commit_p50_ms"],
        "commit_max_ms": best["commit_max_ms"],
        "fold_us_per_event": round(best["fold_s"] * 1e6 / events, 2),
        "file_mb": best["file_mb"],
        "refresh_ms": best["refresh_ms"],
        "audit_s": best["audit_s"],
        "audit_failed": best["audit_failed"],
        "rounds_events_per_s": [int(events / one["wall_s"]) for one in measured],
    }


def _project(logs: Logs, commit: int) -> dict[str, Any]:
    """Project both logs once into a new file; returns times."""
    with tempfile.TemporaryDirectory(prefix="apportion-bench-") as folder:
        path = Path(folder) / "projection.duckdb"
        with Projection(path) as projection:
            projection.con.execute("set global threads = 1")  # as the projector does
            times: list[float] = []
            fold_s = 0.0
            began, cpu_began = time.perf_counter(), time.process_time()
            for records, batches in _cut(logs, commit):
                before = time.perf_counter()
                staged = projection.stage(records, batches)
                between = time.perf_counter()
                if staged is not None:
                    projection.commit(staged)
                fold_s += between - before
                times.append(time.perf_counter() - between)
            before = time.perf_counter()
            projection.refresh()
            refresh_s = time.perf_counter() - before
            wall_s, cpu_s = time.perf_counter() - began, time.process_time() - cpu_began
            before = time.perf_counter()
            failed = len(audit.audit(projection.con).failed)
            audit_s = time.perf_counter() - before
            projection.con.execute("checkpoint")
            return {
                "wall_s": wall_s,
                "cpu_s": cpu_s,
                "fold_s": fold_s,
                "commits": len(times),
                "commit_p50_ms": round(sorted(times)[len(times) // 2] * 1_000, 2),
                "commit_max_ms": round(max(times) * 1_000, 1),
                "refresh_ms": round(refresh_s * 1_000, 1),
                "audit_s": round(audit_s, 2),
                "audit_failed": failed,
                "file_mb": round(path.stat().st_size / 1e6, 1),
            }


def _cut(logs: Logs, commit: int) -> list[tuple[Any, Any]]:
    """Cut both logs into commits of at least ``commit`` records, each a number of whole cycles."""
    cuts = []
    after, first = 0, 0
    for number, batch in enumerate(logs.batches):
        if batch.input_seq - after >= commit or number + 1 == len(logs.batches):
            cuts.append((logs.records[after : batch.input_seq], logs.batches[first : number + 1]))
            after, first = batch.input_seq, number + 1
    return cuts

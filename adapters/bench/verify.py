"""Verifying a month of 1,024 GPUs whose nodes report every ten seconds: every decision derived again, on all processors.

The archive is that of ``bench replay`` (its making is no part of the figures), the work that of ``apportion verify``: stretches
side by side, cut at the snapshots of day ends that an archive has; where it has none, their first states are made ahead by
trusting. Each cycle is derived and compared byte for byte, the chain over all records computed, and the digest of the state after
each cycle. ``month_s`` is the time of the wall, ``cpu_s`` that of all processes
together: on a machine that does something else too, ``cpu_s`` over the processors is the better figure. With fewer days ``month_s``
is None, and ``day_s`` is the mean of the days there are. A measurement, not a test: it depends on the machine.
"""

from __future__ import annotations

import asyncio
import os
import resource
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from apportion.adapters.bench.generated import archive_of
from apportion.adapters.bench.replay import MONTH
from apportion.adapters.logs.archive import ArchiveDecisionLog, ArchiveEventLog
from apportion.adapters.logs.manifest import load
from apportion.adapters.past.snapshots import ARCHIVED
from apportion.adapters.proving.proof import Proof, prove
from apportion.adapters.proving.waypoints import Directory, Waypoint, kept, step_of


class Archived(NamedTuple):
    """Both logs of an archive, open."""

    events: ArchiveEventLog
    decisions: ArchiveDecisionLog


@asynccontextmanager
async def opened(directory: Path) -> AsyncIterator[Archived]:
    """Open an archive."""
    yield Archived(ArchiveEventLog(directory), ArchiveDecisionLog(directory))


def run(
    days: int = MONTH, nodes: int = 128, beat_s: int = 10, seed: int = 1, workers: int = 0, directory: str = ""
) -> dict[str, Any]:
    """Return the figures; ``workers`` 0 is one per processor, ``directory`` keeps the archive for the next time."""
    processes = workers or os.cpu_count() or 1
    with archive_of(directory, days, nodes, beat_s, seed) as place:
        wanted = load(place).days[:days]
        to_seq = wanted[-1].last_seq
        _prove(place, min(2_000, to_seq), 1)  # loads the kernels' machine code
        began, before_s = time.monotonic(), _cpu_s()
        proof = _prove(place, to_seq, processes)
        wall_s, cpu_s = time.monotonic() - began, _cpu_s() - before_s
    return {
        "month_s": round(wall_s, 2) if days >= MONTH else None,
        "cpu_s": round(cpu_s, 2),
        "day_s": round(wall_s / days, 3),
        "cpu_day_s": round(cpu_s / days, 3),
        "days": days,
        "ok": proof.ok,
        "events": to_seq,
        "events_per_s": int(to_seq / wall_s),
        "cycles": proof.cycles,
        "workers": proof.workers,
        "stretches": proof.stretches,
        "clock": "time of the wall; cpu_s is of this process and its workers",
    }


def _prove(directory: Path, to_seq: int, workers: int) -> Proof:
    return asyncio.run(_proof(directory, to_seq, workers))


async def _proof(directory: Path, to_seq: int, workers: int) -> Proof:
    start, snapshots = Waypoint(0, b"", "the first record"), Directory(directory / ARCHIVED, "the archive")
    waypoints = await kept(ArchiveEventLog(directory), (snapshots,), 0, to_seq, step_of(to_seq, workers) // 2)
    return await prove(partial(opened, directory), start, waypoints, to_seq, workers)


def _cpu_s() -> float:
    used = (resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in used)

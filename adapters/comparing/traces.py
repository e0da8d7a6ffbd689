"""Real traces in the bench's setting: eight days of the ITP or Philly jobs on a cluster for which they are 2 to 3 times too much.

Decides the size of the cluster and what each program is entitled to; a pure function of the file. A program is a budget below
the root. ITP (a folder or archive, see ``demo.trace``): 512 GPUs and the entitlements of the demo. Philly (``philly.csv`` as
published with Pollux: timestamp, duration, num_gpus, gpu_time, cluster): entitlements by the square root of what each virtual
cluster asks, so the large ones overrun; sizes above a node are rounded up to whole nodes, as the core demands.
It must never repair a row silently: a file that is neither is refused with its name.
"""

from __future__ import annotations

import csv
import math
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from apportion.adapters.comparing.setting import Setting, Tree
from apportion.adapters.demo.trace import TraceError, read_trace
from apportion.adapters.simulation.cluster import default_shares
from apportion.adapters.simulation.job import Job
from apportion.core.units import MS_PER_DAY, apportion

DAYS = 8
ITP_FIRST_DAY = 14
ITP_NODES = 64
PHILLY_COLUMNS = ["timestamp", "duration", "num_gpus", "gpu_time", "cluster"]
PHILLY_FROM = datetime(2017, 10, 19, tzinfo=UTC)  # eight busy days
PHILLY_TIMES_MILLI = 2_500  # demand of the slice
NODE_GPUS = 8


class Trace(NamedTuple):
    """A cluster, and the jobs of eight days."""

    setting: Setting
    jobs: list[Job]


def load(path: str, policy: str) -> Trace:
    """Return the trace at ``path``; raises ``TraceError`` when it is none of the two."""
    place = Path(path)
    files = sorted(place.glob("philly*.csv")) if place.is_dir() else [place] if place.name.startswith("philly") else []
    if files:
        return _philly(files[0], policy)
    jobs = read_trace(place, ITP_FIRST_DAY, DAYS)
    return Trace(Setting(policy=policy, nodes=ITP_NODES, tree=default_shares()), jobs)


def _philly(path: Path, policy: str) -> Trace:
    jobs: list[Job] = []
    with path.open(encoding="utf-8", newline="") as text:
        reader = csv.reader(text)
        if next(reader, None) != PHILLY_COLUMNS:
            raise TraceError(f"{path}: the first line is not {','.join(PHILLY_COLUMNS)}")
        for row in filter(None, reader):  # the file ends in an empty line
            try:
                at = datetime.fromisoformat(row[0]).replace(tzinfo=UTC)
                duration_ms, gpus = round(float(row[1]) * 1_000), int(row[2])
            except (ValueError, IndexError) as error:
                raise TraceError(f"{path} line {reader.line_num}: {error}") from None
            submit_ms = round((at - PHILLY_FROM).total_seconds() * 1_000)
            if 0 <= submit_ms < DAYS * MS_PER_DAY and duration_ms > 0:
                whole = gpus if gpus <= NODE_GPUS else -(-gpus // NODE_GPUS) * NODE_GPUS
                jobs.append(Job(f"philly-{reader.line_num}", submit_ms, duration_ms, whole, row[4]))
    jobs.sort(key=lambda job: (job.submit_ms, job.job_id))
    asked: dict[str, int] = {}
    for job in jobs:
        asked[job.program] = asked.get(job.program, 0) + job.gpus * job.duration_ms
    names = sorted(asked)
    tree: Tree = tuple(zip(names, apportion(1_000_000, [math.isqrt(asked[name]) for name in names]), strict=True))
    wanted = sum(asked.values()) * 1_000 // PHILLY_TIMES_MILLI // (DAYS * MS_PER_DAY) // NODE_GPUS
    nodes = max(wanted, max(job.gpus for job in jobs) // NODE_GPUS)
    return Trace(Setting(policy=policy, nodes=nodes, tree=tree), jobs)

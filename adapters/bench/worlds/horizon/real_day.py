"""A real day: the request curve of a generative service and the jobs of a program of a shared cluster, on one pool.

Decides how two traces become one instance; a pure function of their files, which are read by path and are no part of this project:
- the requests of GenTD26 (``forecasting.gentd26``): the highest half hour needs ``peak`` GPUs;
- the ITP jobs (see ``demo.trace``) of one program, submitted on one day; a job takes the half hours that it began in the trace's
  length, all have one priority, since the trace has none.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from apportion.adapters.bench.worlds.horizon.scenarios import KEEP, NO_BOUND
from apportion.adapters.demo.trace import read_trace
from apportion.adapters.forecasting.gentd26 import HALF_HOUR_S, read_curve
from apportion.core.horizon import instance as inst

GPUS, PEAK_GPUS, CAP = 256, 112, 16
PROGRAM, DAY = "cluster04", 18
PRIORITY, PENALTY = 5, 7


def day(shared: Path, program: str = PROGRAM, first_day: int = DAY, gpus: int = GPUS, peak: int = PEAK_GPUS) -> inst.Instance:
    """Return the instance; ``shared`` holds ``gentd26`` and ``elasticflow-itp``."""
    asked = read_curve(shared / "gentd26", peak)
    steps = len(asked)
    rows: list[tuple[int, ...]] = []
    for job in read_trace(shared / "elasticflow-itp", first_day, 1):
        came = -(-job.submit_ms // (1_000 * HALF_HOUR_S))
        if job.program == program and came < steps and job.gpus <= gpus:
            duration = -(-job.duration_ms // (1_000 * HALF_HOUR_S))
            rows.append((len(rows), job.gpus, duration, PRIORITY, came, NO_BOUND, 0))
    demand = np.array([asked], dtype=np.int64)
    column = np.array([0], dtype=np.int64)
    services = inst.Services(
        np.zeros_like(demand), demand, np.full_like(demand, peak * 5 // 4), column + CAP, column + inst.ANYWHERE, column + PRIORITY,
        column + PENALTY,
    )  # fmt: skip
    return inst.Instance(
        gpus, steps, inst.jobs(rows), inst.pinned([]), services, inst.decaying(2 * steps, KEEP), inst.unprotected(steps)
    )

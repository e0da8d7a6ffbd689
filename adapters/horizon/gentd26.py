"""A real day: the request curve of a generative service and the jobs of a program of a shared cluster, on one pool.

Decides how two traces become one instance; a pure function of their files, which are read by path and are no part of this project:
- ``qps.tar.gz`` of GenTD26 (alibaba/clusterdata, cluster-trace-v2026-GenAI): requests per second by container and instant, 22
hours.
  Published values are rescaled, so the shape alone is taken: the sum over containers of each minute, of these the mean in each half
  hour, and the highest of these needs ``peak`` GPUs. It ends before the first half hour without a sample (the 42nd, as published);
- the ITP jobs (see ``demo.trace``) of one program, submitted on one day; a job takes the half hours that it began in the trace's
  length, all have one priority, since the trace has none.
It must never fill a hole: a curve that ends before ``LEAST_STEPS`` is refused.
"""

from __future__ import annotations

import csv
import io
import tarfile
from pathlib import Path

import numpy as np

from apportion.adapters.demo.trace import read_trace
from apportion.adapters.horizon.scenarios import KEEP, NO_BOUND
from apportion.core.errors import ApportionError
from apportion.core.horizon import instance as inst

ARCHIVE = "qps.tar.gz"
COLUMNS = ["timestamp_anon", "value", "container_ip", "request_type"]
HALF_HOUR_S = 1_800
GPUS, PEAK_GPUS, CAP = 256, 112, 16
PROGRAM, DAY = "cluster04", 18
LEAST_STEPS = 36
PRIORITY, PENALTY = 5, 7


class GenaiError(ApportionError):
    """The file is not the trace as published."""


def read_curve(folder: Path, peak: int = PEAK_GPUS) -> list[int]:
    """Return the GPUs asked for in each whole half hour."""
    path = folder / ARCHIVE
    if not path.is_file():
        raise GenaiError(f"{path}: no such file; give the folder that holds {ARCHIVE}")
    sums: dict[int, float] = {}  # by minute
    try:
        with tarfile.open(path, "r:gz") as archive:
            stream = archive.extractfile("qps.csv")
            assert stream is not None  # it is a file, or the line above has failed
            reader = csv.reader(io.TextIOWrapper(stream, encoding="utf-8", newline=""))
            if next(reader, None) != COLUMNS:
                raise GenaiError(f"{path}: the first line is not {','.join(COLUMNS)}")
            for row in reader:
                minute = int(float(row[0])) // 60
                sums[minute] = sums.get(minute, 0.0) + float(row[1])
    except (tarfile.TarError, KeyError, ValueError, IndexError, OSError) as error:
        raise GenaiError(f"{path}: not the request curve as published ({error!r})") from error
    begin = min(sums)
    samples: list[list[float]] = [[] for _step in range((max(sums) - begin) // 30)]
    for minute in sorted(sums):
        step = (minute - begin) // 30
        if step < len(samples):
            samples[step].append(sums[minute])
    hole = next((step for step, values in enumerate(samples) if not values), len(samples))
    if hole < LEAST_STEPS:
        raise GenaiError(f"{path}: no sample in half hour {hole + 1}, at least {LEAST_STEPS} are needed")
    means = [sum(values) / len(values) for values in samples[:hole]]
    return [int(np.ceil(peak * mean / max(means))) for mean in means]


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

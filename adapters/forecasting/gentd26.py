"""The request curve of a generative service, as published: GenTD26 (alibaba/clusterdata, cluster-trace-v2026-GenAI).

``qps.tar.gz`` holds requests per second by container and instant, 22 hours. Published values are rescaled, so the shape alone is
taken: the sum over containers of each minute, of these the mean in each half hour, and the highest of these needs ``peak``. It ends
before the first half hour without a sample (the 42nd, as published), and a curve that ends before ``LEAST_STEPS`` is refused: no
hole is filled. A pure function of the file, which is read by path and is no part of this project.
"""

from __future__ import annotations

import csv
import io
import tarfile
from pathlib import Path

import numpy as np

from apportion.core.errors import ApportionError

ARCHIVE = "qps.tar.gz"
COLUMNS = ["timestamp_anon", "value", "container_ip", "request_type"]
HALF_HOUR_S = 1_800
LEAST_STEPS = 36


class GenaiError(ApportionError):
    """The file is not the trace as published."""


def read_curve(folder: Path, peak: int) -> list[int]:
    """Return what is asked for in each whole half hour, ``peak`` at most."""
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

"""Traffic of real services by step of time, read as published: the two request files of GenTD26; and one of our own making.

Decides what a row means here (alibaba/clusterdata, cluster-trace-v2026-GenAI; read by path, no part of this project):
- ``lora_request_trace.tar.gz``: 26,823 requests over 23 days, by their instant: requests in each hour, a whole day at the least. An
  hour without a request is one of no traffic, for the file has all of them;
- ``qps.tar.gz``: less than a day of requests a second: its half hours as ``horizon.gentd26`` reads them, in thousandths of the
  busiest.
``made`` is three weeks in the shape that the simulation has, its weekends at half. Pure functions of the files or of a seed.
"""

from __future__ import annotations

import csv
import io
import tarfile
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from apportion.adapters.forecasting import gentd26
from apportion.adapters.simulation.traffic import Curve
from apportion.core.events import Service
from apportion.core.units import MS_PER_DAY, MS_PER_HOUR

LORA = "lora_request_trace.tar.gz"
BEGIN_MS = 20_454 * MS_PER_DAY  # 2026-01-01, of what has no date
MADE_DAYS = 21
SHAPE_MILLI = 1_000_000


class Requests(NamedTuple):
    """Traffic by the first instant of each step, thousandths."""

    name: str
    step_ms: int
    milli: dict[int, int]


def lora(folder: Path) -> Requests:
    """Return the requests of each hour of the whole days. Raises ``gentd26.GenaiError``."""
    path = folder / LORA
    hours: dict[int, int] = {}
    try:
        with tarfile.open(path, "r:gz") as archive:
            stream = archive.extractfile("lora_request_trace.csv")
            assert stream is not None  # it is a file, or the line above has failed
            for row in csv.DictReader(io.TextIOWrapper(stream, encoding="utf-8", newline="")):
                at = datetime.fromisoformat(row["gmt_create"]).replace(tzinfo=UTC)
                hour_ms = int(at.timestamp()) * 1_000 // MS_PER_HOUR * MS_PER_HOUR
                hours[hour_ms] = hours.get(hour_ms, 0) + 1_000
        begin_ms, end_ms = (min(hours) // MS_PER_DAY + 1) * MS_PER_DAY, max(hours) // MS_PER_DAY * MS_PER_DAY
    except (tarfile.TarError, KeyError, ValueError, TypeError, OSError) as error:
        raise gentd26.GenaiError(f"{path}: not the requests as published ({error!r})") from error
    every = range(begin_ms, end_ms, MS_PER_HOUR)
    return Requests("gentd26 requests, by hour", MS_PER_HOUR, {hour_ms: hours.get(hour_ms, 0) for hour_ms in every})


def qps(folder: Path) -> Requests:
    """Return the traffic of each half hour. Raises ``gentd26.GenaiError``."""
    half_ms = gentd26.HALF_HOUR_S * 1_000
    curve = gentd26.read_curve(folder, SHAPE_MILLI)
    return Requests("gentd26 qps, by half hour", half_ms, {BEGIN_MS + at * half_ms: milli for at, milli in enumerate(curve)})


def made(seed: int, step_ms: int = MS_PER_HOUR) -> Requests:
    """Return three weeks of a made-up service, by the most of each step."""
    service = Service(max_replicas=1, gpus_milli_per_traffic=1)
    curve = Curve("made", "made", "made", "made", 1_000, service, SHAPE_MILLI, seed)
    steps = {}
    for at_ms in range(BEGIN_MS, BEGIN_MS + MADE_DAYS * MS_PER_DAY, step_ms):
        most = max(curve.observed(at_ms + minute * 60_000).traffic_milli for minute in range(0, step_ms // 60_000, 5))
        weekend = (at_ms // MS_PER_DAY + 3) % 7 >= 5
        steps[at_ms] = most // 2 if weekend else most
    return Requests("a made-up service, by hour", step_ms, steps)

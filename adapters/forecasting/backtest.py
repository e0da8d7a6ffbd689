"""How good the forecasts of runtimes would have been on a trace: trained on the weeks before, asked about the next.

A model sees, at the beginning of each tested week, what had ended by then; features of the tested week's workloads are those of
their submission. Naive baselines: the limit that was stated (a day without one, which is what the core takes), and the last runtime
of the same user and size that had ended (the same user, the budget, then the limit, where there is none).
Losses are of logarithms, so that one week-long job does not outweigh a thousand short ones: 0.69 is a factor of two; the mean
absolute error of the median in hours is told beside them. A pure function of the trace; what is submitted starts at once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from apportion.adapters.demo.trace import TRACE_EPOCH_MS, read_trace
from apportion.adapters.forecasting import runtimes
from apportion.adapters.forecasting.features import NAMES, features
from apportion.adapters.forecasting.history import KINDS, Asked
from apportion.adapters.forecasting.scoring import Score, points, score
from apportion.adapters.forecasting.trees import F64
from apportion.adapters.simulation.job import Job
from apportion.adapters.simulation.people import CALM, fate_of
from apportion.core.units import MS_PER_DAY, MS_PER_HOUR, UNKNOWN_RUNTIME_MS

WEEK_MS = 7 * MS_PER_DAY
SEED = 1
LEVELS = tuple(ppm / 1_000_000 for ppm in runtimes.QUANTILES_PPM)
MEDIAN = runtimes.QUANTILES_PPM.index(500_000)
WAYS = ("model", "limit", "last")


class Line(NamedTuple):
    """One way of telling runtimes, over all tested weeks."""

    way: str
    rows: str  # which workloads: all, those with a limit, those without
    score: Score
    error_h: float  # mean absolute error of the median, in hours


def asked_of(jobs: Sequence[Job], begin_ms: int) -> list[Asked]:
    """Return the workloads that people would have submitted (see ``simulation.people``), in order."""
    asked = []
    for job in jobs:
        fate = fate_of(SEED, CALM, "gpu", job)
        event, at_ms = fate.event, begin_ms + job.submit_ms
        asked.append(Asked(
            job.job_id, at_ms, fate.principal, event.budget, event.kind, job.job_id, event.gpus_milli, max(event.nodes, 1),
            event.priority, event.expected_runtime_ms, event.min_runtime_ms or 0, event.checkpoint_interval_ms, "other",
            at_ms + job.duration_ms, job.duration_ms,
        ))  # fmt: skip
    asked.sort(key=lambda one: (one.submitted_ms, one.workload))
    return asked


def of_itp(path: Path, days: int, weeks: int) -> dict[str, Any]:
    """Return the backtest of the last ``weeks`` weeks of the first ``days`` days of the ITP trace."""
    return backtest(asked_of(read_trace(path, 0, days), TRACE_EPOCH_MS), TRACE_EPOCH_MS + days * MS_PER_DAY, weeks)


def backtest(asked: Sequence[Asked], end_ms: int, weeks: int) -> dict[str, Any]:
    """Return scores by way and by kind for the ``weeks`` weeks before ``end_ms``."""
    table = features(asked)
    tested: list[int] = []
    said: list[F64] = []
    trained: list[dict[str, Any]] = []
    for week in range(weeks, 0, -1):
        begin_ms = end_ms - week * WEEK_MS
        for kind in KINDS:
            model = runtimes.train(kind, asked, table, begin_ms)
            rows = [
                row for row, one in enumerate(asked) if one.kind == kind and 0 <= one.submitted_ms - begin_ms < WEEK_MS
            ]
            if model is None or not rows:
                continue
            values = runtimes.forecast(model, table[rows], [asked[row] for row in rows], [0] * len(rows))
            tested += rows
            said.append(np.log(np.array(values, dtype=np.float64)))
            told = {"kind": kind, "week": weeks - week + 1, "model": model.model_id}
            trained.append({**told, "rows": model.rows, "asked": len(rows)})
    if not tested:
        raise ValueError(f"no kind of work has {runtimes.LEAST_ROWS} ended workloads before the last {weeks} weeks")
    came = np.log([float(asked[row].runtime_ms) for row in tested])
    ways = {"model": np.concatenate(said), "limit": _limits(asked, tested), "last": _lasts(asked, table, tested)}
    limited = np.array([asked[row].limit_ms > 0 for row in tested])
    picks = {"all": np.ones(len(tested), dtype=np.bool_), "with a limit": limited, "without a limit": ~limited}
    picks |= {kind: np.array([asked[row].kind == kind for row in tested]) for kind in KINDS}
    lines = [
        Line(way, name, score(LEVELS, ways[way][pick], came[pick]), _error_h(ways[way][pick], came[pick]))
        for name, pick in picks.items() if pick.any() for way in WAYS
    ]  # fmt: skip
    return {"quantiles": list(LEVELS), "models": trained, "lines": lines}


def _limits(asked: Sequence[Asked], rows: Sequence[int]) -> F64:
    return points(np.log([float(asked[row].limit_ms or UNKNOWN_RUNTIME_MS) for row in rows]), LEVELS)


def _lasts(asked: Sequence[Asked], table: F64, rows: Sequence[int]) -> F64:
    """Return the last runtime of the same user and size, else what comes nearest to it."""
    columns = [NAMES.index(name) for name in ("user_size_last", "user_last", "budget_last")]
    result = []
    for row in rows:
        known = [value for value in table[row, columns].tolist() if not math.isnan(value)]
        result.append(known[0] if known else math.log(asked[row].limit_ms or UNKNOWN_RUNTIME_MS))
    return points(np.array(result), LEVELS)


def _error_h(said: F64, came: F64) -> float:
    return float(np.abs(np.exp(said[:, MEDIAN]) - np.exp(came)).mean() / MS_PER_HOUR)

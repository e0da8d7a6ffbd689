"""How good the forecasts of traffic would have been: from many instants on, from what was seen before each, for the steps after it.

Naive baselines: the last step's traffic, and the same step of the day before and of the week before (seasonal naive), each counted
where it can be had; ``model`` is told for the same instants above them. Losses are in parts of the
mean traffic. A pure function of the traffic.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from apportion.adapters.forecasting import traffic
from apportion.adapters.forecasting.requests import Requests
from apportion.adapters.forecasting.scoring import Score, points, score
from apportion.adapters.forecasting.trees import F64
from apportion.core.units import MS_PER_DAY

LEVELS = tuple(ppm / 1_000_000 for ppm in traffic.QUANTILES_PPM)
LAGS = {"day before": MS_PER_DAY, "week before": 7 * MS_PER_DAY}


class Line(NamedTuple):
    """One way of telling traffic, for the instants at which another can be had too."""

    way: str
    where: str
    score: Score


def backtest(requests: Requests, warm_ms: int, ahead_ms: int) -> list[Line]:
    """Return the scores of forecasts for ``ahead_ms``, made at every step from ``warm_ms`` after the first on."""
    step_ms, milli = requests.step_ms, requests.milli
    first_ms, end_ms = min(milli), max(milli) + step_ms
    mean = sum(milli.values()) / len(milli)
    told: dict[str, list[F64]] = {}
    came: dict[str, list[F64]] = {}
    day, profile = -1, None
    for now_ms in range(first_ms + warm_ms, end_ms - ahead_ms + 1, step_ms):
        seen = traffic.seen_of({at: value for at, value in milli.items() if at < now_ms}, step_ms, now_ms)
        if now_ms // MS_PER_DAY != day:
            day, profile = now_ms // MS_PER_DAY, traffic.fit(seen, now_ms)
        ahead = traffic.forecast(profile, seen, now_ms, ahead_ms // step_ms)
        if ahead is None:
            continue
        instants = [now_ms + step * step_ms for step in range(ahead.milli.shape[1])]
        actual = np.array([milli[at] for at in instants]) / mean
        ways = {"model": ahead.milli.T / mean, "last": _points([milli[now_ms - step_ms]] * len(instants), mean)}
        for way, lag_ms in LAGS.items():
            if instants[0] - lag_ms >= first_ms and lag_ms >= ahead_ms:
                ways[way] = _points([milli[at - lag_ms] for at in instants], mean)
        for way, values in ways.items():
            for key, part in ((way, values), (f"model {way}", ways["model"])):
                told.setdefault(key, []).append(part)
                came.setdefault(key, []).append(actual)
    lines: list[Line] = []
    rows = 0
    for way in ("last", *LAGS):
        for key, name in ((f"model {way}", "model"), (way, way)):
            if key in told:
                scored = score(LEVELS, np.concatenate(told[key]), np.concatenate(came[key]))
                if name != "model" or scored.rows != rows:  # the same instants as of the baseline before
                    lines.append(Line(name, way, scored))
                rows = scored.rows
    return lines


def _points(values: list[int], mean: float) -> F64:
    return points(np.array(values, dtype=np.float64) / mean, LEVELS)

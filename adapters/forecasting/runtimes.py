"""How long work will run: a model for each kind of batch work, and what it says of a workload that waits or runs.

- A kind with fewer than ``LEAST_ROWS`` ended workloads has no model, and nothing is forecast of it: the core then takes the limit.
- What ended tells more of short work than of long: long work submitted lately is not over. Each end counts as many times as there
  are submissions old enough to show a run of its length (inverse probability of censoring: Robins and Rotnitzky, 1992).
- Trees are fitted on all but the newest part of what is known, and each quantile is shifted so that it would have held on that part
  (conformalized quantile regression: Romano, Patterson and Candes, NeurIPS 2019). Trees fitted on all of it with that same shift
  are worse: on a thousand drawn runtimes only 75 of 100 came below the quantile of 84. What is newest counts in the features.
- Of work that runs already only what is longer counts. Beyond the highest quantile runtimes are taken to thin out with the square
  of their length: what has run for twice as long as it should is expected to run for less than half as long again.
- Nothing is forecast above the limit that was stated, unless it has run for longer.

A pure function of the history, but for scikit-learn's own release. It must never see an end that comes after ``as_of_ms``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from apportion.adapters.forecasting import boosting
from apportion.adapters.forecasting.features import NAMES, VARIANT_AT
from apportion.adapters.forecasting.history import Asked
from apportion.adapters.forecasting.trees import F64, Model
from apportion.core.units import MAX_DURATION_MS

QUANTILES_PPM = (100_000, 250_000, 500_000, 841_345, 977_250)  # the median, and one and two sigma above it
LEAST_ROWS = 200
CALIBRATED_PART = 5  # the newest fifth
WEIGHT_MAX = 5.0
TAIL = 2.0  # P(longer than t) falls with t to this power


def train(
    kind: str, asked: Sequence[Asked], table: F64, as_of_ms: int, go_on: Callable[[], None] = lambda: None
) -> Model | None:
    """Return a model of one kind from what had ended by ``as_of_ms``, or None when that is too little.

    ``table`` has the features of ``asked``, which is in order of submission and may hold other kinds. ``go_on`` is called before
    each fit, which takes seconds, and may raise.
    """
    rows = [row for row, one in enumerate(asked) if one.kind == kind and one.submitted_ms < as_of_ms]
    ended = [row for row in rows if 0 < asked[row].ended_ms <= as_of_ms]
    if len(ended) < LEAST_ROWS:
        return None
    known, logarithms = table[ended], np.log([float(asked[row].runtime_ms) for row in ended])
    ages = np.sort(as_of_ms - np.array([asked[row].submitted_ms for row in rows], dtype=np.float64))
    weights = _weights(ages, np.exp(logarithms))
    cut = len(ended) - len(ended) // CALIBRATED_PART
    # the newest part has had less time to end, so its ends stand for more
    newer = int(np.searchsorted(ages, as_of_ms - asked[ended[cut]].submitted_ms, side="right"))
    late = _weights(ages[:newer], np.exp(logarithms[cut:]))
    forests, shifts = [], []
    for ppm in QUANTILES_PPM:
        go_on()
        forest = boosting.fit(known[:cut], logarithms[:cut], weights[:cut], ppm, VARIANT_AT)
        shifts.append(_shift(logarithms[cut:] - forest.predict(known[cut:]), late, ppm / 1_000_000))
        forests.append(forest)
    newest_ms = max(asked[row].ended_ms for row in ended)
    return Model(kind, newest_ms, len(ended), NAMES, QUANTILES_PPM, tuple(shifts), tuple(forests))


def _weights(ages_ms: F64, runtimes_ms: F64) -> F64:
    """Return how many submissions each end stands for, at most ``WEIGHT_MAX``."""
    shown = 1.0 - np.searchsorted(ages_ms, runtimes_ms, side="left") / len(ages_ms)
    result: F64 = np.minimum(1.0 / np.maximum(shown, 1.0 / WEIGHT_MAX), WEIGHT_MAX)
    return result


def _shift(errors: F64, weights: F64, level: float) -> float:
    """Return the weighted quantile of the errors."""
    order = np.argsort(errors, kind="stable")
    below = np.cumsum(weights[order])
    return float(errors[order[min(int(np.searchsorted(below, level * below[-1])), len(errors) - 1)]])


def forecast(model: Model, table: F64, asked: Sequence[Asked], elapsed_ms: Sequence[int]) -> list[tuple[int, ...]]:
    """Return for each workload the milliseconds by quantile, ascending; ``table`` has their features."""
    if model.features != NAMES:
        raise ValueError(f"the model knows {len(model.features)} features, this release has {len(NAMES)}: fit it again")
    rows = model.logarithms(table) if len(table) else np.zeros((0, len(model.quantiles_ppm)))
    levels = [ppm / 1_000_000 for ppm in model.quantiles_ppm]
    return [
        _bounded(longer_than(levels, logs.tolist(), elapsed), one.limit_ms, elapsed)
        for logs, one, elapsed in zip(rows, asked, elapsed_ms, strict=True)
    ]


def longer_than(levels: Sequence[float], logs: Sequence[float], elapsed_ms: int) -> list[float]:
    """Return the logarithms by quantile of a runtime that is known to be longer than ``elapsed_ms``."""
    if elapsed_ms <= 0 or math.log(elapsed_ms) <= logs[0]:
        return list(logs)
    at = math.log(elapsed_ms)
    if at >= logs[-1]:
        return [at - math.log(1.0 - level) / TAIL for level in levels]
    gone = float(np.interp(at, logs, levels))
    return [max(at, _quantile(levels, logs, gone + level * (1.0 - gone))) for level in levels]


def _quantile(levels: Sequence[float], logs: Sequence[float], level: float) -> float:
    if level <= levels[-1]:
        return float(np.interp(level, levels, logs))
    return logs[-1] + math.log((1.0 - levels[-1]) / (1.0 - level)) / TAIL


def _bounded(logs: Sequence[float], limit_ms: int, elapsed_ms: int) -> tuple[int, ...]:
    most_ms = limit_ms if limit_ms > elapsed_ms else MAX_DURATION_MS
    return tuple(min(max(round(math.exp(min(log, 40.0))), 1), most_ms, MAX_DURATION_MS) for log in logs)


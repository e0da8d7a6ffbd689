"""What is known of a workload when it is submitted, as numbers: its request, and how what came before it went.

A pure function of what was submitted and had ended by then: an end counts for who is submitted
later than it, and for nobody else. So the features of a workload never change, whenever they are asked for, and a model cannot
learn from the future. Runtimes and limits are logarithms, since errors of runtimes are factors; what is not known is NaN.

The naive equivalent, kept in the tests as the oracle: for each workload, look through all that ended before and take the last,
the median of the last ``REMEMBERED`` and the count, for each key. Here ends and submissions are merged in order of time and each
key remembers its last few.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from statistics import median

import numpy as np
from numpy.typing import NDArray

from apportion.adapters.forecasting.history import Asked
from apportion.adapters.forecasting.variant import VARIANTS

F64 = NDArray[np.float64]

REMEMBERED = 20
BURST_MS = 3_600_000
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
EPOCH_WEEKDAY = 3  # 1970-01-01 was a Thursday

KEYS = ("user", "user_size", "user_name", "budget", "budget_size")
NAMES = (
    "gpus", "nodes", "hour", "weekday", "priority", "limit", "min_runtime", "checkpoint", "variant", "burst",
    *(f"{key}_{what}" for key in KEYS for what in ("last", "median")),
    "user_count", "user_name_count", "budget_count", "limit_ratio_last", "limit_ratio_median",
)  # fmt: skip
VARIANT_AT = NAMES.index("variant")
_NAN = math.nan


def stem(name: str) -> str:
    """Return a name without what numbers it: ``eval-17`` and ``eval-18`` are one kind of work."""
    bare = re.sub(r"\d+", "", name)
    return re.sub(r"[-_.:]+", "-", bare).strip("-").lower()


def keys_of(one: Asked) -> tuple[tuple[str, ...], ...]:
    """Return what the workload has in common with others, one key for each of ``KEYS``; only work of one kind is alike."""
    size = str(one.gpus_milli)
    return (
        ("user", one.kind, one.principal), ("user_size", one.kind, one.principal, size),
        ("user_name", one.kind, one.principal, stem(one.name)), ("budget", one.kind, one.budget),
        ("budget_size", one.kind, one.budget, size),
    )  # fmt: skip


def features(asked: Sequence[Asked]) -> F64:
    """Return one row of ``NAMES`` for each workload; ``asked`` is in order of submission."""
    table = np.full((len(asked), len(NAMES)), np.nan)
    ends = sorted((one for one in asked if one.ended_ms), key=lambda one: (one.ended_ms, one.workload))
    ended_ms = [one.ended_ms for one in ends]
    past: dict[tuple[str, ...], _Past] = {}
    ratios: dict[tuple[str, ...], _Past] = {}
    bursts: dict[str, deque[int]] = {}
    done = 0
    for row, one in enumerate(asked):
        known = bisect_left(ended_ms, one.submitted_ms, lo=done)
        for end in ends[done:known]:
            _learn(end, past, ratios)
        done = max(done, known)
        burst = bursts.setdefault(one.principal, deque())
        while burst and burst[0] <= one.submitted_ms - BURST_MS:
            burst.popleft()
        table[row] = [*_of_request(one, len(burst)), *_of_history(one, past, ratios)]
        burst.append(one.submitted_ms)
    return table


class _Past:
    """The last few values of a key, and how many there were."""

    __slots__ = ("count", "values")

    def __init__(self) -> None:
        self.values: deque[float] = deque(maxlen=REMEMBERED)
        self.count = 0

    def add(self, value: float) -> None:
        self.values.append(value)
        self.count += 1


def _learn(end: Asked, past: dict[tuple[str, ...], _Past], ratios: dict[tuple[str, ...], _Past]) -> None:
    logarithm = math.log(max(end.runtime_ms, 1))
    keys = keys_of(end)
    for key in keys:
        past.setdefault(key, _Past()).add(logarithm)
    if end.limit_ms:
        ratios.setdefault(keys[0], _Past()).add(logarithm - math.log(end.limit_ms))


def _of_request(one: Asked, burst: int) -> list[float]:
    day, within_ms = divmod(one.submitted_ms, DAY_MS)
    return [
        math.log2(max(one.gpus_milli, 1) / 1_000), float(one.nodes), float(within_ms // HOUR_MS), float((day + EPOCH_WEEKDAY) % 7),
        float(one.priority), _log(one.limit_ms), _log(one.min_runtime_ms), _log(one.checkpoint_ms),
        float(VARIANTS.index(one.variant)), math.log1p(burst),
    ]  # fmt: skip


def _of_history(one: Asked, past: dict[tuple[str, ...], _Past], ratios: dict[tuple[str, ...], _Past]) -> list[float]:
    found = [past.get(key) for key in keys_of(one)]
    row: list[float] = []
    for known in found:
        row += _last_and_median(known)
    for known in (found[0], found[2], found[3]):
        row.append(math.log1p(known.count) if known else 0.0)
    return row + _last_and_median(ratios.get(keys_of(one)[0]))


def _last_and_median(known: _Past | None) -> list[float]:
    return [known.values[-1], median(known.values)] if known else [_NAN, _NAN]


def _log(ms: int) -> float:
    return math.log(ms) if ms > 0 else _NAN

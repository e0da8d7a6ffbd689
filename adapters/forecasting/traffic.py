"""What traffic a service will see: a profile of its week, recalibrated each day, with quantiles from its own errors.

What is known decides which of three it is; a step is a part of a day, and its traffic the most that was seen in it.
- ``day``, from one day on: of each step of the day the mean of past days, a day counting half of the second one after it.
- ``week``, from seven days on: of each step of the week the mean of past weeks, a week counting half of the one after it, and with
  that the ``day``, which counts as one week, or not at all. Steps are smoothed over their neighbours, or not. Of these four ways
  the one is taken that missed least in the last ``SPREAD_DAYS`` days: some traffic grows, and some is the same week for ever.
- ``last``, before: the last step's traffic, for two hours ahead only. Its logarithm is taken to wander as it has so far, and at
  first by ``WANDER`` in half an hour: wide, since nothing is known. Later than two hours nothing is said.

Each new day is first told by what was known before it. The ratio of what came to that, of late, is the level by which the profile
is lifted; the errors of the last ``SPREAD_DAYS`` days, relative to what was told, are the spread: of each step the quantiles of the
errors where about as much traffic was told. During a day what came in its last hours lifts the next ones, less and less.
Steps without news are gaps: nothing is put into them, a profile's step without news is that of the day, else the mean. Traffic
above ``ABSURD`` times what all but one step in twenty stay below is left out, and counted.

Pure functions of what was seen. They must never look at a step that is not over, nor fill one that was not seen.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from apportion.core.units import MS_PER_DAY, MS_PER_HOUR

F64 = NDArray[np.float64]

QUANTILES_PPM = (500_000, 841_345, 977_250)  # the median, and one and two sigma above it
NORMAL = (0.0, 1.0, 2.0)  # standard deviations of these
WEEK_DAYS = 7
HISTORY_DAYS = 35
SPREAD_DAYS = 7
FADE_DAYS = 2.0  # a day counts half of so many later
LEVEL_BOUND = math.log(4.0)
LEVEL_PRIOR = 2.0  # days that say: as before
FLOOR_PART = 0.1  # of the mean traffic: what errors of little traffic are relative to
NEIGHBOURS = 48  # errors that a quantile is taken from, at least
RECENT_MS = 3 * MS_PER_HOUR
LAST_AHEAD_MS = 2 * MS_PER_HOUR
SILENT_MS = 2 * MS_PER_HOUR  # without news for so long the last traffic says nothing any more
WANDER = 0.25
WANDER_STEPS = 8  # observed changes that weigh as much as ``WANDER``
MEDIAN_TO_SIGMA = 1.4826  # of a normal distribution
HALF_HOUR_MS = MS_PER_HOUR // 2
ABSURD = 20.0
ABSURD_LEAST = 8  # steps that must be known before anything is absurd


class Seen(NamedTuple):
    """Traffic by step from ``from_ms`` on, thousandths; NaN where nothing was seen."""

    from_ms: int
    step_ms: int
    milli: F64
    absurd: int  # steps left out

    @property
    def until_ms(self) -> int:
        """Where the last step ends."""
        return self.from_ms + len(self.milli) * self.step_ms


class Way(NamedTuple):
    """How a profile is made: as how many weeks the usual day counts beside the same weekdays, and whether steps are smoothed."""

    usual: float
    smooth: bool


WAYS = tuple(Way(usual, smooth) for usual in (1.0, 0.0) for smooth in (True, False))


class Profile(NamedTuple):
    """What is forecast from: fitted on what was seen before the day that begins at ``as_of_ms``."""

    form: str  # week or day
    as_of_ms: int
    step_ms: int
    base: F64  # by step of the week
    level: float  # a logarithm
    floor: float
    told: F64  # of past steps, ascending
    errors: F64  # relative, of the same steps

    @property
    def model_id(self) -> str:
        """The name that forecasts carry."""
        sha = hashlib.sha256(f"{self.form} {self.as_of_ms} {self.step_ms} {self.level!r} {self.floor!r}".encode())
        for column in (self.base, self.told, self.errors):
            sha.update(np.ascontiguousarray(column).tobytes())
        return f"traffic-{self.form}-{sha.hexdigest()[:12]}"


class Ahead(NamedTuple):
    """A forecast: rows of steps by quantile."""

    model: str
    from_ms: int
    step_ms: int
    milli: F64


def seen_of(by_step: Mapping[int, int], step_ms: int, now_ms: int) -> Seen:
    """Return what was seen in the steps that are over, as far back as counts; ``by_step`` is by the step's first instant."""
    end_ms = now_ms // step_ms * step_ms
    first = end_ms // MS_PER_DAY * MS_PER_DAY - HISTORY_DAYS * MS_PER_DAY
    known = {at: milli for at, milli in by_step.items() if first <= at < end_ms}
    begin_ms = min(known) // MS_PER_DAY * MS_PER_DAY if known else end_ms
    milli = np.full((end_ms - begin_ms) // step_ms, np.nan)
    for at, value in known.items():
        milli[(at - begin_ms) // step_ms] = value
    some = milli[~np.isnan(milli) & (milli > 0)]
    absurd = 0
    if len(some) >= ABSURD_LEAST:
        beyond = milli > ABSURD * float(np.quantile(some, 0.95, method="lower"))
        absurd = int(beyond.sum())
        milli[beyond] = np.nan
    return Seen(begin_ms, step_ms, milli, absurd)


def fit(seen: Seen, now_ms: int) -> Profile | None:
    """Return the profile for the day of ``now_ms`` from what was seen before that day; None while that is less than a day."""
    begin_ms = now_ms // MS_PER_DAY * MS_PER_DAY
    daily = MS_PER_DAY // seen.step_ms
    days = seen.milli[: max(0, (begin_ms - seen.from_ms) // seen.step_ms)]
    days = days[: len(days) // daily * daily].reshape(-1, daily)
    if np.count_nonzero(~np.isnan(days)) < daily:
        return None
    floor = max(FLOOR_PART * float(np.nanmean(days)), 1.0)
    return min((_fitted(days, seen, begin_ms, floor, way) for way in WAYS), key=_missed)  # the first of equals


def _missed(profile: Profile) -> float:
    """Return by how much it missed in the days past."""
    return float(np.abs(profile.errors * (profile.told + profile.floor)).sum())


def _fitted(days: F64, seen: Seen, begin_ms: int, floor: float, way: Way) -> Profile:
    """Return the profile that one way makes, with its errors when each past day was told by the days before it."""
    first_day = seen.from_ms // MS_PER_DAY
    levels: list[float] = []
    told, came = [], []
    for day in range(len(days)):
        base = _base(days[:day], first_day, first_day + day, way) if day else np.full(days.shape[1], np.nan)
        actual = days[day]
        both = ~np.isnan(base) & ~np.isnan(actual)
        if both.any():
            lifted = base * math.exp(_level(levels))
            if day >= len(days) - SPREAD_DAYS:
                told.append(lifted[both])
                came.append(actual[both])
            levels.append(math.log((float(actual[both].sum()) + floor) / (float(base[both].sum()) + floor)))
    base = np.concatenate([_base(days, first_day, first_day + len(days) + ahead, way) for ahead in range(WEEK_DAYS)])
    expected = np.concatenate(told) if told else np.zeros(0)
    order = np.argsort(expected, kind="stable")
    errors = (np.concatenate(came) - expected) / (expected + floor) if told else np.zeros(0)
    form = "week" if len(days) >= WEEK_DAYS else "day"
    return Profile(form, begin_ms, seen.step_ms, base, _level(levels), floor, expected[order], errors[order])


def _base(days: F64, first_day: int, day: int, way: Way) -> F64:
    """Return what the days before tell of a day, by its steps."""
    ages = np.arange(len(days), 0, -1, dtype=np.float64)
    usual = _mean(days, 0.5 ** (ages / FADE_DAYS), way)
    same = np.flatnonzero((first_day + np.arange(len(days)) - day) % WEEK_DAYS == 0)
    if not len(same):
        return usual
    weekly = _mean(days[same], 0.5 ** (ages[same] / WEEK_DAYS), way)
    return np.where(np.isnan(weekly), usual, (len(same) * weekly + way.usual * usual) / (len(same) + way.usual))


def _mean(days: F64, weights: F64, way: Way) -> F64:
    """Return the mean by step, smoothed over its neighbours or not; where a step was never seen, the mean of all."""
    known = ~np.isnan(days)
    weight = (known * weights[:, None]).sum(axis=0)
    total = (np.where(known, days, 0.0) * weights[:, None]).sum(axis=0)
    if not known.any():
        return np.full(days.shape[1], np.nan)
    near = np.array((1.0, 2.0, 1.0) if way.smooth else (0.0, 1.0, 0.0))
    total, weight = (np.convolve(np.concatenate((row[-1:], row, row[:1])), near, "valid") for row in (total, weight))
    mean = float(total.sum() / weight.sum())
    result: F64 = np.where(weight > 0, total / np.maximum(weight, 1e-12), mean)
    return result


def _level(levels: list[float]) -> float:
    """Return the logarithm by which profiles were too low of late."""
    if not levels:
        return 0.0
    weights = 0.5 ** (np.arange(len(levels), 0, -1) / FADE_DAYS)
    found = float((np.array(levels) * weights).sum() / (weights.sum() + LEVEL_PRIOR))
    return min(max(found, -LEVEL_BOUND), LEVEL_BOUND)


def forecast(profile: Profile | None, seen: Seen, now_ms: int, steps: int) -> Ahead | None:
    """Return what is to be expected from the step of ``now_ms`` on, or None where nothing can be said."""
    if profile is None:
        return _from_last(seen, now_ms, steps)
    from_ms = now_ms // seen.step_ms * seen.step_ms
    expected = _lifted(profile, from_ms, steps)
    recent = max(1, RECENT_MS // seen.step_ms)
    came = seen.milli[-recent:]
    before = _lifted(profile, seen.until_ms - len(came) * seen.step_ms, len(came))
    known = ~np.isnan(came)
    if known.any():
        least = recent * profile.floor
        nudge = math.log((float(came[known].sum()) + least) / (float(before[known].sum()) + least))
        fade = 0.5 ** (np.arange(1, steps + 1) * seen.step_ms / RECENT_MS)
        expected = expected * np.exp(min(max(nudge, -LEVEL_BOUND), LEVEL_BOUND) * 0.5 * fade)
    levels = [ppm / 1_000_000 for ppm in QUANTILES_PPM]
    spread = np.stack([_errors_at(profile, value, levels) for value in expected.tolist()], axis=1)
    rows = np.maximum(expected + spread * (expected + profile.floor), 0.0)
    return Ahead(profile.model_id, from_ms, seen.step_ms, np.sort(rows, axis=0))


def _lifted(profile: Profile, from_ms: int, steps: int) -> F64:
    at = ((from_ms - profile.as_of_ms) // profile.step_ms + np.arange(steps)) % len(profile.base)
    result: F64 = profile.base[at] * math.exp(profile.level)
    return result


def _errors_at(profile: Profile, expected: float, levels: list[float]) -> F64:
    """Return the quantiles of the errors of steps of which about as much was told."""
    count = len(profile.told)
    if not count:
        return np.array([WANDER * 2.0 * sigma for sigma in NORMAL])
    width = min(count, max(NEIGHBOURS, count // 4))
    low = min(max(int(np.searchsorted(profile.told, expected)) - width // 2, 0), count - width)
    return np.quantile(profile.errors[low : low + width], levels, method="higher")


def _from_last(seen: Seen, now_ms: int, steps: int) -> Ahead | None:
    """Return what the last step says, while it is news."""
    known = np.flatnonzero(~np.isnan(seen.milli))
    from_ms = now_ms // seen.step_ms * seen.step_ms
    if not len(known) or from_ms - (seen.from_ms + int(known[-1]) * seen.step_ms) > SILENT_MS:
        return None
    last = float(seen.milli[known[-1]])
    logs = np.log(np.maximum(seen.milli, 1.0))
    changes = np.diff(logs)
    changes = changes[~np.isnan(changes)]
    at_first = WANDER**2 * seen.step_ms / HALF_HOUR_MS
    # by their median, so that the one steep hour of a morning does not stand for all hours
    seen_so = (MEDIAN_TO_SIGMA * float(np.median(np.abs(changes)))) ** 2 if len(changes) else 0.0
    variance = (WANDER_STEPS * at_first + len(changes) * seen_so) / (WANDER_STEPS + len(changes))
    ahead = min(steps, max(1, LAST_AHEAD_MS // seen.step_ms))
    sigma = np.sqrt(variance * np.arange(1, ahead + 1))
    rows = np.stack([last * np.exp(normal * sigma) for normal in NORMAL])
    return Ahead(f"traffic-last-{seen.step_ms // 60_000}m", from_ms, seen.step_ms, rows)

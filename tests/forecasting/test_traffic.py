"""Profiles of traffic: what quantiles promise, which rule holds when little is known, and input that is none."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apportion.adapters.forecasting import traffic
from apportion.adapters.forecasting.traffic import QUANTILES_PPM, Ahead, fit, forecast, seen_of
from apportion.core.units import MS_PER_DAY, MS_PER_HOUR
from tests.forecasting.histories import START_MS, weeks

HALF_MS = MS_PER_HOUR // 2
STEPS = 24


def ahead_of(milli: dict[int, int], now_ms: int, step_ms: int = MS_PER_HOUR, steps: int = STEPS) -> Ahead | None:
    seen = seen_of(milli, step_ms, now_ms)
    return forecast(fit(seen, now_ms), seen, now_ms, steps)


@given(
    st.dictionaries(st.integers(0, 24 * 16), st.one_of(st.integers(0, 50_000), st.integers(0, 2**53)), max_size=120),
    st.integers(0, 24 * 16 * 60),
)
def test_quantiles_ascend_and_are_not_negative_whatever_was_seen(steps: dict[int, int], minute: int) -> None:
    milli = {START_MS + step * MS_PER_HOUR: value for step, value in steps.items()}
    now_ms = START_MS + minute * 60_000
    ahead = ahead_of(milli, now_ms)
    if ahead is not None:
        assert (ahead.milli >= 0).all()
        assert np.isfinite(ahead.milli).all()
        assert (np.diff(ahead.milli, axis=0) >= 0).all()
        assert ahead.from_ms <= now_ms < ahead.from_ms + ahead.step_ms


@given(st.integers(1, 20), st.integers(0, 23))
def test_nothing_comes_from_the_future(days: int, hour: int) -> None:
    milli = weeks(1, 21)
    now_ms = START_MS + days * MS_PER_DAY + hour * MS_PER_HOUR
    whole, known = ahead_of(milli, now_ms), ahead_of({at: value for at, value in milli.items() if at < now_ms}, now_ms)

    assert whole is not None
    assert known is not None
    assert whole.milli.tobytes() == known.milli.tobytes()
    assert whole.model == known.model


def test_quantiles_cover_as_much_as_they_say() -> None:
    """Four weeks, told a day ahead from the second week on; the noise is a factor, and nothing drifts."""
    milli = weeks(5, 28, weekend=1.0)
    below = []
    for day in range(8, 27):
        now_ms = START_MS + day * MS_PER_DAY
        ahead = ahead_of(milli, now_ms)
        assert ahead is not None
        came = np.array([milli[now_ms + step * MS_PER_HOUR] for step in range(STEPS)])
        below.append(came <= ahead.milli)
    coverage = np.concatenate(below, axis=1).mean(axis=1)
    assert np.abs(coverage - np.array(QUANTILES_PPM) / 1_000_000).max() < 0.06, coverage


def test_a_week_knows_its_weekend() -> None:
    """2026-01-24 is a Saturday: after two weeks it is told as one, while a day's profile would say Friday's."""
    milli = weeks(2, 23, noise=0.05)
    ahead = ahead_of(milli, START_MS + 23 * MS_PER_DAY)

    assert ahead is not None
    assert ahead.model.startswith("traffic-week-")
    friday = np.array([milli[START_MS + 22 * MS_PER_DAY + step * MS_PER_HOUR] for step in range(STEPS)])
    assert ahead.milli[0].sum() < 0.65 * friday.sum()


def test_a_new_day_shifts_level_and_spread() -> None:
    """Traffic doubles for three days: what is told rises; it becomes wild: what is told spreads."""
    calm = weeks(3, 14, weekend=1.0, noise=0.05)
    now_ms = START_MS + 14 * MS_PER_DAY
    doubled = {at: value * 2 if at >= now_ms - 3 * MS_PER_DAY else value for at, value in calm.items()}
    wild = {at: value * (3 if at >= now_ms - 3 * MS_PER_DAY and at // MS_PER_HOUR % 2 else 1) for at, value in calm.items()}
    before, after, spread = (ahead_of(milli, now_ms) for milli in (calm, doubled, wild))

    assert before is not None
    assert after is not None
    assert spread is not None
    assert after.milli[0].sum() > 1.4 * before.milli[0].sum()
    assert (spread.milli[2] / spread.milli[0]).mean() > 1.5 * (before.milli[2] / before.milli[0]).mean()


@pytest.mark.parametrize(("days", "form"), [(0.25, "last"), (0.9, "last"), (1, "day"), (6.5, "day"), (7, "week"), (20, "week")])
def test_what_is_known_decides_the_rule(days: float, form: str) -> None:
    now_ms = START_MS + int(days * MS_PER_DAY)
    ahead = ahead_of(weeks(4, 21), now_ms)

    assert ahead is not None
    assert ahead.model.split("-")[1] == form


def test_the_last_value_is_told_for_two_hours_and_wide() -> None:
    """One step is known: the median is its traffic, one sigma above it at least a third more, and more the later."""
    ahead = ahead_of({START_MS: 8_000}, START_MS + HALF_MS, HALF_MS)

    assert ahead is not None
    assert ahead.milli.shape == (3, 4)
    assert (ahead.milli[0] == 8_000).all()
    assert ahead.milli[1, 0] > 8_000 * 1.2
    assert (np.diff(ahead.milli[1]) > 0).all()


def test_the_same_day_has_the_same_model() -> None:
    """The profile is that of the days before; only a new day makes another."""
    milli = weeks(6, 21)
    models = [ahead_of(milli, START_MS + 9 * MS_PER_DAY + hour * MS_PER_HOUR) for hour in (0, 5, 23, 24)]
    names = [ahead.model for ahead in models if ahead is not None]

    assert names[0] == names[1] == names[2] != names[3]


def test_gaps_are_left_gaps() -> None:
    """Three days without news, as after a step of a clock: they count for nothing, and what is told goes on."""
    milli = weeks(7, 21, noise=0.05)
    gone = range(START_MS + 12 * MS_PER_DAY, START_MS + 15 * MS_PER_DAY)
    holed = {at: value for at, value in milli.items() if at not in gone}
    now_ms = START_MS + 16 * MS_PER_DAY
    seen = seen_of(holed, MS_PER_HOUR, now_ms)
    with_gap, without = ahead_of(holed, now_ms), ahead_of(milli, now_ms)

    assert int(np.isnan(seen.milli).sum()) == 72
    assert with_gap is not None
    assert without is not None
    assert abs(with_gap.milli[0].sum() / without.milli[0].sum() - 1) < 0.1


def test_a_step_that_is_never_seen_is_told_like_the_rest() -> None:
    milli = {at: value for at, value in weeks(8, 14).items() if at % MS_PER_DAY != 5 * MS_PER_HOUR}
    ahead = ahead_of(milli, START_MS + 14 * MS_PER_DAY)

    assert ahead is not None
    assert ahead.milli[0, 5] > 0


def test_absurd_traffic_is_left_out_and_counted() -> None:
    milli = weeks(9, 14)
    now_ms = START_MS + 14 * MS_PER_DAY
    usual = ahead_of(milli, now_ms)
    milli[START_MS + 13 * MS_PER_DAY] = 2**53
    seen, told = seen_of(milli, MS_PER_HOUR, now_ms), ahead_of(milli, now_ms)

    assert seen.absurd == 1
    assert usual is not None
    assert told is not None
    assert told.milli[2].max() < 1.3 * usual.milli[2].max()


def test_of_a_service_that_is_silent_nothing_is_said() -> None:
    assert ahead_of({}, START_MS) is None
    assert ahead_of({START_MS: 5}, START_MS + 4 * MS_PER_HOUR) is None
    assert traffic.SILENT_MS < 4 * MS_PER_HOUR


def test_no_traffic_at_all_is_traffic() -> None:
    ahead = ahead_of(dict.fromkeys(weeks(1, 9), 0), START_MS + 9 * MS_PER_DAY)

    assert ahead is not None
    assert ahead.milli[0].max() <= 1

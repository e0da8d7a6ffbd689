"""What is worth an event: nothing twice, everything new, and only what the core would take."""

from __future__ import annotations

import numpy as np
import pytest

from apportion.adapters.forecasting import publishing, runtimes, traffic
from apportion.adapters.forecasting.features import features
from apportion.adapters.forecasting.history import Asked, History, Open
from apportion.adapters.forecasting.process import said_of
from apportion.adapters.forecasting.traffic import Ahead
from apportion.adapters.forecasting.trees import Model
from apportion.adapters.ingress.check import check_event
from apportion.core.events import ForecastPublished
from apportion.core.units import MS_PER_HOUR
from tests.forecasting.histories import START_MS, drawn, weeks

HALF_MS = MS_PER_HOUR // 2


@pytest.fixture(scope="module")
def asked() -> list[Asked]:
    return drawn(21, 400)


@pytest.fixture(scope="module")
def models(asked: list[Asked]) -> dict[str, Model]:
    model = runtimes.train("training", asked, features(asked), asked[390].submitted_ms)
    assert model is not None
    return {"training": model}


def due(models: dict[str, Model], asked: list[Asked], still: list[Open]) -> publishing.Due:
    return publishing.runtimes_due(models, History(asked, still), features(asked))


def test_what_has_no_forecast_comes_first_and_what_was_said_is_silent(models: dict[str, Model], asked: list[Asked]) -> None:
    first, second, third = (one.workload for one in asked[-3:])
    said = due(models, asked, [Open(third, 0)]).events[0].values
    found = due(models, asked, [Open(first, 0, "old", (1, 2, 3, 4, 5)), Open(second, 0), Open(third, 0, "older", said)])

    assert [event.target for event in found.events] == [second, first]
    assert found.unchanged == 1
    assert {event.model for event in found.events} == {models["training"].model_id}


def test_work_that_outruns_its_forecast_is_told_of_again(models: dict[str, Model], asked: list[Asked]) -> None:
    said = due(models, asked, [Open(asked[-1].workload, 0)]).events[0].values
    again = due(models, asked, [Open(asked[-1].workload, said[2] * 2, "m", said)]).events[0]

    assert again.values[0] > said[2] * 2


def test_of_a_kind_without_a_model_nothing_is_said(asked: list[Asked]) -> None:
    assert due({}, asked, [Open(asked[-1].workload, 0)]) == ([], 0)


@pytest.mark.parametrize("milli", [0.0, 0.4, 17.2, 2.0**60])
def test_every_event_is_one_that_the_door_takes(models: dict[str, Model], asked: list[Asked], milli: float) -> None:
    ahead = Ahead("traffic-day-0", START_MS, HALF_MS, np.full((3, publishing.STEPS), milli))
    events = [publishing.traffic_event("chat", ahead), *due(models, asked, [Open(one.workload, 10**12) for one in asked]).events]
    for event in events:
        check_event(event)
        assert event.horizon_ms > 0
    assert len(events) == 401
    assert events[0].values[0] >= min(milli, publishing.COUNT_MAX), "rounded up, so that nothing is too little"


def forecast(hour: int) -> ForecastPublished:
    milli, now_ms = weeks(3, 21, step_ms=HALF_MS, noise=0.01), START_MS + 15 * 24 * MS_PER_HOUR + hour * MS_PER_HOUR
    seen = traffic.seen_of(milli, HALF_MS, now_ms)
    ahead = traffic.forecast(traffic.fit(seen, now_ms), seen, now_ms, publishing.STEPS)
    assert ahead is not None
    return publishing.traffic_event("chat", ahead)


def as_rows(event: ForecastPublished) -> list[dict[str, object]]:
    steps = len(event.values) // len(event.quantiles_ppm)
    return [
        {
            "workload": event.target, "quantile_ppm": event.quantiles_ppm[place // steps], "traffic_milli": value,
            "from_ms": (at_ms := event.from_ms + place % steps * event.step_ms), "until_ms": at_ms + event.step_ms,
        }
        for place, value in enumerate(event.values)
    ]  # fmt: skip


def test_traffic_is_told_again_when_it_differs_or_its_time_runs_out() -> None:
    first = forecast(0)
    said = said_of(as_rows(first))["chat"]

    assert publishing.worth_saying(first, None)
    assert not publishing.worth_saying(first, said)
    assert not publishing.worth_saying(forecast(3), said), "half of its time and more is left, and it goes as told"
    assert publishing.worth_saying(forecast(25), said)
    steps = publishing.STEPS
    higher = tuple(value * 2 if at == steps + 3 else value for at, value in enumerate(first.values))
    changed = ForecastPublished(**{name: getattr(first, name) for name in first.__struct_fields__} | {"values": higher})
    assert publishing.worth_saying(changed, said)

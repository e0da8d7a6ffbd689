"""Models of runtimes: the numbers kept are the fit's, equal data give an equal id, quantiles hold where they are known."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apportion.adapters.forecasting import boosting, runtimes, trees
from apportion.adapters.forecasting.features import features
from apportion.adapters.forecasting.history import Asked
from apportion.adapters.forecasting.runtimes import QUANTILES_PPM, longer_than
from apportion.adapters.forecasting.shelf import Shelf
from apportion.adapters.forecasting.trees import Model, ModelBroken
from apportion.core.units import MS_PER_DAY
from tests.forecasting.histories import drawn

LEVELS = [ppm / 1_000_000 for ppm in QUANTILES_PPM]


@pytest.fixture(scope="module")
def asked() -> list[Asked]:
    return drawn(11, 3_000)


@pytest.fixture(scope="module")
def model(asked: list[Asked]) -> Model:
    """A model of the first four fifths."""
    found = runtimes.train("training", asked, features(asked), asked[2_400].submitted_ms)
    assert found is not None
    return found


def test_the_trees_kept_answer_as_the_fit_does() -> None:
    """The oracle is scikit-learn itself, with unknown numbers and categories that it has never met."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    dice = np.random.default_rng(3)
    table, asked = (dice.normal(size=(rows, 5)) for rows in (1_500, 700))
    table[:, 2], asked[:, 2] = dice.integers(0, 8, 1_500), dice.integers(0, 11, 700)
    came = np.where(table[:, 2] == 4, 3.0, table[:, 0]) + dice.normal(size=1_500)
    table[dice.random(table.shape) < 0.1] = np.nan
    asked[dice.random(asked.shape) < 0.2] = np.nan
    fit = HistGradientBoostingRegressor(loss="quantile", quantile=0.8, max_iter=40, categorical_features=[2], random_state=1)
    fit.fit(table, came)

    forest = boosting.taken_out(fit, 5, 2, (1 << 8) - 1)

    assert forest.category.any()
    np.testing.assert_array_equal(forest.predict(asked), fit.predict(asked))


def test_quantiles_cover_as_much_as_they_say(model: Model, asked: list[Asked]) -> None:
    """600 workloads that it has not seen: each quantile is within 8 points, where chance alone makes 3; the median is the habit."""
    rows = range(2_400, 3_000)
    table, ahead = features(asked)[2_400:], [asked[row] for row in rows]
    told = np.array(runtimes.forecast(model, table, ahead, [0] * len(ahead)), dtype=np.float64)
    came = np.array([one.runtime_ms for one in ahead])
    coverage = (came[:, None] <= told).mean(axis=0)

    assert np.abs(coverage - LEVELS).max() < 0.08, coverage
    habit = np.array([3_600_000 * 2.0 ** int(one.principal[-1]) for one in ahead])
    assert np.median(np.abs(np.log(told[:, 2] / habit))) < 0.25, "half of the noise"


def test_quantiles_ascend_and_are_positive(model: Model, asked: list[Asked]) -> None:
    asked = asked[:500]
    elapsed = [one.runtime_ms // 2 if at % 2 else 0 for at, one in enumerate(asked)]
    for values, gone in zip(runtimes.forecast(model, features(asked), asked, elapsed), elapsed, strict=True):
        assert list(values) == sorted(values)
        assert values[0] >= max(gone, 1) - 1


def test_no_forecast_is_above_the_limit_that_was_stated(model: Model, asked: list[Asked]) -> None:
    limited = [one._replace(limit_ms=60_000) for one in asked[:50]]
    told = runtimes.forecast(model, features(limited), limited, [0] * 50)
    assert {value for values in told for value in values} == {60_000}
    late = runtimes.forecast(model, features(limited[:1]), limited[:1], [120_000])
    assert late[0][0] > 120_000, "it has run for longer than its limit, so that says nothing any more"


def test_equal_data_give_an_equal_model(model: Model, asked: list[Asked]) -> None:
    few, fewer = asked[:300], asked[1:300]
    first, again, other = (
        runtimes.train("training", some, features(some), some[-1].submitted_ms) for some in (few, list(few), fewer)
    )

    assert first is not None
    assert again is not None
    assert other is not None
    assert first.model_id == again.model_id != other.model_id
    assert model.model_id.startswith("training-runtime-")


def test_a_model_learns_nothing_that_ended_later(asked: list[Asked]) -> None:
    """Ends after the instant, however long they took, change nothing."""
    known = asked[:400]
    at_ms = known[300].submitted_ms
    longer = [one._replace(ended_ms=one.ended_ms + 7, runtime_ms=one.runtime_ms + 7) for one in known]
    other = [one if one.ended_ms <= at_ms else long for one, long in zip(known, longer, strict=True)]
    model, again = (runtimes.train("training", some, features(some), at_ms) for some in (known, other))

    assert model is not None
    assert again is not None
    assert again.model_id == model.model_id
    assert model.as_of_ms <= at_ms


def test_too_little_gives_no_model(asked: list[Asked]) -> None:
    assert runtimes.train("quantization", asked, features(asked), asked[-1].submitted_ms) is None
    few = asked[: runtimes.LEAST_ROWS - 1]
    assert runtimes.train("training", few, features(few), few[-1].ended_ms + 400 * MS_PER_DAY) is None


@given(st.lists(st.floats(0.0, 25.0), min_size=5, max_size=5).map(sorted), st.integers(0, 10**10))
def test_what_has_run_already_is_longer_than_that(logs: list[float], elapsed_ms: int) -> None:
    after = longer_than(LEVELS, logs, elapsed_ms)

    assert after == sorted(after)
    if elapsed_ms > 0:
        assert after[0] >= math.log(elapsed_ms) - 1e-9 or after == logs
    assert all(new >= old - 1e-9 for new, old in zip(after, logs, strict=True)), "to know that it is longer makes nothing shorter"


def test_a_model_is_kept_and_found_again(tmp_path: Path, model: Model) -> None:
    path = trees.save(model, tmp_path)
    again = trees.load(path)

    assert again.model_id == model.model_id
    assert trees.encoded(again) == trees.encoded(model)
    assert trees.save(model, tmp_path) == path


@pytest.mark.parametrize("damage", ["flip", "cut", "empty"])
def test_a_damaged_model_is_left_aside(tmp_path: Path, model: Model, damage: str) -> None:
    path = trees.save(model, tmp_path)
    body = bytearray(path.read_bytes())
    body[len(body) // 2] ^= 1
    path.write_bytes({"flip": bytes(body), "cut": bytes(body[:100]), "empty": b""}[damage])

    with pytest.raises(ModelBroken, match="left aside"):
        trees.load(path)
    told: list[str] = []
    assert Shelf(tmp_path, told.append).models([], np.zeros((0, 27)), 0) == {}
    assert "left aside" in told[0]


def test_bytes_that_are_no_model_are_refused() -> None:
    for body in (b"", b"\x00", b"{}", trees.msgspec.msgpack.encode({"version": 99}), trees.msgspec.msgpack.encode([1])):
        with pytest.raises(ModelBroken):
            trees.decoded(body)


def test_the_shelf_fits_once_and_again_when_a_model_is_old(tmp_path: Path, asked: list[Asked]) -> None:
    asked = asked[:500]
    table, told = features(asked), list[str]()
    shelf = Shelf(tmp_path, told.append)
    first = shelf.models(asked, table, asked[260].submitted_ms)["training"]
    same = shelf.models(asked, table, asked[261].submitted_ms)["training"]
    later = shelf.models(asked, table, asked[400].submitted_ms)["training"]

    assert first.model_id == same.model_id != later.model_id
    assert len(told) == 2
    assert later.rows > first.rows


def test_without_scikit_learn_the_extra_is_named(tmp_path: Path, asked: list[Asked], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "sklearn", None)
    told: list[str] = []

    assert Shelf(tmp_path, told.append).models(asked, features(asked), asked[-1].submitted_ms) == {}
    assert "pip install 'apportion[forecast]'" in told[0]

"""The forecaster beside a running cluster: who may, what is said of a running job, and that it is not said twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from apportion.adapters.forecasting import runtimes, trees
from apportion.adapters.forecasting.features import features
from tests.e2e.user import User
from tests.forecasting.histories import drawn


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model of training, fitted on work of one, two, four and eight hours."""
    folder, asked = tmp_path_factory.mktemp("models"), drawn(31, 260)
    model = runtimes.train("training", asked, features(asked), asked[-1].submitted_ms)
    assert model is not None
    trees.save(model, folder)
    return folder


def test_a_running_job_is_forecast_by_who_may(user: User, models: Path) -> None:
    user.run("submit --budget lab/robotics --gpus 1 --name lasts -- sleep 1000")
    user.until("running", lambda: user.state("lasts") == "running")

    refused = user.run(f"forecast --once --model-dir {models}", code=1)
    assert "forecaster may not forecast for 1 of 1 targets" in refused.err
    assert "apportion member grant lab forecaster --role administer" in refused.err

    user.run("member grant lab forecaster --role administer --reason forecasts")
    said = user.run(f"forecast --once --json --model-dir {models}").json
    assert (said["runtimes"], said["refused"], said["left"]) == (1, {}, 0)
    assert said["models"][0].startswith("training-runtime-")

    user.run("submit --budget lab/robotics --gpus 1 --name short --wait -- true")  # a cycle comes, and the projection reads on
    again = user.run(f"forecast --once --model-dir {models}")
    assert "0 runtimes and 0 services forecast, 1 as they were said" in again.out, again.out
    user.run("cancel lasts")


def test_a_service_of_which_little_is_known_is_told_so(user: User, models: Path) -> None:
    service = "--kind realtime --replicas 1-3 --gpus-per-traffic 1"
    user.run(f"submit --budget lab/robotics --gpus 1 {service} --name talk --id talk -- sleep 1000")
    user.run("demand talk 2")
    user.run("member grant lab forecaster --role administer --reason forecasts", code=None)  # by this test, or by the one before
    assert "talk: no half hour with traffic is over" in user.run(f"forecast --once --model-dir {models}").out
    user.run("cancel talk")


def test_what_makes_no_sense_is_refused(user: User) -> None:
    assert "too short" in user.run("forecast --every 1s", code=2).err
    assert "leaves nothing" in user.run("forecast backtest --days 14 --weeks 2", code=2).err
    missing = user.run("forecast backtest --trace nowhere", code=2).err
    assert "no such file or folder" in missing

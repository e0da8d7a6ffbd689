"""A value that no event may have is told with its option, itself and its rule, in the units that were typed."""

from __future__ import annotations

from typing import Any

import msgspec.inspect
import pytest

from apportion.adapters.cli import arguments
from apportion.adapters.cli.failure import Failure
from apportion.adapters.cli.main import run
from apportion.adapters.cli.publishing import checked
from apportion.adapters.cli.services import OPTIONS
from apportion.adapters.text.bounds import rule_words
from apportion.adapters.text.render import DURATION_NAMES
from apportion.adapters.text.template import number_words
from apportion.core.events import BudgetGranted, PolicyActivated, Service, WorkloadSubmitted


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("hold_ms", 1, "--hold 1ms is not accepted: it must be at least 1s"),
        ("startup_ms", 900 * 86_400_000, "--startup 900d is not accepted: it must be at most 1h"),
        ("penalty", -3, "--penalty -3 is not accepted: it must be at least 1"),
    ],
)
def test_a_field_inside_another_is_told_as_any(field: str, value: int, said: str) -> None:
    service = {"min_replicas": 1, "max_replicas": 2, "gpus_milli_per_traffic": 500, field: value}

    with pytest.raises(Failure) as refused:
        checked(WorkloadSubmitted, OPTIONS, workload="w", budget="b", pools=("p",), gpus_milli=1_000, service=service)

    assert refused.value.what == said


def test_gpu_time_is_told_in_gpu_hours() -> None:
    with pytest.raises(Failure) as refused:
        checked(BudgetGranted, {"gpu_us": "--gpu-hours"}, pool="p", budget="b", gpu_us=3_600_000_000 * 10**9, reason="")

    assert refused.value.what == "--gpu-hours 1,000,000,000.0 GPU-h is not accepted: it must be at most 80,063,993.4 GPU-h"


@pytest.mark.parametrize("struct", [PolicyActivated, Service])
def test_no_bound_of_a_duration_is_told_as_an_instant(struct: type) -> None:
    """Rules of pools and services have no instants at all."""
    info: Any = msgspec.inspect.type_info(struct)
    for field in info.fields:
        if field.name.endswith("_ms"):
            assert field.name in DURATION_NAMES
            assert "1970" not in rule_words(field.name, "Expected `int` >= 1000")


def test_what_is_no_amount_of_gpus_is_not_called_so() -> None:
    assert number_words("weight_milli", 2_500) == "2.5"
    assert number_words("gpus_milli", 2_500) == "2.5 GPUs"
    assert arguments.weight_milli("0.5") == 500
    assert arguments.quantile_ppm("97.5%") == 975_000
    with pytest.raises(ValueError, match=r"^'0' is no weight: it must be above zero"):
        arguments.weight_milli("0")
    with pytest.raises(ValueError, match=r"^'101%' is no quantile from 0 % to 100 %"):
        arguments.quantile_ppm("101%")


def test_a_value_of_another_kind_is_told_in_words() -> None:
    assert rule_words("reservations_max", "Expected `int | null`, got `str`") == "it must be a whole number"


def test_the_measurements_are_listed_and_what_they_share_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench"]) == 0
    said = capsys.readouterr().out
    assert "  fold(" in said
    assert "generated" not in said.split()
    assert run(["bench", "generated"]) == 2
    assert "there is no measurement 'generated'" in capsys.readouterr().err

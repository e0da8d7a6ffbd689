"""Features against their naive equivalent, and that nobody learns from the future."""

from __future__ import annotations

import math
from statistics import median

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apportion.adapters.forecasting.features import BURST_MS, KEYS, NAMES, REMEMBERED, features, keys_of, stem
from apportion.adapters.forecasting.history import Asked
from apportion.adapters.forecasting.variant import VARIANTS, variant_of
from apportion.core.units import MS_PER_HOUR
from tests.forecasting.histories import drawn, histories


def naive(asked: list[Asked], row: int) -> dict[str, float]:
    """Look through all that had ended before, for each key."""
    one = asked[row]
    before = sorted((e for e in asked if 0 < e.ended_ms < one.submitted_ms), key=lambda e: (e.ended_ms, e.workload))
    found: dict[str, float] = {}
    for at, key in enumerate(KEYS):
        alike = [math.log(e.runtime_ms) for e in before if keys_of(e)[at] == keys_of(one)[at]]
        found[f"{key}_last"] = alike[-1] if alike else math.nan
        found[f"{key}_median"] = median(alike[-REMEMBERED:]) if alike else math.nan
        found[f"{key}_count"] = math.log1p(len(alike))
    ratios = [
        math.log(e.runtime_ms) - math.log(e.limit_ms) for e in before if e.limit_ms and keys_of(e)[0] == keys_of(one)[0]
    ]
    found["limit_ratio_last"] = ratios[-1] if ratios else math.nan
    found["limit_ratio_median"] = median(ratios[-REMEMBERED:]) if ratios else math.nan
    burst = [e for e in asked[:row] if e.principal == one.principal and e.submitted_ms > one.submitted_ms - BURST_MS]
    found["burst"] = math.log1p(len(burst))
    return found


@given(histories())
def test_features_are_those_of_the_naive_way(asked: list[Asked]) -> None:
    table = features(asked)
    for row in range(len(asked)):
        expected = naive(asked, row)
        for at, name in enumerate(NAMES):
            if name in expected:
                np.testing.assert_allclose(table[row, at], expected[name], err_msg=f"{name} of {asked[row].workload}")


@given(histories(), st.integers(0, 10))
def test_nothing_comes_from_the_future(asked: list[Asked], cut: int) -> None:
    """What was known at an instant gives the features of all that were submitted until then, to the bit."""
    cut_ms = asked[0].submitted_ms + cut * MS_PER_HOUR // 2
    known = [
        one if one.ended_ms <= cut_ms else one._replace(ended_ms=0, runtime_ms=0) for one in asked if one.submitted_ms <= cut_ms
    ]
    assert features(known).tobytes() == features(asked)[: len(known)].tobytes()


@settings(max_examples=1)
@given(st.just(5))
def test_nothing_comes_from_the_future_in_a_long_history(seed: int) -> None:
    asked = drawn(seed, 400)
    cut_ms = asked[250].submitted_ms
    known = [one if one.ended_ms <= cut_ms else one._replace(ended_ms=0, runtime_ms=0) for one in asked[:251]]
    assert features(known).tobytes() == features(asked)[:251].tobytes()


def test_there_are_as_many_features_as_names() -> None:
    assert features(drawn(1, 3)).shape == (3, len(NAMES))
    assert features([]).shape == (0, len(NAMES))


@pytest.mark.parametrize(
    ("stated", "name", "command", "variant"),
    [
        ("lora", "dpo-7b", (), "lora"),
        ("", "olmo-QLoRA-13b", (), "qlora"),
        ("", "qlora-finetune", (), "qlora"),
        ("", "run-7", ("python", "train.py", "--method", "grpo"), "rl"),
        ("", "pre-train-32b", (), "pretrain"),
        ("", "fine_tune", (), "full"),
        ("", "explorations", ("sleep", "1"), "other"),
        ("nonsense", "sft-3", (), "sft"),
    ],
)
def test_the_variant_is_told_by_convention(stated: str, name: str, command: tuple[str, ...], variant: str) -> None:
    assert variant_of(stated, name, command) == variant
    assert variant in VARIANTS


def test_a_stem_is_the_name_without_what_numbers_it() -> None:
    assert stem("eval-17") == stem("Eval_18") == "eval"
    assert stem("olmo-7b.seed3") == stem("olmo-13b.seed4") == "olmo-b-seed"

"""Decayed usage: the same at any sampling to the last bit, and what the closed form says."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apportion.core import events as ev
from apportion.core import usage
from apportion.core.units import GPU_US_PER_GPU_HOUR, MS_PER_DAY, MS_PER_HOUR
from tests.core.story import Story

WEEK_MS = 7 * MS_PER_DAY
START_MS = 1_767_225_600_000


def decayed(weighted: int, now_ms: int, half_life_ms: int) -> int:
    """Return GPU-microseconds counted by age."""
    return weighted * usage.SCALE // usage.weight(now_ms % half_life_ms, half_life_ms)


def closed_form(rate_milli: int, from_ms: int, to_ms: int, now_ms: int, half_life_ms: int) -> float:
    """Return what running at a rate from one instant to another counts now: an integral, in floats."""
    scale = rate_milli * half_life_ms / math.log(2)
    return scale * (2 ** -((now_ms - to_ms) / half_life_ms) - 2 ** -((now_ms - from_ms) / half_life_ms))


@settings(max_examples=200, deadline=None)
@given(
    half_life_ms=st.integers(60_000, 60 * MS_PER_DAY),
    cuts=st.lists(st.integers(0, 30 * MS_PER_DAY), min_size=2, max_size=30),
    before=st.integers(0, 10**15),
    rates=st.lists(st.integers(0, 16_384_000), min_size=1, max_size=3),
)
def test_sampling_changes_nothing(half_life_ms: int, cuts: list[int], before: int, rates: list[int]) -> None:
    """3B-23 Kueue: a sampled average of one GPU was cut to 0 for ever; here a look is no event."""
    instants = [START_MS + cut for cut in sorted(cuts)]
    rate = np.array(rates, dtype=np.int64)
    seldom = often = np.full(len(rates), before, dtype=np.int64)

    seldom = usage.grown(seldom, rate, instants[0], instants[-1], half_life_ms)
    for earlier, later in pairwise(instants):
        often = usage.grown(often, rate, earlier, later, half_life_ms)

    assert often.tolist() == seldom.tolist()


def test_3b_23_one_gpu_for_a_day_is_what_the_formula_says_at_any_sampling() -> None:
    rate = np.array([1_000], dtype=np.int64)
    for step_ms in (MS_PER_DAY, 5 * 60_000, 60_000):
        amount = np.zeros(1, dtype=np.int64)
        for at_ms in range(START_MS, START_MS + MS_PER_DAY, step_ms):
            grown = usage.grown(amount, rate, at_ms, at_ms + step_ms, WEEK_MS)
            assert int(grown[0]) > int(amount[0]), "running raises usage, however short the step"
            amount = grown
        gpu_hours = decayed(int(amount[0]), START_MS + MS_PER_DAY, WEEK_MS) / GPU_US_PER_GPU_HOUR

        assert gpu_hours == pytest.approx(22.85, abs=0.005)
        assert gpu_hours * math.log(2) / 168 == pytest.approx(0.09428, abs=0.00002), "as an average of GPUs"


@settings(max_examples=200, deadline=None)
@given(
    half_life_ms=st.integers(MS_PER_HOUR, 60 * MS_PER_DAY),
    rate_milli=st.integers(1, 16_384_000),
    ran_ms=st.integers(60_000, 30 * MS_PER_DAY),
    rested_ms=st.integers(0, 10 * MS_PER_DAY),
)
def test_usage_is_the_integral(half_life_ms: int, rate_milli: int, ran_ms: int, rested_ms: int) -> None:
    """Off by at most 3 millionths of a half-life, at each of its ends, and by the halvings' rounding."""
    stop_ms, now_ms = START_MS + ran_ms, START_MS + ran_ms + rested_ms
    amount = usage.grown(np.zeros(1, dtype=np.int64), np.array([rate_milli], dtype=np.int64), START_MS, stop_ms, half_life_ms)
    amount = usage.grown(amount, np.zeros(1, dtype=np.int64), stop_ms, now_ms, half_life_ms)

    exact = closed_form(rate_milli, START_MS, stop_ms, now_ms, half_life_ms)

    age = 2 ** -(rested_ms / half_life_ms)
    bound = 3e-6 * half_life_ms * rate_milli * 2 * 2 * age + 4 * rate_milli + 4 + 1e-9 * exact
    assert abs(decayed(int(amount[0]), now_ms, half_life_ms) - exact) <= bound


def test_years_of_silence_take_no_time_and_end_at_nothing() -> None:
    amount = np.array([10**18, 1, 0], dtype=np.int64)
    none = np.zeros(3, dtype=np.int64)

    assert usage.grown(amount, none, START_MS, START_MS + 700 * MS_PER_DAY, 60_000).tolist() == [0, 0, 0]


def test_a_full_pool_for_years_stays_inside_int64() -> None:
    full, longest_ms = np.array([16_384_000], dtype=np.int64), 366 * MS_PER_DAY
    amount = np.zeros(1, dtype=np.int64)
    for year in range(20):
        amount = usage.grown(amount, full, year * longest_ms, (year + 1) * longest_ms, longest_ms)
        assert 0 < int(amount[0]) < 2**63

    assert decayed(int(amount[0]), 20 * longest_ms, longest_ms) == pytest.approx(16_384_000 * longest_ms / math.log(2), rel=1e-4)


def test_another_half_life_keeps_what_usage_amounts_to() -> None:
    story = Story()
    story.open()
    story.tell(ev.PoolDefined(pool="p"))
    story.tell(ev.PolicyActivated(pool="p", policy="fair_tree", half_life_ms=MS_PER_HOUR))
    story.tell(ev.BudgetSet(pool="p", budget="A", share_ppm=1_000_000))
    story.tell(ev.NodeJoined(node="n1", pool="p", gpus=8, agent="agent-n1"))
    story.tell(ev.WorkloadSubmitted(workload="w", budget="A", pools=("p",), gpus_milli=8_000))
    story.tick()
    story.now_ms += 50 * 60_000
    story.tick()
    row = story.core.state.budget.row_of["p:A"]
    before = usage.decayed_us(story.core.state, row)

    story.tell(ev.PolicyActivated(pool="p", half_life_ms=3 * MS_PER_DAY))

    assert before == pytest.approx(closed_form(8_000, 0, 3_000_000, 3_000_000, MS_PER_HOUR), rel=1e-5)
    assert usage.decayed_us(story.core.state, row) == pytest.approx(before, rel=1e-9)


def test_a_divided_budget_hands_its_usage_down() -> None:
    story = Story()
    story.open()
    story.tell(ev.PoolDefined(pool="p"))
    story.tell(ev.PolicyActivated(pool="p", policy="fair_tree"))
    story.tell(ev.BudgetSet(pool="p", budget="A", share_ppm=1_000_000))
    story.core.state.budget.usage_us[story.core.state.budget.row_of["p:A"]] = 77
    story.tell(ev.BudgetSet(pool="p", budget="A/x", share_ppm=1_000_000))

    told = {key: int(story.core.state.budget.usage_us[row]) for key, row in story.core.state.budget.row_of.items()}
    assert told == {"p:": 0, "p:A": 0, "p:A/x": 77}

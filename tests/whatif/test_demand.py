"""Recorded service demand: what a workload needed is read from its runs, and guessed by a stated rule where it is not known."""

from __future__ import annotations

import random

import pytest

from apportion.adapters.comparing.waits import kaplan_meier
from apportion.adapters.whatif.demand import Asked, Needs, Survival
from apportion.core.units import NEVER_MS, PPM
from tests.simulation.worlds import HOUR_MS, Setting, jobs_of
from tests.whatif.past import past_of, played_logs

SETTING = Setting(2, nodes=4, hours=5, largest=32, demand_milli=2_500)


@pytest.mark.parametrize("seed", range(20))
def test_a_draw_beyond_a_value_is_the_first_that_covers_its_part_of_what_is_left(seed: int) -> None:
    dice = random.Random(seed)
    known = [dice.randrange(1, 50) for _ in range(dice.randrange(1, 40))]
    exceeded = [dice.randrange(0, 60) for _ in range(dice.randrange(0, 30))]
    survival = Survival()
    for value in known:
        survival.add(value, known=True)
    for value in exceeded:
        survival.add(value, known=False)
    steps = kaplan_meier(known, exceeded)

    for value in range(0, 60, 7):
        for draw_ppm in (0, 250_000, 500_000, 999_999):
            left = PPM - max((part for each, part in steps if each <= value), default=0)
            wanted = PPM - left * (PPM - draw_ppm) // PPM
            naive = next((each for each, part in steps if each > value and part >= wanted), None)
            found = survival.beyond(value, draw_ppm)
            assert found == naive
            assert found is None or found > value


def test_recorded_needs_are_what_the_simulated_people_had_in_mind() -> None:
    """The oracle is the world that made the past: it knows how long each job is."""
    past = past_of(played_logs(SETTING))
    length_ms = {job.job_id: job.duration_ms for job in jobs_of(SETTING)}
    recorder = past.history.recorder

    known = {
        name: demand.endings[-1].progress_ms
        for name, demand in recorder.demand.items()
        if demand.endings and demand.endings[-1].succeeded
    }

    assert len(known) > 20
    for name, need_ms in known.items():
        assert abs(need_ms - length_ms[name]) <= 120_000, name  # a restart takes up to two minutes, and is not always told


def test_a_need_that_is_not_known_is_more_than_was_seen_and_at_most_the_limit() -> None:
    needs = Needs(past_of(played_logs(SETTING)).history.recorder)
    for number in range(200):
        asked = Asked("itp/cluster04", 1_000, limit_ms=4 * HOUR_MS)
        guess_ms = needs.guess(f"job-{number}", asked, 2 * HOUR_MS)
        assert 2 * HOUR_MS < guess_ms <= 4 * HOUR_MS
        assert guess_ms == needs.guess(f"job-{number}", asked, 2 * HOUR_MS), "equal histories, equal draws"
        beyond = needs.guess(f"job-{number}", asked._replace(limit_ms=0), 100 * HOUR_MS)
        assert beyond == NEVER_MS, "nobody needed so much: it runs to the end of the range"

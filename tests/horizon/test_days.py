"""Days that are made up or read: the bound is above every plan, a rolling week keeps its promises, bad files are refused."""

from __future__ import annotations

import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings

from apportion.adapters.bench import horizon as bench
from apportion.adapters.bench.worlds.horizon import bound, real_day, rolling, scenarios
from apportion.adapters.bench.worlds.horizon.fifo import fifo, fifo_plus
from apportion.adapters.forecasting import gentd26
from apportion.core.horizon import check
from apportion.core.horizon import instance as inst
from apportion.core.horizon.planner import plan
from tests.horizon import naive
from tests.horizon.strategies import tiny

SHARED = Path(__file__).resolve().parents[2].parent / "shared" / "data"


def test_a_scenario_is_its_name_and_seed() -> None:
    for name in scenarios.SCENARIOS:
        one, again, other = (scenarios.scenario(name, seed) for seed in (5, 5, 6))
        inst.check(one)

        assert [column.tolist() for column in one.jobs] == [column.tolist() for column in again.jobs]
        assert one.services.demand.tolist() == again.services.demand.tolist()
        assert one.services.demand.tolist() != other.services.demand.tolist()
    with pytest.raises(ValueError, match="there is no scenario 'lunch'"):
        scenarios.scenario("lunch", 1)


@pytest.mark.parametrize("name", scenarios.SCENARIOS)
def test_plans_of_a_scenario_are_valid_and_ours_is_worth_the_most(name: str) -> None:
    day = scenarios.scenario(name, 1)
    plans = [fifo(day), fifo_plus(day), plan(day, 1_000)]

    assert [check.violations(day, made) for made in plans] == [[], [], []]
    assert plans[0].objective <= plans[2].objective
    assert plans[1].objective <= plans[2].objective


def test_first_come_is_first_served_and_reserves_the_peak() -> None:
    day = scenarios.scenario("scale-64x30", 1)
    made = fifo(day)
    order = np.lexsort((day.jobs.id, day.jobs.earliest))
    starts = [int(start) for start in made.start[order] if start >= 0]

    assert starts == sorted(starts)
    assert (made.held == day.services.demand.max(axis=1)[:, None]).all()


@settings(derandomize=True, max_examples=40, deadline=None)
@given(tiny())
def test_no_plan_is_worth_more_than_the_bound(instance: inst.Instance) -> None:
    pytest.importorskip("highspy", reason="the solver is an extra: pip install 'apportion[bounds]'")
    found = bound.upper_bound(instance, 10.0)

    assert found.proved
    assert naive.best(instance) <= found.objective


def test_a_missing_solver_is_told_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "highspy", None)

    with pytest.raises(bound.MissingSolver, match=r"pip install 'apportion\[bounds\]'.*bound_s=0"):
        bench.run(seeds=1)


def test_the_bench_has_the_figures_that_were_asked_for() -> None:
    figures = bench.run(seeds=1, clock=0, bound_s=0.0, candidates=50, weeks=0, large=0, workers=1)

    assert set(figures["scenarios"]) == set(scenarios.SCENARIOS)
    for row in figures["scenarios"].values():
        assert set(row["utilization_pct"]) == {"fifo", "fifo_plus", "ours"}
        assert {"gap_pct_mean", "gap_pct_max", "proved", "weighted_output", "unmet_pct", "jobs_done", "cpu_ms"} <= set(row)
    assert "not public" in figures["note"]
    assert figures["seeds"] == [21]


def test_a_plan_that_is_not_valid_stops_the_bench(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "fifo", lambda instance: fifo(instance)._replace(unmet=-1))

    with pytest.raises(bench.InvalidPlan, match="unmet"):
        bench.measured(scenarios.scenario("overload", 1), 0.0, 10, "a day")


def test_two_rolling_days_keep_the_wait_bound() -> None:
    """Every plan and every commitment is checked inside."""
    week = rolling.week(1, rolling.Setting(days=2, wait_bound=30))

    assert week.late == 0
    assert week.max_wait_h <= week.wait_bound_h
    assert week.unmet_pct < 5


@pytest.mark.slow
def test_a_rolling_week_keeps_the_wait_bound() -> None:
    for seed in range(1, 4):
        week = rolling.week(seed)

        assert week.late == 0
        assert week.max_wait_h <= week.wait_bound_h


def test_a_real_day_can_be_planned() -> None:
    if not (SHARED / "gentd26").is_dir():
        pytest.skip("the traces of GenTD26 and ITP are not beside this checkout; they are not part of it")
    day = real_day.day(SHARED)
    made = plan(day, 300)

    assert check.violations(day, made) == []
    assert day.services.demand.max() == real_day.PEAK_GPUS
    assert day.steps >= gentd26.LEAST_STEPS


def test_a_file_that_is_not_the_curve_is_refused(tmp_path: Path) -> None:
    with pytest.raises(gentd26.GenaiError, match="no such file"):
        gentd26.read_curve(tmp_path, real_day.PEAK_GPUS)
    (tmp_path / "qps.csv").write_text("a,b\n1,2\n", encoding="utf-8")
    with tarfile.open(tmp_path / gentd26.ARCHIVE, "w:gz") as archive:
        archive.add(tmp_path / "qps.csv", "qps.csv")
    with pytest.raises(gentd26.GenaiError, match="the first line is not"):
        gentd26.read_curve(tmp_path, real_day.PEAK_GPUS)
    (tmp_path / gentd26.ARCHIVE).write_bytes(b"no archive")
    with pytest.raises(gentd26.GenaiError, match="not the request curve"):
        gentd26.read_curve(tmp_path, real_day.PEAK_GPUS)

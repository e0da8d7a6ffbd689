"""The generated week has the published shape: of the module's tables, and of the trace where it is at hand."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apportion.adapters.demo import generator
from apportion.adapters.demo.generator import DURATIONS_S, HOURS, MARKS, PROGRAM_NAMES, PROGRAMS, SIZES, Shape, generate
from apportion.adapters.demo.trace import ARCHIVE, read_trace
from apportion.adapters.simulation.job import Job

SUPPLY_GPU_MS = 512 * 168 * 3_600_000


def demand(jobs: list[Job]) -> int:
    return sum(job.gpus * job.duration_ms for job in jobs)


def gpu_time_shares(jobs: list[Job]) -> dict[str, float]:
    times: Counter[str] = Counter()
    for job in jobs:
        times[job.program] += job.gpus * job.duration_ms
    return {name: times[name] / demand(jobs) for name in PROGRAM_NAMES}


@pytest.mark.parametrize("seed", range(8))
def test_a_week_asks_for_2_2_times_the_supply(seed: int) -> None:
    assert abs(demand(generate(seed)) / SUPPLY_GPU_MS - 2.2) <= 0.1


@pytest.mark.parametrize("seed", [1, 7])
def test_a_week_has_the_tables_shape(seed: int) -> None:
    jobs = generate(seed)
    sizes = Counter(job.gpus for job in jobs)
    for size, count in SIZES.items():
        assert abs(sizes[size] - len(jobs) * count / sum(SIZES.values())) <= 1
    hours = Counter(job.submit_ms // 3_600_000 for job in jobs)
    for hour, count in enumerate(HOURS):
        assert abs(hours[hour] - len(jobs) * count / sum(HOURS)) <= 1
    for size in (1, 8):  # the classes with enough jobs in a week to have quantiles
        durations = sorted(job.duration_ms for job in jobs if job.gpus == size)
        for mark, expected_s in zip(MARKS[1:-5], DURATIONS_S[size][1:-5], strict=True):
            place = mark * len(durations) // 1_000
            low, high = durations[max(0, place - 9)], durations[min(len(durations) - 1, place + 9)]
            assert low <= expected_s * 1_000 <= high, (size, mark)
    programs = Counter(job.program for job in jobs)
    for position, name in enumerate(PROGRAM_NAMES):
        expected = sum(band[position] for bands in PROGRAMS.values() for band in bands)
        assert abs(programs[name] / len(jobs) - expected / sum(SIZES.values())) <= 0.005, name


def test_the_tables_are_whole() -> None:
    assert sum(SIZES.values()) == sum(HOURS) == 69_351
    for size, bands in PROGRAMS.items():
        assert sum(map(sum, bands)) == SIZES[size]
        assert list(DURATIONS_S[size]) == sorted(DURATIONS_S[size])
        assert len(DURATIONS_S[size]) == len(MARKS)


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 2**64 - 1),
    shape=st.builds(
        Shape,
        days=st.integers(1, 9),
        gpus=st.integers(1, 512),
        demand_milli=st.integers(1, 3_000),
        largest=st.sampled_from([1, 2, 8, 64, 500]),
    ),
)
def test_equal_seeds_give_equal_jobs_inside_the_bounds(seed: int, shape: Shape) -> None:
    jobs = generate(seed, shape)
    assert jobs == generate(seed, shape)
    assert jobs
    assert len({job.job_id for job in jobs}) == len(jobs)
    assert all(0 <= job.submit_ms < shape.days * 86_400_000 for job in jobs)
    assert all(job.gpus <= shape.largest and job.gpus in SIZES for job in jobs)
    assert all(600_000 <= job.duration_ms <= 1_573_360_000 for job in jobs)
    assert [job.submit_ms for job in jobs] == sorted(job.submit_ms for job in jobs)


def test_another_seed_is_another_week() -> None:
    assert generate(1) != generate(2)


def test_the_first_jobs_never_change() -> None:
    """Equal seeds give equal bytes in every release: a change here makes published runs unrepeatable."""
    first = generate(1)[0]
    assert (len(generate(1)), first) == (7_991, FIRST)


FIRST = Job("cluster05-00001", 143121, 8021696, 1, "cluster05")


@pytest.mark.parametrize("wrong", [{"days": 0}, {"gpus": 0}, {"demand_milli": 0}, {"largest": 0}])
def test_a_shape_without_jobs_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        generate(1, Shape(**wrong))


PUBLISHED = Path(os.environ.get("APPORTION_SHARED", Path(__file__).parents[3] / "shared")) / "data" / "elasticflow-itp"


@pytest.mark.skipif(not (PUBLISHED / ARCHIVE).is_file(), reason=f"the public ITP trace is not at {PUBLISHED}")
def test_the_tables_are_what_the_trace_says() -> None:
    trace = read_trace(PUBLISHED, 0, 60)
    assert Counter(job.gpus for job in trace) == SIZES
    assert tuple(Counter(job.submit_ms // 3_600_000 % 168 for job in trace)[hour] for hour in range(168)) == HOURS
    for size, table in DURATIONS_S.items():
        durations = sorted(job.duration_ms // 1_000 for job in trace if job.gpus == size)
        assert tuple(durations[mark * (len(durations) - 1) // 1_000] for mark in MARKS) == table
    weeks = [generator.generate(seed) for seed in range(4)]
    shares = [gpu_time_shares(week) for week in weeks]
    for name, expected in gpu_time_shares(trace).items():
        assert abs(sum(share[name] for share in shares) / len(shares) - expected) <= 0.025, name

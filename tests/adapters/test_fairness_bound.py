"""The bound of occupancy is what its definition says, and nothing that is done exceeds it."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from apportion.adapters.bench.worlds.fairness.bound import most_work
from apportion.adapters.simulation.job import Job

jobs_of = st.lists(st.builds(Job, st.just("j"), st.integers(0, 12), st.integers(1, 9), st.integers(1, 4), st.just("p")), max_size=8)


def doable(jobs: list[Job], by_ms: int) -> int:
    return sum(job.gpus * min(job.duration_ms, max(0, by_ms - job.submit_ms)) for job in jobs)


@settings(derandomize=True, max_examples=300, deadline=None)
@given(jobs_of, st.integers(1, 6), st.integers(0, 8), st.integers(1, 12))
def test_it_is_the_least_over_every_instant(jobs: list[Job], gpus: int, from_ms: int, length_ms: int) -> None:
    to_ms = from_ms + length_ms
    least = min([gpus * length_ms, *(doable(jobs, at) + gpus * (to_ms - at) for at in range(from_ms, to_ms + 1))])

    assert most_work(jobs, gpus, from_ms, to_ms) == least


@settings(derandomize=True, max_examples=300, deadline=None)
@given(jobs_of, st.integers(1, 6), st.integers(1, 12))
def test_who_serves_in_order_does_no_more(jobs: list[Job], gpus: int, to_ms: int) -> None:
    left, done = [job.gpus * job.duration_ms for job in jobs], 0
    for now_ms in range(to_ms):
        free = gpus
        for number, job in enumerate(jobs):
            if job.submit_ms <= now_ms and left[number]:
                taken = min(free, job.gpus, left[number])
                left[number], free, done = left[number] - taken, free - taken, done + taken

    assert done <= most_work(jobs, gpus, 0, to_ms)

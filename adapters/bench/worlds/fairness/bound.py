"""How busy any scheduler could have kept the GPUs, given what was asked for and when.

Whatever is done in a window was asked for before, and the pool can do no more than it is: with A(s) = all that could have been done
by s with GPUs without end (each job from its submission on, with the GPUs it asks for), at most the least over s of
A(s) + capacity x (end - s). Neither nodes nor gangs count, nor what an early job did before the window, so no scheduler reaches
more; work that is done twice is counted once. A pure function of the jobs.
Naive equivalent: the same sum at every millisecond, for between two submissions or ends it has no turn.
"""

from __future__ import annotations

from collections.abc import Sequence

from apportion.adapters.simulation.job import Job


def most_work(jobs: Sequence[Job], gpus: int, from_ms: int, to_ms: int) -> int:
    """Return the most GPU-milliseconds that ``gpus`` can do of the jobs in the window; instants as in ``jobs``."""
    turns: list[tuple[int, int]] = []
    for job in jobs:
        turns += [(job.submit_ms, job.gpus), (job.submit_ms + job.duration_ms, -job.gpus)]
    turns.sort()
    done, rate, at_ms = 0, 0, 0
    least = gpus * (to_ms - from_ms)
    for turn_ms, change in [*turns, (to_ms, 0)]:
        if at_ms < from_ms <= turn_ms:
            least = min(least, done + rate * (from_ms - at_ms) + gpus * (to_ms - from_ms))
        if turn_ms > to_ms:
            return min(least, done + rate * (to_ms - at_ms))
        done += rate * (turn_ms - at_ms)
        rate, at_ms = rate + change, turn_ms
        if turn_ms >= from_ms:
            least = min(least, done + gpus * (to_ms - turn_ms))
    return least


def most_busy_pct(jobs: Sequence[Job], gpus: int, from_ms: int, to_ms: int) -> float:
    """Return the same in per cent of the GPU time there is."""
    return 100 * most_work(jobs, gpus, from_ms, to_ms) / (gpus * (to_ms - from_ms))

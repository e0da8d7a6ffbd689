"""How people submit: what a job of the world asks the scheduler for, and what will happen to it that nobody knows yet.

A pure function of seed and job. The trace says only sizes and durations, so protected time, limits, checkpoints and
failures are drawn, each by a hash of the job's id: the same job is the same in every play of a seed.
"""

from __future__ import annotations

from typing import NamedTuple

from apportion.adapters.simulation.cluster import ROOT, member_names
from apportion.adapters.simulation.dice import Dice
from apportion.adapters.simulation.job import Job
from apportion.core.events import WorkloadSubmitted
from apportion.core.fields import Kind as WorkloadKind

MS_PER_MINUTE = 60_000
PPM = 1_000_000


class Habits(NamedTuple):
    """How often, in ppm of jobs."""

    idle_cycles: int = 120_000  # asks for min_runtime 0
    own_min_runtime: int = 300_000  # states 10 to 60 minutes; the rest takes the pool's default
    no_limit: int = 200_000  # states no expected runtime
    no_checkpoints: int = 100_000  # of those below 8 GPUs
    no_resume: int = 30_000
    fails_once: int = 15_000  # at a random point, and is tried again
    fails_always: int = 5_000
    cancelled: int = 5_000  # by its submitter, some time after submission
    refused_start: int = 2_000  # of runs: the agent cannot start it
    movable: int = 0  # lets its runs be moved, if it resumes
    falls_asleep: int = 0  # does no more work from a random point on, and keeps its GPUs to its end


CALM = Habits(fails_once=0, fails_always=0, cancelled=0, refused_start=0)
MOODY = Habits(
    fails_once=120_000, fails_always=50_000, cancelled=100_000, refused_start=40_000, movable=500_000, falls_asleep=250_000
)


class Fate(NamedTuple):
    """A job as submitted, and its hidden facts."""

    workload: str
    principal: str
    event: WorkloadSubmitted
    duration_ms: int
    checkpoint_ms: int  # useful time between two checkpoints; 0 = none
    saves_on_stop: bool  # writes a checkpoint when asked to stop
    fails_at_ms: int  # useful time at which it exits non-zero; -1 = never
    fails_runs: int  # for so many runs
    cancel_after_ms: int  # -1 = never
    busy_milli: int  # of 1,000 per GPU
    memory_mib: int  # per GPU
    restart_ms: int  # to load a checkpoint
    asleep_from_ms: int  # useful time from which on it does nothing; -1 = it always works


def fate_of(seed: int, habits: Habits, pool: str, job: Job) -> Fate:
    """Return what becomes of ``job``."""
    dice = Dice(seed, "people", job.job_id, job.program)
    min_runtime_ms: int | None = None
    kind: WorkloadKind = "training"
    draw = dice.below(PPM)
    if draw < habits.idle_cycles:
        min_runtime_ms = 0
    elif draw < habits.idle_cycles + habits.own_min_runtime:
        min_runtime_ms = dice.between(2, 12) * 5 * MS_PER_MINUTE
    if job.gpus == 1 and dice.chance(200_000):
        kind = "batch_inference"
    limit_ms = 0
    if not dice.chance(habits.no_limit):
        wanted_ms = job.duration_ms * dice.between(110, 300) // 100 + 15 * MS_PER_MINUTE
        limit_ms = (wanted_ms // (30 * MS_PER_MINUTE) + 1) * 30 * MS_PER_MINUTE
    checkpoint_ms = 0
    careless = dice.chance(habits.no_checkpoints)
    if job.gpus >= 8 or not careless:
        checkpoint_ms = (30 if job.gpus >= 8 else 60) * MS_PER_MINUTE
    fails_runs = 0
    draw = dice.below(PPM)
    if draw < habits.fails_once:
        fails_runs = 1
    elif draw < habits.fails_once + habits.fails_always:
        fails_runs = 1_000
    members = member_names(job.program)
    principal = members[dice.below(len(members))]
    resumes = not dice.chance(habits.no_resume)
    sleep = Dice(seed, "sleep", job.job_id)
    return Fate(
        workload=job.job_id,
        principal=principal,
        event=WorkloadSubmitted(
            workload=job.job_id,
            budget=f"{ROOT}/{job.program}",
            pools=(pool,),
            gpus_milli=job.gpus * 1_000,
            kind=kind,
            min_runtime_ms=min_runtime_ms,
            expected_runtime_ms=limit_ms,
            auto_resume=resumes,
            movable=resumes and Dice(seed, "moves", job.job_id).chance(habits.movable),
            checkpoint_interval_ms=checkpoint_ms,
            grace_ms=dice.between(1, 4) * 15_000,
            priority=dice.below(3),
            max_failures=1,
        ),
        duration_ms=job.duration_ms,
        checkpoint_ms=checkpoint_ms,
        saves_on_stop=checkpoint_ms > 0 and dice.chance(800_000),
        fails_at_ms=dice.below(job.duration_ms) if fails_runs else -1,
        fails_runs=fails_runs,
        cancel_after_ms=dice.between(1, 720) * MS_PER_MINUTE if dice.chance(habits.cancelled) else -1,
        busy_milli=dice.between(350, 980),
        memory_mib=dice.between(20_000, 76_000),
        restart_ms=dice.between(30, 120) * 1_000,
        asleep_from_ms=sleep.below(job.duration_ms) if sleep.chance(habits.falls_asleep) else -1,
    )

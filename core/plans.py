"""The rolling plan of a pool, as the decision that publishes it.

Pure data; made by ``policy.horizon.telling``, and of what was asked and found nothing else is kept.
"""

from __future__ import annotations

import msgspec

from apportion.core.decision import Decision


class PlannedJob(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A job of a plan: in steps from its beginning; ``first`` and ``gpus`` are a block of the pool's GPUs laid out in one line."""

    workload: str
    start: int
    steps: int
    first: int
    gpus: int


class PlannedService(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A service of a plan, in GPUs by step: what it is to hold, what it needs at the quantile kept ready for, and at the median."""

    workload: str
    held: tuple[int, ...]
    needs: tuple[int, ...]
    median: tuple[int, ...]


class IdleWindow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A spell in which so many GPUs are expected to idle."""

    from_ms: int
    until_ms: int
    gpus: int


class PlanPublished(Decision, frozen=True, tag="plan.published"):
    """The rolling plan of a pool under ``horizon``. Only its step 0 is carried out, by the decisions that follow it.

    ``objective`` is what it is worth (``core.horizon``), ``bound`` what no plan could exceed, ``risk_ppm`` by step the part of
    demand, at the quantile kept ready for, that it does not cover. ``late`` had waited too long to start in time, whatever was
    planned.
    """

    plan: str
    pool: str
    from_ms: int
    step_ms: int
    steps: int
    gpus: int  # of the line that its blocks lie on, those out of service too
    objective: int
    bound: int
    candidates: int  # that the search looked at
    unmet_gpu_steps: int
    waiting: int  # jobs that it was made of, planned in it or not
    mark: int  # of what it was made of; another one, and it is made again
    jobs: tuple[PlannedJob, ...] = ()
    late: tuple[str, ...] = ()
    services: tuple[PlannedService, ...] = ()
    risk_ppm: tuple[int, ...] = ()
    idle: tuple[IdleWindow, ...] = ()

"""The rolling plans of pools under ``horizon``: what each said of jobs, of services and of idle GPUs, step by step.

A pure function of decisions. What became of a plan is no row here: queries compare it with runs and with traffic.
"""

from __future__ import annotations

from apportion.core.decisions import PlanPublished
from apportion.projections.moment import Decided
from apportion.projections.sheet import Sheet


class Plans:
    """Rows about plans."""

    def __init__(self) -> None:
        self.made = Sheet(
            "fact.plan", "plan", "seq", "position", "time_ms", "pool", "from_ms", "step_ms", "steps", "gpus", "objective", "bound",
            "candidates", "unmet_gpu_steps", "waiting",
        )  # fmt: skip
        self.jobs = Sheet("fact.plan_job", "plan", "seq", "pool", "workload", "start", "steps", "first", "gpus", "late")
        self.services = Sheet("fact.plan_service", "plan", "seq", "pool", "workload", "step", "held", "needs", "median")
        self.idle = Sheet("fact.plan_idle", "plan", "seq", "pool", "from_ms", "until_ms", "gpus")

    def published(self, at: Decided, plan: PlanPublished) -> None:
        """A pool has another plan."""
        self.made.rows.append((
            plan.plan, at.seq, at.position, at.time_ms, plan.pool, plan.from_ms, plan.step_ms, plan.steps, plan.gpus,
            plan.objective, plan.bound, plan.candidates, plan.unmet_gpu_steps, plan.waiting,
        ))  # fmt: skip
        key = (plan.plan, at.seq, plan.pool)
        late = dict.fromkeys(plan.late, True)
        for job in plan.jobs:
            self.jobs.rows.append((*key, job.workload, job.start, job.steps, job.first, job.gpus, late.pop(job.workload, False)))
        self.jobs.rows.extend((*key, workload, -1, 0, -1, 0, True) for workload in late)
        for one in plan.services:
            curves = zip(one.held, one.needs, one.median, strict=True)
            self.services.rows.extend((*key, one.workload, step, *values) for step, values in enumerate(curves))
        self.idle.rows.extend((*key, window.from_ms, window.until_ms, window.gpus) for window in plan.idle)

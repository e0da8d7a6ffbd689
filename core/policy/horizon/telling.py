"""A plan as a decision: who starts when on which GPUs, what services will hold, how sure that is, and where GPUs will idle.

The bound: nobody could do better on what was asked. All that could be had (each job at its earliest, each GPU-step of demand) is
put into so many GPU-steps as there are, in parts if need be; the dual of that knapsack, at the best of the prices that are whole
numbers, is never below it. It knows no blocks and no order in time, so it is loose where those matter.

A pure function of the plan and of what was asked.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from apportion.core.horizon.instance import ONE, Instance
from apportion.core.horizon.plan import Plan
from apportion.core.plans import IdleWindow, PlannedJob, PlannedService, PlanPublished
from apportion.core.policy.horizon.asking import Asked
from apportion.core.state.state import State
from apportion.core.units import PPM

I64 = NDArray[np.int64]


def published(state: State, pool: int, asked: Asked, plan: Plan, mark: int) -> PlanPublished:
    """Return the decision."""
    instance, now_ms, step_ms = asked.instance, state.counters.time_ms, int(state.pool.step_ms[pool])
    planned = np.flatnonzero(plan.start >= 0)
    planned = planned[np.lexsort((asked.jobs[planned], plan.first[planned], plan.start[planned]))]
    work = instance.jobs
    room = room_of(instance)
    for j in planned.tolist():
        begin = int(plan.start[j])
        room[begin : begin + int(work.duration[j])] -= work.gpus[j]
    room -= plan.held.sum(axis=0)
    demand, held = instance.services.demand.sum(axis=0), plan.held.sum(axis=0)
    short = np.maximum(demand - held, 0)
    columns = (plan.start, work.duration, plan.first, work.gpus)
    return PlanPublished(
        plan=f"{state.pool.keys[pool]}.{state.counters.cycle + 1}",
        pool=state.pool.keys[pool],
        from_ms=now_ms,
        step_ms=step_ms,
        steps=instance.steps,
        gpus=instance.gpus,
        objective=plan.objective,
        bound=bound_of(instance),
        candidates=plan.candidates,
        unmet_gpu_steps=plan.unmet,
        waiting=len(work.id),
        mark=mark,
        jobs=tuple(
            PlannedJob(state.workload.keys[int(asked.jobs[j])], *(int(column[j]) for column in columns)) for j in planned.tolist()
        ),
        late=tuple(state.workload.keys[int(asked.jobs[j])] for j in plan.late.tolist()),
        services=tuple(
            PlannedService(
                state.service.keys[int(row)], tuple(plan.held[a].tolist()), tuple(instance.services.demand[a].tolist()),
                tuple(asked.needs[a].tolist()),
            )
            for a, row in enumerate(asked.services.tolist())
        ),
        risk_ppm=tuple((short * PPM // np.maximum(demand, 1)).tolist()) if len(asked.services) else (),
        idle=_windows(room, now_ms, step_ms),
    )  # fmt: skip


def room_of(instance: Instance) -> I64:
    """Return the GPUs that running work leaves, by step."""
    room = np.full(instance.steps, instance.gpus, dtype=np.int64)
    for gpus, left in zip(instance.pinned.gpus.tolist(), instance.pinned.left.tolist(), strict=True):
        room[:left] -= gpus
    return room


def _windows(room: I64, now_ms: int, step_ms: int) -> tuple[IdleWindow, ...]:
    """Return the spells in which as many GPUs are expected to idle."""
    found, begin = [], 0
    for t in range(1, len(room) + 1):
        if t == len(room) or room[t] != room[begin]:
            if room[begin] > 0:
                found.append(IdleWindow(now_ms + begin * step_ms, now_ms + t * step_ms, int(room[begin])))
            begin = t
    return tuple(found)


def bound_of(instance: Instance) -> int:
    """Return what no plan of the instance can exceed."""
    work, services, steps = instance.jobs, instance.services, instance.steps
    counted = np.minimum(work.duration, np.maximum(steps - work.earliest, 0))
    decay = instance.decay[np.minimum(work.age + work.earliest, len(instance.decay) - 1)]
    value, size = work.priority * work.gpus * counted * decay, work.gpus * counted
    demand = services.demand.sum(axis=1)
    sting = services.priority * (1 + services.penalty) * ONE
    lost = int((services.priority * services.penalty * demand).sum()) * ONE
    values, sizes = np.concatenate((value, sting * demand)), np.concatenate((size, demand))
    capacity = int(np.maximum(room_of(instance), 0).sum())
    fits = sizes > 0
    values, sizes = values[fits], sizes[fits]
    best = int(values.sum())
    for price in dict.fromkeys((values // sizes).tolist()):
        best = min(best, price * capacity + int(np.maximum(values - price * sizes, 0).sum()))
    return best - lost

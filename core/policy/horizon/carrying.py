"""One cycle of a pool under ``horizon``: plan when it is time, carry out the present instant, place replicas.

It is planned at the first cycle of each step, at once when a job comes that could start on what idles, and else, ``REPLAN_MS``
after the last plan or later, when what waits, runs or is in service is no longer what it was. Of the plan only the jobs of step 0
start, each inside the block that was planned for it. Whom that block does not suit (labels, memory, topology: the plan knows only
GPUs) starts on others that are planned for nobody now, or waits for the next plan; so does work too large for any block, which
gets the protection it asks for and no more. A planned job that starts is protected for as long as it is expected to run: it is not
interrupted. Nobody is preempted for a plan, and nobody else starts beside it.

Replicas are no blocks: they start on what is free, and where the plan was just made rather where it puts nobody soon.

A pure function of the state; of the plan nothing is kept but when it was made and of what (``PoolTable.plan_ms``, ``plan_mark``).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from apportion.core.errors import check
from apportion.core.horizon.check import violations
from apportion.core.horizon.plan import Plan
from apportion.core.horizon.planner import plan as search
from apportion.core.horizon.planner import usual_candidates
from apportion.core.policy.emit import Emit
from apportion.core.policy.fitting import find_gpus
from apportion.core.policy.funding import Shares
from apportion.core.policy.horizon.asking import Asked, ask
from apportion.core.policy.horizon.slots import Slots, slots_of
from apportion.core.policy.horizon.telling import published
from apportion.core.policy.reserving import Reservations
from apportion.core.policy.starting import start
from apportion.core.state import schema
from apportion.core.state.space import Space
from apportion.core.state.state import State
from apportion.core.units import MILLI

I64 = NDArray[np.int64]

REPLAN_MS = 300_000
PART_OF_USUAL = 8  # of the candidates: what was planned is soon planned again, with what has changed
SOON_STEPS = 4  # replicas rather keep off blocks that are planned within so many steps
_MARKS = (1 << 61) - 1


def serve_horizon(state: State, emit: Emit, shares: Shares, pool: int) -> Reservations:
    """Emit the plan, and the starts of the pool; returns what is told of planned starts."""
    reservations = Reservations.none(state)
    soon: I64 = np.zeros(state.node.used, dtype=np.int64)
    if wants_plan(state, pool):
        slots = slots_of(state, pool)
        if slots.length:
            asked = ask(state, shares, pool, slots)
            made = search(asked.instance, usual_candidates(asked.instance) // PART_OF_USUAL)
            _believe(state, asked, made)
            emit(published(state, pool, asked, made, mark_of(state, pool)))
            reservations.planned_ms = _carry_out(state, emit, shares, pool, reservations, slots, asked, made)
            soon = _planned_soon(state, slots, asked, made)
    _replicas(state, emit, shares, pool, reservations, soon)
    return reservations


def wants_plan(state: State, pool: int) -> bool:
    """Tell whether it is time for a plan."""
    cells, now_ms = state.pool.cells, state.counters.time_ms
    planned_ms, step_ms = cells.plan_ms[pool], cells.step_ms[pool]
    if not planned_ms or now_ms // step_ms != planned_ms // step_ms or _fresh(state, pool):
        return True
    return now_ms - planned_ms >= REPLAN_MS and mark_of(state, pool) != cells.plan_mark[pool]


def _fresh(state: State, pool: int) -> bool:
    """Tell whether a job has come since the last plan that could start on what idles, by count: once for each."""
    cells, table = state.pool.cells, state.workload
    queue = state.queue[: state.queued]
    mine = (table.pool[queue] == pool) & (table.service[queue] == 0) & (table.submit_ms[queue] > cells.plan_ms[pool])
    return bool((mine & (table.gpus_milli[queue] <= cells.idle_milli[pool])).any())


def instants(state: State) -> list[int]:
    """Return when plans are due: at the beginning of the next step."""
    cells = state.pool.cells
    planned = [pool for pool in range(state.pool.used) if cells.policy[pool] == schema.HORIZON]
    return [(state.counters.cycle_ms // cells.step_ms[pool] + 1) * cells.step_ms[pool] for pool in planned if cells.plan_ms[pool]]


def mark_of(state: State, pool: int) -> int:
    """Return a number of what a plan is made of: who waits, who runs, what is in service, what services are to have."""
    table, run, gpu, service = state.workload, state.run, state.gpu, state.service
    batch = table.column("service") == 0
    waits = (table.column("pool") == pool) & (table.column("state") == schema.PENDING) & batch
    runs = (run.column("pool") == pool) & (run.column("state") > 0) & batch[run.column("workload")]
    told = (
        int(table.column("event_seq")[waits].sum()), int(waits.sum()), int(run.column("placed_ms")[runs].sum()), int(runs.sum()),
        int((gpu.column("out") == 0).sum()), int(service.column("replicas").sum()), int(service.column("forecast_ms").sum()),
    )  # fmt: skip
    mark = 1
    for number in told:
        mark = (mark * 1_000_003 + number) % _MARKS
    return mark


def _believe(state: State, asked: Asked, plan: Plan) -> None:
    """Stop unless the validator, which shares no line with the planner, finds nothing wrong with the plan."""
    for rule, what in violations(asked.instance, plan):
        check(False, state.counters.seq, f"a plan breaks the rule {rule!r}: {what}")


def _carry_out(
    state: State, emit: Emit, shares: Shares, pool: int, reservations: Reservations, slots: Slots, asked: Asked, plan: Plan
) -> dict[int, int]:
    """Start the jobs of step 0; returns when the others are planned to start."""
    now_ms = state.counters.time_ms
    step_ms = int(state.pool.step_ms[pool])
    later: dict[int, int] = {}
    unsuited: list[tuple[int, int]] = []
    for j in np.lexsort((asked.jobs, plan.first, plan.start)).tolist():
        workload, begin = int(asked.jobs[j]), int(plan.start[j])
        if begin > 0:
            later[workload] = now_ms + begin * step_ms
        if begin != 0:
            continue
        block = slots.gpu[int(plan.first[j]) : int(plan.first[j]) + int(asked.instance.jobs.gpus[j])]
        gpus = find_gpus(state, workload, _only(state, block), reservations.beside(state, workload))
        if gpus:
            start(state, emit, shares, workload, gpus, promised_ms=int(asked.runtime_ms[j]))
        else:
            unsuited.append((workload, int(asked.runtime_ms[j])))
    for workload, runtime_ms in unsuited:
        gpus = find_gpus(state, workload, Space.now(state), reservations.beside(state, workload))
        if gpus:
            start(state, emit, shares, workload, gpus, promised_ms=runtime_ms)
        else:
            later[workload] = now_ms + step_ms
    for workload in asked.blockless[state.workload.not_before_ms[asked.blockless] <= now_ms].tolist():
        gpus = find_gpus(state, workload, Space.now(state), reservations.beside(state, workload))
        if gpus:  # not planned, so nothing is promised beyond what it asks for
            start(state, emit, shares, workload, gpus)
    return later


def _only(state: State, block: I64) -> Space:
    """Return a space in which nothing but the block is free."""
    space = Space.copy(state)
    elsewhere = np.ones(state.gpu.used, dtype=np.bool_)
    elsewhere[block[block >= 0]] = False
    space.gpu_milli[elsewhere] = MILLI
    return space


def _planned_soon(state: State, slots: Slots, asked: Asked, plan: Plan) -> I64:
    """Return 1 per node on which a block is planned soon."""
    soon = np.zeros(state.node.used, dtype=np.int64)
    for j in np.flatnonzero((plan.start >= 0) & (plan.start <= SOON_STEPS)).tolist():
        block = slots.gpu[int(plan.first[j]) : int(plan.first[j]) + int(asked.instance.jobs.gpus[j])]
        soon[state.gpu.node[block[block >= 0]]] = 1
    return soon


def _replicas(state: State, emit: Emit, shares: Shares, pool: int, reservations: Reservations, soon: I64) -> None:
    """Start waiting replicas, in the order of the queue."""
    table, now_ms = state.workload, state.counters.time_ms
    queue = state.queue[: state.queued]
    mine = queue[(table.pool[queue] == pool) & (table.service[queue] > 0) & (table.state[queue] == schema.PENDING)]
    for workload in mine[table.not_before_ms[mine] <= now_ms].tolist():
        if int(state.pool.idle_milli[pool]) < int(table.gpus_milli[workload]):
            continue
        kept = reservations.beside(state, workload)
        gpus = find_gpus(state, workload, Space.now(state), np.maximum(kept, soon))
        gpus = gpus or find_gpus(state, workload, Space.now(state), kept)
        if gpus:
            start(state, emit, shares, workload, gpus)

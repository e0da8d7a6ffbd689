"""What the planner is asked: the pool's waiting work as jobs, its running work as pinned blocks, its services as curves.

- A job takes a power of two of GPUs: another number is rounded up in the plan, never in what it holds or pays. It lasts as its
  forecast says, never longer than its limit; without both a day. Its value doubles with each priority, up to three above and below.
- A job that has waited for three quarters of its pool's ``wait_bound_ms`` falls due: it gets a place by the end of that, before
  anything is searched. Earlier only its value counts, or everybody would be served in order of submission.
- Running work stays where it is to its expected end, whoever it is of. What is out of service stays out.
- A service holds what its size says now; later what is forecast for that step, else what its last traffic needs. Its GPUs are where
  they are: no block is put over them now, though later they may be elsewhere.
- Each leaf budget that asks for GPUs keeps its part of the pool, as far as it is entitled to it: others' jobs may not use it.

Work whose block would be longer than the line (24 GPUs of 24) is not planned: ``carrying`` starts it on what idles. What is more
than the planner takes (steps, services, budgets to be protected) is left out from the end, never refused: the core must go on.

At most ``backfill_depth`` jobs are asked for: who falls due first, then the first of each budget, the second of each, and so on.
A pure function of the state. It must never look at how a plan is searched.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from apportion.core.horizon.instance import (
    MAX_BUDGETS,
    MAX_DURATION,
    MAX_JOBS,
    MAX_SERVICES,
    MAX_STEPS,
    NONE,
    Instance,
    Jobs,
    Pinned,
    Services,
    decaying,
    reachable,
)
from apportion.core.policy.funding import Shares
from apportion.core.policy.horizon.slots import Slots
from apportion.core.policy.reserving import expected_ends
from apportion.core.state import schema
from apportion.core.state.services import forecast_traffic, needed
from apportion.core.state.state import State
from apportion.core.units import MILLI, MS_PER_DAY, NEVER_MS, SERVICE_AHEAD, UNKNOWN_RUNTIME_MS

I64 = NDArray[np.int64]

HORIZON_MS = MS_PER_DAY
KEEP = 64_596  # of 65,536 per step: with steps of half an hour the value of a start halves in a day
DECAY_STEPS = 1_024
NEUTRAL = 3  # doublings of a job of priority 0
LEVELS = 3  # priorities above and below that count
STOP_STEPS = 1
DUE_PART = 4  # of the bound: who has waited for all but so small a part of it falls due
MAX_LATEST = 1 << 30


class Asked(NamedTuple):
    """The instance, and whose its rows are."""

    instance: Instance
    jobs: I64  # workload rows
    runtime_ms: I64  # by job, as expected
    services: I64  # service rows
    needs: I64  # GPUs by service and step at the median forecast; ``instance.services.demand`` is at the quantile kept ready for
    blockless: I64  # workload rows whose block would be longer than the line


def ask(state: State, shares: Shares, pool: int, slots: Slots) -> Asked:
    """Return what is to be planned for a pool."""
    step_ms = int(state.pool.step_ms[pool])
    steps = min(max(1, HORIZON_MS // step_ms), MAX_STEPS)
    leaves = np.flatnonzero((state.budget.column("pool") == pool) & (state.budget.column("children") == 0))[:MAX_BUDGETS]
    line = np.full(state.budget.used, NONE, dtype=np.int64)
    line[leaves] = np.arange(len(leaves), dtype=np.int64)
    rows, blockless = _waiting(state, pool, slots)
    runtime_ms = runtimes_ms(state, rows)
    jobs = _jobs(state, rows, runtime_ms, step_ms, line)
    pinned, barred = _pinned(state, pool, slots, step_ms, line)
    curves, names, needs = _services(state, pool, slots, steps, step_ms)
    left = np.full(steps, slots.length, dtype=np.int64)
    for gpus, kept in zip(pinned.gpus.tolist(), pinned.left.tolist(), strict=True):
        left[:kept] -= gpus
    curves, _changed = reachable(curves, left)
    instance = Instance(
        gpus=slots.length, steps=steps, jobs=jobs, pinned=pinned, services=curves,
        decay=decaying(DECAY_STEPS, KEEP), protected=_protected(state, shares, leaves, pinned, steps, slots.length), barred=barred,
    )  # fmt: skip
    return Asked(instance, rows, runtime_ms, names, needs, blockless)


def _waiting(state: State, pool: int, slots: Slots) -> tuple[I64, I64]:
    """Return the waiting workloads to be planned, and those of which no block fits the line."""
    table = state.workload
    queue = state.queue[: state.queued]
    mine = queue[(table.pool[queue] == pool) & (table.state[queue] == schema.PENDING) & (table.service[queue] == 0)]
    fits = _blocks(state, mine) <= slots.length
    mine, blockless = mine[fits], mine[~fits]
    budget = table.budget[mine]
    begins = np.flatnonzero(np.concatenate((np.ones(min(1, len(mine)), dtype=np.bool_), budget[1:] != budget[:-1])))
    place = np.arange(len(mine), dtype=np.int64) - np.repeat(begins, np.diff(np.append(begins, len(mine))))
    left_ms = _left_ms(state, mine)
    order = np.lexsort((mine, budget, place, left_ms))
    depth = min(int(state.pool.backfill_depth[pool]), MAX_JOBS)
    return mine[order[:depth]], blockless[:depth]


def _blocks(state: State, rows: I64) -> I64:
    """Return the GPUs of the block of each of the workloads: a power of two."""
    gpus = -(-state.workload.gpus_milli[rows] // MILLI)
    return np.array([1 << max(0, count - 1).bit_length() for count in gpus.tolist()], dtype=np.int64)


def _left_ms(state: State, rows: I64) -> I64:
    """Return in what time each of the workloads must have started, ``NEVER_MS`` for those that are not due yet."""
    table = state.workload
    bound_ms = state.pool.wait_bound_ms[table.pool[rows]]
    left_ms = np.maximum(bound_ms - (state.counters.time_ms - table.submit_ms[rows]), 0)
    result: I64 = np.where(left_ms <= bound_ms // DUE_PART, left_ms, NEVER_MS)
    return result


def runtimes_ms(state: State, rows: I64) -> I64:
    """Return how long waiting workloads are expected to run from their start on, at least a second."""
    table = state.workload
    forecast, limit = table.forecast_ms[rows], table.expected_runtime_ms[rows]
    whole = np.where(forecast > 0, np.where(limit > 0, np.minimum(forecast, limit), forecast), limit)
    whole = np.where(whole > 0, whole, UNKNOWN_RUNTIME_MS)
    result: I64 = np.maximum(whole - table.progress_ms[rows], 1_000)
    return result


def _jobs(state: State, rows: I64, runtime_ms: I64, step_ms: int, line: I64) -> Jobs:
    table, now_ms = state.workload, state.counters.time_ms
    waited_ms = now_ms - table.submit_ms[rows]
    wait_ms = np.maximum(table.not_before_ms[rows] - now_ms, 0)
    earliest = np.minimum(-(-wait_ms // step_ms), MAX_DURATION)
    doublings = NEUTRAL + np.clip(table.priority[rows], -LEVELS, LEVELS)
    return Jobs(
        id=rows.copy(), gpus=_blocks(state, rows), duration=np.minimum(-(-runtime_ms // step_ms), MAX_DURATION),
        priority=np.int64(1) << doublings, earliest=earliest,
        latest=np.maximum(np.minimum(_left_ms(state, rows) // step_ms, MAX_LATEST), earliest),
        age=np.minimum(waited_ms // step_ms, DECAY_STEPS),
        budget=line[table.budget[rows]],
    )  # fmt: skip


def _pinned(state: State, pool: int, slots: Slots, step_ms: int, line: I64) -> tuple[Pinned, I64]:
    """Return what stays where it is, and what services hold now: slots that no block may begin on in this step."""
    run, alloc, now_ms = state.run, state.alloc, state.counters.time_ms
    ends_ms = np.where(run.column("state") == schema.STOPPING, now_ms + STOP_STEPS * step_ms, expected_ends_ms(state))
    left = np.clip(-(-(ends_ms - now_ms) // step_ms), 1, MAX_DURATION)
    held = np.flatnonzero(alloc.column("milli"))
    held = held[slots.of_gpu[alloc.gpu[held]] >= 0]
    serves = state.workload.service[run.workload[alloc.run[held]]] > 0
    serves &= run.state[alloc.run[held]] != schema.STOPPING
    barred = np.zeros(slots.length, dtype=np.int64)
    barred[slots.of_gpu[alloc.gpu[held[serves]]]] = 1
    until, budget = np.zeros(slots.length, dtype=np.int64), np.full(slots.length, NONE, dtype=np.int64)
    mine = held[~serves]
    place = slots.of_gpu[alloc.gpu[mine]]
    np.maximum.at(until, place, left[alloc.run[mine]])
    budget[place] = line[run.budget[alloc.run[mine]]]
    kept = np.flatnonzero(state.gpu.column("held_by") > 0)
    kept = slots.of_gpu[kept[slots.of_gpu[kept] >= 0]]
    until[kept] = np.maximum(until[kept], STOP_STEPS)
    until[slots.gpu < 0] = MAX_DURATION
    until[(barred == 1) & (until > 0)] = 0  # a GPU that a service shares is the service's
    taken = np.flatnonzero(until)
    same = (np.diff(taken) == 1) & (np.diff(until[taken]) == 0) & (np.diff(budget[taken]) == 0)
    first = taken[np.concatenate((np.ones(min(1, len(taken)), dtype=np.bool_), ~same))]
    sizes = np.diff(np.append(np.searchsorted(taken, first), len(taken)))
    return Pinned(first, sizes, until[first], budget[first]), barred


def expected_ends_ms(state: State) -> I64:
    """Return per run row when it is over, by its limit or by what was forecast of it."""
    run, table, now_ms = state.run, state.workload, state.counters.time_ms
    rows = run.column("workload")
    forecast = table.forecast_ms[rows]
    by_forecast = run.column("checkpoint_ms") + np.maximum(forecast - table.progress_ms[rows], 0)
    ends = expected_ends(state)
    result: I64 = np.where((forecast > 0) & (by_forecast > now_ms), np.minimum(by_forecast, ends), ends)
    return result


def _services(state: State, pool: int, slots: Slots, steps: int, step_ms: int) -> tuple[Services, I64, I64]:
    cells, now_ms, line = state.service.cells, state.counters.time_ms, slots.length
    rows = [row for row in state.service.live_rows() if cells.pool[row] == pool and not cells.cancel_seq[row]]
    rows = rows[:MAX_SERVICES]
    least, demand, most = (np.zeros((len(rows), steps), dtype=np.int64) for _curve in range(3))
    needs, columns = np.zeros((len(rows), steps), dtype=np.int64), np.zeros((4, len(rows)), dtype=np.int64)
    for a, row in enumerate(rows):
        milli = cells.nodes[row] * cells.milli_per_node[row]
        low, high = cells.min_replicas[row], cells.max_replicas[row]
        for t in range(steps):
            begin_ms = now_ms + t * step_ms
            traffic = forecast_traffic(state, row, begin_ms, begin_ms + step_ms - 1)
            middle = forecast_traffic(state, row, begin_ms, begin_ms + step_ms - 1, median=True)
            known = needed(state, row, traffic) if traffic >= 0 else needed(state, row, cells.traffic_milli[row])
            usual = needed(state, row, middle) if middle >= 0 else known
            size = cells.replicas[row] if t == 0 else min(max(known, low), high)
            demand[a, t], needs[a, t] = _gpus(size * milli, line), _gpus(min(max(usual, low), high) * milli, line)
        least[a], most[a] = _gpus(low * milli, line), _gpus(high * milli, line)
        least[a, 0] = min(least[a, 0], demand[a, 0])
        swap = cells.swap_replicas[row]
        cap = _gpus((high if swap < 0 else swap) * milli, line)
        priority = min(max(cells.priority[row] - SERVICE_AHEAD, -LEVELS), LEVELS)
        columns[:, a] = cap, _held(state, row, slots), 1 << (NEUTRAL + priority), cells.penalty[row]
    return Services(least, demand, most, *columns), np.array(rows, dtype=np.int64), needs


def _gpus(milli: int, most: int) -> int:
    """Return the GPUs that so much needs, whole ones, and no more than there can be."""
    return min(-(-milli // MILLI), most)


def _held(state: State, service: int, slots: Slots) -> int:
    """Return the GPUs of the line that its replicas hold and are not asked to give back."""
    run, alloc = state.run, state.alloc
    held = np.flatnonzero(alloc.column("milli"))
    rows = alloc.run[held]
    mine = (state.workload.service[run.workload[rows]] == service + 1) & (run.state[rows] != schema.STOPPING)
    places = held[mine & (slots.of_gpu[alloc.gpu[held]] >= 0)]
    return _gpus(int(alloc.milli[places].sum()), len(np.unique(alloc.gpu[places])))


def _protected(state: State, shares: Shares, leaves: I64, pinned: Pinned, steps: int, gpus: int) -> I64:
    """Return the GPUs that are kept for each leaf by step: what it is allowed, as far as it waits for it or will still run."""
    asks = np.repeat((state.budget.pending_milli[leaves] // MILLI)[:, None], steps, axis=1)
    for row in np.flatnonzero(pinned.budget >= 0).tolist():
        asks[int(pinned.budget[row]), : int(pinned.left[row])] += pinned.gpus[row]
    return np.minimum(np.minimum((shares.allowance[leaves] // MILLI)[:, None], asks), gpus)

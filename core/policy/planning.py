"""Conservative backfill: a plan of the time to come for the first who wait, in fair order, that nobody behind them may delay.

A pool whose policy says so plans its first ``backfill_depth`` waiting workloads in every cycle, in fair order as if each ran once
it is planned. Each gets the earliest instant from which the pool has as many GPUs free, over all of its stated time, as it asks
for, with all before it where they are planned. Whoever is planned for now starts now. Others start only where the plan leaves GPUs
for all of their time: so they delay none of it. Runs end as they state, those that state nothing ``UNKNOWN_RUNTIME_MS`` after
their start; one that is over its time ends in the next bucket, so an overrun moves those who counted on it, a bucket at a time.
Nobody's protected time is shortened for the plan, and no preemption is planned.

Approximate: the plan counts GPUs and whole nodes, and does not know which (``kernels.profile``); wishes are asked only when
somebody is to start. Who is to start now and finds his GPUs scattered is given no instant, and others may use what he cannot: else
parts of nodes would idle for him. He is asked again first in the next cycle. No nodes are kept beside the plan. The fair order
moves with every record, and with it the plan: what was told of it is told again when it becomes later.

A pure function of the state; nothing of the plan is stored but the instants that were told (``explaining``).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from apportion.core.kernels import profile, serve
from apportion.core.policy.reserving import expected_ends, says_over_ms
from apportion.core.policy.turn import Turn
from apportion.core.state import schema
from apportion.core.state.state import State
from apportion.core.units import BUCKET_MS, MILLI, NEVER_MS, UNKNOWN_RUNTIME_MS

I64 = NDArray[np.int64]

BUCKETS = 2_880  # two days of minutes
NO_WISH = np.zeros(1, dtype=np.bool_)


def plan(state: State, turn: Turn) -> tuple[I64, I64]:
    """Return the planned workloads in fair order, and when each is to start, 0 = not within the plan; keeps the profile."""
    run, node, gpu, alloc, now_ms = state.run, state.node, state.gpu, state.alloc, turn.now_ms
    turn.profile, whole = np.zeros(BUCKETS, dtype=np.int64), np.zeros(BUCKETS, dtype=np.int64)
    ends_ms = expected_ends(state)
    ends_ms = np.where(run.column("state") == schema.STOPPING, np.maximum(run.column("stop_by_ms"), now_ms), ends_ms)
    size = int(node.column("gpus")[node.column("pool") == turn.pool].max(initial=0))
    profile.releases(
        now_ms, BUCKET_MS, turn.pool, size, node.used, node.pool, node.first_gpu, node.gpus, gpu.used_milli, gpu.out, gpu.held_by,
        MILLI, alloc.used, alloc.run, alloc.gpu, alloc.milli, gpu.node, ends_ms, turn.profile, whole,
    )  # fmt: skip
    depth, table = min(int(state.pool.backfill_depth[turn.pool]), state.queued), state.workload
    rows, buckets = np.zeros(depth, dtype=np.int64), np.zeros(depth, dtype=np.int64)
    turn.lines.ready[:] = turn.waiting()
    count = serve.fair_order(turn.jobs, turn.lines, turn.root, now_ms, turn.shares.running.copy(), rows, buckets)
    order, starts = rows[:count], np.zeros(count, dtype=np.int64)
    loose = np.concatenate((NO_WISH, state.wish.column("loose") == 1))[table.wish[order]]
    nodes, each = np.ascontiguousarray(state.waits[order, serve.NODES : serve.EACH + 1].T)
    profile.plan(
        np.arange(count, dtype=np.int64), nodes * each, nodes, each, loose, size * MILLI, buckets[:count], turn.profile, whole,
        starts,
    )  # fmt: skip
    starts_ms: I64 = np.where(starts < 0, 0, now_ms + starts * BUCKET_MS)
    return order, starts_ms


def positions(turn: Turn, order: I64) -> I64:
    """Return where in the queue of the turn these workloads are."""
    planned = np.zeros(turn.state.workload.used, dtype=np.bool_)
    planned[order] = True
    return np.flatnonzero(planned[turn.jobs.queue])


def take(state: State, turn: Turn, workload: int, sign: int = 1) -> None:
    """Take the GPUs of somebody who was not planned, and starts now, out of the plan; with ``sign`` -1 give those planned back."""
    over_ms = says_over_ms(state, workload)
    left_ms = over_ms - turn.now_ms if over_ms < NEVER_MS else UNKNOWN_RUNTIME_MS
    profile.take(turn.profile, 0, max(1, -(-left_ms // BUCKET_MS)), sign * int(state.workload.gpus_milli[workload]))

"""The one reservation of a cycle: where and when the first funded workload that cannot start will start (EASY backfill).

Each node's readiness is the instant at which it has enough GPUs free, by what is known of its runs: the stated limit; under
policy ``fair`` for an unfunded run also the end of its protected time, for it may be asked to go then; for a stopping run the end
of its grace; a run that states nothing is taken to end ``UNKNOWN_RUNTIME_MS`` after its start. The earliest nodes are kept: until
then they take only work that is over before. The reservation is made anew in every cycle, so it dies with its holder. (Deeper
reservations: the place for them is here.)

A pure function of the state; nothing of it is stored.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from apportion.core.kernels import pack
from apportion.core.state import schema
from apportion.core.state.state import State
from apportion.core.units import MILLI, MS_PER_DAY

I64 = NDArray[np.int64]

UNKNOWN_RUNTIME_MS = MS_PER_DAY
NEVER_MS = 1 << 60


@dataclass
class Shadow:
    """Nodes kept for ``workload`` (row; -1 = none) until ``start_ms``; ``masked`` has one entry per node."""

    workload: int
    start_ms: int
    masked: I64

    def is_short(self, state: State, workload: int) -> bool:
        """Tell whether the workload says that it is over before the reservation starts."""
        expected_ms = int(state.workload.expected_runtime_ms[workload])
        left_ms = max(0, expected_ms - int(state.workload.progress_ms[workload]))
        return expected_ms > 0 and state.counters.time_ms + left_ms <= self.start_ms

    def beside(self, state: State, workload: int) -> I64:
        """Return the nodes that are kept from the workload: none when it is over before."""
        return np.zeros_like(self.masked) if self.workload >= 0 and self.is_short(state, workload) else self.masked

    @classmethod
    def none(cls, state: State) -> Shadow:
        """Return the absence of a reservation."""
        return cls(-1, 0, np.zeros(state.node.used, dtype=np.int64))


def expected_ends(state: State) -> I64:
    """Return per run row when it is over by what its workload states, never before now; safe work is not done again."""
    run, workload = state.run, state.workload
    rows = run.column("workload")
    limit = workload.expected_runtime_ms[rows]
    left = np.maximum(limit - workload.progress_ms[rows], 0)
    until = np.where(limit > 0, run.column("checkpoint_ms") + left, run.column("placed_ms") + UNKNOWN_RUNTIME_MS)
    result: I64 = np.maximum(until, state.counters.time_ms)
    return result


def expected_end(state: State, run: int) -> int:
    """Return the same of one run."""
    workload = int(state.run.workload[run])
    limit_ms = int(state.workload.expected_runtime_ms[workload])
    if limit_ms:
        left_ms = max(0, limit_ms - int(state.workload.progress_ms[workload]))
        return max(int(state.run.checkpoint_ms[run]) + left_ms, state.counters.time_ms)
    return max(int(state.run.placed_ms[run]) + UNKNOWN_RUNTIME_MS, state.counters.time_ms)


def release_times(state: State) -> I64:
    """Return per run row when the run is expected to give its GPUs back, never before now."""
    run, now_ms = state.run, state.counters.time_ms
    until = expected_ends(state)
    evictable = np.minimum(until, run.column("protected_until_ms"))
    fair = state.pool.policy[run.column("pool")] == schema.FAIR
    until = np.where(fair & (run.column("payer") == schema.PAYER_UNFUNDED), evictable, until)
    until = np.where(run.column("state") == schema.STOPPING, run.column("stop_by_ms"), until)
    result: I64 = np.maximum(until, now_ms)
    return result


def shadow_for(state: State, workload: int) -> Shadow:
    """Reserve the earliest nodes for a workload that cannot start now."""
    now_ms, node = state.counters.time_ms, state.node
    free_ms = np.full(state.gpu.used, now_ms, dtype=np.int64)
    live = np.flatnonzero(state.alloc.column("milli"))
    np.maximum.at(free_ms, state.alloc.gpu[live], release_times(state)[state.alloc.run[live]])
    ready_ms = np.zeros(node.used, dtype=np.int64)
    need = max(1, int(state.workload.milli_per_node[workload]) // MILLI)
    pack.ready_times(
        int(state.workload.pool[workload]), need, now_ms, NEVER_MS, node.used, node.pool, node.first_gpu, node.gpus,
        state.gpu.out, state.gpu.held_by, free_ms, ready_ms,
    )  # fmt: skip
    order = np.argsort(ready_ms, kind="stable")[: int(state.workload.nodes[workload])]
    shadow = Shadow.none(state)
    if len(order) < int(state.workload.nodes[workload]) or int(ready_ms[order[-1]]) == NEVER_MS:
        return Shadow(workload, 0, shadow.masked)
    shadow.masked[order] = 1
    return Shadow(workload, int(ready_ms[order[-1]]), shadow.masked)

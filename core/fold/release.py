"""The end of a run in the state: its GPUs are free and its charge stops at the instant of the record being folded.

The run's row stays, as ENDED, until the cycle has written ``run.closed`` from it. Called for reports of agents, for lost
nodes and by ``run.closed`` itself when the cycle ends a run (timeouts).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from apportion.core import ledger
from apportion.core.reasons import Outcome
from apportion.core.state import schema
from apportion.core.state.codes import OUTCOME_CODE
from apportion.core.state.state import State


def release_run(
    state: State, run: int, outcome: Outcome, *, seq: int = 0, exit_code: int = 0, blame: int | None = None
) -> None:
    """End the run now: accounts settled, GPUs given back, row kept as ENDED. ``blame`` is the node row that reported it."""
    now_ms = state.counters.time_ms
    ledger.accrue(state, now_ms)
    ledger.end_run(state, run, now_ms)
    table, allocs, node_of = state.run.cells, state.alloc.cells, state.gpu.cells.node
    pool, alloc = table.pool[run], table.first_alloc[run]
    confirmed_ms, node = now_ms, -1
    while alloc >= 0:
        gpu, following = allocs.gpu[alloc], allocs.next[alloc]
        if node_of[gpu] != node:  # GPUs of a piece follow each other
            node = node_of[gpu]
            state.node.cells.runs[node] -= 1
        confirmed_ms = min(confirmed_ms, allocs.confirmed_ms[alloc])
        ledger.use_gpu(state, pool, gpu, -allocs.milli[alloc])
        state.gpu.cells.used_memory_mib[gpu] -= allocs.gpu_memory_mib[alloc]
        state.node.cells.used_cpu_milli[node] -= allocs.cpu_milli[alloc]
        state.node.cells.used_memory_mib[node] -= allocs.memory_mib[alloc]
        state.alloc.remove(alloc)
        alloc = following
    table.first_alloc[run] = -1
    table.state[run] = schema.ENDED
    table.ended_ms[run] = now_ms
    table.end_seq[run] = seq
    table.outcome[run] = OUTCOME_CODE[outcome]
    table.exit_code[run] = exit_code
    table.confirmed_ms[run] = confirmed_ms
    table.blame[run] = table.lead[run] if blame is None else blame
    state.counters.dirty = 1


def drop_hold(state: State, workload: int) -> None:
    """Free the GPUs that are held for a workload."""
    held = state.gpu.column("held_by")
    held[held == workload + 1] = 0


def drop_holds(state: State, workloads: NDArray[np.int64]) -> None:
    """Free the GPUs that are held for any of these."""
    if len(workloads):
        held, theirs = state.gpu.column("held_by"), np.zeros(state.workload.used + 1, dtype=np.bool_)
        theirs[workloads + 1] = True
        held[theirs[held]] = 0

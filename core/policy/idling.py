"""Who holds GPUs and does no work: said once when it has lasted for the pool's limit, and once when it is over.

A run does no work while on each of its nodes the heartbeats that list it say so; a beat that lists it without saying so, a
checkpoint, or reported progress is work. A pool's policy may demote such runs: their budget no longer pays once the protected time
it had reserved is over, and they may be preempted like work on idle cycles, whatever their budget is entitled to. By default they
are shown only.

A pure function of the state; decided at cycles, so at most one review later than the limit says.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from apportion.core.decisions import RunIdle
from apportion.core.policy.emit import Emit
from apportion.core.state import schema
from apportion.core.state.state import State

I64 = NDArray[np.int64]


def note_idle(state: State, emit: Emit) -> None:
    """Emit ``run.idle`` for every run of which something else is to be said than was said last."""
    run, alloc, now_ms = state.run, state.alloc, state.counters.time_ms
    idle_ms = alloc.column("idle_ms")
    told = run.column("idle_since_ms")
    if not idle_ms.any() and not told.any():
        return
    since = np.zeros(run.used, dtype=np.int64)
    live = np.flatnonzero(alloc.column("milli"))
    np.maximum.at(since, alloc.run[live], idle_ms[live])
    since[alloc.run[live[idle_ms[live] == 0]]] = 0
    started = run.column("state") == schema.STARTED
    limit = state.pool.idle_hold_ms[run.column("pool")]
    shown = np.where(started & (since > 0) & (now_ms - since >= limit), since, 0)
    stopping = run.column("state") == schema.STOPPING  # nothing new is said of it
    for row in (int(changed) for changed in np.flatnonzero((shown != told) & ~stopping)):
        emit(
            RunIdle(
                workload=state.workload.keys[int(run.workload[row])],
                run=int(run.run_no[row]),
                budget=state.budget_path(int(run.budget[row])),
                pool=state.pool.keys[int(run.pool[row])],
                gpus_milli=int(run.gpus_milli[row]),
                since_ms=int(shown[row]),
                limit_ms=int(limit[row]),
            )
        )


def demoted(state: State) -> NDArray[np.bool_]:
    """Return per run row whether its pool no longer lets a budget pay for it, because it does no work."""
    run = state.run
    if not run.column("idle_since_ms").any():
        return np.zeros(run.used, dtype=np.bool_)
    result: NDArray[np.bool_] = (run.column("idle_since_ms") > 0) & (state.pool.idle_demotes[run.column("pool")] == 1)
    return result

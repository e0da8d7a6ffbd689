"""What is late at this instant: silent nodes, runs that did not start, runs that did not stop, nodes that fail every start.

A pure function of state and time of the tick. Lateness is judged here only, after every record up to the tick has been folded,
so a stalled reader can never kill a live run.
"""

from __future__ import annotations

import numpy as np

from apportion.core.decisions import NodeSuspended, RunCancelled
from apportion.core.kernels import late
from apportion.core.policy.closing import close_run
from apportion.core.policy.emit import Emit
from apportion.core.reasons import NodeReason, Outcome
from apportion.core.state import schema
from apportion.core.state.holdings import gpus_of_run
from apportion.core.state.phases import runs_in
from apportion.core.state.state import State
from apportion.core.state.unsettled import unsettled_rows

STOP_MARGIN_MS = 60_000  # after SIGKILL was due, the agent's report may still be on its way
START_FAILURES_MAX = 3
_STOPPED = {
    schema.STOP_PREEMPT: Outcome.PREEMPTED,
    schema.STOP_CANCEL: Outcome.CANCELLED,
    schema.STOP_DRAIN: Outcome.DRAINED,
    schema.STOP_MOVE: Outcome.MOVED,
    schema.STOP_RETIRE: Outcome.RETIRED,
}


def expire(state: State, emit: Emit) -> None:
    """Emit what lateness asks for, nodes first, then runs, each in row order."""
    _silent_nodes(state, emit)
    _late_runs(state, emit)


def stop_cancelled(state: State, emit: Emit) -> None:
    """Ask the runs of cancelled workloads to stop."""
    run = state.run
    for workload in unsettled_rows(state):
        if not state.workload.cancel_seq[workload]:
            continue
        row = int(state.workload.run[workload])
        if row >= 0 and int(run.state[row]) in (schema.PLACED, schema.STARTED):
            emit(
                RunCancelled(
                    workload=state.workload.keys[workload],
                    run=int(run.run_no[row]),
                    event_seq=int(state.workload.cancel_seq[workload]),
                    grace_until_ms=state.counters.time_ms + int(state.workload.grace_ms[workload]),
                )
            )


def _silent_nodes(state: State, emit: Emit) -> None:
    node, now_ms = state.node, state.counters.time_ms
    timeout_ms = state.pool.heartbeat_timeout_ms
    if not late.any_silent(now_ms, node.used, node.last_seen_ms, node.pool, node.gpus, node.silent, timeout_ms):
        return
    silent = now_ms - node.column("last_seen_ms") > timeout_ms[node.column("pool")]
    silent &= (node.column("gpus") > 0) & (node.column("silent") == 0)
    for row in np.flatnonzero(silent):
        emit(
            NodeSuspended(
                node=node.keys[row],
                reason=NodeReason.HEARTBEAT_TIMEOUT.value,
                numbers={
                    "last_seen_ms": int(node.last_seen_ms[row]),
                    "timeout_ms": int(state.pool.heartbeat_timeout_ms[node.pool[row]]),
                },
            )
        )


def _late_runs(state: State, emit: Emit) -> None:
    run, now_ms = state.run, state.counters.time_ms
    for row in runs_in(state, schema.PLACED, schema.STOPPING):
        phase = int(run.state[row])
        if phase == schema.PLACED:
            limit_ms = int(state.pool.start_timeout_ms[int(run.pool[row])])
            if now_ms - int(run.placed_ms[row]) > limit_ms:
                close_run(state, emit, row, Outcome.START_FAILED)
        elif phase == schema.STOPPING and now_ms > int(run.stop_by_ms[row]) + STOP_MARGIN_MS:
            if not heard_since_stop(state, row):
                continue  # that is for the heartbeat timeout to judge
            nodes = {int(state.gpu.node[gpu]): None for gpu in gpus_of_run(state, row)}  # a dict, for its order
            stop_by_ms = int(run.stop_by_ms[row])
            close_run(state, emit, row, _STOPPED[int(run.stop_cause[row])])
            for node in nodes:
                _suspend(state, emit, node, NodeReason.STOP_TIMEOUT, {"stop_by_ms": stop_by_ms})


def heard_since_stop(state: State, run: int) -> bool:
    """Tell whether every node of a stopping run has given a sign of life after the run should have been gone."""
    stop_by_ms = int(state.run.stop_by_ms[run])
    return all(
        int(state.node.last_seen_ms[int(state.gpu.node[gpu])]) > stop_by_ms for gpu in gpus_of_run(state, run)
    )


def suspend_failing_nodes(state: State, emit: Emit) -> None:
    """Suspend nodes whose last starts all failed: they would swallow the queue."""
    memo = state.memo.at(state.moved)
    if memo.failing is None:
        memo.failing = np.flatnonzero(state.node.column("start_failures") >= START_FAILURES_MAX).tolist()
    for row in memo.failing:
        failures = int(state.node.start_failures[row])
        if state.node.gpus[row] and not state.node.suspended[row]:
            _suspend(state, emit, row, NodeReason.START_FAILURES, {"failures": failures})


def _suspend(state: State, emit: Emit, node: int, reason: NodeReason, numbers: dict[str, int]) -> None:
    if not state.node.suspended[node]:
        emit(NodeSuspended(node=state.node.keys[node], reason=reason.value, numbers=numbers))

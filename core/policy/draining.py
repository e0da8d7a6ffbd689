"""Drains: nodes that are wanted empty by an instant, and when each run there is asked to go.

A drained node takes only work that is over by its deadline (``reserving`` keeps it for nobody); at the deadline it is cordoned. Of
what runs there, a run that states to be over by then is left. Any other may be asked to go while it is unfunded and past its
protected time, and if the drain is forced at any time; who may not be asked is waited for, beyond the deadline if need be. Asked is

- at the last safe point that comes in time: one reported since the drain was ordered, after which the next, at the pace of its last
  two, would come too late. So nothing is lost, and no GPU idles because a node is wanted empty next week;
- at the latest its grace before the deadline, or, who stated to be over by then and is not, at the end he stated if that is later.

A gang that holds one GPU there goes as a whole. Whoever is asked is queued again with what is safe, and that is no failure.

A pure function of the state at a tick; what it emits is applied by the fold. Must never look at who would like to have the GPUs.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from apportion.core.decisions import NodeSuspended, RunDrained
from apportion.core.policy.emit import Emit
from apportion.core.policy.funding import Shares
from apportion.core.policy.starting import add_running
from apportion.core.reasons import NodeReason, Payer
from apportion.core.state import schema
from apportion.core.state.drained import any_drained
from apportion.core.state.state import State
from apportion.core.state.work import unsaved_us
from apportion.core.units import NEVER_MS

I64 = NDArray[np.int64]
Bits = NDArray[np.bool_]


class Asks(NamedTuple):
    """When runs are to be asked to go: one entry per GPU that a run in progress holds on a drained node."""

    run: I64
    node: I64
    ask_ms: I64  # NEVER_MS = it is waited for
    saved: Bits  # at a safe point
    forced: Bits  # while it is funded or protected


def shut_nodes(state: State, emit: Emit) -> None:
    """Emit of each drained node whose deadline has come that nothing starts there any more."""
    node = state.node
    if not any_drained(state):
        return
    for row in np.flatnonzero(_open(state) & (node.column("drain_ms") <= state.counters.time_ms)).tolist():
        numbers = {"deadline_ms": int(node.drain_ms[row]), "runs": int(node.runs[row])}
        emit(NodeSuspended(node=node.keys[row], reason=NodeReason.DRAINED.value, numbers=numbers))


def ask_to_go(state: State, emit: Emit, shares: Shares) -> None:
    """Emit the stops that drains ask for now, in row order; each of the nodes where its time has come first."""
    if not any_drained(state):
        return
    asks, now_ms = asks_of(state), state.counters.time_ms
    table, run, node = state.workload, state.run, state.node
    asked = -1
    for entry in np.lexsort((asks.node, asks.ask_ms, asks.run)).tolist():
        row, place = int(asks.run[entry]), int(asks.node[entry])
        if row == asked or int(asks.ask_ms[entry]) > now_ms:
            continue
        asked, workload = row, int(run.workload[row])
        funded = int(run.payer[row]) == schema.PAYER_BUDGET
        emit(
            RunDrained(
                workload=table.keys[workload],
                run=int(run.run_no[row]),
                node=node.keys[place],
                deadline_ms=int(node.drain_ms[place]),
                grace_until_ms=now_ms + int(table.grace_ms[workload]),
                payer=(Payer.BUDGET if funded else Payer.UNFUNDED).value,
                forced=bool(asks.forced[entry]),
                saved=bool(asks.saved[entry]),
                lost_gpu_us=unsaved_us(state, row, now_ms),
            )
        )
        add_running(state, shares, workload, -1)


def instants(state: State) -> list[int]:
    """Return the deadlines of drained nodes, and when runs there are to be asked to go; none before the next cycle can be."""
    node, next_ms = state.node, state.counters.cycle_ms + 1
    times = node.drain_ms[np.flatnonzero(_open(state))].tolist()
    ask_ms = asks_of(state).ask_ms
    times += np.maximum(ask_ms[ask_ms < NEVER_MS], next_ms).tolist()
    return [int(at_ms) for at_ms in times]


def _open(state: State) -> Bits:
    """Return per node row whether it is drained and still takes work that is over by its deadline."""
    node = state.node
    result: Bits = (node.column("drain_set_ms") > 0) & (node.column("cordoned") == 0) & (node.column("gpus") > 0)
    return result


def asks_of(state: State) -> Asks:
    """Return when each run in progress is to be asked to go, for each GPU it holds on a drained node."""
    node, run, alloc, workload, now_ms = state.node, state.run, state.alloc, state.workload, state.counters.time_ms
    if not node.column("drain_set_ms").any():
        nothing = np.zeros(0, dtype=np.int64)
        return Asks(nothing, nothing, nothing, nothing == 1, nothing == 1)
    held = np.flatnonzero(alloc.column("milli"))
    places, rows = state.gpu.node[alloc.gpu[held]], alloc.run[held]
    phases = run.state[rows]
    counted = (node.drain_set_ms[places] > 0) & ((phases == schema.PLACED) | (phases == schema.STARTED))
    places, rows = places[counted], rows[counted]
    works, deadline_ms = run.workload[rows], node.drain_ms[places]
    safe_ms, gap_ms, last_ms = run.checkpoint_ms[rows], run.checkpoint_gap_ms[rows], deadline_ms - workload.grace_ms[works]
    limit_ms = workload.expected_runtime_ms[works]
    end_ms = safe_ms + np.maximum(limit_ms - workload.progress_ms[works], 0)
    in_time = (limit_ms > 0) & (end_ms <= deadline_ms)
    latest_ms = np.where(in_time, np.maximum(last_ms, end_ms), last_ms)
    saved = ~in_time & (gap_ms > 0) & (safe_ms > node.drain_set_ms[places]) & (safe_ms + gap_ms > last_ms)
    ask_ms = np.where(saved, np.minimum(safe_ms, latest_ms), latest_ms)
    funded, protected_ms = run.payer[rows] == schema.PAYER_BUDGET, run.protected_until_ms[rows]
    force = node.drain_force[places] == 1
    unforced_ms = np.where(funded, NEVER_MS, np.maximum(ask_ms, protected_ms))
    forced = force & (funded | (protected_ms > now_ms))
    return Asks(rows, places, np.where(force, ask_ms, unforced_ms), saved & (now_ms < latest_ms), forced)

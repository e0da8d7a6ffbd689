"""Fold of waiting: into the queue and out of it, with the demand that this is of its budget.

Called by whatever makes a workload wait or ends that. Must never decide whether it should.
"""

from __future__ import annotations

from apportion.core import ledger
from apportion.core.state import schema
from apportion.core.state.queue import insert_queued, remove_queued
from apportion.core.state.state import State


def enqueue(state: State, row: int) -> None:
    """Make a workload pending and count its demand (idle-cycle work is nobody's demand)."""
    state.workload.cells.state[row] = schema.PENDING
    insert_queued(state, row)
    _count_demand(state, row, 1)


def dequeue(state: State, row: int) -> None:
    """Take a workload out of the queue; its demand is running or gone."""
    remove_queued(state, row)
    _count_demand(state, row, -1)


def _count_demand(state: State, row: int, sign: int) -> None:
    cells = state.workload.cells
    if cells.min_runtime_ms[row]:
        ledger.accrue(state, state.counters.time_ms)
        ledger.add_demand(state, cells.budget[row], sign * cells.gpus_milli[row])

"""Fold of waiting: into the queue and out of it, with the demand that this is of its budget; one, or many at once.

Called by whatever makes a workload wait or ends that. Must never decide whether it should.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from apportion.core import ledger
from apportion.core.kernels import placed
from apportion.core.state import schema
from apportion.core.state.queue import insert_all_queued, insert_queued, remove_all_queued, remove_queued
from apportion.core.state.state import State

I64 = NDArray[np.int64]


def enqueue(state: State, row: int) -> None:
    """Make a workload pending and count its demand (idle-cycle work is nobody's demand)."""
    state.workload.cells.state[row] = schema.PENDING
    insert_queued(state, row)
    _count_demand(state, row, 1)


def enqueue_all(state: State, rows: I64) -> None:
    """Make many workloads pending."""
    table = state.workload
    table.state[rows] = schema.PENDING
    insert_all_queued(state, rows)
    counted = rows[table.min_runtime_ms[rows] > 0]
    if len(counted):
        ledger.accrue(state, state.counters.time_ms)
        ledger.add_demands(state, table.budget[counted], table.gpus_milli[counted])


def dequeue(state: State, row: int) -> None:
    """Take a workload out of the queue; its demand is running or gone."""
    remove_queued(state, row)
    _count_demand(state, row, -1)


def dequeue_all(state: State, rows: I64) -> None:
    """Take many workloads out of the queue; the caller has accrued."""
    remove_all_queued(state, rows)
    table, demand_milli = state.workload, np.zeros(state.budget.used, dtype=np.int64)
    placed.leave(rows, table.budget, table.min_runtime_ms, table.gpus_milli, demand_milli)
    if demand_milli.any():
        ledger.add_demand_of_lines(state, -demand_milli)


def _count_demand(state: State, row: int, sign: int) -> None:
    cells = state.workload.cells
    if cells.min_runtime_ms[row]:
        ledger.accrue(state, state.counters.time_ms)
        ledger.add_demand(state, cells.budget[row], sign * cells.gpus_milli[row])

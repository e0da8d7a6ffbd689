"""The pending queue of a state: an index over the workload table, kept sorted as workloads come and go.

Derived: it is not in the digest, and a restored snapshot rebuilds it to the same order, because the order is total.
"""

from __future__ import annotations

import numpy as np

from apportion.core.kernels import queue as queue_kernels
from apportion.core.state import schema
from apportion.core.state.state import State


def rebuild_queue(state: State) -> None:
    """Make the sorted queue from the workload table: the same order that incremental insertion gives."""
    state.queued = 0
    table = state.workload
    for row in table.live_rows():
        if int(table.state[row]) in (schema.PENDING, schema.HELD):
            insert_queued(state, row)


def insert_queued(state: State, row: int) -> None:
    """Put a workload row into the queue at its place."""
    if state.queued == len(state.queue):
        state.queue = np.concatenate((state.queue, np.zeros_like(state.queue)))
    table = state.workload
    queue_kernels.insert(state.queue, state.queued, row, table.budget, table.priority, table.event_seq)
    state.queued += 1


def remove_queued(state: State, row: int) -> None:
    """Take a workload row out of the queue."""
    table = state.workload
    found = queue_kernels.remove(state.queue, state.queued, row, table.budget, table.priority, table.event_seq)
    if not found:
        raise KeyError(f"workload row {row} is not queued")
    state.queued -= 1

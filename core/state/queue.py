"""The pending queue of a state: an index over the workload table, kept sorted as workloads come and go.

Beside it stand the *waits*: what kernels ask of everybody in the queue and what does not change while he is in it, one row of a
cache line per workload (shape, wish, least run time, time left, back-off). Walking a hundred thousand who wait over the columns of
the table costs a cache miss for each of these, here one for all. And two things that would else be found by a walk over all of it:
how many of each budget wait, and who was never told why he waits or was told that he would be funded (``State.untold``).

Derived: it is not in the digest, and a restored snapshot rebuilds it to the same order, because the order is total.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from apportion.core.kernels import asked
from apportion.core.kernels import queue as queue_kernels
from apportion.core.state import schema
from apportion.core.state.state import WAITS, State
from apportion.core.units import MILLI, NEVER_MS


def rebuild_queue(state: State) -> None:
    """Make the sorted queue from the workload table: the same order that incremental insertion gives."""
    state.queued = 0
    state.waiting[:] = 0
    state.in_queue[:] = 0
    state.untold.clear()
    phases = state.workload.column("state")
    insert_all_queued(state, np.flatnonzero((phases == schema.PENDING) | (phases == schema.HELD)))


def find_untold_later(state: State) -> None:
    """Find in the queue, when somebody asks, who was never told why he waits, or was told that he would be funded."""
    state.untold.find_later(lambda: _untold_of(state, state.queue[: state.queued]))


def _untold_of(state: State, rows: NDArray[np.int64]) -> list[int]:
    table = state.workload
    found: list[int] = rows[(table.reason[rows] == 0) | (table.funded_ms[rows] > 0)].tolist()
    return found


def insert_queued(state: State, row: int) -> None:
    """Put a workload row into the queue at its place."""
    make_room(state, 1)
    _note_wait(state, row)
    table = state.workload
    ask = asked.ask_of(state.waits, row)
    queue_kernels.insert(state.queue, state.asks, state.queued, row, ask, table.budget, table.priority, table.event_seq)
    state.queued += 1
    state.in_queue[row] = queue_kernels.WAITING
    state.waiting[table.cells.budget[row]] += 1
    note_told(state, row)


def insert_all_queued(state: State, rows: NDArray[np.int64]) -> None:
    """Put many workload rows into the queue."""
    make_room(state, len(rows))
    _note_waits(state, rows)
    _merge(state, rows)
    state.in_queue[rows] = queue_kernels.WAITING
    np.add.at(state.waiting, state.workload.budget[rows], 1)
    state.untold.add_all(_untold_of(state, rows))


def follow_marks(state: State) -> None:
    """Take over who came and who left, as they are marked by who folded a long stretch, has counted them and noted their waits."""
    moved = np.flatnonzero((state.in_queue & queue_kernels.MOVED).view(np.bool_))
    if not len(moved):
        return
    _take_back(state)
    state.queued = queue_kernels.drop_moved(state.queue, state.asks, state.queued, state.in_queue)
    state.in_queue[moved] &= queue_kernels.WAITING
    came = moved[state.in_queue[moved] > 0]
    make_room(state, len(came))
    _merge(state, came)


def _merge(state: State, rows: NDArray[np.int64]) -> None:
    table = state.workload
    made = rows[np.lexsort((rows, table.event_seq[rows], -table.priority[rows], table.budget[rows]))]
    asks = np.empty_like(made)
    asked.fill_asks(state.waits, made, asks)
    queue_kernels.merge(state.queue, state.asks, state.queued, made, asks, table.budget, table.priority, table.event_seq)
    state.queued += len(rows)


def empty_waits(rows: int) -> NDArray[np.int64]:
    """Return the waits of nobody, where each row is one cache line; NumPy may begin an array in the middle of one."""
    cells = np.zeros(WAITS * (rows + 1), dtype=np.int64)
    first = -cells.__array_interface__["data"][0] // cells.itemsize % WAITS
    return cells[first : first + WAITS * rows].reshape(rows, WAITS)


def make_room(state: State, count: int) -> None:
    """Make what is beside the tables as large as they are, the queue so that as many more fit, and both nobody else's."""
    table = state.workload
    _take_back(state)
    while state.queued + count > len(state.queue):
        state.queue = np.concatenate((state.queue, np.zeros_like(state.queue)))
        state.asks = np.concatenate((state.asks, np.zeros_like(state.asks)))
    if table.capacity > len(state.waits):
        waits = empty_waits(table.capacity)
        waits[: len(state.waits)] = state.waits
        state.waits = waits
        state.in_queue = np.concatenate((state.in_queue, np.zeros(table.capacity - len(state.in_queue), dtype=np.uint8)))
    lines = state.budget.capacity
    if lines > len(state.waiting):
        state.waiting = np.concatenate((state.waiting, np.zeros(lines - len(state.waiting), dtype=np.int64)))


def _note_wait(state: State, row: int) -> None:
    cells = state.workload.cells
    expected_ms, each, wish = cells.expected_runtime_ms[row], cells.milli_per_node[row], cells.wish[row]
    left_ms = max(0, expected_ms - cells.progress_ms[row]) if expected_ms > 0 else NEVER_MS
    state.waits[row] = (
        cells.budget[row], cells.nodes[row], each, -1 if wish else each // MILLI, wish, cells.min_runtime_ms[row], left_ms,
        cells.not_before_ms[row],
    )  # fmt: skip


def _note_waits(state: State, rows: NDArray[np.int64]) -> None:
    table = state.workload
    expected_ms, each, wish = table.expected_runtime_ms[rows], table.milli_per_node[rows], table.wish[rows]
    left_ms = np.where(expected_ms > 0, np.maximum(0, expected_ms - table.progress_ms[rows]), NEVER_MS)
    state.waits[rows] = np.stack(
        (
            table.budget[rows], table.nodes[rows], each, np.where(wish > 0, -1, each // MILLI), wish, table.min_runtime_ms[rows],
            left_ms, table.not_before_ms[rows],
        ),
        axis=1,
    )  # fmt: skip


def remove_queued(state: State, row: int) -> None:
    """Take a workload row out of the queue."""
    _take_back(state)
    table = state.workload
    found = queue_kernels.remove(state.queue, state.asks, state.queued, row, table.budget, table.priority, table.event_seq)
    if not found:
        raise KeyError(f"workload row {row} is not queued")
    state.queued -= 1
    state.in_queue[row] = 0
    state.waiting[table.cells.budget[row]] -= 1
    state.untold.discard(row)


def remove_all_queued(state: State, rows: NDArray[np.int64]) -> None:
    """Take many workload rows out of the queue."""
    _take_back(state)
    table = state.workload
    state.queued, missing = queue_kernels.remove_all(
        state.queue, state.asks, state.queued, rows, table.budget, table.priority, table.event_seq
    )
    if missing >= 0:
        raise KeyError(f"workload row {missing} is not queued")
    state.in_queue[rows] = 0
    np.subtract.at(state.waiting, table.budget[rows], 1)
    state.untold.discard_all(rows.tolist())


def note_told(state: State, row: int) -> None:
    """Somebody who is queued was told why he waits, or has just come."""
    cells = state.workload.cells
    if cells.reason[row] == 0 or cells.funded_ms[row] > 0:
        state.untold.add(row)
    else:
        state.untold.discard(row)


def lent_queue(state: State) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the queue and what each asks as they are now, for whoever walks them while workloads come and go.

    They stay as they are: the first change after this makes a copy and goes on with that.
    """
    state.lent = True
    return state.queue[: state.queued], state.asks[: state.queued]


def end_loan(state: State) -> None:
    """Nobody walks them any more."""
    state.lent = False


def _take_back(state: State) -> None:
    """What is changed now must be nobody else's."""
    if state.lent:
        state.queue, state.asks, state.lent = state.queue.copy(), state.asks.copy(), False


def parts_of(state: State, first: NDArray[np.int64], last: NDArray[np.int64]) -> None:
    """Fill in, per budget row, its part of the queue: half-open, 0 and 0 where nobody waits."""
    queue_kernels.parts(state.waiting, first, last)

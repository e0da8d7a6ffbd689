"""The queue of a state: who moves marked, and is taken over at the end, stands where he would if he had come or gone at once."""

from __future__ import annotations

import random

import numpy as np
import pytest

from apportion.core.kernels.queue import MOVED, WAITING
from apportion.core.state import schema
from apportion.core.state.copying import copy_of
from apportion.core.state.queue import (
    find_untold_later,
    follow_marks,
    insert_queued,
    lent_queue,
    rebuild_queue,
    remove_queued,
)
from apportion.core.state.state import State


def filled(rows: int, dice: random.Random) -> State:
    """Return a state of some workloads, of which some wait."""
    state = State()
    for row in range(rows):
        state.workload.add(f"w{row}")
        write(state, row, dice)
        if dice.random() < 0.5:
            insert(state, row)
    return state


def write(state: State, row: int, dice: random.Random) -> None:
    """Make somebody new of a row that does not wait."""
    values = {"budget": (0, 3), "priority": (-1, 1), "event_seq": (1, 9), "reason": (0, 1), "milli_per_node": (1, 8)}
    state.workload.put(row, {name: dice.randint(*bounds) for name, bounds in values.items()})


def insert(state: State, row: int) -> None:
    """Let a workload wait."""
    state.workload.cells.state[row] = schema.PENDING
    insert_queued(state, row)


def seen(state: State) -> tuple[list[int], list[int], list[int], list[int], list[int], int]:
    """Return all that is kept of who waits."""
    queue, asks, behind = state.queue[: state.queued].tolist(), state.asks[: state.queued].tolist(), state.queue[state.queued :]
    return queue, asks, state.waiting[:4].tolist(), state.in_queue.tolist(), sorted(state.untold), int(behind.any())


@pytest.mark.parametrize("rows", [0, 1, 2, 5, 12, 24, 64, 70])
@pytest.mark.parametrize("seed", range(3))
def test_who_moved_marked_stands_where_he_would(rows: int, seed: int) -> None:
    dice = random.Random(seed)
    reached = filled(rows, dice)
    expected = copy_of(reached)
    lent = lent_queue(reached)[0] if dice.random() < 0.5 else None
    as_lent = [] if lent is None else lent.tolist()
    for row in dice.choices(range(rows), k=2 * rows) if rows else ():
        table = reached.workload
        if reached.in_queue[row] & WAITING:
            reached.in_queue[row] = MOVED
            reached.waiting[table.budget[row]] -= 1
            remove_queued(expected, row)
            expected.workload.block[:, row] = table.block[:, row] = 0
            write(expected, row, dice)  # somebody else, whose place is elsewhere
            table.block[:, row] = expected.workload.block[:, row]
        else:
            insert(expected, row)
            reached.in_queue[row], table.cells.state[row] = WAITING | MOVED, schema.PENDING
            reached.waits[row] = expected.waits[row]
            reached.waiting[table.budget[row]] += 1
    find_untold_later(reached)

    follow_marks(reached)

    assert seen(reached) == seen(expected)
    assert lent is None or lent.tolist() == as_lent
    rebuild_queue(expected)
    assert seen(reached) == seen(expected)


def test_more_may_come_marked_than_there_was_room_for() -> None:
    state = State()
    for row in range(200):
        state.workload.add(f"w{row}")
        state.workload.put(row, {"state": schema.PENDING, "event_seq": row})
    state.in_queue = np.full(state.workload.capacity, 0, dtype=np.uint8)
    state.in_queue[:200] = WAITING | MOVED

    follow_marks(state)

    assert state.queue[: state.queued].tolist() == list(range(200))

"""What a workload is in a pool: its budget line there, its shape, its protected time. It may accept several pools.

A workload that named several pools has a row of ``ChoiceTable`` for each, in order of its wish. The first that could ever take it
is its *home*: there it waits, and to there it returns. Its own columns are those of the pool in which it waits or runs.

Pure functions of the state, used by fold and policy alike; they never change it.
"""

from __future__ import annotations

from typing import NamedTuple

from apportion.core.state.state import State


class Ask(NamedTuple):
    """The columns of ``WorkloadTable`` that depend on the pool."""

    pool: int
    budget: int
    nodes: int
    milli_per_node: int
    gpus_milli: int
    wish: int  # as the column of a workload holds it
    min_runtime_ms: int


def ask_of(state: State, workload: int) -> Ask:
    """Return what it is in the pool where it waits or runs."""
    cells = state.workload.cells
    return Ask(
        cells.pool[workload], cells.budget[workload], cells.nodes[workload], cells.milli_per_node[workload],
        cells.gpus_milli[workload], cells.wish[workload], cells.min_runtime_ms[workload],
    )  # fmt: skip


def ask_at(state: State, choice: int) -> Ask:
    """Return what a workload would be in one of the pools that it accepts."""
    cells = state.choice.cells
    return Ask(*(getattr(cells, name)[choice] for name in Ask._fields))


def choice_key(workload: str, pool: str) -> str:
    """Return the key of a choice."""
    return f"{workload} {pool}"


def choices_of(state: State, workload: int) -> list[int]:
    """Return the pools that it named, as rows in order of its wish; none when it named one."""
    rows, following = list[int](), state.choice.cells.next
    row = state.workload.cells.choices[workload] - 1
    while row >= 0:
        rows.append(row)
        row = following[row] - 1
    return rows


def home_of(state: State, workload: int) -> int:
    """Return the row of the pool in which it waits, -1 when it named one only."""
    return next((row for row in choices_of(state, workload) if not state.choice.cells.refusal[row]), -1)


def way_home(state: State, workload: int) -> str:
    """Return the name of its home, "" when it is there."""
    home = home_of(state, workload)
    if home < 0 or state.choice.cells.pool[home] == state.workload.cells.pool[workload]:
        return ""
    return state.pool.keys[state.choice.cells.pool[home]]

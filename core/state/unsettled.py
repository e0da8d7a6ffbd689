"""Workloads of which the next cycle must say something beside why they wait: new ones, those that are over, cancelled, or retired.

Derived: it is not in the digest, and a restored snapshot rebuilds it. Kept so that a cycle need not look at a hundred thousand
rows for the few that changed. Written by whatever changes one of these columns, and by nobody else.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from apportion.core.state import schema
from apportion.core.state.state import State


def note_unsettled(state: State, row: int) -> None:
    """It is new, over, cancelled or retired from now on."""
    state.unsettled.add(row)


def settle(state: State, row: int) -> None:
    """It left the table, or is admitted and nothing else is to be said of it."""
    table = state.workload.cells
    if table.state[row] in (0, schema.PENDING) and not table.cancel_seq[row] and not table.retired[row]:
        state.unsettled.discard(row)


def settle_all(state: State, rows: NDArray[np.int64]) -> None:
    """The same of many, each of which is admitted."""
    table = state.workload
    state.unsettled.discard_all(rows[(table.cancel_seq[rows] == 0) & (table.retired[rows] == 0)].tolist())


def unsettled_rows(state: State) -> list[int]:
    """Return them, ascending."""
    return sorted(state.unsettled)


def find_unsettled_later(state: State) -> None:
    """Find them in the workload table when somebody asks: it was changed by whoever did not list them."""
    state.unsettled.find_later(lambda: _found(state))


def _found(state: State) -> list[int]:
    table = state.workload
    phases = table.column("state")
    told = (phases == schema.NEW) | (phases == schema.OVER) | (table.column("cancel_seq") > 0) | (table.column("retired") > 0)
    found: list[int] = np.flatnonzero(told).tolist()
    return found

"""Fold of why workloads wait: what each was told last, so that it is told again only when that changes.

``told`` is one; ``told_all`` is many, each told once, and comes to the same over columns.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from apportion.core.decisions import PendingExplained
from apportion.core.fold import choices
from apportion.core.reasons import Pending
from apportion.core.state.codes import PENDING_CODE
from apportion.core.state.queue import note_told
from apportion.core.state.state import State

_PROTECTED_RUNS = Pending.PROTECTED_RUNS.value


def told(state: State, decision: PendingExplained, row: int) -> None:
    """Fold one; ``row`` is its workload."""
    cells, numbers = state.workload.cells, decision.numbers
    cells.reason[row] = PENDING_CODE[decision.reason]
    cells.funded_ms[row] = numbers.get("funded_since_ms", 0)
    cells.told_ms[row], cells.late_ms[row] = _instants(decision)
    cells.planned_ms[row] = numbers.get("planned_ms", 0)
    note_told(state, row)
    if decision.elsewhere:
        choices.note_told(state, decision)


def told_all(state: State, decisions: Sequence[PendingExplained], rows: list[int]) -> None:
    """Fold many, each of another workload."""
    table, at = state.workload, np.array(rows, dtype=np.int64)
    numbers = [decision.numbers for decision in decisions]
    table.reason[at] = [PENDING_CODE[decision.reason] for decision in decisions]
    table.funded_ms[at] = [one.get("funded_since_ms", 0) for one in numbers]
    table.planned_ms[at] = [one.get("planned_ms", 0) for one in numbers]
    table.told_ms[at] = table.late_ms[at] = 0
    cells, funded_ms = table.cells, table.funded_ms[at]
    state.untold.add_all(at[funded_ms > 0].tolist())
    state.untold.discard_all(at[funded_ms <= 0].tolist())
    for row, decision in zip(rows, decisions, strict=True):
        if decision.reason == _PROTECTED_RUNS:
            cells.told_ms[row], cells.late_ms[row] = _instants(decision)
        if decision.elsewhere:
            choices.note_told(state, decision)


def _instants(decision: PendingExplained) -> tuple[int, int]:
    """Return when its reservation said that it starts, and how much later than that it is; 0 and 0 when it has none."""
    if decision.reason != _PROTECTED_RUNS:
        return 0, 0
    late_ms = decision.numbers.get("late_ms", 0)
    return decision.numbers["earliest_ms"] - late_ms, late_ms

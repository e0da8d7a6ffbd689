"""Fold of why workloads wait: what each was told last, so that it is told again only when that changes.

``told`` is one; ``told_all`` is many, each told once, and comes to the same over columns; ``apply_told`` is given these.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from apportion.core.decisions import PendingExplained
from apportion.core.fold import choices
from apportion.core.reasons import Pending
from apportion.core.state.bulk import Told
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
    numbers, instants = [decision.numbers for decision in decisions], [_instants(decision) for decision in decisions]
    told = (
        rows, [PENDING_CODE[decision.reason] for decision in decisions], [one.get("funded_since_ms", 0) for one in numbers],
        [one.get("planned_ms", 0) for one in numbers], [at_ms for at_ms, _late_ms in instants],
        [late_ms for _at_ms, late_ms in instants],
    )  # fmt: skip
    apply_told(state, Told(*(np.array(column, dtype=np.int64) for column in told)))
    for decision in decisions:
        if decision.elsewhere:
            choices.note_told(state, decision)


def apply_told(state: State, told: Told) -> None:
    """Fold many of which none is told of other pools."""
    table, rows = state.workload, told.workload
    for column, values in (
        (table.reason, told.reason), (table.funded_ms, told.funded_ms), (table.planned_ms, told.planned_ms),
        (table.told_ms, told.told_ms), (table.late_ms, told.late_ms),
    ):  # fmt: skip
        column[rows] = values
    state.untold.add_all(rows[told.funded_ms > 0].tolist())
    state.untold.discard_all(rows[told.funded_ms <= 0].tolist())


def _instants(decision: PendingExplained) -> tuple[int, int]:
    """Return when its reservation said that it starts, and how much later than that it is; 0 and 0 when it has none."""
    if decision.reason != _PROTECTED_RUNS:
        return 0, 0
    late_ms = decision.numbers.get("late_ms", 0)
    return decision.numbers["earliest_ms"] - late_ms, late_ms

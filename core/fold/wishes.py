"""Fold of wishes: each different one is a row as long as a workload has it, and each group as long as a wish names it.

What a wish means for nodes is not decided here (``state.wishes``).
"""

from __future__ import annotations

from apportion.core.state.state import State
from apportion.core.state.wishes import COLUMNS, NO_WISH, Wish


def take_wish(state: State, wish: Wish) -> int:
    """Count a workload that has the wish; returns what its column holds."""
    if wish == NO_WISH:
        return 0
    table, groups = state.wish, state.group
    row = table.row_of.get(wish.key)
    if row is None:
        row = table.add(wish.key)
        table.put(row, {name: getattr(wish, name) for name in COLUMNS})
        if wish.group:
            group = groups.row_of.get(wish.group, -1)
            group = groups.add(wish.group) if group < 0 else group
            groups.wishes[group] += 1
            table.group[row] = group + 1
    table.workloads[row] += 1
    return row + 1


def drop_wish(state: State, number: int) -> None:
    """Forget a workload's wish, by what its column holds; nobody else's, and its row is free."""
    if not number:
        return
    row, table, groups = number - 1, state.wish.cells, state.group
    table.workloads[row] -= 1
    if not table.workloads[row]:
        group = table.group[row] - 1
        if group >= 0:
            groups.wishes[group] -= 1
            if not groups.wishes[group]:
                groups.remove(group)
        state.wish.remove(row)

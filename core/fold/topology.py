"""Fold of where nodes are: the levels of a pool, and the domains a node is in.

A domain is named by its path from the widest level down, so that two racks of one name on two spines are two. It exists as long as
a node is in it.
"""

from __future__ import annotations

import numpy as np

from apportion.core.events import NodeJoined
from apportion.core.fold.access import No
from apportion.core.reasons import Refusal
from apportion.core.state.state import State
from apportion.core.state.topology import NODE_LEVEL, level_key
from apportion.core.units import MAX_LEVELS

DEFAULT_LEVELS = ("rack",)


def check_levels(levels: tuple[str, ...]) -> No | None:
    """Return why these cannot be the levels of a pool."""
    if len(set(levels)) < len(levels) or NODE_LEVEL in levels:
        return No(Refusal.INVALID_DATA, "levels", f"each level has a name of its own, and none is called {NODE_LEVEL}")
    return None


def define_levels(state: State, pool: int, levels: tuple[str, ...]) -> None:
    """Give a new pool its levels, widest first."""
    levels = levels or DEFAULT_LEVELS
    state.pool.levels[pool] = len(levels)
    for position, level in enumerate(levels):
        row = state.level.add(level_key(state.pool.keys[pool], level))
        state.level.height[row] = len(levels) - position


def domain_keys(state: State, pool: int, event: NodeJoined) -> list[str] | No:
    """Return the key of the node's domain at height 1, 2, 3 ("" = in none); [] when the event does not tell."""
    count = int(state.pool.levels[pool])
    if not event.domains and not event.rack:
        return []
    if event.domains and len(event.domains) != count:
        return No(Refusal.INVALID_DATA, "domains", "one per level of the pool, widest first", {"levels": count})
    path = event.domains or ("",) * (count - 1) + (event.rack,)
    keys = [f"{event.pool}/{count - at}/{'/'.join(path[: at + 1])}" if path[at] else "" for at in range(count)]
    return keys[::-1] + [""] * (MAX_LEVELS - count)


def place_taken(state: State, pool: int, event: NodeJoined) -> No | None:
    """Return that the node's place is another's."""
    if event.place is None:
        return None
    node = state.node
    there = (node.column("place") == event.place + 1) & (node.column("pool") == pool) & (node.column("gpus") > 0)
    for row in np.flatnonzero(there).tolist():
        if node.keys[row] != event.node:
            return No(Refusal.DUPLICATE, "place", f"{node.keys[row]} is there", {"place": event.place}, event.node)
    return None


def enter_domains(state: State, node: int, keys: list[str]) -> bool:
    """Put a node into the domains of these keys, out of those it was in; returns whether anything changed. [] changes nothing."""
    table, changed = state.domain, False
    for height, key in enumerate(keys, 1):
        column = state.node.column(f"domain_{height}")
        before = int(column[node])
        if (table.keys[before - 1] if before else "") == key:
            continue
        changed = True
        if before:
            table.nodes[before - 1] -= 1
            if not table.nodes[before - 1]:
                table.remove(before - 1)
        if key:
            row = table.row_of.get(key)
            row = table.add(key) if row is None else row
            table.nodes[row] += 1
            column[node] = row + 1
        else:
            column[node] = 0
    return changed


def leave_domains(state: State, node: int) -> None:
    """Take a node that left out of its domains."""
    enter_domains(state, node, [""] * MAX_LEVELS)

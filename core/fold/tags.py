"""Fold of what a node is: its labels, the memory of its GPUs, its CPU and memory, its place in the order of the topology.

A label is ``key=value``; each different one is a row as long as a node bears it.
"""

from __future__ import annotations

import numpy as np

from apportion.core.events import NodeJoined
from apportion.core.state.state import State

AMOUNTS = ("gpu_memory_mib", "cpu_milli", "memory_mib")


def describe_node(state: State, node: int, event: NodeJoined, *, fresh: bool) -> bool:
    """Take over what the event tells of a node; returns whether anything changed. ``fresh``: what it does not tell is none."""
    changed = False
    for name in AMOUNTS:
        column, told = getattr(state.node, name), getattr(event, name)
        if (told or fresh) and int(column[node]) != told:
            column[node] = told
            changed = True
    place = 0 if event.place is None else event.place + 1
    if (place or fresh) and int(state.node.place[node]) != place:
        state.node.place[node] = place
        changed = True
    if event.labels is None and not fresh:
        return changed
    return _label(state, node, [f"{key}={value}" for key, value in sorted((event.labels or {}).items())]) or changed


def forget_node(state: State, node: int) -> None:
    """A node that left is nothing any more."""
    _label(state, node, [])


def _label(state: State, node: int, labels: list[str]) -> bool:
    tag, table = state.tag, state.label
    mine = np.flatnonzero((tag.column("node") == node) & (tag.column("label") > 0)).tolist()
    if [table.keys[int(tag.label[row]) - 1] for row in mine] == labels:
        return False
    for row in mine:
        label = int(tag.label[row]) - 1
        tag.remove(row)
        table.nodes[label] -= 1
        if not table.nodes[label]:
            table.remove(label)
    for text in labels:
        label = table.row_of.get(text, -1)
        label = table.add(text) if label < 0 else label
        table.nodes[label] += 1
        row = tag.add()
        tag.node[row], tag.label[row] = node, label + 1
    return True

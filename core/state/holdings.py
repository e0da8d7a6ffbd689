"""Who holds which GPU: questions about the allocation table, answered in a fixed order.

Pure functions of the state, used by fold and policy alike; they never change it.
"""

from __future__ import annotations

import numpy as np

from apportion.core.decisions import Piece
from apportion.core.state.state import State


def gpus_of_run(state: State, run: int) -> list[int]:
    """Return the GPU rows of a run in the order of its pieces."""
    rows, gpu, following = [], state.alloc.cells.gpu, state.alloc.cells.next
    alloc = state.run.cells.first_alloc[run]
    while alloc >= 0:
        rows.append(gpu[alloc])
        alloc = following[alloc]
    return rows


def holds_on_node(state: State, run: int, node: int) -> bool:
    """Tell whether the run holds a GPU of the node."""
    gpu, following, node_of = state.alloc.cells.gpu, state.alloc.cells.next, state.gpu.cells.node
    alloc = state.run.cells.first_alloc[run]
    while alloc >= 0 and node_of[gpu[alloc]] != node:
        alloc = following[alloc]
    return alloc >= 0


def runs_on_node(state: State, node: int) -> list[int]:
    """Return the rows of runs that hold a GPU of the node, ascending."""
    alloc = state.alloc
    here = (state.gpu.node[alloc.column("gpu")] == node) & (alloc.column("milli") > 0)
    return sorted(dict.fromkeys(alloc.column("run")[here].tolist()))


def pieces_of(state: State, gpus: list[int], milli_each: int) -> tuple[Piece, ...]:
    """Return GPU rows as pieces per node, in the order given."""
    pieces: list[Piece] = []
    node, positions, node_of, position = -1, list[int](), state.gpu.cells.node, state.gpu.cells.position
    for gpu in gpus:
        if node_of[gpu] != node:
            if positions:
                pieces.append(Piece(state.node.keys[node], tuple(positions), milli_each))
            node, positions = node_of[gpu], []
        positions.append(position[gpu])
    if positions:
        pieces.append(Piece(state.node.keys[node], tuple(positions), milli_each))
    return tuple(pieces)


def gpu_rows(state: State, pieces: tuple[Piece, ...]) -> list[int]:
    """Return the GPU rows that pieces name, in their order."""
    rows: list[int] = []
    for piece in pieces:
        first = state.node.cells.first_gpu[state.node.row_of[piece.node]]
        rows.extend(first + position for position in piece.gpus)
    return rows


def held_gpus(state: State, workload: int) -> list[int]:
    """Return the GPU rows held for a workload, ascending."""
    return [int(row) for row in np.flatnonzero(state.gpu.column("held_by") == workload + 1)]

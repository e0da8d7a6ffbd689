"""What a workload asks of nodes beside their GPUs, and what that means for each node, as ``kernels.pack`` takes it.

A wish is part of the shape: two workloads with equal nodes, milli-GPU per node and wish fit or do not fit together. It is resolved
at the door (names of levels into heights), so what is stored is integers.

Pure functions of the state, used at the door and by every cycle; they never change it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from apportion.core.state.state import State
from apportion.core.state.topology import domains_at

I64 = NDArray[np.int64]

NO_ARRAY: I64 = np.zeros(0, dtype=np.int64)


class Wish(NamedTuple):
    """The columns of ``WishTable``; all zero asks for nothing but GPUs."""

    within: int = 0
    near: int = 0
    loose: int = 0

    @property
    def key(self) -> str:
        """Return the text that names the wish: of fields that are not 0."""
        return " ".join(f"{name}={value}" for name, value in self._asdict().items() if value)


NO_WISH = Wish()


def wish_of(state: State, workload: int) -> Wish:
    """Return what a workload asks for."""
    number = state.workload.cells.wish[workload]
    if not number:
        return NO_WISH
    cells = state.wish.cells
    return Wish(*(getattr(cells, name)[number - 1] for name in Wish._fields))


class Places(NamedTuple):
    """A wish as arrays over node rows; one without entries asks for nothing."""

    room: I64  # how many parts the node may serve by all but its GPUs
    within: I64  # domain of the level of which all nodes must be in one
    near: I64  # domain of the level of which nodes should be in as few as can be


ANYWHERE = Places(NO_ARRAY, NO_ARRAY, NO_ARRAY)


def places_of(state: State, wish: Wish, nodes: int) -> Places:
    """Return what the wish of a shape of ``nodes`` parts means for each node."""
    if wish == NO_WISH:
        return ANYWHERE
    one = nodes == 1  # a single part is in one domain of every level
    within = NO_ARRAY if one or not wish.within else domains_at(state, wish.within - 1)
    narrower = wish.near and not (wish.within and wish.within <= wish.near)  # otherwise one domain it is, or any will do
    near = domains_at(state, wish.near - 1) if narrower and not one else NO_ARRAY
    return Places(NO_ARRAY, within, near)

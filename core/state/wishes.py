"""What a workload asks of nodes beside their GPUs, and what that means for each node, as ``kernels.pack`` takes it.

A wish is part of the shape: two workloads with equal nodes, milli-GPU per node and wish fit or do not fit together. It is resolved
at the door (names of levels into heights). Amounts are per part of the shape: per node, or per GPU of a loose one.

Pure functions of the state, used at the door and by every cycle; they never change it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from apportion.core.state.space import Space
from apportion.core.state.state import State
from apportion.core.state.topology import domains_at
from apportion.core.units import MAX_NODE_GPUS

I64 = NDArray[np.int64]

NO_ARRAY: I64 = np.zeros(0, dtype=np.int64)


class Wish(NamedTuple):
    """The columns of ``WishTable``, and labels; all empty asks for nothing but GPUs."""

    within: int = 0
    near: int = 0
    loose: int = 0
    gpu_memory_mib: int = 0
    cpu_milli: int = 0
    memory_mib: int = 0
    exclusive: int = 0
    aligned: int = 0
    apart_level: int = 0
    labels: tuple[str, ...] = ()  # ``key=value``, sorted
    group: str = ""  # ``budget path:group``

    @property
    def key(self) -> str:
        """Return the text that names the wish: what is not 0, its labels, and its group after an @."""
        told = [f"{name}:{getattr(self, name)}" for name in COLUMNS if getattr(self, name)]
        return " ".join([*told, *self.labels, *([f"@{self.group}"] if self.group else [])])

    @property
    def contested(self) -> bool:
        """Tell whether it asks for something beside GPUs that runs take from each other."""
        return bool(self.gpu_memory_mib or self.cpu_milli or self.memory_mib or self.group)

    @property
    def plain(self) -> bool:
        """Tell whether it asks nothing of a node by itself, beside GPUs."""
        return not (self.contested or self.labels or self.exclusive)


COLUMNS = Wish._fields[:-2]
NO_WISH = Wish()


def wish_of(state: State, workload: int) -> Wish:
    """Return what a workload asks for."""
    return wish_at(state, state.workload.cells.wish[workload])


def wish_at(state: State, number: int) -> Wish:
    """Return the wish that a workload's column tells by its number."""
    if not number:
        return NO_WISH
    cells = state.wish.cells
    words = state.wish.keys[number - 1].split(" ")
    labels = tuple(word for word in words if "=" in word)
    group = words[-1][1:] if words[-1].startswith("@") else ""
    return Wish(labels=labels, group=group, **{name: getattr(cells, name)[number - 1] for name in COLUMNS})


class Places(NamedTuple):
    """A wish as arrays over node rows; one without entries asks for nothing."""

    room: I64  # how many parts the node may serve by all but its GPUs
    within: I64  # domain of the level of which all nodes must be in one
    near: I64  # domain of the level of which nodes should be in as few as can be
    place: I64  # in the topology order, -1 = none: a block over nodes is aligned in it


ANYWHERE = Places(NO_ARRAY, NO_ARRAY, NO_ARRAY, NO_ARRAY)


def places_of(state: State, wish: Wish, nodes: int, space: Space | None = None, mine: int = 0) -> Places:
    """Return what the wish of a shape of ``nodes`` parts means for each node, in a space; None = on the empty pool.

    What is kept for others than ``mine`` (workload row + 1) counts as used.
    """
    if wish == NO_WISH:
        return ANYWHERE
    one = nodes == 1  # a single part is in one domain of every level
    within = NO_ARRAY if one or not wish.within else domains_at(state, wish.within - 1)
    narrower = wish.near and not (wish.within and wish.within <= wish.near)  # otherwise one domain it is, or any will do
    near = domains_at(state, wish.near - 1) if narrower and not one else NO_ARRAY
    place = NO_ARRAY if one or not wish.aligned else state.node.column("place") - 1
    return Places(_room(state, wish, space, mine), within, NO_ARRAY if len(place) else near, place)


def _room(state: State, wish: Wish, space: Space | None, mine: int) -> I64:
    if wish.plain:
        return NO_ARRAY
    node = state.node
    room = np.full(node.used, MAX_NODE_GPUS, dtype=np.int64)
    for label in wish.labels:
        room[~_has(state, label)] = 0
    if wish.exclusive:
        room[node.column("gpus") != wish.exclusive] = 0
    if wish.group and space is not None:
        room[_beside_group(state, wish, space, mine)] = 0
    if wish.gpu_memory_mib:
        room[node.column("gpu_memory_mib") < wish.gpu_memory_mib] = 0
    if wish.cpu_milli or wish.memory_mib:
        cpu_milli, memory_mib = (0, 0) if space is None else _taken(state, space, mine)
        for asked, offered, taken in (
            (wish.cpu_milli, node.column("cpu_milli"), cpu_milli),
            (wish.memory_mib, node.column("memory_mib"), memory_mib),
        ):
            if asked:
                np.minimum(room, np.maximum(offered - taken, 0) // asked, out=room)
    return room


def _has(state: State, label: str) -> NDArray[np.bool_]:
    """Tell of each node whether it bears the label."""
    bearers = np.zeros(state.node.used, dtype=np.bool_)
    row = state.label.row_of.get(label)
    if row is not None:
        bearers[state.tag.column("node")[state.tag.column("label") == row + 1]] = True
    return bearers


def _beside_group(state: State, wish: Wish, space: Space, mine: int) -> NDArray[np.bool_]:
    """Tell of each node whether it shares a domain with a run of the group, or with GPUs that are kept for one of it."""
    number = state.group.row_of.get(wish.group, -1) + 1
    of_group = np.zeros(state.wish.used + 1, dtype=np.bool_)  # by what the column of a workload holds
    of_group[1:] = (state.wish.column("group") == number) & (number > 0)
    member = of_group[state.workload.column("wish")]
    alloc, held = state.alloc, state.gpu.column("held_by")
    there = np.zeros(state.node.used, dtype=np.bool_)
    live = np.flatnonzero(alloc.column("milli"))
    staying = np.ones(state.run.used, dtype=np.bool_)
    staying[list(space.gone)] = False
    runs = alloc.run[live]
    there[state.gpu.node[alloc.gpu[live[member[state.run.workload[runs]] & staying[runs]]]]] = True
    kept = np.flatnonzero((held > 0) & (held != mine))
    there[state.gpu.node[kept[member[held[kept] - 1]]]] = True
    domains = domains_at(state, wish.apart_level - 1)
    occupied: NDArray[np.bool_] = np.isin(domains, domains[there])
    return occupied


def _taken(state: State, space: Space, mine: int) -> tuple[I64, I64]:
    """Return CPU and memory per node that are used, or kept for others whose GPUs are being freed."""
    held = state.gpu.column("held_by")
    others = held[(held > 0) & (held != mine)]
    if not len(others):
        return space.cpu_milli, space.memory_mib
    cpu_milli, memory_mib = space.cpu_milli.copy(), space.memory_mib.copy()
    for holder in np.unique(others).tolist():
        wish = wish_of(state, holder - 1)
        rows, gpus = np.unique(state.gpu.column("node")[held == holder], return_counts=True)
        parts = gpus if wish.loose else 1
        cpu_milli[rows] += parts * wish.cpu_milli
        memory_mib[rows] += parts * wish.memory_mib
    return cpu_milli, memory_mib

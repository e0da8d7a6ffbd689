"""The shape that the core makes of a request at the door, and the wishes that shapes share.

One node if the total fits on one, else the fewest whole nodes of the pool's largest size; a loose request is as many single GPUs.
An exclusive request is made of whole nodes, of the smallest size that does. What could not start on the empty pool, in service or
not, is refused with the largest of its kind that could.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from apportion.core.events import WorkloadSubmitted
from apportion.core.fold.access import No
from apportion.core.kernels import pack
from apportion.core.reasons import Refusal
from apportion.core.state.state import State
from apportion.core.state.topology import NODE_LEVEL, height_of
from apportion.core.state.wishes import NO_WISH, Wish, places_of
from apportion.core.units import MILLI


class Shape(NamedTuple):
    """What a request is in one pool."""

    nodes: int
    milli_per_node: int
    wish: Wish


def shape_of(state: State, pool: int, event: WorkloadSubmitted) -> Shape | No:
    """Return the shape of a request in this pool, or why there is none."""
    wish = _wish(state, pool, event)
    if isinstance(wish, No):
        return wish
    node = state.node
    room = places_of(state, wish, 1).room
    largest = int(pack.largest_node(pool, node.used, node.pool, node.gpus, room)) * MILLI
    layout = _loose_layout(event) if event.loose else _layout(event, largest)
    if isinstance(layout, No):
        return layout
    nodes, per_node = layout
    if wish.within == 1 and nodes > 1 and not event.loose:
        return No(Refusal.BAD_SHAPE, "within", "several nodes are not within one node", {"nodes": nodes})
    shape = Shape(nodes, per_node, wish)
    count = per_node // MILLI if nodes == 1 else nodes
    if event.block and count & (count - 1):
        detail = "a block is a power of two of GPUs on one node, or of whole nodes"
        return No(Refusal.BAD_SHAPE, "block", detail, {"nodes": nodes, "per_node_milli": per_node})
    if event.block and nodes > 1:
        shape = shape._replace(wish=wish._replace(exclusive=per_node // MILLI))
    if event.exclusive:
        sizes = node.column("gpus")[(node.column("pool") == pool) & (node.column("gpus") * MILLI >= per_node)]
        for size in np.unique(sizes).tolist():  # the smallest whole nodes that do
            shape = Shape(nodes, size * MILLI, wish._replace(exclusive=size))
            if _most_parts(state, pool, shape) >= nodes:
                break
    able = _most_parts(state, pool, shape)
    if able < nodes:
        numbers = {"nodes_able": able, "nodes_needed": nodes, "largest_node_milli": largest}
        numbers["largest_milli"] = able * shape.milli_per_node or largest
        return No(Refusal.NEVER_FITS, _hindrance(state, pool, shape), "no such set of nodes has joined the pool", numbers)
    return shape


def _hindrance(state: State, pool: int, shape: Shape) -> str:
    """Return the field without which the shape could be had: the first of its wishes, or the GPUs."""
    for field in ("block", "within", "labels", "exclusive", "gpu_memory_mib", "cpu_milli", "memory_mib"):
        if field == "block":
            without = shape.wish._replace(aligned=0, exclusive=0 if shape.nodes > 1 else shape.wish.exclusive)
        else:
            without = shape.wish._replace(**{field: getattr(NO_WISH, field)})
        if _most_parts(state, pool, shape._replace(wish=without)) >= shape.nodes:
            return field
    return "gpus_milli"


def _layout(event: WorkloadSubmitted, largest: int) -> tuple[int, int] | No:
    """Return (nodes, milli per node)."""
    total, nodes = event.gpus_milli, event.nodes
    if nodes == 0:
        nodes = 1
        if total > largest > 0:
            if total % largest:
                return No(Refusal.BAD_SHAPE, "gpus_milli", "not a multiple of whole nodes", {"node_milli": largest})
            nodes = total // largest
    if total % nodes:
        return No(Refusal.BAD_SHAPE, "nodes", "gpus_milli does not divide over nodes", {"nodes": nodes})
    per_node = total // nodes
    if per_node > MILLI and per_node % MILLI:
        return No(Refusal.BAD_SHAPE, "gpus_milli", "above one GPU only whole GPUs", {"per_node_milli": per_node})
    if per_node < MILLI and nodes > 1:
        return No(Refusal.BAD_SHAPE, "nodes", "a fraction of a GPU is on one node", {"per_node_milli": per_node})
    return nodes, per_node


def _loose_layout(event: WorkloadSubmitted) -> tuple[int, int] | No:
    if event.nodes:
        return No(Refusal.BAD_SHAPE, "nodes", "a loose request does not say on how many nodes", {"nodes": event.nodes})
    if event.gpus_milli % MILLI:
        return No(Refusal.BAD_SHAPE, "gpus_milli", "loose GPUs are whole GPUs", {"gpus_milli": event.gpus_milli})
    return event.gpus_milli // MILLI, MILLI


def _wish(state: State, pool: int, event: WorkloadSubmitted) -> Wish | No:
    if event.loose and (event.exclusive or event.block):
        field = "exclusive" if event.exclusive else "block"
        return No(Refusal.BAD_SHAPE, field, "loose GPUs are wherever they are")
    levels = {"within": event.within, "near": event.near}
    levels["apart_level"] = (event.apart_level or NODE_LEVEL) if event.apart else event.apart_level
    heights = {}
    for field, level in levels.items():
        height = None if level is None else height_of(state, pool, level)
        if level is not None and height is None:
            return No(Refusal.UNKNOWN_LEVEL, field, f"pool {state.pool.keys[pool]} has no level {level}", entity=level)
        heights[field] = 0 if height is None else height + 1
    if not event.apart:
        heights["apart_level"] = 0
    return Wish(
        **heights, loose=int(event.loose), aligned=int(event.block and event.gpus_milli >= MILLI),
        gpu_memory_mib=event.gpu_memory_mib, cpu_milli=event.cpu_milli, memory_mib=event.memory_mib,
        labels=tuple(f"{key}={value}" for key, value in sorted(event.labels.items())),
        group=f"{event.budget}:{event.apart}" if event.apart else "",
    )  # fmt: skip


def _most_parts(state: State, pool: int, shape: Shape) -> int:
    node, places = state.node, places_of(state, shape.wish, shape.nodes)
    return int(
        pack.most_parts(
            pool, shape.nodes, max(1, shape.milli_per_node // MILLI), shape.wish.loose, shape.wish.aligned, node.used, node.pool,
            node.first_gpu, node.gpus, state.gpu.out, places.room, places.within, places.place, 0,
        )
    )  # fmt: skip

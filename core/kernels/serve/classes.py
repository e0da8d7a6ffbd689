"""Classes: how many nodes have how much free, by who asks; and nodes kept for one more.

From whom a node is kept follows from when he says that he is over: a node counts for the classes it is not kept from. Pure
functions of the columns; counting writes ``Room``, keeping writes who holds a node of ``Stock``. Naive equivalent: ask of each
node whether it is kept from him.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from apportion.core.kernels.serve.ahead import first_open
from apportion.core.kernels.serve.columns import BOUND, KEPT, Room, Stock
from apportion.core.kernels.serve.shapes import class_ending
from apportion.core.units import NEVER_MS

I64 = NDArray[np.int64]

# as in ``effects``
BUILT_ON = {
    "serve.ahead": "851965956360", "serve.columns": "00138576507d", "serve.shapes": "a6b4fdc08477"
}  # fmt: skip


@njit(cache=True)
def instants_of(until_ms: I64, closes_ms: I64, grace_ms: int) -> I64:
    """Return, distinct and ascending, the instants that distinguish one end of a workload from another.

    They are until when nodes are kept, when they close, and when whoever must go by then is told so at the latest. There are few: a
    new one is put in its place.
    """
    found, count = np.empty(16, dtype=np.int64), 0
    for node in range(len(until_ms)):
        for k in range(3):
            told = until_ms[node] if k == 0 else closes_ms[node]
            instant_ms = told - (grace_ms if k == 2 else 0)
            at = class_ending(found[:count], instant_ms)
            if told <= 0 or (at < count and found[at] == instant_ms):
                continue
            if count == len(found):
                found = np.concatenate((found, np.empty_like(found)))
            found[at + 1 : count + 1] = found[at:count].copy()
            found[at] = instant_ms
            count += 1
    return found[:count].copy()


@njit(cache=True)
def _last_class(until_ms: int, closes_ms: int, instants_ms: I64) -> int:
    """Return the last class from which a node is not kept."""
    last = len(instants_ms)
    if until_ms > 0:
        last = min(last, class_ending(instants_ms, until_ms))
    if closes_ms > 0:
        last = min(last, class_ending(instants_ms, closes_ms))
    return last


@njit(cache=True)
def _add_up(nodes: I64, shared: I64) -> None:
    """Count nodes for all classes they are not kept from, and for all numbers they have at least."""
    classes, most = nodes.shape[0], nodes.shape[1] - 1
    for one in range(classes - 2, -1, -1):
        shared[one] = max(shared[one], shared[one + 1])
        for k in range(most + 1):
            nodes[one, k] += nodes[one + 1, k]
    for one in range(classes):
        for k in range(most - 1, -1, -1):
            nodes[one, k] += nodes[one, k + 1]


@njit(cache=True)
def measure_classes(
    node_free: I64,
    node_part: I64,
    node_last: I64,
    until_ms: I64,
    closes_ms: I64,
    instants_ms: I64,
    nodes: I64,
    shared: I64,
) -> None:
    """Count by class of asker: ``nodes[class, k]`` with at least k GPUs free, ``shared[class]`` the most of one in use; O(nodes).

    ``node_last`` becomes the last class that a node is not kept from; below 0: it is of another pool.
    """
    most = nodes.shape[1] - 1
    nodes[:] = 0
    shared[:] = 0
    for node in range(len(node_free)):
        if node_last[node] < 0:
            continue  # of another pool
        last = len(instants_ms)
        if until_ms[node] > 0 or closes_ms[node] > 0:
            last = _last_class(until_ms[node], closes_ms[node], instants_ms)
        node_last[node] = last
        if node_free[node] > 0 or node_part[node] > 0:
            nodes[last, min(node_free[node], most)] += 1
            shared[last] = max(shared[last], node_part[node])
    _add_up(nodes, shared)


@njit(cache=True)
def keep_nodes(stock: Stock, row: int, nodes: int, ready_ms: I64, order: I64) -> int:
    """Keep the open nodes that are ready first for a workload; returns when they are, 0 = nobody knows, and none is kept."""
    until_ms, holder, picked = stock.until_ms, stock.holder, np.empty(nodes, dtype=np.int64)
    if not first_open(order, until_ms, picked) or ready_ms[picked[-1]] >= NEVER_MS:
        return 0
    last_ms = ready_ms[picked[-1]]
    for node in picked:
        until_ms[node], holder[node] = last_ms, row + 1
    return last_ms


@njit(cache=True)
def with_holder(room: Room, stock: Stock, row: int, until_ms: int) -> Room:
    """Return the room when nodes are kept for one more, until an instant if that is not 0: counted by class anew."""
    holders, before = np.append(room.holders, np.full(1, row)), room.instants_ms
    at = class_ending(before, until_ms)
    instants_ms = before
    if until_ms > 0 and (at == len(before) or before[at] != until_ms):
        instants_ms = np.empty(len(before) + 1, dtype=np.int64)
        instants_ms[:at], instants_ms[at], instants_ms[at + 1 :] = before[:at], until_ms, before[at:]
    classes = len(instants_ms) + 1
    nodes, shared = np.empty((classes, room.nodes.shape[1]), dtype=np.int64), np.empty(classes, dtype=np.int64)
    measure_classes(stock.free, stock.part, stock.last, stock.until_ms, stock.closes_ms, instants_ms, nodes, shared)
    room.sums[3] = KEPT if room.sums[3] == 1 or room.sums[3] == KEPT else min(room.sums[3], BOUND)
    return Room(
        instants_ms, nodes, shared, room.evictable, room.gone_free, room.gone_part, room.sums, holders, room.profile
    )

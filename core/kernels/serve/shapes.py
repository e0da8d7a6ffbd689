"""What a workload asks for, against what is there: whether it may fit, and whether its like was tried.

Nobody is started here: what these answers do is to rule out. A *class* of asker is how many of the instants until which nodes are
kept come before his end (``Room.instants_ms``): from who ends later more nodes are kept. A workload for whom too few nodes are
left is ruled out; the naive equivalent is ``pack.find_gpus``. Of a shape that found no place in this cycle the earliest end is
noted: starts only take space, so nobody finds one from whom at least the same nodes are kept. Pure functions of the columns;
``note`` alone writes, into ``Tried``.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from apportion.core.kernels.bare import bare
from apportion.core.kernels.serve.columns import EACH, LEFT_MS, NODES, WHOLE, WISH, Jobs, Room, Tried
from apportion.core.units import BUCKET_MS, NEVER_MS, UNKNOWN_RUNTIME_MS

I64 = NDArray[np.int64]

# as in ``effects``
BUILT_ON = {
    "bare": "6b2fd7db475f", "serve.columns": "00138576507d"
}  # fmt: skip


@njit(cache=True)
def says_over_ms(jobs: Jobs, row: int, now_ms: int) -> int:
    """Return when he is over by what he states if he starts now, as ``policy.reserving`` tells it."""
    left_ms = jobs.waits[row, LEFT_MS]
    return now_ms + left_ms if left_ms < NEVER_MS else NEVER_MS


@njit(cache=True)
def milli_of(waits: I64, row: int) -> int:
    """Return how much he asks for in all."""
    return waits[row, NODES] * waits[row, EACH]


@bare
def class_ending(instants_ms: I64, end_ms: int) -> int:
    """Return how many of the ascending instants are before ``end_ms``: the class of who ends then."""
    low, high = 0, len(instants_ms)
    while low < high:
        middle = (low + high) >> 1
        if instants_ms[middle] < end_ms:
            low = middle + 1
        else:
            high = middle
    return low


@bare
def has_room(nodes: int, milli_per_node: int, counts: I64, shared_milli: int) -> bool:
    """Tell whether a shape without wishes may fit, by how many nodes have how much."""
    if milli_per_node < WHOLE:
        return counts[1] > 0 or shared_milli >= milli_per_node
    need = milli_per_node // WHOLE
    return need < len(counts) and counts[need] >= nodes


@njit(cache=True)
def is_listed(rows: I64, row: int) -> bool:
    """Tell whether a row is one of a few."""
    k = 0
    while k < len(rows) and rows[k] != row:
        k += 1
    return k < len(rows)


@njit(cache=True)
def holds(room: Room, row: int) -> bool:
    """Tell whether nodes are kept for him."""
    return is_listed(room.holders, row)


@njit(cache=True)
def may_fit(jobs: Jobs, room: Room, row: int, class_: int) -> bool:
    """Tell whether the workload may fit; False rules it out."""
    if jobs.waits[row, WISH] > 0:
        return True
    nodes, milli = jobs.waits[row, NODES], jobs.waits[row, EACH]
    if has_room(nodes, milli, room.nodes[class_], room.shared[class_]):
        return True
    return class_ > 0 and has_room(nodes, milli, room.nodes[0], room.shared[0]) and holds(room, row)


@njit(cache=True)
def note(tried: Tried, nodes: int, milli_per_node: int, wish: int, end_ms: int) -> None:
    """Remember that a shape that would be over at ``end_ms`` found no place."""
    tried.counts[1] += 1
    for k in range(tried.counts[0]):
        if tried.shapes[k, 0] == nodes and tried.shapes[k, 1] == milli_per_node and tried.shapes[k, 2] == wish:
            tried.shapes[k, 3] = min(tried.shapes[k, 3], end_ms)
            return
    k = tried.counts[0]
    tried.shapes[k, 0], tried.shapes[k, 1], tried.shapes[k, 2], tried.shapes[k, 3] = nodes, milli_per_node, wish, end_ms
    tried.counts[0] += 1


@bare
def among(shapes: I64, count: int, nodes: int, each: int, wish: int, instants_ms: I64, class_: int) -> bool:
    """Tell whether a shape found no place for somebody from whom no more nodes are kept."""
    for k in range(count):
        same = shapes[k, 0] == nodes and shapes[k, 1] == each and shapes[k, 2] == wish
        if same and class_ending(instants_ms, shapes[k, 3]) <= class_:
            return True
    return False


@njit(cache=True)
def _was_tried(jobs: Jobs, room: Room, shapes: I64, count: int, row: int, class_: int) -> bool:
    waits = jobs.waits
    return among(shapes, count, waits[row, NODES], waits[row, EACH], waits[row, WISH], room.instants_ms, class_)


@njit(cache=True)
def was_tried(jobs: Jobs, room: Room, tried: Tried, row: int, now_ms: int) -> bool:
    """Tell whether the shape of a workload found no place in this cycle."""
    return _was_tried(
        jobs, room, tried.shapes, tried.counts[0], row, class_ending(room.instants_ms, says_over_ms(jobs, row, now_ms))
    )


@njit(cache=True)
def buckets_of(end_ms: int, now_ms: int) -> int:
    """Return how many buckets of the plan somebody takes who says that he is over at ``end_ms``, rounded up."""
    left_ms = end_ms - now_ms if end_ms < NEVER_MS else UNKNOWN_RUNTIME_MS
    return max(1, -(-left_ms // BUCKET_MS))


@njit(cache=True)
def leaves_plan(profile: I64, milli: int, buckets: int) -> bool:
    """Tell whether so much is left in each of the next buckets."""
    t, last = 0, min(buckets, len(profile))
    while t < last and profile[t] >= milli:
        t += 1
    return t == last

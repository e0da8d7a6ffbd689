"""The plan of conservative backfill: how many GPUs of a pool are free in each bucket of time to come, and who gets them when.

Whoever is planned takes the earliest buckets in which, over all of his time, so many GPUs are left, and whole nodes if he asks for
such; one after the other, so nobody delays who is planned before him. *Counted* are GPUs, and nodes of the pool's largest size
with all of their GPUs free; which ones is not known. It is exact where that is all there is to know: single GPUs, whole nodes. For
a part of a node it may say too early, where what is free is scattered. What lies behind the last bucket is not looked at.

Naive equivalent: try every bucket in turn (``oracles.plan``). Pure functions of integers; nothing else is written than the arrays.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

I64 = NDArray[np.int64]

SHIFT = 5
KNOWN = 1_024  # numbers of GPUs of which something is remembered
BLOCK = 1 << SHIFT  # buckets whose least and most are remembered


@njit(cache=True)
def releases(
    now_ms: int, bucket_ms: int, pool: int, size: int, nodes: int, node_pool: I64, node_first: I64, node_gpus: I64, used: I64,
    out: I64, held: I64, full: int, allocs: int, alloc_run: I64, alloc_gpu: I64, alloc_milli: I64, gpu_node: I64, end_ms: I64,
    free: I64, whole: I64,
) -> None:  # fmt: skip
    """Fill ``free`` and ``whole`` with milli-GPU, and nodes of ``size`` GPUs, free in each bucket when runs end as expected.

    A GPU that is out of service, or held for somebody, is nobody's in the plan.
    """
    free[:] = 0
    whole[:] = 0
    ready = np.zeros(nodes, dtype=np.int64)  # bucket; behind the last one = never
    for node in range(nodes):
        if node_pool[node] != pool or node_gpus[node] != size:
            ready[node] = len(free)
        if node_pool[node] == pool:
            for gpu in range(node_first[node], node_first[node] + node_gpus[node]):
                if out[gpu] == 0 and held[gpu] == 0:
                    free[0] += full - used[gpu]
                else:
                    ready[node] = len(free)
    for a in range(allocs):
        gpu = alloc_gpu[a]
        if alloc_milli[a] > 0 and node_pool[gpu_node[gpu]] == pool and out[gpu] == 0 and held[gpu] == 0:
            at = max(1, -(-(end_ms[alloc_run[a]] - now_ms) // bucket_ms))  # it runs now, whatever it said
            ready[gpu_node[gpu]] = max(ready[gpu_node[gpu]], at)
            if at < len(free):
                free[at] += alloc_milli[a]
    for node in range(nodes):
        if ready[node] < len(free):
            whole[ready[node]] += 1
    for t in range(1, len(free)):
        free[t] += free[t - 1]
        whole[t] += whole[t - 1]


@njit(cache=True)
def take(left: I64, start: int, buckets: int, amount: int) -> None:
    """Take GPUs, or nodes, out of the plan; a negative amount gives them back."""
    for t in range(start, min(start + buckets, len(left))):
        left[t] -= amount


@njit(cache=True)
def _summarise(block: int, left: I64, rise: I64, least: I64, most: I64) -> None:
    begin, end = block << SHIFT, min((block + 1) << SHIFT, len(left))
    low, high = left[begin], left[begin]
    for t in range(begin + 1, end):
        low, high = min(low, left[t]), max(high, left[t])
    least[block], most[block] = low + rise[block], high + rise[block]


@njit(cache=True)
def _take_blocks(at: int, end: int, amount: int, left: I64, rise: I64, least: I64, most: I64) -> None:
    """Take so much in ``[at, end)``: of whole blocks in ``rise``, which counts for each of their buckets, of others by bucket."""
    for block in range(at >> SHIFT, ((end - 1) >> SHIFT) + 1):
        begin, behind = block << SHIFT, min((block + 1) << SHIFT, len(left))
        if begin >= at and behind <= end:
            rise[block] -= amount
            least[block] -= amount
            most[block] -= amount
        else:
            for t in range(max(begin, at), min(behind, end)):
                left[t] -= amount
            _summarise(block, left, rise, least, most)


@njit(cache=True)
def _next_below(left: I64, rise: I64, least: I64, t: int, end: int, amount: int) -> int:
    """Return the first bucket from ``t`` on, up to ``end``, in which less is left."""
    while t < end:
        if t & (BLOCK - 1) == 0 and least[t >> SHIFT] >= amount:
            t += BLOCK
        elif left[t] + rise[t >> SHIFT] >= amount:
            t += 1
        else:
            return t
    return end


@njit(cache=True)
def _next_enough(left: I64, rise: I64, most: I64, t: int, amount: int) -> int:
    """Return the first bucket from ``t`` on in which so much is left, or how many there are."""
    while t < len(left) and left[t] + rise[t >> SHIFT] < amount:
        t += BLOCK if t & (BLOCK - 1) == 0 and most[t >> SHIFT] < amount else 1
    return min(t, len(left))


@njit(cache=True)
def plan(
    rows: I64, milli: I64, nodes: I64, milli_per_node: I64, wish_loose: NDArray[np.bool_], node_milli: int, buckets: I64, free: I64,
    whole: I64, starts: I64,
) -> None:  # fmt: skip
    """Plan ``rows`` in this order: ``starts`` gets the bucket of each, -1 = none; ``free`` and ``whole`` what is left.

    What is left only becomes less, so who asks for as many as somebody before him, for no less time, starts no earlier than that
    one: of each number of GPUs it is remembered where whom of the least time began, and before which bucket so many are nowhere.
    """
    blocks = (len(free) + BLOCK - 1) >> SHIFT
    least, most, least_whole, most_whole = (
        np.empty(blocks, dtype=np.int64), np.empty(blocks, dtype=np.int64), np.empty(blocks, dtype=np.int64),
        np.empty(blocks, dtype=np.int64),
    )  # fmt: skip
    rise, rise_whole = np.zeros(blocks, dtype=np.int64), np.zeros(blocks, dtype=np.int64)
    for block in range(blocks):
        _summarise(block, free, rise, least, most)
        _summarise(block, whole, rise_whole, least_whole, most_whole)
    known = np.full((KNOWN, 4), -1, dtype=np.int64)  # milli-GPU, nodes, buckets, start
    first = np.zeros(KNOWN, dtype=np.int64)
    for k in range(len(rows)):
        row = rows[k]
        need, wanted = milli[row], nodes[row] if milli_per_node[row] == node_milli and not wish_loose[k] else 0
        slot, t = (need // 250 + wanted * 7) & (KNOWN - 1), 0
        same = known[slot, 0] == need and known[slot, 1] == wanted
        if same:
            t = first[slot]
        first[slot] = _next_enough(free, rise, most, t, need)
        t = first[slot]
        if same and known[slot, 2] <= buckets[k]:
            t = max(t, known[slot, 3])
        at = -1
        while t < len(free):
            t = _next_enough(free, rise, most, t, need)
            other = _next_enough(whole, rise_whole, most_whole, t, wanted) if wanted > 0 else t
            if other > t:
                t = other
                continue
            end = min(t + buckets[k], len(free))
            if t == end:
                break
            short = _next_below(free, rise, least, t, end, need)
            if wanted > 0:
                short = min(short, _next_below(whole, rise_whole, least_whole, t, end, wanted))
            if short == end:
                at = t
                break
            t = short
        starts[k] = at
        if not same or known[slot, 2] >= buckets[k]:
            known[slot, 0], known[slot, 1], known[slot, 2] = need, wanted, buckets[k]
            known[slot, 3] = at if at >= 0 else len(free)
        if at >= 0:
            end = min(at + buckets[k], len(free))
            _take_blocks(at, end, need, free, rise, least, most)
            if wanted > 0:
                _take_blocks(at, end, wanted, whole, rise_whole, least_whole, most_whole)
    for t in range(len(free)):
        free[t] += rise[t >> SHIFT]
        whole[t] += rise_whole[t >> SHIFT]

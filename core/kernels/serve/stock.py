"""Stock: which GPUs somebody gets by best fit, and what is left when he has them.

For whoever asks for nothing but GPUs, the answer of ``pack.find_gpus``, which is the naive equivalent of picking; that of taking
is to measure everything anew (``room.measure_free``, ``fill_shelves``, ``classes.measure_classes``). Pure functions of the columns;
picking writes the GPUs, taking writes ``Stock`` and ``Room``, and nobody else changes what is free in them.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from apportion.core.kernels.bare import bare
from apportion.core.kernels.serve.columns import SHELF, WHOLE, Room, Stock

I64 = NDArray[np.int64]

# as in ``effects``
BUILT_ON = {
    "bare": "6b2fd7db475f", "serve.columns": "00138576507d"
}  # fmt: skip


@bare
def kept_from(until_ms: I64, holder: I64, closes_ms: I64, node: int, row: int, over_ms: int) -> bool:
    """Tell whether the node is kept from a workload that is over at ``over_ms``: for somebody else, or because it is drained."""
    theirs = until_ms[node] > 0 and holder[node] != row + 1 and until_ms[node] < over_ms
    return theirs or (closes_ms[node] > 0 and closes_ms[node] < over_ms)


@bare
def pick_on_node(first: int, size: int, need: int, used: I64, out: I64, held: I64, gpus: I64, at: int) -> None:
    """Write ``need`` free GPUs of a node: an aligned block if the number is a power of two and one is free, else the lowest."""
    if need & (need - 1) == 0:
        for start in range(first, first + size - need + 1, need):
            free = 0
            while free < need and used[start + free] == 0 and out[start + free] == 0 and held[start + free] == 0:
                free += 1
            if free == need:
                for k in range(need):
                    gpus[at + k] = start + k
                return
    for gpu in range(first, first + size):
        if need > 0 and used[gpu] == 0 and out[gpu] == 0 and held[gpu] == 0:
            gpus[at] = gpu
            at, need = at + 1, need - 1


@bare
def _most_on(shelf: int, part: I64) -> int:
    """Return the most that a shelf has left on a GPU in use."""
    most = 0
    for node in range(shelf * SHELF, min(len(part), (shelf + 1) * SHELF)):
        most = max(most, part[node])
    return most


@bare
def _most_of(first: int, size: int, used: I64, out: I64, held: I64) -> int:
    """Return the most that a node has left on a GPU in use."""
    most = 0
    for gpu in range(first, first + size):
        if used[gpu] > 0 and out[gpu] == 0 and held[gpu] == 0:
            most = max(most, WHOLE - used[gpu])
    return most


@njit(cache=True)
def fill_shelves(part: I64, shelves: I64) -> None:
    """Fill in what each shelf has."""
    for shelf in range(len(shelves)):
        shelves[shelf] = _most_on(shelf, part)


@bare
def _pick_part(
    row: int, milli: int, over_ms: int, part: I64, shelves: I64, used: I64, used_mib: I64, out: I64, held: I64, first_gpu: I64,
    gpus: I64, memory_mib: I64, until_ms: I64, holder: I64, closes_ms: I64,
) -> int:  # fmt: skip
    """Return the most used GPU with room, and memory, for a fraction; -1 = none that is in use."""
    best = -1
    for shelf in range(len(shelves)):
        if shelves[shelf] < milli:
            continue
        for node in range(shelf * SHELF, min(len(part), (shelf + 1) * SHELF)):
            if part[node] < milli or kept_from(until_ms, holder, closes_ms, node, row, over_ms):
                continue
            left_mib = memory_mib[node] - memory_mib[node] * milli // WHOLE
            for gpu in range(first_gpu[node], first_gpu[node] + gpus[node]):
                taken = used[gpu]
                if taken == 0 or taken + milli > WHOLE or out[gpu] > 0 or held[gpu] > 0 or used_mib[gpu] > left_mib:
                    continue
                if best < 0 or taken > used[best]:
                    best = gpu
            if best >= 0 and used[best] + milli == WHOLE:
                return best  # none is used more that has room
    return best


@njit(cache=True, inline="always")
def pick_of(
    row: int, nodes: int, milli_per_node: int, over_ms: int, gpus: I64, at: int, counts: I64, free: I64, part: I64, last: I64,
    lowest: I64, shelves: I64, used: I64, used_mib: I64, out: I64, held: I64, first_gpu: I64, size: I64, memory_mib: I64,
    until_ms: I64, holder: I64, closes_ms: I64,
) -> int:  # fmt: skip
    """Write the GPUs that a workload without wishes gets by best fit, as ``pack.find_gpus`` chooses; returns how many, 0 = none.

    ``counts[0, k]`` nodes of the pool, kept or not, have at least k GPUs free.
    """
    found = 0
    if milli_per_node < WHOLE:
        best = _pick_part(
            row, milli_per_node, over_ms, part, shelves, used, used_mib, out, held, first_gpu, size, memory_mib, until_ms, holder,
            closes_ms,
        )  # fmt: skip
        if best >= 0:
            gpus[at], found = best, 1
    need, taken, level = max(1, milli_per_node // WHOLE), 0, max(1, milli_per_node // WHOLE)
    while found == 0 and level < counts.shape[1]:
        if counts[0, level] != (counts[0, level + 1] if level + 1 < counts.shape[1] else 0):
            node, first = lowest[level], True
            while node < len(free) and taken < nodes:
                if free[node] == level and last[node] >= 0:
                    if first:
                        lowest[level], first = node, False
                    if not kept_from(until_ms, holder, closes_ms, node, row, over_ms):
                        pick_on_node(first_gpu[node], size[node], need, used, out, held, gpus, at + taken * need)
                        taken += 1
                node += 1
            if taken == nodes:
                found = nodes * need
        level += 1
    return found


@njit(cache=True)
def pick_gpus(
    stock: Stock, counts: I64, row: int, nodes: int, milli_per_node: int, over_ms: int, gpus: I64, at: int
) -> int:
    """Do so with what is in stock."""
    return pick_of(
        row, nodes, milli_per_node, over_ms, gpus, at, counts, stock.free, stock.part, stock.last, stock.lowest, stock.shelves,
        stock.used, stock.used_mib, stock.out, stock.held, stock.first_gpu, stock.gpus, stock.memory_mib, stock.until_ms,
        stock.holder, stock.closes_ms,
    )  # fmt: skip


@bare
def _share_anew(shared: I64, part: I64, last: I64, shelves: I64) -> None:
    """Set ``room.shared`` by what each node has on GPUs that are in use."""
    shared[:] = 0
    if len(shared) == 1:  # no node is kept from anybody
        for shelf in range(len(shelves)):
            shared[0] = max(shared[0], shelves[shelf])
        return
    for node in range(len(part)):
        if last[node] >= 0 and part[node] > shared[last[node]]:
            shared[last[node]] = part[node]
    for class_ in range(len(shared) - 2, -1, -1):
        shared[class_] = max(shared[class_], shared[class_ + 1])


@njit(cache=True, inline="always")
def take_of(
    gpus: I64, begin: int, end: int, milli_each: int, counts: I64, shared: I64, sums: I64, node_of: I64, used: I64, used_mib: I64,
    out: I64, held: I64, first_gpu: I64, size: I64, memory_mib: I64, free_on: I64, part_on: I64, last: I64, lowest: I64,
    shelves: I64,
) -> None:  # fmt: skip
    """Take so much of each of ``gpus[begin:end]`` out of stock and room; what could be freed is no longer known.

    Naive equivalent: take it, and ``room.measure_free`` everything anew.
    """
    most, shrunk, at = counts.shape[1] - 1, False, begin
    while at < end:
        node = node_of[gpus[at]]
        free, part, look_again = free_on[node], part_on[node], False
        while at < end and node_of[gpus[at]] == node:
            gpu = gpus[at]
            was = used[gpu]
            used[gpu] = was + milli_each
            free -= was == 0
            if milli_each < WHOLE:
                used_mib[gpu] += memory_mib[node] * milli_each // WHOLE
                look_again = look_again or (was > 0 and WHOLE - was == part)  # it may have been the only one with so much
                part = max(part, WHOLE - was - milli_each)
            at += 1
        if look_again:
            part = _most_of(first_gpu[node], size[node], used, out, held)
        for class_ in range(last[node] + 1):
            for k in range(min(free, most) + 1, min(free_on[node], most) + 1):
                counts[class_, k] -= 1
            if free == 0 and part == 0:
                counts[class_, 0] -= 1
            shrunk = shrunk or (part < part_on[node] and shared[class_] == part_on[node])
            shared[class_] = max(shared[class_], part)
        before, shelf = part_on[node], node // SHELF
        free_on[node], part_on[node] = free, part
        if part >= shelves[shelf]:
            shelves[shelf] = part
        elif before == shelves[shelf]:
            shelves[shelf] = _most_on(shelf, part_on)
        alone = free > 0 and counts[0, free] - (counts[0, free + 1] if free < most else 0) == 1  # no other has so many
        lowest[free] = node if alone else min(lowest[free], node)
    if shrunk:
        _share_anew(shared, part_on, last, shelves)
    sums[0] -= (end - begin) * milli_each


@njit(cache=True)
def take_gpus(stock: Stock, room: Room, gpus: I64, milli_each: int) -> None:
    """Do so with all of ``gpus``."""
    take_of(
        gpus, 0, len(gpus), milli_each, room.nodes, room.shared, room.sums, stock.node_of, stock.used, stock.used_mib, stock.out,
        stock.held, stock.first_gpu, stock.gpus, stock.memory_mib, stock.free, stock.part, stock.last, stock.lowest,
        stock.shelves,
    )  # fmt: skip

"""The one feasibility function: which GPUs would a shape get, if any?

A shape is ``nodes`` x ``milli_per_node``, a whole number of GPUs per node, or a fraction of one GPU on one node; or, *loose*,
``nodes`` single GPUs wherever they are, however many on a node. A GPU is usable when it is not out, its node not masked, and it is
not held for somebody else; for a fraction also the memory of the GPU must do. What nodes must have beside GPUs comes as ``room``:
how many parts of the shape each may serve by that. Domains come as one number per node (``topology.domains_at``): with ``within``
all nodes are of one domain, with ``near`` of as few as can be. With ``block`` the GPUs of a node are one aligned block of it, and
several nodes are one in ``place``, aligned to their number. An array without entries says that there is no such wish.

Choice: with ``within`` the domain in which the fewest ``near`` domains do, then the one with the least capacity that suffices, then
the lowest. With ``near`` the domain with the least capacity that suffices for what is missing, else the one with the most, and on.
Of blocks over nodes the one in the smallest block that is free, then the lowest. Then best fit. For whole GPUs the nodes with the
fewest usable free GPUs that still suffice (ties: lower row), inside a node an aligned block of that size if the size is a power of
two and one is free, else the lowest positions. For a fraction the most used GPU that still has room (ties: lower row), else a GPU
of the node that best fit would choose for one whole GPU. With ``rank``, where best fit would choose, the highest rank (ties: lower
row): of a node, or for a fraction of a GPU. It is for the caller to say what ranks mean (``fragments``); they never decide whether
a shape fits.

Used by placing, preempting, reserving and explaining alike, on the real columns or on copies. Pure; O(GPUs of the pool).
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

I64 = NDArray[np.int64]

WHOLE = 1_000


@njit(cache=True)
def _usable(gpu: int, used: I64, out: I64, held: I64, mine: int) -> bool:
    return used[gpu] == 0 and out[gpu] == 0 and (held[gpu] == 0 or held[gpu] == mine)


@njit(cache=True)
def _take_on_node(first: int, size: int, need: int, used: I64, out: I64, held: I64, mine: int, chosen: I64, at: int) -> int:
    """Append ``need`` usable GPUs of the node to ``chosen`` from index ``at``; returns the new length."""
    if need & (need - 1) == 0:
        for start in range(0, size - need + 1, need):
            free = 0
            while free < need and _usable(first + start + free, used, out, held, mine):
                free += 1
            if free == need:
                for k in range(need):
                    chosen[at + k] = first + start + k
                return at + need
    for k in range(size):
        if need > 0 and _usable(first + k, used, out, held, mine):
            chosen[at] = first + k
            at += 1
            need -= 1
    return at


@njit(cache=True)
def _has_block(first: int, size: int, need: int, used: I64, out: I64, held: I64, mine: int) -> bool:
    """Tell whether an aligned block of the node is usable."""
    for start in range(0, size - need + 1, need):
        free = 0
        while free < need and _usable(first + start + free, used, out, held, mine):
            free += 1
        if free == need:
            return True
    return False


@njit(cache=True)
def _block_counts(node_rows: int, nodes: int, parts: I64, place: I64, within: I64) -> I64:
    """Return how many nodes of each block of ``nodes`` places are able, of one domain each: a block is free when all are."""
    highest = -1
    for node in range(node_rows):
        highest = max(highest, place[node])
    count = np.zeros(highest // nodes + 1, dtype=np.int64)
    label = np.full(highest // nodes + 1, -1, dtype=np.int64)
    for node in range(node_rows):
        if place[node] < 0 or parts[node] < 1:
            continue
        block = place[node] // nodes
        if len(within) > 0 and label[block] < 0:
            label[block] = within[node]
        if len(within) == 0 or label[block] == within[node]:
            count[block] += 1
    return count


@njit(cache=True)
def _keep_one_block(node_rows: int, nodes: int, parts: I64, place: I64, within: I64) -> None:
    """Set ``parts`` to 0 outside the free block that is in the smallest free block, then the lowest; everywhere without one."""
    count = _block_counts(node_rows, nodes, parts, place, within)
    best, best_size = -1, 0
    for block in range(len(count)):
        if count[block] < nodes:
            continue
        size, buddies = 1, block
        while True:  # double it as long as its buddy is free too
            buddies ^= 1
            whole = True
            for other in range(buddies * size, (buddies + 1) * size):
                whole = whole and other < len(count) and count[other] == nodes
            if not whole:
                break
            size, buddies = 2 * size, buddies >> 1
        if best < 0 or size < best_size:
            best, best_size = block, size
    for node in range(node_rows):
        if place[node] < 0 or place[node] // nodes != best:
            parts[node] = 0


@njit(cache=True)
def _capacities(node_rows: int, domain: I64, parts: I64) -> I64:
    """Return how many parts each domain could serve."""
    highest = -1
    for node in range(node_rows):
        highest = max(highest, domain[node])
    capacity = np.zeros(highest + 1, dtype=np.int64)
    for node in range(node_rows):
        capacity[domain[node]] += parts[node]
    return capacity


@njit(cache=True)
def _next_domain(left: int, capacity: I64) -> int:
    """Return the domain with the least capacity for ``left`` parts, else the one with the most; ties: the lowest. -1 = empty."""
    best = -1
    for domain in range(len(capacity)):
        if capacity[domain] >= left and (best < 0 or capacity[domain] < capacity[best]):
            best = domain
    if best >= 0:
        return best
    for domain in range(len(capacity)):
        if capacity[domain] > 0 and (best < 0 or capacity[domain] > capacity[best]):
            best = domain
    return best


@njit(cache=True)
def _keep_one_domain(nodes: int, node_rows: int, parts: I64, within: I64, near: I64) -> None:
    """Set ``parts`` to 0 outside the domain that serves the shape; everywhere when there is none."""
    capacity = _capacities(node_rows, within, parts)
    best, best_count = -1, 0
    inside = np.zeros(node_rows, dtype=np.int64)
    for domain in range(len(capacity)):
        if capacity[domain] < nodes:
            continue
        count = 0
        if len(near) > 0:
            for node in range(node_rows):
                inside[node] = parts[node] if within[node] == domain else 0
            below, left = _capacities(node_rows, near, inside), nodes
            while left > 0:
                other = _next_domain(left, below)
                left -= below[other]
                below[other] = 0
                count += 1
        if best < 0 or count < best_count or (count == best_count and capacity[domain] < capacity[best]):
            best, best_count = domain, count
    for node in range(node_rows):
        if within[node] != best:
            parts[node] = 0


@njit(cache=True)
def _take_best(
    domain: int, left: int, need: int, node_rows: int, near: I64, parts: I64, free: I64, largest: int, rank: I64,
    node_first: I64, node_gpus: I64, used: I64, out: I64, held: I64, mine: int, chosen: I64, at: int,
) -> int:  # fmt: skip
    """Append GPUs for up to ``left`` parts on nodes of the domain (-1 = any), the fullest or highest first; returns how many."""
    able = np.empty(node_rows, dtype=np.int64)
    count = 0
    for node in range(node_rows):
        if parts[node] > 0 and (domain < 0 or near[node] == domain):
            able[count] = node
            count += 1
    while len(rank) > 0 and left > 0 and count > 0:
        best = 0
        for position in range(1, count):
            if rank[able[position]] > rank[able[best]]:
                best = position
        node = able[best]
        taken = min(left, parts[node])
        at = _take_on_node(node_first[node], node_gpus[node], taken * need, used, out, held, mine, chosen, at)
        left -= taken
        count -= 1
        for position in range(best, count):  # in order of rows, as ties ask
            able[position] = able[position + 1]
    if len(rank) > 0:
        return at
    for level in range(need, largest + 1):
        for position in range(count):
            node = able[position]
            if left > 0 and free[node] == level:
                taken = min(left, parts[node])
                at = _take_on_node(node_first[node], node_gpus[node], taken * need, used, out, held, mine, chosen, at)
                left -= taken
        if left == 0:
            break
    return at


@njit(cache=True)
def _most_used(
    milli: int, memory_mib: int, pool_row: int, mine: int, node_rows: int, node_pool: I64, node_first: I64, node_gpus: I64,
    node_memory_mib: I64, node_masked: I64, used: I64, used_mib: I64, out: I64, held: I64, room: I64,
) -> int:  # fmt: skip
    """Return the most used GPU with room, and memory, for a fraction; -1 = none that is shared already."""
    best = -1
    for node in range(node_rows):
        if node_pool[node] != pool_row or node_masked[node] > 0 or (len(room) > 0 and room[node] < 1):
            continue
        left_mib = node_memory_mib[node] - (memory_mib if memory_mib > 0 else node_memory_mib[node] * milli // WHOLE)
        for k in range(node_gpus[node]):
            gpu = node_first[node] + k
            if used[gpu] == 0 or used[gpu] + milli > WHOLE or out[gpu] > 0 or (held[gpu] > 0 and held[gpu] != mine):
                continue
            if used_mib[gpu] > left_mib:
                continue
            if best < 0 or used[gpu] > used[best]:
                best = gpu
    return best


@njit(cache=True)
def _highest(
    milli: int, memory_mib: int, pool_row: int, mine: int, node_rows: int, node_pool: I64, node_first: I64, node_gpus: I64,
    node_memory_mib: I64, node_masked: I64, used: I64, used_mib: I64, out: I64, held: I64, room: I64, rank: I64,
) -> int:  # fmt: skip
    """Return the GPU of the highest rank that has room for a fraction, shared already or not; -1 = none."""
    best = -1
    for node in range(node_rows):
        if node_pool[node] != pool_row or node_masked[node] > 0 or (len(room) > 0 and room[node] < 1):
            continue
        left_mib = node_memory_mib[node] - (memory_mib if memory_mib > 0 else node_memory_mib[node] * milli // WHOLE)
        for k in range(node_gpus[node]):
            gpu = node_first[node] + k
            if used[gpu] + milli > WHOLE or out[gpu] > 0 or (held[gpu] > 0 and held[gpu] != mine):
                continue
            if used[gpu] > 0 and used_mib[gpu] > left_mib:
                continue
            if best < 0 or rank[gpu] > rank[best]:
                best = gpu
    return best


@njit(cache=True)
def find_gpus(
    pool_row: int, nodes: int, milli_per_node: int, loose: int, block: int, memory_mib: int, mine: int, node_rows: int,
    node_pool: I64, node_first: I64, node_gpus: I64, node_memory_mib: I64, node_masked: I64, used: I64, used_mib: I64, out: I64,
    held: I64, room: I64, within: I64, near: I64, place: I64, rank: I64, chosen: I64,
) -> int:  # fmt: skip
    """Fill ``chosen`` with GPU rows, ascending per node, and return how many; 0 when the shape does not fit now.

    ``mine`` is the workload row + 1 whose held GPUs count as usable. ``node_masked`` > 0 leaves a node out. ``memory_mib`` is what
    a fraction takes of its GPU's memory, 0 = its part of it. ``rank`` is per node row, for a fraction per GPU row. ``chosen`` needs
    room for nodes * 72 entries.
    """
    if milli_per_node < WHOLE and len(rank) > 0:
        best = _highest(
            milli_per_node, memory_mib, pool_row, mine, node_rows, node_pool, node_first, node_gpus, node_memory_mib, node_masked,
            used, used_mib, out, held, room, rank,
        )  # fmt: skip
        chosen[0] = best
        return 1 if best >= 0 else 0
    if milli_per_node < WHOLE:
        best = _most_used(
            milli_per_node, memory_mib, pool_row, mine, node_rows, node_pool, node_first, node_gpus, node_memory_mib, node_masked,
            used, used_mib, out, held, room,
        )  # fmt: skip
        if best >= 0:
            chosen[0] = best
            return 1
    need = max(1, milli_per_node // WHOLE)
    free = np.zeros(node_rows, dtype=np.int64)
    parts = np.zeros(node_rows, dtype=np.int64)
    largest, total = 0, 0
    for node in range(node_rows):
        if node_pool[node] != pool_row or node_masked[node] > 0:
            continue
        for k in range(node_gpus[node]):
            gpu = node_first[node] + k  # _usable, written out: a call here costs ten times as much
            if used[gpu] == 0 and out[gpu] == 0 and (held[gpu] == 0 or held[gpu] == mine):
                free[node] += 1
        if free[node] >= need:
            parts[node] = free[node] if loose > 0 else 1
            if len(room) > 0:
                parts[node] = min(parts[node], room[node])
            if block > 0 and not _has_block(node_first[node], node_gpus[node], need, used, out, held, mine):
                parts[node] = 0
            total += parts[node]
            largest = max(largest, free[node])
    if total < nodes:
        return 0
    if len(place) > 0:
        _keep_one_block(node_rows, nodes, parts, place, within)
    elif len(within) > 0:
        _keep_one_domain(nodes, node_rows, parts, within, near)
    if len(near) == 0:
        at = _take_best(
            -1, nodes, need, node_rows, near, parts, free, largest, rank, node_first, node_gpus, used, out, held, mine, chosen, 0
        )
        return at if at == nodes * need else 0
    capacity, at = _capacities(node_rows, near, parts), 0
    while at < nodes * need:
        domain = _next_domain(nodes - at // need, capacity)
        if domain < 0:
            return 0
        at = _take_best(
            domain, nodes - at // need, need, node_rows, near, parts, free, largest, rank, node_first, node_gpus, used, out,
            held, mine, chosen, at,
        )  # fmt: skip
        capacity[domain] = 0
    return at


@njit(cache=True)
def largest_node(pool: int, nodes: int, node_pool: I64, node_gpus: I64, room: I64) -> int:
    """Return the GPUs of the largest node of a pool that has room, 0 when it has none."""
    largest = 0
    for n in range(nodes):
        if node_pool[n] == pool and node_gpus[n] > largest and (len(room) == 0 or room[n] > 0):
            largest = node_gpus[n]
    return largest


@njit(cache=True)
def most_parts(
    pool_row: int, nodes: int, need: int, loose: int, block: int, node_rows: int, node_pool: I64, node_first: I64,
    node_gpus: I64, out: I64, room: I64, within: I64, place: I64, healthy_only: int,
) -> int:  # fmt: skip
    """Return how many parts of ``need`` whole GPUs the pool could serve when empty, or its best domain, or block of nodes."""
    parts = np.zeros(node_rows, dtype=np.int64)
    count = 0
    nothing = np.zeros(len(out) if block > 0 or healthy_only == 0 else 0, dtype=np.int64)
    broken = out if healthy_only > 0 else nothing
    for node in range(node_rows):
        if node_pool[node] != pool_row:
            continue
        size = 0
        for k in range(node_gpus[node]):
            if healthy_only == 0 or out[node_first[node] + k] == 0:
                size += 1
        if size >= need:
            parts[node] = size if loose > 0 else 1
            if len(room) > 0:
                parts[node] = min(parts[node], room[node])
            if block > 0 and not _has_block(node_first[node], node_gpus[node], need, nothing, broken, nothing, 0):
                parts[node] = 0
            count += parts[node]
    most = 0
    if len(place) > 0:
        for able in _block_counts(node_rows, nodes, parts, place, within):
            most = max(most, able)
        return most
    if len(within) == 0:
        return count
    capacity = _capacities(node_rows, within, parts)
    for domain in range(len(capacity)):
        most = max(most, capacity[domain])
    return most


@njit(cache=True)
def ready_times(
    pool_row: int,
    need: int,
    block: int,
    now_ms: int,
    never_ms: int,
    node_rows: int,
    node_pool: I64,
    node_first: I64,
    node_gpus: I64,
    out: I64,
    held: I64,
    gpu_free_ms: I64,
    ready_ms: I64,
) -> None:
    """Fill ``ready_ms[node]`` with the instant at which the node has ``need`` GPUs free (a ``block`` of them), by what is known.

    ``gpu_free_ms[gpu]`` is when the GPU's last run is expected to release it (``now_ms`` if free, ``never_ms`` if unknown).
    """
    times = np.empty(max(1, node_gpus[:node_rows].max()) if node_rows > 0 else 1, dtype=np.int64)
    for node in range(node_rows):
        ready_ms[node] = never_ms
        if node_pool[node] != pool_row:
            continue
        size = 0
        for k in range(node_gpus[node]):
            gpu = node_first[node] + k
            if out[gpu] == 0 and held[gpu] == 0:
                # insertion into a short ascending list
                place = size
                while place > 0 and times[place - 1] > gpu_free_ms[gpu]:
                    times[place] = times[place - 1]
                    place -= 1
                times[place] = gpu_free_ms[gpu]
                size += 1
        if block > 0:
            for start in range(0, node_gpus[node] - need + 1, need):
                last_ms = now_ms
                for gpu in range(node_first[node] + start, node_first[node] + start + need):
                    last_ms = max(last_ms, gpu_free_ms[gpu] if out[gpu] == 0 and held[gpu] == 0 else never_ms)
                ready_ms[node] = min(ready_ms[node], last_ms)
        elif size >= need:
            ready_ms[node] = max(now_ms, times[need - 1])

"""What could be emptied for a shape: targets, their items, and what each costs at least. ``victims.search`` chooses among them.

A *target* is a node (or a GPU, when the shape is a fraction of one) that could serve the shape: ``missing`` units more than are
free on it. An *item* is what can be given back on it as a whole: one run with the GPUs it has there, or all runs that share one
GPU. Costs are vectors of ``COSTS`` integers >= 0, compared lexicographically and added up.

Pure functions of the columns; O(allocations) but for the choice of items on one target, which is a knapsack over its GPUs.
Naive equivalent of all of it together with the search: all subsets of the runs (``oracles.least_victims``).
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

I64 = NDArray[np.int64]

WHOLE = 1_000
COSTS = 7  # length of a cost vector
NONE_LEFT = 1 << 60


@njit(cache=True)
def collect(
    pool: int, units: int, milli: int, mine: int, nodes: int, node_pool: I64, node_first: I64, node_gpus: I64, masked: I64,
    gpu_node: I64, used: I64, out: I64, held: I64, allocs: int, alloc_run: I64, alloc_gpu: I64, alloc_milli: I64, eligible: I64,
    missing: I64, item_target: I64, item_gain: I64, entry_next: I64, blocked: I64,
) -> int:  # fmt: skip
    """Fill ``missing`` per target (< 1: fits as it is; ``NONE_LEFT``: cannot serve) and the items; returns how many entries.

    ``units`` is how many whole GPUs a node must give, 0 for a fraction of ``milli`` on one GPU. An entry stands for a run on a
    target; those with ``item_target`` >= 0 head an item, the others follow by ``entry_next``. Entry number = row of the run's
    first allocation there. ``blocked`` is scratch per GPU.
    """
    missing[:] = NONE_LEFT
    item_target[:] = -1
    item_gain[:] = 0
    entry_next[:] = -1
    entries = 0
    if units == 0:
        for node in range(nodes):
            if node_pool[node] != pool or masked[node] > 0:
                continue
            for gpu in range(node_first[node], node_first[node] + node_gpus[node]):
                if out[gpu] == 0 and (held[gpu] == 0 or held[gpu] == mine):
                    missing[gpu] = used[gpu] + milli - WHOLE
        for a in range(allocs):
            if alloc_milli[a] > 0 and eligible[alloc_run[a]] > 0 and missing[alloc_gpu[a]] < NONE_LEFT:
                item_target[a] = alloc_gpu[a]
                item_gain[a] = alloc_milli[a]
                entries += 1
        return entries
    blocked[:] = 0
    for a in range(allocs):
        if alloc_milli[a] > 0 and eligible[alloc_run[a]] == 0:
            blocked[alloc_gpu[a]] = 1
    for node in range(nodes):
        if node_pool[node] == pool and masked[node] == 0 and node_gpus[node] >= units:
            missing[node] = units
            for gpu in range(node_first[node], node_first[node] + node_gpus[node]):
                if out[gpu] > 0 or (held[gpu] > 0 and held[gpu] != mine):
                    blocked[gpu] = 1
                elif blocked[gpu] == 0 and used[gpu] == 0:
                    missing[node] -= 1
    shared = np.full(len(used), -1, dtype=np.int64)  # first entry of a GPU that several runs share
    piece = np.full(nodes, -1, dtype=np.int64)  # last entry made of a node
    for a in range(allocs):
        gpu = alloc_gpu[a]
        if alloc_milli[a] == 0 or blocked[gpu] == 1:
            continue
        node = gpu_node[gpu]
        if missing[node] == NONE_LEFT:
            continue
        if alloc_milli[a] < WHOLE:
            if shared[gpu] < 0:
                shared[gpu] = a
                item_target[a] = node
                item_gain[a] = 1
            else:
                entry_next[a] = entry_next[shared[gpu]]
                entry_next[shared[gpu]] = a
            entries += 1
            continue
        before = piece[node]
        while before >= 0 and alloc_run[before] != alloc_run[a]:
            before = entry_next[before]
        if before >= 0:
            item_gain[before] += 1
            continue
        item_target[a] = node
        item_gain[a] = 1
        entry_next[a] = piece[node]  # until the end, the list of the node's whole items
        piece[node] = a
        entries += 1
    for a in range(allocs):
        if item_target[a] >= 0 and alloc_milli[a] == WHOLE:
            entry_next[a] = -1
    return entries


@njit(cache=True)
def weights(rows: int, parent: I64, share_ppm: I64, weight: I64) -> None:
    """Fill ``weight`` with each budget line's part of its pool in ppm, at least 1; a parent's row is below its children's."""
    for row in range(rows):
        above = weight[parent[row]] if parent[row] >= 0 else WHOLE * WHOLE
        weight[row] = max(1, above * share_ppm[row] // (WHOLE * WHOLE))


@njit(cache=True)
def heads_of(targets: int, item_target: I64, alloc_run: I64, cost: I64) -> I64:
    """Return the heads of items by target, those of one target by the first number of their cost, then ascending."""
    first, items = np.zeros(targets + 1, dtype=np.int64), 0
    for entry in range(len(item_target)):
        if item_target[entry] >= 0:
            first[item_target[entry] + 1] += 1
            items += 1
    for target in range(targets):
        first[target + 1] += first[target]
    heads, at = np.empty(items, dtype=np.int64), first.copy()
    for entry in range(len(item_target)):
        target = item_target[entry]
        if target < 0:
            continue
        price, place = cost[alloc_run[entry], 0], at[target]
        while place > first[target] and cost[alloc_run[heads[place - 1]], 0] > price:
            heads[place] = heads[place - 1]
            place -= 1
        heads[place] = entry
        at[target] += 1
    return heads


@njit(cache=True)
def by_floor(targets: int, floor: I64) -> I64:
    """Return the targets that could give what is missing, by their least cost, then ascending: merged in runs that double."""
    order, count = np.empty(targets, dtype=np.int64), 0
    for target in range(targets):
        if floor[target, 0] < NONE_LEFT:
            order[count] = target
            count += 1
    order, other, length = order[:count].copy(), np.empty(count, dtype=np.int64), 1
    while length < count:
        for start in range(0, count, 2 * length):
            a, b, at = start, min(start + length, count), start
            middle, end = b, min(start + 2 * length, count)
            while at < end:
                left = b == end
                if a < middle and b < end:
                    one, two, k = order[a], order[b], 0
                    while k < COSTS and floor[one, k] == floor[two, k]:
                        k += 1
                    left = k == COSTS or floor[one, k] < floor[two, k]
                if left:
                    other[at] = order[a]
                    a += 1
                else:
                    other[at] = order[b]
                    b += 1
                at += 1
        order, other = other, order
        length *= 2
    return order


@njit(cache=True)
def least(
    targets: int, missing: I64, items: int, item_entry: I64, item_target: I64, item_gain: I64, entry_next: I64, alloc_run: I64,
    cost: I64, share: I64, touched: I64, floor: I64, first: I64, count: I64,
) -> None:  # fmt: skip
    """Fill ``floor[target]``: the least shared cost of giving what is missing there; ``NONE_LEFT`` when all of it is too little.

    ``item_entry`` lists the heads by target, then ascending; ``first`` and ``count`` get each target's part of it. ``share[run]``
    gets the run's cost, or, when it is on several targets, an equal part of the first number of it and nothing of the rest (never
    more than a true part, so that sums of shares never exceed the cost). ``touched`` is scratch per run.
    """
    touched[:] = 0
    count[:] = 0
    for i in range(items):
        entry = item_entry[i]
        target = item_target[entry]
        if count[target] == 0:
            first[target] = i
        count[target] += 1
        while entry >= 0:
            touched[alloc_run[entry]] += 1
            entry = entry_next[entry]
    for run in range(len(touched)):
        if touched[run] == 1:
            for k in range(COSTS):
                share[run, k] = cost[run, k]
        elif touched[run] > 1:
            share[run] = 0
            share[run, 0] = cost[run, 0] // touched[run]
    mine = np.zeros(COSTS, dtype=np.int64)
    sums = np.zeros(COSTS, dtype=np.int64)
    most = 0
    for target in range(targets):
        if missing[target] < NONE_LEFT:
            most = max(most, missing[target])
    best = np.empty((most + 1, COSTS), dtype=np.int64)
    for target in range(targets):
        floor[target, 0] = NONE_LEFT
        need = missing[target]
        if need < 1 or need == NONE_LEFT or count[target] == 0:
            continue
        total, least_gain = 0, NONE_LEFT
        for i in range(first[target], first[target] + count[target]):
            total += item_gain[item_entry[i]]
            least_gain = min(least_gain, item_gain[item_entry[i]])
        if total < need:
            continue
        if total - least_gain < need:  # no choice: all must go
            for k in range(COSTS):
                floor[target, k] = 0
            for i in range(first[target], first[target] + count[target]):
                entry = item_entry[i]
                while entry >= 0:
                    for k in range(COSTS):
                        floor[target, k] += share[alloc_run[entry], k]
                    entry = entry_next[entry]
            continue
        best[: need + 1] = NONE_LEFT
        best[0] = 0
        for i in range(first[target], first[target] + count[target]):
            mine[:] = 0
            entry = item_entry[i]
            gain = item_gain[entry]
            while entry >= 0:
                for k in range(COSTS):
                    mine[k] += share[alloc_run[entry], k]
                entry = entry_next[entry]
            for given in range(need, 0, -1):
                before = max(0, given - gain)
                if best[before, 0] == NONE_LEFT:
                    continue
                for k in range(COSTS):
                    sums[k] = best[before, k] + mine[k]
                k = 0
                while k < COSTS and sums[k] == best[given, k]:
                    k += 1
                if k < COSTS and sums[k] < best[given, k]:
                    for k in range(COSTS):
                        best[given, k] = sums[k]
        for k in range(COSTS):
            floor[target, k] = best[need, k]


@njit(cache=True)
def classes(
    targets: int, order: I64, missing: I64, first: I64, count: I64, item_entry: I64, item_gain: I64, entry_next: I64,
    alloc_run: I64, touched: I64, leaf: I64, milli: I64, class_of: I64,
) -> None:  # fmt: skip
    """Set ``class_of[target]`` of targets that differ in cost only: all of their items must go, and budgets and sizes are equal.

    Class = the first target of it in ``order``; -1 for targets with a choice or with runs that are on other targets too.
    """
    size = 64
    while size < 2 * targets:
        size *= 2
    bucket = np.full(size, -1, dtype=np.int64)
    start, length = np.zeros(len(class_of), dtype=np.int64), np.zeros(len(class_of), dtype=np.int64)
    kinds = np.zeros((len(entry_next) + 1, 2), dtype=np.int64)
    used = 0
    for position in range(targets):
        target = order[position]
        total, smallest, alone, code = 0, NONE_LEFT, True, 0
        start[target] = used
        for i in range(first[target], first[target] + count[target]):
            entry = item_entry[i]
            total += item_gain[entry]
            smallest = min(smallest, item_gain[entry])
            while entry >= 0:
                run = alloc_run[entry]
                alone = alone and touched[run] == 1
                place = used
                while place > start[target] and (
                    kinds[place - 1, 0] > leaf[run] or (kinds[place - 1, 0] == leaf[run] and kinds[place - 1, 1] > milli[run])
                ):
                    kinds[place] = kinds[place - 1]
                    place -= 1
                kinds[place, 0], kinds[place, 1] = leaf[run], milli[run]
                code = (code + (leaf[run] + 2) * 1_000_003 + milli[run]) % 2_147_483_647
                used += 1
                entry = entry_next[entry]
        length[target] = used - start[target]
        if not alone or total - smallest >= missing[target]:
            continue
        slot = code & (size - 1)
        while True:
            other = bucket[slot]
            if other < 0:
                bucket[slot] = target
                class_of[target] = target
                break
            same = length[other] == length[target]
            for k in range(length[target] if same else 0):
                a, b = start[other] + k, start[target] + k
                same = same and kinds[a, 0] == kinds[b, 0] and kinds[a, 1] == kinds[b, 1]
            if same:
                class_of[target] = other
                break
            slot = (slot + 1) & (size - 1)

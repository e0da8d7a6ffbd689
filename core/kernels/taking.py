"""The plan of preemption for somebody who asks for GPUs only, looked for among the few runs that may go.

What ``policy.choosing`` does for all, here in one call and in rows of ``losers``: the same targets, the same search, and the same
GPUs. Nodes on which nobody may go are only counted. The one who asks holds nothing, and nodes are kept from him that are kept for
somebody else. A fraction for which nothing is found here is not proved to find nothing: memory of GPUs is another's business.

Pure functions of the columns. They write who goes and what is gotten; ``used`` and ``used_mib`` are, when they return, as they
were. Naive equivalent: ``choosing.least_plan`` over all runs, and ``oracles.least_victims``.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from apportion.core.kernels.bare import bare
from apportion.core.kernels.losers import Losers
from apportion.core.kernels.serve.columns import WHOLE, Stock
from apportion.core.kernels.serve.stock import pick_on_node
from apportion.core.kernels.targets import COSTS, NONE_LEFT, by_floor, classes, heads_of, least
from apportion.core.kernels.victims import search

I64 = NDArray[np.int64]

# as in ``effects``
BUILT_ON = {
    "bare": "6b2fd7db475f", "losers": "9f8f8e6f5b13", "serve.columns": "00138576507d", "serve.stock": "b80ae8957b60",
    "targets": "2a01b8b80016", "victims": "42f1c42bc505"
}  # fmt: skip

NOBODY, FOUND, ELSEWHERE = range(3)  # there is no plan; there is one; to be asked of who knows more than GPUs


@bare
def _kept(stock: Stock, node: int, row: int) -> bool:
    return stock.until_ms[node] > 0 and stock.holder[node] != row + 1


@bare
def _fitting(stock: Stock, row: int, units: int, milli: int) -> int:
    """Return how many nodes could serve a part of the shape as they are; of a fraction, whether one could."""
    free, part, last, count = stock.free, stock.part, stock.last, 0
    for node in range(len(free)):
        fits = free[node] >= units if units > 0 else free[node] > 0 or part[node] >= milli
        if fits and last[node] >= 0 and not _kept(stock, node, row):
            count += 1
    return count


@bare
def _collect_parts(
    losers: Losers, may_go: NDArray[np.uint8], stock: Stock, row: int, milli: int, missing: I64, item_target: I64, item_gain: I64
) -> int:  # fmt: skip
    """Do as ``targets.collect`` for a fraction; a target is an entry of a GPU. Returns how many entries."""
    entries, card, owner, spot = 0, losers.card, losers.owner, losers.spot
    for k in range(len(card)):
        gpu = card[k]
        node = stock.node_of[gpu]
        if stock.last[node] >= 0 and stock.out[gpu] == 0 and stock.held[gpu] == 0 and not _kept(stock, node, row):
            missing[k] = stock.used[gpu] + milli - WHOLE
    for a in range(len(owner)):
        if may_go[owner[a]] == 1 and missing[spot[a]] < NONE_LEFT:
            item_target[a], item_gain[a] = spot[a], losers.held_milli[a]
            entries += 1
    return entries


@bare
def _collect(
    losers: Losers, may_go: NDArray[np.uint8], stock: Stock, row: int, units: int, missing: I64, item_target: I64, item_gain: I64,
    entry_next: I64, going: I64, shared: I64, piece: I64,
) -> int:  # fmt: skip
    """Do as ``targets.collect`` for whole GPUs; a target is an entry of a node. Returns how many entries.

    ``going`` (0), ``shared`` (-1) per entry of a GPU, and ``piece`` (-1) of a node, are scratch.
    """
    owner, spot, place, held_milli, card, node_row = (
        losers.owner, losers.spot, losers.place, losers.held_milli, losers.card, losers.node,
    )  # fmt: skip
    used, out, held, last, first_gpu, size = stock.used, stock.out, stock.held, stock.last, stock.first_gpu, stock.gpus
    entries = 0
    for a in range(len(owner)):
        if may_go[owner[a]] == 1:
            going[spot[a]] += held_milli[a]
    for k in range(len(node_row)):
        node = node_row[k]
        if last[node] < 0 or size[node] < units or _kept(stock, node, row):
            continue
        missing[k] = units
        for gpu in range(first_gpu[node], first_gpu[node] + size[node]):
            if used[gpu] == 0 and out[gpu] == 0 and held[gpu] == 0:
                missing[k] -= 1
    for a in range(len(owner)):
        gpu, target = card[spot[a]], place[a]
        # where somebody stays nothing is freed
        if going[spot[a]] != used[gpu] or out[gpu] > 0 or held[gpu] > 0 or missing[target] == NONE_LEFT:
            continue
        if held_milli[a] < WHOLE:
            if shared[spot[a]] < 0:
                shared[spot[a]], item_target[a], item_gain[a] = a, target, 1
            else:
                entry_next[a] = entry_next[shared[spot[a]]]
                entry_next[shared[spot[a]]] = a
            entries += 1
            continue
        before = piece[target]
        while before >= 0 and owner[before] != owner[a]:
            before = entry_next[before]
        if before >= 0:
            item_gain[before] += 1
            continue
        item_target[a], item_gain[a] = target, 1
        entry_next[a], piece[target] = piece[target], a  # until the end, the list of the node's whole items
        entries += 1
    for a in range(len(owner)):
        if item_target[a] >= 0 and held_milli[a] == WHOLE:
            entry_next[a] = -1
    return entries


@bare
def _take_out(losers: Losers, stock: Stock, run: int, sign: int) -> None:
    """Imagine a run gone, or there again."""
    for k in range(losers.begin[run], losers.begin[run + 1]):
        a = losers.held[k]
        stock.used[losers.gpu[a]] -= sign * losers.held_milli[a]
        stock.used_mib[losers.gpu[a]] -= sign * losers.held_mib[a]


@bare
def _gpus_for(
    losers: Losers, stock: Stock, row: int, nodes: int, each: int, open_: int, able: I64, level: I64, gpus: I64
) -> int:  # fmt: skip
    """Write the GPUs that he gets with the victims gone, as ``pack.find_gpus`` chooses; returns how many, 0 = he does not fit."""
    used, out, held, first_gpu, size = stock.used, stock.out, stock.held, stock.first_gpu, stock.gpus
    if each < WHOLE:  # on a GPU that somebody leaves: on no other was room
        best = -1
        for gpu in losers.card:
            node = stock.node_of[gpu]
            if out[gpu] > 0 or held[gpu] > 0 or stock.last[node] < 0 or _kept(stock, node, row):
                continue
            if used[gpu] == 0 or used[gpu] + each > WHOLE:
                continue
            if stock.used_mib[gpu] + stock.memory_mib[node] * each // WHOLE > stock.memory_mib[node]:
                continue
            if best < 0 or used[gpu] > used[best]:
                best = gpu
        if best >= 0:
            gpus[0] = best
            return 1
    need, largest, count, k = max(1, each // WHOLE), 0, 0, 0
    for at in range(len(stock.free) if open_ > 0 else len(losers.node)):  # with none open, those alone on which somebody goes
        node = at if open_ > 0 else losers.node[at]
        free = stock.free[node]
        if k < len(losers.node) and losers.node[k] == node:
            k, free = k + 1, 0
            for gpu in range(first_gpu[node], first_gpu[node] + size[node]):
                if used[gpu] == 0 and out[gpu] == 0 and held[gpu] == 0:
                    free += 1
        if free >= need and stock.last[node] >= 0 and not _kept(stock, node, row):
            able[count], level[count] = node, free
            largest = max(largest, free)
            count += 1
    if count < nodes:
        return 0
    taken = 0
    for free in range(need, largest + 1):
        for k in range(count):
            node = able[k]
            if taken < nodes and level[k] == free:
                pick_on_node(first_gpu[node], size[node], need, used, out, held, gpus, taken * need)
                taken += 1
    return nodes * need


@njit(cache=True)
def _search(
    losers: Losers, may_go: NDArray[np.uint8], room: I64, stock: Stock, row: int, nodes: int, each: int, open_: int, limit: int,
    chosen: I64,
) -> tuple[bool, bool]:  # fmt: skip
    """Choose who goes; tells whether there is a plan, and whether it is proved to be the least."""
    units, allocs, runs = each // WHOLE, len(losers.owner), len(losers.run)
    places = len(losers.node) if units > 0 else len(losers.card)
    missing, item_target, item_gain, following = (
        np.full(places, NONE_LEFT), np.full(allocs, -1), np.zeros(allocs, dtype=np.int64), np.full(allocs, -1),
    )  # fmt: skip
    if units > 0:
        cards = len(losers.card)
        entries = _collect(
            losers, may_go, stock, row, units, missing, item_target, item_gain, following, np.zeros(cards, dtype=np.int64),
            np.full(cards, -1), np.full(places, -1),
        )  # fmt: skip
    else:
        entries = _collect_parts(losers, may_go, stock, row, each, missing, item_target, item_gain)
    wanted = nodes - (_fitting(stock, row, units, each) if open_ > 0 else 0)
    if entries == 0 or wanted < 1:
        return False, True
    owner, cost, milli = losers.owner, losers.cost, losers.milli
    heads = heads_of(places, item_target, owner, cost)
    share, touched = np.empty((runs, COSTS), dtype=np.int64), np.empty(runs, dtype=np.int64)
    first, count, floor = (
        np.empty(places, dtype=np.int64), np.empty(places, dtype=np.int64), np.empty((places, COSTS), dtype=np.int64),
    )  # fmt: skip
    least(places, missing, len(heads), heads, item_target, item_gain, following, owner, cost, share, touched, floor, first, count)
    order = by_floor(places, floor)
    if wanted > len(order):
        return False, True
    leaf, largest = np.empty(runs, dtype=np.int64), 0
    for k in range(runs):
        leaf[k] = losers.line[k] if losers.counted[k] == 1 else -1
        if may_go[k] == 1:
            largest = max(largest, milli[k])
    class_of = np.full(places, -1)
    classes(len(order), order, missing, first, count, heads, item_gain, following, owner, touched, leaf, milli, class_of)
    needed, best = np.array([nodes * each, largest]), np.full(COSTS, NONE_LEFT)
    for first_try in (True, False):
        by = order if first_try else order[np.argsort(floor[order, 3].copy(), kind="mergesort")]
        steps = search(
            wanted, len(by), by, class_of, missing, first, count, heads, item_gain, following, owner, cost, share, floor, leaf,
            milli, room, needed, limit, best, chosen,
        )  # fmt: skip
        if steps >= -limit:  # a plan, or the proof that there is none
            return steps > 0, first_try and abs(steps) <= limit
    return False, False


@bare
def _before(losers: Losers, rank: I64, a: int, b: int) -> bool:
    """Tell whether certificates count one before the other (``policy.preempting``)."""
    one, two = losers.counted[a] == 1, losers.counted[b] == 1
    if one != two:
        return two
    if one and losers.line[a] != losers.line[b]:
        return rank[losers.line[a]] < rank[losers.line[b]]
    if losers.milli[a] != losers.milli[b]:
        return losers.milli[a] > losers.milli[b]
    if losers.cost[a, 5] != losers.cost[b, 5]:
        return losers.cost[a, 5] < losers.cost[b, 5]
    return losers.cost[a, 6] < losers.cost[b, 6]


@bare
def _allowed(losers: Losers, room: I64, victims: I64, count: int, need_milli: int, given: I64) -> bool:
    """Check again, on what is left of the plan, what the search promised; ``given`` (0) is scratch per line."""
    total, largest = 0, 0
    for k in range(count):
        run = victims[k]
        line, milli = losers.line[run], losers.milli[run]
        if losers.counted[run] == 1:
            given[line] += milli
            if 2 * given[line] - milli >= room[line]:
                return False
        total += milli
        largest = max(largest, milli)
    return total <= need_milli + largest


@njit(cache=True)
def plan_for(
    losers: Losers, may_go: NDArray[np.uint8], loose_milli: int, idle_milli: int, room: I64, rank: I64, stock: Stock, row: int,
    nodes: int, each: int, open_: int, limit: int, victims: I64, gpus: I64,
) -> tuple[int, int, int]:  # fmt: skip
    """Write who must go, as entries of ``losers`` in the order of certificates, and which GPUs he gets.

    Returns what was found, how many go, and how many GPUs he gets. ``loose_milli`` is what may go, ``idle_milli`` what idles, and
    with ``open_`` 0 no node could serve a part of the shape as it is.
    """
    if loose_milli == 0 or loose_milli + idle_milli < nodes * each:
        return NOBODY, 0, 0
    none = NOBODY if each >= WHOLE else ELSEWHERE
    chosen, size = np.zeros(len(losers.run), dtype=np.int64), len(stock.free) if open_ > 0 else len(losers.node)
    able, level = np.empty(size, dtype=np.int64), np.empty(size, dtype=np.int64)
    found, proved = _search(losers, may_go, room, stock, row, nodes, each, open_, limit, chosen)
    if not found:
        return none, 0, 0
    for run in range(len(chosen)):
        if chosen[run] == 1:
            _take_out(losers, stock, run, 1)
    count = _gpus_for(losers, stock, row, nodes, each, open_, able, level, gpus)
    for run in range(0 if proved or count == 0 else len(chosen)):  # of a plan that is proved least all are needed
        if chosen[run] == 1:
            _take_out(losers, stock, run, -1)
            without = _gpus_for(losers, stock, row, nodes, each, open_, able, level, gpus)
            if without > 0:
                count, chosen[run] = without, 0
            else:
                _take_out(losers, stock, run, 1)
    if not proved and count > 0:
        count = _gpus_for(losers, stock, row, nodes, each, open_, able, level, gpus)
    going = 0
    for run in range(len(chosen)):
        if chosen[run] == 1:
            _take_out(losers, stock, run, -1)
            at = going
            while at > 0 and _before(losers, rank, run, victims[at - 1]):
                victims[at] = victims[at - 1]
                at -= 1
            victims[at] = run
            going += 1
    if count == 0 or not _allowed(losers, room, victims, going, nodes * each, np.zeros(len(room), dtype=np.int64)):
        return none, 0, 0
    return FOUND, going, count

"""Depth: whoever of a budget may start though it is not his turn, ready or not, funded or not.

Walks queues to their end, and leaves out whom a count or a note rules out, whom the plan leaves no GPUs, and who would delay the
first of his budget (``places``). Who may be worth a look is listed once for all passes of a cycle (``Open``), and is off the list
as soon as it is known that he is not: starts only take space. Pure functions of the columns and of the arrays given. Naive
equivalent: try each who waits by ``pack.find_gpus``.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from apportion.core.kernels.asked import (
    EACH_BITS,
    LEFT_MOST,
    SECOND_MS,
    each_of,
    idle_of,
    left_s_of,
    nodes_of,
    over_ms_of,
    plain_of,
)
from apportion.core.kernels.bare import bare
from apportion.core.kernels.serve.columns import (
    BUDGET,
    EACH,
    LEFT_MS,
    NODES,
    NOT_BEFORE_MS,
    PENDING,
    WISH,
    Ends,
    Jobs,
    Lines,
    Places,
    Room,
    Tried,
)
from apportion.core.kernels.serve.order import choose_above, next_leaf
from apportion.core.kernels.serve.places import find_place
from apportion.core.kernels.serve.shapes import among, buckets_of, class_ending, has_room, is_listed, leaves_plan
from apportion.core.units import NEVER_MS

I64 = NDArray[np.int64]

# as in ``effects``
BUILT_ON = {
    "asked": "8b08d944de4e", "bare": "6b2fd7db475f", "serve.columns": "00138576507d", "serve.order": "b094c9e19445",
    "serve.places": "81e90c71d958", "serve.shapes": "a6b4fdc08477",
}  # fmt: skip

OUT, KEPT = (
    1,
    2,
)  # what is known of a position of the queue: it need not be looked at; nodes are kept for who stands there
OFF = -1  # an entry of ``Open.at``: whoever stood there is off the list
# signatures, which are what is asked for but for the end: how many are told apart, and where they are looked for
SIGNATURES, PLACES, SPREAD, MIXED, MIXED_BITS = 192, 256, 7_919, 40_503, 8
ANY = SIGNATURES  # of whoever is not ruled out by what he asks for, or is one too many


class Open(NamedTuple):
    """Who may be worth a look: everybody else, and those on idle cycles."""

    at: I64  # 2 x entries: positions of the queue, ascending, or ``OFF``
    first: I64  # 2 x leaves: the part of each, half-open
    last: I64
    asked: I64  # signature x (nodes, milli-GPU of a node)
    least_s: I64  # 2 x signature: the least that somebody listed has left, seconds; more than ``LEFT_MOST`` = there is nobody
    counts: I64  # signatures


@njit(cache=True)
def _latest_s(nodes: int, each: int, now_ms: int, room: Room) -> int:
    """Return how many seconds who asks for this may have left to find room, -1 = nobody does; ``LEFT_MOST`` = all do.

    What is kept from a class is kept from those above.
    """
    instants_ms, class_ = room.instants_ms, 0
    while class_ <= len(instants_ms) and has_room(nodes, each, room.nodes[class_], room.shared[class_]):
        class_ += 1
    if class_ == 0:
        return -1
    return LEFT_MOST if class_ > len(instants_ms) else min((instants_ms[class_ - 1] - now_ms) // SECOND_MS, LEFT_MOST - 1)


@njit(cache=True)
def rule_out(jobs: Jobs, room: Room, leaves: I64, now_ms: int, seen: NDArray[np.uint8], open_: Open) -> None:
    """List in ``open_`` who may find room by what he asks for, of the ``leaves`` where that is 1, but those ``seen`` to be out.

    All who ask for the same get the same answer, up to when they would be over: it is found once. Whoever asks for more than GPUs,
    or has nodes kept for him, is listed.
    """
    asks, queue, first, last, waits = jobs.asks, jobs.queue, jobs.first, jobs.last, jobs.waits
    for row in room.holders:
        leaf = waits[row, BUDGET]
        for at in range(first[leaf], last[leaf]):
            if queue[at] == row:
                seen[at] = KEPT
    known, signature_at = np.full(PLACES, -1, dtype=np.int64), np.empty(PLACES, dtype=np.int64)
    latest_s, asked, least_s, count = np.empty(SIGNATURES + 1, dtype=np.int64), open_.asked, open_.least_s, 0
    least_s[:] = LEFT_MOST + 1
    others, on_idle, other_count, idle_count = open_.at[0], open_.at[1], 0, 0
    for leaf in range(len(leaves)):
        open_.first[0, leaf], open_.first[1, leaf] = other_count, idle_count
        if leaves[leaf] == 1:
            for at in range(first[leaf], last[leaf]):
                ask = plain_of(asks[at])
                nodes, each, idle, left_s = nodes_of(ask), each_of(ask), idle_of(ask), left_s_of(ask)
                shape = each + (nodes << EACH_BITS)
                place = ((each + SPREAD * nodes) * MIXED >> MIXED_BITS) & (PLACES - 1)
                while known[place] != shape and known[place] >= 0:
                    place = (place + 1) & (PLACES - 1)
                if known[place] == shape:
                    signature = signature_at[place]
                else:
                    signature = min(count, ANY)
                    latest_s[signature] = _latest_s(nodes, each, now_ms, room)
                    if signature < ANY:
                        known[place], signature_at[place] = shape, signature
                        asked[signature, 0], asked[signature, 1] = nodes, each
                        count += 1
                always = (asks[at] < 0) | (seen[at] == KEPT)
                listed = int(((left_s <= latest_s[signature]) | always) & (seen[at] != OUT))
                others[other_count] = on_idle[idle_count] = at  # without a branch: who is not listed gives his place to the next
                other_count += listed & (1 - idle)
                idle_count += listed & idle
                signature = ANY if always else signature
                least_s[idle, signature] = min(least_s[idle, signature], left_s if listed == 1 else LEFT_MOST + 1)
        open_.last[0, leaf], open_.last[1, leaf] = other_count, idle_count
    open_.counts[0] = count


@njit(cache=True)
def is_open(room: Room, now_ms: int, open_: Open, idle_cycles: int) -> bool:
    """Tell whether anybody who is listed may still find room; False rules all of them out."""
    least_s, asked = open_.least_s[idle_cycles], open_.asked
    for k in range(open_.counts[0]):
        if least_s[k] <= LEFT_MOST and least_s[k] <= _latest_s(asked[k, 0], asked[k, 1], now_ms, room):
            return True
    return least_s[ANY] <= LEFT_MOST


@bare
def _used_ms(over_ms: int, now_ms: int, head_ms: int, horizon_ms: int, in_time_free: int) -> int:
    """Return for how long somebody who is over then uses up what is to spare beside the first of his budget."""
    if over_ms <= head_ms:
        return 0 if in_time_free == 1 else over_ms - now_ms
    return max(0, head_ms - now_ms) + horizon_ms


@bare
def _may(jobs: Jobs, room: Room, shapes: I64, tried: int, now_ms: int, at: int, over_ms: int) -> bool:
    """Tell whether a workload may start now, by its row and all that is known."""
    row, waits, class_ = jobs.queue[at], jobs.waits, class_ending(room.instants_ms, over_ms)
    if jobs.gone[at] == 1 or waits[row, NOT_BEFORE_MS] > now_ms or jobs.state[row] != PENDING:
        return False
    nodes, each, wish = waits[row, NODES], waits[row, EACH], waits[row, WISH]
    if wish == 0 and not has_room(nodes, each, room.nodes[class_], room.shared[class_]):
        kept = class_ > 0 and is_listed(room.holders, row)  # of other nodes than those that are kept from him
        if not kept or not has_room(nodes, each, room.nodes[0], room.shared[0]):
            return False
    if tried > 0 and among(shapes, tried, nodes, each, wish, room.instants_ms, class_):
        return False
    return len(room.profile) == 0 or leaves_plan(room.profile, nodes * each, buckets_of(over_ms, now_ms))


@bare
def _candidate(
    jobs: Jobs, room: Room, places: Places, tried: Tried, leaf: int, start: int, now_ms: int, horizon_ms: int,
    in_time_free: int, idle_cycles: int, open_: Open,
) -> int:  # fmt: skip
    """Return the entry of the first workload of ``leaf`` from ``start`` on that may start, or -1.

    Left out, while the budget keeps a place, are those that use more than is to spare: their GPUs x the time until then and
    ``horizon_ms``, or x their own time if they say that they are over by then, which is free with ``in_time_free`` 1. Whoever is
    out by what he asks for is so without a look at his row, which lies far away.
    """
    head, head_ms, spare_us = -1, 0, 0
    if idle_cycles == 0:
        head, head_ms, spare_us = places.head[leaf], places.until_ms[leaf], places.spare_us[leaf]
    queue, asks, waits, counts, shared, shapes = (
        jobs.queue,
        jobs.asks,
        jobs.waits,
        room.nodes,
        room.shared,
        tried.shapes,
    )
    instants_ms, holders, tried_count, listed = room.instants_ms, room.holders, tried.counts[0], open_.at[idle_cycles]
    for k in range(start, open_.last[idle_cycles, leaf]):
        at = listed[k]
        if at == OFF:
            continue
        ask = plain_of(asks[at])
        nodes, each, over_ms = nodes_of(ask), each_of(ask), over_ms_of(ask, now_ms)
        if asks[at] >= 0:
            class_ = class_ending(instants_ms, over_ms)
            fits = has_room(nodes, each, counts[class_], shared[class_]) or is_listed(holders, queue[at])
            if not fits or (tried_count > 0 and among(shapes, tried_count, nodes, each, 0, instants_ms, class_)):
                listed[k] = OFF
                continue
        beside = head >= 0 and queue[at] != head
        if beside and nodes * each * _used_ms(over_ms, now_ms, head_ms, horizon_ms, in_time_free) > spare_us:
            continue
        left_ms = waits[queue[at], LEFT_MS]
        over_ms = now_ms + left_ms if left_ms < NEVER_MS else NEVER_MS
        if not _may(jobs, room, shapes, tried_count, now_ms, at, over_ms):
            listed[k] = OFF
            continue
        if beside and nodes * each * _used_ms(over_ms, now_ms, head_ms, horizon_ms, in_time_free) > spare_us:
            continue
        return k
    return -1


@njit(cache=True)
def next_of_all(
    jobs: Jobs, lines: Lines, room: Room, ends: Ends, places: Places, tried: Tried, root: int, now_ms: int, horizon_ms: int,
    starts_ms: I64, in_time_free: int, idle_cycles: int, open_: Open, allowed: I64, position: I64,
) -> int:  # fmt: skip
    """Return the leaf that has a workload to be tried, at its entry ``position`` of ``open_``, or -1.

    A leaf that has none lends what it does not use: taken out of ``allowed`` along its path, it goes to all by need.
    """
    while True:
        leaf = next_leaf(lines, root)
        if leaf < 0:
            return -1
        k = position[leaf]
        if idle_cycles == 0 and places.known[leaf] == 0:  # what it keeps matters only where somebody fits
            places.head[leaf] = -1
            k = _candidate(jobs, room, places, tried, leaf, k, now_ms, horizon_ms, in_time_free, idle_cycles, open_)
            if k >= 0:
                find_place(jobs, lines, room, ends, places, leaf, now_ms, horizon_ms, starts_ms)
        if k >= 0:
            k = _candidate(jobs, room, places, tried, leaf, k, now_ms, horizon_ms, in_time_free, idle_cycles, open_)
        if k >= 0:
            position[leaf] = k
            return leaf
        lines.ready[leaf] = 0
        surplus_milli, line = allowed[leaf] - lines.running[leaf], leaf
        while surplus_milli > 0 and line >= 0:
            allowed[line] -= surplus_milli
            line = lines.parent[line]
        choose_above(lines, allowed, lines.running, leaf)

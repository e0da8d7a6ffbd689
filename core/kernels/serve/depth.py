"""Depth: whoever of a budget may start though it is not his turn, ready or not, funded or not.

Walks queues to their end, and leaves out whom a count or a note rules out, whom the plan leaves no GPUs, and who would delay the
first of his budget (``places``). ``seen`` remembers whom no later pass of the cycle need look at: starts only take space. Pure
functions of the columns and of the arrays given. Naive equivalent: try each who waits by ``pack.find_gpus``.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from apportion.core.kernels.serve.columns import (
    BUDGET,
    EACH,
    LEFT_MS,
    MIN_RUNTIME_MS,
    NODES,
    NOT_BEFORE_MS,
    PENDING,
    WHOLE,
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
from apportion.core.kernels.serve.shapes import among, buckets_of, class_ending, is_listed, leaves_plan, milli_of
from apportion.core.units import NEVER_MS

I64 = NDArray[np.int64]

# as in ``effects``
BUILT_ON = {
    "serve.columns": "070f7f6de186", "serve.order": "524115211ac4", "serve.places": "f042e8beab3a", "serve.shapes": "2e986ec0dae2"
}  # fmt: skip

UNSEEN, OUT, FOR_IDLE, FOR_ALL = range(4)  # what a position of the queue was found to be


@njit(cache=True)
def _next_open(seen: NDArray[np.uint8], start: int, end: int, idle_cycles: int) -> int:
    """Return the first position that was not found to be out, nor of the other class; -1 = there is none."""
    for at in range(start, end):
        if seen[at] == UNSEEN or (seen[at] != OUT and (seen[at] == FOR_IDLE) == (idle_cycles == 1)):
            return at
    return -1


@njit(cache=True)
def _limits(counts: I64, instants_ms: I64, limit_ms: I64) -> None:
    """Fill ``limit_ms[k]``: by when who asks for k GPUs of a node must be over; what is kept from a class is from those above."""
    for k in range(len(limit_ms)):
        class_ = 0
        while class_ < len(instants_ms) and counts[class_ + 1, k] > 0:
            class_ += 1
        limit_ms[k] = NEVER_MS if class_ == len(instants_ms) else instants_ms[class_]
        if counts[0, k] == 0:
            limit_ms[k] = -1


@njit(cache=True)
def _candidate(
    jobs: Jobs, room: Room, places: Places, tried: Tried, leaf: int, start: int, now_ms: int, horizon_ms: int,
    in_time_free: int, idle_cycles: int, seen: NDArray[np.uint8],
) -> int:  # fmt: skip
    """Return the position of the first workload of ``leaf`` from ``start`` on that may start, or -1.

    Left out are those of the other class (``idle_cycles`` 1 = only min_runtime 0, 0 = only others) and, while the budget keeps a
    place, those that use more than is to spare: their GPUs x the time until then and ``horizon_ms``, or x their own time if they
    say that they are over by then, which is free with ``in_time_free`` 1. ``seen`` remembers, per position, whom no later pass of
    the cycle need look at: starts only take space.
    """
    head, head_ms, spare_us = -1, 0, 0
    if idle_cycles == 0:
        head, head_ms, spare_us = places.head[leaf], places.until_ms[leaf], places.spare_us[leaf]
    queue, gone, state, waits, counts, shared = jobs.queue, jobs.gone, jobs.state, jobs.waits, room.nodes, room.shared
    instants_ms, holders, profile, shapes, tried_count = (
        room.instants_ms,
        room.holders,
        room.profile,
        tried.shapes,
        tried.counts[0],
    )
    most, limit_ms, asks = counts.shape[1], np.empty(counts.shape[1], dtype=np.int64), jobs.asks
    _limits(counts, instants_ms, limit_ms)
    part = WHOLE if most > 1 and counts[0, 1] > 0 else shared[0]  # the most that a fraction may ask for
    for at in range(start, jobs.last[leaf]):
        known = seen[at]
        if known != UNSEEN and (known == OUT or (known == FOR_IDLE) != (idle_cycles == 1)):
            continue
        seen[at] = OUT  # until it is found to be more
        ask = asks[at]
        if ask >= WHOLE and (ask > WHOLE * (most - 1) or counts[0, ask // WHOLE] == 0):
            continue  # no node has so much, not even of those that are kept; his row, which lies far away, is not read for it
        if 0 <= ask < WHOLE and ask > part:
            continue
        row = queue[at]
        left_ms = waits[row, LEFT_MS]
        end_ms = now_ms + left_ms if left_ms < NEVER_MS else NEVER_MS
        nodes, each = waits[row, NODES], waits[row, EACH]
        if waits[row, WISH] == 0 and (each > WHOLE * (most - 1) or end_ms > limit_ms[max(1, each // WHOLE)]):
            if each > WHOLE * (most - 1) or (each >= WHOLE and counts[0, each // WHOLE] < nodes):
                continue  # no node has so much, not even of those that are kept
            class_ = class_ending(instants_ms, end_ms)
            if (
                each >= WHOLE or shared[class_] < each
            ):  # nor has one that is not kept from it; unless they are kept for it
                if each < WHOLE and counts[0, 1] == 0 and shared[0] < each:
                    continue
                if not is_listed(holders, row):
                    continue
        if gone[at] == 1 or waits[row, NOT_BEFORE_MS] > now_ms or state[row] != PENDING:
            continue
        class_ = class_ending(instants_ms, end_ms)
        few = nodes > 1 and waits[row, WISH] == 0 and counts[class_, each // WHOLE] < nodes
        if few and (counts[0, each // WHOLE] < nodes or not is_listed(holders, row)):
            continue
        if tried_count > 0 and among(shapes, tried_count, nodes, each, waits[row, WISH], instants_ms, class_):
            continue
        if len(profile) > 0 and not leaves_plan(profile, milli_of(waits, row), buckets_of(end_ms, now_ms)):
            continue
        seen[at] = FOR_IDLE if waits[row, MIN_RUNTIME_MS] == 0 else FOR_ALL
        if (seen[at] == FOR_IDLE) != (idle_cycles == 1):
            continue
        if head >= 0 and row != head:
            used_ms = max(0, head_ms - now_ms) + horizon_ms
            if end_ms <= head_ms:
                used_ms = 0 if in_time_free == 1 else end_ms - now_ms
            if milli_of(waits, row) * used_ms > spare_us:
                continue
        return at
    return -1


@njit(cache=True)
def rule_out(jobs: Jobs, room: Room, now_ms: int, seen: NDArray[np.uint8]) -> None:
    """Mark in ``seen`` who needs more of a node than there is for him; starts only take, so that holds for the rest of the cycle.

    One look at each who waits, by what he asks of a node, and at when he would be over only where that makes a difference: nine of
    ten go so in a full cluster.
    """
    queue, asks, waits, counts, shared, instants_ms = (
        jobs.queue, jobs.asks, jobs.waits, room.nodes, room.shared, room.instants_ms,
    )  # fmt: skip
    most, limit_ms = counts.shape[1], np.empty(counts.shape[1], dtype=np.int64)
    _limits(counts, instants_ms, limit_ms)
    part = 0  # the most that a fraction may ask for
    if most > 1:
        class_ = len(instants_ms)
        while class_ >= 0 and counts[class_, 1] == 0 and shared[class_] == 0:
            class_ -= 1
        limit_ms[0] = -1 if class_ < 0 else NEVER_MS if class_ == len(instants_ms) else instants_ms[class_]
        part = WHOLE if counts[0, 1] > 0 else shared[0]
    for at in range(len(queue)):
        ask = asks[at]
        if ask < 0:
            continue
        need = ask // WHOLE
        limit = limit_ms[need] if need < most else -1
        if limit == NEVER_MS and (need > 0 or ask <= part):
            continue
        if limit < 0 or (need == 0 and ask > part) or min(now_ms + waits[queue[at], LEFT_MS], NEVER_MS) > limit:
            seen[at] = OUT
    for k in range(len(room.holders)):
        leaf = waits[room.holders[k], BUDGET]
        for at in range(jobs.first[leaf], jobs.last[leaf]):
            if queue[at] == room.holders[k]:
                seen[at] = UNSEEN


@njit(cache=True)
def next_of_all(
    jobs: Jobs, lines: Lines, room: Room, ends: Ends, places: Places, tried: Tried, root: int, now_ms: int, horizon_ms: int,
    starts_ms: I64, in_time_free: int, idle_cycles: int, seen: NDArray[np.uint8], allowed: I64, position: I64,
) -> int:  # fmt: skip
    """Return the leaf that has a workload to be tried, at ``position``, or -1.

    A leaf that has none lends what it does not use: taken out of ``allowed`` along its path, it goes to all by need.
    """
    while True:
        leaf = next_leaf(lines, root)
        if leaf < 0:
            return -1
        at = _next_open(seen, position[leaf], jobs.last[leaf], idle_cycles)
        if at >= 0 and idle_cycles == 0 and places.known[leaf] == 0:  # what it keeps matters only where somebody fits
            places.head[leaf] = -1
            at = _candidate(jobs, room, places, tried, leaf, at, now_ms, horizon_ms, in_time_free, idle_cycles, seen)
            if at >= 0:
                find_place(jobs, lines, room, ends, places, leaf, now_ms, horizon_ms, starts_ms)
        if at >= 0:
            at = _candidate(jobs, room, places, tried, leaf, at, now_ms, horizon_ms, in_time_free, idle_cycles, seen)
        if at >= 0:
            position[leaf] = at
            return leaf
        lines.ready[leaf] = 0
        surplus_milli, line = allowed[leaf] - lines.running[leaf], leaf
        while surplus_milli > 0 and line >= 0:
            allowed[line] -= surplus_milli
            line = lines.parent[line]
        choose_above(lines, allowed, lines.running, leaf)

"""The time to come: who would run in which order, and for whom nodes are kept before he is funded.

``fair_order`` is what the plan of conservative backfill walks (``policy.planning``). ``keep_ahead`` keeps the nodes that are
ready first for the first in line of budgets, as ``policy.reserving`` does for whoever asks for more than GPUs: only when their
instant is known, and not before he is funded. Pure functions of the columns; they write what they are given to be filled, and
what they find of ``Places``.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from apportion.core.kernels.release import Releases, find_ready
from apportion.core.kernels.serve.columns import (
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
)
from apportion.core.kernels.serve.order import choose_above, choose_all, next_leaf
from apportion.core.kernels.serve.places import find_place
from apportion.core.kernels.serve.shapes import buckets_of, milli_of
from apportion.core.units import NEVER_MS

I64 = NDArray[np.int64]

# as in ``effects``
BUILT_ON = {
    "release": "e8e7b71b47cf", "serve.columns": "00138576507d", "serve.order": "b094c9e19445", "serve.places": "81e90c71d958",
    "serve.shapes": "a6b4fdc08477",
}  # fmt: skip


@njit(cache=True)
def fair_order(jobs: Jobs, lines: Lines, root: int, now_ms: int, taken: I64, rows: I64, buckets: I64) -> int:
    """Fill ``rows`` with those who wait and may start, in fair order, as if each ran once it is listed; returns how many.

    ``buckets`` gets how long each takes. Work on idle cycles is not planned. ``lines.ready`` must tell of whom something waits.
    """
    at, count, last, queue, state, waits = jobs.first.copy(), 0, jobs.last, jobs.queue, jobs.state, jobs.waits
    parent, ready, allowance = lines.parent, lines.ready, lines.allowance
    choose_all(lines, allowance, taken)
    while count < len(rows):
        leaf = next_leaf(lines, root)
        if leaf < 0:
            break
        row = -1
        while at[leaf] < last[leaf] and row < 0:
            other = queue[at[leaf]]
            may = waits[other, NOT_BEFORE_MS] <= now_ms and waits[other, MIN_RUNTIME_MS] > 0
            if may and state[other] == PENDING:
                row = other
            at[leaf] += 1
        if row < 0:
            ready[leaf] = 0
        else:
            left_ms = waits[row, LEFT_MS]
            rows[count], buckets[count] = row, buckets_of(now_ms + left_ms if left_ms < NEVER_MS else NEVER_MS, now_ms)
            count += 1
            line, milli = leaf, milli_of(waits, row)
            while line >= 0:
                taken[line] += milli
                line = parent[line]
        choose_above(lines, allowance, taken, leaf)
    return count


@njit(cache=True)
def next_ahead(
    jobs: Jobs, lines: Lines, room: Room, ends: Ends, places: Places, root: int, now_ms: int, horizon_ms: int, starts_ms: I64,
    looks: I64,
) -> int:  # fmt: skip
    """Return the next leaf that keeps something for a time to come, -1 = none, or no more ``looks[0]`` are left."""
    while looks[0] > 0:
        looks[0] -= 1
        leaf = next_leaf(lines, root)
        if leaf < 0:
            return -1
        lines.ready[leaf] = 0
        choose_above(lines, lines.allowance, lines.running, leaf)
        find_place(jobs, lines, room, ends, places, leaf, now_ms, horizon_ms, starts_ms)
        if places.head[leaf] >= 0 and places.until_ms[leaf] != 0:
            return leaf
    return -1


@njit(cache=True)
def first_open(order: I64, kept: I64, picked: I64) -> bool:
    """Fill ``picked`` with the first of ``order`` that are not ``kept``; False when there are too few."""
    count = 0
    for row in order:
        if count == len(picked):
            break
        if kept[row] <= 0:
            picked[count] = row
            count += 1
    return count == len(picked)


@njit(cache=True)
def keep_ahead(
    jobs: Jobs, lines: Lines, room: Room, ends: Ends, places: Places, root: int, now_ms: int, horizon_ms: int, starts_ms: I64,
    looks: I64, ready: Releases, until_ms: I64, holder: I64, kept: I64, count: int, most: int,
) -> tuple[int, int]:  # fmt: skip
    """Keep the earliest open nodes for one after the other, until ``most`` are kept for; returns (leaf, how many by then).

    As ``next_ahead`` finds them, and as ``policy.reserving`` keeps nodes for whoever asks for nothing but GPUs, where nothing is
    drained: only when his nodes are ready at an instant that is known, and not before he is funded. ``kept`` gets (workload,
    instant) of each. Comes back with the leaf of whoever asks for more, or of whose number of GPUs per node it is not known, and
    cannot be found here, when nodes are ``ready``; -1 = nobody is left.
    """
    while count < most:
        leaf = next_ahead(jobs, lines, room, ends, places, root, now_ms, horizon_ms, starts_ms, looks)
        if leaf < 0:
            return -1, count
        head = places.head[leaf]
        need = max(1, jobs.waits[head, EACH] // WHOLE)
        if jobs.waits[head, WISH] > 0 or not find_ready(ready, need, now_ms):
            return leaf, count
        picked = np.empty(jobs.waits[head, NODES], dtype=np.int64)
        if not first_open(ready.now_order[need], until_ms, picked):
            continue
        last_ms = ready.now_ready_ms[need, picked[-1]]
        if last_ms >= NEVER_MS or last_ms < max(places.until_ms[leaf], now_ms + 1):
            continue
        for node in picked:
            until_ms[node], holder[node] = last_ms, head + 1
        kept[count, 0], kept[count, 1] = head, last_ms
        places.known[leaf] = 0  # it now starts when that says so
        count += 1
    return -1, count

"""The pending queue as one sorted int64 array of workload rows.

Order: budget row ascending, then priority descending, then sequence of submission ascending, then row: replicas of a service
share a submission. Naive equivalent: ``sorted(rows, key=lambda r: (budget[r], -priority[r], seq[r], r))``.

Beside it stands what each asks of a node (``asks``), entry by entry, so that a walk over all of them reads two arrays from end to
end and nothing else.

Pure functions of the arrays given; ``insert`` and ``remove`` shift both in place and return what they did. The caller keeps the
count. Whoever moves many, one by one, does not keep the order meanwhile: he marks by row who is in the queue and who came or left
(``WAITING``, ``MOVED``), and in the end ``drop_moved`` takes out all who moved, so that those of them who wait are merged again.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from apportion.core.units import NEVER_MS

I64 = NDArray[np.int64]
U8 = NDArray[np.uint8]

WAITING, MOVED = 1, 2  # marks, bits
HALVINGS = 16  # looking for a row reads about so many others, each at a random place


@njit(cache=True)
def _before(a: int, b: int, budget: I64, priority: I64, seq: I64) -> bool:
    if budget[a] != budget[b]:
        return budget[a] < budget[b]
    if priority[a] != priority[b]:
        return priority[a] > priority[b]
    if seq[a] != seq[b]:
        return seq[a] < seq[b]
    return a < b


@njit(cache=True)
def _place_of(queue: I64, count: int, row: int, budget: I64, priority: I64, seq: I64) -> int:
    low = 0
    high = count
    while low < high:
        middle = (low + high) >> 1
        if _before(queue[middle], row, budget, priority, seq):
            low = middle + 1
        else:
            high = middle
    return low


@njit(cache=True)
def insert(queue: I64, asks: I64, count: int, row: int, ask: int, budget: I64, priority: I64, seq: I64) -> int:
    """Insert ``row``; the arrays must have room for one more. Returns its position."""
    place = _place_of(queue, count, row, budget, priority, seq)
    for position in range(count, place, -1):
        queue[position], asks[position] = queue[position - 1], asks[position - 1]
    queue[place], asks[place] = row, ask
    return place


@njit(cache=True)
def merge(queue: I64, asks: I64, count: int, rows: I64, ask: I64, budget: I64, priority: I64, seq: I64) -> None:
    """Insert many rows, which are in the order of the queue; the arrays must have room for them.

    Naive equivalent: ``insert`` each. Each place is looked for by halving, and what is behind it moves once.
    """
    end = count
    for k in range(len(rows) - 1, -1, -1):
        place = _place_of(queue, end, rows[k], budget, priority, seq)
        for position in range(end - 1, place - 1, -1):
            queue[position + k + 1], asks[position + k + 1] = queue[position], asks[position]
        queue[place + k], asks[place + k] = rows[k], ask[k]
        end = place


@njit(cache=True)
def remove(queue: I64, asks: I64, count: int, row: int, budget: I64, priority: I64, seq: I64) -> bool:
    """Remove ``row``; its sort key must be what it was at insertion. Returns False when it is not there."""
    place = _place_of(queue, count, row, budget, priority, seq)
    if place >= count or queue[place] != row:
        return False
    for position in range(place, count - 1):
        queue[position], asks[position] = queue[position + 1], asks[position + 1]
    queue[count - 1] = asks[count - 1] = 0
    return True


@njit(cache=True)
def _remove_marked(queue: I64, asks: I64, count: int, rows: I64, used: int) -> int:
    """Remove rows on a walk over the whole queue; returns the new count, or -1, and changes nothing, if one is not there."""
    marks = np.zeros(used, dtype=np.uint8)
    for row in rows:
        marks[row] = 1
    met = 0
    for position in range(count):
        met += marks[queue[position]]
    return _drop(queue, asks, count, marks, 1) if met == len(rows) else -1


@njit(cache=True)
def _drop(queue: I64, asks: I64, count: int, marks: U8, mark: int) -> int:
    """Take out all who are marked so, on a walk over the whole queue; returns the new count."""
    kept = 0
    for position in range(count):  # without a branch: who leaves is anywhere
        row = queue[position]
        queue[kept], asks[kept] = row, asks[position]
        kept += 1 if marks[row] & mark == 0 else 0
    queue[kept:count] = 0
    asks[kept:count] = 0
    return kept


@njit(cache=True)
def drop_moved(queue: I64, asks: I64, count: int, marks: U8) -> int:
    """Take out all who are marked as moved; returns the new count."""
    return _drop(queue, asks, count, marks, MOVED)


@njit(cache=True)
def remove_all(queue: I64, asks: I64, count: int, rows: I64, budget: I64, priority: I64, seq: I64) -> tuple[int, int]:
    """Remove many rows, in one pass over what is behind the first; returns the new count, and a row that is not there or -1.

    Naive equivalent: ``remove`` each. Where so many leave that looking for each by halving costs more than a walk over all, they
    are marked and met on the walk; who is not met, is looked for.
    """
    if len(rows) * HALVINGS > count:
        kept = _remove_marked(queue, asks, count, rows, len(budget))
        if kept >= 0:
            return kept, -1
    places = np.empty(len(rows), dtype=np.int64)
    for k in range(len(rows)):
        places[k] = _place_of(queue, count, rows[k], budget, priority, seq)
        if places[k] >= count or queue[places[k]] != rows[k]:
            return count, rows[k]
    if len(rows) == 0:
        return count, -1
    places.sort()
    kept = places[0]
    for k in range(len(places)):
        end = places[k + 1] if k + 1 < len(places) else count
        for position in range(places[k] + 1, end):
            queue[kept], asks[kept] = queue[position], asks[position]
            kept += 1
    queue[kept:count] = 0
    asks[kept:count] = 0
    return kept, -1


@njit(cache=True)
def parts(waiting: I64, first: I64, last: I64) -> None:
    """Fill ``first[b]``, ``last[b]`` (half-open) with the part of the queue of budget row b, of which ``waiting[b]`` are in it."""
    position = 0
    for b in range(len(first)):
        first[b] = last[b] = 0
        if waiting[b] > 0:
            first[b], last[b] = position, position + waiting[b]
        position += waiting[b]


@njit(cache=True)
def _instants_before(instants_ms: I64, end_ms: int) -> int:
    """Return how many of the ascending instants are before ``end_ms``."""
    count = 0
    while count < len(instants_ms) and instants_ms[count] < end_ms:
        count += 1
    return count


@njit(cache=True)
def next_candidate(
    queue: I64,
    start: int,
    end: int,
    now_ms: int,
    instants_ms: I64,
    head: int,
    head_ms: int,
    spare_us: int,
    horizon_ms: int,
    in_time_free: int,
    idle_cycles: int,
    state: I64,
    pending: int,
    nodes: I64,
    milli_per_node: I64,
    wish: I64,
    min_runtime_ms: I64,
    expected_ms: I64,
    progress_ms: I64,
    not_before_ms: I64,
    failed: I64,
    failed_count: int,
) -> int:
    """Return the position of the first workload in ``queue[start:end]`` worth trying, or -1.

    Skipped: not pending, in back-off, of the other class (``idle_cycles`` 1 = only min_runtime 0, 0 = only others),
    using more than ``spare_us`` while ``head`` (a row, -1 = none) is the budget's first in line and starts at ``head_ms``: its
    GPUs x the time until then and ``horizon_ms``, or x its own time if it says that it is over by then, which is free with
    ``in_time_free`` 1, or of a shape known to fail. ``failed`` rows are (nodes, milli_per_node, wish, end): a workload of that
    shape that would be over at ``end`` found no place, so none does from which at least the same nodes are kept: ``instants_ms``
    (ascending) are those until which nodes are kept from whatever is not over by then.
    """
    for position in range(start, end):
        row = queue[position]
        if state[row] != pending or not_before_ms[row] > now_ms:
            continue
        if (min_runtime_ms[row] == 0) != (idle_cycles == 1):
            continue
        ends_ms = now_ms + max(0, expected_ms[row] - progress_ms[row]) if expected_ms[row] > 0 else NEVER_MS
        if head >= 0 and row != head and idle_cycles == 0:
            used_ms = max(0, head_ms - now_ms) + horizon_ms
            if ends_ms <= head_ms:
                used_ms = 0 if in_time_free == 1 else ends_ms - now_ms
            if nodes[row] * milli_per_node[row] * used_ms > spare_us:
                continue
        known = False
        for k in range(failed_count):
            same = failed[k, 0] == nodes[row] and failed[k, 1] == milli_per_node[row] and failed[k, 2] == wish[row]
            if same and _instants_before(instants_ms, failed[k, 3]) <= _instants_before(instants_ms, ends_ms):
                known = True
                break
        if not known:
            return position
    return -1

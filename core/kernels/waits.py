"""Who of the queue is to be explained, and for whom the reason is the same.

Looked at are the first of each budget, holders of reservations, whoever was never explained, and whoever was the first when looked
at last: a few of a long queue. They come in the order of the queue. A *slot* stands for those with the same reason: equal pool and
shape, whether anybody of their budget is ahead, and class of end where nodes are drained.

Pure functions of the columns. Naive equivalent: look at the whole queue, and ask ``explaining.reason_for`` for each.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from apportion.core.units import NEVER_MS

I64 = NDArray[np.int64]

ROW, AHEAD, HEAD, SLOT, CLASS = range(5)  # what is told of each
LINE, NODES, EACH, NEED, WISH, MIN_RUNTIME_MS, LEFT_MS, NOT_BEFORE_MS = range(8)  # columns of ``State.waits``


@njit(cache=True)
def _position(queue: I64, low: int, high: int, row: int, priority: I64, seq: I64) -> int:
    """Return where in its budget's part of the queue a row is."""
    while low < high:
        middle = (low + high) >> 1
        other = queue[middle]
        same = priority[other] == priority[row]
        if priority[other] > priority[row] or (same and (seq[other] < seq[row] or (seq[other] == seq[row] and other < row))):
            low = middle + 1
        else:
            high = middle
    return low


@njit(cache=True)
def mark(
    queue: I64, first: I64, last: I64, budget: I64, priority: I64, seq: I64, untold: I64, holders: I64,
    marks: NDArray[np.uint8],
) -> int:  # fmt: skip
    """Set ``marks`` at the positions to be looked at: 2 for heads, that is the first of a budget and holders; returns how many.

    ``untold`` lists, in any order, those in the queue who are looked at wherever they stand.
    """
    count = 0
    for b in range(len(first)):
        if last[b] > first[b]:
            marks[first[b]] = 2
            count += 1
    for row in holders:
        at = _position(queue, first[budget[row]], last[budget[row]], row, priority, seq)
        if at < last[budget[row]] and queue[at] == row and marks[at] == 0:
            marks[at] = 2
            count += 1
    for row in untold:
        at = _position(queue, first[budget[row]], last[budget[row]], row, priority, seq)
        if marks[at] == 0:
            marks[at] = 1
            count += 1
    return count


@njit(cache=True)
def collect(
    queue: I64, marks: NDArray[np.uint8], first: I64, waits: I64, line_pool: I64, state: I64, held: int, now_ms: int, holders: I64,
    instants_ms: I64, first_instant: I64, by_class: int, told: I64, slots: I64, rep: I64,
) -> int:  # fmt: skip
    """Fill ``told`` with who is marked, and ``rep`` with the number in it of one of each slot; returns how many slots there are.

    The slot is -1 of who has a reason of his own: a hold, a back-off, a reservation. ``slots`` is scratch, -1 in a power of two of
    entries. ``instants_ms`` are those of each pool's reservations, one pool after the other. ``waits`` is ``State.waits``.
    """
    count, made = 0, 0
    for at in range(len(marks)):
        if marks[at] == 0:
            continue
        row = queue[at]
        line, nodes, each, wish = waits[row, LINE], waits[row, NODES], waits[row, EACH], waits[row, WISH]
        left_ms = waits[row, LEFT_MS]
        ahead, class_, slot, pool = at - first[line], 0, -1, line_pool[line]
        alone = state[row] == held or waits[row, NOT_BEFORE_MS] > now_ms
        for holder in holders:
            alone = alone or holder == row
        end_ms = now_ms + left_ms if left_ms < NEVER_MS else NEVER_MS
        for k in range(first_instant[pool], first_instant[pool + 1]):
            class_ += int(instants_ms[k] < end_ms)
        if not alone:
            place = nodes * 1_000_003 + each * 31 + wish * 8_191 + class_ * by_class * 13
            place = place * 2 + min(ahead, 1) + 7 * pool
            while slot < 0:
                place &= len(slots) - 1
                if slots[place] < 0:
                    slots[place], rep[made] = made, count
                    slot, made = made, made + 1
                    continue
                other = told[rep[slots[place]]]
                twin = other[ROW]
                same = waits[twin, NODES] == nodes and waits[twin, EACH] == each and waits[twin, WISH] == wish
                same = same and line_pool[waits[twin, LINE]] == pool and min(other[AHEAD], 1) == min(ahead, 1)
                if same and (by_class == 0 or other[CLASS] == class_):
                    slot = slots[place]
                place += 1
        told[count, ROW], told[count, AHEAD], told[count, HEAD] = row, ahead, int(marks[at] == 2)
        told[count, SLOT], told[count, CLASS] = slot, class_
        count += 1
    return made

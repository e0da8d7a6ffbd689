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

# what is told of each: what is found here, then what stands in the table
ROW, AHEAD, HEAD, SLOT, CLASS, REASON, FUNDED_MS, PLANNED_MS, HOLD, CHOICES = range(10)
COLUMNS = 10
MARKS, MARKED, HEADS, HOLDS = 4, 1, 2, 3  # why a position is looked at; the largest holds
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
    queue: I64, first: I64, last: I64, budget: I64, priority: I64, seq: I64, untold: I64, holders: I64, looks: I64
) -> int:  # fmt: skip
    """Fill ``looks`` with the positions to be looked at, ascending, each times ``MARKS`` plus why; returns how many.

    ``HEADS`` are the first of each budget, ``HOLDS`` those of ``holders`` who are in the queue, ``MARKED`` those of ``untold``, who
    are looked at wherever they stand. Both lists come in any order; ``looks`` has room for all.
    """
    others, count = np.empty(len(untold) + len(holders), dtype=np.int64), 0
    for row in holders:
        at = _position(queue, first[budget[row]], last[budget[row]], row, priority, seq)
        if at < last[budget[row]] and queue[at] == row:
            others[count] = at * MARKS + HOLDS
            count += 1
    for row in untold:
        at = _position(queue, first[budget[row]], last[budget[row]], row, priority, seq)
        others[count] = at * MARKS + MARKED
        count += 1
    others = others[:count][np.argsort(others[:count], kind="mergesort")]
    made, k = 0, 0
    for b in range(len(first)):
        if last[b] == first[b]:
            continue
        while k < count and others[k] < first[b] * MARKS:
            made = _look_at(looks, made, others[k])
            k += 1
        made = _look_at(looks, made, first[b] * MARKS + HEADS)
    while k < count:
        made = _look_at(looks, made, others[k])
        k += 1
    return made


@njit(cache=True)
def _look_at(looks: I64, made: int, look: int) -> int:
    """Append a position, or give the last one the larger reason; returns how many there are."""
    if made > 0 and looks[made - 1] // MARKS == look // MARKS:
        looks[made - 1] = max(looks[made - 1], look)
        return made
    looks[made] = look
    return made + 1


@njit(cache=True)
def _fetch(queue: I64, looks: I64, waits: I64, state: I64, table: tuple[I64, ...], told: I64, phase: I64) -> None:
    """Fill in what stands in the table of each who is looked at.

    One column after the other: the rows lie far apart, and only in a loop that does nothing else do the misses overlap.
    """
    count, seen = len(looks), 0
    for k in range(count):
        told[ROW, k] = queue[looks[k] // MARKS]
    rows = told[ROW]
    for k in range(count):
        seen += waits[rows[k], LINE]  # so that it is at hand; it is read with the rest of its row later
    for k in range(count):
        phase[k] = state[rows[k]]
    for column in range(len(table)):
        values, into = table[column], told[REASON + column]
        for k in range(count):
            into[k] = values[rows[k]]
    phase[count] = seen


@njit(cache=True)
def collect(
    queue: I64, looks: I64, first: I64, waits: I64, line_pool: I64, state: I64, table: tuple[I64, ...], held: int, now_ms: int,
    instants_ms: I64, first_instant: I64, by_class: int, told: I64, slots: I64, rep: I64,
) -> int:  # fmt: skip
    """Fill ``told`` with who is looked at, column by column; returns how many slots there are, of each of which ``rep`` is one.

    The slot is -1 of who has a reason of his own: a hold, a back-off, a reservation. ``slots`` is scratch, -1 in a power of two of
    entries. ``instants_ms`` are those of each pool's reservations, ascending, one pool after the other. ``waits`` is
    ``State.waits``, ``table`` the columns that stand in ``told`` from ``REASON`` on.
    """
    count, made, phase = len(looks), 0, np.empty(len(looks) + 1, dtype=np.int64)
    _fetch(queue, looks, waits, state, table, told, phase)
    rows, aheads, heads, slot_of, classes = told[ROW], told[AHEAD], told[HEAD], told[SLOT], told[CLASS]
    for k in range(count):
        row, at, why = rows[k], looks[k] // MARKS, looks[k] % MARKS
        line, nodes, each, wish = waits[row, LINE], waits[row, NODES], waits[row, EACH], waits[row, WISH]
        left_ms = waits[row, LEFT_MS]
        ahead, slot, pool = at - first[line], -1, line_pool[line]
        end_ms = now_ms + left_ms if left_ms < NEVER_MS else NEVER_MS
        low, high = first_instant[pool], first_instant[pool + 1]
        while low < high:
            middle = (low + high) >> 1
            if instants_ms[middle] < end_ms:
                low = middle + 1
            else:
                high = middle
        class_ = low - first_instant[pool]
        if phase[k] != held and waits[row, NOT_BEFORE_MS] <= now_ms and why != HOLDS:
            place = nodes * 1_000_003 + each * 31 + wish * 8_191 + class_ * by_class * 13
            place = place * 2 + min(ahead, 1) + 7 * pool
            while slot < 0:
                place &= len(slots) - 1
                if slots[place] < 0:
                    slots[place], rep[made] = made, k
                    slot, made = made, made + 1
                    continue
                other = rep[slots[place]]
                twin = rows[other]
                same = waits[twin, NODES] == nodes and waits[twin, EACH] == each and waits[twin, WISH] == wish
                same = same and line_pool[waits[twin, LINE]] == pool and min(aheads[other], 1) == min(ahead, 1)
                if same and (by_class == 0 or classes[other] == class_):
                    slot = slots[place]
                place += 1
        aheads[k], heads[k], slot_of[k], classes[k] = ahead, int(why >= HEADS), slot, class_
    return made

"""Siblings: the children of a line in the order in which they are served, for thousands of starts in a row.

At each start every line of a path asks which child is next, and ``order.best_child`` walks a list and reads six arrays for each of
them. But while nobody else decides anything, only what is on the path changes, and who is served only falls behind: so the children
of a line are a heap from the first time that it asks, and the first of them sinks. Order: as ``order`` tells it, by gap (what it
may run - what it runs) over weight, ties to the lower row; behind all others those below which nothing is ready. Naive
equivalent: ``order.choose_above``. Pure functions of the arrays given; ``choose_beside`` alone writes them, and ``best``. A heap
must never outlive the run of starts for which it was made.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from apportion.core.kernels.bare import bare, making

I64 = NDArray[np.int64]

BUILT_ON = {"bare": "6b2fd7db475f"}  # as in ``effects``

# columns of ``Siblings.heaps``; a child below which nothing is ready has weight 0 and gap -1: so one comparison puts it last
GAP, WEIGHT, ROW, COLUMNS = range(4)


class Siblings(NamedTuple):
    """The heaps of lines, one behind the other."""

    first: I64  # per line: where its children begin, -1 = it has not asked yet
    heaps: I64  # places x columns
    places: I64  # how many are taken


@making
def no_siblings(lines: int) -> Siblings:
    """Return room for the children of all lines, of which none has asked."""
    return Siblings(np.full(lines, -1), np.empty((lines, COLUMNS), dtype=np.int64), np.zeros(1, dtype=np.int64))


@bare
def _sink(heaps: I64, first: int, count: int, at: int, gap: int, weight: int, row: int) -> None:
    """Put a child in at a place of a heap of ``count``, or below it, where those before it belong."""
    below = 2 * at + 1
    while below < count:
        left, right = first + below, first + min(below + 1, count - 1)
        mine, other = heaps[right, GAP] * heaps[left, WEIGHT], heaps[left, GAP] * heaps[right, WEIGHT]
        other_first = (mine > other) | ((mine == other) & (heaps[right, ROW] < heaps[left, ROW]))
        next_ = left + (right - left) * other_first
        mine, other = gap * heaps[next_, WEIGHT], heaps[next_, GAP] * weight
        if mine > other or (mine == other and row < heaps[next_, ROW]):
            break
        place = first + at
        heaps[place, GAP], heaps[place, WEIGHT], heaps[place, ROW] = heaps[next_, GAP], heaps[next_, WEIGHT], heaps[next_, ROW]
        at = next_ - first
        below = 2 * at + 1
    place = first + at
    heaps[place, GAP], heaps[place, WEIGHT], heaps[place, ROW] = gap, weight, row


@bare
def _line_up(
    siblings: Siblings, line: int, first_child: I64, next_sibling: I64, children: I64, weight: I64, best: I64, ready: I64,
    allowed: I64, taken: I64,
) -> int:  # fmt: skip
    """Make the heap of a line; returns where it begins."""
    heaps, first, count, child = siblings.heaps, siblings.places[0], children[line], first_child[line]
    siblings.first[line] = first
    siblings.places[0] += count
    for place in range(first, first + count):
        open_ = ready[child] > 0 if children[child] == 0 else best[child] >= 0
        heaps[place, GAP] = allowed[child] - taken[child] if open_ else -1
        heaps[place, WEIGHT] = max(1, weight[child]) if open_ else 0
        heaps[place, ROW] = child
        child = next_sibling[child]
    for at in range(count // 2 - 1, -1, -1):
        place = first + at
        _sink(heaps, first, count, at, heaps[place, GAP], heaps[place, WEIGHT], heaps[place, ROW])
    return int(first)


@bare
def choose_beside(
    siblings: Siblings, leaf: int, parent: I64, first_child: I64, next_sibling: I64, children: I64, weight: I64, best: I64,
    ready: I64, allowed: I64, taken: I64,
) -> None:  # fmt: skip
    """Choose anew on the path of a leaf that was next, and may run more than it does no more than before."""
    heaps, child, open_, line = siblings.heaps, leaf, ready[leaf] > 0, parent[leaf]
    while line >= 0:
        first = siblings.first[line]
        if first < 0:
            first = _line_up(siblings, line, first_child, next_sibling, children, weight, best, ready, allowed, taken)
        else:
            gap = allowed[child] - taken[child] if open_ else -1
            _sink(heaps, first, children[line], 0, gap, heaps[first, WEIGHT] if open_ else 0, child)
        open_ = heaps[first, WEIGHT] > 0
        best[line] = heaps[first, ROW] if open_ else -1
        child, line = line, parent[line]

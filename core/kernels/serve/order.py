"""Fair order: which leaf of a pool's tree is served next.

From the root down, the child with the largest (allowance - running) / weight that has a ready leaf below it; by
cross-multiplication, ties to the lower row; a weight of 0 counts as one millionth of a share. ``Lines.best`` keeps the choice of
every line, and only the path of a leaf that changed is chosen anew. A pure function of the columns, and of ``best`` as it was
left; writes nothing else. Naive equivalent: ``share.next_leaf``.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from apportion.core.kernels.bare import bare
from apportion.core.kernels.serve.columns import Lines

I64 = NDArray[np.int64]

# as in ``effects``
BUILT_ON = {
    "bare": "6b2fd7db475f", "serve.columns": "00138576507d"
}  # fmt: skip


@njit(cache=True)
def children(rows: int, pool: int, of_pool: I64, parent: I64, first_child: I64, next_sibling: I64) -> None:
    """Fill the lists of children, ascending."""
    first_child[:] = -1
    next_sibling[:] = -1
    for row in range(rows - 1, -1, -1):
        if of_pool[row] == pool and parent[row] >= 0:
            next_sibling[row] = first_child[parent[row]]
            first_child[parent[row]] = row


@bare
def best_child(
    first: int, next_sibling: I64, children: I64, weight: I64, best: I64, ready: I64, allowed: I64, taken: I64
) -> int:  # fmt: skip
    """Return which of the children that begin with ``first`` is to be served next, -1 = none."""
    champion, row = -1, first
    while row >= 0:
        open_ = ready[row] > 0 if children[row] == 0 else best[row] >= 0
        if open_ and champion >= 0:
            mine = (allowed[row] - taken[row]) * max(1, weight[champion])
            other = (allowed[champion] - taken[champion]) * max(1, weight[row])
            if mine > other:
                champion = row
        elif open_:
            champion = row
        row = next_sibling[row]
    return champion


@njit(cache=True)
def choose_all(lines: Lines, allowed: I64, taken: I64) -> None:
    """Set ``best`` of all lines, by what each may run and what it runs, or keeps."""
    first_child, sibling, children, weight = lines.first_child, lines.next_sibling, lines.children, lines.weight
    best, ready = lines.best, lines.ready
    for line in range(len(best) - 1, -1, -1):
        if children[line] > 0:
            best[line] = best_child(first_child[line], sibling, children, weight, best, ready, allowed, taken)


@njit(cache=True)
def choose_above(lines: Lines, allowed: I64, taken: I64, leaf: int) -> None:
    """Choose anew on the path of a leaf."""
    parent, first_child, sibling, children, weight = (
        lines.parent, lines.first_child, lines.next_sibling, lines.children, lines.weight,
    )  # fmt: skip
    best, ready = lines.best, lines.ready
    line = parent[leaf]
    while line >= 0:
        best[line] = best_child(first_child[line], sibling, children, weight, best, ready, allowed, taken)
        line = parent[line]


@njit(cache=True)
def next_leaf(lines: Lines, root: int) -> int:
    """Return the leaf to serve next, or -1."""
    if lines.children[root] == 0:
        return root if lines.ready[root] > 0 else -1
    row = root
    while row >= 0 and lines.children[row] > 0:
        row = lines.best[row]
    return row

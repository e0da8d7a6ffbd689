"""Which pages of a table differ from what was hashed of them: finds what the digest must hash again, and takes it over.

One pass over both, page by page; the state's largest table is read so once per digest, as fast as memory gives it. A pure function
of the arrays; it writes ``hashed`` only. Naive equivalent: ``(now != hashed).any()`` page by page, and a copy of those that differ.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

I64 = NDArray[np.int64]


@njit(cache=True)
def take_changed(now: I64, hashed: I64, known: int, pages: int) -> I64:
    """Copy into ``hashed`` each of ``pages`` pages that differs, and all from ``known`` on; returns which, ascending.

    Rows are the second axis of ``now``; ``hashed`` has the axes page, column, row of the page, so that a page lies in one piece.
    """
    columns, rows = hashed.shape[1], hashed.shape[2]
    found, count = np.empty(pages, dtype=np.int64), 0
    for page in range(pages):
        start, differs = page * rows, page >= known
        for column in range(columns):
            if differs:
                break
            other = 0
            for row in range(rows):
                other |= now[column, start + row] ^ hashed[page, column, row]
            differs = other != 0
        if differs:
            found[count] = page
            count += 1
            for column in range(columns):
                for row in range(rows):
                    hashed[page, column, row] = now[column, start + row]
    return found[:count]

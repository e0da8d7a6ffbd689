"""Which pages of a table differ from what was hashed of them: finds what the digest must hash again.

One pass over both, page by page; the state's largest table is read so once per digest, as fast as memory gives it. A pure function
of the arrays. Naive equivalent: ``(now != hashed).any(axis=0)``, row by row.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

I64 = NDArray[np.int64]


@njit(cache=True)
def changed(now: I64, hashed: I64, page_rows: int) -> I64:
    """Return the pages, of so many rows each, in which a column differs; ascending. Rows are the second axis."""
    pages = now.shape[1] // page_rows
    differs = np.zeros(pages, dtype=np.uint8)
    for column in range(now.shape[0]):
        for page in range(pages):
            if differs[page] == 1:
                continue
            other = 0
            for row in range(page * page_rows, (page + 1) * page_rows):
                other |= now[column, row] ^ hashed[column, row]
            if other != 0:
                differs[page] = 1
    return np.flatnonzero(differs)

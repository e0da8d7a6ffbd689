"""Keys of a table as bytes, found and changed by kernels.

A *key index* finds the row of a table by the bytes of its key: ``names`` holds a key per row (its length in the last byte),
``slots`` is an open hash of row + 1 (0 = never used, -1 = given up). A pure function of both; ``rename`` alone writes them.
Naive equivalent: ``Table.row_of``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.core.kernels.bare import bare

I64 = NDArray[np.int64]
U8 = NDArray[np.uint8]

BUILT_ON = {"bare": "6b2fd7db475f"}  # as in ``effects``

NAME_BYTES = 144  # one more than the longest key that is indexed


@bare
def _slot(data: Any, start: int, end: int, slots: I64) -> int:
    """Return where the search for a key begins."""
    mixed = np.int64(1469598103934665603)
    for at in range(start, end):
        mixed = (mixed ^ np.int64(data[at])) * np.int64(1099511628211)
    return int((mixed ^ (mixed >> 29)) & (len(slots) - 1))


@bare
def find(data: Any, start: int, end: int, names: U8, slots: I64) -> int:
    """Return the row whose key is ``data[start:end]``, -1 when there is none."""
    length = end - start
    if length <= 0 or length >= NAME_BYTES:
        return -1
    slot = _slot(data, start, end, slots)
    while slots[slot] != 0:
        row = slots[slot] - 1
        if row >= 0 and names[row, NAME_BYTES - 1] == length:
            same = True
            for at in range(length):
                if names[row, at] != data[start + at]:
                    same = False
                    break
            if same:
                return int(row)
        slot = (slot + 1) & (len(slots) - 1)
    return -1


@bare
def _enter(row: int, names: U8, slots: I64) -> None:
    slot = _slot(names[row], 0, int(names[row, NAME_BYTES - 1]), slots)
    while slots[slot] > 0:
        slot = (slot + 1) & (len(slots) - 1)
    slots[slot] = row + 1


@bare
def rename(row: int, key: Any, names: U8, slots: I64) -> None:
    """Put ``key`` (bytes; none to forget the row) in place of the key that ``row`` had."""
    length = int(names[row, NAME_BYTES - 1])
    if length > 0:
        slot = _slot(names[row], 0, length, slots)
        while slots[slot] != row + 1:
            slot = (slot + 1) & (len(slots) - 1)
        slots[slot] = -1
    for at in range(len(key)):
        names[row, at] = key[at]
    names[row, NAME_BYTES - 1] = len(key)
    if len(key) > 0:
        _enter(row, names, slots)

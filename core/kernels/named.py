"""Many keys at once, between a key index and a text whose lines are the keys.

A text of many lines is made into keys, and keys into a text, by one call, where each takes several. ``enter`` fills an empty key
index; ``lines`` reads from one. Naive equivalents: ``keys.rename`` for each key that fits, and the bytes of each name, joined.
Pure functions of their arguments: ``enter`` writes the index, ``lines`` nothing.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from apportion.core.kernels import keys

I64 = NDArray[np.int64]
U8 = NDArray[np.uint8]

BUILT_ON = {"keys": "2c9723beac6b"}  # as in ``effects``

_LINE_END, _ASCII = 10, 128


@njit(cache=True)
def enter(text: U8, names: U8, slots: I64) -> int:
    """Enter the lines of ``text`` as the keys of rows 0 and on; returns how many lines there are.

    A line that is too long, or not ASCII, is the key of nobody, like an empty one. -1: there are more than rows.
    """
    row, at = 0, 0
    while at <= len(text):
        begin, plain = at, True
        while at < len(text) and text[at] != _LINE_END:
            plain = plain and text[at] < _ASCII
            at += 1
        if row == len(names):
            return -1
        if plain and 0 < at - begin < keys.NAME_BYTES:
            keys.rename(row, text[begin:at], names, slots)
        row, at = row + 1, at + 1
    return row


@njit(cache=True)
def lines(names: U8, rows: I64) -> U8:
    """Return the keys of ``rows`` as lines, between two of which stands a line end."""
    size = max(0, len(rows) - 1)
    for row in rows:
        size += names[row, keys.NAME_BYTES - 1]
    text, at = np.empty(size, dtype=np.uint8), 0
    for place in range(len(rows)):
        if place > 0:
            text[at] = _LINE_END
            at += 1
        row = rows[place]
        for byte in range(names[row, keys.NAME_BYTES - 1]):
            text[at] = names[row, byte]
            at += 1
    return text

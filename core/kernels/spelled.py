"""JSON as this product spells it, read where it stands: texts, integers, and the end of an object.

For kernels that fold what others wrote: each function looks at ``data[at:end]`` and returns the position after what it read, or -1
when something else stands there; a position of -1 given to it stays -1, so a chain of them is asked once, at its end. Texts are
printable ASCII without escapes: any other spelling is left to ``msgspec``, by whoever is told -1. Nothing is written.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from apportion.core.kernels.bare import bare

I64 = NDArray[np.int64]
U8 = NDArray[np.uint8]

BUILT_ON = {"bare": "6b2fd7db475f"}  # as in ``effects``
MOST_DIGITS = 18  # of an integer: below 2^63 whatever they are


@bare
def after(data: U8, at: int, end: int, text: U8) -> int:
    """Return the position after ``text``, if it stands at ``at``."""
    if at < 0 or end - at < len(text):
        return -1
    differ = 0
    for place in range(len(text)):  # no early end: so it is done many bytes at a time
        differ |= data[at + place] ^ text[place]
    return at + len(text) if differ == 0 else -1


@bare
def integer(data: U8, at: int, end: int) -> tuple[int, int]:
    """Return the integer at ``at``, as JSON writes it, and the position after it; 0 and -1 when it is none, or too long."""
    if at < 0 or at >= end:
        return 0, -1
    negative = data[at] == 45
    begin = at + 1 if negative else at
    value, at = 0, begin
    while at < end and 48 <= data[at] <= 57 and at - begin <= MOST_DIGITS:
        value = value * 10 + int(data[at]) - 48
        at += 1
    digits = at - begin
    if digits == 0 or digits > MOST_DIGITS or (data[begin] == 48 and (digits > 1 or negative)):
        return 0, -1
    return -value if negative else value, at


@bare
def field(data: U8, at: int, end: int, name: U8, otherwise: int) -> tuple[int, int]:
    """Return the integer after ``name``, and the position after it; ``otherwise``, and ``at``, where the name does not stand."""
    inner = after(data, at, end, name)
    if inner < 0:
        return otherwise, at
    return integer(data, inner, end)


@bare
def text_end(data: U8, at: int, end: int) -> int:
    """Return the position of the quote that ends the text from ``at`` on."""
    if at < 0:
        return -1
    while at < end:
        byte = data[at]
        if byte == 34:
            return at
        if byte < 32 or byte > 126 or byte == 92:
            return -1
        at += 1
    return -1


@bare
def text(data: U8, at: int, end: int, name: U8) -> tuple[int, int]:
    """Return the bounds of the text after ``name``, which ends in the quote that opens it; -1 and -1 when there is none."""
    start = after(data, at, end, name)
    close = text_end(data, start, end)
    return (start, close) if close >= 0 else (-1, -1)


@bare
def object_end(data: U8, at: int, end: int) -> int:
    """Return the position after the bracket that closes the object in which ``at`` is, between two of its fields."""
    if at < 0:
        return -1
    depth = 1
    while at < end:
        byte = data[at]
        if byte == 34:
            at = text_end(data, at + 1, end)
            if at < 0:
                return -1
        elif byte == 123 or byte == 91:
            depth += 1
        elif byte == 125 or byte == 93:
            depth -= 1
            if depth == 0:
                return at + 1
        at += 1
    return -1


@bare
def word_at(data: U8, start: int, end: int, words: U8) -> int:
    """Return which of ``words`` ``data[start:end]`` is: rows of bytes, the length of each in its last one; -1 when none."""
    length = end - start
    if start < 0:
        return -1
    for row in range(len(words)):
        if words[row, words.shape[1] - 1] == length:
            same = True
            for place in range(length):
                if words[row, place] != data[start + place]:
                    same = False
                    break
            if same:
                return row
    return -1


@bare
def is_name(data: U8, start: int, end: int, longest: int) -> bool:
    """Tell whether a text is a name as events allow it: a letter or digit, then also ``_ - . :``, no longer than ``longest``."""
    if start < 0 or not 0 < end - start <= longest:
        return False
    for at in range(start, end):
        byte = data[at]
        letter = 48 <= byte <= 57 or 65 <= byte <= 90 or 97 <= byte <= 122
        if not letter and (at == start or (byte != 95 and byte != 45 and byte != 46 and byte != 58)):
            return False
    return True


@bare
def is_word(data: U8, start: int, end: int, word: U8) -> bool:
    """Tell whether ``data[start:end]`` is ``word``."""
    return end - start == len(word) and after(data, start, end, word) == end


@bare
def run_key(data: U8, name: int, name_end: int, number: int, number_end: int, key: U8) -> int:
    """Write the key of a run into ``key``; returns its length, 0 when it is too long."""
    length, digits = name_end - name, number_end - number
    if length + 1 + digits >= len(key):
        return 0
    for place in range(length):
        key[place] = data[name + place]
    key[length] = 35
    for place in range(digits):
        key[length + 1 + place] = data[number + place]
    return length + 1 + digits

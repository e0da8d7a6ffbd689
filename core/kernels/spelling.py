"""JSON of many decisions of one kind, written from columns straight into bytes.

A kind is told by *steps*, in the order of its fields, one row each: what is written, its literal in ``literals`` (what stands
before the value, as ``,"run":``), the column in ``cells`` that holds the value, and the value that is left out. Texts are never
spelled here: whoever calls has them spelled by the encoder that spells everything else, so there is one place that knows how a
character is escaped. What stands in ``cells`` for a text is its number.

A pure function of its columns; it writes ``out`` from its beginning and nothing else. Naive equivalent: make the struct of each row
and encode it. To read such bytes back is the same walk the other way round: each literal must stand where this writes it, and what
follows it is a number, or a text that ends where its quote does; at the first byte that differs the decoder of structs has to take
over.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

I64 = NDArray[np.int64]
U8 = NDArray[np.uint8]

# what a step writes: a number; a text; the pieces of a placement; numbers by name, from their opening to their end
NUMBER, TEXT, PIECES, OPEN, NAMED, CLOSE = range(6)
KIND, BEGIN, END, COLUMN, LEFT_OUT = range(5)  # columns of a step; of pieces it is their number that may be left out, when it is 0
ABSENT = -(2**63)  # as ``LEFT_OUT``: it is always written; as a number by name: it is not there
NUMBER_BYTES = 20  # at most
PIECE_BYTES = 8 + NUMBER_BYTES  # of a piece, beside its node and its GPUs
_COMMA, _MINUS, _ZERO, _OPEN, _CLOSE, _BRACE = 44, 45, 48, 91, 93, 125


class Pieces(NamedTuple):
    """The pieces of placements, as columns."""

    first: I64  # per row, where its pieces begin; one entry more than rows
    node: I64  # per piece: the text that names its node
    first_gpu: I64  # per piece, where its GPUs begin; one entry more than pieces
    gpus: I64  # positions on the node
    each: I64  # per piece: milli of each of its GPUs


@njit(cache=True, inline="always")
def _copy(out: U8, at: int, source: U8, begin: int, end: int) -> int:
    for k in range(begin, end):
        out[at] = source[k]
        at += 1
    return at


@njit(cache=True, inline="always")
def _number(out: U8, at: int, value: int) -> int:
    """Write a number above -2**63; returns the place after it."""
    if value < 0:
        out[at] = _MINUS
        at, value = at + 1, -value
    end, rest = at + 1, value
    while rest >= 10:
        rest //= 10
        end += 1
    for place in range(end - 1, at - 1, -1):
        rest = value // 10
        out[place] = _ZERO + value - 10 * rest
        value = rest
    return end


@njit(cache=True)
def _places(out: U8, at: int, row: int, pieces: Pieces, texts: U8, first: I64) -> int:
    """Write ``[[node,[gpu,gpu],milli],..]`` of a row; returns the place after it."""
    begin, end, node, first_gpu, gpus, each = (
        pieces.first[row], pieces.first[row + 1], pieces.node, pieces.first_gpu, pieces.gpus, pieces.each,
    )  # fmt: skip
    out[at] = _OPEN
    at += 1
    for piece in range(begin, end):
        if piece > begin:
            out[at] = _COMMA
            at += 1
        out[at] = _OPEN
        at = _copy(out, at + 1, texts, first[node[piece]], first[node[piece] + 1] - 1)
        out[at], out[at + 1] = _COMMA, _OPEN
        at += 2
        for k in range(first_gpu[piece], first_gpu[piece + 1]):
            if k > first_gpu[piece]:
                out[at] = _COMMA
                at += 1
            at = _number(out, at, gpus[k])
        out[at], out[at + 1] = _CLOSE, _COMMA
        at = _number(out, at + 2, each[piece])
        out[at] = _CLOSE
        at += 1
    out[at] = _CLOSE
    return at + 1


@njit(cache=True)
def spell(head: U8, steps: I64, literals: U8, cells: I64, texts: U8, first: I64, pieces: Pieces, out: U8) -> int:
    """Write the JSON objects of all rows, commas between; returns how many bytes that is. ``out`` must have room for them.

    ``head`` is what each begins with; ``cells`` is columns x rows; text k is ``texts[first[k] : first[k + 1] - 1]``, since the
    spelled texts stand in lines.
    """
    at = 0
    for row in range(cells.shape[1]):
        if row > 0:
            out[at] = _COMMA
            at += 1
        at = _copy(out, at, head, 0, len(head))
        pending, opened = -1, False  # the step that opens numbers by name, once the first of them is written
        for k in range(len(steps)):
            kind = steps[k, KIND]
            if kind == OPEN:
                pending, opened = k, False
                continue
            if kind == CLOSE:
                if opened:
                    out[at] = _BRACE
                    at += 1
                continue
            value = cells[steps[k, COLUMN], row] if kind != PIECES else pieces.first[row + 1] - pieces.first[row]
            if value == steps[k, LEFT_OUT]:
                continue
            if kind == NAMED:
                if not opened:
                    at = _copy(out, at, literals, steps[pending, BEGIN], steps[pending, END])
                    opened = True
                else:
                    out[at] = _COMMA
                    at += 1
            at = _copy(out, at, literals, steps[k, BEGIN], steps[k, END])
            if kind == TEXT:
                at = _copy(out, at, texts, first[value], first[value + 1] - 1)
            elif kind == PIECES:
                at = _places(out, at, row, pieces, texts, first)
            else:
                at = _number(out, at, value)
        out[at] = _BRACE
        at += 1
    return at

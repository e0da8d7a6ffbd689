"""Codes of many keys at once: 63 bits of the BLAKE2b hash of each, as ``state.table.key_code`` takes it of one.

The keys stand in lines, and each is at most a block of the hash; ``LANES`` of them are hashed side by side, so that one operation
on vectors is a step of all. The hash is that of RFC 7693 with 8 bytes of digest and no key; of its result only the first word is
wanted. Its words are without sign there: here they are the same bits as int64. Naive equivalent: ``hashlib.blake2b`` of each.

A pure function of the text; it fills ``codes`` and nothing else.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numba import njit
from numpy.typing import NDArray

I64 = NDArray[np.int64]
U8 = NDArray[np.uint8]
Word: TypeAlias = np.int64
Words: TypeAlias = tuple[Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word]

BLOCK_BYTES = 128  # a longer key has more than one block
LANES = 16
_LINE_END = 10
_A, _B, _C, _D, _E, _F, _G, _H = (
    np.int64(word - (word >> 63 << 64))
    for word in (
        0x6A09E667F3BCC908, 0xBB67AE8584CAA73B, 0x3C6EF372FE94F82B, 0xA54FF53A5F1D36F1, 0x510E527FADE682D1, 0x9B05688C2B3E6C1F,
        0x1F83D9ABFB41BD6B, 0x5BE0CD19137E2179,
    )
)  # fmt: skip
_FIRST = _A ^ np.int64(0x01010008)  # of 8 bytes, without a key, in one piece
_LAST = ~_G  # the first block is the last one


@njit(cache=True)
def _turned(word: Word, bits: int) -> Word:
    """Return a word turned to the right; the sign moves like any other bit."""
    return ((word >> bits) & ((1 << (64 - bits)) - 1)) | (word << (64 - bits))


@njit(cache=True)
def _mixed(a: Word, b: Word, c: Word, d: Word, x: Word, y: Word) -> tuple[Word, Word, Word, Word]:
    a = a + b + x
    d = _turned(d ^ a, 32)
    c = c + d
    b = _turned(b ^ c, 24)
    a = a + b + y
    d = _turned(d ^ a, 16)
    c = c + d
    return a, _turned(b ^ c, 63), c, d


@njit(cache=True)
def _round(v: Words, w: Words) -> Words:
    """Mix the columns, then the diagonals, with the words of the block in the order of this round."""
    a0, a1, a2, a3, b0, b1, b2, b3, c0, c1, c2, c3, d0, d1, d2, d3 = v
    a0, b0, c0, d0 = _mixed(a0, b0, c0, d0, w[0], w[1])
    a1, b1, c1, d1 = _mixed(a1, b1, c1, d1, w[2], w[3])
    a2, b2, c2, d2 = _mixed(a2, b2, c2, d2, w[4], w[5])
    a3, b3, c3, d3 = _mixed(a3, b3, c3, d3, w[6], w[7])
    a0, b1, c2, d3 = _mixed(a0, b1, c2, d3, w[8], w[9])
    a1, b2, c3, d0 = _mixed(a1, b2, c3, d0, w[10], w[11])
    a2, b3, c0, d1 = _mixed(a2, b3, c0, d1, w[12], w[13])
    a3, b0, c1, d2 = _mixed(a3, b0, c1, d2, w[14], w[15])
    return a0, a1, a2, a3, b0, b1, b2, b3, c0, c1, c2, c3, d0, d1, d2, d3


@njit(cache=True)
def _hash(words: I64, length: I64, hashed: I64) -> None:
    """Hash the block of each lane; ``words`` is words x lanes. Rounds are written out, so that its only loop is over lanes."""
    for k in range(words.shape[1]):
        w0, w1, w2, w3, w4, w5, w6, w7, w8, w9, w10, w11, w12, w13, w14, w15 = (
            words[0, k], words[1, k], words[2, k], words[3, k], words[4, k], words[5, k], words[6, k], words[7, k],
            words[8, k], words[9, k], words[10, k], words[11, k], words[12, k], words[13, k], words[14, k], words[15, k],
        )  # fmt: skip
        v = (_FIRST, _B, _C, _D, _E, _F, _G, _H, _A, _B, _C, _D, _E ^ length[k], _F, _LAST, _H)
        v = _round(v, (w0, w1, w2, w3, w4, w5, w6, w7, w8, w9, w10, w11, w12, w13, w14, w15))
        v = _round(v, (w14, w10, w4, w8, w9, w15, w13, w6, w1, w12, w0, w2, w11, w7, w5, w3))
        v = _round(v, (w11, w8, w12, w0, w5, w2, w15, w13, w10, w14, w3, w6, w7, w1, w9, w4))
        v = _round(v, (w7, w9, w3, w1, w13, w12, w11, w14, w2, w6, w5, w10, w4, w0, w15, w8))
        v = _round(v, (w9, w0, w5, w7, w2, w4, w10, w15, w14, w1, w11, w12, w6, w8, w3, w13))
        v = _round(v, (w2, w12, w6, w10, w0, w11, w8, w3, w4, w13, w7, w5, w15, w14, w1, w9))
        v = _round(v, (w12, w5, w1, w15, w14, w13, w4, w10, w0, w7, w6, w3, w9, w2, w8, w11))
        v = _round(v, (w13, w11, w7, w14, w12, w1, w3, w9, w5, w0, w15, w4, w8, w6, w2, w10))
        v = _round(v, (w6, w15, w14, w9, w11, w3, w0, w8, w12, w2, w13, w7, w1, w4, w10, w5))
        v = _round(v, (w10, w2, w8, w4, w7, w6, w1, w5, w15, w11, w9, w14, w3, w12, w13, w0))
        v = _round(v, (w0, w1, w2, w3, w4, w5, w6, w7, w8, w9, w10, w11, w12, w13, w14, w15))
        v = _round(v, (w14, w10, w4, w8, w9, w15, w13, w6, w1, w12, w0, w2, w11, w7, w5, w3))
        hashed[k] = _FIRST ^ v[0] ^ v[8]


@njit(cache=True)
def fill(text: U8, codes: I64) -> int:
    """Fill ``codes`` with those of the lines of ``text``, between two of which stands a line end; returns how many there are.

    -1 when there are more than ``codes`` has room for, or a line is longer than a block: then ``codes`` is as good as empty.
    """
    words, length, hashed = np.zeros((16, LANES), dtype=np.int64), np.zeros(LANES, dtype=np.int64), np.empty(LANES, dtype=np.int64)
    at, count, lane, end = 0, 0, 0, len(text)
    while at <= end:
        begin = at
        while at < end and text[at] != _LINE_END:
            byte = at - begin
            if byte == BLOCK_BYTES:
                return -1
            words[byte // 8, lane] |= np.int64(text[at]) << (8 * (byte % 8))
            at += 1
        length[lane] = at - begin
        lane, at = lane + 1, at + 1
        if lane == LANES or at > end:
            if count + lane > len(codes):
                return -1
            _hash(words, length, hashed)
            for k in range(lane):
                codes[count + k] = (hashed[k] >> 1) & ((1 << 63) - 1)
            words[:] = 0
            count, lane = count + lane, 0
    return count

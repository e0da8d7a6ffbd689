"""Heartbeats as integers and back: how the contiguous form of a segment takes bodies apart, and makes them again.

``take_apart`` reads heartbeats in the one spelling that ``encode_event`` gives them into columns, and keeps only those whose bytes
``_compose`` makes again exactly, byte for byte: any other body stays as it is. ``put_together`` makes them again. Both are pure
functions of their arguments; a property test feeds any bytes. What becomes of the columns is told in ``packed``.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from apportion.core.kernels.bare import bare
from apportion.core.kernels.reports import READ, Told

I64 = NDArray[np.int64]
U8 = NDArray[np.uint8]

# rows of ``fields``, one column per record
WHO, STORED_MS, REGULAR, AT_MS, BEAT, BUSY, MEMORY, WATTS, DOWN, DOWN_LENGTH, TAIL, TAIL_LENGTH, ID, ID_LENGTH, FIELDS = range(15)
# ``ID_LENGTH`` 0: the id is the node's name, a dot and the beat
# rows of ``amounts``, which only the bytes need
USE, SPACE, POWER, ID_AT, ID_BYTES, AMOUNTS = range(6)
MOST_DIGITS = 16
LARGEST = 9_007_199_254_740_992  # 2^53, as in the core: with a number above it a body is not regular
LONGEST = 16_384  # bytes of a regular body: any of them is below what the core accepts

_HEAD = np.frombuffer(b'{"at_ms":', dtype=np.uint8)
NODE = np.frombuffer(b',"data":{"node":"', dtype=np.uint8)
_BEAT = np.frombuffer(b'","beat":', dtype=np.uint8)
_DOWN = np.frombuffer(b',"gpus_down":[', dtype=np.uint8)
_BUSY = np.frombuffer(b',"busy_milli":', dtype=np.uint8)
_MEMORY = np.frombuffer(b',"memory_mib":', dtype=np.uint8)
_WATTS = np.frombuffer(b',"watts":', dtype=np.uint8)
_ID = np.frombuffer(b'},"id":"', dtype=np.uint8)
_TAIL = np.frombuffer(b'","type":"node.heartbeat","v":1}', dtype=np.uint8)

RUNS_BYTES, BROKEN_BYTES = len(',"runs":['), len(_DOWN)


@bare
def _after(data: U8, at: int, end: int, text: U8) -> int:
    """Return the position after ``text`` if it stands at ``at``, else -1."""
    if at < 0 or end - at < len(text):
        return -1
    for place in range(len(text)):
        if data[at + place] != text[place]:
            return -1
    return at + len(text)


@bare
def _number(data: U8, at: int, end: int) -> tuple[int, int]:
    """Return the digits at ``at`` as a number, and the position after them; position -1 when there are none, or it is too large."""
    value, begin = 0, at
    if at < 0:
        return 0, -1
    while at < end and 48 <= data[at] <= 57 and at - begin < MOST_DIGITS:
        value = value * 10 + int(data[at]) - 48
        at += 1
    return value, at if at > begin and value <= LARGEST else -1


@bare
def _amount(data: U8, at: int, end: int, name: U8) -> tuple[int, int]:
    """Return an amount that is left out when it is 0, and the position after it."""
    inner = _after(data, at, end, name)
    if inner < 0:
        return 0, at
    return _number(data, inner, end)


@bare
def _put(out: U8, at: int, text: U8, start: int, length: int) -> int:
    """Append a part of a text. The check, never true, lets the loop be vectorised."""
    if start < 0 or at < 0:
        return at
    for place in range(length):
        out[at + place] = text[start + place]
    return at + length


@bare
def _digits(out: U8, at: int, number: int) -> int:
    """Append a number in decimal."""
    digits, power = 1, 10
    while digits < MOST_DIGITS and number >= power:
        digits += 1
        power *= 10
    if at < 0:
        return at
    left = np.uint64(number)
    for place in range(at + digits - 1, at - 1, -1):
        rest = left // np.uint64(10)
        out[place] = np.uint8(48 + left - rest * np.uint64(10))
        left = rest
    return at + digits


@bare
def _named(out: U8, at: int, name: U8, number: int) -> int:
    """Append a field, unless its amount is 0."""
    if number == 0:
        return at
    return _digits(out, _put(out, at, name, 0, len(name)), number)


@bare
def _compose(
    out: U8, at: int, at_ms: int, beat: int, busy: int, memory: int, watts: int, nodes: U8, node: int, node_length: int,
    down: U8, down_at: int, down_length: int, tail: U8, tail_at: int, tail_length: int, ids: U8, id_at: int, id_length: int,
) -> int:  # fmt: skip
    """Append the body of a regular heartbeat; returns the position after it. ``id_length`` 0: node's name, dot and beat."""
    at = _digits(out, _put(out, at, _HEAD, 0, len(_HEAD)), at_ms)
    at = _put(out, _put(out, at, NODE, 0, len(NODE)), nodes, node, node_length)
    beat_at = _put(out, at, _BEAT, 0, len(_BEAT))
    at = beat_end = _digits(out, beat_at, beat)
    at = _put(out, at, down, down_at, down_length)
    at = _named(out, at, _BUSY, busy)
    at = _named(out, at, _MEMORY, memory)
    at = _named(out, at, _WATTS, watts)
    at = _put(out, at, tail, tail_at, tail_length)
    at = _put(out, at, _ID, 0, len(_ID))
    if id_length > 0:
        at = _put(out, at, ids, id_at, id_length)
    else:
        at = _put(out, at, nodes, node, node_length)
        out[at] = 46
        at = _put(out, at + 1, out, beat_at, beat_end - beat_at)
    return _put(out, at, _TAIL, 0, len(_TAIL))


@bare
def _read(data: U8, start: int, end: int, fields: I64, index: int, nodes: U8, node: int, node_length: int) -> bool:
    """Read one body into the columns; False when it does not look like a heartbeat of this node."""
    fields[AT_MS, index], at = _number(data, _after(data, start, end, _HEAD), end)
    at = _after(data, at, end, NODE)
    if at < 0 or end - at < node_length:
        return False
    for place in range(node_length):
        if data[at + place] != nodes[node + place]:
            return False
    fields[BEAT, index], at = _number(data, _after(data, at + node_length, end, _BEAT), end)
    if at < 0:
        return False
    fields[DOWN, index], fields[DOWN_LENGTH, index] = at, 0
    inner = _after(data, at, end, _DOWN)
    if inner >= 0:
        while inner < end and data[inner] != 93:
            inner += 1
        if inner == end:
            return False
        fields[DOWN_LENGTH, index] = inner + 1 - at
        at = inner + 1
    fields[BUSY, index], at = _amount(data, at, end, _BUSY)
    fields[MEMORY, index], at = _amount(data, at, end, _MEMORY)
    fields[WATTS, index], at = _amount(data, at, end, _WATTS)
    close = end - len(_TAIL)
    if at < 0 or close < at + len(_ID) or _after(data, close, end, _TAIL) < 0:
        return False
    begin = close
    while begin > at and data[begin - 1] != 34:
        begin -= 1
        if data[begin] < 32 or data[begin] > 126 or data[begin] == 92:
            return False  # an id of plain text, as the core's own fast lane wants it
    if begin - len(_ID) < at or _after(data, begin - len(_ID), end, _ID) < 0:
        return False
    fields[TAIL, index], fields[TAIL_LENGTH, index] = at, begin - len(_ID) - at
    fields[ID, index], fields[ID_LENGTH, index] = begin, close - begin
    return close > begin


@njit(cache=True)
def take_apart(data: U8, starts: I64, fields: I64, nodes: U8, node_starts: I64, longest: int) -> int:
    """Read the bodies ``data[starts[i]:starts[i + 1]]`` into ``fields``; returns how many are regular.

    ``nodes`` holds the name of each speaker's node from ``node_starts`` on (an empty one: it is no heartbeat). Texts that are no
    numbers are left where they stand in ``data``.
    """
    out = np.empty(2 * longest + 8 * (MOST_DIGITS + 24), dtype=np.uint8)
    regular = 0
    for index in range(fields.shape[1]):
        fields[REGULAR, index] = 0
        who, start, end = fields[WHO, index], starts[index], starts[index + 1]
        node, length = node_starts[who], node_starts[who + 1] - node_starts[who]
        if length == 0 or end - start > LONGEST or not _read(data, start, end, fields, index, nodes, node, length):
            continue
        explicit = fields[ID_LENGTH, index]
        same = False
        for attempt in range(2):
            fields[ID_LENGTH, index] = 0 if attempt == 0 else explicit
            filled = _compose(
                out, 0, fields[AT_MS, index], fields[BEAT, index], fields[BUSY, index], fields[MEMORY, index], fields[WATTS, index],
                nodes, node, length, data, fields[DOWN, index], fields[DOWN_LENGTH, index], data, fields[TAIL, index],
                fields[TAIL_LENGTH, index], data, fields[ID, index], fields[ID_LENGTH, index],
            )  # fmt: skip
            same = filled == end - start
            for place in range(filled if same else 0):
                if out[place] != data[start + place]:
                    same = False
                    break
            if same:
                break
        if same:
            fields[REGULAR, index] = 1
            regular += 1
    return regular


@njit(cache=True)
def put_together(
    told: Told, first: int, count: int, lengths: I64, bodies: U8, amounts: I64, nodes: U8, node_starts: I64, fragments: U8,
    ids: U8, out: U8, ends: I64,
) -> int:  # fmt: skip
    """Write the bodies of ``count`` records from ``first`` on into ``out``, and where each ends.

    ``lengths`` and ``bodies`` are of those among them that are not regular, ``amounts`` of all records. Returns the bytes written,
    -1 when they do not fit.
    """
    at, taken, other = 0, 0, 0
    for place in range(count):
        index = first + place
        if told.form[index] & READ:
            who = told.who[index]
            node, length = node_starts[who], node_starts[who + 1] - node_starts[who]
            broken, size = told.down[index], told.down_length[index] + BROKEN_BYTES + 1
            runs, tail = told.start[index], told.length[index] + RUNS_BYTES
            size, tail = size if broken > 0 else 0, tail if runs > 0 else 0
            if at + 8 * (MOST_DIGITS + 24) + 2 * length + size + tail + amounts[ID_BYTES, index] > len(out):
                return -1
            at = _compose(
                out, at, told.at_ms[index], told.beat[index], amounts[USE, index], amounts[SPACE, index], amounts[POWER, index],
                nodes, node, length, fragments, max(0, broken - BROKEN_BYTES), size, fragments, max(0, runs - RUNS_BYTES), tail,
                ids, amounts[ID_AT, index], amounts[ID_BYTES, index],
            )  # fmt: skip
        else:
            if other == len(lengths) or at + lengths[other] > len(out) or taken + lengths[other] > len(bodies):
                return -1
            at = _put(out, at, bodies, taken, lengths[other])
            taken += lengths[other]
            other += 1
        ends[place] = at
    return at

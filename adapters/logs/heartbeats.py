"""Heartbeats as integers and back: the kernels of the contiguous form of a segment.

``take_apart`` reads heartbeats in the one spelling that ``encode_event`` gives them into columns, and keeps only those whose bytes
``_compose`` makes again exactly, byte for byte: any other body stays as it is. ``put_together`` makes them again. ``tangle`` turns
the columns into small numbers (what is said less what was to be expected of that speaker), ``pack`` writes them seven bits to a
byte, and ``read`` undoes both. All are pure functions of their arguments; a property test feeds any bytes.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from apportion.core.kernels.keys import bare

I64 = NDArray[np.int64]
U8 = NDArray[np.uint8]

# rows of ``fields``, one column per record
WHO, STORED_MS, REGULAR, AT_MS, BEAT, BUSY, MEMORY, WATTS, DOWN, DOWN_LENGTH, TAIL, TAIL_LENGTH, ID, ID_LENGTH, FIELDS = range(15)
# ``ID_LENGTH`` 0: the id is the node's name, a dot and the beat
MOST_DIGITS = 16
LARGEST = 9_007_199_254_740_992  # 2^53, as in the core: with a number above it a body is not regular
LONGEST = 16_384  # bytes of a regular body: any of them is below what the core accepts
SLOPE_BITS = 12  # watts per thousandth of a GPU, as a fraction of 4,096

_HEAD = np.frombuffer(b'{"at_ms":', dtype=np.uint8)
NODE = np.frombuffer(b',"data":{"node":"', dtype=np.uint8)
_BEAT = np.frombuffer(b'","beat":', dtype=np.uint8)
_DOWN = np.frombuffer(b',"gpus_down":[', dtype=np.uint8)
_BUSY = np.frombuffer(b',"busy_milli":', dtype=np.uint8)
_MEMORY = np.frombuffer(b',"memory_mib":', dtype=np.uint8)
_WATTS = np.frombuffer(b',"watts":', dtype=np.uint8)
_ID = np.frombuffer(b'},"id":"', dtype=np.uint8)
_TAIL = np.frombuffer(b'","type":"node.heartbeat","v":1}', dtype=np.uint8)


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
    out: U8, at: int, fields: I64, index: int, nodes: U8, node: int, node_length: int, down: U8, tail: U8, ids: U8
) -> int:
    """Append the body of a regular heartbeat; returns the position after it."""
    at = _digits(out, _put(out, at, _HEAD, 0, len(_HEAD)), fields[AT_MS, index])
    at = _put(out, _put(out, at, NODE, 0, len(NODE)), nodes, node, node_length)
    beat = _put(out, at, _BEAT, 0, len(_BEAT))
    at = beat_end = _digits(out, beat, fields[BEAT, index])
    at = _put(out, at, down, fields[DOWN, index], fields[DOWN_LENGTH, index])
    at = _named(out, at, _BUSY, fields[BUSY, index])
    at = _named(out, at, _MEMORY, fields[MEMORY, index])
    at = _named(out, at, _WATTS, fields[WATTS, index])
    at = _put(out, at, tail, fields[TAIL, index], fields[TAIL_LENGTH, index])
    at = _put(out, at, _ID, 0, len(_ID))
    if fields[ID_LENGTH, index] > 0:
        at = _put(out, at, ids, fields[ID, index], fields[ID_LENGTH, index])
    else:
        at = _put(out, at, nodes, node, node_length)
        out[at] = 46
        at = _put(out, at + 1, out, beat, beat_end - beat)
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
            filled = _compose(out, 0, fields, index, nodes, node, length, data, data, data)
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
    fields: I64, first: int, lengths: I64, bodies: U8, nodes: U8, node_starts: I64, fragments: U8, ids: U8, out: U8, ends: I64
) -> int:
    """Write the bodies of as many records as ``ends`` has room for, from ``first`` on, into ``out``, and where each ends.

    ``lengths`` and ``bodies`` are of those among them that are not regular. Returns the bytes written, -1 when they do not fit.
    """
    at, taken, other = 0, 0, 0
    for place in range(len(ends)):
        index = first + place
        if fields[REGULAR, index] == 1:
            who = fields[WHO, index]
            node, length = node_starts[who], node_starts[who + 1] - node_starts[who]
            need = 8 * (MOST_DIGITS + 24) + 2 * length
            need += fields[DOWN_LENGTH, index] + fields[TAIL_LENGTH, index] + fields[ID_LENGTH, index]
            if at + need > len(out):
                return -1
            at = _compose(out, at, fields, index, nodes, node, length, fragments, fragments, ids)
        else:
            if other == len(lengths) or at + lengths[other] > len(out) or taken + lengths[other] > len(bodies):
                return -1
            at = _put(out, at, bodies, taken, lengths[other])
            taken += lengths[other]
            other += 1
        ends[place] = at
    return at


# -- expectations ------------------------------------------------------------------------------------------------------


@njit(cache=True)
def tangle(fields: I64, speakers: int, interval_ms: int, slope: int) -> None:
    """Put in place of each number its difference from what was to be expected. The inverse of ``untangle``."""
    following, last = np.full(speakers, -1, dtype=np.int64), np.zeros((FIELDS, speakers), dtype=np.int64)
    before, stored_before = 0, 0
    for index in range(fields.shape[1]):
        who, stored_ms, regular = fields[WHO, index], fields[STORED_MS, index], fields[REGULAR, index]
        fields[WHO, index] = 0 if following[before] == who else who + 1
        following[before] = who
        expected_ms = last[STORED_MS, who] + interval_ms if regular == 1 and last[REGULAR, who] == 1 else stored_before
        fields[STORED_MS, index] = stored_ms - expected_ms
        if regular == 1:
            lag_ms, busy = stored_ms - fields[AT_MS, index], fields[BUSY, index]
            watts = last[WATTS, who] + ((busy - last[BUSY, who]) * slope >> SLOPE_BITS)
            fields[AT_MS, index] = lag_ms - last[AT_MS, who]
            last[AT_MS, who], last[STORED_MS, who], last[REGULAR, who] = lag_ms, stored_ms, 1
            fields[WATTS, index], last[WATTS, who] = fields[WATTS, index] - watts, fields[WATTS, index]
            fields[BUSY, index], last[BUSY, who] = busy - last[BUSY, who], busy
            fields[BEAT, index], last[BEAT, who] = fields[BEAT, index] - last[BEAT, who] - 1, fields[BEAT, index]
            fields[MEMORY, index], last[MEMORY, who] = fields[MEMORY, index] - last[MEMORY, who], fields[MEMORY, index]
            tail = fields[TAIL, index]  # number of the fragment + 1
            if tail > 0:
                fields[TAIL, index], last[TAIL, who] = 1 if tail == last[TAIL, who] else tail + 1, tail
        before, stored_before = who, stored_ms


@njit(cache=True)
def untangle_amounts(fields: I64, speakers: int, slope: int) -> None:
    """Put back what heartbeats say of use, memory and power."""
    last = np.zeros((FIELDS, speakers), dtype=np.int64)
    for index in range(fields.shape[1]):
        if fields[REGULAR, index] == 1:
            who = fields[WHO, index]
            busy = last[BUSY, who] + fields[BUSY, index]
            fields[WATTS, index] += last[WATTS, who] + ((busy - last[BUSY, who]) * slope >> SLOPE_BITS)
            fields[MEMORY, index] += last[MEMORY, who]
            fields[BUSY, index] = last[BUSY, who] = busy
            last[WATTS, who], last[MEMORY, who] = fields[WATTS, index], fields[MEMORY, index]


# -- seven bits to a byte ----------------------------------------------------------------------------------------------


@njit(cache=True)
def pack(values: I64) -> U8:
    """Write signed numbers so that small ones take one byte (zigzag, then seven bits a byte, the lowest first)."""
    out = np.empty(10 * len(values), dtype=np.uint8)
    at = 0
    for index in range(len(values)):
        value = np.uint64((values[index] << 1) ^ (values[index] >> 63))
        while value >= np.uint64(128):
            out[at] = np.uint8(value & np.uint64(127)) | np.uint8(128)
            value >>= np.uint64(7)
            at += 1
        out[at] = np.uint8(value)
        at += 1
    return out[:at].copy()


@njit(cache=True)
def unpack(data: U8, values: I64) -> bool:
    """Read as many numbers as ``values`` has room for; False when there are fewer, or more."""
    at = 0
    for index in range(len(values)):
        value, shift = np.uint64(0), np.uint64(0)
        while True:
            if at == len(data) or shift > np.uint64(63):
                return False
            byte = np.uint64(data[at])
            at += 1
            value |= (byte & np.uint64(127)) << shift
            if byte < np.uint64(128):
                break
            shift += np.uint64(7)
        values[index] = np.int64(value >> np.uint64(1)) ^ -np.int64(value & np.uint64(1))
    return at == len(data)


@njit(cache=True)
def _next(data: U8, at: int) -> tuple[int, int]:
    """Return the number at ``at``, and the position after it, -1 when there is none."""
    if at < 0 or at >= len(data):
        return 0, -1
    byte = np.int64(data[at])
    if byte < 128:
        return int((byte >> 1) ^ -(byte & 1)), at + 1
    value, shift = np.uint64(0), np.uint64(0)
    while at < len(data) and shift <= np.uint64(63):
        part = np.uint64(data[at])
        at += 1
        value |= (part & np.uint64(127)) << shift
        if part < np.uint64(128):
            return int(np.int64(value >> np.uint64(1)) ^ -np.int64(value & np.uint64(1))), at
        shift += np.uint64(7)
    return 0, -1


@njit(cache=True)
def read(
    regular: U8, who: U8, stored: U8, at_ms: U8, beat: U8, down: U8, tail: U8, ids: U8, begins: I64, speakers: int,
    interval_ms: int, fields: I64,
) -> int:  # fmt: skip
    """Read what a fold looks at, packed and tangled, into ``fields``: all rows but amounts and the lengths of ids.

    ``begins`` are where the fragments begin, and where the last one ends; a fragment's number becomes its place and length. Naive
    equivalent: ``unpack`` each column, and undo ``tangle``. Returns what is wrong: 0 nothing, from 1 to 8
    that column, 9 a subject, 10 a fragment that there is not.
    """
    following, known = np.full(speakers, -1, dtype=np.int64), np.zeros(speakers, dtype=np.int64)
    last_ms, last_lag_ms = np.zeros(speakers, dtype=np.int64), np.zeros(speakers, dtype=np.int64)
    last_beat, last_tail = np.zeros(speakers, dtype=np.int64), np.zeros(speakers, dtype=np.int64)
    at_regular, at_who, at_stored, at_at, at_beat, at_down, at_tail, at_id = 0, 0, 0, 0, 0, 0, 0, 0
    before, stored_before = 0, 0
    for index in range(fields.shape[1]):
        usual, at_regular = _next(regular, at_regular)
        speaker, at_who = _next(who, at_who)
        step_ms, at_stored = _next(stored, at_stored)
        if at_regular < 0 or at_who < 0 or at_stored < 0:
            break
        speaker = speaker - 1 if speaker != 0 or speakers == 0 else following[before]
        if speaker < 0 or speaker >= speakers:
            return 9
        following[before] = speaker
        stored_ms = step_ms + (last_ms[speaker] + interval_ms if usual == 1 and known[speaker] == 1 else stored_before)
        fields[WHO, index], fields[STORED_MS, index], fields[REGULAR, index] = speaker, stored_ms, usual
        before, stored_before = speaker, stored_ms
        if usual != 1:
            fields[AT_MS, index], fields[BEAT, index], fields[ID, index] = 0, 0, 0
            fields[DOWN, index], fields[DOWN_LENGTH, index], fields[TAIL, index], fields[TAIL_LENGTH, index] = 0, 0, 0, 0
            continue
        lag_ms, at_at = _next(at_ms, at_at)
        step, at_beat = _next(beat, at_beat)
        broken, at_down = _next(down, at_down)
        runs, at_tail = _next(tail, at_tail)
        explicit, at_id = _next(ids, at_id)
        if at_at < 0 or at_beat < 0 or at_down < 0 or at_tail < 0 or at_id < 0:
            break
        lag_ms += last_lag_ms[speaker]
        last_lag_ms[speaker], last_ms[speaker], known[speaker] = lag_ms, stored_ms, 1
        last_beat[speaker] += step + 1
        if runs > 0:
            runs = last_tail[speaker] if runs == 1 else runs - 1
            last_tail[speaker] = runs
        if not (0 <= broken < len(begins) and 0 <= runs < len(begins)):
            return 10
        fields[AT_MS, index], fields[BEAT, index], fields[ID, index] = stored_ms - lag_ms, last_beat[speaker], explicit
        fields[DOWN, index] = begins[broken - 1] if broken > 0 else 0
        fields[DOWN_LENGTH, index] = begins[broken] - begins[broken - 1] if broken > 0 else 0
        fields[TAIL, index] = begins[runs - 1] if runs > 0 else 0
        fields[TAIL_LENGTH, index] = begins[runs] - begins[runs - 1] if runs > 0 else 0
    ends = (at_regular, at_who, at_stored, at_at, at_beat, at_down, at_tail, at_id)
    sizes = (len(regular), len(who), len(stored), len(at_ms), len(beat), len(down), len(tail), len(ids))
    for column in range(len(ends)):
        if ends[column] < 0:
            return column + 1
    for column in range(len(ends)):
        if ends[column] != sizes[column]:
            return column + 1
    return 0


@njit(cache=True)
def lay(
    fields: I64, lengths: I64, bodies: int, fragments: U8, runs: U8, broken_bytes: int, longest: int, start: I64, length: I64,
    down: I64, down_length: I64, plain: I64,
) -> None:  # fmt: skip
    """Tell the fold where the text of each record is, in bodies and then fragments: ``trusting.columns_of``.

    Of a record that is not regular its body; of one that is, its list of runs from after ``runs``, its opening, and its list of
    broken GPUs between the brackets, ``broken_bytes`` behind its begin. ``plain`` becomes 0 where it has something else, or is
    longer than ``longest``. ``lengths`` are those of bodies.
    """
    other, at = 0, 0
    for index in range(len(plain)):
        start[index], length[index], down[index], down_length[index], plain[index] = 0, 0, 0, 0, 1
        if fields[REGULAR, index] != 1:
            start[index], length[index] = at, lengths[other]
            plain[index] = 1 if lengths[other] <= longest else 0
            at += lengths[other]
            other += 1
            continue
        size = fields[TAIL_LENGTH, index]
        if size > 0:
            begin = fields[TAIL, index]
            same = size > len(runs)
            for place in range(len(runs) if same else 0):
                same = same and fragments[begin + place] == runs[place]
            start[index], length[index] = bodies + begin + len(runs), size - len(runs)
            plain[index] = 1 if same else 0
        size = fields[DOWN_LENGTH, index]
        if size > 0:
            down[index], down_length[index] = bodies + fields[DOWN, index] + broken_bytes, size - broken_bytes - 1
            if down_length[index] == 0:  # an empty list, which nobody needs to write
                plain[index] = 0

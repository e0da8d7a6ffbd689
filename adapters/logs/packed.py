"""Columns of heartbeats as small numbers, seven bits to a byte, and back: the kernels between ``columns`` and the bytes kept.

``tangle`` puts in place of each number its difference from what was to be expected of that speaker, ``pack`` writes them, small
ones in one byte. ``read`` undoes both in one pass, and says of each record what a fold looks at (``core.kernels.reports.Told``);
``unpack`` and ``untangle_amounts`` undo them of what only the bytes need. All are pure functions of their arguments.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from apportion.adapters.logs.heartbeats import (
    AT_MS,
    BEAT,
    BROKEN_BYTES,
    BUSY,
    FIELDS,
    MEMORY,
    POWER,
    REGULAR,
    RUNS_BYTES,
    SPACE,
    STORED_MS,
    TAIL,
    USE,
    WATTS,
    WHO,
)
from apportion.core.kernels.bare import bare
from apportion.core.kernels.reports import HIDDEN, READ, Told

I64 = NDArray[np.int64]
U8 = NDArray[np.uint8]

SLOPE_BITS = 12  # watts per thousandth of a GPU, as a fraction of 4,096


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
def untangle_amounts(amounts: I64, who: I64, form: I64, speakers: int, slope: int) -> None:
    """Put back what heartbeats say of use, memory and power."""
    last = np.zeros((3, speakers), dtype=np.int64)
    for index in range(len(who)):
        if form[index] & READ:
            speaker = who[index]
            busy = last[USE, speaker] + amounts[USE, index]
            amounts[POWER, index] += last[POWER, speaker] + ((busy - last[USE, speaker]) * slope >> SLOPE_BITS)
            amounts[SPACE, index] += last[SPACE, speaker]
            amounts[USE, index] = last[USE, speaker] = busy
            last[POWER, speaker], last[SPACE, speaker] = amounts[POWER, index], amounts[SPACE, index]


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


@bare
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
    regular: U8, who: U8, stored: U8, at_ms: U8, beat: U8, down: U8, tail: U8, begins: I64, lists: U8, lengths: I64, longest: int,
    speakers: int, interval_ms: int, told: Told, others: I64,
) -> int:  # fmt: skip
    """Read what a fold looks at, packed and tangled, into ``told``, and the positions of what is kept as it was into ``others``.

    ``begins`` are where the fragments begin, and where the last one ends: behind it the bodies of ``others`` follow each other,
    ``lengths`` long. ``lists`` is 1 for a fragment that is a list of runs; what has another, or an empty list of broken GPUs, or
    is longer than ``longest``, is hidden from the fold. Naive equivalent: ``unpack`` each column, and undo ``tangle``. Returns what
    is wrong: 0 nothing, from 1 to 7 that column, 8 a subject, 9 a fragment that there is not, 10 the lengths.
    """
    following, known = np.full(speakers, -1, dtype=np.int64), np.zeros(speakers, dtype=np.int64)
    last_ms, last_lag_ms = np.zeros(speakers, dtype=np.int64), np.zeros(speakers, dtype=np.int64)
    last_beat, last_tail = np.zeros(speakers, dtype=np.int64), np.zeros(speakers, dtype=np.int64)
    at_regular, at_who, at_stored, at_at, at_beat, at_down, at_tail = 0, 0, 0, 0, 0, 0, 0
    before, stored_before, other, body = 0, 0, 0, begins[len(begins) - 1]
    for index in range(len(told.form)):
        usual, at_regular = _next(regular, at_regular)
        speaker, at_who = _next(who, at_who)
        step_ms, at_stored = _next(stored, at_stored)
        if at_regular < 0 or at_who < 0 or at_stored < 0:
            break
        speaker = speaker - 1 if speaker != 0 or speakers == 0 else following[before]
        if speaker < 0 or speaker >= speakers:
            return 8
        following[before] = speaker
        stored_ms = step_ms + (last_ms[speaker] + interval_ms if usual == 1 and known[speaker] == 1 else stored_before)
        told.who[index], told.stored_ms[index] = speaker, stored_ms
        before, stored_before = speaker, stored_ms
        if usual != 1:
            if other == len(lengths):
                return 10
            size = lengths[other]
            told.form[index], told.start[index], told.length[index] = 0 if size <= longest else HIDDEN, body, size
            told.at_ms[index], told.beat[index], told.down[index], told.down_length[index] = 0, 0, 0, 0
            others[other] = index
            other, body = other + 1, body + size
            continue
        lag_ms, at_at = _next(at_ms, at_at)
        step, at_beat = _next(beat, at_beat)
        broken, at_down = _next(down, at_down)
        runs, at_tail = _next(tail, at_tail)
        if at_at < 0 or at_beat < 0 or at_down < 0 or at_tail < 0:
            break
        lag_ms += last_lag_ms[speaker]
        last_lag_ms[speaker], last_ms[speaker], known[speaker] = lag_ms, stored_ms, 1
        last_beat[speaker] += step + 1
        if runs > 0:
            runs = last_tail[speaker] if runs == 1 else runs - 1
            last_tail[speaker] = runs
        if not (0 <= broken < len(begins) and 0 <= runs < len(begins)):
            return 9
        told.at_ms[index], told.beat[index] = stored_ms - lag_ms, last_beat[speaker]
        form, start, length = READ, 0, 0
        if runs > 0:
            start, length = begins[runs - 1] + RUNS_BYTES, begins[runs] - begins[runs - 1] - RUNS_BYTES
            if lists[runs - 1] == 0:
                form |= HIDDEN
        told.start[index], told.length[index] = start, length
        start, length = 0, 0
        if broken > 0:
            start, length = begins[broken - 1] + BROKEN_BYTES, begins[broken] - begins[broken - 1] - BROKEN_BYTES - 1
            if length <= 0:  # an empty list, which nobody needs to write
                form |= HIDDEN
        told.down[index], told.down_length[index], told.form[index] = start, length, form
    ends = (at_regular, at_who, at_stored, at_at, at_beat, at_down, at_tail)
    sizes = (len(regular), len(who), len(stored), len(at_ms), len(beat), len(down), len(tail))
    for column in range(len(ends)):
        if ends[column] < 0:
            return column + 1
    for column in range(len(ends)):
        if ends[column] != sizes[column]:
            return column + 1
    return 0 if other == len(lengths) else 10

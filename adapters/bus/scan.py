"""Reading a run of stream messages straight out of the network buffer: a compiled scan, then a few list operations.

A replay of a million records spends its time on taking messages apart. ``scan`` walks the frames of one subscription in
the buffer, checks that both sequences continue without a hole, and writes down where each subject and body stands;
Python then only cuts. It is a pure function of the buffer.

The naive equivalent is ``StreamTail._on_message`` called per message; the scan stops in front of everything unusual (a
status, another subscription, a hole, an unfinished frame), which then goes the ordinary way. So the two give the same
records and the same errors; a test compares them.

Loading it compiles, or reads the compiled code from the cache: only readers of long logs ask for it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

MAX_FRAMES = 4_096
FIELDS = 5  # subject start, subject end, body start, body end, stored ms


@njit(cache=True)
def _number(data: Any, start: Any, end: Any) -> Any:
    """Return the decimal number in ``data[start:end]``, -1 when it is none."""
    if end <= start or end - start > 19:
        return -1
    value = np.int64(0)
    for place in range(start, end):
        digit = np.int64(data[place]) - 48
        if digit < 0 or digit > 9:
            return -1
        value = value * 10 + digit
    return value


@njit(cache=True)
def scan(data: Any, position: Any, sid: Any, next_seq: Any, consumer_seq: Any, out: Any) -> Any:
    """Take the leading frames of subscription ``sid`` that continue ``next_seq`` and ``consumer_seq``.

    Fills one column of ``out`` per frame; returns how many, and the position of the first frame not taken.
    """
    end = len(data)
    count = 0
    while count < out.shape[1]:
        at = position
        with_header = False
        if at + 5 < end and data[at] == 72:  # H
            with_header = True
            at += 1
        if at + 4 >= end or data[at] != 77 or data[at + 1] != 83 or data[at + 2] != 71 or data[at + 3] != 32:
            break  # not MSG
        subject_start = at + 4
        # Words of the control line: subject, sid, reply, [header size,] size.
        word = 0
        word_start = subject_start
        subject_end = reply_start = reply_end = 0
        header_size = 0
        size = -1
        line_end = -1
        good = True
        at = subject_start
        while at < end:
            byte = data[at]
            if byte == 32 or byte == 13:
                if word == 0:
                    subject_end = at
                elif word == 1:
                    good = _number(data, word_start, at) == sid
                elif word == 2:
                    reply_start = word_start
                    reply_end = at
                elif word == 3:
                    size = _number(data, word_start, at)
                else:
                    header_size = size
                    size = _number(data, word_start, at)
                if not good:
                    break
                word += 1
                word_start = at + 1
                if byte == 13:
                    line_end = at
                    break
            at += 1
        if not good or line_end < 0 or size < 0 or word != (5 if with_header else 4):
            break
        header_start = line_end + 2
        if header_start + size + 2 > end:
            break
        if with_header and data[header_start + 8] == 32:
            break  # a status
        # Tokens of the acknowledgement subject, counted by their dots.
        dots = 0
        for place in range(reply_start, reply_end):
            if data[place] == 46:
                dots += 1
        first = 5 if dots == 8 else (7 if dots >= 10 else -1)
        if first < 0:
            break
        dots = 0
        token_start = reply_start
        seq = delivery = stored_ns = -1
        for place in range(reply_start, reply_end + 1):
            if place == reply_end or data[place] == 46:
                if dots == first:
                    seq = _number(data, token_start, place)
                elif dots == first + 1:
                    delivery = _number(data, token_start, place)
                elif dots == first + 2:
                    stored_ns = _number(data, token_start, place)
                    break
                dots += 1
                token_start = place + 1
        if seq != next_seq or delivery != consumer_seq + 1 or stored_ns < 0:
            break
        out[0, count] = subject_start
        out[1, count] = subject_end
        out[2, count] = header_start + header_size
        out[3, count] = header_start + size
        out[4, count] = stored_ns // 1_000_000
        count += 1
        next_seq += 1
        consumer_seq += 1
        position = header_start + size + 2
    return count, position


def scan_buffer(
    data: bytes, position: int, sid: int, next_seq: int, consumer_seq: int, out: np.ndarray[Any, np.dtype[np.int64]]
) -> tuple[int, int]:
    """Call ``scan`` on bytes."""
    count, after = scan(np.frombuffer(data, np.uint8), position, sid, next_seq, consumer_seq, out)
    return int(count), int(after)


def table() -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the scratch table ``scan`` fills, a column per frame; one per reader."""
    return np.zeros((FIELDS, MAX_FRAMES), np.int64)

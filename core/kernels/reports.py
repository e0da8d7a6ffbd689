"""Reports of agents that only change numbers, read and folded by one loop over their bytes: nine and a half records in ten.

``fold`` takes heartbeats and checkpoints in the one spelling that ``encode_event`` gives them, and changes what they change. It
stops in front of everything else (another spelling, another type, GPUs that break or are well again, a list that does not match
what the node holds, a report that is refused), which then goes the slow way; so what it takes must be read and folded exactly as
that way would.
Naive equivalent: ``fold.records.fold_record`` record by record, that is ``nodes.node_heartbeat`` and ``runs.run_checkpointed``; a
property test compares every byte of the state.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from apportion.core.kernels.bare import bare
from apportion.core.kernels.heard import HEARD_COUNT, HEARD_LENGTH, HEARD_LIST, HEARD_PIECES, is_in, remember
from apportion.core.kernels.keys import NAME_BYTES, find
from apportion.core.units import MAX_DURATION_MS, MAX_ELAPSED_MS, MAX_TIME_MS

I64 = NDArray[np.int64]
U8 = NDArray[np.uint8]

BUILT_ON = {"heard": "34ce2ed79558", "bare": "6b2fd7db475f", "keys": "2c9723beac6b"}  # as in ``effects``

MAX_LISTED = 64  # runs in one heartbeat; more go the slow way

# kinds of records, and of ``speakers``. COUNTED: a heartbeat read already, whose subject names its node as if that spoke for itself
BEAT, CHECKPOINT, COUNTED = 1, 2, 3
# forms of records, bits: a heartbeat read already; one that the kernel must not see
READ, HIDDEN = 1, 2
# rows of ``speakers``, a column per subject: its kind, principal's row, and place in the text of subjects
KIND, PRINCIPAL, SUBJECT, SUBJECT_LENGTH = range(4)
BEFORE_NODE, AFTER_NODE = len("ap.ev."), len(".node.heartbeat")  # of its subject: what stands around its node's name
# ``numbers``: in, out, and the positions of columns in their blocks
SEQ, TIME_MS, STATED, SILENCE_MS, PLANNED_MS, RUN_ENDED, PAYER_BUDGET, TAKEN_BYTES, UNREAD, BEATS, CHAINED, COLUMNS = range(12)
NODE_COLUMNS = ("beat", "last_seen_ms", "agent", "gpus", "silent", "broken", "first_gpu", "runs")
N_BEAT, N_SEEN, N_AGENT, N_GPUS, N_SILENT, N_BROKEN, N_FIRST, N_RUNS = range(COLUMNS, COLUMNS + 8)
ALLOC_COLUMNS = ("gpu", "next", "confirmed_ms", "missed", "idle_ms")
A_GPU, A_NEXT, A_CONFIRMED, A_MISSED, A_IDLE = range(N_RUNS + 1, N_RUNS + 6)
GPU_COLUMNS = ("node", "broken")
G_NODE, G_BROKEN = A_IDLE + 1, A_IDLE + 2
RUN_COLUMNS = ("first_alloc", "state", "lead", "workload", "gpus_milli", "payer", "payer_since_ms", "charged_us", "unfunded_us")
R_ALLOC, R_STATE, R_LEAD, R_WORKLOAD, R_GPUS, R_PAYER, R_SINCE, R_CHARGED, R_UNFUNDED = range(G_BROKEN + 1, G_BROKEN + 10)
SAFE_COLUMNS = ("resume_ms", "checkpoint_ms", "checkpoint_gap_ms", "safe_charged_us", "safe_unfunded_us")  # of the run, too
R_RESUME, R_CHECKPOINT, R_GAP, R_SAFE_CHARGED, R_SAFE_UNFUNDED = range(R_UNFUNDED + 1, R_UNFUNDED + 6)
WORKLOAD_COLUMNS = ("progress_ms", "fruitless")
W_PROGRESS, W_FRUITLESS = range(R_SAFE_UNFUNDED + 1, R_SAFE_UNFUNDED + 3)


class Told(NamedTuple):
    """What is told of records, number by number."""

    form: I64
    who: I64  # number of its subject, a column of ``speakers``
    stored_ms: I64
    start: I64  # of its body in the data; of one read already, of its list of runs after the bracket
    length: I64
    at_ms: I64  # this and what follows of those read already, what they say
    beat: I64
    down: I64  # place of the list of broken GPUs between its brackets
    down_length: I64  # 0: no list
    frame_end: I64  # where frames are wanted, where it ends


_HEAD = np.frombuffer(b'{"at_ms":', dtype=np.uint8)
_NODE = np.frombuffer(b',"data":{"node":"', dtype=np.uint8)
_BEAT = np.frombuffer(b'","beat":', dtype=np.uint8)
_DOWN = np.frombuffer(b',"gpus_down":[', dtype=np.uint8)
_BUSY = np.frombuffer(b',"busy_milli":', dtype=np.uint8)
_MEMORY = np.frombuffer(b',"memory_mib":', dtype=np.uint8)
_WATTS = np.frombuffer(b',"watts":', dtype=np.uint8)
_RUNS = np.frombuffer(b',"runs":[', dtype=np.uint8)
_IDLE_RUNS = np.frombuffer(b',"idle_runs":[', dtype=np.uint8)
_ID = np.frombuffer(b'},"id":"', dtype=np.uint8)
_BEAT_TAIL = np.frombuffer(b'","type":"node.heartbeat","v":1}', dtype=np.uint8)
_WORKLOAD_IS = np.frombuffer(b',"data":{"workload":"', dtype=np.uint8)
_RUN_IS = np.frombuffer(b'","run":', dtype=np.uint8)
_PROGRESS = np.frombuffer(b',"progress_ms":', dtype=np.uint8)
_CHECKPOINT_TAIL = np.frombuffer(b'","type":"run.checkpointed","v":1}', dtype=np.uint8)


# -- reading -----------------------------------------------------------------------------------------------------------


@bare
def _after(data: U8, at: int, end: int, text: U8) -> int:
    """Return the position after ``text`` if it stands at ``at``, else -1."""
    if at < 0 or end - at < len(text):
        return -1
    differ = 0
    for place in range(len(text)):  # no early end: so it is done many bytes at a time
        differ |= data[at + place] ^ text[place]
    return at + len(text) if differ == 0 else -1


@bare
def _number(data: U8, at: int, end: int) -> tuple[int, int]:
    """Return the integer at ``at``, as JSON writes it, and the position after it; (-1, -1) above 2^53 or when it is none."""
    value = 0
    begin = at
    if at < 0:
        return -1, -1
    while at < end and 48 <= data[at] <= 57 and at - begin < 17:
        value = value * 10 + int(data[at]) - 48
        at += 1
    digits = at - begin
    if digits == 0 or digits > 16 or value > 9_007_199_254_740_992 or (digits > 1 and data[begin] == 48):
        return -1, -1
    return value, at


@bare
def _text_end(data: U8, at: int, end: int) -> int:
    """Return the position of the quote that ends a text of printable ASCII without escapes, -1 when it is another text."""
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
def _listed(data: U8, at: int, end: int, names: U8, slots: I64, rows: I64) -> tuple[int, int]:
    """Read a list of runs from after its bracket: how many different known ones are now in ``rows``, and the position after it.

    Position -1: not a list of plain texts, or too many of them.
    """
    count = 0
    if at < end and data[at] == 93:
        return 0, at + 1
    while True:
        if at >= end or data[at] != 34:
            return 0, -1
        close = _text_end(data, at + 1, end)
        if close < 0 or close + 1 >= end:
            return 0, -1
        row = find(data, at + 1, close, names, slots)
        for place in range(count):
            if rows[place] == row:
                row = -1
        if row >= 0:
            if count == len(rows):
                return 0, -1
            rows[count] = row
            count += 1
        at = close + 2
        if data[close + 1] == 93:
            return count, at
        if data[close + 1] != 44:
            return 0, -1


@bare
def _lists(data: U8, start: int, end: int, names: U8, slots: I64, runs: I64, idle: I64) -> tuple[int, int]:
    """Read a list of runs from after its bracket, and the list of idle ones that may follow: known ones in each.

    -1 and 0 where there is none; the second is -1 when ``data[start:end]`` is something else.
    """
    if start == end:
        return -1, 0
    known, at = _listed(data, start, end, names, slots, runs)
    asleep, inner = 0, _after(data, at, end, _IDLE_RUNS)
    if inner >= 0:
        asleep, at = _listed(data, inner, end, names, slots, idle)
    return known, asleep if at == end else -1


@bare
def _beat(
    data: U8, start: int, end: int, names: U8, slots: I64, rows: I64
) -> tuple[int, int, int, int, int, int, int]:
    """Read a heartbeat; its instant is -1 when it is in another spelling.

    Instant, place of the node's name (start, end), beat, runs listed (-1: no list), place of what its list of broken GPUs holds.
    """
    at_ms, at = _number(data, _after(data, start, end, _HEAD), end)
    name = _after(data, at, end, _NODE)
    name_end = _text_end(data, name, end)
    count, at = _number(data, _after(data, name_end, end, _BEAT), end)
    down, down_end = at, at
    inner = _after(data, at, end, _DOWN)
    if inner >= 0:
        down = down_end = inner
        while down_end < end and data[down_end] != 93:
            down_end += 1
        at = down_end + 1
    inner = _after(data, at, end, _BUSY)
    if inner >= 0:
        at = _number(data, inner, end)[1]
    inner = _after(data, at, end, _MEMORY)
    if inner >= 0:
        at = _number(data, inner, end)[1]
    inner = _after(data, at, end, _WATTS)
    if inner >= 0:
        at = _number(data, inner, end)[1]
    known = -1
    inner = _after(data, at, end, _RUNS)
    if inner >= 0:
        known, at = _listed(data, inner, end, names, slots, rows)
    at = _after(data, _text_end(data, _after(data, at, end, _ID), end), end, _BEAT_TAIL)
    return at_ms if at == end else -1, name, name_end, count, known, down, down_end


@bare
def _checkpoint(data: U8, start: int, end: int, names: U8, slots: I64, scratch: U8) -> tuple[int, int, int]:
    """Read a checkpoint: instant, row of the run (-1: none), progress. Instant -1: not read."""
    at_ms, at = _number(data, _after(data, start, end, _HEAD), end)
    name = _after(data, at, end, _WORKLOAD_IS)
    name_end = _text_end(data, name, end)
    number = _after(data, name_end, end, _RUN_IS)
    number_end = _number(data, number, end)[1]
    progress_ms, at = _number(data, _after(data, number_end, end, _PROGRESS), end)
    at = _after(data, _text_end(data, _after(data, at, end, _ID), end), end, _CHECKPOINT_TAIL)
    if at != end:
        return -1, -1, 0
    length = name_end - name
    if length + 1 + number_end - number >= NAME_BYTES:
        return at_ms, -1, 0
    for place in range(length):
        scratch[place] = data[name + place]
    scratch[length] = 35
    for place in range(number_end - number):
        scratch[length + 1 + place] = data[number + place]
    return at_ms, find(scratch, 0, length + 1 + number_end - number, names, slots), progress_ms


# -- folding -----------------------------------------------------------------------------------------------------------


@bare
def _put(frames: U8, at: int, number: int, then: int) -> int:
    """Write a number in decimal and the byte ``then`` (blank or newline)."""
    if at < 0 or number < 0:
        return at
    digits = 1
    power = 10
    while digits < 18 and number >= power:
        digits += 1
        power *= 10
    for place in range(at + digits - 1, at - 1, -1):
        rest = number // 10
        frames[place] = 48 + (number - rest * 10)
        number = rest
    frames[at + digits] = then
    return at + digits + 1


@bare
def _copy(source: U8, start: int, length: int, frames: U8, at: int) -> int:
    """Append bytes to the frames; returns the position after them. The check, never true, lets the loop be vectorised."""
    if start < 0 or at < 0:
        return at
    for place in range(length):
        frames[at + place] = source[start + place]
    return at + length


@bare
def _frame(
    frames: U8, at: int, seq: int, time_ms: int, subjects: U8, subject: int, length: int, data: U8, start: int, end: int
) -> int:
    """Append the frame of a record for the chain, as ``state.digest.frame_of`` writes it; returns the position after it."""
    at = _put(frames, at, seq, 32)
    at = _put(frames, at, time_ms, 32)
    at = _copy(subjects, subject, length, frames, at)
    frames[at] = 32
    at = _put(frames, at + 1, end - start, 10)
    return _copy(data, start, end - start, frames, at)


@bare
def _pieces_here(row: int, runs: I64, count: int, first_alloc: I64, gpu: I64, following: I64, node: I64) -> int:
    """Return how many of ``runs[:count]`` hold a GPU of the node at ``row``."""
    here = 0
    for place in range(count):
        piece = first_alloc[runs[place]]
        while piece >= 0 and node[gpu[piece]] != row:
            piece = following[piece]
        if piece >= 0:
            here += 1
    return here


@bare
def _as_known(data: U8, at: int, end: int, broken: I64, first: int, size: int, count: int) -> bool:
    """Tell whether a list of GPUs, from after its bracket, rises and names those ``count`` of a node that are broken, no others."""
    last = -1
    while at < end:
        gpu, at = _number(data, at, end)
        if gpu <= last or gpu >= size or broken[first + gpu] == 0:
            return False
        last, count = gpu, count - 1
        if at < end:
            if data[at] != 44 or at + 1 == end:
                return False
            at += 1
    return count == 0


@bare
def _confirm(
    row: int, now_ms: int, listed: I64, known: int, idle: I64, asleep: int, first_alloc: I64, alloc_gpu: I64, following: I64,
    gpu_node: I64, missed: I64, confirmed_ms: I64, idle_ms: I64,
) -> None:  # fmt: skip
    """Take over that the pieces on the node at ``row`` of the runs listed are there, and whether they are idle."""
    for place in range(known):
        piece, since_ms = first_alloc[listed[place]], now_ms if is_in(listed[place], idle, asleep) else 0
        while piece >= 0:
            if gpu_node[alloc_gpu[piece]] == row:
                missed[piece], confirmed_ms[piece] = 0, now_ms
                if since_ms == 0 or idle_ms[piece] == 0:
                    idle_ms[piece] = since_ms
            piece = following[piece]


@bare
def _confirm_again(heard: I64, row: int, now_ms: int, missed: I64, confirmed_ms: I64, idle_ms: I64) -> None:
    """The same of the list that is remembered."""
    for place in range(heard[row, HEARD_COUNT]):
        each = heard[row, HEARD_PIECES + place]
        piece, since_ms = each >> 1, now_ms * (each & 1)
        missed[piece], confirmed_ms[piece] = 0, now_ms
        if since_ms == 0 or idle_ms[piece] == 0:
            idle_ms[piece] = since_ms


@bare
def _node_of(who: int, speakers: I64, rows: I64, subjects: U8, node_names: U8, node_slots: I64) -> int:
    """Return the row of the node that a subject names as if it spoke for itself, and remember it; -1 when there is none."""
    row = rows[who] - 1 if len(rows) > 0 else -1
    if row < 0:
        start, end = speakers[SUBJECT, who] + BEFORE_NODE, speakers[SUBJECT, who] + speakers[SUBJECT_LENGTH, who] - AFTER_NODE
        row = find(subjects, start, end, node_names, node_slots)
        if len(rows) > 0:
            rows[who] = row + 1
    return int(row)


@bare
def _advance(numbers: I64, run: I64, workload: I64, row: int, progress_ms: int, now_ms: int) -> bool:
    """Make the progress of a run in progress safe, its account settled; False, and nothing changed, when it is not its turn."""
    owner, progress, fruitless = run[numbers[R_WORKLOAD], row], workload[numbers[W_PROGRESS]], workload[numbers[W_FRUITLESS]]
    charged_us, unfunded_us, since_ms = run[numbers[R_CHARGED]], run[numbers[R_UNFUNDED]], run[numbers[R_SINCE]]
    elapsed_ms = now_ms - since_ms[row]
    if run[numbers[R_STATE], row] == numbers[RUN_ENDED] or progress_ms < progress[owner] or progress_ms > MAX_DURATION_MS:
        return False
    if elapsed_ms < 0 or elapsed_ms > MAX_ELAPSED_MS:
        return False
    amount_us = run[numbers[R_GPUS], row] * elapsed_ms
    if run[numbers[R_PAYER], row] == numbers[PAYER_BUDGET]:
        charged_us[row] += amount_us
    else:
        unfunded_us[row] += amount_us
    since_ms[row] = now_ms
    if progress_ms > run[numbers[R_RESUME], row]:
        fruitless[owner] = 0
    progress[owner] = progress_ms
    run[numbers[R_GAP], row] = now_ms - run[numbers[R_CHECKPOINT], row]
    run[numbers[R_CHECKPOINT], row] = now_ms
    run[numbers[R_SAFE_CHARGED], row] = charged_us[row]
    run[numbers[R_SAFE_UNFUNDED], row] = unfunded_us[row]
    return True


@bare
def kind_of(told: Told, speakers: I64, index: int) -> int:
    """Return the kind of a record: that of its speaker, unless it was read already, or is to be seen by nobody here."""
    form, kind = told.form[index], speakers[KIND, told.who[index]]
    if form & HIDDEN:
        return 0
    return COUNTED if kind == BEAT and form & READ else int(kind)


@njit(cache=True)
def fold(
    numbers: I64, data: U8, told: Told, speakers: I64, first: int, stop: int, subjects: U8,
    node: I64, alloc: I64, gpu: I64, run: I64, workload: I64,
    node_names: U8, node_slots: I64, run_names: U8, run_slots: I64, frames: U8, rows: I64, heard: I64,
) -> int:  # fmt: skip
    """Fold the reports from ``first`` to before ``stop``; returns the index of the first record that was not taken.

    ``numbers`` gives what of the state is not in the blocks, and whether frames are wanted; it gets back the time reached, the
    bytes of ``frames`` filled (each frame's end is told), how many were heartbeats, and whether the record it stopped at is in
    another spelling. ``rows`` remembers by the number of a subject the row of its node, + 1, as long as nodes keep their names; an
    empty one remembers nothing. So does ``heard`` by node which pieces its last list came to, as long as ``data`` is the same:
    whoever places or releases a piece on a node forgets that node's.
    """
    beat, seen, agent, gpus = node[numbers[N_BEAT]], node[numbers[N_SEEN]], node[numbers[N_AGENT]], node[numbers[N_GPUS]]
    silent, broken, runs = node[numbers[N_SILENT]], node[numbers[N_BROKEN]], node[numbers[N_RUNS]]
    sick, first_gpu = gpu[numbers[G_BROKEN]], node[numbers[N_FIRST]]
    alloc_gpu, following, confirmed_ms = alloc[numbers[A_GPU]], alloc[numbers[A_NEXT]], alloc[numbers[A_CONFIRMED]]
    missed, idle_ms, gpu_node = alloc[numbers[A_MISSED]], alloc[numbers[A_IDLE]], gpu[numbers[G_NODE]]
    first_alloc, lead = run[numbers[R_ALLOC]], run[numbers[R_LEAD]]
    time_ms, stated = numbers[TIME_MS], numbers[STATED]
    longest_ms = min(numbers[SILENCE_MS], MAX_ELAPSED_MS)
    listed, idle = np.empty(MAX_LISTED, dtype=np.int64), np.empty(MAX_LISTED, dtype=np.int64)
    scratch = np.empty(NAME_BYTES, dtype=np.uint8)
    filled, beats, unread, index = 0, 0, 0, first
    while index < stop:
        kind, who, start = kind_of(told, speakers, index), told.who[index], told.start[index]
        end, asleep, principal = start + told.length[index], 0, speakers[PRINCIPAL, who]
        if kind == BEAT:
            at_ms, name, name_end, count, known, down, down_end = _beat(data, start, end, run_names, run_slots, listed)
        elif kind == COUNTED:
            at_ms, count, down = told.at_ms[index], told.beat[index], told.down[index]
            down_end = down + told.down_length[index]
        elif kind == CHECKPOINT:
            at_ms, row, progress_ms = _checkpoint(data, start, end, run_names, run_slots, scratch)
        else:
            break
        if at_ms < 0:
            unread = 1
            break
        claimed = at_ms if stated != 0 else told.stored_ms[index]
        if claimed < 0 or claimed > MAX_TIME_MS or claimed - time_ms > longest_ms:
            break
        now_ms = max(time_ms, claimed)
        if kind != CHECKPOINT:
            # a node in service, no sicker than it was, heard from its own agent, counting up, that has the runs it should have
            if kind == BEAT:
                row = find(data, name, name_end, node_names, node_slots)
            else:
                row = _node_of(who, speakers, rows, subjects, node_names, node_slots)
            if row < 0 or count <= beat[row] or principal != agent[row]:
                break
            again = False
            if kind == COUNTED and start < end:
                again = row < len(heard) and heard[row, HEARD_LIST] == start + 1 and heard[row, HEARD_LENGTH] == end - start
                if not again:
                    known, asleep = _lists(data, start, end, run_names, run_slots, listed, idle)
                    if asleep < 0:
                        break
            elif kind == COUNTED:
                known = -1
            if gpus[row] == 0 or silent[row] != 0:
                break
            says = broken[row] > 0 or down_end > down
            if says and not _as_known(data, down, down_end, sick, first_gpu[row], gpus[row], broken[row]):
                break
            checked = again or known < 0
            if not checked and _pieces_here(row, listed, known, first_alloc, alloc_gpu, following, gpu_node) != runs[row]:
                break
            beat[row] = count
            seen[row] = now_ms
            if again:
                _confirm_again(heard, row, now_ms, missed, confirmed_ms, idle_ms)
            else:
                _confirm(
                    row, now_ms, listed, known, idle, asleep, first_alloc, alloc_gpu, following, gpu_node, missed, confirmed_ms,
                    idle_ms,
                )  # fmt: skip
                if kind == COUNTED and known >= 0 and row < len(heard):
                    remember(
                        heard, row, start, end - start, listed, known, idle, asleep, first_alloc, alloc_gpu, following, gpu_node
                    )  # fmt: skip
            beats += 1
        else:
            if row < 0 or principal != agent[lead[row]]:
                break
            if 0 < numbers[PLANNED_MS] <= now_ms or not _advance(numbers, run, workload, row, progress_ms, now_ms):
                break
            piece = first_alloc[row]
            while piece >= 0:
                confirmed_ms[piece] = now_ms
                idle_ms[piece] = 0
                piece = following[piece]
        time_ms = now_ms
        if numbers[CHAINED] != 0:
            subject, length = speakers[SUBJECT, who], speakers[SUBJECT_LENGTH, who]
            filled = _frame(frames, filled, numbers[SEQ] + 1 + index - first, time_ms, subjects, subject, length, data, start, end)
            told.frame_end[index] = filled
        index += 1
    numbers[TIME_MS], numbers[TAKEN_BYTES], numbers[BEATS], numbers[UNREAD] = time_ms, filled, beats, unread
    return index


COMPILED = hasattr(fold, "py_func")  # False where Numba is told not to compile: then a loop in Python is faster than this one

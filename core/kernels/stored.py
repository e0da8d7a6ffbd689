"""The stored decisions of a cycle, read where they stand and folded: the part of ``stretch`` that trusts a batch.

``trust`` compares a batch's head with the state, folds its decisions one after the other, closes the cycle and compares the books.
It takes the common cases in the one spelling that ``encode_batch`` gives them, and stops in front of a decision that is another.
Naive equivalent: ``Core.trust`` with ``check=False``, that is ``decode_batch``, ``fold.outcomes.apply`` each, and the end of the
cycle. A field that nothing in the state depends on is passed over.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from apportion.core.kernels import effects as to
from apportion.core.kernels import keys
from apportion.core.kernels import spelled as said
from apportion.core.kernels.bare import bare
from apportion.core.units import MILLI

I64 = NDArray[np.int64]
U8 = NDArray[np.uint8]

# as in ``effects``
BUILT_ON = {"effects": "edfc1a175a73", "bare": "6b2fd7db475f", "keys": "2c9723beac6b", "spelled": "df6561b0923e"}

# how it ended: the cycle is closed; at decision ``n[DECISION]``, which goes the slow way with all after it; with books that are not
# those of the state; with accounts that do not add up, the cycle not closed
TRUSTED, SLOW, BOOKS, BROKEN = range(4)
# what a batch is made of, by the order of ``DECISIONS``
(
    ADMITTED, RUN_PLACED, RUN_CLOSED, WORKLOAD_CLOSED, EXPLAINED, PREEMPTED, RESERVED, FUNDING, CANCELLED, DRAINED,
) = range(10)  # fmt: skip
DECISIONS = (
    "workload.admitted", "run.placed", "run.closed", "workload.closed", "pending.explained", "run.preempted", "gpus.reserved",
    "funding.changed", "run.cancelled", "run.drained",
)  # fmt: skip
STOP_PREEMPT, STOP_CANCEL, STOP_DRAIN = 1, 2, 3
MOST_PIECES = 4_096  # GPUs of one start
MAX_CHAIN = 64  # digits


def _bytes(text: bytes) -> U8:
    return np.frombuffer(text, dtype=np.uint8)


_THEN_WORKLOAD, _RUN, _NODE = _bytes(b'","workload":"'), _bytes(b'","run":'), _bytes(b',"node":"')
_OUTCOME, _EXIT_CODE, _CORE = _bytes(b'","outcome":"'), _bytes(b',"exit_code":'), _bytes(b'{"core":')
_CYCLE, _SEQ, _TIME, _CHAIN = _bytes(b',"cycle":'), _bytes(b',"seq":'), _bytes(b',"time_ms":'), _bytes(b',"chain":"')
_DIGEST, _DECISIONS, _TYPE = _bytes(b'","digest":"'), _bytes(b'","decisions":['), _bytes(b'{"type":"')
_BOOKS, _POOL, _SUPPLY = _bytes(b'],"books":['), _bytes(b'{"pool":"'), _bytes(b'","supply":')
_DOWN, _IDLE, _UNFUNDED = _bytes(b',"down":'), _bytes(b',"idle":'), _bytes(b',"unfunded":')
_FUNDED, _PENDING, _FREE = _bytes(b',"funded":'), _bytes(b',"pending_milli":'), _bytes(b',"free_milli":')
_OF_BUDGET, _IN_POOL, _MILLI = _bytes(b',"budget":"'), _bytes(b'","pool":"'), _bytes(b'","gpus_milli":')
_PIECES, _NO_PIECES, _THEN_PIECES = _bytes(b',"pieces":[["'), _bytes(b'","pieces":[]'), _bytes(b'","pieces":[["')
_PAYER, _WHY_SO, _THEN_PAYER = _bytes(b',"payer":"'), _bytes(b'","why":"'), _bytes(b'","payer":"')
_PROTECTED, _RESERVES = _bytes(b'","protected_until_ms":'), _bytes(b',"reserved_gpu_us":')
_RESUME, _PLACED, _ENDED = _bytes(b',"resume_from_ms":'), _bytes(b'","placed_ms":'), _bytes(b',"end_ms":')
_OF_MILLI, _CHARGED = _bytes(b',"gpus_milli":'), _bytes(b',"charged_gpu_us":')
_UNPAID, _VOIDED, _LOST = _bytes(b',"unfunded_gpu_us":'), _bytes(b',"voided_gpu_us":'), _bytes(b',"lost_gpu_us":')
_PROGRESS, _EVENT, _REQUEUED = _bytes(b',"progress_ms":'), _bytes(b',"event_seq":'), _bytes(b',"requeued":true')
_NOT_BEFORE, _REASON, _NUMBERS = _bytes(b',"not_before_ms":'), _bytes(b'","reason":"'), _bytes(b',"numbers":{')
_EARLIEST, _SINCE, _LATE = _bytes(b"earliest_ms"), _bytes(b"funded_since_ms"), _bytes(b"late_ms")
_PLANNED, _UNTIL = _bytes(b"planned_ms"), _bytes(b',"grace_until_ms":')
_BENEFICIARY, _UNFUNDED_HOLD = _bytes(b',"certificate":{"beneficiary":"'), _bytes(b',"unfunded":true')
_DEADLINE = _bytes(b'","deadline_ms":')


# -- decisions ---------------------------------------------------------------------------------------------------------


@bare
def _run_named(w: to.World, data: U8, at: int, end: int, key: U8) -> tuple[int, int, int]:
    """Read workload and run number from after the type's word: the run's row (-1: none), the number, the position after it."""
    name, name_end = said.text(data, at, end, _THEN_WORKLOAD)
    number = said.after(data, name_end, end, _RUN)
    run_no, number_end = said.integer(data, number, end)
    if number_end < 0:
        return -1, 0, -1
    length = said.run_key(data, name, name_end, number, number_end, key)
    return keys.find(key, 0, length, w.run_names, w.run_slots), run_no, number_end


@bare
def _workload_named(w: to.World, data: U8, at: int, end: int) -> tuple[int, int]:
    """Read a workload's name from after the type's word: its row (-1: none), and the position of the quote after it."""
    name, name_end = said.text(data, at, end, _THEN_WORKLOAD)
    return keys.find(data, name, name_end, w.workload_names, w.workload_slots) if name_end >= 0 else -1, name_end


@bare
def _pieces(n: I64, w: to.World, data: U8, at: int, end: int, gpus: I64, each: I64) -> tuple[int, int]:
    """Read pieces from after the quote that opens the first node's name: how many GPUs, and the position after the list; or -1."""
    count, last = 0, -1
    while True:
        close = said.text_end(data, at, end)
        if close < 0:
            return 0, -1
        node = keys.find(data, at, close, w.node_names, w.node_slots)
        at = close + 1
        if node < 0 or node == last or at + 1 >= end or data[at] != 44 or data[at + 1] != 91:
            return 0, -1
        first, begin = w.node[n[to.N_FIRST_GPU], node], count
        last = node
        at += 2
        while True:
            gpu, at = said.integer(data, at, end)
            if at < 0 or at + 1 >= end or gpu < 0 or first + gpu >= n[to.GPUS] or count == len(gpus):
                return 0, -1
            gpus[count] = first + gpu
            count += 1
            at += 1
            if data[at - 1] == 93:
                break
            if data[at - 1] != 44:
                return 0, -1
        if data[at] != 44:
            return 0, -1
        milli, at = said.integer(data, at + 1, end)
        if at < 0 or at + 3 >= end or not 0 < milli <= MILLI or data[at] != 93:
            return 0, -1
        each[begin:count] = milli
        if data[at + 1] == 93:
            return count, at + 2
        if data[at + 1] != 44 or data[at + 2] != 91 or data[at + 3] != 34:
            return 0, -1
        at += 4


@bare
def _admit(n: I64, w: to.World, data: U8, at: int, end: int) -> int:
    row, at = _workload_named(w, data, at, end)
    if row < 0 or w.workload[n[to.W_STATE], row] != to.NEW or w.workload[n[to.W_WISH], row] != 0:
        return -1
    after = said.object_end(data, at + 1, end)
    if after >= 0:
        to.enqueue(n, w, row)
    return after


@bare
def _fits(n: I64, w: to.World, gpus: I64, each: I64, count: int) -> bool:
    """Tell whether the GPUs of a start have so much left; a GPU that is named twice counts twice."""
    used = w.gpu[n[to.G_USED_MILLI]]
    fits, took = True, 0
    for place in range(count):
        if used[gpus[place]] + each[place] > MILLI:
            fits = False
            break
        used[gpus[place]] += each[place]
        took = place + 1
    for place in range(took):
        used[gpus[place]] -= each[place]
    return fits


@bare
def _place(n: I64, w: to.World, data: U8, at: int, end: int, key: U8, gpus: I64, each: I64) -> int:
    begin = at
    run, run_no, number_end = _run_named(w, data, at, end, key)
    row, name_end = _workload_named(w, data, begin, end)
    _budget, budget_end = said.text(data, number_end, end, _OF_BUDGET)
    pool, pool_end = said.text(data, budget_end, end, _IN_POOL)
    milli, at = said.integer(data, said.after(data, pool_end, end, _MILLI), end)
    at = said.after(data, at, end, _PIECES)
    if row < 0 or run >= 0 or at < 0:
        return -1
    table, state = w.workload, w.workload[n[to.W_STATE], row]
    if (state != to.PENDING and state != to.HELD) or table[n[to.W_WISH], row] != 0 or table[n[to.W_CHOICES], row] != 0:
        return -1
    if said.word_at(data, pool, pool_end, w.words[n[to.IN_POOLS] :]) != table[n[to.W_POOL], row]:
        return -1
    count, at = _pieces(n, w, data, at, end, gpus, each)
    payer, payer_end = said.text(data, at, end, _PAYER)
    _why, why_end = said.text(data, payer_end, end, _WHY_SO)
    until_ms, at = said.integer(data, said.after(data, why_end, end, _PROTECTED), end)
    reserved_us, at = said.integer(data, said.after(data, at, end, _RESERVES), end)
    resume_ms, at = said.field(data, at, end, _RESUME, 0)
    pays, after = said.word_at(data, payer, payer_end, w.words[n[to.PAYERS] : n[to.IN_POOLS]]), said.object_end(data, at, end)
    if after < 0 or count == 0 or pays < 0 or not _fits(n, w, gpus, each, count):
        return -1
    if not to.has_room(n, to.RUNS, w.run, 1) or not to.has_room(n, to.ALLOCS, w.alloc, count):
        return -1
    name, number = begin + len(_THEN_WORKLOAD), name_end + len(_RUN)
    length = said.run_key(data, name, name_end, number, number_end, key)
    if length == 0 or not to.may_name(n, to.RUNS, w.run_slots) or not to.dequeue(n, w, row):
        return -1
    if state == to.HELD:
        to.drop_hold(n, w, row)
    to.place(n, w, row, key, length, run_no, milli, gpus, each, count, pays + 1, until_ms, reserved_us, resume_ms)
    return after


@bare
def _close(n: I64, w: to.World, data: U8, at: int, end: int, key: U8) -> int:
    run, _number, at = _run_named(w, data, at, end, key)
    _budget, budget_end = said.text(data, at, end, _OF_BUDGET)
    _pool, pool_end = said.text(data, budget_end, end, _IN_POOL)
    word, word_end = said.text(data, pool_end, end, _OUTCOME)
    at = said.integer(data, said.after(data, word_end, end, _PLACED), end)[1]
    at = said.integer(data, said.after(data, at, end, _ENDED), end)[1]
    at = said.integer(data, said.after(data, at, end, _OF_MILLI), end)[1]
    charged_us, at = said.integer(data, said.after(data, at, end, _CHARGED), end)
    unfunded_us, at = said.integer(data, said.after(data, at, end, _UNPAID), end)
    at = said.field(data, at, end, _VOIDED, 0)[1]
    at = said.field(data, at, end, _LOST, 0)[1]
    at = said.field(data, at, end, _PROGRESS, 0)[1]
    at = said.field(data, at, end, _EXIT_CODE, 0)[1]
    at = said.field(data, at, end, _EVENT, 0)[1]
    requeued, inner = False, said.after(data, at, end, _REQUEUED)
    if inner >= 0:
        requeued, at = True, inner
    not_before_ms, at = said.field(data, at, end, _NOT_BEFORE, 0)
    outcome = said.word_at(data, word, word_end, w.words[n[to.OUTCOMES] : n[to.REASONS]]) + 1
    if run < 0 or at < 0 or at >= end or data[at] != 125 or outcome == 0 or w.run[n[to.R_STATE], run] != to.ENDED:
        return -1
    if charged_us != w.run[n[to.R_CHARGED_US], run] or unfunded_us != w.run[n[to.R_UNFUNDED_US], run]:
        return -1
    row = w.run[n[to.R_WORKLOAD], run]
    may_wait = w.workload[n[to.W_WISH], row] == 0 and not to.waits(w, row)
    if w.workload[n[to.W_HOLD], row] != to.HOLD_NONE or (requeued and not may_wait):
        return -1
    to.close_run(n, w, run, outcome, requeued, not_before_ms)
    return at + 1


@bare
def _close_workload(n: I64, w: to.World, data: U8, at: int, end: int) -> int:
    row, at = _workload_named(w, data, at, end)
    after = said.object_end(data, at + 1, end)
    if row < 0 or after < 0 or w.workload[n[to.W_WISH], row] != 0 or w.workload[n[to.W_CHOICES], row] != 0:
        return -1
    if not to.has_room(n, to.CLOSED, w.closed, 1) or not to.may_name(n, to.CLOSED, w.closed_slots):
        return -1
    state = w.workload[n[to.W_STATE], row]
    if state == to.PENDING or state == to.HELD:
        if not to.dequeue(n, w, row):
            return -1
        to.drop_hold(n, w, row)
    to.close_workload(n, w, row)
    return after


@bare
def _explain(n: I64, w: to.World, data: U8, at: int, end: int) -> int:
    row, at = _workload_named(w, data, at, end)
    word, word_end = said.text(data, at, end, _REASON)
    reason = said.word_at(data, word, word_end, w.words[n[to.REASONS] : n[to.PAYERS]]) + 1
    if row < 0 or reason == 0:
        return -1
    at = word_end + 1
    earliest_ms, since_ms, late_ms, planned_ms, has_earliest = 0, 0, 0, 0, False
    inner = said.after(data, at, end, _NUMBERS)
    if inner >= 0:
        at = inner
        while True:
            if at >= end or data[at] != 34:
                return -1
            close = said.text_end(data, at + 1, end)
            if close < 0 or close + 1 >= end or data[close + 1] != 58:
                return -1
            number, then = said.integer(data, close + 2, end)
            if then < 0 or then >= end:
                return -1
            if said.is_word(data, at + 1, close, _EARLIEST):
                earliest_ms, has_earliest = number, True
            elif said.is_word(data, at + 1, close, _SINCE):
                since_ms = number
            elif said.is_word(data, at + 1, close, _LATE):
                late_ms = number
            elif said.is_word(data, at + 1, close, _PLANNED):
                planned_ms = number
            at = then + 1
            if data[then] == 125:
                break
            if data[then] != 44:
                return -1
    protected = reason == n[to.PROTECTED_RUNS]
    if at >= end or data[at] != 125 or (protected and not has_earliest):
        return -1
    table = w.workload
    table[n[to.W_REASON], row], table[n[to.W_FUNDED_MS], row], table[n[to.W_PLANNED_MS], row] = reason, since_ms, planned_ms
    table[n[to.W_TOLD_MS], row], table[n[to.W_LATE_MS], row] = (earliest_ms - late_ms, late_ms) if protected else (0, 0)
    return at + 1


@bare
def _preempt(n: I64, w: to.World, data: U8, at: int, end: int, key: U8) -> int:
    run, _number, at = _run_named(w, data, at, end, key)
    until_ms, at = said.integer(data, said.after(data, at, end, _UNTIL), end)
    name, name_end = said.text(data, at, end, _BENEFICIARY)
    if run < 0 or name_end < 0:
        return -1
    taker = keys.find(data, name, name_end, w.workload_names, w.workload_slots)
    inner = said.object_end(data, name_end + 1, end)
    if taker < 0 or inner < 0 or inner >= end or data[inner] != 125:
        return -1
    to.stop(n, w, run, STOP_PREEMPT, until_ms, n[to.SEQ])
    w.budget[n[to.B_TOOK_MS], w.workload[n[to.W_BUDGET], taker]] = n[to.TIME_MS]
    return inner + 1


@bare
def _reserve(n: I64, w: to.World, data: U8, at: int, end: int, gpus: I64, each: I64) -> int:
    row, name_end = _workload_named(w, data, at, end)
    if row < 0:
        return -1
    count, at = 0, said.after(data, name_end, end, _NO_PIECES)
    if at < 0:
        count, at = _pieces(n, w, data, said.after(data, name_end, end, _THEN_PIECES), end, gpus, each)
    inner = said.after(data, at, end, _UNFUNDED_HOLD)
    if at < 0 or (inner if inner >= 0 else at) >= end or data[inner if inner >= 0 else at] != 125:
        return -1
    held = w.gpu[n[to.G_HELD_BY]]
    for place in range(count):
        if held[gpus[place]] != 0 and held[gpus[place]] != row + 1:
            return -1
        for before in range(place):
            if gpus[before] == gpus[place]:
                return -1
    to.drop_hold(n, w, row)
    for place in range(count):
        held[gpus[place]] = row + 1
    table = w.workload
    why = to.HOLD_UNFUNDED if inner >= 0 else to.HOLD_FUNDED
    table[n[to.W_HOLD], row], table[n[to.W_PROPOSED], row] = why if count > 0 else to.HOLD_NONE, 0
    table[n[to.W_STATE], row] = to.HELD if count > 0 else to.PENDING
    return (inner if inner >= 0 else at) + 1


@bare
def _fund(n: I64, w: to.World, data: U8, at: int, end: int, key: U8) -> int:
    run, _number, at = _run_named(w, data, at, end, key)
    _budget, budget_end = said.text(data, at, end, _OF_BUDGET)
    payer, payer_end = said.text(data, budget_end, end, _THEN_PAYER)
    pays = said.word_at(data, payer, payer_end, w.words[n[to.PAYERS] : n[to.IN_POOLS]])
    after = said.object_end(data, payer_end + 1, end)
    if run < 0 or pays < 0 or payer_end < 0 or after < 0 or not to.can_settle(n, w, run):
        return -1
    to.change_payer(n, w, run, pays + 1)
    return after


@bare
def _stop(n: I64, w: to.World, data: U8, at: int, end: int, key: U8, kind: int) -> int:
    """Fold a ``run.cancelled`` or ``run.drained``."""
    run, _number, at = _run_named(w, data, at, end, key)
    seq = n[to.SEQ]
    if kind == CANCELLED:
        seq, at = said.integer(data, said.after(data, at, end, _EVENT), end)
    else:
        _node, node_end = said.text(data, at, end, _NODE)
        at = said.integer(data, said.after(data, node_end, end, _DEADLINE), end)[1]
    until_ms, at = said.integer(data, said.after(data, at, end, _UNTIL), end)
    after = said.object_end(data, at, end)
    if run < 0 or after < 0:
        return -1
    to.stop(n, w, run, STOP_CANCEL if kind == CANCELLED else STOP_DRAIN, until_ms, seq)
    return after


# -- batches -----------------------------------------------------------------------------------------------------------


@bare
def _answers(n: I64, data: U8, start: int, end: int) -> int:
    """Return where the decisions of a batch begin, -1 unless it is the next cycle's of this core, at this tick and time."""
    core, at = said.integer(data, said.after(data, start, end, _CORE), end)
    cycle, at = said.integer(data, said.after(data, at, end, _CYCLE), end)
    seq, at = said.integer(data, said.after(data, at, end, _SEQ), end)
    time_ms, at = said.integer(data, said.after(data, at, end, _TIME), end)
    chain, chain_end = said.text(data, at, end, _CHAIN)
    _digest, digest_end = said.text(data, chain_end, end, _DIGEST)
    at = said.after(data, digest_end, end, _DECISIONS)
    right = core == n[to.CORE] and cycle == n[to.CYCLE] + 1 and seq == n[to.SEQ] and time_ms == n[to.TIME_MS]
    return at if right and chain_end - chain == MAX_CHAIN else -1


@bare
def _has_books(n: I64, w: to.World, data: U8, at: int, end: int) -> bool:
    """Tell whether the end of a batch, from the bracket after its decisions on, tells the accounts of the state."""
    pool, budget = w.pool, w.budget
    at = said.after(data, at, end, _BOOKS)
    for row in range(n[to.POOLS]):
        if row > 0:
            at = at + 1 if 0 <= at < end and data[at] == 44 else -1
        name, name_end = said.text(data, at, end, _POOL)
        if said.word_at(data, name, name_end, w.words[n[to.IN_POOLS] :]) != row:
            return False
        root, right = pool[n[to.P_ROOT], row], True
        number, at = said.integer(data, said.after(data, name_end, end, _SUPPLY), end)
        right = right and number == pool[n[to.P_SUPPLY_US], row]
        number, at = said.integer(data, said.after(data, at, end, _DOWN), end)
        right = right and number == pool[n[to.P_DOWN_US], row]
        number, at = said.integer(data, said.after(data, at, end, _IDLE), end)
        right = right and number == pool[n[to.P_IDLE_US], row]
        number, at = said.integer(data, said.after(data, at, end, _UNFUNDED), end)
        right = right and number == pool[n[to.P_UNFUNDED_US], row]
        number, at = said.integer(data, said.after(data, at, end, _FUNDED), end)
        right = right and number == budget[n[to.B_CHARGED_US], root]
        number, at = said.integer(data, said.after(data, at, end, _PENDING), end)
        right = right and number == budget[n[to.B_PENDING_MILLI], root]
        number, at = said.integer(data, said.after(data, at, end, _FREE), end)
        right = right and number == pool[n[to.P_IDLE_MILLI], row]
        if not right or at < 0 or at >= end or data[at] != 125:
            return False
        at += 1
    return at >= 0 and at + 2 == end and data[at] == 93 and data[at + 1] == 125


@bare
def trust(n: I64, w: to.World, data: U8, start: int, end: int, key: U8, gpus: I64, each: I64) -> int:
    """Fold the batch that answers the tick just folded; returns how that ended."""
    n[to.DECISION] = 0
    at = _answers(n, data, start, end)
    if at < 0:
        return SLOW
    if at < end and data[at] != 93:
        while True:
            word, word_end = said.text(data, at, end, _TYPE)
            kind, then = said.word_at(data, word, word_end, w.words[: n[to.OUTCOMES]]), -1
            if kind == ADMITTED:
                then = _admit(n, w, data, word_end, end)
            elif kind == RUN_PLACED:
                then = _place(n, w, data, word_end, end, key, gpus, each)
            elif kind == RUN_CLOSED:
                then = _close(n, w, data, word_end, end, key)
            elif kind == WORKLOAD_CLOSED:
                then = _close_workload(n, w, data, word_end, end)
            elif kind == EXPLAINED:
                then = _explain(n, w, data, word_end, end)
            elif kind == PREEMPTED:
                then = _preempt(n, w, data, word_end, end, key)
            elif kind == RESERVED:
                then = _reserve(n, w, data, word_end, end, gpus, each)
            elif kind == FUNDING:
                then = _fund(n, w, data, word_end, end, key)
            elif kind in (CANCELLED, DRAINED):
                then = _stop(n, w, data, word_end, end, key, kind)
            if then < 0 or then >= end:
                return SLOW
            n[to.DECISION] += 1
            at = then
            if data[at] == 93:
                break
            if data[at] != 44:
                return SLOW
            at += 1
    if not to.finish(n, w):
        return BROKEN
    return TRUSTED if _has_books(n, w, data, at, end) else BOOKS

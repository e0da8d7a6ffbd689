"""A long stretch of the log folded at once: reports, submissions, ticks, and the stored decisions that answer them.

``fold`` walks over the records as columns give them (``fold.columns``) and, at each tick, over the stored batch that answers it. It
takes the common cases in the one spelling that this product gives them, and stops in front of everything else: then the record, or
what is left of the batch, goes the slow way. Naive equivalent: ``Core.fold`` record by record and ``Core.trust`` tick by tick, but
for the chain over the records, which is taken from the batches; property tests compare every byte of the state.

A *door* is what a pool answers to a kind of submission (this principal, this budget, this many GPUs): seat or none. It was asked
once, by ``fold.doors``; here it is found by the bytes of the question. ``doors`` has a row per answer: pool, line, nodes, milli per
node, quantum, cap; pool -1 is a door that only the slow way can pass.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from apportion.core.kernels import effects as to
from apportion.core.kernels import keys, lines, reports, stored
from apportion.core.kernels import spelled as said
from apportion.core.kernels.bare import bare
from apportion.core.units import MAX_DURATION_MS, MAX_ELAPSED_MS, MAX_PRIORITY, MAX_TIME_MS

I64 = NDArray[np.int64]
U8 = NDArray[np.uint8]

# as in ``effects``
BUILT_ON = {
    "bare": "6b2fd7db475f", "keys": "2c9723beac6b", "effects": "edfc1a175a73", "lines": "04ecf7bba9c4", "reports": "57bd660fa16f",
    "spelled": "df6561b0923e", "stored": "97d6c29d908d",
}  # fmt: skip

# kinds of records beside those of ``reports``
SUBMITTED, STARTED, FINISHED, TICK = 4, 5, 6, 7
# why it stopped: at the end; at a record that goes the slow way; or in a batch: how ``stored.trust`` ended, + 1
END, RECORD, BATCH, BOOKS, BROKEN = range(5)
DOOR_POOL, DOOR_LINE, DOOR_NODES, DOOR_MILLI, DOOR_QUANTUM_MS, DOOR_CAP_MS, DOOR = range(7)
LONGEST_KEY = keys.NAME_BYTES  # of a run, and of a door with its principal
LONGEST_NAME = 128
MAX_GRACE_MS, MAX_FAILURES, MAX_EXIT_CODE, MAX_DETAIL = 3_600_000, 1_000, 255, 1_000


def _bytes(text: bytes) -> U8:
    return np.frombuffer(text, dtype=np.uint8)


_HEAD, _DATA, _ID = _bytes(b'{"at_ms":'), _bytes(b',"data":{'), _bytes(b'},"id":"')
_WORKLOAD, _RUN, _NODE, _PID = _bytes(b'"workload":"'), _bytes(b'","run":'), _bytes(b',"node":"'), _bytes(b',"pid":')
_OUTCOME, _EXIT_CODE, _DETAIL = _bytes(b'","outcome":"'), _bytes(b',"exit_code":'), _bytes(b',"detail":"')
_BUDGET, _POOLS, _GPUS = _bytes(b'","budget":"'), _bytes(b'","pools":["'), _bytes(b'"],"gpus_milli":')
_MORE_NODES, _KIND, _NAME = _bytes(b',"nodes":'), _bytes(b',"kind":"'), _bytes(b',"name":"')
_LEAST, _EXPECTED = _bytes(b',"min_runtime_ms":'), _bytes(b',"expected_runtime_ms":')
_NO_RESUME, _INTERVAL = _bytes(b',"auto_resume":false'), _bytes(b',"checkpoint_interval_ms":')
_GRACE, _PRIORITY, _FAILURES = _bytes(b',"grace_ms":'), _bytes(b',"priority":'), _bytes(b',"max_failures":')
_WHY, _SUBMITTED = _bytes(b'"why":"'), _bytes(b'","type":"workload.submitted","v":1}')
_STARTED, _FINISHED = _bytes(b'","type":"run.started","v":1}'), _bytes(b'","type":"run.finished","v":1}')
_TICK, _SUCCEEDED, _FAILED = _bytes(b'","type":"clock.tick","v":1}'), _bytes(b"succeeded"), _bytes(b"failed")
_STOPPED, _REFUSED, _DIRTY, _DUE = _bytes(b"stopped"), _bytes(b"refused"), _bytes(b"dirty"), _bytes(b"due")
_PLAN = _bytes(b"plan")


# -- records -----------------------------------------------------------------------------------------------------------


@bare
def _ends(data: U8, at: int, end: int, tail: U8) -> bool:
    """Tell whether a record ends behind its payload's last field as a record of its type does."""
    start, close = said.text(data, at, end, _ID)
    return said.after(data, close, end, tail) == end and start >= 0


@bare
def _reported(n: I64, w: to.World, data: U8, at: int, end: int, principal: int, key: U8) -> tuple[int, int, int]:
    """Read of which run and node a report is, from its payload's first field on: their rows, and the position after the node.

    Run -1: there is none in progress that holds a GPU of that node, or it is not for this principal to say so.
    """
    name, name_end = said.text(data, at, end, _WORKLOAD)
    number = said.after(data, name_end, end, _RUN)
    run_no, number_end = said.integer(data, number, end)
    node_name, node_end = said.text(data, number_end, end, _NODE)
    if node_end < 0 or run_no < 1:
        return -1, -1, -1
    length = said.run_key(data, name, name_end, number, number_end, key)
    run = keys.find(key, 0, length, w.run_names, w.run_slots)
    node = keys.find(data, node_name, node_end, w.node_names, w.node_slots)
    if run < 0 or node < 0 or w.run[n[to.R_STATE], run] == to.ENDED or principal != w.node[n[to.N_AGENT], node]:
        return -1, -1, -1
    piece = w.run[n[to.R_FIRST_ALLOC], run]
    while piece >= 0 and w.gpu[n[to.G_NODE], w.alloc[n[to.A_GPU], piece]] != node:
        piece = w.alloc[n[to.A_NEXT], piece]
    return (run, node, node_end) if piece >= 0 else (-1, -1, -1)


@bare
def _started(n: I64, w: to.World, data: U8, at: int, end: int, principal: int, now_ms: int, key: U8) -> bool:
    """Fold a ``run.started``; False, and nothing changed, when it goes the slow way."""
    run, node, at = _reported(n, w, data, at, end, principal, key)
    if run < 0:
        return False
    pid, at = said.field(data, at + 1, end, _PID, 0)
    if not 0 <= pid <= 1 << 53 or not _ends(data, at, end, _STARTED):
        return False
    runs, alloc, leads = w.run, w.alloc, node == w.run[n[to.R_LEAD], run]
    if leads and runs[n[to.R_STATE], run] != to.PLACED:
        return False
    n[to.TIME_MS] = now_ms
    piece = runs[n[to.R_FIRST_ALLOC], run]
    while piece >= 0:
        on = w.gpu[n[to.G_NODE], alloc[n[to.A_GPU], piece]]
        if leads:
            alloc[n[to.A_CONFIRMED_MS], piece], alloc[n[to.A_IDLE_MS], piece] = now_ms, 0
            w.node[n[to.N_START_FAILURES], on] = 0
        if on == node:
            alloc[n[to.A_MISSED], piece], alloc[n[to.A_CONFIRMED_MS], piece] = 0, now_ms
        piece = alloc[n[to.A_NEXT], piece]
    if leads:
        runs[n[to.R_STATE], run], runs[n[to.R_STARTED_MS], run] = to.STARTED, now_ms
        w.workload[n[to.W_START_FAILURES], runs[n[to.R_WORKLOAD], run]] = 0
    else:
        w.node[n[to.N_START_FAILURES], node] = 0
    return True


@bare
def _finished(n: I64, w: to.World, data: U8, at: int, end: int, principal: int, now_ms: int, key: U8) -> bool:
    """Fold a ``run.finished``; False, and nothing changed, when it goes the slow way."""
    run, node, at = _reported(n, w, data, at, end, principal, key)
    if run < 0:
        return False
    word, word_end = said.text(data, at, end, _OUTCOME)
    if word_end < 0:
        return False
    exit_code, at = said.field(data, word_end + 1, end, _EXIT_CODE, 0)
    detail, detail_end = said.text(data, at, end, _DETAIL)
    if detail_end >= 0:
        at = detail_end + 1
    if detail_end - detail > MAX_DETAIL or not -MAX_EXIT_CODE <= exit_code <= MAX_EXIT_CODE or not _ends(data, at, end, _FINISHED):
        return False
    succeeded, stopped = said.is_word(data, word, word_end, _SUCCEEDED), said.is_word(data, word, word_end, _STOPPED)
    refused = said.is_word(data, word, word_end, _REFUSED)
    if not (succeeded or stopped or refused or said.is_word(data, word, word_end, _FAILED)):
        return False
    leads = node == w.run[n[to.R_LEAD], run]
    past_ms = now_ms - w.run[n[to.R_PAYER_SINCE_MS], run]
    if not 0 <= past_ms <= MAX_ELAPSED_MS:
        return False
    n[to.TIME_MS] = now_ms
    if leads or not (succeeded or stopped):
        outcome = w.known[to.KNOWN_CAUSES, w.run[n[to.R_STOP_CAUSE], run]]
        if outcome == 0:
            outcome = n[to.FAILED]
            piece = w.run[n[to.R_FIRST_ALLOC], run]
            while piece >= 0:
                if w.gpu[n[to.G_BROKEN], w.alloc[n[to.A_GPU], piece]] != 0:
                    outcome = n[to.NODE_LOST]
                piece = w.alloc[n[to.A_NEXT], piece]
        if succeeded:
            outcome = n[to.SUCCEEDED]
        elif refused:
            outcome = n[to.START_FAILED]
        to.release(n, w, run, outcome, n[to.SEQ] + 1, exit_code, node)
    return True


@bare
def door_of(data: U8, start: int, end: int, principal: int, key: U8) -> tuple[int, int]:
    """Write the question that a submission asks of its door into ``key``: its length, 0 when it is none; the position after it."""
    head, at = said.integer(data, said.after(data, start, end, _HEAD), end)
    _name, name_end = said.text(data, said.after(data, at, end, _DATA), end, _WORKLOAD)
    budget, budget_end = said.text(data, name_end, end, _BUDGET)
    _pool, pool_end = said.text(data, budget_end, end, _POOLS)
    milli, at = said.integer(data, said.after(data, pool_end, end, _GPUS), end)
    nodes, at = said.field(data, at, end, _MORE_NODES, 0)
    kind, kind_end = said.text(data, at, end, _KIND)
    if kind_end >= 0:
        at = kind_end + 1
    if at < 0 or head < 0 or milli < 1 or nodes < 0 or budget < 0 or kind_end - kind > 64:
        return 0, -1
    length = 8 + at - budget
    if length >= LONGEST_KEY or principal < 0:
        return 0, -1
    for place in range(8):
        key[place] = principal >> 8 * place & 255
    for place in range(at - budget):
        key[8 + place] = data[budget + place]
    return length, at


@bare
def _submitted(
    n: I64, w: to.World, data: U8, start: int, end: int, principal: int, now_ms: int, key: U8, doors: I64, door_names: U8,
    door_slots: I64,
) -> bool:  # fmt: skip
    """Fold a ``workload.submitted``; False, and nothing changed, when it goes the slow way, or its door is not known."""
    length, at = door_of(data, start, end, principal, key)
    door = keys.find(key, 0, length, door_names, door_slots)
    if door < 0 or doors[door, DOOR_POOL] < 0:
        return False
    name, name_end = said.text(data, said.after(data, said.integer(data, start + len(_HEAD), end)[1], end, _DATA), end, _WORKLOAD)
    title, title_end = said.text(data, at, end, _NAME)
    if title_end >= 0:
        at = title_end + 1
    least_ms, at = said.field(data, at, end, _LEAST, doors[door, DOOR_QUANTUM_MS])
    expected_ms, at = said.field(data, at, end, _EXPECTED, 0)
    resumes, inner = 1, said.after(data, at, end, _NO_RESUME)
    if inner >= 0:
        resumes, at = 0, inner
    interval_ms, at = said.field(data, at, end, _INTERVAL, 0)
    grace_ms, at = said.field(data, at, end, _GRACE, 30_000)
    priority, at = said.field(data, at, end, _PRIORITY, 0)
    failures, at = said.field(data, at, end, _FAILURES, 0)
    if not _ends(data, at, end, _SUBMITTED) or title_end - title > LONGEST_NAME:
        return False
    if not 0 <= least_ms <= min(MAX_DURATION_MS, doors[door, DOOR_CAP_MS]) or not 0 <= expected_ms <= MAX_DURATION_MS:
        return False
    if not 0 <= interval_ms <= MAX_DURATION_MS or not 0 <= grace_ms <= MAX_GRACE_MS or not 0 <= failures <= MAX_FAILURES:
        return False
    if not -MAX_PRIORITY <= priority <= MAX_PRIORITY or not said.is_name(data, name, name_end, LONGEST_NAME):
        return False
    if keys.find(data, name, name_end, w.workload_names, w.workload_slots) >= 0:
        return False
    if keys.find(data, name, name_end, w.closed_names, w.closed_slots) >= 0:
        return False
    if not to.has_room(n, to.WORKLOADS, w.workload, 1) or not to.may_name(n, to.WORKLOADS, w.workload_slots):
        return False
    n[to.TIME_MS] = now_ms
    row, table = to.submit(n, w, data, name, name_end), w.workload
    nodes, milli, line = doors[door, DOOR_NODES], doors[door, DOOR_MILLI], doors[door, DOOR_LINE]
    table[n[to.W_POOL], row], table[n[to.W_BUDGET], row], table[n[to.W_NODES], row] = doors[door, DOOR_POOL], line, nodes
    table[n[to.W_MILLI_PER_NODE], row], table[n[to.W_GPUS_MILLI], row] = milli, nodes * milli
    table[n[to.W_MIN_RUNTIME_MS], row], table[n[to.W_EXPECTED_RUNTIME_MS], row] = least_ms, expected_ms
    table[n[to.W_SUBMITTER], row], table[n[to.W_GRACE_MS], row], table[n[to.W_PRIORITY], row] = principal, grace_ms, priority
    table[n[to.W_AUTO_RESUME], row], table[n[to.W_MAX_FAILURES], row] = resumes, failures
    w.budget[n[to.B_WORKLOADS], line] += 1
    return True


@bare
def _ticks(n: I64, w: to.World, data: U8, at: int, end: int, principal: int) -> bool:
    """Tell whether an accepted ``clock.tick`` stands here, at which no debt is to be forgiven once accounts are up to date."""
    why, why_end = said.text(data, at, end, _WHY)
    if why_end >= 0:
        known = said.is_word(data, why, why_end, _DIRTY) or said.is_word(data, why, why_end, _DUE)
        at = why_end + 1 if known or said.is_word(data, why, why_end, _PLAN) else -1
    return _ends(data, at, end, _TICK) and w.principal[n[to.U_OPERATOR], principal] != 0


@bare
def _forgives(n: I64, w: to.World) -> bool:
    budget = w.budget
    return bool(
        lines.forgivable(
            n[to.BUDGETS], budget[n[to.B_CHILDREN]], budget[n[to.B_LAG_US]], budget[n[to.B_RUNNING_MILLI]],
            budget[n[to.B_PENDING_MILLI]], budget[n[to.B_BARRED]],
        )
    )  # fmt: skip


# -- the walk ----------------------------------------------------------------------------------------------------------


@njit(cache=True)
def fold(
    n: I64, w: to.World, numbers: I64, data: U8, told: reports.Told, speakers: I64, first: int, stop: int, subjects: U8,
    decided: U8, batches: I64, doors: I64, door_names: U8, door_slots: I64,
) -> int:  # fmt: skip
    """Fold the records from ``first`` to before ``stop``, and the batches from ``n[BATCH]`` up to ``n[BATCHES]``.

    Returns the record reached.

    ``batches`` has a column per batch: the tick it answers, and the bounds of its bytes in ``decided``. ``n[WHY]`` says why it
    stopped there; after BATCH, BOOKS and BROKEN the tick before that record is folded. ``numbers`` is for ``reports.fold``.
    """
    key, frames = np.empty(LONGEST_KEY, dtype=np.uint8), np.empty(0, dtype=np.uint8)
    gpus, each = np.empty(stored.MOST_PIECES, dtype=np.int64), np.empty(stored.MOST_PIECES, dtype=np.int64)
    longest_ms, rows = min(n[to.SILENCE_MS], MAX_ELAPSED_MS), np.zeros(speakers.shape[1], dtype=np.int64)
    n[to.WHY] = END
    index = first
    while index < stop:
        kind = reports.kind_of(told, speakers, index)
        if 0 < kind <= reports.COUNTED:
            numbers[reports.SEQ], numbers[reports.TIME_MS] = n[to.SEQ], n[to.TIME_MS]
            reached = reports.fold(
                numbers, data, told, speakers, index, stop, subjects, w.node, w.alloc, w.gpu, w.run, w.workload, w.node_names,
                w.node_slots, w.run_names, w.run_slots, frames, rows, w.heard,
            )  # fmt: skip
            if reached == index:
                break
            n[to.SEQ] += reached - index
            n[to.TIME_MS] = numbers[reports.TIME_MS]
            n[to.HEARTBEATS] += numbers[reports.BEATS]
            if numbers[reports.BEATS] < reached - index:
                n[to.DIRTY] = 1  # a checkpoint is news for the next cycle
            index = reached
            continue
        start, principal = told.start[index], speakers[reports.PRINCIPAL, told.who[index]]
        end = start + told.length[index]
        at_ms, at = said.integer(data, said.after(data, start, end, _HEAD), end)
        at = said.after(data, at, end, _DATA)
        claimed_ms = at_ms if n[to.STATED] != 0 else told.stored_ms[index]
        now_ms = max(n[to.TIME_MS], claimed_ms)
        if at < 0 or at_ms < 0 or not 0 <= claimed_ms <= MAX_TIME_MS or claimed_ms - n[to.TIME_MS] > longest_ms:
            break
        if 0 < n[to.PLANNED_MS] <= now_ms:
            break
        if kind == STARTED:
            taken = _started(n, w, data, at, end, principal, now_ms, key)
        elif kind == FINISHED:
            taken = _finished(n, w, data, at, end, principal, now_ms, key)
        elif kind == SUBMITTED:
            taken = _submitted(n, w, data, start, end, principal, now_ms, key, doors, door_names, door_slots)
        else:
            taken = kind == TICK and n[to.BATCH] < n[to.BATCHES] and batches[0, n[to.BATCH]] == n[to.SEQ] + 1
            taken = taken and now_ms <= n[to.CHANGES_UNTIL_MS] and _ticks(n, w, data, at, end, principal)
            if taken:
                n[to.TIME_MS] = now_ms
                to.accrued(n, w)  # of a tick that goes the slow way after all it is done already, and nothing else
                taken = not _forgives(n, w)
        if not taken:
            break
        n[to.SEQ] += 1
        index += 1
        if kind != TICK:
            n[to.DIRTY] = 1
            continue
        batch = n[to.BATCH]
        how = stored.trust(n, w, decided, batches[1, batch], batches[2, batch], key, gpus, each)
        if how != stored.TRUSTED:
            n[to.WHY] = how + 1
            return index
        n[to.BATCH] += 1
    if index < stop:
        n[to.WHY] = RECORD
    return index

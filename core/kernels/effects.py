"""What records and decisions do to the columns, for who folds a long stretch of the log at once: money, queue, runs, GPUs, ids.

Naive equivalent, function by function: ``core.ledger``, ``fold.waiting``, ``fold.starts``, ``fold.release``, ``fold.outcomes`` and
the end of ``engine.Core.trust``, one row at a time; property tests compare every byte of the state. These are the common cases
only. Whoever calls has made sure that a case is one of them before the first byte changes (``stretch``); no workload here has a
wish beside GPUs, a choice of pools, or a service.

What a decision does is done at the time of its tick, to which the caller has accrued (``accrued``).

Rows are taken and given back as ``Table`` does it, but names are kept as bytes (``kernels.keys``: a key index), and rows whose
name changed are marked, so that keys and their hashes are brought up to date once, by ``fold.lending``. What is derived and needed
only by who decides (``State.unsettled``, ``State.untold``) is not kept here at all.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from apportion.core.kernels import accrue, keys, lines, queue, share
from apportion.core.kernels.bare import bare
from apportion.core.kernels.heard import forget
from apportion.core.units import MAX_ELAPSED_MS, MILLI, NEVER_MS

I64 = NDArray[np.int64]
U8 = NDArray[np.uint8]

# the machine code kept of this file is made anew when it changes: so it changes with what it is built on (a test of the tree tells)
BUILT_ON = {
    "accrue": "0ba2eb4458a1", "bare": "6b2fd7db475f", "keys": "2c9723beac6b", "lines": "04ecf7bba9c4", "queue": "e623df75f671",
    "heard": "34ce2ed79558", "share": "6748e5e21e02",
}  # fmt: skip

# the codes of ``state.schema``
NEW, PENDING, HELD, RUNNING, OVER = 1, 2, 3, 4, 5
PLACED, STARTED, STOPPING, ENDED = 1, 2, 3, 4
PAYER_BUDGET, PAYER_UNFUNDED = 1, 2
HOLD_NONE, HOLD_FUNDED, HOLD_UNFUNDED = 0, 1, 2

# ``n``: numbers of the state and of this stretch, then the places of columns in the blocks of their tables
(
    SEQ, TIME_MS, ACCRUED_MS, STATED, SILENCE_MS, PLANNED_MS, FAIR_STALE, DIRTY, CORE, CYCLE, CYCLE_MS, PRUNED_MS, HEARTBEATS,
    POOLS, BUDGETS, NODES, GPUS, RETENTION_MS, PRUNE_EVERY_MS, CHANGES_UNTIL_MS, WORKLOADS, WORKLOADS_FREE,
    WORKLOADS_ENTERED, RUNS, RUNS_FREE, RUNS_ENTERED, CLOSED, CLOSED_FREE, CLOSED_ENTERED, ALLOCS, ALLOCS_FREE, OUTCOMES,
    REASONS, PAYERS, IN_POOLS, BATCH, BATCHES, DECISION, WHY, SUCCEEDED, FAILED, START_FAILED, NODE_LOST, PROTECTED_RUNS,
    COLUMNS,
) = range(45)  # fmt: skip
POOL_COLUMNS = (
    "root", "quantum_ms", "protected_cap_ms", "supply_milli", "down_milli", "idle_milli", "unfunded_milli", "supply_us",
    "down_us", "idle_us", "unfunded_us",
)  # fmt: skip
(
    P_ROOT, P_QUANTUM_MS, P_PROTECTED_CAP_MS, P_SUPPLY_MILLI, P_DOWN_MILLI, P_IDLE_MILLI, P_UNFUNDED_MILLI, P_SUPPLY_US,
    P_DOWN_US, P_IDLE_US, P_UNFUNDED_US,
) = range(COLUMNS, COLUMNS + 11)  # fmt: skip
NODE_COLUMNS = (
    "agent", "first_gpu", "gpus", "start_failures", "runs", "gpu_memory_mib", "last_seen_ms", "used_cpu_milli",
    "used_memory_mib",
)  # fmt: skip
(
    N_AGENT, N_FIRST_GPU, N_GPUS, N_START_FAILURES, N_RUNS, N_GPU_MEMORY_MIB, N_LAST_SEEN_MS, N_USED_CPU_MILLI,
    N_USED_MEMORY_MIB,
) = range(P_UNFUNDED_US + 1, P_UNFUNDED_US + 10)  # fmt: skip
GPU_COLUMNS = ("node", "used_milli", "used_memory_mib", "broken", "out", "held_by")
G_NODE, G_USED_MILLI, G_USED_MEMORY_MIB, G_BROKEN, G_OUT, G_HELD_BY = range(N_USED_MEMORY_MIB + 1, N_USED_MEMORY_MIB + 7)
BUDGET_COLUMNS = (
    "pool", "parent", "share_ppm", "children", "closed", "metered", "granted_us", "charged_us", "unfunded_us", "funded_milli",
    "unfunded_milli", "running_milli", "pending_milli", "lag_us", "lag_milli", "forfeited_us", "forgiven_us", "barred",
    "workloads", "took_ms",
)  # fmt: skip
(
    B_POOL, B_PARENT, B_SHARE_PPM, B_CHILDREN, B_CLOSED, B_METERED, B_GRANTED_US, B_CHARGED_US, B_UNFUNDED_US, B_FUNDED_MILLI,
    B_UNFUNDED_MILLI, B_RUNNING_MILLI, B_PENDING_MILLI, B_LAG_US, B_LAG_MILLI, B_FORFEITED_US, B_FORGIVEN_US, B_BARRED,
    B_WORKLOADS, B_TOOK_MS,
) = range(G_HELD_BY + 1, G_HELD_BY + 21)  # fmt: skip
WORKLOAD_COLUMNS = (
    "state", "budget", "pool", "submitter", "event_seq", "submit_ms", "nodes", "milli_per_node", "gpus_milli", "wish",
    "min_runtime_ms", "expected_runtime_ms", "grace_ms", "priority", "auto_resume", "max_failures", "run_no", "run",
    "progress_ms", "failures", "start_failures", "fruitless", "not_before_ms", "reason", "planned_ms", "funded_ms", "hold",
    "proposed", "told_ms", "late_ms", "outcome", "choices",
)  # fmt: skip
(
    W_STATE, W_BUDGET, W_POOL, W_SUBMITTER, W_EVENT_SEQ, W_SUBMIT_MS, W_NODES, W_MILLI_PER_NODE, W_GPUS_MILLI, W_WISH,
    W_MIN_RUNTIME_MS, W_EXPECTED_RUNTIME_MS, W_GRACE_MS, W_PRIORITY, W_AUTO_RESUME, W_MAX_FAILURES, W_RUN_NO, W_RUN,
    W_PROGRESS_MS, W_FAILURES, W_START_FAILURES, W_FRUITLESS, W_NOT_BEFORE_MS, W_REASON, W_PLANNED_MS, W_FUNDED_MS, W_HOLD,
    W_PROPOSED, W_TOLD_MS, W_LATE_MS, W_OUTCOME, W_CHOICES,
) = range(B_TOOK_MS + 1, B_TOOK_MS + 33)  # fmt: skip
RUN_COLUMNS = (
    "workload", "budget", "pool", "lead", "run_no", "state", "gpus_milli", "idle_cycles", "placed_ms", "started_ms",
    "protected_until_ms", "reserved", "payer", "payer_since_ms", "changed_ms", "charged_us", "unfunded_us", "resume_ms",
    "checkpoint_ms", "stop_cause", "stop_by_ms", "stop_seq", "ended_ms", "end_seq", "outcome", "exit_code", "blame",
    "confirmed_ms", "first_alloc",
)  # fmt: skip
(
    R_WORKLOAD, R_BUDGET, R_POOL, R_LEAD, R_RUN_NO, R_STATE, R_GPUS_MILLI, R_IDLE_CYCLES, R_PLACED_MS, R_STARTED_MS,
    R_PROTECTED_UNTIL_MS, R_RESERVED, R_PAYER, R_PAYER_SINCE_MS, R_CHANGED_MS, R_CHARGED_US, R_UNFUNDED_US, R_RESUME_MS,
    R_CHECKPOINT_MS, R_STOP_CAUSE, R_STOP_BY_MS, R_STOP_SEQ, R_ENDED_MS, R_END_SEQ, R_OUTCOME, R_EXIT_CODE, R_BLAME,
    R_CONFIRMED_MS, R_FIRST_ALLOC,
) = range(W_CHOICES + 1, W_CHOICES + 30)  # fmt: skip
ALLOC_COLUMNS = (
    "run", "gpu", "milli", "gpu_memory_mib", "cpu_milli", "memory_mib", "next", "confirmed_ms", "idle_ms", "missed",
)  # fmt: skip
(
    A_RUN, A_GPU, A_MILLI, A_GPU_MEMORY_MIB, A_CPU_MILLI, A_MEMORY_MIB, A_NEXT, A_CONFIRMED_MS, A_IDLE_MS, A_MISSED,
) = range(R_FIRST_ALLOC + 1, R_FIRST_ALLOC + 11)  # fmt: skip
CLOSED_COLUMNS = ("closed_ms",)
C_CLOSED_MS = A_MISSED + 1
PRINCIPAL_COLUMNS = ("operator",)
U_OPERATOR = C_CLOSED_MS + 1
LENGTH = U_OPERATOR + 1


class World(NamedTuple):
    """The arrays of a state, and the words of its enums. Few: each is nine arguments more of every function here."""

    pool: I64
    node: I64
    gpu: I64
    budget: I64
    workload: I64
    run: I64
    alloc: I64
    closed: I64
    principal: I64
    free: I64  # a stack of free rows per table, by ``OF``
    renamed: U8  # 1 = this row's name changed, by ``OF``
    node_names: U8
    node_slots: I64
    workload_names: U8
    workload_slots: I64
    run_names: U8
    run_slots: I64
    closed_names: U8
    closed_slots: I64
    in_queue: U8  # by workload row, the marks of ``queue``
    waits: I64
    known: I64  # by ``KNOWN``
    heard: I64  # what ``reports.fold`` remembers of nodes; none: it remembers nothing
    words: U8  # of enums and pools, as ``spelled.word_at`` takes them; ``n`` says where each kind begins


OF_WORKLOADS, OF_RUNS, OF_CLOSED, OF_ALLOCS, OF = range(5)  # tables whose rows come and go
# by budget row: protected time that is promised, its GPUs, who is barred, how many wait; by outcome: 1 = its run may go on,
# 2 = somebody else's wish, 3 = both; by cause of a stop: the outcome's code
KNOWN_SUMS, KNOWN_MILLI, KNOWN_BARRED, KNOWN_WAITING, KNOWN_ENDS, KNOWN_CAUSES, KNOWN = range(7)


# -- rows --------------------------------------------------------------------------------------------------------------


@bare
def _taken(n: I64, w: World, used: int, of: int) -> int:
    """Take a row of a table: ``n[used]`` is its count of used rows, of free ones the next. The caller knows of one."""
    if n[used + 1] > 0:
        n[used + 1] -= 1
        return int(w.free[of, n[used + 1]])
    n[used] += 1
    return int(n[used] - 1)


@bare
def has_room(n: I64, used: int, block: I64, count: int) -> bool:
    """Tell whether so many rows can be taken of a table."""
    return bool(n[used + 1] + block.shape[1] - n[used] >= count)


@bare
def may_name(n: I64, used: int, slots: I64) -> bool:
    """Tell whether one more name may be entered into the key index of a table."""
    return bool(n[used + 2] < len(slots) // 2)


@bare
def _named(n: I64, w: World, used: int, of: int, names: U8, slots: I64, data: U8, start: int, end: int) -> int:
    """Take a row under the name ``data[start:end]``."""
    row = _taken(n, w, used, of)
    keys.rename(row, data[start:end], names, slots)
    n[used + 2] += 1
    w.renamed[of, row] = 1
    return row


@bare
def _given_back(n: I64, w: World, used: int, of: int, block: I64, row: int) -> None:
    for column in range(block.shape[0]):
        block[column, row] = 0
    w.free[of, n[used + 1]] = row
    n[used + 1] += 1


@bare
def _forgotten(n: I64, w: World, used: int, of: int, block: I64, names: U8, slots: I64, row: int) -> None:
    """Give a row back, and its name."""
    keys.rename(row, names[row, :0], names, slots)
    w.renamed[of, row] = 1
    _given_back(n, w, used, of, block, row)


# -- money -------------------------------------------------------------------------------------------------------------


@bare
def accrued(n: I64, w: World) -> None:
    """Bring all accounts and lags to the present time: ``ledger.accrue`` where nothing is planned on the way."""
    pool, budget = w.pool, w.budget
    while n[ACCRUED_MS] < n[TIME_MS]:
        elapsed_ms = min(n[TIME_MS] - n[ACCRUED_MS], MAX_ELAPSED_MS)
        if n[FAIR_STALE] != 0:
            share.lag_rates(
                pool[n[P_ROOT]], n[POOLS], n[BUDGETS], budget[n[B_POOL]], budget[n[B_PARENT]], budget[n[B_SHARE_PPM]],
                budget[n[B_RUNNING_MILLI]], budget[n[B_PENDING_MILLI]], budget[n[B_BARRED]], budget[n[B_LAG_MILLI]],
            )  # fmt: skip
            n[FAIR_STALE] = 0
        accrue.accrue_budgets(
            n[BUDGETS], elapsed_ms, budget[n[B_FUNDED_MILLI]], budget[n[B_UNFUNDED_MILLI]], budget[n[B_LAG_MILLI]],
            budget[n[B_CHARGED_US]], budget[n[B_UNFUNDED_US]], budget[n[B_LAG_US]],
        )  # fmt: skip
        accrue.accrue_pools(
            n[POOLS], elapsed_ms, pool[n[P_SUPPLY_MILLI]], pool[n[P_DOWN_MILLI]], pool[n[P_IDLE_MILLI]], pool[n[P_UNFUNDED_MILLI]],
            pool[n[P_SUPPLY_US]], pool[n[P_DOWN_US]], pool[n[P_IDLE_US]], pool[n[P_UNFUNDED_US]],
        )  # fmt: skip
        n[ACCRUED_MS] += elapsed_ms


@bare
def _to_path(n: I64, w: World, line: int, column: int, delta: int) -> None:
    """Add to a column of a budget line, and of all lines above it."""
    budget = w.budget
    while line >= 0:
        budget[n[column], line] += delta
        line = budget[n[B_PARENT], line]


@bare
def _rated(n: I64, w: World, run: int, sign: int) -> None:
    table = w.run
    milli, line = sign * table[n[R_GPUS_MILLI], run], table[n[R_BUDGET], run]
    if table[n[R_PAYER], run] == PAYER_BUDGET:
        _to_path(n, w, line, B_FUNDED_MILLI, milli)
    else:
        _to_path(n, w, line, B_UNFUNDED_MILLI, milli)
        w.pool[n[P_UNFUNDED_MILLI], table[n[R_POOL], run]] += milli


@bare
def _counted(n: I64, w: World, run: int, sign: int) -> None:
    """Count a run among those of its line, or no more."""
    if w.run[n[R_IDLE_CYCLES], run] == 0:
        _to_path(n, w, w.run[n[R_BUDGET], run], B_RUNNING_MILLI, sign * w.run[n[R_GPUS_MILLI], run])
    n[FAIR_STALE] = 1


@bare
def _settled(n: I64, w: World, run: int) -> None:
    table = w.run
    amount_us = table[n[R_GPUS_MILLI], run] * (n[TIME_MS] - table[n[R_PAYER_SINCE_MS], run])
    paid = n[R_CHARGED_US] if table[n[R_PAYER], run] == PAYER_BUDGET else n[R_UNFUNDED_US]
    table[paid, run] += amount_us
    table[n[R_PAYER_SINCE_MS], run] = n[TIME_MS]


@bare
def can_settle(n: I64, w: World, run: int) -> bool:
    """Tell whether the time since a run was settled can be multiplied: what ``units.gpu_us`` makes sure of."""
    return bool(0 <= n[TIME_MS] - w.run[n[R_PAYER_SINCE_MS], run] <= MAX_ELAPSED_MS)


@bare
def change_payer(n: I64, w: World, run: int, payer: int) -> None:
    """From now on ``payer`` pays for a run; the caller has accrued."""
    _settled(n, w, run)
    _rated(n, w, run, -1)
    w.run[n[R_PAYER], run] = payer
    w.run[n[R_CHANGED_MS], run] = n[TIME_MS]
    _rated(n, w, run, 1)


# -- the queue ---------------------------------------------------------------------------------------------------------


@bare
def _demanded(n: I64, w: World, row: int, sign: int) -> None:
    if w.workload[n[W_MIN_RUNTIME_MS], row] != 0:
        _to_path(n, w, w.workload[n[W_BUDGET], row], B_PENDING_MILLI, sign * w.workload[n[W_GPUS_MILLI], row])
        n[FAIR_STALE] = 1


@bare
def waits(w: World, row: int) -> bool:
    """Tell whether a workload is in the queue."""
    return bool(w.in_queue[row] & queue.WAITING)


@bare
def enqueue(n: I64, w: World, row: int) -> None:
    """Let a workload wait, which does not yet."""
    table = w.workload
    table[n[W_STATE], row] = PENDING
    expected_ms, each = table[n[W_EXPECTED_RUNTIME_MS], row], table[n[W_MILLI_PER_NODE], row]
    left_ms = max(0, expected_ms - table[n[W_PROGRESS_MS], row]) if expected_ms > 0 else NEVER_MS
    line, asked = table[n[W_BUDGET], row], w.waits[row]
    asked[0], asked[1], asked[2], asked[3], asked[4] = line, table[n[W_NODES], row], each, each // MILLI, 0
    asked[5], asked[6], asked[7] = table[n[W_MIN_RUNTIME_MS], row], left_ms, table[n[W_NOT_BEFORE_MS], row]
    w.in_queue[row] = queue.WAITING | queue.MOVED
    w.known[KNOWN_WAITING, line] += 1
    _demanded(n, w, row, 1)


@bare
def dequeue(n: I64, w: World, row: int) -> bool:
    """Let a workload wait no more; False, and nothing changed, when it is not queued."""
    if not waits(w, row):
        return False
    w.in_queue[row] = queue.MOVED
    w.known[KNOWN_WAITING, w.workload[n[W_BUDGET], row]] -= 1
    _demanded(n, w, row, -1)
    return True


@bare
def drop_hold(n: I64, w: World, row: int) -> None:
    """Free the GPUs that are held for a workload."""
    held = w.gpu[n[G_HELD_BY]]
    for gpu in range(n[GPUS]):
        if held[gpu] == row + 1:
            held[gpu] = 0


# -- workloads and runs ------------------------------------------------------------------------------------------------


@bare
def submit(n: I64, w: World, data: U8, start: int, end: int) -> int:
    """Take a new workload in under the name ``data[start:end]``; returns its row, whose columns the caller fills in."""
    row = _named(n, w, WORKLOADS, OF_WORKLOADS, w.workload_names, w.workload_slots, data, start, end)
    table = w.workload
    table[n[W_STATE], row], table[n[W_EVENT_SEQ], row], table[n[W_SUBMIT_MS], row] = NEW, n[SEQ] + 1, n[TIME_MS]
    table[n[W_RUN], row] = -1
    return row


@bare
def place(
    n: I64, w: World, row: int, key: U8, length: int, run_no: int, milli: int, gpus: I64, each: I64, count: int, payer: int,
    protected_until_ms: int, reserved_us: int, resume_ms: int,
) -> None:  # fmt: skip
    """Start a run of a workload, which has left the queue, on ``gpus[:count]`` with so many milli of ``each``."""
    table, alloc, gpu, node, now_ms = w.workload, w.alloc, w.gpu, w.node, n[TIME_MS]
    run = _named(n, w, RUNS, OF_RUNS, w.run_names, w.run_slots, key, 0, length)
    runs, pool = w.run, table[n[W_POOL], row]
    runs[n[R_WORKLOAD], run], runs[n[R_BUDGET], run], runs[n[R_POOL], run] = row, table[n[W_BUDGET], row], pool
    runs[n[R_LEAD], run], runs[n[R_RUN_NO], run], runs[n[R_STATE], run] = gpu[n[G_NODE], gpus[0]], run_no, PLACED
    runs[n[R_GPUS_MILLI], run], runs[n[R_PLACED_MS], run] = milli, now_ms
    runs[n[R_IDLE_CYCLES], run] = 1 if table[n[W_MIN_RUNTIME_MS], row] == 0 else 0
    runs[n[R_PROTECTED_UNTIL_MS], run], runs[n[R_RESERVED], run] = protected_until_ms, 1 if reserved_us > 0 else 0
    runs[n[R_RESUME_MS], run], runs[n[R_CHECKPOINT_MS], run] = resume_ms, now_ms
    last, here = -1, -1
    for number in range(count):
        each_gpu, part = gpus[number], each[number]
        piece = _taken(n, w, ALLOCS, OF_ALLOCS)
        alloc[n[A_RUN], piece], alloc[n[A_GPU], piece], alloc[n[A_MILLI], piece] = run, each_gpu, part
        on = gpu[n[G_NODE], each_gpu]
        if on != here:  # GPUs of a piece follow each other
            node[n[N_RUNS], on] += 1
            here = on
            forget(w.heard, on)
        if part < MILLI:
            memory_mib = node[n[N_GPU_MEMORY_MIB], on] * part // MILLI
            alloc[n[A_GPU_MEMORY_MIB], piece] = memory_mib
            gpu[n[G_USED_MEMORY_MIB], each_gpu] += memory_mib
        alloc[n[A_NEXT], piece], alloc[n[A_CONFIRMED_MS], piece], alloc[n[A_MISSED], piece] = -1, now_ms, -1
        if last < 0:
            runs[n[R_FIRST_ALLOC], run] = piece
        else:
            alloc[n[A_NEXT], last] = piece
        last = piece
        _use_gpu(n, w, pool, each_gpu, part)
    runs[n[R_PAYER], run], runs[n[R_PAYER_SINCE_MS], run], runs[n[R_CHANGED_MS], run] = payer, now_ms, now_ms
    _rated(n, w, run, 1)
    _counted(n, w, run, 1)
    table[n[W_STATE], row], table[n[W_RUN], row], table[n[W_RUN_NO], row] = RUNNING, run, run_no
    table[n[W_REASON], row], table[n[W_FUNDED_MS], row], table[n[W_HOLD], row] = 0, 0, HOLD_NONE
    table[n[W_PROPOSED], row], table[n[W_TOLD_MS], row], table[n[W_LATE_MS], row] = 0, 0, 0
    table[n[W_PLANNED_MS], row] = 0


@bare
def _use_gpu(n: I64, w: World, pool: int, gpu: int, delta_milli: int) -> None:
    w.gpu[n[G_USED_MILLI], gpu] += delta_milli
    w.pool[n[P_DOWN_MILLI] if w.gpu[n[G_OUT], gpu] != 0 else n[P_IDLE_MILLI], pool] -= delta_milli


@bare
def release(n: I64, w: World, run: int, outcome: int, seq: int, exit_code: int, blame: int) -> None:
    """End a run now: accounts settled, GPUs given back, its row kept as ENDED."""
    runs, alloc, node, gpus, now_ms = w.run, w.alloc, w.node, w.gpu, n[TIME_MS]
    accrued(n, w)
    _settled(n, w, run)
    _rated(n, w, run, -1)
    _counted(n, w, run, -1)
    pool, piece, confirmed_ms, here = runs[n[R_POOL], run], runs[n[R_FIRST_ALLOC], run], now_ms, -1
    while piece >= 0:
        gpu, following = alloc[n[A_GPU], piece], alloc[n[A_NEXT], piece]
        if gpus[n[G_NODE], gpu] != here:
            here = gpus[n[G_NODE], gpu]
            node[n[N_RUNS], here] -= 1
            forget(w.heard, here)
        confirmed_ms = min(confirmed_ms, alloc[n[A_CONFIRMED_MS], piece])
        _use_gpu(n, w, pool, gpu, -alloc[n[A_MILLI], piece])
        gpus[n[G_USED_MEMORY_MIB], gpu] -= alloc[n[A_GPU_MEMORY_MIB], piece]
        node[n[N_USED_CPU_MILLI], here] -= alloc[n[A_CPU_MILLI], piece]
        node[n[N_USED_MEMORY_MIB], here] -= alloc[n[A_MEMORY_MIB], piece]
        _given_back(n, w, ALLOCS, OF_ALLOCS, alloc, piece)
        piece = following
    runs[n[R_FIRST_ALLOC], run], runs[n[R_STATE], run], runs[n[R_ENDED_MS], run] = -1, ENDED, now_ms
    runs[n[R_END_SEQ], run], runs[n[R_OUTCOME], run], runs[n[R_EXIT_CODE], run] = seq, outcome, exit_code
    runs[n[R_CONFIRMED_MS], run], runs[n[R_BLAME], run] = confirmed_ms, blame
    n[DIRTY] = 1


@bare
def stop(n: I64, w: World, run: int, cause: int, stop_by_ms: int, seq: int) -> None:
    """Ask a run to end."""
    runs = w.run
    runs[n[R_STATE], run], runs[n[R_STOP_CAUSE], run] = STOPPING, cause
    runs[n[R_STOP_BY_MS], run], runs[n[R_STOP_SEQ], run] = stop_by_ms, seq


@bare
def close_run(n: I64, w: World, run: int, outcome: int, requeued: bool, not_before_ms: int) -> None:
    """Forget an ended run; its workload waits again, or is over."""
    table, row = w.workload, w.run[n[R_WORKLOAD], run]
    kind = w.known[KNOWN_ENDS, outcome]
    if kind & 1:
        fruitful = table[n[W_PROGRESS_MS], row] > w.run[n[R_RESUME_MS], run]
        table[n[W_FRUITLESS], row] = 0 if fruitful else table[n[W_FRUITLESS], row] + (0 if kind & 2 else 1)
    _forgotten(n, w, RUNS, OF_RUNS, w.run, w.run_names, w.run_slots, run)
    table[n[W_RUN], row], table[n[W_OUTCOME], row], table[n[W_NOT_BEFORE_MS], row] = -1, outcome, not_before_ms
    if outcome == n[FAILED]:
        table[n[W_FAILURES], row] += 1
    if outcome == n[START_FAILED]:
        table[n[W_START_FAILURES], row] += 1
    if requeued:
        enqueue(n, w, row)
    else:
        table[n[W_STATE], row] = OVER


@bare
def close_workload(n: I64, w: World, row: int) -> None:
    """Forget a workload, which has left the queue; its id stays taken."""
    w.budget[n[B_WORKLOADS], w.workload[n[W_BUDGET], row]] -= 1
    closed = _named(
        n, w, CLOSED, OF_CLOSED, w.closed_names, w.closed_slots, w.workload_names[row], 0,
        w.workload_names[row, keys.NAME_BYTES - 1],
    )  # fmt: skip
    w.closed[n[C_CLOSED_MS], closed] = n[TIME_MS]
    _forgotten(n, w, WORKLOADS, OF_WORKLOADS, w.workload, w.workload_names, w.workload_slots, row)


# -- the end of a cycle ------------------------------------------------------------------------------------------------


@bare
def _barred_anew(n: I64, w: World) -> None:
    run, budget, barred = w.run, w.budget, w.known[KNOWN_BARRED]
    lines.reserved(
        n[ACCRUED_MS], n[RUNS], ENDED, run[n[R_PROTECTED_UNTIL_MS]], run[n[R_RESERVED]], run[n[R_STATE]], run[n[R_BUDGET]],
        run[n[R_GPUS_MILLI]], n[BUDGETS], budget[n[B_PARENT]], budget[n[B_CHILDREN]], w.known[KNOWN_SUMS],
        w.known[KNOWN_MILLI],
    )  # fmt: skip
    lines.barred(
        n[BUDGETS], budget[n[B_PARENT]], budget[n[B_CLOSED]], budget[n[B_METERED]], budget[n[B_GRANTED_US]],
        budget[n[B_CHARGED_US]], w.known[KNOWN_SUMS], barred,
    )  # fmt: skip
    stored = budget[n[B_BARRED]]
    for row in range(n[BUDGETS]):
        if stored[row] != barred[row]:
            stored[row] = barred[row]
            n[FAIR_STALE] = 1


@bare
def _adds_up(n: I64, w: World) -> bool:
    """Tell whether the accounts and rates of all pools, and all lags, add up: ``ledger.check_conservation``."""
    pool, budget = w.pool, w.budget
    for row in range(n[POOLS]):
        root, unfunded_us = pool[n[P_ROOT], row], pool[n[P_UNFUNDED_US], row]
        total_us = pool[n[P_DOWN_US], row] + pool[n[P_IDLE_US], row] + unfunded_us + budget[n[B_CHARGED_US], root]
        rate = pool[n[P_DOWN_MILLI], row] + pool[n[P_IDLE_MILLI], row] + pool[n[P_UNFUNDED_MILLI], row]
        if pool[n[P_SUPPLY_US], row] != total_us or unfunded_us != budget[n[B_UNFUNDED_US], root]:
            return False
        if pool[n[P_SUPPLY_MILLI], row] != rate + budget[n[B_FUNDED_MILLI], root]:
            return False
    uneven = lines.uneven(
        n[BUDGETS], budget[n[B_PARENT]], budget[n[B_CHILDREN]], budget[n[B_LAG_US]], budget[n[B_FORFEITED_US]],
        budget[n[B_FORGIVEN_US]],
    )  # fmt: skip
    return bool(uneven < 0)


@bare
def _pruned(n: I64, w: World) -> None:
    """Forget the ids of workloads of long ago."""
    if n[TIME_MS] - n[PRUNED_MS] < n[PRUNE_EVERY_MS]:
        return
    n[PRUNED_MS] = n[TIME_MS]
    for row in range(n[CLOSED]):
        named = w.closed_names[row, keys.NAME_BYTES - 1] > 0
        if named and w.closed[n[C_CLOSED_MS], row] < n[TIME_MS] - n[RETENTION_MS]:
            _forgotten(n, w, CLOSED, OF_CLOSED, w.closed, w.closed_names, w.closed_slots, row)


@bare
def finish(n: I64, w: World) -> bool:
    """Close the cycle; False, with the cycle still open, when the books do not add up."""
    _barred_anew(n, w)
    if not _adds_up(n, w):
        return False
    n[CYCLE] += 1
    n[CYCLE_MS], n[DIRTY] = n[TIME_MS], 0
    _pruned(n, w)
    return True

"""Starts as columns: what each of many says, and what it does to the rows of tables.

``tell`` is for who has decided (``policy.starting``), ``leave`` and ``begin`` are for who folds (``fold.waiting``,
``fold.starts``). Rows of those who waited lie far apart: each is asked for some steps before its turn. Naive equivalents:
``policy.starting.start`` and ``fold.starts.placed``, one by one. Pure functions of the columns; ``tell`` fills ``Said``, the others
write the columns that they are given for that. Money, the queue, and the keys of runs are not theirs.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from apportion.core.kernels.bare import bare
from apportion.core.kernels.fetch import fetch
from apportion.core.kernels.serve.columns import BUDGET, EACH, MIN_RUNTIME_MS, NODES, WHOLE, Starts
from apportion.core.kernels.serve.money import WITHIN_ALLOWANCE

I64 = NDArray[np.int64]

# as in ``effects``
BUILT_ON = {
    "bare": "6b2fd7db475f", "fetch": "ae30500519b1", "serve.columns": "00138576507d", "serve.money": "464ce80f684d",
}  # fmt: skip

RUNNING, PLACED = 4, 1  # of ``state.schema``: of a workload, of a run
AHEAD = 16  # steps


class Said(NamedTuple):
    """What starts say, per start, per piece and per GPU."""

    leaf: I64
    milli: I64
    run_no: I64
    resume_ms: I64
    protected_until_ms: I64
    reserved_us: I64
    reserved: I64  # 1 = something is
    funded: I64
    first_piece: I64  # where those of a start begin; one entry more than starts
    node: I64  # per piece
    piece_each: I64
    first_gpu: I64  # where those of a piece begin; one entry more than pieces
    each: I64  # per GPU
    start: I64
    position: I64  # on its node


class Waiting(NamedTuple):
    """Columns of workloads."""

    budget: I64
    pool: I64
    min_runtime_ms: I64
    choices: I64
    state: I64
    run: I64
    run_no: I64
    reason: I64
    funded_ms: I64
    hold: I64
    proposed: I64
    told_ms: I64
    late_ms: I64
    planned_ms: I64


class Running(NamedTuple):
    """Columns of runs."""

    workload: I64
    budget: I64
    pool: I64
    lead: I64
    run_no: I64
    state: I64
    gpus_milli: I64
    idle_cycles: I64
    placed_ms: I64
    protected_until_ms: I64
    reserved: I64
    resume_ms: I64
    checkpoint_ms: I64
    first_alloc: I64


class Holding(NamedTuple):
    """Columns of what runs hold, and of GPUs and nodes."""

    run: I64
    gpu: I64
    milli: I64
    gpu_memory_mib: I64
    next: I64
    confirmed_ms: I64
    missed: I64
    node_of: I64
    used_memory_mib: I64
    memory_mib_of: I64
    runs_on: I64


def said_of(starts: int, gpus: int) -> Said:
    """Return room for what so many starts on so many GPUs say."""
    (leaf, milli, run_no, resume_ms, until_ms, reserved_us, reserved, funded) = np.empty((8, starts), dtype=np.int64)
    node, piece_each, each, start, position = np.empty((5, gpus), dtype=np.int64)
    first_piece, first_gpu = np.empty(starts + 1, dtype=np.int64), np.empty(gpus + 1, dtype=np.int64)
    return Said(
        leaf, milli, run_no, resume_ms, until_ms, reserved_us, reserved, funded, first_piece, node, piece_each, first_gpu, each,
        start, position,
    )  # fmt: skip


@bare
def tell(
    starts: Starts, count: int, now_ms: int, quantum_ms: int, waits: I64, run_no: I64, progress_ms: I64, node_of: I64,
    position_of: I64, said: Said,
) -> int:  # fmt: skip
    """Fill in what the first ``count`` starts of a pool say; returns how many pieces they have."""
    rows, whys, first, gpus = starts.workload, starts.why, starts.first, starts.gpus
    pieces = 0
    for k in range(count):
        if k + AHEAD < count:
            coming = rows[k + AHEAD]
            fetch(waits, coming * waits.shape[1])
            fetch(run_no, coming)
            fetch(progress_ms, coming)
        row = rows[k]
        milli_per_node, min_runtime_ms, funded = waits[row, EACH], waits[row, MIN_RUNTIME_MS], whys[k] == WITHIN_ALLOWANCE
        milli, each = waits[row, NODES] * milli_per_node, min(WHOLE, milli_per_node)
        said.leaf[k], said.milli[k] = waits[row, BUDGET], milli
        said.run_no[k], said.resume_ms[k] = run_no[row] + 1, progress_ms[row]
        said.protected_until_ms[k] = now_ms + (min_runtime_ms if funded else min(min_runtime_ms, quantum_ms))
        said.reserved_us[k] = milli * min_runtime_ms if funded else 0
        said.reserved[k], said.funded[k] = 1 if said.reserved_us[k] > 0 else 0, 1 if funded else 0
        said.first_piece[k] = pieces
        here = -1
        for at in range(first[k], first[k + 1]):
            gpu = gpus[at]
            if node_of[gpu] != here:
                here = node_of[gpu]
                said.node[pieces], said.piece_each[pieces], said.first_gpu[pieces] = here, each, at
                pieces += 1
            said.each[at], said.start[at], said.position[at] = each, k, position_of[gpu]
    said.first_piece[count], said.first_gpu[pieces] = pieces, first[count]
    return pieces


@bare
def leave(rows: I64, budget: I64, min_runtime_ms: I64, gpus_milli: I64, demand_milli: I64) -> None:
    """Add to ``demand_milli``, per budget line, what those asked for who no longer wait; idle-cycle work is nobody's demand."""
    for k in range(len(rows)):
        if k + AHEAD < len(rows):
            coming = rows[k + AHEAD]
            fetch(budget, coming)
            fetch(min_runtime_ms, coming)
            fetch(gpus_milli, coming)
        row = rows[k]
        if min_runtime_ms[row] > 0:
            demand_milli[budget[row]] += gpus_milli[row]


@bare
def _fill(column: I64, rows: I64, value: int) -> None:
    for k in range(len(rows)):
        column[rows[k]] = value


@bare
def _put(column: I64, rows: I64, values: I64) -> None:
    for k in range(len(rows)):
        column[rows[k]] = values[k]


@bare
def _take(column: I64, rows: I64, source: I64, of: I64) -> None:
    for k in range(len(rows)):
        column[rows[k]] = source[of[k]]


@bare
def begin(
    now_ms: int, rows: I64, run_no: I64, milli: I64, protected_until_ms: I64, reserved: I64, resume_ms: I64, pieces: I64, gpus: I64,
    each: I64, start: I64, runs: I64, allocs: I64, workload: Waiting, run: Running, held: Holding,
) -> int:  # fmt: skip
    """Write the runs of starts, in the rows given, and what they hold; returns how many of them accepted several pools.

    Columns of the new rows that are not written here are zero already. ``pieces`` are the nodes of pieces. One column after the
    other: columns of a table lie so far apart that cells of a row push each other out of the cache.
    """
    _put(run.workload, runs, rows)
    _take(run.budget, runs, workload.budget, rows)
    _take(run.pool, runs, workload.pool, rows)
    _put(run.run_no, runs, run_no)
    _fill(run.state, runs, PLACED)
    _put(run.gpus_milli, runs, milli)
    _fill(run.placed_ms, runs, now_ms)
    _put(run.protected_until_ms, runs, protected_until_ms)
    _put(run.reserved, runs, reserved)
    _put(run.resume_ms, runs, resume_ms)
    _fill(run.checkpoint_ms, runs, now_ms)
    chose = 0
    for k in range(len(rows)):
        run.idle_cycles[runs[k]] = 1 if workload.min_runtime_ms[rows[k]] == 0 else 0
        chose += 1 if workload.choices[rows[k]] > 0 else 0
    _fill(workload.state, rows, RUNNING)
    _put(workload.run, rows, runs)
    _put(workload.run_no, rows, run_no)
    for column in (
        workload.reason, workload.funded_ms, workload.hold, workload.proposed, workload.told_ms, workload.late_ms,
        workload.planned_ms,
    ):  # fmt: skip
        _fill(column, rows, 0)
    _put(held.gpu, allocs, gpus)
    _put(held.milli, allocs, each)
    _fill(held.confirmed_ms, allocs, now_ms)
    _fill(held.missed, allocs, -1)
    for at in range(len(gpus)):
        gpu, alloc, mine = gpus[at], allocs[at], runs[start[at]]
        held.run[alloc] = mine
        held.next[alloc] = allocs[at + 1] if at + 1 < len(gpus) and start[at + 1] == start[at] else -1
        if at == 0 or start[at - 1] != start[at]:
            run.first_alloc[mine], run.lead[mine] = alloc, held.node_of[gpu]
        if each[at] < WHOLE:
            memory_mib = held.memory_mib_of[held.node_of[gpu]] * each[at] // WHOLE
            held.gpu_memory_mib[alloc] = memory_mib
            held.used_memory_mib[gpu] += memory_mib
    for node in pieces:
        held.runs_on[node] += 1
    return chose

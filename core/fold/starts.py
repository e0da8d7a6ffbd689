"""Fold of starts: a workload leaves the queue, its run has GPUs, and somebody pays for them from now on.

``placed`` is one start. ``apply_starts`` is many that a cycle decided one after the other: it comes to the same state, rows and
free lists included, and goes over columns instead of cells. Where one of them asks for more than GPUs, accepts several pools, or
does not fit the state, they are folded one by one, and the one that is wrong says so.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from apportion.core import ledger
from apportion.core.decisions import RunPlaced
from apportion.core.errors import check
from apportion.core.fold import choices
from apportion.core.fold.release import drop_hold, drop_holds
from apportion.core.fold.waiting import dequeue, dequeue_all
from apportion.core.kernels import placed as kernels
from apportion.core.state import bulk, schema
from apportion.core.state.bulk import Started
from apportion.core.state.codes import PAYER_CODE
from apportion.core.state.state import State
from apportion.core.state.wishes import wish_of
from apportion.core.units import MILLI

I64 = NDArray[np.int64]


def placed(state: State, decision: RunPlaced) -> None:
    """Fold one start."""
    workload = state.workload.row_of.get(decision.workload, -1)
    if workload < 0:
        check(False, state.counters.seq, f"a decision names workload {decision.workload}, which is not live")
    table, now_ms = state.workload.cells, state.counters.time_ms
    waiting = table.state[workload] in (schema.PENDING, schema.HELD)
    check(waiting, state.counters.seq, f"{decision.workload} is placed but does not wait")
    dequeue(state, workload)
    if table.state[workload] == schema.HELD:
        drop_hold(state, workload)
    if decision.pool != state.pool.keys[table.pool[workload]]:
        choices.go(state, workload, decision.pool)
    ledger.accrue(state, now_ms)
    run = state.run.add(state.run_ref(decision.workload, decision.run))
    pool = table.pool[workload]
    lead = state.node.row_of[decision.pieces[0].node]
    values = {
        "workload": workload,
        "budget": table.budget[workload],
        "pool": pool,
        "lead": lead,
        "run_no": decision.run,
        "state": schema.PLACED,
        "gpus_milli": decision.gpus_milli,
        "idle_cycles": int(table.min_runtime_ms[workload] == 0),
        "placed_ms": now_ms,
        "protected_until_ms": decision.protected_until_ms,
        "reserved": int(decision.reserved_gpu_us > 0),
        "resume_ms": decision.resume_from_ms,
        "checkpoint_ms": now_ms,
        "first_alloc": -1,
    }
    state.run.put(run, values)
    last, cells, nodes = -1, state.alloc.cells, state.node.cells
    wish = wish_of(state, workload)
    for piece in decision.pieces:
        node = state.node.row_of[piece.node]
        nodes.runs[node] += 1
        first = nodes.first_gpu[node]
        parts = len(piece.gpus) if wish.loose else 1
        for position in piece.gpus:
            alloc = state.alloc.add()
            cells.run[alloc] = run
            cells.gpu[alloc] = first + position
            cells.milli[alloc] = piece.milli_each
            if piece.milli_each < MILLI:
                memory_mib = wish.gpu_memory_mib or nodes.gpu_memory_mib[node] * piece.milli_each // MILLI
                cells.gpu_memory_mib[alloc] = memory_mib
                state.gpu.cells.used_memory_mib[first + position] += memory_mib
            if parts and wish.contested:
                cells.cpu_milli[alloc], cells.memory_mib[alloc] = parts * wish.cpu_milli, parts * wish.memory_mib
                nodes.used_cpu_milli[node] += parts * wish.cpu_milli
                nodes.used_memory_mib[node] += parts * wish.memory_mib
                parts = 0
            cells.next[alloc] = -1
            cells.confirmed_ms[alloc] = now_ms
            cells.missed[alloc] = -1
            if last < 0:
                state.run.cells.first_alloc[run] = alloc
            else:
                cells.next[last] = alloc
            last = alloc
            ledger.use_gpu(state, pool, first + position, piece.milli_each)
    ledger.begin_run(state, run, PAYER_CODE[decision.payer], now_ms)
    table.state[workload] = schema.RUNNING
    table.run[workload] = run
    table.run_no[workload] = decision.run
    table.reason[workload] = 0
    table.funded_ms[workload] = 0
    table.hold[workload] = schema.HOLD_NONE
    table.proposed[workload] = 0
    table.told_ms[workload] = 0
    table.late_ms[workload] = 0
    table.planned_ms[workload] = 0
    choices.forget_told(state, workload)


def apply_starts(state: State, decisions: Sequence[RunPlaced]) -> None:
    """Fold starts in their order."""
    starts = _columns(state, decisions) if len(decisions) > bulk.FEW else None
    if starts is None:
        for decision in decisions:
            placed(state, decision)
    else:
        apply_started(state, starts)


def apply_started(state: State, starts: Started) -> None:
    """Fold starts that fit the state, where they wait, and ask for GPUs only."""
    now_ms, table, run, gpus = state.counters.time_ms, state.workload, state.run, starts.gpu
    ledger.accrue(state, now_ms)
    rows = starts.workload
    dequeue_all(state, rows)
    drop_holds(state, rows[table.state[rows] == schema.HELD])
    runs = run.add_all(state.run_refs(starts.names, starts.run_no.tolist()))
    allocs = state.alloc.add_all([""] * len(gpus))
    chose = kernels.begin(
        now_ms, rows, starts.run_no, starts.milli, starts.protected_until_ms, starts.reserved, starts.resume_ms, starts.node, gpus,
        starts.each, starts.start, runs, allocs, *_written(state),
    )  # fmt: skip
    ledger.use_gpus(state, run.pool[runs][starts.start], gpus, starts.each)
    ledger.begin_runs(state, runs, starts.payer, now_ms)
    if chose:
        for row in rows[table.choices[rows] > 0].tolist():
            choices.forget_told(state, row)


def _written(state: State) -> tuple[kernels.Waiting, kernels.Running, kernels.Holding]:
    """Return the columns that starts read and write."""
    run, alloc, gpu, node = state.run, state.alloc, state.gpu, state.node
    held = kernels.Holding(
        alloc.run, alloc.gpu, alloc.milli, alloc.gpu_memory_mib, alloc.next, alloc.confirmed_ms, alloc.missed, gpu.node,
        gpu.used_memory_mib, node.gpu_memory_mib, node.runs,
    )  # fmt: skip
    return (
        kernels.Waiting(*(getattr(state.workload, name) for name in kernels.Waiting._fields)),
        kernels.Running(*(getattr(run, name) for name in kernels.Running._fields)),
        held,
    )


def _columns(state: State, decisions: Sequence[RunPlaced]) -> Started | None:
    """Return the starts as columns; None when they are to be folded one by one."""
    row_of, runs, node_of, first_gpu = state.workload.row_of, state.run.row_of, state.node.row_of, state.node.cells.first_gpu
    rows = [row_of.get(one.workload, -1) for one in decisions]
    nodes, gpus, each, start = list[int](), list[int](), list[int](), list[int]()
    for number, one in enumerate(decisions):
        if state.run_ref(one.workload, one.run) in runs or not one.pieces:
            return None
        for piece in one.pieces:
            node = node_of.get(piece.node, -1)
            if node < 0 or not piece.gpus:
                return None
            first = first_gpu[node]
            nodes.append(node)
            for position in piece.gpus:
                gpus.append(first + position)
                each.append(piece.milli_each)
                start.append(number)
    if min(rows) < 0 or len(dict.fromkeys(rows)) < len(rows) or min(gpus) < 0 or max(gpus) >= state.gpu.used:
        return None
    if not 0 < min(each) <= max(each) <= MILLI:
        return None
    told = (
        [one.run for one in decisions], [one.gpus_milli for one in decisions], [one.protected_until_ms for one in decisions],
        [one.reserved_gpu_us > 0 for one in decisions], [one.resume_from_ms for one in decisions],
        [PAYER_CODE[one.payer] for one in decisions], nodes, gpus, each, start,
    )  # fmt: skip
    try:
        run_nos, *others = (np.array(column, dtype=np.int64) for column in told)
        starts = Started(np.array(rows, dtype=np.int64), [one.workload for one in decisions], run_nos, *others)
    except OverflowError:
        return None
    table = state.workload
    phases = table.state[starts.workload]
    if not ((phases == schema.PENDING) | (phases == schema.HELD)).all() or table.wish[starts.workload].any():
        return None
    if table.choices[starts.workload].any():
        return None  # it may start in another pool than the one in which it waits
    used = state.gpu.column("used_milli").copy()
    np.add.at(used, starts.gpu, starts.each)
    return starts if used.max() <= MILLI else None

"""Who may be asked to go for anybody: few runs among all that hold GPUs, with what they hold, in rows of their own.

Most runs are paid for, or still protected, whoever asks; they are left out once, and each taker then looks at the rest alone. What
depends on the taker and on what was promised before him (rules (c) and (d) of ``policy.preempting``, and the order of budgets) is
told anew for each. Pure functions of the columns; ``choose_losers`` writes what it is told to fill. Naive equivalent: ``takers``
over all runs.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from apportion.core.kernels.bare import bare
from apportion.core.kernels.targets import COSTS, weights
from apportion.core.units import PPM

I64 = NDArray[np.int64]

# as in ``effects``
BUILT_ON = {
    "bare": "6b2fd7db475f", "targets": "2a01b8b80016"
}  # fmt: skip

PLACED, STARTED, STOPPING = 1, 2, 3  # run.state


class Holders(NamedTuple):
    """Columns of runs, of what they hold and of what they run, and the runs of the pool that nobody pays for."""

    unfunded: I64  # rows, ascending
    phase: I64
    protected_until_ms: I64
    idle_cycles: I64
    off: NDArray[np.bool_]  # demoted for doing no work
    line: I64
    milli: I64
    checkpoint_ms: I64
    placed_ms: I64
    workload: I64
    first_alloc: I64
    alloc_next: I64
    alloc_gpu: I64
    alloc_milli: I64
    alloc_mib: I64
    event_seq: I64  # per workload
    service: I64
    min_runtime_ms: I64
    gpus_milli: I64


class Losers(NamedTuple):
    """One entry per run that may go, per budget line of one, per row of what they hold, per node and per GPU with such a row."""

    run: I64  # its row, ascending
    gone: NDArray[np.uint8]  # 1 = it was asked to go
    line: I64  # entry of its line
    counted: NDArray[np.uint8]  # 0 = it is on idle cycles, or demoted: its budget does not matter
    milli: I64
    cost: I64  # the seven numbers; the one that depends on the order of budgets is 0
    budget: I64  # per line: its row, ascending
    off_milli: I64  # of demoted runs
    weight: I64
    ranked: I64  # lines in the order of over-service that was found last
    key: I64  # by which
    begin: I64  # per run, and one more: where its part of ``held`` begins
    held: I64  # entries of what it holds, run by run
    owner: I64  # per row of what they hold, in their order: entry of the run
    gpu: I64  # row
    spot: I64  # entry of the GPU
    place: I64  # entry of the node
    held_milli: I64
    held_mib: I64
    node: I64  # per node: row, ascending
    card: I64  # per GPU: row, ascending


@njit(cache=True)
def _distinct(rows: I64) -> I64:
    """Return the rows once each, ascending."""
    ordered = rows[np.argsort(rows, kind="mergesort")]
    count = 0
    for k in range(len(ordered)):
        if count == 0 or ordered[k] != ordered[count - 1]:
            ordered[count] = ordered[k]
            count += 1
    return ordered[:count].copy()


@njit(cache=True)
def find_losers(
    now_ms: int, seq: int, quantum_ms: int, holders: Holders, parent: I64, share_ppm: I64, running: I64, allowance: I64,
    node_of: I64, any_: int,
) -> Losers:  # fmt: skip
    """Return who is unfunded and past his protected time, and in progress; nobody where ``any_`` is 0.

    Budgets are in about the order of over-service that the first taker will find.
    """
    phase, protected_until_ms, line, milli, off = (
        holders.phase, holders.protected_until_ms, holders.line, holders.milli, holders.off,
    )  # fmt: skip
    unfunded = holders.unfunded[: any_ * len(holders.unfunded)]
    run, count, rows = np.empty(len(unfunded), dtype=np.int64), 0, 0
    first, following, alloc_milli = holders.first_alloc, holders.alloc_next, holders.alloc_milli
    for row in unfunded:
        if (phase[row] == PLACED or phase[row] == STARTED) and protected_until_ms[row] <= now_ms:
            run[count] = row
            count += 1
            a = first[row]
            while a >= 0:
                rows += 1
                a = following[a]
    run = run[:count].copy()
    budget = _distinct(line[run])
    off_milli, weight = np.zeros(len(budget), dtype=np.int64), np.zeros(len(parent), dtype=np.int64)
    weights(any_ * len(parent), parent, share_ppm, weight)
    for row in unfunded:
        if off[row]:
            at = np.searchsorted(budget, line[row])
            if at < len(budget) and budget[at] == line[row]:
                off_milli[at] += milli[row]
    counted, own, cost = np.zeros(count, dtype=np.uint8), np.zeros(count, dtype=np.int64), np.zeros((count, COSTS), dtype=np.int64)
    alloc, owner_of, begin = np.empty(rows, dtype=np.int64), np.empty(rows, dtype=np.int64), np.zeros(count + 1, dtype=np.int64)
    rows = 0
    for k in range(count):
        row = run[k]
        workload = holders.workload[row]
        own[k] = np.searchsorted(budget, line[row])
        counted[k] = 0 if off[row] or holders.idle_cycles[row] == 1 else 1
        counted_milli = milli[row] if counted[k] == 1 else 0
        unsaved_ms = 0 if holders.service[workload] > 0 else min(now_ms - holders.checkpoint_ms[row], quantum_ms)
        cost[k, 0] = counted_milli * unsaved_ms
        cost[k, 1] = counted_milli
        cost[k, 2] = (milli[row] - counted_milli) * unsaved_ms
        cost[k, 3] = milli[row]
        cost[k, 5] = now_ms - holders.placed_ms[row]
        cost[k, 6] = seq - holders.event_seq[workload]
        a = first[row]
        while a >= 0:
            alloc[rows], owner_of[rows] = a, k
            rows += 1
            a = following[a]
        begin[k + 1] = rows
    order = np.argsort(alloc, kind="mergesort")
    gpu = holders.alloc_gpu[alloc[order]]
    card, node, held = _distinct(gpu), _distinct(node_of[gpu]), np.empty(rows, dtype=np.int64)
    held[order] = np.arange(rows)
    key = (running[budget] - allowance[budget] - off_milli) * PPM // weight[budget]
    return Losers(
        run, np.zeros(count, dtype=np.uint8), own, counted, milli[run], cost, budget, off_milli, weight[budget],
        np.argsort(-key, kind="mergesort"), key, begin, held, owner_of[order], gpu,
        np.searchsorted(card, gpu), np.searchsorted(node, node_of[gpu]),
        alloc_milli[alloc[order]], holders.alloc_mib[alloc[order]], node, card,
    )  # fmt: skip


@bare
def _entitled(taker: int, parent: I64, share_ppm: I64) -> bool:
    """Tell whether the budget lives on what it is entitled to; else it takes only from whose budget does not matter."""
    line = taker
    while line >= 0 and share_ppm[line] != 0:
        line = parent[line]
    return line < 0


@bare
def choose_losers(
    losers: Losers, taker: int, now_ms: int, quantum_ms: int, parent: I64, share_ppm: I64, running: I64, allowance: I64,
    took_ms: I64, room: I64, may_go: NDArray[np.uint8], rank: I64, gives: NDArray[np.uint8], closed: NDArray[np.uint8],
) -> int:  # fmt: skip
    """Fill in who may go for this taker, alone, and the place of each line that has one to give; returns their milli-GPU.

    ``room`` (per line) becomes 2 * (running - allowance) without its demoted runs. The costs of who may go are complete then.
    ``gives`` and ``closed`` are scratch per line.
    """
    budget, line, milli, counted, cost = losers.budget, losers.line, losers.milli, losers.counted, losers.cost
    ranked, key, lines, total_milli = losers.ranked, losers.key, len(losers.budget), 0
    entitled = _entitled(taker, parent, share_ppm)
    for k in range(lines):
        row = budget[k]
        room[k] = 2 * (running[row] - allowance[row] - losers.off_milli[k])
        graced = took_ms[row] > 0 and now_ms - took_ms[row] < quantum_ms
        gives[k], closed[k] = 0, not entitled or row == taker or graced
        key[k] = room[k] * PPM // losers.weight[k]
    for k in range(len(line)):
        may_go[k] = 0
        if losers.gone[k] == 1:
            continue
        if counted[k] == 1:
            if closed[line[k]] == 1 or milli[k] >= room[line[k]]:
                continue
            gives[line[k]] = 1
        may_go[k] = 1
        total_milli += milli[k]
    for k in range(1, lines):  # by insertion: little has changed since the taker before; ties by row
        one, at = ranked[k], k
        while at > 0 and (key[ranked[at - 1]] < key[one] or (key[ranked[at - 1]] == key[one] and ranked[at - 1] > one)):
            ranked[at] = ranked[at - 1]
            at -= 1
        ranked[at] = one
    place = 0
    for k in ranked:
        rank[k] = place
        place += gives[k]
    for k in range(len(line)):
        cost[k, 4] = milli[k] * rank[line[k]] if counted[k] == 1 else 0
    return total_milli

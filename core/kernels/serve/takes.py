"""Takes in a row: who is funded and does not fit takes GPUs from others, one by one, until something else is to be decided.

``take_funded`` does what ``start_funded`` does and goes on where that stops for somebody who may preempt and asks for GPUs only: it
plans whom he takes from (``kernels.taking``), lists the plan, and looks at who is next as if it had been folded: the runs are
stopping, the GPUs held, the budgets have given and taken, and who lost a run starts nothing. Starts and plans are never listed
together, so that they can be written one after the other in the order in which they were made. Columns that only the fold may
write come as copies. Pure functions of the columns and of what they keep in the arrays given. Naive equivalent: after every plan
fold it, measure the room anew, and ask ``policy.preempting`` for the next.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from apportion.core.kernels.bare import bare
from apportion.core.kernels.losers import STOPPING, Holders, Losers, choose_losers, find_losers
from apportion.core.kernels.release import Releases
from apportion.core.kernels.serve.classes import measure_classes
from apportion.core.kernels.serve.columns import (
    BOUND,
    EACH,
    NODES,
    UNFIT,
    WHOLE,
    WISH,
    Jobs,
    Lines,
    Room,
    Runs,
    Starts,
    Stock,
)
from apportion.core.kernels.serve.heads import look
from apportion.core.kernels.serve.order import choose_above
from apportion.core.kernels.serve.ranked import Ranks
from apportion.core.kernels.serve.starts import start_funded
from apportion.core.kernels.serve.stock import fill_shelves
from apportion.core.kernels.taking import ELSEWHERE, FOUND, NOBODY, plan_for

I64 = NDArray[np.int64]

# as in ``effects``
BUILT_ON = {
    "bare": "6b2fd7db475f", "losers": "9f8f8e6f5b13", "release": "e8e7b71b47cf", "serve.classes": "81a4341e4139",
    "serve.columns": "00138576507d", "serve.heads": "c92cb857b3aa", "serve.order": "b094c9e19445", "serve.ranked": "ea40f672b114",
    "serve.starts": "840afba95b41", "serve.stock": "b80ae8957b60", "taking": "6aafc151ebb9"
}  # fmt: skip

LIMIT, PLANNED, ANSWER = range(3)  # of ``Takes.counts``


class Takes(NamedTuple):
    """Plans of preemption, one entry each; per run that goes, and per GPU that is held then."""

    workload: I64
    running: I64  # of the taker's budget when it was made
    first_run: I64  # and one more
    first_gpu: I64
    run: I64
    run_running: I64  # of its budget, without those before it in the plan
    gpus: I64
    counts: I64  # the most that may be listed here; how many are; what was found of the last who asked


@bare
def _hold(stock: Stock, room: Room, gpus: I64, row: int) -> bool:
    """Let GPUs be held: they are free for nobody. Tells whether nodes have less free than before."""
    used, out, held, free_on, part_on, lowest = stock.used, stock.out, stock.held, stock.free, stock.part, stock.lowest
    moved = False
    for gpu in gpus:
        if out[gpu] == 0 and held[gpu] == 0:
            room.sums[0] -= WHOLE - used[gpu]
        held[gpu] = row + 1
    for at in range(len(gpus)):
        node = stock.node_of[gpus[at]]
        if at > 0 and stock.node_of[gpus[at - 1]] == node:
            continue
        free, part = 0, 0
        for gpu in range(stock.first_gpu[node], stock.first_gpu[node] + stock.gpus[node]):
            if out[gpu] == 0 and held[gpu] == 0:
                if used[gpu] == 0:
                    free += 1
                else:
                    part = max(part, WHOLE - used[gpu])
        moved = moved or free != free_on[node] or part != part_on[node]
        free_on[node], part_on[node] = free, part
        lowest[free] = min(lowest[free], node)
    return moved


@njit(cache=True)
def _count_anew(stock: Stock, room: Room) -> None:
    fill_shelves(stock.part, stock.shelves)
    measure_classes(
        stock.free, stock.part, stock.last, stock.until_ms, stock.closes_ms, room.instants_ms, room.nodes, room.shared
    )


@bare
def _list(
    takes: Takes, losers: Losers, holders: Holders, lines: Lines, row: int, leaf: int, victims: I64, held: int
) -> None:
    """List a plan, whose GPUs are written, with what budgets run when it is made."""
    count = takes.counts[PLANNED]
    at = takes.first_run[count]
    takes.workload[count], takes.running[count] = row, lines.running[leaf]
    for k in range(len(victims)):
        run = losers.run[victims[k]]
        line, before = holders.line[run], 0
        for j in range(k):
            other = losers.run[victims[j]]
            if holders.idle_cycles[other] == 0 and holders.line[other] == line:
                before += holders.milli[other]
        takes.run[at + k], takes.run_running[at + k] = run, lines.running[line] - before
    takes.first_run[count + 1] = at + len(victims)
    takes.first_gpu[count + 1] = takes.first_gpu[count] + held
    takes.counts[PLANNED] += 1


@bare
def _add_running(lines: Lines, leaf: int, milli: int, taken: I64) -> None:
    """Count so much as running, and as taken, on the path of a budget."""
    line, running, parent = leaf, lines.running, lines.parent
    while line >= 0:
        running[line] += milli
        taken[line] += milli
        line = parent[line]


@njit(cache=True)
def _losers(now_ms: int, seq: int, quantum_ms: int, holders: Holders, lines: Lines, stock: Stock, any_: int) -> Losers:
    return find_losers(
        now_ms, seq, quantum_ms, holders, lines.parent, lines.weight, lines.running, lines.allowance, stock.node_of, any_
    )


@njit(cache=True)
def take_funded(
    jobs: Jobs, lines: Lines, room: Room, stock: Stock, ranks: Ranks, holders: Holders, takes: Takes, seq: int, idle_milli: int,
    steps_max: int, hold: I64, starts: Starts, runs: Runs, quantum_ms: int, root: int, now_ms: int, plain: int, kept_all: int,
    ask_all: int, blocked: I64, stuck_milli: I64, taken: I64, position: I64, candidate: I64, shapes: I64, count: I64, found: I64,
    ready: Releases, kept: I64,
) -> tuple[int, int]:  # fmt: skip
    """Start who is funded and fits, and let take who does not, as long as nothing else is to be decided.

    Returns what ``start_funded`` does. ``takes.counts`` tells what was found of the one who is returned, if he was looked at here:
    ``NOBODY`` may be taken from by him. ``runs`` and ``stock.held`` are copies that are written; ``hold`` tells of workloads why
    GPUs are held for them.
    """
    losers = _losers(now_ms, seq, quantum_ms, holders, lines, stock, 0)
    known, limit, failed = False, takes.counts[LIMIT], -1
    may_go, gives, closed = losers.gone, losers.gone, losers.gone  # of those who may go and of their budgets, once they are known
    rank, room_of, victims = losers.line, losers.line, losers.line
    while True:
        listed = takes.counts[PLANNED]
        takes.counts[ANSWER] = ELSEWHERE
        leaf, made = start_funded(
            jobs, lines, room, stock, ranks, starts, runs, quantum_ms, root, now_ms, plain if listed == 0 else 0, kept_all, ask_all,
            blocked, stuck_milli, taken, position, candidate, shapes, count, found, ready, kept if listed == 0 else kept[:0],
        )  # fmt: skip
        if leaf < 0 or made > 0 or found[0] != UNFIT or starts.counts[0] > 0 or listed == limit:
            return leaf, made
        row = candidate[leaf]
        nodes, each = jobs.waits[row, NODES], jobs.waits[row, EACH]
        if row == failed:
            takes.counts[ANSWER] = NOBODY
            return leaf, made
        most = takes.first_gpu[listed] + nodes * max(1, each // WHOLE)
        if jobs.waits[row, WISH] > 0 or hold[row] > 0 or most > len(takes.gpus):
            return leaf, made
        if not known:
            losers = _losers(now_ms, seq, quantum_ms, holders, lines, stock, 1)
            known, size, budgets = True, len(losers.run), len(losers.budget)
            may_go, victims = np.zeros(size, dtype=np.uint8), np.empty(size, dtype=np.int64)
            gives, closed = np.zeros(budgets, dtype=np.uint8), np.zeros(budgets, dtype=np.uint8)
            rank, room_of = np.zeros(budgets, dtype=np.int64), np.zeros(budgets, dtype=np.int64)
        loose_milli = choose_losers(
            losers, leaf, now_ms, quantum_ms, lines.parent, lines.weight, lines.running, lines.allowance, runs.took_ms, room_of,
            may_go, rank, gives, closed,
        )  # fmt: skip
        units, gpus = each // WHOLE, takes.gpus[takes.first_gpu[listed] :]
        if units > 0:
            open_ = room.nodes[0, units] if units < room.nodes.shape[1] else 0
        else:
            open_ = int(room.nodes[0, 1] > 0 or room.shared[0] >= each)
        answer, going, held = plan_for(
            losers, may_go, loose_milli, idle_milli, room_of, rank, stock, row, nodes, each, open_, steps_max, victims, gpus
        )
        if answer == ELSEWHERE:
            return leaf, made
        if answer != FOUND:
            if listed == 0:  # what could be freed was measured for him
                takes.counts[ANSWER] = answer
                return leaf, made
            failed, room.sums[3] = row, BOUND  # was he worth a look? what could be freed is measured anew
            continue
        _list(takes, losers, holders, lines, row, leaf, victims[:going], held)
        if _hold(stock, room, gpus[:held], row):
            _count_anew(stock, room)
        runs.took_ms[leaf], jobs.gone[position[leaf]] = now_ms, 1
        _add_running(lines, leaf, nodes * each, taken)
        for k in victims[:going]:
            run = losers.run[k]
            owner, line = holders.workload[run], holders.line[run]
            losers.gone[k], runs.phase[run], blocked[line], lines.ready[line] = 1, STOPPING, 1, 0
            if holders.min_runtime_ms[owner] > 0:
                _add_running(lines, line, -holders.gpus_milli[owner], taken)
        # at most what was known may be freed, so long as nothing of the taker's budget may go
        room.sums[3] = 1 if lines.running[leaf] <= lines.allowance[leaf] else 0
        look(jobs, lines, room, leaf, now_ms, blocked, stuck_milli, position, candidate, shapes, count)
        choose_above(lines, lines.allowance, taken, leaf)
        for k in victims[:going]:
            choose_above(lines, lines.allowance, taken, losers.budget[losers.line[k]])

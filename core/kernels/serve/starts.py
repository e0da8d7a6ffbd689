"""Starts in a row: where nothing but GPUs is asked for, the walk takes the GPUs itself and goes on.

``start_funded`` and ``start_all`` come back with many starts at once, of which the caller makes decisions (``policy.starting``);
and where something else must be decided: a search for GPUs or victims, a reservation that is no plain one. What is free, the room
and the order are kept current with each. Pure functions of the columns and of what they keep in the arrays given; a start is
listed in ``Starts`` and folded later. Naive equivalent: after every start fold it, measure the room anew, ask ``pack.find_gpus``
for the next.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from apportion.core.kernels.bare import bare
from apportion.core.kernels.fetch import fetch
from apportion.core.kernels.fragments import BEST_FIT
from apportion.core.kernels.release import Releases, find_ready
from apportion.core.kernels.serve.classes import keep_nodes, with_holder
from apportion.core.kernels.serve.columns import (
    BOUND,
    BUDGET,
    EACH,
    FULL,
    KEPT,
    LEFT_MS,
    MIN_RUNTIME_MS,
    NODES,
    OPEN,
    SCATTERED,
    STUCK,
    UNFIT,
    WHOLE,
    WISH,
    Ends,
    Jobs,
    Lines,
    Places,
    Room,
    Runs,
    Starts,
    Stock,
    Tried,
)
from apportion.core.kernels.serve.depth import Open, is_open, next_of_all
from apportion.core.kernels.serve.freed import count_freed, measure_freed
from apportion.core.kernels.serve.heads import look, look_at, next_funded, note_stuck
from apportion.core.kernels.serve.money import WITHIN_ALLOWANCE, fundable_row, promisable_us, verdict
from apportion.core.kernels.serve.order import choose_above
from apportion.core.kernels.serve.places import add_end
from apportion.core.kernels.serve.ranked import Ranks, forget, pick_ranked
from apportion.core.kernels.serve.shapes import buckets_of, class_ending, has_room, milli_of, note, says_over_ms
from apportion.core.kernels.serve.siblings import Siblings, choose_beside, no_siblings
from apportion.core.kernels.serve.stock import pick_gpus, pick_of, take_gpus, take_of
from apportion.core.units import NEVER_MS, UNKNOWN_RUNTIME_MS

I64 = NDArray[np.int64]

# as in ``effects``
BUILT_ON = {
    "bare": "6b2fd7db475f", "fetch": "ae30500519b1", "fragments": "4019bc184b20", "release": "e8e7b71b47cf",
    "serve.classes": "81a4341e4139", "serve.columns": "00138576507d", "serve.depth": "b40d238d4e4c", "serve.freed": "576feafac0bf",
    "serve.heads": "c92cb857b3aa", "serve.money": "464ce80f684d", "serve.order": "b094c9e19445", "serve.places": "81e90c71d958",
    "serve.ranked": "ea40f672b114", "serve.shapes": "a6b4fdc08477", "serve.siblings": "70318d4e7db0",
    "serve.stock": "b80ae8957b60",
}  # fmt: skip


@njit(cache=True)
def _start(
    jobs: Jobs, lines: Lines, room: Room, stock: Stock, ranks: Ranks, starts: Starts, at: int, over_ms: int
) -> bool:
    """List the start of the workload at a position of the queue, if it fits: everything it changes is current then."""
    row, count, waits = jobs.queue[at], starts.counts[0], jobs.waits
    nodes, milli_per_node, milli = waits[row, NODES], waits[row, EACH], milli_of(waits, row)
    min_runtime_ms = waits[row, MIN_RUNTIME_MS]
    begin = starts.first[count]
    if ranks.packing == BEST_FIT:
        taken = pick_gpus(stock, room.nodes, row, nodes, milli_per_node, over_ms, starts.gpus, begin)
    else:
        taken = pick_ranked(ranks, stock, row, nodes, milli_per_node, over_ms, starts.gpus, begin)
        forget(ranks, stock.node_of, starts.gpus, begin, begin + taken)
    if taken == 0:
        return False
    line, parent, running, reserved_us = waits[row, BUDGET], lines.parent, lines.running, lines.reserved_us
    why = fundable_row(jobs, lines, row, 0)
    starts.workload[count], starts.why[count], starts.running[count] = row, why, running[line]
    starts.first[count + 1] = begin + taken
    starts.counts[0] += 1
    take_gpus(stock, room, starts.gpus[begin : begin + taken], min(WHOLE, milli_per_node))
    jobs.gone[at] = 1
    promised_us = milli * min_runtime_ms if why == WITHIN_ALLOWANCE else 0
    while line >= 0:
        if min_runtime_ms > 0:
            running[line] += milli
        reserved_us[line] += promised_us
        line = parent[line]
    return True


@njit(cache=True)
def _listable(jobs: Jobs, starts: Starts, row: int) -> bool:
    """Tell whether there is place for one more start."""
    count, waits = starts.counts[0], jobs.waits
    needed = waits[row, NODES] * max(1, waits[row, EACH] // WHOLE)
    return count < len(starts.workload) and starts.first[count] + needed <= len(starts.gpus)


@bare
def _start_in_order(
    jobs: Jobs, lines: Lines, room: Room, stock: Stock, ranks: Ranks, starts: Starts, root: int, now_ms: int, blocked: I64,
    stuck_milli: I64, taken: I64, position: I64, candidate: I64, shapes: I64, count: I64, siblings: Siblings, leaf: int,
) -> tuple[int, int]:  # fmt: skip
    """Start the candidate of ``leaf``, who is funded, and whoever comes next, as long as each fits.

    Returns what is known of the next one, and his leaf: nothing (``OPEN``), ``FULL`` or ``SCATTERED``. It does what ``_start``,
    ``look`` and ``choose_above`` do, one after the other, and is a loop of its own because ten thousand may start in a cycle:
    handing the tuples over costs more than all that is done with what is in them, and counting references to fifty arrays at each
    start was half of all (so it is ``bare``). Whoever is next of his line, and who stands behind him, is fetched before his turn:
    their rows lie far away.
    """
    queue, gone, state, waits, last = jobs.queue, jobs.gone, jobs.state, jobs.waits, jobs.last
    parent, children, first_child, sibling, weight, best, ready = (
        lines.parent, lines.children, lines.first_child, lines.next_sibling, lines.weight, lines.best, lines.ready,
    )  # fmt: skip
    closed, metered, granted_us, charged_us, reserved_us, running, allowance = (
        lines.closed, lines.metered, lines.granted_us, lines.charged_us, lines.reserved_us, lines.running, lines.allowance,
    )  # fmt: skip
    instants_ms, counts, shared, sums = room.instants_ms, room.nodes, room.shared, room.sums
    free, part, last_class, lowest, shelves, used, used_mib = (
        stock.free, stock.part, stock.last, stock.lowest, stock.shelves, stock.used, stock.used_mib,
    )  # fmt: skip
    out, held, node_of, first_gpu, size, memory_mib = (
        stock.out, stock.held, stock.node_of, stock.first_gpu, stock.gpus, stock.memory_mib,
    )  # fmt: skip
    until_ms, holder, closes_ms = stock.until_ms, stock.holder, stock.closes_ms
    listed, listed_why, listed_running, listed_first, gpus = (
        starts.workload, starts.why, starts.running, starts.first, starts.gpus,
    )  # fmt: skip
    known, most, packing = starts.counts[0], shapes.shape[1], ranks.packing
    while True:
        row, begin = candidate[leaf], listed_first[known]
        nodes, each, min_runtime_ms, left_ms = waits[row, NODES], waits[row, EACH], waits[row, MIN_RUNTIME_MS], waits[row, LEFT_MS]
        milli, end = nodes * each, begin + nodes * max(1, each // WHOLE)
        answer = OPEN
        if known >= len(listed) or end > len(gpus):
            answer = FULL
        else:
            over_ms = now_ms + left_ms if left_ms < NEVER_MS else NEVER_MS
            if packing == BEST_FIT:
                end = begin + pick_of(
                    row, nodes, each, over_ms, gpus, begin, counts, free, part, last_class, lowest, shelves, used, used_mib,
                    out, held, first_gpu, size, memory_mib, until_ms, holder, closes_ms,
                )  # fmt: skip
            else:
                end = begin + pick_ranked(ranks, stock, row, nodes, each, over_ms, gpus, begin)
                forget(ranks, node_of, gpus, begin, end)
            if end == begin:
                answer = SCATTERED
        if answer != OPEN:
            break
        left_us = promisable_us(leaf, parent, metered, granted_us, charged_us, reserved_us)
        why = verdict(min_runtime_ms, closed[leaf], left_us, milli, running[leaf], allowance[leaf])
        listed[known], listed_why[known], listed_running[known], listed_first[known + 1] = row, why, running[leaf], end
        known += 1
        take_of(
            gpus, begin, end, min(WHOLE, each), counts, shared, sums, node_of, used, used_mib, out, held, first_gpu, size,
            memory_mib, free, part, last_class, lowest, shelves,
        )  # fmt: skip
        gone[position[leaf]] = 1
        promised_us, line = milli * min_runtime_ms if why == WITHIN_ALLOWANCE else 0, leaf
        while line >= 0:
            running[line] += milli if min_runtime_ms > 0 else 0
            reserved_us[line] += promised_us
            taken[line] = running[line] + stuck_milli[line]
            line = parent[line]
        sums[3] = BOUND if sums[3] > 0 and running[leaf] <= allowance[leaf] else 0
        ready[leaf] = 0
        if count[leaf] < most and blocked[leaf] == 0 and running[leaf] + stuck_milli[leaf] < allowance[leaf]:
            look_at(
                leaf, now_ms, queue, gone, state, waits, last, instants_ms, parent, closed, metered, granted_us, charged_us,
                reserved_us, running, allowance, ready, stuck_milli, position, candidate, shapes, count,
            )  # fmt: skip
        choose_beside(siblings, leaf, parent, first_child, sibling, children, weight, best, ready, allowance, taken)
        coming = best[parent[leaf]] if parent[leaf] >= 0 else -1
        if coming >= 0 and children[coming] == 0:  # of what is asked at his turn, nothing has to come from far away
            behind = queue[min(position[coming] + 1, last[coming] - 1)]
            fetch(waits, candidate[coming] * waits.shape[1])
            fetch(waits, behind * waits.shape[1])
            fetch(state, behind)
        leaf = root
        while leaf >= 0 and children[leaf] > 0:
            leaf = best[leaf]
        if leaf < 0 or ready[leaf] == 0:
            break
        row = candidate[leaf]
        left_ms = waits[row, LEFT_MS]
        class_ = class_ending(instants_ms, now_ms + left_ms if left_ms < NEVER_MS else NEVER_MS)
        if waits[row, WISH] > 0 or not has_room(waits[row, NODES], waits[row, EACH], counts[class_], shared[class_]):
            break
    starts.counts[0] = known
    return answer, leaf


@njit(cache=True)
def start_funded(
    jobs: Jobs, lines: Lines, room: Room, stock: Stock, ranks: Ranks, starts: Starts, runs: Runs, quantum_ms: int,
    root: int, now_ms: int, plain: int, kept_all: int, ask_all: int, blocked: I64, stuck_milli: I64, taken: I64, position: I64,
    candidate: I64, shapes: I64, count: I64, found: I64, ready: Releases, kept: I64,
) -> tuple[int, int]:  # fmt: skip
    """Start who is funded and fits, as long as nothing else is to be decided; then the same as ``next_funded``.

    What may be freed is measured where that must be known. Whoever is to get a reservation gets it here if he asks for nothing but
    GPUs, as ``policy.reserving`` makes them where no node is drained, so long as ``kept`` has room, which gets (workload, instant):
    the nodes that are ``ready`` first, where that is known or can be found here. Returns also how many there are. ``room`` is that
    of before then.

    ``plain`` 0: nobody is started here. What could be freed stays an upper bound (``sums[3]`` 2) so long as a budget is not above
    its allowance after a start: nothing of it may go then. Else it is no longer known.
    """
    made = 0
    while True:
        leaf = next_funded(
            jobs, lines, room, root, now_ms, kept_all, ask_all, blocked, stuck_milli, taken, position, candidate, shapes, count,
            found,
        )  # fmt: skip
        head = leaf >= 0 and found[0] == STUCK and stuck_milli[leaf] == 0 and kept_all == 0 and ask_all == 0
        if head and made < len(kept) and starts.counts[0] == 0:  # what is ready does not tell of who is only listed
            row = candidate[leaf]
            need = max(1, jobs.waits[row, EACH] // WHOLE)
            if jobs.waits[row, WISH] == 0 and find_ready(ready, need, now_ms):
                nodes = jobs.waits[row, NODES]
                kept[made, 0] = row
                kept[made, 1] = keep_nodes(stock, row, nodes, ready.now_ready_ms[need], ready.now_order[need])
                room = with_holder(room, stock, row, kept[made, 1])
                made += 1
                kept_all = int(made == len(kept))
                note_stuck(jobs, lines, leaf, now_ms, stuck_milli, taken, position, candidate, shapes, count)
                look(jobs, lines, room, leaf, now_ms, blocked, stuck_milli, position, candidate, shapes, count)
                choose_above(lines, lines.allowance, taken, leaf)
                continue
        if leaf >= 0 and found[0] == UNFIT and room.sums[3] == KEPT:
            count_freed(room, stock)
            continue
        if leaf >= 0 and found[0] == UNFIT and room.sums[3] != 1:
            measure_freed(lines, room, stock, runs, now_ms, quantum_ms)
            continue
        if leaf < 0 or found[0] != OPEN or plain == 0 or jobs.waits[candidate[leaf], WISH] > 0:
            return leaf, made
        found[0], leaf = _start_in_order(
            jobs, lines, room, stock, ranks, starts, root, now_ms, blocked, stuck_milli, taken, position, candidate, shapes, count,
            no_siblings(len(lines.best)), leaf,
        )  # fmt: skip
        if found[0] != OPEN:
            return leaf, made


@njit(cache=True)
def start_all(
    jobs: Jobs, lines: Lines, room: Room, ends: Ends, places: Places, tried: Tried, stock: Stock, ranks: Ranks, starts: Starts,
    root: int, now_ms: int, horizon_ms: int, starts_ms: I64, plain: int, in_time_free: int, idle_cycles: int,
    open_: Open, allowed: I64, position: I64, found: I64,
) -> int:  # fmt: skip
    """Start who may and fits, as long as nothing else is to be decided; then the same as ``next_of_all``."""
    found[0], changed = OPEN, True
    while True:
        if changed and not is_open(room, now_ms, open_, idle_cycles):
            return -1
        changed = False
        leaf = next_of_all(
            jobs, lines, room, ends, places, tried, root, now_ms, horizon_ms, starts_ms, in_time_free, idle_cycles, open_,
            allowed, position,
        )  # fmt: skip
        if leaf < 0:
            return leaf
        at = open_.at[idle_cycles, position[leaf]]
        row = jobs.queue[at]
        if plain == 0 or jobs.waits[row, WISH] > 0:
            return leaf
        if not _listable(jobs, starts, row):
            found[0] = FULL
            return leaf
        over_ms = says_over_ms(jobs, row, now_ms)
        if _start(jobs, lines, room, stock, ranks, starts, at, over_ms):
            room.sums[3], changed = 0, True
            if len(room.profile) > 0:
                for t in range(min(buckets_of(over_ms, now_ms), len(room.profile))):
                    room.profile[t] -= milli_of(jobs.waits, row)
            else:
                if jobs.waits[row, MIN_RUNTIME_MS] > 0:
                    end_ms = now_ms + UNKNOWN_RUNTIME_MS if over_ms == NEVER_MS else over_ms
                    add_end(starts.runs[starts.counts[0] - 1], leaf, end_ms, milli_of(jobs.waits, row), ends)
                places.known[leaf] = 0
        elif tried.counts[1] >= len(tried.shapes):
            lines.ready[leaf] = 0
        else:
            note(tried, jobs.waits[row, NODES], jobs.waits[row, EACH], jobs.waits[row, WISH], over_ms)
        choose_above(lines, allowed, lines.running, leaf)

"""Whose turn it is: the walk over the waiting in fair order, up to the next one about whom a decision must be made.

A cycle of a full cluster looks at a thousand budgets and a hundred thousand workloads to find that none of them can start. These
kernels do that looking: they leave out whoever certainly gets nothing and stop at the first who might. They decide nothing by
themselves: whether a workload fits is the answer of ``pack.find_gpus`` alone, here is only what rules it out beforehand.

- *Fair order*: from the root down, the child with the largest (allowance - running) / weight that has a ready leaf below it; by
  cross-multiplication, ties to the lower row; a weight of 0 counts as one millionth of a share. ``best`` keeps the choice of every
  line, and only the path of a leaf that changed is chosen anew. Naive equivalent: ``share.next_leaf``.
- *Room*: how many nodes have k GPUs free, by *class* of the asker: how many of the instants until which nodes are kept come
  before his end (``Room.instants_ms``). A workload for whom too few nodes are left is ruled out. Naive equivalent: ``find_gpus``.
- *Tried*: per shape the earliest end of whoever found no place in this cycle: starts only take space, so nobody finds one from
  whom at least the same nodes are kept.
- *Place*: what a budget keeps for its first in line (``policy.precedence``, where the rule is told).

Pure functions of the columns and of what they keep in the arrays given.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from apportion.core.units import BUCKET_MS, MAX_AMOUNT_GPU_US, MAX_ELAPSED_MS, NEVER_MS, UNKNOWN_RUNTIME_MS

I64 = NDArray[np.int64]

WHOLE = 1_000
PENDING = 2  # workload.state
IDLE_CYCLES, BUDGET_CLOSED, BALANCE_SPENT, ABOVE_ALLOWANCE, WITHIN_ALLOWANCE = range(5)  # what ``fundable`` answers
UNSEEN, OUT, FOR_IDLE, FOR_ALL = range(4)  # what a position of the queue was found to be
OPEN, UNFIT, STUCK = range(3)  # what is known of who is next: nothing; it does not fit; nor can it preempt anybody


class Jobs(NamedTuple):
    """Columns of workloads, and the queue."""

    queue: I64
    first: I64  # per budget row, its part of the queue
    last: I64
    state: I64
    budget: I64
    nodes: I64
    milli_per_node: I64
    gpus_milli: I64
    wish: I64
    min_runtime_ms: I64
    expected_ms: I64
    progress_ms: I64
    not_before_ms: I64


class Lines(NamedTuple):
    """Columns of budgets, what the cycle knows of them, and the choice of each line."""

    parent: I64
    children: I64
    first_child: I64
    next_sibling: I64
    weight: I64
    closed: I64
    metered: I64
    granted_us: I64
    charged_us: I64
    lag_us: I64
    reserved_us: I64
    entitled: I64
    wanted: I64
    allowance: I64
    running: I64
    best: I64  # per inner line the child to serve next, -1 = nothing below it is ready
    ready: I64  # per leaf


class Room(NamedTuple):
    """What is free, per class of who asks."""

    instants_ms: I64  # ascending
    nodes: I64  # class x k: nodes with at least k GPUs free that are not kept from the class
    shared: I64  # per class: the most milli-GPU free on a GPU that is in use
    evictable: I64  # the same as ``nodes``, kept or not, when all are gone who may be asked to go; one row
    sums: I64  # milli-GPU: free; that may be freed; the most of one shared GPU when those are gone; 1 = the last two are known
    holders: I64  # workloads that nodes are kept for: their class is not enough to rule them out
    profile: I64  # per bucket from now on: milli-GPU that the plan leaves; no entries = there is no plan


class Ends(NamedTuple):
    """Runs by budget in order of the end they state."""

    first: I64  # per budget row: run row, -1 = none
    sorted: I64  # per budget row: 1 = its runs are in that order, 0 = by rows yet
    next: I64  # per run row
    end_ms: I64  # once they are sorted
    milli: I64
    workload: I64  # columns of runs and of workloads
    placed_ms: I64
    checkpoint_ms: I64
    expected_ms: I64
    progress_ms: I64


class Places(NamedTuple):
    """What each budget keeps for its first in line, per budget row."""

    known: I64
    head: I64
    until_ms: I64
    spare_us: I64


class Tried(NamedTuple):
    """Shapes that found no place in this cycle."""

    shapes: I64  # (nodes, milli per node, wish, earliest end)
    counts: I64  # shapes, notes


@njit(cache=True)
def children(rows: int, pool: int, of_pool: I64, parent: I64, first_child: I64, next_sibling: I64) -> None:
    """Fill the lists of children, ascending."""
    first_child[:] = -1
    next_sibling[:] = -1
    for row in range(rows - 1, -1, -1):
        if of_pool[row] == pool and parent[row] >= 0:
            next_sibling[row] = first_child[parent[row]]
            first_child[parent[row]] = row


@njit(cache=True)
def _choose(lines: Lines, allowed: I64, taken: I64, line: int) -> None:
    """Set ``best`` of an inner line by its children."""
    champion = -1
    row = lines.first_child[line]
    while row >= 0:
        open_ = lines.ready[row] > 0 if lines.children[row] == 0 else lines.best[row] >= 0
        if open_ and champion >= 0:
            mine = (allowed[row] - taken[row]) * max(1, lines.weight[champion])
            other = (allowed[champion] - taken[champion]) * max(1, lines.weight[row])
            if mine > other:
                champion = row
        elif open_:
            champion = row
        row = lines.next_sibling[row]
    lines.best[line] = champion


@njit(cache=True)
def choose_all(lines: Lines, allowed: I64, taken: I64) -> None:
    """Set ``best`` of all lines, by what each may run and what it runs, or keeps."""
    for line in range(len(lines.best) - 1, -1, -1):
        if lines.children[line] > 0:
            _choose(lines, allowed, taken, line)


@njit(cache=True)
def _choose_above(lines: Lines, allowed: I64, taken: I64, leaf: int) -> None:
    line = lines.parent[leaf]
    while line >= 0:
        _choose(lines, allowed, taken, line)
        line = lines.parent[line]


@njit(cache=True)
def next_leaf(lines: Lines, root: int) -> int:
    """Return the leaf to serve next, or -1."""
    if lines.children[root] == 0:
        return root if lines.ready[root] > 0 else -1
    row = root
    while row >= 0 and lines.children[row] > 0:
        row = lines.best[row]
    return row


@njit(cache=True)
def fundable(
    leaf: int, milli: int, min_runtime_ms: int, ahead_milli: int, parent: I64, closed: I64, metered: I64, granted_us: I64,
    charged_us: I64, reserved_us: I64, running: I64, allowance: I64,
) -> int:  # fmt: skip
    """Tell whether a workload of ``leaf`` would be funded if it started now, or why not; ``ahead_milli`` wait before it."""
    if min_runtime_ms == 0:
        return IDLE_CYCLES
    if closed[leaf] != 0:
        return BUDGET_CLOSED
    line, asked_us = leaf, max(1, milli * min_runtime_ms)
    while line >= 0:
        if metered[line] != 0 and granted_us[line] - charged_us[line] - reserved_us[line] < asked_us:
            return BALANCE_SPENT
        line = parent[line]
    if 2 * (running[leaf] + ahead_milli) + milli > 2 * allowance[leaf]:
        return ABOVE_ALLOWANCE
    return WITHIN_ALLOWANCE


@njit(cache=True)
def _funded(jobs: Jobs, lines: Lines, row: int, ahead_milli: int) -> int:
    return fundable(
        jobs.budget[row], jobs.gpus_milli[row], jobs.min_runtime_ms[row], ahead_milli, lines.parent, lines.closed, lines.metered,
        lines.granted_us, lines.charged_us, lines.reserved_us, lines.running, lines.allowance,
    )  # fmt: skip


@njit(cache=True)
def _ends_ms(jobs: Jobs, row: int, now_ms: int) -> int:
    if jobs.expected_ms[row] <= 0:
        return NEVER_MS
    return now_ms + max(0, jobs.expected_ms[row] - jobs.progress_ms[row])


@njit(cache=True)
def _before(instants_ms: I64, end_ms: int) -> int:
    """Return how many of the ascending instants are before ``end_ms``: the class of who ends then."""
    low, high = 0, len(instants_ms)
    while low < high:
        middle = (low + high) >> 1
        if instants_ms[middle] < end_ms:
            low = middle + 1
        else:
            high = middle
    return low


@njit(cache=True)
def _has_room(nodes: int, milli_per_node: int, counts: I64, shared_milli: int) -> bool:
    """Tell whether a shape without wishes may fit, by how many nodes have how much."""
    if milli_per_node < WHOLE:
        return counts[1] > 0 or shared_milli >= milli_per_node
    need = milli_per_node // WHOLE
    return need < len(counts) and counts[need] >= nodes


@njit(cache=True)
def _holds(room: Room, row: int) -> bool:
    found = False
    for holder in room.holders:
        found = found or holder == row
    return found


@njit(cache=True)
def _may_fit(jobs: Jobs, room: Room, row: int, class_: int) -> bool:
    """Tell whether the workload may fit; False rules it out."""
    if jobs.wish[row] > 0:
        return True
    nodes, milli = jobs.nodes[row], jobs.milli_per_node[row]
    if _has_room(nodes, milli, room.nodes[class_], room.shared[class_]):
        return True
    return class_ > 0 and _has_room(nodes, milli, room.nodes[0], room.shared[0]) and _holds(room, row)


@njit(cache=True)
def note(tried: Tried, nodes: int, milli_per_node: int, wish: int, end_ms: int) -> None:
    """Remember that a shape that would be over at ``end_ms`` found no place."""
    tried.counts[1] += 1
    for k in range(tried.counts[0]):
        if tried.shapes[k, 0] == nodes and tried.shapes[k, 1] == milli_per_node and tried.shapes[k, 2] == wish:
            tried.shapes[k, 3] = min(tried.shapes[k, 3], end_ms)
            return
    k = tried.counts[0]
    tried.shapes[k, 0], tried.shapes[k, 1], tried.shapes[k, 2], tried.shapes[k, 3] = nodes, milli_per_node, wish, end_ms
    tried.counts[0] += 1


@njit(cache=True)
def _was_tried(jobs: Jobs, room: Room, shapes: I64, count: int, row: int, class_: int) -> bool:
    for k in range(count):
        same = shapes[k, 0] == jobs.nodes[row] and shapes[k, 1] == jobs.milli_per_node[row] and shapes[k, 2] == jobs.wish[row]
        if same and _before(room.instants_ms, shapes[k, 3]) <= class_:
            return True
    return False


@njit(cache=True)
def was_tried(jobs: Jobs, room: Room, tried: Tried, row: int, now_ms: int) -> bool:
    """Tell whether the shape of a workload found no place in this cycle."""
    return _was_tried(jobs, room, tried.shapes, tried.counts[0], row, _before(room.instants_ms, _ends_ms(jobs, row, now_ms)))


@njit(cache=True)
def first_in_line(jobs: Jobs, leaf: int, now_ms: int) -> int:
    """Return the first workload of a budget that may start now, -1 = none; idle-cycle work is nobody's first."""
    for position in range(jobs.first[leaf], jobs.last[leaf]):
        row = jobs.queue[position]
        if jobs.state[row] == PENDING and jobs.not_before_ms[row] <= now_ms and jobs.min_runtime_ms[row] > 0:
            return row
    return -1


@njit(cache=True)
def place(
    jobs: Jobs, lines: Lines, ends: Ends, leaf: int, head: int, starts_ms: int, now_ms: int, horizon_ms: int, found: I64
) -> None:
    """Fill ``found`` with (head, until_ms, spare_us) of what the budget keeps for ``head``, its first in line; head -1 = nothing.

    ``starts_ms`` is what its reservation says, -1 = it has none.
    """
    found[0], found[1], found[2] = -1, 0, 0
    if head < 0:
        return
    why = _funded(jobs, lines, head, 0)
    if why < ABOVE_ALLOWANCE:
        return
    milli, entitled, running = jobs.gpus_milli[head], lines.entitled[leaf], lines.running[leaf]
    lag_us = min(lines.lag_us[leaf], (lines.allowance[leaf] - entitled) * horizon_ms)
    capped = lines.allowance[leaf] < lines.wanted[leaf]
    fixed_ms = now_ms if why == WITHIN_ALLOWANCE else -1
    if starts_ms >= 0:
        fixed_ms = max(now_ms, starts_ms)
    _sort_ends(leaf, now_ms, ends)
    last_ms, run = now_ms + MAX_ELAPSED_MS, ends.first[leaf]
    while True:
        end_ms = ends.end_ms[run] if run >= 0 else last_ms
        growth, instant_ms = min(entitled - running, 0 if capped else entitled), fixed_ms
        spare_us = lag_us + (2 * (entitled - running) - milli) * horizon_ms // 2
        if instant_ms < 0 and spare_us >= 0:
            instant_ms = now_ms
        elif instant_ms < 0:
            instant_ms = now_ms - (spare_us // growth) if growth > 0 else last_ms  # rounded up
        if instant_ms < end_ms:
            spare_us += growth * (instant_ms - now_ms)
            found[0], found[1], found[2] = head, instant_ms, min(max(0, spare_us), MAX_AMOUNT_GPU_US)
            return
        if run < 0:
            return
        lag_us += growth * (end_ms - now_ms)
        now_ms, running, run = end_ms, running - ends.milli[run], ends.next[run]


@njit(cache=True)
def link_ends(runs: int, phase: I64, placed: int, started: int, idle_cycles: I64, leaf: I64, milli: I64, ends: Ends) -> None:
    """List the runs of each budget that have not been asked to stop, ascending."""
    ends.first[:] = -1
    ends.sorted[:] = 0
    for run in range(runs - 1, -1, -1):
        if (phase[run] == placed or phase[run] == started) and idle_cycles[run] == 0:
            ends.milli[run] = milli[run]
            ends.next[run] = ends.first[leaf[run]]
            ends.first[leaf[run]] = run


@njit(cache=True)
def _sort_ends(leaf: int, now_ms: int, ends: Ends) -> None:
    """Find when the runs of a budget end, never before now, and list them in that order, then by row."""
    if ends.sorted[leaf] == 1:
        return
    ends.sorted[leaf] = 1
    count, run = 0, ends.first[leaf]
    while run >= 0:
        count += 1
        run = ends.next[run]
    if count == 0:
        return
    rows, times_ms, at, run = np.empty(count, dtype=np.int64), np.empty(count, dtype=np.int64), 0, ends.first[leaf]
    while run >= 0:
        row, end_ms = ends.workload[run], ends.placed_ms[run] + UNKNOWN_RUNTIME_MS
        if ends.expected_ms[row] > 0:
            end_ms = ends.checkpoint_ms[run] + max(0, ends.expected_ms[row] - ends.progress_ms[row])
        ends.end_ms[run] = max(end_ms, now_ms)
        rows[at], times_ms[at] = run, ends.end_ms[run]
        at, run = at + 1, ends.next[run]
    order = np.argsort(times_ms, kind="mergesort")
    ends.first[leaf] = rows[order[0]]
    for k in range(count):
        ends.next[rows[order[k]]] = rows[order[k + 1]] if k + 1 < count else -1


@njit(cache=True)
def add_end(run: int, leaf: int, end_ms: int, milli: int, now_ms: int, ends: Ends) -> None:
    """Take in a run that has started: behind those that end before it, or with it and have lower rows."""
    _sort_ends(leaf, now_ms, ends)
    ends.end_ms[run], ends.milli[run] = end_ms, milli
    after = ends.first[leaf]
    if after < 0 or end_ms < ends.end_ms[after] or (end_ms == ends.end_ms[after] and run < after):
        ends.next[run] = after
        ends.first[leaf] = run
        return
    while ends.next[after] >= 0:
        other = ends.next[after]
        if ends.end_ms[other] > end_ms or (ends.end_ms[other] == end_ms and other > run):
            break
        after = other
    ends.next[run] = ends.next[after]
    ends.next[after] = run


@njit(cache=True)
def look(
    jobs: Jobs, lines: Lines, room: Room, leaf: int, now_ms: int, blocked: I64, stuck_milli: I64, position: I64, candidate: I64,
    shapes: I64, count: I64,
) -> None:  # fmt: skip
    """Find the first workload of ``leaf`` from ``position`` on that is worth trying; ready if it would be funded."""
    lines.ready[leaf] = 0
    if count[leaf] == shapes.shape[1] or blocked[leaf] > 0 or lines.running[leaf] + stuck_milli[leaf] >= lines.allowance[leaf]:
        return  # in the last case nothing of it would be funded, however small
    for at in range(position[leaf], jobs.last[leaf]):
        row = jobs.queue[at]
        if jobs.state[row] != PENDING or jobs.not_before_ms[row] > now_ms or jobs.min_runtime_ms[row] == 0:
            continue
        if count[leaf] > 0:
            class_ = _before(room.instants_ms, _ends_ms(jobs, row, now_ms))
            if _was_tried(jobs, room, shapes[leaf], count[leaf], row, class_):
                continue
        position[leaf], candidate[leaf] = at, row
        if _funded(jobs, lines, row, stuck_milli[leaf]) == WITHIN_ALLOWANCE:
            lines.ready[leaf] = 1
        return


@njit(cache=True)
def look_all(
    jobs: Jobs, lines: Lines, room: Room, leaves: I64, now_ms: int, blocked: I64, stuck_milli: I64, position: I64, candidate: I64,
    shapes: I64, count: I64,
) -> None:  # fmt: skip
    """Do so for many budgets."""
    for leaf in leaves:
        look(jobs, lines, room, leaf, now_ms, blocked, stuck_milli, position, candidate, shapes, count)


@njit(cache=True)
def note_stuck(
    jobs: Jobs, lines: Lines, leaf: int, now_ms: int, stuck_milli: I64, taken: I64, position: I64, candidate: I64, shapes: I64,
    count: I64,
) -> None:  # fmt: skip
    """A funded workload can neither start nor preempt: its shape need not be tried again for its budget, whose part it keeps."""
    row = candidate[leaf]
    k = count[leaf]
    shapes[leaf, k, 0], shapes[leaf, k, 1] = jobs.nodes[row], jobs.milli_per_node[row]
    shapes[leaf, k, 2], shapes[leaf, k, 3] = jobs.wish[row], _ends_ms(jobs, row, now_ms)
    count[leaf] += 1
    position[leaf] += 1
    line = leaf
    while line >= 0:
        stuck_milli[line] += jobs.gpus_milli[row]
        taken[line] += jobs.gpus_milli[row]
        line = lines.parent[line]


@njit(cache=True)
def _may_preempt(jobs: Jobs, room: Room, row: int) -> bool:
    """Tell whether the workload may find victims; False rules it out. What may be freed must be known."""
    if room.sums[0] + room.sums[1] < jobs.gpus_milli[row] or room.sums[1] == 0:
        return False
    if jobs.wish[row] > 0 or _holds(room, row):
        return True
    return _has_room(jobs.nodes[row], jobs.milli_per_node[row], room.evictable[0], room.sums[2])


@njit(cache=True)
def next_funded(
    jobs: Jobs, lines: Lines, room: Room, root: int, now_ms: int, kept_all: int, ask_all: int, blocked: I64, stuck_milli: I64,
    taken: I64, position: I64, candidate: I64, shapes: I64, count: I64, found: I64,
) -> int:  # fmt: skip
    """Return the leaf whose candidate must be decided about, -1 = none; ``found`` gets what is known of it.

    On the way, whoever can neither start nor preempt is noted as stuck, unless he is the first of his budget and may get a
    reservation (``kept_all`` 0), or moves may let him start (``ask_all`` 1). Stops with ``UNFIT`` also when what may be freed is
    not known: it is computed only when asked.
    """
    while True:
        leaf = next_leaf(lines, root)
        if leaf < 0:
            return -1
        row = candidate[leaf]
        found[0] = OPEN
        if _may_fit(jobs, room, row, _before(room.instants_ms, _ends_ms(jobs, row, now_ms))):
            return leaf
        found[0] = UNFIT
        if room.sums[3] == 0 or _may_preempt(jobs, room, row):
            return leaf
        found[0] = STUCK
        if ask_all == 1 or (stuck_milli[leaf] == 0 and kept_all == 0):
            return leaf
        note_stuck(jobs, lines, leaf, now_ms, stuck_milli, taken, position, candidate, shapes, count)
        look(jobs, lines, room, leaf, now_ms, blocked, stuck_milli, position, candidate, shapes, count)
        _choose_above(lines, lines.allowance, taken, leaf)


@njit(cache=True)
def _candidate(
    jobs: Jobs, room: Room, places: Places, tried: Tried, leaf: int, start: int, now_ms: int, horizon_ms: int,
    in_time_free: int, idle_cycles: int, seen: NDArray[np.uint8],
) -> int:  # fmt: skip
    """Return the position of the first workload of ``leaf`` from ``start`` on that may start, or -1.

    Left out are those of the other class (``idle_cycles`` 1 = only min_runtime 0, 0 = only others) and, while the budget keeps a
    place, those that use more than is to spare: their GPUs x the time until then and ``horizon_ms``, or x their own time if they
    say that they are over by then, which is free with ``in_time_free`` 1. ``seen`` remembers, per position, whom no later pass of
    the cycle need look at: starts only take space.
    """
    head, head_ms, spare_us = -1, 0, 0
    if idle_cycles == 0:
        head, head_ms, spare_us = places.head[leaf], places.until_ms[leaf], places.spare_us[leaf]
    for at in range(start, jobs.last[leaf]):
        if seen[at] != UNSEEN and (seen[at] == OUT or (seen[at] == FOR_IDLE) != (idle_cycles == 1)):
            continue
        row = jobs.queue[at]
        seen[at] = OUT  # until it is found to be more
        if jobs.wish[row] == 0 and not _has_room(jobs.nodes[row], jobs.milli_per_node[row], room.nodes[0], room.shared[0]):
            continue
        if jobs.state[row] != PENDING or jobs.not_before_ms[row] > now_ms:
            continue
        end_ms = _ends_ms(jobs, row, now_ms)
        class_ = _before(room.instants_ms, end_ms)
        if not _may_fit(jobs, room, row, class_) or _was_tried(jobs, room, tried.shapes, tried.counts[0], row, class_):
            continue
        if len(room.profile) > 0 and not _leaves_plan(room.profile, jobs.gpus_milli[row], _buckets(end_ms, now_ms)):
            continue
        seen[at] = FOR_IDLE if jobs.min_runtime_ms[row] == 0 else FOR_ALL
        if (seen[at] == FOR_IDLE) != (idle_cycles == 1):
            continue
        if head >= 0 and row != head:
            used_ms = max(0, head_ms - now_ms) + horizon_ms
            if end_ms <= head_ms:
                used_ms = 0 if in_time_free == 1 else end_ms - now_ms
            if jobs.gpus_milli[row] * used_ms > spare_us:
                continue
        return at
    return -1


@njit(cache=True)
def _buckets(end_ms: int, now_ms: int) -> int:
    """Return how many buckets of the plan somebody takes who says that he is over at ``end_ms``, rounded up."""
    left_ms = end_ms - now_ms if end_ms < NEVER_MS else UNKNOWN_RUNTIME_MS
    return max(1, -(-left_ms // BUCKET_MS))


@njit(cache=True)
def _leaves_plan(profile: I64, milli: int, buckets: int) -> bool:
    """Tell whether so much is left in each of the next buckets."""
    t, last = 0, min(buckets, len(profile))
    while t < last and profile[t] >= milli:
        t += 1
    return t == last


@njit(cache=True)
def fair_order(jobs: Jobs, lines: Lines, root: int, now_ms: int, taken: I64, rows: I64, buckets: I64) -> int:
    """Fill ``rows`` with those who wait and may start, in fair order, as if each ran once it is listed; returns how many.

    ``buckets`` gets how long each takes. Work on idle cycles is not planned. ``lines.ready`` must tell of whom something waits.
    """
    at, count = jobs.first.copy(), 0
    choose_all(lines, lines.allowance, taken)
    while count < len(rows):
        leaf = next_leaf(lines, root)
        if leaf < 0:
            break
        row = -1
        while at[leaf] < jobs.last[leaf] and row < 0:
            other = jobs.queue[at[leaf]]
            if jobs.state[other] == PENDING and jobs.not_before_ms[other] <= now_ms and jobs.min_runtime_ms[other] > 0:
                row = other
            at[leaf] += 1
        if row < 0:
            lines.ready[leaf] = 0
        else:
            rows[count], buckets[count] = row, _buckets(_ends_ms(jobs, row, now_ms), now_ms)
            count += 1
            line = leaf
            while line >= 0:
                taken[line] += jobs.gpus_milli[row]
                line = lines.parent[line]
        _choose_above(lines, lines.allowance, taken, leaf)
    return count


@njit(cache=True)
def _find_place(
    jobs: Jobs, lines: Lines, room: Room, ends: Ends, places: Places, leaf: int, now_ms: int, horizon_ms: int, starts_ms: I64
) -> None:
    """Fill in what a budget keeps; ``starts_ms`` is per holder."""
    head, reserved_ms = first_in_line(jobs, leaf, now_ms), -1
    for k in range(len(room.holders)):
        if room.holders[k] == head:
            reserved_ms = starts_ms[k]
    found = np.zeros(3, dtype=np.int64)
    place(jobs, lines, ends, leaf, head, reserved_ms, now_ms, horizon_ms, found)
    places.known[leaf], places.head[leaf], places.until_ms[leaf], places.spare_us[leaf] = 1, found[0], found[1], found[2]


@njit(cache=True)
def next_ahead(
    jobs: Jobs, lines: Lines, room: Room, ends: Ends, places: Places, root: int, now_ms: int, horizon_ms: int, starts_ms: I64,
    looks: I64,
) -> int:  # fmt: skip
    """Return the next leaf that keeps something for a time to come, -1 = none, or no more ``looks[0]`` are left."""
    while looks[0] > 0:
        looks[0] -= 1
        leaf = next_leaf(lines, root)
        if leaf < 0:
            return -1
        lines.ready[leaf] = 0
        _choose_above(lines, lines.allowance, lines.running, leaf)
        _find_place(jobs, lines, room, ends, places, leaf, now_ms, horizon_ms, starts_ms)
        if places.head[leaf] >= 0 and places.until_ms[leaf] != 0:
            return leaf
    return -1


@njit(cache=True)
def next_of_all(
    jobs: Jobs, lines: Lines, room: Room, ends: Ends, places: Places, tried: Tried, root: int, now_ms: int, horizon_ms: int,
    starts_ms: I64, in_time_free: int, idle_cycles: int, seen: NDArray[np.uint8], allowed: I64, position: I64,
) -> int:  # fmt: skip
    """Return the leaf that has a workload to be tried, at ``position``, or -1.

    A leaf that has none lends what it does not use: taken out of ``allowed`` along its path, it goes to all by need.
    """
    while True:
        leaf = next_leaf(lines, root)
        if leaf < 0:
            return -1
        if idle_cycles == 0 and places.known[leaf] == 0:
            _find_place(jobs, lines, room, ends, places, leaf, now_ms, horizon_ms, starts_ms)
        at = _candidate(jobs, room, places, tried, leaf, position[leaf], now_ms, horizon_ms, in_time_free, idle_cycles, seen)
        if at >= 0:
            position[leaf] = at
            return leaf
        lines.ready[leaf] = 0
        surplus_milli, line = allowed[leaf] - lines.running[leaf], leaf
        while surplus_milli > 0 and line >= 0:
            allowed[line] -= surplus_milli
            line = lines.parent[line]
        _choose_above(lines, allowed, lines.running, leaf)


@njit(cache=True)
def funded_since(
    jobs: Jobs, lines: Lines, now_ms: int, hold: I64, hold_funded: int, rows: I64, heads: I64, funded_ms: I64, since_ms: I64
) -> None:  # fmt: skip
    """Fill in since when each head of ``rows`` waits although it would be funded, 0 = it would not be, or is no head.

    Who was funded when GPUs were freed for it, still is.
    """
    for k in range(len(rows)):
        row = rows[k]
        since_ms[k] = 0
        if heads[k] == 1 and (hold[row] == hold_funded or _funded(jobs, lines, row, 0) == WITHIN_ALLOWANCE):
            since_ms[k] = funded_ms[row] if funded_ms[row] > 0 else now_ms

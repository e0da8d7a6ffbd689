"""Whose turn it is: the walk over the waiting in fair order, up to the next one about whom a decision must be made.

A cycle of a full cluster looks at a thousand budgets and a hundred thousand workloads to find that none of them can start. These
kernels do that looking: they leave out whoever certainly gets nothing and stop at the first who might. They decide nothing by
themselves: whether a workload fits is the answer of ``pack.find_gpus``, here is what rules it out beforehand, and the same answer
for the plain case.

- *Fair order*: from the root down, the child with the largest (allowance - running) / weight that has a ready leaf below it; by
  cross-multiplication, ties to the lower row; a weight of 0 counts as one millionth of a share. ``best`` keeps the choice of every
  line, and only the path of a leaf that changed is chosen anew. Naive equivalent: ``share.next_leaf``.
- *Room*: how many nodes have k GPUs free, by *class* of the asker: how many of the instants until which nodes are kept come
  before his end (``Room.instants_ms``). A workload for whom too few nodes are left is ruled out. Naive equivalent: ``find_gpus``.
- *Tried*: per shape the earliest end of whoever found no place in this cycle: starts only take space, so nobody finds one from
  whom at least the same nodes are kept.
- *Place*: what a budget keeps for its first in line (``policy.precedence``, where the rule is told).
- *Starts*: where nothing but GPUs is asked for, and best fit chooses, the walk takes the GPUs itself and goes on: ``start_funded``
  and ``start_all`` come back with many starts at once, of which the caller makes decisions. What is free (*stock*) and the room are
  kept current with each. Naive equivalent: after every start fold it, measure the room anew, ask ``pack.find_gpus`` for the next.

Pure functions of the columns and of what they keep in the arrays given. A hot loop takes its arrays out of their tuples once: each
``jobs.waits`` counts a reference up and down, which costs more than the row that is read.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from apportion.core.units import BUCKET_MS, MAX_AMOUNT_GPU_US, MAX_ELAPSED_MS, NEVER_MS, UNKNOWN_RUNTIME_MS

I64 = NDArray[np.int64]

WHOLE = 1_000
ALL_US = 1 << 62  # more than anybody has
FEW = 32  # rows that are sorted by insertion
PENDING = 2  # workload.state
PLACED, STARTED, UNFUNDED = 1, 2, 2  # run.state, run.payer
# columns of ``Jobs.waits``; what he needs of a node: GPUs, 0 = a fraction of one, -1 = something else beside them
BUDGET, NODES, EACH, NEED, WISH, MIN_RUNTIME_MS, LEFT_MS, NOT_BEFORE_MS = range(8)
IDLE_CYCLES, BUDGET_CLOSED, BALANCE_SPENT, ABOVE_ALLOWANCE, WITHIN_ALLOWANCE = range(5)  # what ``fundable`` answers
UNSEEN, OUT, FOR_IDLE, FOR_ALL = range(4)  # what a position of the queue was found to be
OPEN, UNFIT, STUCK = range(3)  # what is known of who is next: nothing; it does not fit; nor can it preempt anybody
BOUND = 2  # ``Room.sums[3]``: what could be freed is at most what is said
KEPT = 5  # or that, and other nodes are kept than were: counted anew over nodes it is known again
FULL, SCATTERED = 3, 4  # or: no more starts can be listed before those that are have been folded; room enough, and it does not fit


class Jobs(NamedTuple):
    """Columns of workloads, and the queue."""

    queue: I64
    asks: I64  # per position of it: milli-GPU of a node, -1 = something else beside GPUs
    gone: NDArray[np.uint8]  # per position: 1 = it has started in this cycle, whatever ``state`` says
    first: I64  # per budget row, its part of the queue
    last: I64
    state: I64
    waits: I64  # workload rows x ``state.queue.WAITS``: what does not change while somebody waits, in one place


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
    gone_free: I64  # what that is counted from, per node: its GPUs free then, and the most free of one
    gone_part: I64
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


class Stock(NamedTuple):
    """What each node has left, and from whom it is kept; current while the walk takes of it."""

    free: I64  # per node of the pool: whole GPUs
    part: I64  # the most that is free on a GPU in use
    last: I64  # the last class the node is not kept from; -1 = a node of another pool
    lowest: I64  # per number k: no lower node of the pool has exactly k whole GPUs free
    used: I64  # per GPU: milli, and memory by fractions
    used_mib: I64
    out: I64  # columns of GPUs and of nodes
    held: I64
    node_of: I64
    first_gpu: I64
    gpus: I64
    memory_mib: I64
    until_ms: I64  # per node, as ``policy.reserving`` has them
    holder: I64
    closes_ms: I64


class Runs(NamedTuple):
    """Columns of runs and of what they hold, for what could be freed."""

    sizes: I64  # runs, allocations; the columns are longer
    pool: I64
    phase: I64
    payer: I64
    protected_until_ms: I64
    idle_cycles: I64
    off: NDArray[np.bool_]  # demoted for doing no work
    leaf: I64
    milli: I64
    took_ms: I64  # per budget
    alloc_run: I64
    alloc_gpu: I64
    alloc_milli: I64


class Starts(NamedTuple):
    """Who has started, in order."""

    workload: I64
    why: I64  # what ``fundable`` answered
    running: I64  # of its budget, before
    first: I64  # where its GPUs begin in ``gpus``; one entry more than starts
    gpus: I64
    runs: I64  # the rows that the runs will have
    counts: I64  # starts


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
def _best(
    first: int, next_sibling: I64, children: I64, weight: I64, best: I64, ready: I64, allowed: I64, taken: I64
) -> int:  # fmt: skip
    """Return which of the children that begin with ``first`` is to be served next, -1 = none."""
    champion, row = -1, first
    while row >= 0:
        open_ = ready[row] > 0 if children[row] == 0 else best[row] >= 0
        if open_ and champion >= 0:
            mine = (allowed[row] - taken[row]) * max(1, weight[champion])
            other = (allowed[champion] - taken[champion]) * max(1, weight[row])
            if mine > other:
                champion = row
        elif open_:
            champion = row
        row = next_sibling[row]
    return champion


@njit(cache=True)
def choose_all(lines: Lines, allowed: I64, taken: I64) -> None:
    """Set ``best`` of all lines, by what each may run and what it runs, or keeps."""
    first_child, sibling, children, weight = lines.first_child, lines.next_sibling, lines.children, lines.weight
    best, ready = lines.best, lines.ready
    for line in range(len(best) - 1, -1, -1):
        if children[line] > 0:
            best[line] = _best(first_child[line], sibling, children, weight, best, ready, allowed, taken)


@njit(cache=True)
def _choose_above(lines: Lines, allowed: I64, taken: I64, leaf: int) -> None:
    parent, first_child, sibling, children, weight = (
        lines.parent, lines.first_child, lines.next_sibling, lines.children, lines.weight,
    )  # fmt: skip
    best, ready = lines.best, lines.ready
    line = parent[leaf]
    while line >= 0:
        best[line] = _best(first_child[line], sibling, children, weight, best, ready, allowed, taken)
        line = parent[line]


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
def _verdict(min_runtime_ms: int, closed: int, left_us: int, milli: int, running_milli: int, allowance_milli: int) -> int:
    """Answer ``fundable`` for a budget that has ``left_us`` to promise, and runs so much, what waits ahead included."""
    if min_runtime_ms == 0:
        return IDLE_CYCLES
    if closed != 0:
        return BUDGET_CLOSED
    if left_us < max(1, milli * min_runtime_ms):
        return BALANCE_SPENT
    return ABOVE_ALLOWANCE if 2 * running_milli + milli > 2 * allowance_milli else WITHIN_ALLOWANCE


@njit(cache=True, inline="always")
def _left_us(leaf: int, parent: I64, metered: I64, granted_us: I64, charged_us: I64, reserved_us: I64) -> int:
    """Return what a budget may promise: the least that is left on its path. To hand arrays over costs more than that."""
    left_us, line = ALL_US, leaf
    while line >= 0:
        if metered[line] != 0:
            left_us = min(left_us, granted_us[line] - charged_us[line] - reserved_us[line])
        line = parent[line]
    return left_us


@njit(cache=True)
def fundable(
    leaf: int, milli: int, min_runtime_ms: int, ahead_milli: int, parent: I64, closed: I64, metered: I64, granted_us: I64,
    charged_us: I64, reserved_us: I64, running: I64, allowance: I64,
) -> int:  # fmt: skip
    """Tell whether a workload of ``leaf`` would be funded if it started now, or why not; ``ahead_milli`` wait before it."""
    left_us = _left_us(leaf, parent, metered, granted_us, charged_us, reserved_us)
    return _verdict(min_runtime_ms, closed[leaf], left_us, milli, running[leaf] + ahead_milli, allowance[leaf])


@njit(cache=True)
def _funded(jobs: Jobs, lines: Lines, row: int, ahead_milli: int) -> int:
    return fundable(
        jobs.waits[row, BUDGET], _milli(jobs.waits, row), jobs.waits[row, MIN_RUNTIME_MS], ahead_milli, lines.parent, lines.closed,
        lines.metered, lines.granted_us, lines.charged_us, lines.reserved_us, lines.running, lines.allowance,
    )  # fmt: skip


@njit(cache=True)
def _ends_ms(jobs: Jobs, row: int, now_ms: int) -> int:
    left_ms = jobs.waits[row, LEFT_MS]
    return now_ms + left_ms if left_ms < NEVER_MS else NEVER_MS


@njit(cache=True)
def _milli(waits: I64, row: int) -> int:
    return waits[row, NODES] * waits[row, EACH]


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
def _listed(rows: I64, row: int) -> bool:
    k = 0
    while k < len(rows) and rows[k] != row:
        k += 1
    return k < len(rows)


@njit(cache=True)
def _holds(room: Room, row: int) -> bool:
    return _listed(room.holders, row)


@njit(cache=True)
def _may_fit(jobs: Jobs, room: Room, row: int, class_: int) -> bool:
    """Tell whether the workload may fit; False rules it out."""
    if jobs.waits[row, WISH] > 0:
        return True
    nodes, milli = jobs.waits[row, NODES], jobs.waits[row, EACH]
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
def _among(shapes: I64, count: int, nodes: int, each: int, wish: int, instants_ms: I64, class_: int) -> bool:
    """Tell whether a shape found no place for somebody from whom no more nodes are kept."""
    for k in range(count):
        same = shapes[k, 0] == nodes and shapes[k, 1] == each and shapes[k, 2] == wish
        if same and _before(instants_ms, shapes[k, 3]) <= class_:
            return True
    return False


@njit(cache=True)
def _was_tried(jobs: Jobs, room: Room, shapes: I64, count: int, row: int, class_: int) -> bool:
    waits = jobs.waits
    return _among(shapes, count, waits[row, NODES], waits[row, EACH], waits[row, WISH], room.instants_ms, class_)


@njit(cache=True)
def was_tried(jobs: Jobs, room: Room, tried: Tried, row: int, now_ms: int) -> bool:
    """Tell whether the shape of a workload found no place in this cycle."""
    return _was_tried(jobs, room, tried.shapes, tried.counts[0], row, _before(room.instants_ms, _ends_ms(jobs, row, now_ms)))


@njit(cache=True)
def first_in_line(jobs: Jobs, leaf: int, now_ms: int) -> int:
    """Return the first workload of a budget that may start now, -1 = none; idle-cycle work is nobody's first."""
    queue, gone, state, waits = jobs.queue, jobs.gone, jobs.state, jobs.waits
    for position in range(jobs.first[leaf], jobs.last[leaf]):
        row = queue[position]
        may = gone[position] == 0 and waits[row, NOT_BEFORE_MS] <= now_ms and waits[row, MIN_RUNTIME_MS] > 0
        if may and state[row] == PENDING:
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
    milli, entitled, running = _milli(jobs.waits, head), lines.entitled[leaf], lines.running[leaf]
    lag_us = min(lines.lag_us[leaf], (lines.allowance[leaf] - entitled) * horizon_ms)
    capped = lines.allowance[leaf] < lines.wanted[leaf]
    fixed_ms = now_ms if why == WITHIN_ALLOWANCE else -1
    if starts_ms >= 0:
        fixed_ms = max(now_ms, starts_ms)
    _sort_ends(leaf, ends)
    last_ms, run, run_end_ms, run_milli, following = now_ms + MAX_ELAPSED_MS, ends.first[leaf], ends.end_ms, ends.milli, ends.next
    while True:
        end_ms = max(now_ms, run_end_ms[run]) if run >= 0 else last_ms  # who is past his end may end now
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
        now_ms, running, run = end_ms, running - run_milli[run], following[run]


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
def _sort_ends(leaf: int, ends: Ends) -> None:
    """Find when the runs of a budget end by what they state, be it past, and list them in that order, then by row."""
    if ends.sorted[leaf] == 1:
        return
    ends.sorted[leaf] = 1
    count, run, following, end_ms_of = 0, ends.first[leaf], ends.next, ends.end_ms
    while run >= 0:
        count += 1
        run = following[run]
    if count == 0:
        return
    workload, placed_ms, checkpoint_ms, expected_ms, progress_ms = (
        ends.workload, ends.placed_ms, ends.checkpoint_ms, ends.expected_ms, ends.progress_ms,
    )  # fmt: skip
    rows, times_ms, at, run = np.empty(count, dtype=np.int64), np.empty(count, dtype=np.int64), 0, ends.first[leaf]
    while run >= 0:
        row, end_ms = workload[run], placed_ms[run] + UNKNOWN_RUNTIME_MS
        if expected_ms[row] > 0:
            end_ms = checkpoint_ms[run] + max(0, expected_ms[row] - progress_ms[row])
        end_ms_of[run] = end_ms
        rows[at], times_ms[at] = run, end_ms
        at, run = at + 1, following[run]
    if count > FEW:
        rows = rows[np.argsort(times_ms, kind="mergesort")]
    else:
        for k in range(1, count):  # by insertion: a few are sorted before anything is allocated
            row, end_ms, at = rows[k], times_ms[k], k
            while at > 0 and times_ms[at - 1] > end_ms:
                rows[at], times_ms[at] = rows[at - 1], times_ms[at - 1]
                at -= 1
            rows[at], times_ms[at] = row, end_ms
    ends.first[leaf] = rows[0]
    for k in range(count):
        following[rows[k]] = rows[k + 1] if k + 1 < count else -1


@njit(cache=True)
def add_end(run: int, leaf: int, end_ms: int, milli: int, ends: Ends) -> None:
    """Take in a run that has started: behind those that end before it, or with it and have lower rows."""
    _sort_ends(leaf, ends)
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
    look_all(jobs, lines, room, np.full(1, leaf), now_ms, blocked, stuck_milli, position, candidate, shapes, count)


@njit(cache=True)
def _fetch_next(
    queue: I64, state: I64, waits: I64, last: I64, leaves: I64, position: I64, candidate: I64
) -> None:
    """Make who is next in each budget's queue its candidate, until another is found, and read what will be read of him.

    Rows lie far apart, and only in a loop that does nothing else do the misses overlap.
    """
    seen = 0
    for leaf in leaves:
        if position[leaf] < last[leaf]:
            candidate[leaf] = queue[position[leaf]]
    for leaf in leaves:
        if position[leaf] < last[leaf]:
            seen += waits[candidate[leaf], BUDGET]
    for leaf in leaves:
        if position[leaf] < last[leaf]:
            seen += state[candidate[leaf]]
    position[leaves[0]] += min(seen, 0)  # nothing; but what is read for nothing is not read


@njit(cache=True, inline="always")
def _look_at(
    leaf: int, now_ms: int, queue: I64, gone: NDArray[np.uint8], state: I64, waits: I64, last: I64, instants_ms: I64, parent: I64,
    closed: I64, metered: I64, granted_us: I64, charged_us: I64, reserved_us: I64, running: I64, allowance: I64, ready: I64,
    stuck_milli: I64, position: I64, candidate: I64, shapes: I64, count: I64,
) -> None:  # fmt: skip
    """Do so for a budget of which something might be funded, and which is not ready yet."""
    for at in range(position[leaf], last[leaf]):
        row = queue[at]
        if gone[at] == 1 or waits[row, NOT_BEFORE_MS] > now_ms or waits[row, MIN_RUNTIME_MS] == 0 or state[row] != PENDING:
            continue
        if count[leaf] > 0:
            left_ms = waits[row, LEFT_MS]
            class_ = _before(instants_ms, now_ms + left_ms if left_ms < NEVER_MS else NEVER_MS)
            if _among(shapes[leaf], count[leaf], waits[row, NODES], waits[row, EACH], waits[row, WISH], instants_ms, class_):
                continue
        position[leaf], candidate[leaf] = at, row
        left_us = _left_us(leaf, parent, metered, granted_us, charged_us, reserved_us)
        answer = _verdict(
            waits[row, MIN_RUNTIME_MS], closed[leaf], left_us, waits[row, NODES] * waits[row, EACH],
            running[leaf] + stuck_milli[leaf], allowance[leaf],
        )  # fmt: skip
        if answer == WITHIN_ALLOWANCE:
            ready[leaf] = 1
        break


@njit(cache=True)
def look_all(
    jobs: Jobs, lines: Lines, room: Room, leaves: I64, now_ms: int, blocked: I64, stuck_milli: I64, position: I64, candidate: I64,
    shapes: I64, count: I64,
) -> None:  # fmt: skip
    """Do so for many budgets."""
    queue, gone, state, waits, last, instants_ms = jobs.queue, jobs.gone, jobs.state, jobs.waits, jobs.last, room.instants_ms
    parent, closed, metered, granted_us, charged_us, reserved_us, running, allowance, ready = (
        lines.parent, lines.closed, lines.metered, lines.granted_us, lines.charged_us, lines.reserved_us, lines.running,
        lines.allowance, lines.ready,
    )  # fmt: skip
    able, most = np.empty(len(leaves), dtype=np.int64), 0
    for leaf in leaves:
        ready[leaf] = 0
        if count[leaf] == shapes.shape[1] or blocked[leaf] > 0 or running[leaf] + stuck_milli[leaf] >= allowance[leaf]:
            continue  # in the last case nothing of it would be funded, however small
        able[most] = leaf
        most += 1
    if most >= FEW:
        _fetch_next(queue, state, waits, last, able[:most], position, candidate)
    for leaf in able[:most]:
        _look_at(
            leaf, now_ms, queue, gone, state, waits, last, instants_ms, parent, closed, metered, granted_us, charged_us,
            reserved_us, running, allowance, ready, stuck_milli, position, candidate, shapes, count,
        )  # fmt: skip


@njit(cache=True)
def look_and_choose(
    jobs: Jobs, lines: Lines, room: Room, leaves: I64, now_ms: int, blocked: I64, stuck_milli: I64, taken: I64, position: I64,
    candidate: I64, shapes: I64, count: I64,
) -> None:  # fmt: skip
    """Look at these budgets, and choose anew who comes next; ``taken`` becomes what runs and what is stuck."""
    look_all(jobs, lines, room, leaves, now_ms, blocked, stuck_milli, position, candidate, shapes, count)
    running = lines.running
    for line in range(len(taken)):
        taken[line] = running[line] + stuck_milli[line]
    choose_all(lines, lines.allowance, taken)


@njit(cache=True)
def note_stuck(
    jobs: Jobs, lines: Lines, leaf: int, now_ms: int, stuck_milli: I64, taken: I64, position: I64, candidate: I64, shapes: I64,
    count: I64,
) -> None:  # fmt: skip
    """A funded workload can neither start nor preempt: its shape need not be tried again for its budget, whose part it keeps."""
    row = candidate[leaf]
    k = count[leaf]
    shapes[leaf, k, 0], shapes[leaf, k, 1] = jobs.waits[row, NODES], jobs.waits[row, EACH]
    shapes[leaf, k, 2], shapes[leaf, k, 3] = jobs.waits[row, WISH], _ends_ms(jobs, row, now_ms)
    count[leaf] += 1
    position[leaf] += 1
    line, milli, parent = leaf, _milli(jobs.waits, row), lines.parent
    while line >= 0:
        stuck_milli[line] += milli
        taken[line] += milli
        line = parent[line]


@njit(cache=True)
def _may_preempt(jobs: Jobs, room: Room, row: int) -> bool:
    """Tell whether the workload may find victims; False rules it out. What may be freed must be known."""
    if room.sums[0] + room.sums[1] < _milli(jobs.waits, row) or room.sums[1] == 0:
        return False
    if jobs.waits[row, WISH] > 0 or _holds(room, row):
        return True
    return _has_room(jobs.waits[row, NODES], jobs.waits[row, EACH], room.evictable[0], room.sums[2])


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
def _next_open(seen: NDArray[np.uint8], start: int, end: int, idle_cycles: int) -> int:
    """Return the first position that was not found to be out, nor of the other class; -1 = there is none."""
    for at in range(start, end):
        if seen[at] == UNSEEN or (seen[at] != OUT and (seen[at] == FOR_IDLE) == (idle_cycles == 1)):
            return at
    return -1


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
    queue, gone, state, waits, counts, shared = jobs.queue, jobs.gone, jobs.state, jobs.waits, room.nodes, room.shared
    instants_ms, holders, profile, shapes, tried_count = room.instants_ms, room.holders, room.profile, tried.shapes, tried.counts[0]
    most, limit_ms, asks = counts.shape[1], np.empty(counts.shape[1], dtype=np.int64), jobs.asks
    _limits(counts, instants_ms, limit_ms)
    part = WHOLE if most > 1 and counts[0, 1] > 0 else shared[0]  # the most that a fraction may ask for
    for at in range(start, jobs.last[leaf]):
        known = seen[at]
        if known != UNSEEN and (known == OUT or (known == FOR_IDLE) != (idle_cycles == 1)):
            continue
        seen[at] = OUT  # until it is found to be more
        ask = asks[at]
        if ask >= WHOLE and (ask > WHOLE * (most - 1) or counts[0, ask // WHOLE] == 0):
            continue  # no node has so much, not even of those that are kept; his row, which lies far away, is not read for it
        if 0 <= ask < WHOLE and ask > part:
            continue
        row = queue[at]
        left_ms = waits[row, LEFT_MS]
        end_ms = now_ms + left_ms if left_ms < NEVER_MS else NEVER_MS
        nodes, each = waits[row, NODES], waits[row, EACH]
        if waits[row, WISH] == 0 and (each > WHOLE * (most - 1) or end_ms > limit_ms[max(1, each // WHOLE)]):
            if each > WHOLE * (most - 1) or (each >= WHOLE and counts[0, each // WHOLE] < nodes):
                continue  # no node has so much, not even of those that are kept
            class_ = _before(instants_ms, end_ms)
            if each >= WHOLE or shared[class_] < each:  # nor has one that is not kept from it; unless they are kept for it
                if each < WHOLE and counts[0, 1] == 0 and shared[0] < each:
                    continue
                if not _listed(holders, row):
                    continue
        if gone[at] == 1 or waits[row, NOT_BEFORE_MS] > now_ms or state[row] != PENDING:
            continue
        class_ = _before(instants_ms, end_ms)
        few = nodes > 1 and waits[row, WISH] == 0 and counts[class_, each // WHOLE] < nodes
        if few and (counts[0, each // WHOLE] < nodes or not _listed(holders, row)):
            continue
        if tried_count > 0 and _among(shapes, tried_count, nodes, each, waits[row, WISH], instants_ms, class_):
            continue
        if len(profile) > 0 and not _leaves_plan(profile, _milli(waits, row), _buckets(end_ms, now_ms)):
            continue
        seen[at] = FOR_IDLE if waits[row, MIN_RUNTIME_MS] == 0 else FOR_ALL
        if (seen[at] == FOR_IDLE) != (idle_cycles == 1):
            continue
        if head >= 0 and row != head:
            used_ms = max(0, head_ms - now_ms) + horizon_ms
            if end_ms <= head_ms:
                used_ms = 0 if in_time_free == 1 else end_ms - now_ms
            if _milli(waits, row) * used_ms > spare_us:
                continue
        return at
    return -1


@njit(cache=True)
def _limits(counts: I64, instants_ms: I64, limit_ms: I64) -> None:
    """Fill ``limit_ms[k]``: by when who asks for k GPUs of a node must be over; what is kept from a class is from those above."""
    for k in range(len(limit_ms)):
        class_ = 0
        while class_ < len(instants_ms) and counts[class_ + 1, k] > 0:
            class_ += 1
        limit_ms[k] = NEVER_MS if class_ == len(instants_ms) else instants_ms[class_]
        if counts[0, k] == 0:
            limit_ms[k] = -1


@njit(cache=True)
def rule_out(jobs: Jobs, room: Room, now_ms: int, seen: NDArray[np.uint8]) -> None:
    """Mark in ``seen`` who needs more of a node than there is for him; starts only take, so that holds for the rest of the cycle.

    One look at each who waits, by what he asks of a node, and at when he would be over only where that makes a difference: nine of
    ten go so in a full cluster.
    """
    queue, asks, waits, counts, shared, instants_ms = (
        jobs.queue, jobs.asks, jobs.waits, room.nodes, room.shared, room.instants_ms,
    )  # fmt: skip
    most, limit_ms = counts.shape[1], np.empty(counts.shape[1], dtype=np.int64)
    _limits(counts, instants_ms, limit_ms)
    part = 0  # the most that a fraction may ask for
    if most > 1:
        class_ = len(instants_ms)
        while class_ >= 0 and counts[class_, 1] == 0 and shared[class_] == 0:
            class_ -= 1
        limit_ms[0] = -1 if class_ < 0 else NEVER_MS if class_ == len(instants_ms) else instants_ms[class_]
        part = WHOLE if counts[0, 1] > 0 else shared[0]
    for at in range(len(queue)):
        ask = asks[at]
        if ask < 0:
            continue
        need = ask // WHOLE
        limit = limit_ms[need] if need < most else -1
        if limit == NEVER_MS and (need > 0 or ask <= part):
            continue
        if limit < 0 or (need == 0 and ask > part) or min(now_ms + waits[queue[at], LEFT_MS], NEVER_MS) > limit:
            seen[at] = OUT
    for k in range(len(room.holders)):
        leaf = waits[room.holders[k], BUDGET]
        for at in range(jobs.first[leaf], jobs.last[leaf]):
            if queue[at] == room.holders[k]:
                seen[at] = UNSEEN


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
    at, count, last, queue, state, waits = jobs.first.copy(), 0, jobs.last, jobs.queue, jobs.state, jobs.waits
    parent, ready, allowance = lines.parent, lines.ready, lines.allowance
    choose_all(lines, allowance, taken)
    while count < len(rows):
        leaf = next_leaf(lines, root)
        if leaf < 0:
            break
        row = -1
        while at[leaf] < last[leaf] and row < 0:
            other = queue[at[leaf]]
            may = waits[other, NOT_BEFORE_MS] <= now_ms and waits[other, MIN_RUNTIME_MS] > 0
            if may and state[other] == PENDING:
                row = other
            at[leaf] += 1
        if row < 0:
            ready[leaf] = 0
        else:
            left_ms = waits[row, LEFT_MS]
            rows[count], buckets[count] = row, _buckets(now_ms + left_ms if left_ms < NEVER_MS else NEVER_MS, now_ms)
            count += 1
            line, milli = leaf, _milli(waits, row)
            while line >= 0:
                taken[line] += milli
                line = parent[line]
        _choose_above(lines, allowance, taken, leaf)
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
def _first_open(order: I64, kept: I64, picked: I64) -> bool:
    """Fill ``picked`` with the first of ``order`` that are not ``kept``; False when there are too few."""
    count = 0
    for row in order:
        if count == len(picked):
            break
        if kept[row] <= 0:
            picked[count] = row
            count += 1
    return count == len(picked)


@njit(cache=True)
def keep_ahead(
    jobs: Jobs, lines: Lines, room: Room, ends: Ends, places: Places, root: int, now_ms: int, horizon_ms: int, starts_ms: I64,
    looks: I64, ready_ms: I64, order: I64, known: I64, until_ms: I64, holder: I64, kept: I64, count: int, most: int,
) -> tuple[int, int]:  # fmt: skip
    """Keep the earliest open nodes for one after the other, until ``most`` are kept for; returns (leaf, how many by then).

    As ``next_ahead`` finds them, and as ``policy.reserving`` keeps nodes for whoever asks for nothing but GPUs, where nothing is
    drained: only when his nodes are ready at an instant that is known, and not before he is funded. ``kept`` gets (workload,
    instant) of each. Comes back with the leaf of whoever asks for more, or whose number of GPUs per node has no ``ready_ms`` and
    ``order`` (nodes by it) yet; -1 = nobody is left.
    """
    while count < most:
        leaf = next_ahead(jobs, lines, room, ends, places, root, now_ms, horizon_ms, starts_ms, looks)
        if leaf < 0:
            return -1, count
        head = places.head[leaf]
        need = max(1, jobs.waits[head, EACH] // WHOLE)
        if jobs.waits[head, WISH] > 0 or need >= len(known) or known[need] == 0:
            return leaf, count
        picked = np.empty(jobs.waits[head, NODES], dtype=np.int64)
        if not _first_open(order[need], until_ms, picked):
            continue
        last_ms = ready_ms[need, picked[-1]]
        if last_ms >= NEVER_MS or last_ms < max(places.until_ms[leaf], now_ms + 1):
            continue
        for node in picked:
            until_ms[node], holder[node] = last_ms, head + 1
        kept[count, 0], kept[count, 1] = head, last_ms
        places.known[leaf] = 0  # it now starts when that says so
        count += 1
    return -1, count


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
        at = _next_open(seen, position[leaf], jobs.last[leaf], idle_cycles)
        if at >= 0 and idle_cycles == 0 and places.known[leaf] == 0:  # what it keeps matters only where somebody fits
            places.head[leaf] = -1
            at = _candidate(jobs, room, places, tried, leaf, at, now_ms, horizon_ms, in_time_free, idle_cycles, seen)
            if at >= 0:
                _find_place(jobs, lines, room, ends, places, leaf, now_ms, horizon_ms, starts_ms)
        if at >= 0:
            at = _candidate(jobs, room, places, tried, leaf, at, now_ms, horizon_ms, in_time_free, idle_cycles, seen)
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

    Who was funded when GPUs were freed for it, still is. ``hold`` and ``funded_ms`` are per entry of ``rows``.
    """
    waits, parent, closed, metered, granted_us, charged_us, reserved_us, running, allowance = (
        jobs.waits, lines.parent, lines.closed, lines.metered, lines.granted_us, lines.charged_us, lines.reserved_us, lines.running,
        lines.allowance,
    )  # fmt: skip
    for k in range(len(rows)):
        row = rows[k]
        since_ms[k] = 0
        if heads[k] == 0:
            continue
        leaf, left_us = waits[row, BUDGET], ALL_US
        line = leaf
        while line >= 0:
            if metered[line] != 0:
                left_us = min(left_us, granted_us[line] - charged_us[line] - reserved_us[line])
            line = parent[line]
        answer = _verdict(
            waits[row, MIN_RUNTIME_MS], closed[leaf], left_us, waits[row, NODES] * waits[row, EACH], running[leaf], allowance[leaf]
        )
        if hold[k] == hold_funded or answer == WITHIN_ALLOWANCE:
            since_ms[k] = funded_ms[k] if funded_ms[k] > 0 else now_ms


@njit(cache=True)
def _kept_from(until_ms: I64, holder: I64, closes_ms: I64, node: int, row: int, over_ms: int) -> bool:
    """Tell whether the node is kept from a workload that is over at ``over_ms``: for somebody else, or because it is drained."""
    theirs = until_ms[node] > 0 and holder[node] != row + 1 and until_ms[node] < over_ms
    return theirs or (closes_ms[node] > 0 and closes_ms[node] < over_ms)


@njit(cache=True)
def _pick_on_node(first: int, size: int, need: int, used: I64, out: I64, held: I64, gpus: I64, at: int) -> None:
    """Write ``need`` free GPUs of a node: an aligned block if the number is a power of two and one is free, else the lowest."""
    if need & (need - 1) == 0:
        for start in range(first, first + size - need + 1, need):
            free = 0
            while free < need and used[start + free] == 0 and out[start + free] == 0 and held[start + free] == 0:
                free += 1
            if free == need:
                for k in range(need):
                    gpus[at + k] = start + k
                return
    for gpu in range(first, first + size):
        if need > 0 and used[gpu] == 0 and out[gpu] == 0 and held[gpu] == 0:
            gpus[at] = gpu
            at, need = at + 1, need - 1


@njit(cache=True)
def _pick_part(
    row: int, milli: int, over_ms: int, part: I64, used: I64, used_mib: I64, out: I64, held: I64, first_gpu: I64, gpus: I64,
    memory_mib: I64, until_ms: I64, holder: I64, closes_ms: I64,
) -> int:  # fmt: skip
    """Return the most used GPU with room, and memory, for a fraction; -1 = none that is in use."""
    best = -1
    for node in range(len(part)):
        if part[node] < milli or _kept_from(until_ms, holder, closes_ms, node, row, over_ms):
            continue
        left_mib = memory_mib[node] - memory_mib[node] * milli // WHOLE
        for gpu in range(first_gpu[node], first_gpu[node] + gpus[node]):
            taken = used[gpu]
            if taken == 0 or taken + milli > WHOLE or out[gpu] > 0 or held[gpu] > 0 or used_mib[gpu] > left_mib:
                continue
            if best < 0 or taken > used[best]:
                best = gpu
        if best >= 0 and used[best] + milli == WHOLE:
            break  # none is used more that has room
    return best


@njit(cache=True, inline="always")
def _pick_of(
    row: int, nodes: int, milli_per_node: int, over_ms: int, gpus: I64, at: int, counts: I64, free: I64, part: I64, last: I64,
    lowest: I64, used: I64, used_mib: I64, out: I64, held: I64, first_gpu: I64, size: I64, memory_mib: I64, until_ms: I64,
    holder: I64, closes_ms: I64,
) -> int:  # fmt: skip
    """Write the GPUs that a workload without wishes gets by best fit, as ``pack.find_gpus`` chooses; returns how many, 0 = none.

    ``counts[0, k]`` nodes of the pool, kept or not, have at least k GPUs free.
    """
    found = 0
    if milli_per_node < WHOLE:
        best = _pick_part(
            row, milli_per_node, over_ms, part, used, used_mib, out, held, first_gpu, size, memory_mib, until_ms, holder, closes_ms
        )
        if best >= 0:
            gpus[at], found = best, 1
    need, taken, level = max(1, milli_per_node // WHOLE), 0, max(1, milli_per_node // WHOLE)
    while found == 0 and level < counts.shape[1]:
        if counts[0, level] != (counts[0, level + 1] if level + 1 < counts.shape[1] else 0):
            node, first = lowest[level], True
            while node < len(free) and taken < nodes:
                if free[node] == level and last[node] >= 0:
                    if first:
                        lowest[level], first = node, False
                    if not _kept_from(until_ms, holder, closes_ms, node, row, over_ms):
                        _pick_on_node(first_gpu[node], size[node], need, used, out, held, gpus, at + taken * need)
                        taken += 1
                node += 1
            if taken == nodes:
                found = nodes * need
        level += 1
    return found


@njit(cache=True)
def _pick(stock: Stock, counts: I64, row: int, nodes: int, milli_per_node: int, over_ms: int, gpus: I64, at: int) -> int:
    """Do so with what is in stock."""
    return _pick_of(
        row, nodes, milli_per_node, over_ms, gpus, at, counts, stock.free, stock.part, stock.last, stock.lowest, stock.used,
        stock.used_mib, stock.out, stock.held, stock.first_gpu, stock.gpus, stock.memory_mib, stock.until_ms, stock.holder,
        stock.closes_ms,
    )  # fmt: skip


@njit(cache=True)
def _share_anew(shared: I64, part: I64, last: I64) -> None:
    """Set ``room.shared`` by what each node has on GPUs that are in use."""
    shared[:] = 0
    for node in range(len(part)):
        if last[node] >= 0 and part[node] > shared[last[node]]:
            shared[last[node]] = part[node]
    for class_ in range(len(shared) - 2, -1, -1):
        shared[class_] = max(shared[class_], shared[class_ + 1])


@njit(cache=True, inline="always")
def _take_of(
    gpus: I64, begin: int, end: int, milli_each: int, counts: I64, shared: I64, sums: I64, node_of: I64, used: I64, used_mib: I64,
    out: I64, held: I64, first_gpu: I64, size: I64, memory_mib: I64, free_on: I64, part_on: I64, last: I64, lowest: I64,
) -> None:  # fmt: skip
    """Take so much of each of ``gpus[begin:end]`` out of stock and room; what could be freed is no longer known.

    Naive equivalent: take it, and ``room.measure_free`` everything anew.
    """
    most, shrunk, at = counts.shape[1] - 1, False, begin
    while at < end:
        node = node_of[gpus[at]]
        while at < end and node_of[gpus[at]] == node:
            gpu = gpus[at]
            used[gpu] += milli_each
            if milli_each < WHOLE:
                used_mib[gpu] += memory_mib[node] * milli_each // WHOLE
            at += 1
        free, part = 0, 0
        for gpu in range(first_gpu[node], first_gpu[node] + size[node]):
            if out[gpu] == 0 and held[gpu] == 0:
                if used[gpu] == 0:
                    free += 1
                else:
                    part = max(part, WHOLE - used[gpu])
        for class_ in range(last[node] + 1):
            for k in range(min(free, most) + 1, min(free_on[node], most) + 1):
                counts[class_, k] -= 1
            if free == 0 and part == 0:
                counts[class_, 0] -= 1
            shrunk = shrunk or (part < part_on[node] and shared[class_] == part_on[node])
            shared[class_] = max(shared[class_], part)
        free_on[node], part_on[node] = free, part
        alone = free > 0 and counts[0, free] - (counts[0, free + 1] if free < most else 0) == 1  # no other has so many
        lowest[free] = node if alone else min(lowest[free], node)
    if shrunk:
        _share_anew(shared, part_on, last)
    sums[0] -= (end - begin) * milli_each


@njit(cache=True)
def take_gpus(stock: Stock, room: Room, gpus: I64, milli_each: int) -> None:
    """Do so with all of ``gpus``."""
    _take_of(
        gpus, 0, len(gpus), milli_each, room.nodes, room.shared, room.sums, stock.node_of, stock.used, stock.used_mib, stock.out,
        stock.held, stock.first_gpu, stock.gpus, stock.memory_mib, stock.free, stock.part, stock.last, stock.lowest,
    )  # fmt: skip


@njit(cache=True)
def _start(
    jobs: Jobs, lines: Lines, room: Room, stock: Stock, starts: Starts, at: int, over_ms: int
) -> bool:
    """List the start of the workload at a position of the queue, if it fits: everything it changes is current then."""
    row, count, waits = jobs.queue[at], starts.counts[0], jobs.waits
    nodes, milli_per_node, milli = waits[row, NODES], waits[row, EACH], _milli(waits, row)
    min_runtime_ms = waits[row, MIN_RUNTIME_MS]
    begin = starts.first[count]
    taken = _pick(stock, room.nodes, row, nodes, milli_per_node, over_ms, starts.gpus, begin)
    if taken == 0:
        return False
    line, parent, running, reserved_us = waits[row, BUDGET], lines.parent, lines.running, lines.reserved_us
    why = _funded(jobs, lines, row, 0)
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


@njit(cache=True)
def _last_class(until_ms: int, closes_ms: int, instants_ms: I64) -> int:
    """Return the last class from which a node is not kept."""
    last = len(instants_ms)
    if until_ms > 0:
        last = min(last, _before(instants_ms, until_ms))
    if closes_ms > 0:
        last = min(last, _before(instants_ms, closes_ms))
    return last


@njit(cache=True)
def _add_up(nodes: I64, shared: I64) -> None:
    """Count nodes for all classes they are not kept from, and for all numbers they have at least."""
    classes, most = nodes.shape[0], nodes.shape[1] - 1
    for one in range(classes - 2, -1, -1):
        shared[one] = max(shared[one], shared[one + 1])
        for k in range(most + 1):
            nodes[one, k] += nodes[one + 1, k]
    for one in range(classes):
        for k in range(most - 1, -1, -1):
            nodes[one, k] += nodes[one, k + 1]


@njit(cache=True)
def measure_classes(
    node_free: I64, node_part: I64, node_last: I64, until_ms: I64, closes_ms: I64, instants_ms: I64, nodes: I64, shared: I64
) -> None:
    """Count by class of asker: ``nodes[class, k]`` with at least k GPUs free, ``shared[class]`` the most of one in use; O(nodes).

    ``node_last`` becomes the last class that a node is not kept from; below 0: it is of another pool.
    """
    most = nodes.shape[1] - 1
    nodes[:] = 0
    shared[:] = 0
    for node in range(len(node_free)):
        if node_last[node] < 0:
            continue  # of another pool
        last = len(instants_ms)
        if until_ms[node] > 0 or closes_ms[node] > 0:
            last = _last_class(until_ms[node], closes_ms[node], instants_ms)
        node_last[node] = last
        if node_free[node] > 0 or node_part[node] > 0:
            nodes[last, min(node_free[node], most)] += 1
            shared[last] = max(shared[last], node_part[node])
    _add_up(nodes, shared)


@njit(cache=True)
def measure_freed(lines: Lines, room: Room, stock: Stock, runs: Runs, pool: int, now_ms: int, quantum_ms: int) -> None:
    """Fill in what could be freed for somebody, were he allowed to take from every budget: ``evictable[0, k]``, ``sums[1:]``.

    Who may be a victim of whom is the answer of ``policy.preempting``: what is counted here may be too much, never too little. Who
    is listed as started is paid by his budget, and may not go.
    """
    running, allowance, stays, held, out = lines.running, lines.allowance, stock.used.copy(), stock.held, stock.out
    phase, payer, protected_until_ms, leaf, milli, off = (
        runs.phase, runs.payer, runs.protected_until_ms, runs.leaf, runs.milli, runs.off,
    )  # fmt: skip
    run_pool, idle_cycles, took_ms, count = runs.pool, runs.idle_cycles, runs.took_ms, runs.sizes[0]
    keeps = running.copy()
    for run in range(count):
        if off[run] and payer[run] == UNFUNDED:
            keeps[leaf[run]] -= milli[run]
    eligible = np.zeros(count, dtype=np.uint8)
    gives, largest = np.zeros(len(running), dtype=np.int64), np.zeros(len(running), dtype=np.int64)
    freed = 0
    for run in range(count):
        if run_pool[run] != pool or (phase[run] != PLACED and phase[run] != STARTED) or payer[run] != UNFUNDED:
            continue
        if protected_until_ms[run] > now_ms:
            continue
        y = leaf[run]
        if idle_cycles[run] == 1 or off[run]:
            eligible[run] = 1
            freed += milli[run]
        elif not (took_ms[y] > 0 and now_ms - took_ms[y] < quantum_ms) and milli[run] < 2 * (keeps[y] - allowance[y]):
            eligible[run] = 1
            gives[y] += milli[run]
            largest[y] = max(largest[y], milli[run])
    for y in range(len(gives)):  # of one budget all gone must still leave it above: 2 given - smallest < room
        if gives[y] > 0:
            freed += min(gives[y], (2 * (keeps[y] - allowance[y]) + largest[y] - 1) // 2)
    alloc_run, alloc_gpu, alloc_milli = runs.alloc_run, runs.alloc_gpu, runs.alloc_milli
    if freed > 0:
        for a in range(runs.sizes[1]):
            if alloc_milli[a] > 0 and eligible[alloc_run[a]] == 1:
                stays[alloc_gpu[a]] -= alloc_milli[a]
    last, first_gpu, gpus, gone_free, gone_part = stock.last, stock.first_gpu, stock.gpus, room.gone_free, room.gone_part
    for node in range(len(last)):
        able, shared = 0, 0
        if last[node] >= 0:
            for gpu in range(first_gpu[node], first_gpu[node] + gpus[node]):
                if out[gpu] == 0 and held[gpu] == 0:
                    if stays[gpu] == 0:
                        able += 1
                    shared = max(shared, WHOLE - stays[gpu])
        gone_free[node], gone_part[node] = able, shared
    room.sums[1] = freed
    _count_freed(room, stock)


@njit(cache=True)
def _count_freed(room: Room, stock: Stock) -> None:
    """Count the same over the nodes that nobody has."""
    evictable, last, until_ms, gone_free, gone_part = room.evictable, stock.last, stock.until_ms, room.gone_free, room.gone_part
    evictable[:] = 0
    shared, most = 0, evictable.shape[1] - 1
    for node in range(len(last)):
        if last[node] >= 0 and until_ms[node] <= 0:
            evictable[0, min(gone_free[node], most)] += 1
            shared = max(shared, gone_part[node])
    for k in range(most - 1, -1, -1):
        evictable[0, k] += evictable[0, k + 1]
    room.sums[2], room.sums[3] = shared, 1


@njit(cache=True)
def _keep_nodes(stock: Stock, row: int, nodes: int, ready_ms: I64, order: I64) -> int:
    """Keep the open nodes that are ready first for a workload; returns when they are, 0 = nobody knows, and none is kept."""
    until_ms, holder, picked = stock.until_ms, stock.holder, np.empty(nodes, dtype=np.int64)
    if not _first_open(order, until_ms, picked) or ready_ms[picked[-1]] >= NEVER_MS:
        return 0
    last_ms = ready_ms[picked[-1]]
    for node in picked:
        until_ms[node], holder[node] = last_ms, row + 1
    return last_ms


@njit(cache=True)
def _with_holder(room: Room, stock: Stock, row: int, until_ms: int) -> Room:
    """Return the room when nodes are kept for one more, until an instant if that is not 0: counted by class anew."""
    holders, before = np.append(room.holders, np.full(1, row)), room.instants_ms
    at = _before(before, until_ms)
    instants_ms = before
    if until_ms > 0 and (at == len(before) or before[at] != until_ms):
        instants_ms = np.empty(len(before) + 1, dtype=np.int64)
        instants_ms[:at], instants_ms[at], instants_ms[at + 1 :] = before[:at], until_ms, before[at:]
    classes = len(instants_ms) + 1
    nodes, shared = np.empty((classes, room.nodes.shape[1]), dtype=np.int64), np.empty(classes, dtype=np.int64)
    measure_classes(stock.free, stock.part, stock.last, stock.until_ms, stock.closes_ms, instants_ms, nodes, shared)
    room.sums[3] = KEPT if room.sums[3] == 1 or room.sums[3] == KEPT else min(room.sums[3], BOUND)
    return Room(
        instants_ms, nodes, shared, room.evictable, room.gone_free, room.gone_part, room.sums, holders, room.profile
    )


@njit(cache=True)
def _start_in_order(
    jobs: Jobs, lines: Lines, room: Room, stock: Stock, starts: Starts, root: int, now_ms: int, blocked: I64, stuck_milli: I64,
    taken: I64, position: I64, candidate: I64, shapes: I64, count: I64, leaf: int,
) -> tuple[int, int]:  # fmt: skip
    """Start the candidate of ``leaf``, who is funded, and whoever comes next, as long as each fits.

    Returns what is known of the next one, and his leaf: nothing (``OPEN``), ``FULL`` or ``SCATTERED``. It does what ``_start``,
    ``look`` and ``_choose_above`` do, one after the other, and is a loop of its own because ten thousand may start in a cycle:
    handing the tuples over costs more than all that is done with what is in them.
    """
    queue, gone, state, waits, last = jobs.queue, jobs.gone, jobs.state, jobs.waits, jobs.last
    parent, children, first_child, sibling, weight, best, ready = (
        lines.parent, lines.children, lines.first_child, lines.next_sibling, lines.weight, lines.best, lines.ready,
    )  # fmt: skip
    closed, metered, granted_us, charged_us, reserved_us, running, allowance = (
        lines.closed, lines.metered, lines.granted_us, lines.charged_us, lines.reserved_us, lines.running, lines.allowance,
    )  # fmt: skip
    instants_ms, counts, shared, sums = room.instants_ms, room.nodes, room.shared, room.sums
    free, part, last_class, lowest, used, used_mib = stock.free, stock.part, stock.last, stock.lowest, stock.used, stock.used_mib
    out, held, node_of, first_gpu, size, memory_mib = (
        stock.out, stock.held, stock.node_of, stock.first_gpu, stock.gpus, stock.memory_mib,
    )  # fmt: skip
    until_ms, holder, closes_ms = stock.until_ms, stock.holder, stock.closes_ms
    listed, listed_why, listed_running, listed_first, gpus = (
        starts.workload, starts.why, starts.running, starts.first, starts.gpus,
    )  # fmt: skip
    known, most = starts.counts[0], shapes.shape[1]
    while True:
        row, begin = candidate[leaf], listed_first[known]
        nodes, each, min_runtime_ms, left_ms = waits[row, NODES], waits[row, EACH], waits[row, MIN_RUNTIME_MS], waits[row, LEFT_MS]
        milli, end = nodes * each, begin + nodes * max(1, each // WHOLE)
        answer = OPEN
        if known >= len(listed) or end > len(gpus):
            answer = FULL
        else:
            over_ms = now_ms + left_ms if left_ms < NEVER_MS else NEVER_MS
            end = begin + _pick_of(
                row, nodes, each, over_ms, gpus, begin, counts, free, part, last_class, lowest, used, used_mib, out, held,
                first_gpu, size, memory_mib, until_ms, holder, closes_ms,
            )  # fmt: skip
            if end == begin:
                answer = SCATTERED
        if answer != OPEN:
            break
        left_us = _left_us(leaf, parent, metered, granted_us, charged_us, reserved_us)
        why = _verdict(min_runtime_ms, closed[leaf], left_us, milli, running[leaf], allowance[leaf])
        listed[known], listed_why[known], listed_running[known], listed_first[known + 1] = row, why, running[leaf], end
        known += 1
        _take_of(
            gpus, begin, end, min(WHOLE, each), counts, shared, sums, node_of, used, used_mib, out, held, first_gpu, size,
            memory_mib, free, part, last_class, lowest,
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
            _look_at(
                leaf, now_ms, queue, gone, state, waits, last, instants_ms, parent, closed, metered, granted_us, charged_us,
                reserved_us, running, allowance, ready, stuck_milli, position, candidate, shapes, count,
            )  # fmt: skip
        line = parent[leaf]
        while line >= 0:
            best[line] = _best(first_child[line], sibling, children, weight, best, ready, allowance, taken)
            line = parent[line]
        leaf = root
        while leaf >= 0 and children[leaf] > 0:
            leaf = best[leaf]
        if leaf < 0 or ready[leaf] == 0:
            break
        row = candidate[leaf]
        left_ms = waits[row, LEFT_MS]
        class_ = _before(instants_ms, now_ms + left_ms if left_ms < NEVER_MS else NEVER_MS)
        if waits[row, WISH] > 0 or not _has_room(waits[row, NODES], waits[row, EACH], counts[class_], shared[class_]):
            break
    starts.counts[0] = known
    return answer, leaf


@njit(cache=True)
def start_funded(
    jobs: Jobs, lines: Lines, room: Room, stock: Stock, starts: Starts, runs: Runs, pool: int, quantum_ms: int, root: int,
    now_ms: int, plain: int, kept_all: int, ask_all: int, blocked: I64, stuck_milli: I64, taken: I64, position: I64,
    candidate: I64, shapes: I64, count: I64, found: I64, ready_ms: I64, order: I64, known: I64, kept: I64,
) -> tuple[int, int]:  # fmt: skip
    """Start who is funded and fits, as long as nothing else is to be decided; then the same as ``next_funded``.

    What may be freed is measured where that must be known. Whoever is to get a reservation gets it here if he asks for nothing but
    GPUs, as ``policy.reserving`` makes them where no node is drained, so long as ``kept`` has room, which gets (workload, instant):
    the nodes that are ready first, by ``order`` and ``ready_ms`` per number of GPUs, where that is ``known``. Returns also how many
    there are. ``room`` is that of before then.

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
            if jobs.waits[row, WISH] == 0 and need < len(known) and known[need] == 1:
                kept[made, 0], kept[made, 1] = row, _keep_nodes(stock, row, jobs.waits[row, NODES], ready_ms[need], order[need])
                room = _with_holder(room, stock, row, kept[made, 1])
                made += 1
                kept_all = int(made == len(kept))
                note_stuck(jobs, lines, leaf, now_ms, stuck_milli, taken, position, candidate, shapes, count)
                look(jobs, lines, room, leaf, now_ms, blocked, stuck_milli, position, candidate, shapes, count)
                _choose_above(lines, lines.allowance, taken, leaf)
                continue
        if leaf >= 0 and found[0] == UNFIT and room.sums[3] == KEPT:
            _count_freed(room, stock)
            continue
        if leaf >= 0 and found[0] == UNFIT and room.sums[3] != 1:
            measure_freed(lines, room, stock, runs, pool, now_ms, quantum_ms)
            continue
        if leaf < 0 or found[0] != OPEN or plain == 0 or jobs.waits[candidate[leaf], WISH] > 0:
            return leaf, made
        found[0], leaf = _start_in_order(
            jobs, lines, room, stock, starts, root, now_ms, blocked, stuck_milli, taken, position, candidate, shapes, count, leaf
        )
        if found[0] != OPEN:
            return leaf, made


@njit(cache=True)
def start_all(
    jobs: Jobs, lines: Lines, room: Room, ends: Ends, places: Places, tried: Tried, stock: Stock, starts: Starts, root: int,
    now_ms: int, horizon_ms: int, starts_ms: I64, plain: int, in_time_free: int, idle_cycles: int, seen: NDArray[np.uint8],
    allowed: I64, position: I64, found: I64,
) -> int:  # fmt: skip
    """Start who may and fits, as long as nothing else is to be decided; then the same as ``next_of_all``."""
    found[0] = OPEN
    while True:
        leaf = next_of_all(
            jobs, lines, room, ends, places, tried, root, now_ms, horizon_ms, starts_ms, in_time_free, idle_cycles, seen, allowed,
            position,
        )  # fmt: skip
        if leaf < 0:
            return leaf
        at = position[leaf]
        row = jobs.queue[at]
        if plain == 0 or jobs.waits[row, WISH] > 0:
            return leaf
        if not _listable(jobs, starts, row):
            found[0] = FULL
            return leaf
        over_ms = _ends_ms(jobs, row, now_ms)
        if _start(jobs, lines, room, stock, starts, at, over_ms):
            room.sums[3] = 0
            if len(room.profile) > 0:
                for t in range(min(_buckets(over_ms, now_ms), len(room.profile))):
                    room.profile[t] -= _milli(jobs.waits, row)
            else:
                if jobs.waits[row, MIN_RUNTIME_MS] > 0:
                    end_ms = now_ms + UNKNOWN_RUNTIME_MS if over_ms == NEVER_MS else over_ms
                    add_end(starts.runs[starts.counts[0] - 1], leaf, end_ms, _milli(jobs.waits, row), ends)
                places.known[leaf] = 0
        elif tried.counts[1] >= len(tried.shapes):
            lines.ready[leaf] = 0
        else:
            note(tried, jobs.waits[row, NODES], jobs.waits[row, EACH], jobs.waits[row, WISH], over_ms)
        _choose_above(lines, allowed, lines.running, leaf)

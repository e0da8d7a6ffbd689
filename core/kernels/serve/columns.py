"""What the walk over the waiting reads and keeps: tuples of arrays, and the numbers that stand in them.

Decides nothing. The arrays are the state's own columns, or were made for one cycle by ``policy.turn``, ``policy.precedence`` and
``state.memo``; which kernel changes which of them is told where it does. A hot loop takes its arrays out of their tuples once:
each ``jobs.waits`` counts a reference up and down, which costs more than the row that is read.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

I64 = NDArray[np.int64]

WHOLE = 1_000
SHELF = 64  # nodes that are passed over at once where none of them has enough left of a GPU
FEW = 32  # rows that are sorted by insertion
PENDING = 2  # workload.state
# columns of ``Jobs.waits``; what he needs of a node: GPUs, 0 = a fraction of one, -1 = something else beside them
BUDGET, NODES, EACH, NEED, WISH, MIN_RUNTIME_MS, LEFT_MS, NOT_BEFORE_MS = range(8)
OPEN, UNFIT, STUCK = range(3)  # what is known of who is next: nothing; it does not fit; nor can it preempt anybody
BOUND = 2  # ``Room.sums[3]``: what could be freed is at most what is said
KEPT = 5  # or that, and other nodes are kept than were: counted anew over nodes it is known again
# or: no more starts can be listed before those that are have been folded; room enough, and it does not fit
FULL, SCATTERED = 3, 4


class Jobs(NamedTuple):
    """Columns of workloads, and the queue."""

    queue: I64
    asks: I64  # per position of it: what he asks for, in one number (``asked``); below 0 = something else beside GPUs
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
    shelves: I64  # the most of ``part`` per ``SHELF`` nodes, which stand on one
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

    unfunded: I64  # rows of those in the pool that nobody pays for, in whatever phase
    phase: I64
    protected_until_ms: I64
    idle_cycles: I64
    off: NDArray[np.bool_]  # demoted for doing no work
    leaf: I64
    milli: I64
    took_ms: I64  # per budget
    first_alloc: I64
    alloc_next: I64
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

"""Heads: of each budget the first who waits and would be funded, until somebody is found about whom must be decided.

Looks from the heads of the queues on, and goes on behind whoever can neither start nor preempt: he is *stuck*, and keeps his part
of the allowance. It decides nothing: whether a head gets GPUs, victims or a reservation is for ``starts`` and ``policy.placing``.
Pure functions of the columns, and of what they keep in the arrays given: ``position``, ``candidate``, ``shapes`` and ``count``
per leaf. Naive equivalent: after every decision look at every queue from its head on.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from apportion.core.kernels.serve.columns import (
    BUDGET,
    EACH,
    FEW,
    LEFT_MS,
    MIN_RUNTIME_MS,
    NODES,
    NOT_BEFORE_MS,
    OPEN,
    PENDING,
    STUCK,
    UNFIT,
    WISH,
    Jobs,
    Lines,
    Room,
)
from apportion.core.kernels.serve.money import WITHIN_ALLOWANCE, promisable_us, verdict
from apportion.core.kernels.serve.order import choose_above, choose_all, next_leaf
from apportion.core.kernels.serve.shapes import among, class_ending, has_room, holds, may_fit, milli_of, says_over_ms
from apportion.core.units import NEVER_MS

I64 = NDArray[np.int64]

# as in ``effects``
BUILT_ON = {
    "serve.columns": "00138576507d", "serve.money": "464ce80f684d", "serve.order": "b094c9e19445", "serve.shapes": "a6b4fdc08477"
}  # fmt: skip


@njit(cache=True)
def look(
    jobs: Jobs, lines: Lines, room: Room, leaf: int, now_ms: int, blocked: I64, stuck_milli: I64, position: I64, candidate: I64,
    shapes: I64, count: I64,
) -> None:  # fmt: skip
    """Find the first workload of ``leaf`` from ``position`` on that is worth trying; ready if it would be funded."""
    look_all(jobs, lines, room, np.full(1, leaf), now_ms, blocked, stuck_milli, position, candidate, shapes, count)


@njit(cache=True)
def _fetch_next(queue: I64, state: I64, waits: I64, last: I64, leaves: I64, position: I64, candidate: I64) -> None:
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
def look_at(
    leaf: int, now_ms: int, queue: I64, gone: NDArray[np.uint8], state: I64, waits: I64, last: I64, instants_ms: I64, parent: I64,
    closed: I64, metered: I64, granted_us: I64, charged_us: I64, reserved_us: I64, running: I64, allowance: I64, ready: I64,
    stuck_milli: I64, position: I64, candidate: I64, shapes: I64, count: I64,
) -> None:  # fmt: skip
    """Do so for a budget of which something might be funded, and which is not ready yet."""
    for at in range(position[leaf], last[leaf]):
        row = queue[at]
        if (
            gone[at] == 1
            or waits[row, NOT_BEFORE_MS] > now_ms
            or waits[row, MIN_RUNTIME_MS] == 0
            or state[row] != PENDING
        ):
            continue
        if count[leaf] > 0:
            left_ms = waits[row, LEFT_MS]
            class_ = class_ending(instants_ms, now_ms + left_ms if left_ms < NEVER_MS else NEVER_MS)
            if among(
                shapes[leaf], count[leaf], waits[row, NODES], waits[row, EACH], waits[row, WISH], instants_ms, class_
            ):
                continue
        position[leaf], candidate[leaf] = at, row
        left_us = promisable_us(leaf, parent, metered, granted_us, charged_us, reserved_us)
        answer = verdict(
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
    queue, gone, state, waits, last, instants_ms = (
        jobs.queue,
        jobs.gone,
        jobs.state,
        jobs.waits,
        jobs.last,
        room.instants_ms,
    )
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
        look_at(
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
    shapes[leaf, k, 2], shapes[leaf, k, 3] = jobs.waits[row, WISH], says_over_ms(jobs, row, now_ms)
    count[leaf] += 1
    position[leaf] += 1
    line, milli, parent = leaf, milli_of(jobs.waits, row), lines.parent
    while line >= 0:
        stuck_milli[line] += milli
        taken[line] += milli
        line = parent[line]


@njit(cache=True)
def _may_preempt(jobs: Jobs, room: Room, row: int) -> bool:
    """Tell whether the workload may find victims; False rules it out. What may be freed must be known."""
    if room.sums[0] + room.sums[1] < milli_of(jobs.waits, row) or room.sums[1] == 0:
        return False
    if jobs.waits[row, WISH] > 0 or holds(room, row):
        return True
    return has_room(jobs.waits[row, NODES], jobs.waits[row, EACH], room.evictable[0], room.sums[2])


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
        if may_fit(jobs, room, row, class_ending(room.instants_ms, says_over_ms(jobs, row, now_ms))):
            return leaf
        found[0] = UNFIT
        if room.sums[3] == 0 or _may_preempt(jobs, room, row):
            return leaf
        found[0] = STUCK
        if ask_all == 1 or (stuck_milli[leaf] == 0 and kept_all == 0):
            return leaf
        note_stuck(jobs, lines, leaf, now_ms, stuck_milli, taken, position, candidate, shapes, count)
        look(jobs, lines, room, leaf, now_ms, blocked, stuck_milli, position, candidate, shapes, count)
        choose_above(lines, lines.allowance, taken, leaf)

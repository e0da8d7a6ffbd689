"""Places: what a budget keeps for its first in line, by what its runs state about their ends.

``policy.precedence`` tells the rule; the naive equivalent is ``oracles.place``. The runs of a budget are sorted by their ends
when they are asked for first, and who starts is put between them. Pure functions of the columns, and of ``Ends`` and ``Places``,
which they alone write.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from apportion.core.kernels.serve.columns import (
    FEW,
    MIN_RUNTIME_MS,
    NOT_BEFORE_MS,
    PENDING,
    Ends,
    Jobs,
    Lines,
    Places,
    Room,
)
from apportion.core.kernels.serve.money import ABOVE_ALLOWANCE, WITHIN_ALLOWANCE, fundable_row
from apportion.core.kernels.serve.shapes import milli_of
from apportion.core.units import MAX_AMOUNT_GPU_US, MAX_ELAPSED_MS, UNKNOWN_RUNTIME_MS

I64 = NDArray[np.int64]

# as in ``effects``
BUILT_ON = {
    "serve.columns": "00138576507d", "serve.money": "464ce80f684d", "serve.shapes": "a6b4fdc08477"
}  # fmt: skip


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
    why = fundable_row(jobs, lines, head, 0)
    if why < ABOVE_ALLOWANCE:
        return
    milli, entitled, running = milli_of(jobs.waits, head), lines.entitled[leaf], lines.running[leaf]
    lag_us = min(lines.lag_us[leaf], (lines.allowance[leaf] - entitled) * horizon_ms)
    capped = lines.allowance[leaf] < lines.wanted[leaf]
    fixed_ms = now_ms if why == WITHIN_ALLOWANCE else -1
    if starts_ms >= 0:
        fixed_ms = max(now_ms, starts_ms)
    _sort_ends(leaf, ends)
    last_ms, run, run_end_ms, run_milli, following = (
        now_ms + MAX_ELAPSED_MS,
        ends.first[leaf],
        ends.end_ms,
        ends.milli,
        ends.next,
    )
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
def find_place(
    jobs: Jobs,
    lines: Lines,
    room: Room,
    ends: Ends,
    places: Places,
    leaf: int,
    now_ms: int,
    horizon_ms: int,
    starts_ms: I64,
) -> None:
    """Fill in what a budget keeps; ``starts_ms`` is per holder."""
    head, reserved_ms = first_in_line(jobs, leaf, now_ms), -1
    for k in range(len(room.holders)):
        if room.holders[k] == head:
            reserved_ms = starts_ms[k]
    found = np.zeros(3, dtype=np.int64)
    place(jobs, lines, ends, leaf, head, reserved_ms, now_ms, horizon_ms, found)
    places.known[leaf], places.head[leaf], places.until_ms[leaf], places.spare_us[leaf] = (
        1,
        found[0],
        found[1],
        found[2],
    )


@njit(cache=True)
def link_ends(
    runs: int, phase: I64, placed: int, started: int, idle_cycles: I64, leaf: I64, milli: I64, ends: Ends
) -> None:
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

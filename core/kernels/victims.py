"""Which runs must go so that a shape fits, at the least cost: exact search over nodes.

A plan takes ``wanted`` targets and of each some items (``targets``) that give what is missing there; its cost is the sum over its
runs, each counted once. Rules of a plan: of each leaf at most what ``room`` says (``2 * given - smallest < room``; a part of what
is allowed is allowed), and ``given <= needed + largest run``.

Depth first over targets in order of their least cost. It is exact: a branch is left only when (a) what it costs at least (its
runs; or the shares of its runs, of which one on m targets counts an m-th on each, plus the least cost of the next targets) is not
below the best plan, or (b) a target differs from one that was passed over before by nothing but a cost that is no less: the two
can be exchanged. After ``limit`` steps it stops with the best plan found, which is valid but not proved to be the least.

Naive equivalent: all subsets of the runs (``oracles.least_victims``).
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from apportion.core.kernels.bare import bare
from apportion.core.kernels.targets import COSTS, NONE_LEFT

I64 = NDArray[np.int64]

# as in ``effects``
BUILT_ON = {
    "bare": "6b2fd7db475f", "targets": "2a01b8b80016"
}  # fmt: skip

TARGET, ITEM, DEPTH, MISSING, VICTIMS, MARKS, FRAME = range(7)  # of a frame, and how many


@bare
def _less(spent: I64, top: int, best: I64) -> bool:
    for k in range(COSTS):
        if spent[top, k] != best[k]:
            return spent[top, k] < best[k]
    return False


@bare
def _below(bound: I64, top: int, ahead: I64, begin: int, end: int, best: I64) -> bool:
    """Tell whether what is spent at least, and what the targets from ``begin`` to ``end`` cost at least, is below the best plan."""
    for k in range(COSTS):
        least = bound[top, k] + ahead[end, k] - ahead[begin, k]
        if least != best[k]:
            return least < best[k]
    return False


@njit(cache=True)
def _ahead(targets: int, order: I64, floor: I64) -> I64:
    """Return the sums of the least costs of the targets before each position."""
    sums = np.empty((targets + 1, COSTS), dtype=np.int64)
    sums[0] = 0
    for position in range(targets):
        for k in range(COSTS):  # written out: an expression over arrays makes a new one each time
            sums[position + 1, k] = sums[position, k] + floor[order[position], k]
    return sums


@njit(cache=True)
def _gives(targets: int, begin: I64, number: I64, item_entry: I64, item_gain: I64) -> I64:
    """Return per item what it and those after it on its target give."""
    gives = np.zeros(len(item_entry) + 1, dtype=np.int64)
    for position in range(targets):
        later = 0
        for i in range(begin[position] + number[position] - 1, begin[position] - 1, -1):
            later += item_gain[item_entry[i]]
            gives[i] = later
    return gives


@bare
def _shares_are_costs(begin: I64, number: I64, item_entry: I64, entry_next: I64, alloc_run: I64, cost: I64, share: I64) -> bool:
    """Tell whether each run is on one target only: then what is spent at least is what is spent."""
    for position in range(len(begin)):
        for i in range(begin[position], begin[position] + number[position]):
            entry = item_entry[i]
            while entry >= 0:
                run = alloc_run[entry]
                for k in range(COSTS):
                    if cost[run, k] != share[run, k]:
                        return False
                entry = entry_next[entry]
    return True


@bare
def _largest(count: int, victims: I64, milli: I64) -> int:
    largest = 0
    for v in range(count):
        largest = max(largest, milli[victims[v]])
    return largest


@bare
def _walk(
    wanted: int, targets: int, class_of: I64, missing: I64, begin: I64, number: I64, gives: I64, item_entry: I64, item_gain: I64,
    entry_next: I64, alloc_run: I64, cost: I64, share: I64, leaf: I64, milli: I64, room: I64, needed: int, widest: int, limit: int,
    best: I64, chosen: I64, ahead: I64, spent: I64, bound: I64, alike: bool, taken: I64, victims: I64, given: I64, smallest: I64,
    small_before: I64, frames: I64, marked: I64, marks: I64,
) -> int:  # fmt: skip
    """Do as ``search`` says, with targets by their position in its order.

    A loop of its own that counts no references: ten thousands of steps are taken for a gang. Row ``top`` of ``spent``, and of
    ``bound`` where shares are no costs, is what the items taken so far cost; giving the last one back goes a row up.
    """
    top, steps, depth, t, j, gone, gone_milli, marked_count, found = 0, 0, 0, 0, 0, 0, 0, 0, False
    left = missing[0] if targets > 0 else 0
    fresh, known = True, False  # nothing of the target is taken; it is known to be below the best plan
    while True:
        while t + (wanted - depth) <= targets:
            if fresh and j == 0:
                if class_of[t] >= 0 and marked[class_of[t]] == 1:
                    t, known = t + 1, False
                    left = missing[t] if t < targets else 0
                    continue
                if not known and not _below(bound, top, ahead, t, t + wanted - depth, best):
                    break
            known = False
            if j < number[t] and gives[begin[t] + j] >= left:
                steps += 1
                if steps > limit:
                    return steps if found else -steps
                # take the item
                entry, allowed, after = item_entry[begin[t] + j], True, top + 1
                rest = left - item_gain[entry]
                frames[top, TARGET], frames[top, ITEM], frames[top, DEPTH], frames[top, MISSING] = t, j, depth, left
                frames[top, VICTIMS], frames[top, MARKS] = gone, marked_count
                for k in range(COSTS):
                    spent[after, k] = spent[top, k]
                    if not alike:
                        bound[after, k] = bound[top, k]
                while entry >= 0:
                    run = alloc_run[entry]
                    if not alike:
                        for k in range(COSTS):
                            bound[after, k] += share[run, k]
                    if taken[run] == 0:
                        taken[run], victims[gone] = 1, run
                        for k in range(COSTS):
                            spent[after, k] += cost[run, k]
                        gone_milli += milli[run]
                        y = leaf[run]
                        if y >= 0:
                            small_before[gone] = smallest[y]
                            given[y] += milli[run]
                            smallest[y] = min(smallest[y], milli[run])
                            allowed = allowed and 2 * given[y] - smallest[y] < room[y]
                        gone += 1
                    entry = entry_next[entry]
                top = after
                allowed = allowed and gone_milli <= needed + widest and (alike or _less(spent, top, best))
                # what is still missing on this target costs something too; not counted
                allowed = allowed and _below(bound, top, ahead, t + 1, min(targets, t + wanted - depth), best)
                if allowed and rest <= 0 and depth + 1 == wanted:
                    if gone_milli <= needed + _largest(gone, victims, milli):
                        for k in range(COSTS):
                            best[k] = spent[top, k]
                        for run in range(len(chosen)):
                            chosen[run] = taken[run]
                        found = True
                    allowed = False
                if not allowed:
                    break
                left, j, fresh = rest, j + 1, False
                if rest <= 0:
                    depth, t, j, fresh, known = depth + 1, t + 1, 0, True, True
                    left = missing[t] if t < targets else 0
                continue
            if fresh:
                if class_of[t] >= 0 and marked[class_of[t]] == 0:
                    marked[class_of[t]] = 1
                    marks[marked_count] = class_of[t]
                    marked_count += 1
                t, j = t + 1, 0
                left = missing[t] if t < targets else 0
                continue
            break
        if top == 0:
            return steps if found else -steps
        # give the last item back and go on behind it
        top -= 1
        t, j, depth, left = frames[top, TARGET], frames[top, ITEM] + 1, frames[top, DEPTH], frames[top, MISSING]
        fresh, known = top == 0 or frames[top - 1, TARGET] != t, False
        while marked_count > frames[top, MARKS]:
            marked_count -= 1
            marked[marks[marked_count]] = 0
        while gone > frames[top, VICTIMS]:
            gone -= 1
            run = victims[gone]
            taken[run] = 0
            gone_milli -= milli[run]
            if leaf[run] >= 0:
                given[leaf[run]] -= milli[run]
                smallest[leaf[run]] = small_before[gone]


@njit(cache=True)
def search(
    wanted: int, targets: int, order: I64, class_of: I64, missing: I64, first: I64, count: I64, item_entry: I64, item_gain: I64,
    entry_next: I64, alloc_run: I64, cost: I64, share: I64, floor: I64, leaf: I64, milli: I64, room: I64, needed: I64, limit: int,
    best: I64, chosen: I64,
) -> int:  # fmt: skip
    """Set ``chosen[run]`` = 1 for the runs of the best plan; returns the steps taken, negative when there is none below ``best``.

    ``best`` is the cost of the best plan known before (``NONE_LEFT`` = none), and gets that of the one found.

    ``order`` lists the targets by ``floor``; ``class_of`` >= 0 marks targets that can be exchanged. ``item_entry`` is sorted by
    cost within each target. ``leaf`` of a run is -1 when its budget does not matter (idle cycles). ``needed[0]`` is what the
    beneficiary asks for, ``needed[1]`` the largest run that may go. ``room[leaf]`` is 2 * (running - allowance).
    """
    runs, begin, number, most = len(leaf), first[order], count[order], 0
    for items in number:
        most = max(most, items)
    frames = 2 + min(len(item_entry), wanted * most)  # one per item taken
    alike = _shares_are_costs(begin, number, item_entry, entry_next, alloc_run, cost, share)
    spent = np.zeros((frames, COSTS), dtype=np.int64)
    bound = spent if alike else np.zeros((frames, COSTS), dtype=np.int64)
    return _walk(
        wanted, targets, class_of[order], missing[order], begin, number, _gives(targets, begin, number, item_entry, item_gain),
        item_entry, item_gain, entry_next, alloc_run, cost, share, leaf, milli, room, needed[0], needed[1], limit, best, chosen,
        _ahead(targets, order, floor), spent, bound, alike, np.zeros(runs, dtype=np.int64), np.empty(runs, dtype=np.int64),
        np.zeros(len(room), dtype=np.int64), np.full(len(room), NONE_LEFT), np.empty(runs, dtype=np.int64),
        np.empty((frames, FRAME), dtype=np.int64), np.zeros(len(class_of), dtype=np.int64), np.empty(targets, dtype=np.int64),
    )  # fmt: skip

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

I64 = NDArray[np.int64]

NONE_LEFT = 1 << 60


@njit(cache=True)
def _less(a: I64, b: I64) -> bool:
    for k in range(len(a)):
        if a[k] != b[k]:
            return a[k] < b[k]
    return False


@njit(cache=True)
def _ahead(targets: int, order: I64, floor: I64) -> I64:
    """Return the sums of the least costs of the targets before each position."""
    sums = np.empty((targets + 1, floor.shape[1]), dtype=np.int64)
    sums[0] = 0
    for position in range(targets):
        for k in range(floor.shape[1]):  # written out: an expression over arrays makes a new one each time
            sums[position + 1, k] = sums[position, k] + floor[order[position], k]
    return sums


@njit(cache=True)
def _gives(targets: int, order: I64, first: I64, count: I64, item_entry: I64, item_gain: I64) -> I64:
    """Return per item what it and those after it on its target give."""
    gives = np.zeros(len(item_entry) + 1, dtype=np.int64)
    for position in range(targets):
        start, later = first[order[position]], 0
        for i in range(start + count[order[position]] - 1, start - 1, -1):
            later += item_gain[item_entry[i]]
            gives[i] = later
    return gives


@njit(cache=True)
def _take(
    entry: int, entry_next: I64, alloc_run: I64, cost: I64, share: I64, leaf: I64, milli: I64, room: I64, taken: I64, victims: I64,
    tally: I64, given: I64, smallest: I64, small_before: I64, spent: I64, bound: I64,
) -> bool:  # fmt: skip
    """Add an item's runs to the plan; False when a leaf gives more than it may. ``tally`` = (victims, their milli-GPU)."""
    allowed = True
    while entry >= 0:
        run = alloc_run[entry]
        for k in range(len(bound)):
            bound[k] += share[run, k]
        if taken[run] == 0:
            taken[run] = 1
            victims[tally[0]] = run
            for k in range(len(spent)):
                spent[k] += cost[run, k]
            tally[1] += milli[run]
            y = leaf[run]
            if y >= 0:
                small_before[tally[0]] = smallest[y]
                given[y] += milli[run]
                smallest[y] = min(smallest[y], milli[run])
                allowed = allowed and 2 * given[y] - smallest[y] < room[y]
            tally[0] += 1
        entry = entry_next[entry]
    return allowed


@njit(cache=True)
def _give_back(
    until: int, leaf: I64, milli: I64, taken: I64, victims: I64, tally: I64, given: I64, smallest: I64, small_before: I64
) -> None:
    """Take the last victims out of the plan until ``until`` are left."""
    while tally[0] > until:
        tally[0] -= 1
        run = victims[tally[0]]
        taken[run] = 0
        tally[1] -= milli[run]
        if leaf[run] >= 0:
            given[leaf[run]] -= milli[run]
            smallest[leaf[run]] = small_before[tally[0]]


@njit(cache=True)
def _largest(count: int, victims: I64, milli: I64) -> int:
    largest = 0
    for v in range(count):
        largest = max(largest, milli[victims[v]])
    return largest


@njit(cache=True)
def _note(spent: I64, bound: I64, top: int, at_cost: I64, at_bound: I64) -> None:
    for k in range(len(spent)):
        at_cost[top, k], at_bound[top, k] = spent[k], bound[k]


@njit(cache=True)
def _most_items(targets: int, order: I64, count: I64) -> int:
    most = 0
    for position in range(targets):
        most = max(most, count[order[position]])
    return most


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
    costs, runs = cost.shape[1], len(leaf)
    ahead = _ahead(targets, order, floor)
    gives = _gives(targets, order, first, count, item_entry, item_gain)
    taken = np.zeros(runs, dtype=np.int64)
    given = np.zeros(len(room), dtype=np.int64)
    # per frame: one item taken
    depth_most = 1 + min(len(item_entry), wanted * _most_items(targets, order, count))
    at_target, at_item = np.zeros(depth_most, dtype=np.int64), np.zeros(depth_most, dtype=np.int64)
    at_depth, at_missing = np.zeros(depth_most, dtype=np.int64), np.zeros(depth_most, dtype=np.int64)
    at_marks = np.zeros(depth_most, dtype=np.int64)
    at_cost, at_bound = np.zeros((depth_most, costs), dtype=np.int64), np.zeros((depth_most, costs), dtype=np.int64)
    victims, at_victims = np.zeros(runs + 1, dtype=np.int64), np.zeros(depth_most, dtype=np.int64)
    small_before = np.zeros(runs + 1, dtype=np.int64)
    smallest = np.full(len(room), NONE_LEFT, dtype=np.int64)
    marked, marks = np.zeros(len(class_of), dtype=np.int64), np.zeros(targets + 1, dtype=np.int64)
    marked_count = 0
    found = False
    spent, bound, sums = np.zeros(costs, dtype=np.int64), np.zeros(costs, dtype=np.int64), np.zeros(costs, dtype=np.int64)
    tally = np.zeros(2, dtype=np.int64)
    top, steps, depth, t, j = 0, 0, 0, 0, 0
    left = missing[order[0]] if targets > 0 else 0
    while True:
        while t + (wanted - depth) <= targets:
            target = order[t]
            fresh = top == 0 or at_target[top - 1] != t
            if fresh and j == 0:
                if class_of[target] >= 0 and marked[class_of[target]] == 1:
                    t += 1
                    left = missing[order[t]] if t < targets else 0
                    continue
                for k in range(costs):
                    sums[k] = bound[k] + ahead[t + wanted - depth, k] - ahead[t, k]
                if not _less(sums, best):
                    break
            if j < count[target] and gives[first[target] + j] >= left:
                steps += 1
                if steps > limit:
                    return steps if found else -steps
                # take the item
                _note(spent, bound, top, at_cost, at_bound)
                at_victims[top] = tally[0]
                allowed = _take(
                    item_entry[first[target] + j], entry_next, alloc_run, cost, share, leaf, milli, room, taken, victims, tally,
                    given, smallest, small_before, spent, bound,
                )  # fmt: skip
                allowed = allowed and tally[1] <= needed[0] + needed[1] and _less(spent, best)
                rest = left - item_gain[item_entry[first[target] + j]]
                if allowed:
                    open_ = wanted - depth - 1
                    for k in range(costs):
                        sums[k] = bound[k] + ahead[min(targets, t + 1 + open_), k] - ahead[t + 1, k]
                    # what is still missing on this target costs something too; not counted
                    allowed = _less(sums, best)
                if allowed and rest <= 0 and depth + 1 == wanted:
                    if tally[1] <= needed[0] + _largest(tally[0], victims, milli):
                        best[:], chosen[:], found = spent, taken, True
                    allowed = False
                at_target[top], at_item[top], at_depth[top], at_missing[top] = t, j, depth, left
                at_marks[top] = marked_count
                top += 1
                if not allowed:
                    break
                left, j = rest, j + 1
                if rest <= 0:
                    depth, t, j = depth + 1, t + 1, 0
                    left = missing[order[t]] if t < targets else 0
                continue
            if fresh:
                if class_of[target] >= 0 and marked[class_of[target]] == 0:
                    marked[class_of[target]] = 1
                    marks[marked_count] = class_of[target]
                    marked_count += 1
                t, j = t + 1, 0
                left = missing[order[t]] if t < targets else 0
                continue
            break
        if top == 0:
            return steps if found else -steps
        # give the last item back and go on behind it
        top -= 1
        t, j, depth, left = at_target[top], at_item[top] + 1, at_depth[top], at_missing[top]
        while marked_count > at_marks[top]:
            marked_count -= 1
            marked[marks[marked_count]] = 0
        _give_back(at_victims[top], leaf, milli, taken, victims, tally, given, smallest, small_before)
        for k in range(costs):
            spent[k], bound[k] = at_cost[top, k], at_bound[top, k]

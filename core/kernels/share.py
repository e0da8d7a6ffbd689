"""Hierarchical water-filling and the allowance, in integers.

Water-filling, top down over the budget tree: the root gets min(capacity, its demand); in a node, children whose demand
is at most their part of what is left get their demand, the others get ``floor(left * w / W)`` plus the largest remainders
(ties: lower row). Sums are exact on every level. Naive equivalent: sort children by demand/weight, serve in that order
(``oracles.water_fill``); here satisfied children are taken out in passes, which reaches the same fixed point because the
level (left / W) only rises.

Allowance of a leaf (FUNDING rule 1.4): ``f = max(0, min(d, a + L // tau))``, floor division also for negative L; when the
sum of f exceeds the sum of a, catch-up is paid only out of what over-served leaves give up.

Pure functions of their columns; budgets are rows in which a parent precedes its children.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from apportion.core.kernels.bare import making
from apportion.core.units import NEVER_MS

I64 = NDArray[np.int64]

# as in ``effects``
BUILT_ON = {"bare": "6b2fd7db475f"}

FEW = 32  # rows that are sorted by insertion
ALL_MILLI = 1 << 60  # more than any allowance


@njit(cache=True)
def _fill_children(first: int, next_sibling: I64, left: int, weight: I64, demand: I64, filled: I64, rest: I64) -> None:
    """Divide ``left`` over the children that start at ``first``; ``rest`` is scratch for remainders."""
    total_weight = 0
    child = first
    while child >= 0:
        filled[child] = -1
        total_weight += weight[child]
        child = next_sibling[child]
    while True:
        changed = False
        child = first
        while child >= 0:
            if filled[child] < 0:
                serves = demand[child] * total_weight <= left * weight[child]
                if demand[child] == 0 or (total_weight > 0 and weight[child] > 0 and serves):
                    filled[child] = demand[child]
                    left -= demand[child]
                    total_weight -= weight[child]
                    changed = True
            child = next_sibling[child]
        if not changed:
            break
    open_children = 0
    missing = left
    child = first
    while child >= 0:
        if filled[child] < 0:
            open_children += 1
            if total_weight > 0:
                rest[child] = left * weight[child] % total_weight
                missing -= left * weight[child] // total_weight
        child = next_sibling[child]
    if open_children == 0:
        return
    if total_weight == 0:
        # only budgets without a share are left: what nobody is entitled to goes to them in row order
        child = first
        while child >= 0:
            if filled[child] < 0:
                filled[child] = min(left, demand[child])
                left -= filled[child]
            child = next_sibling[child]
        return
    child = first
    while child >= 0:
        if filled[child] < 0:
            filled[child] = left * weight[child] // total_weight
        else:
            rest[child] = -1
        child = next_sibling[child]
    for _ in range(missing):
        best = -1
        child = first
        while child >= 0:
            if rest[child] >= 0 and (best < 0 or rest[child] > rest[best]):
                best = child
            child = next_sibling[child]
        filled[best] += 1
        rest[best] = -1


@making
def water_fill(
    root: int, capacity: int, rows: int, pool: I64, parent: I64, weight: I64, leaf_demand: I64, filled: I64
) -> None:
    """Fill ``filled[:rows]`` for the tree under ``root`` (rows of the same pool); other rows are left alone.

    ``leaf_demand`` holds demand at leaves (milli-GPU); demand above capacity counts as capacity.
    """
    demand = np.zeros(rows, dtype=np.int64)
    first_child = np.full(rows, -1, dtype=np.int64)
    next_sibling = np.full(rows, -1, dtype=np.int64)
    rest = np.full(rows, -1, dtype=np.int64)
    for row in range(rows - 1, root - 1, -1):
        if pool[row] != pool[root]:
            continue
        if first_child[row] < 0:
            demand[row] = leaf_demand[row]
        demand[row] = min(demand[row], capacity)
        above = parent[row]
        if above >= 0:
            demand[above] += demand[row]
            next_sibling[row] = first_child[above]
            first_child[above] = row
    filled[root] = demand[root]
    for row in range(root, rows):
        if pool[row] == pool[root] and first_child[row] >= 0:
            _fill_children(first_child[row], next_sibling, filled[row], weight, demand, filled, rest)


@making
def lag_rates(
    roots: I64,
    pools: int,
    rows: int,
    pool: I64,
    parent: I64,
    weight: I64,
    running: I64,
    pending: I64,
    barred: I64,
    rates: I64,
) -> None:
    """Fill ``rates`` (milli-GPU, rule 1.2) of every line: its water-fill of the delivered GPUs minus what it holds.

    What waits on a ``barred`` line is no demand; what it runs is.
    """
    demand = np.zeros(rows, dtype=np.int64)
    delivered = np.zeros(rows, dtype=np.int64)
    for row in range(rows):
        demand[row] = running[row] + (pending[row] if barred[row] == 0 else 0)
    for p in range(pools):
        water_fill(roots[p], running[roots[p]], rows, pool, parent, weight, demand, delivered)
    for row in range(rows):
        rates[row] = delivered[row] - running[row]


@njit(cache=True)
def allowances(
    root: int,
    capacity: int,
    horizon_ms: int,
    rows: int,
    pool: I64,
    children: I64,
    demand: I64,
    entitled: I64,
    lag_us: I64,
    barred: I64,
    wanted: I64,
    allowance: I64,
) -> tuple[int, int]:
    """Fill ``allowance`` for the leaves of ``root``'s pool; a leaf with ``barred`` gets 0. All milli-GPU but ``lag_us``.

    ``wanted`` is the same before the cap. Returns the cap's two numbers: the sum of catch-up that leaves want, and what other
    leaves give up; catch-up is scaled by the second over the first where it is less.
    """
    sum_entitled = 0
    sum_allowed = 0
    sum_kept = 0
    for row in range(root, rows):
        if pool[row] != pool[root] or children[row] > 0:
            continue
        sum_entitled += entitled[row]
        want = min(min(demand[row], capacity), entitled[row] + lag_us[row] // horizon_ms)
        if want < 0 or barred[row] > 0:
            want = 0
        wanted[row] = want
        allowance[row] = want
        sum_allowed += want
        sum_kept += min(want, entitled[row])
    extra = sum_allowed - sum_kept
    room = sum_entitled - sum_kept
    if extra <= room:
        return extra, room
    for row in range(root, rows):
        if pool[row] != pool[root] or children[row] > 0 or allowance[row] <= entitled[row]:
            continue
        above = allowance[row] - entitled[row]
        allowance[row] = entitled[row] + above * room // extra
    return extra, room


@njit(cache=True)
def sum_up(root: int, rows: int, pool: I64, parent: I64, children: I64, values: I64) -> None:
    """Make every inner row of the pool the sum of its leaves, in place."""
    for row in range(root, rows):
        if pool[row] == pool[root] and children[row] > 0:
            values[row] = 0
    for row in range(rows - 1, root, -1):
        if pool[row] == pool[root] and parent[row] >= 0:
            values[parent[row]] += values[row]


@njit(cache=True)
def next_leaf(
    root: int, rows: int, pool: I64, parent: I64, children: I64, weight: I64, allowance: I64, running: I64, ready: I64
) -> int:
    """Return the leaf to serve next among leaves with ``ready`` > 0, or -1.

    From the root down, the child with the largest (allowance - running) / weight that has a ready leaf below it; compared by
    cross-multiplication, ties to the lower row; a weight of 0 counts as one millionth of a share.
    """
    below = np.zeros(rows, dtype=np.int64)
    for row in range(rows - 1, root - 1, -1):
        if pool[row] != pool[root]:
            continue
        if children[row] == 0 and ready[row] > 0:
            below[row] = 1
        if below[row] > 0 and parent[row] >= 0:
            below[parent[row]] = 1
    if below[root] == 0:
        return -1
    best = np.full(rows, -1, dtype=np.int64)
    for row in range(root + 1, rows):
        if pool[row] != pool[root] or below[row] == 0:
            continue
        above = parent[row]
        champion = best[above]
        if champion < 0:
            best[above] = row
            continue
        mine = (allowance[row] - running[row]) * max(1, weight[champion])
        other = (allowance[champion] - running[champion]) * max(1, weight[row])
        if mine > other:
            best[above] = row
    row = root
    while children[row] > 0:
        row = best[row]
    return row


@njit(cache=True)
def _insert_in_order(rows: I64, priority: I64, placed_ms: I64, seq: I64) -> None:
    """Sort a few runs by priority descending, start, sequence of submission: by insertion, in place."""
    for k in range(1, len(rows)):
        run = rows[k]
        at = k
        while at > 0:
            other = rows[at - 1]
            if priority[other] != priority[run]:
                ahead = priority[other] > priority[run]
            elif placed_ms[other] != placed_ms[run]:
                ahead = placed_ms[other] < placed_ms[run]
            else:
                ahead = seq[other] <= seq[run]  # replicas of a service share one: then the run's row
            if ahead:
                break
            rows[at] = other
            at -= 1
        rows[at] = run


@njit(cache=True)
def funded_runs(
    walked: NDArray[np.uint8], leaf: I64, milli: I64, workload: I64, priority: I64, placed_ms: I64, seq: I64, lines: int,
    allowance: I64, within: I64, before: I64, least: I64, most: I64,
) -> None:  # fmt: skip
    """Walk the runs of each leaf in order; ``within[run]`` = 1 while at least half of the run fits its allowance (rule 1.5).

    The order is priority, start, submission, row. A run is funded while ``2 * cum + s <= 2 * f``; the first of a leaf that
    fails makes it and all later ones unfunded. ``before[run]`` gets the funded milli-GPU ahead of it. Runs not ``walked`` are left
    alone. The same runs of a line are funded so long as ``least <= 2 * f < most``.
    """
    first = np.zeros(lines + 1, dtype=np.int64)
    for run in range(len(walked)):
        if walked[run] > 0:
            first[leaf[run] + 1] += 1
    for line in range(lines):
        first[line + 1] += first[line]
    rows, at = np.empty(first[lines], dtype=np.int64), first.copy()
    # of the run's workload, side by side: the misses of a loop that does nothing else overlap
    priority_of, seq_of = np.empty(len(walked), dtype=np.int64), np.empty(len(walked), dtype=np.int64)
    for run in range(len(walked)):
        priority_of[run], seq_of[run] = priority[workload[run]], seq[workload[run]]
    for run in range(len(walked)):
        if walked[run] > 0:
            rows[at[leaf[run]]] = run
            at[leaf[run]] += 1
    for line in range(lines):
        part = rows[first[line] : first[line + 1]]
        if len(part) <= FEW:
            _insert_in_order(part, priority_of, placed_ms, seq_of)
        else:
            part = part[np.argsort(seq_of[part], kind="mergesort")]
            part = part[np.argsort(placed_ms[part], kind="mergesort")]
            part = part[np.argsort(-priority_of[part], kind="mergesort")]
        funded_milli, open_ = 0, True
        least[line], most[line] = -ALL_MILLI, ALL_MILLI
        for run in part:
            before[run] = funded_milli
            needed = 2 * funded_milli + milli[run]
            if open_ and needed > 2 * allowance[line]:
                open_, most[line] = False, needed
            if open_:
                within[run] = 1
                funded_milli += milli[run]
                least[line] = max(least[line], needed)


@njit(cache=True)
def changed_payers(
    now_ms: int, runs: int, phase: I64, placed: int, started: int, idle_cycles: I64, idle_since_ms: I64, demotes: I64, pool: I64,
    reserved: I64, protected_until_ms: I64, payer: I64, paid_by: I64, leaf: I64, milli: I64, workload: I64, priority: I64,
    placed_ms: I64, seq: I64, lines: int, allowance: I64, changed: I64, before: I64, least: I64, most: I64,
) -> tuple[int, int]:  # fmt: skip
    """Fill ``changed`` with the runs, by row, whose payer is not who should pay now; returns how many, and until when that holds.

    A run in progress is paid by its budget inside the protected time that was reserved, and while it is within the allowance
    (``funded_runs``), which is not asked of work on idle cycles, nor of who was demoted for doing none. ``paid_by`` says which
    payer that is: (nobody, the budget). It holds until the first of those protected times is over, if allowances stay within
    ``least`` and ``most``.
    """
    walked, within = np.zeros(runs, dtype=np.uint8), np.zeros(runs, dtype=np.int64)
    for run in range(runs):
        if (phase[run] == placed or phase[run] == started) and idle_cycles[run] == 0:
            walked[run] = 1
            if idle_since_ms[run] > 0 and demotes[pool[run]] == 1:
                walked[run] = 0
    funded_runs(
        walked, leaf, milli, workload, priority, placed_ms, seq, lines, allowance, within, before, least, most
    )
    count, until_ms = 0, NEVER_MS
    for run in range(runs):
        if phase[run] == placed or phase[run] == started:
            promised = reserved[run] == 1 and now_ms < protected_until_ms[run]
            if promised:
                until_ms = min(until_ms, protected_until_ms[run])
            if payer[run] != paid_by[1 if promised else within[run]]:
                changed[count] = run
                count += 1
    return count, until_ms

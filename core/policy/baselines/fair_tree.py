"""Slurm's Fair Tree: budgets ranked by decayed usage level by level, without preemption.

By its public documentation: the *level fairshare* of a line is its share among its siblings over its usage among them (no share:
0; no usage: infinite). From the root down siblings are sorted by it, highest first, and everything below a line is ranked before
everything below the next one. Ties: leaves tie; lines with children that tie are merged, their children are sorted as if they were
siblings; a leaf that ties with such lines gets the rank of the highest below them.

Level fairshares are compared as fractions of integers, so a tie is a tie. Pure functions; usage is that of ``usage.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from apportion.core.policy.baselines.waiting import Fixed, waiting_in
from apportion.core.policy.funding import Shares
from apportion.core.state.state import State

I64 = NDArray[np.int64]
Level = tuple[int, Fraction]  # 0 = no share, 1 = by the fraction, 2 = no usage


class FairTree:
    """Order by rank of the budget, inside equal ranks by priority and submission; no victims."""

    preempts = False

    def order(self, state: State, shares: Shares, pool: int) -> Fixed:
        """By rank, then priority, then sequence of submission."""
        table, rows = state.workload, waiting_in(state, pool)
        rank = np.array(ranks_in(state, pool), dtype=np.int64)
        keys = (table.event_seq[rows], -table.priority[rows], rank[table.budget[rows]])
        return Fixed(state, rows[np.lexsort(keys)])

    def victims(self, state: State, shares: Shares, workload: int, runs: I64) -> Iterator[int]:
        """Nobody."""
        return iter(())

    def proof(self, state: State, shares: Shares, workload: int, run: int, gone: list[int]) -> dict[str, int]:
        """Nothing, for nobody goes."""
        return {}


def ranks_in(state: State, pool: int) -> list[int]:
    """Return per budget row its rank in the pool; see ``ranks``."""
    budget, root = state.budget, int(state.pool.root[pool])
    parents = [
        int(parent) if int(owner) == pool else -1
        for owner, parent in zip(budget.column("pool"), budget.column("parent"), strict=True)
    ]
    return ranks(root, parents, [int(share) for share in budget.column("share_ppm")], [int(u) for u in budget.column("usage_us")])


def levels(parents: Sequence[int], shares: Sequence[int], usage: Sequence[int]) -> list[Level]:
    """Return the level fairshare of every line among its siblings; ``parents`` precede their children, usage counts at leaves."""
    used, shared = list(usage), [0] * len(parents)  # own and below; of the children
    for row in range(len(parents) - 1, -1, -1):
        if parents[row] >= 0:
            used[parents[row]] += used[row]
            shared[parents[row]] += shares[row]
    found: list[Level] = []
    for row, parent in enumerate(parents):
        if parent < 0 or not shares[row]:
            found.append((0, Fraction(0)))
        elif not used[row]:
            found.append((2, Fraction(0)))
        else:
            found.append((1, Fraction(shares[row] * used[parent], shared[parent] * used[row])))
    return found


def ranks(root: int, parents: Sequence[int], shares: Sequence[int], usage: Sequence[int]) -> list[int]:
    """Return per leaf below ``root`` how many leaves come before it, -1 for all other rows."""
    level = levels(parents, shares, usage)
    below: list[list[int]] = [[] for _ in parents]
    for row, parent in enumerate(parents):
        if parent >= 0:
            below[parent].append(row)
    found = [-1] * len(parents)
    placed = 0

    def visit(rows: list[int], rank: int) -> None:
        nonlocal placed
        best_first = sorted(rows, key=lambda row: level[row], reverse=True)  # stable: ties keep their order
        for _level, equals in groupby(best_first, key=lambda row: level[row]):
            tied = list(equals)
            leaves = [row for row in tied if not below[row]]
            for leaf in leaves:
                found[leaf] = rank
            placed += len(leaves)
            merged = [child for row in tied for child in below[row]]
            if merged:
                visit(merged, rank)
            rank = placed

    visit(below[root], 0)
    return found

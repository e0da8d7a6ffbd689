"""Share of the pool's GPUs now over weight, without history: dominant resource fairness where the one resource is GPUs.

A pool has GPUs of one class and nothing else is counted, so a budget's dominant share is what it runs over what it is entitled to.
Preemption is that of point-in-time fair sharing as Kueue documents it: two budgets are compared at the two lines below the first
one they have in common; a run may be asked to go when the taker's line, with the new workload, stays strictly below what the
victim's line has before it loses the run. The larger of two shares falls with every move, so one cycle cannot loop; nothing
remembers what was before, which is what this baseline is here to show.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from apportion.core.policy.baselines.waiting import LeastShare
from apportion.core.policy.funding import Shares
from apportion.core.state.state import State
from apportion.core.units import MAX_POOL_MILLI, PPM

I64 = NDArray[np.int64]


class Drf:
    """Least share first; victims are runs of the budget with the largest share, least important first, then the latest."""

    preempts = True

    def order(self, state: State, shares: Shares, pool: int) -> LeastShare:
        """By share now, again after every start."""
        return LeastShare(state, shares.running, pool)

    def victims(self, state: State, shares: Shares, workload: int, runs: I64) -> Iterator[int]:
        """Of the line most over its share, while the rule allows it: the least important, then the latest, then the higher row."""
        table, run = state.workload, state.run
        taker, need = int(table.budget[workload]), int(table.gpus_milli[workload])
        freed: dict[int, int] = {}
        left: dict[int, list[int]] = {}  # per leaf, the first to go at the end
        for leaf in (int(line) for line in np.unique(run.budget[runs])):
            if leaf != taker and _allowed(_lines(state, shares, taker, leaf, freed), need):
                rows = runs[run.budget[runs] == leaf]
                keys = (rows, run.placed_ms[rows], -table.priority[run.workload[rows]])
                left[leaf] = [int(row) for row in rows[np.lexsort(keys)]]
        while left:
            best, best_key = -1, (0, 0)
            for leaf in list(left):
                told = _lines(state, shares, taker, leaf, freed)
                if not left[leaf] or not _allowed(told, need):
                    del left[leaf]  # shares of others only fall, so it stays so
                    continue
                key = (told["victim_line_milli"] * MAX_POOL_MILLI * PPM // told["victim_weight_ppm"], -leaf)
                if best < 0 or key > best_key:
                    best, best_key = leaf, key
            if best >= 0:
                victim = left[best].pop()
                _free(state, freed, victim)
                yield victim

    def proof(self, state: State, shares: Shares, workload: int, run: int, gone: list[int]) -> dict[str, int]:
        """Running and weight of the two lines compared."""
        freed: dict[int, int] = {}
        for row in gone:
            _free(state, freed, row)
        return _lines(state, shares, int(state.workload.budget[workload]), int(state.run.budget[run]), freed)


def _free(state: State, freed: dict[int, int], run: int) -> None:
    """Count the GPUs of a run as given up by its budget and by all above it."""
    for line in path(state, int(state.run.budget[run])):
        freed[line] = freed.get(line, 0) + int(state.run.gpus_milli[run])


def _lines(state: State, shares: Shares, taker: int, leaf: int, freed: dict[int, int]) -> dict[str, int]:
    mine, theirs = fork(state, taker, leaf)
    return {
        "beneficiary_line_milli": int(shares.running[mine]),
        "beneficiary_weight_ppm": max(1, int(state.budget.share_ppm[mine])),
        "victim_line_milli": int(shares.running[theirs]) - freed.get(theirs, 0),
        "victim_weight_ppm": max(1, int(state.budget.share_ppm[theirs])),
    }


def _allowed(told: dict[str, int], need_milli: int) -> bool:
    """The taker's line, with the new workload, stays strictly below the victim's as it is now."""
    taken_milli = told["beneficiary_line_milli"] + need_milli
    return taken_milli * told["victim_weight_ppm"] < told["victim_line_milli"] * told["beneficiary_weight_ppm"]


def path(state: State, line: int) -> list[int]:
    """Return a budget line and all above it, from below."""
    lines = []
    while line >= 0:
        lines.append(line)
        line = int(state.budget.parent[line])
    return lines


def fork(state: State, one: int, other: int) -> tuple[int, int]:
    """Return the two lines below the first common one of two different leaves of a pool."""
    ones, others = path(state, one), path(state, other)
    while ones[-2] == others[-2]:
        ones.pop()
        others.pop()
    return ones[-2], others[-2]

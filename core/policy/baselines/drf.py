"""Share of the pool's GPUs now over weight, without history: dominant resource fairness where the one resource is GPUs.

A pool has GPUs of one class and nothing else is counted, so a budget's dominant share is what it runs over what it is entitled to.
Preemption is that of point-in-time fair sharing as Kueue documents it: two budgets are compared at the two lines below the first
one they have in common; a run may be asked to go when the taker's line, with the new workload, stays strictly below what the
victim's line has before it loses the run. The larger of two shares falls with every move, so one cycle cannot loop; nothing
remembers what was before, which is what this baseline is here to show.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from apportion.core.kernels import lines
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
        mine, theirs = np.empty(state.budget.used, dtype=np.int64), np.empty(state.budget.used, dtype=np.int64)
        lines.takers_forks(
            taker, need, state.budget.parent, state.budget.share_ppm, shares.running, len(runs), runs, run.budget, mine, theirs
        )  # fmt: skip
        forks: dict[int, Fork] = {}
        left: dict[int, list[int]] = {}  # per leaf, the first to go at the end
        for leaf in np.flatnonzero(mine >= 0).tolist():
            forks[leaf] = Fork.at(state, shares, int(mine[leaf]), int(theirs[leaf]))
            rows = runs[run.budget[runs] == leaf]
            keys = (rows, run.placed_ms[rows], -table.priority[run.workload[rows]])
            left[leaf] = rows[np.lexsort(keys)].tolist()
        freed: dict[int, int] = {}  # per line below a fork
        while left:
            best, best_key = -1, (0, 0)
            for leaf in list(left):
                fork = forks[leaf]
                gone_milli = freed.get(fork.theirs, 0)
                if not left[leaf] or not fork.allows(need, gone_milli):
                    del left[leaf]  # what others run only falls, so it stays so
                    continue
                key = ((fork.their_milli - gone_milli) * MAX_POOL_MILLI * PPM // fork.their_weight, -leaf)
                if best < 0 or key > best_key:
                    best, best_key = leaf, key
            if best >= 0:
                victim = left[best].pop()
                line = forks[best].theirs
                freed[line] = freed.get(line, 0) + int(run.gpus_milli[victim])
                yield victim

    def proof(self, state: State, shares: Shares, workload: int, run: int, gone: list[int]) -> dict[str, int]:
        """Running and weight of the two lines compared."""
        fork = Fork.of(state, shares, int(state.workload.budget[workload]), int(state.run.budget[run]))
        gone_milli = sum(
            int(state.run.gpus_milli[row]) for row in gone if fork.theirs in path(state, int(state.run.budget[row]))
        )
        return {
            "beneficiary_line_milli": fork.my_milli,
            "beneficiary_weight_ppm": fork.my_weight,
            "victim_line_milli": fork.their_milli - gone_milli,
            "victim_weight_ppm": fork.their_weight,
        }


class Fork(NamedTuple):
    """The two lines below the first budget that a taker and another leaf have in common: what runs there, and their weights."""

    my_milli: int
    my_weight: int
    theirs: int  # row
    their_milli: int
    their_weight: int

    @classmethod
    def of(cls, state: State, shares: Shares, taker: int, leaf: int) -> Fork:
        """Return where the paths of two different leaves of a pool part."""
        return cls.at(state, shares, *lines.fork(state.budget.parent, taker, leaf))

    @classmethod
    def at(cls, state: State, shares: Shares, mine: int, theirs: int) -> Fork:
        """Return the fork with these two lines."""
        weight, running = state.budget.share_ppm, shares.running
        return cls(int(running[mine]), max(1, int(weight[mine])), theirs, int(running[theirs]), max(1, int(weight[theirs])))

    def allows(self, need_milli: int, gone_milli: int) -> bool:
        """The taker's line, with the new workload, stays strictly below the other as it is now."""
        return (self.my_milli + need_milli) * self.their_weight < (self.their_milli - gone_milli) * self.my_weight


def path(state: State, line: int) -> list[int]:
    """Return a budget line and all above it, from below."""
    lines = []
    while line >= 0:
        lines.append(line)
        line = int(state.budget.parent[line])
    return lines

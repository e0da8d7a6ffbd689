"""Reservations: which nodes are kept for whom, and until when (EASY backfill, for several at once).

Kept are nodes for the first workload of each budget that is funded and cannot start, in fair order, and then for the first in line
of each budget that will be funded before its nodes could be ready: whoever waits only to be funded would otherwise find every node
full of new long work on that day, for a large gang for ever (measured at 3 times demand: gangs of 64 GPUs waited for 10 hours a
hair below their allowance, and their budgets got 0.9 of what they were allowed). Each node's readiness is the instant at which it
has enough GPUs free, by what is known of its runs: the stated limit; under policy ``fair`` for an unfunded run also the end of its
protected time, for it may be asked to go then; for a stopping run the end of its grace; a run that states nothing is taken to end
``UNKNOWN_RUNTIME_MS`` after its start, but for who is not funded yet no node is kept on such a guess. The earliest nodes that
nobody has are kept: until then they take only work that is over before. Reservations are made anew in every cycle, so they die
with their holders.

A node that is drained is kept for nobody until its deadline: whatever starts there must state to be over by then, and so must
whoever takes GPUs there by preemption, the time of his victims to go included. It is kept for a holder only where he would be over.

Pure functions of the state; nothing of it is stored.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from apportion.core.kernels import release, serve
from apportion.core.policy.fitting import earliest_nodes, held_by_runs, releases_of
from apportion.core.state import schema
from apportion.core.state.drained import any_drained
from apportion.core.state.state import State
from apportion.core.units import NEVER_MS, UNKNOWN_RUNTIME_MS

I64 = NDArray[np.int64]


@dataclass
class Reservations:
    """Nodes kept for workloads that wait: for whom (workload row + 1, 0 = nobody) and until when, one entry per node."""

    starts_ms: dict[int, int]  # workload row -> when it could start, 0 = what is known does not say, so nothing is kept
    holder: I64
    until_ms: I64
    closes_ms: I64  # per node the deadline of its drain, by which everything there must be over; 0 = it is not drained
    drains: bool  # a node has one
    grace_ms: int  # the longest that a run in progress may take to go
    planned_ms: dict[int, int] = field(default_factory=dict)  # when others are to start by the plan, if there is one
    profile: I64 = field(default_factory=lambda: np.zeros(0, dtype=np.int64))  # what that plan leaves; no entries = none
    _instants_ms: I64 | None = None  # what was found, until something is kept

    @classmethod
    def none(cls, state: State) -> Reservations:
        """Return the absence of reservations."""
        nothing, node, run = np.zeros(state.node.used, dtype=np.int64), state.node, state.run
        if not any_drained(state):
            return cls({}, nothing, nothing.copy(), nothing.copy(), drains=False, grace_ms=0)
        closes_ms = np.where(node.column("cordoned") == 0, node.column("drain_ms"), 0)
        live = np.flatnonzero(run.column("state"))
        drains = bool(closes_ms.any())
        grace_ms = int(state.workload.grace_ms[run.workload[live]].max()) if drains and len(live) else 0
        return cls({}, nothing, nothing.copy(), closes_ms, drains, grace_ms)

    @property
    def instants_ms(self) -> I64:
        """Return, distinct and ascending, the instants that distinguish one end of a workload from another."""
        if self._instants_ms is None:
            self._instants_ms = serve.instants_of(self.until_ms, self.closes_ms, self.grace_ms)
        return self._instants_ms

    def keep(self, nodes: I64, workload: int, until_ms: int) -> None:
        """Keep nodes for a workload."""
        self.holder[nodes] = workload + 1
        self.until_ms[nodes] = until_ms
        self._instants_ms = None

    def note_kept(self, kept: I64) -> None:
        """Take in for whom a kernel has kept nodes: rows of (workload, instant)."""
        self.starts_ms.update(kept.tolist())
        self._instants_ms = None

    def let_go(self, state: State) -> bool:
        """Give up what is kept for whoever runs now; tell whether there was any."""
        gone = [workload for workload in self.starts_ms if int(state.workload.state[workload]) == schema.RUNNING]
        for workload in gone:
            del self.starts_ms[workload]
            theirs = self.holder == workload + 1
            self.holder[theirs] = self.until_ms[theirs] = 0
        if gone:
            self._instants_ms = None
        return bool(gone)

    def beside(self, state: State, workload: int) -> I64:
        """Return per node 1 where it is kept from the workload: for somebody else, or drained, and it does not say that it is over
        before.
        """
        over_ms = says_over_ms(state, workload)
        theirs = (self.until_ms > 0) & (self.holder != workload + 1) & (self.until_ms < over_ms)
        return np.where(theirs, 1, self.closing(over_ms)) if self.drains else theirs.astype(np.int64)

    def closing(self, over_ms: int) -> I64:
        """Return per node 1 where it is drained by an instant before ``over_ms``."""
        return np.where((self.closes_ms > 0) & (self.closes_ms < over_ms), 1, 0)

    def closing_for_takers(self, state: State, workload: int) -> I64:
        """Return the same of who starts only when his victims are gone."""
        return self.closing(says_over_ms(state, workload) + self.grace_ms)

    def from_takers(self, state: State, workload: int) -> I64:
        """Return per node 1 where it is kept for somebody else: others preempt nobody there, however short they are."""
        theirs = (self.until_ms > 0) & (self.holder != workload + 1)
        return np.where(theirs, 1, self.closing_for_takers(state, workload)) if self.drains else theirs.astype(np.int64)


def says_over_ms(state: State, workload: int) -> int:
    """Return when a workload that starts now is over by what it states, ``NEVER_MS`` if it states nothing."""
    cells = state.workload.cells
    limit_ms = cells.expected_runtime_ms[workload]
    if limit_ms <= 0:
        return NEVER_MS
    return state.counters.time_ms + max(0, limit_ms - cells.progress_ms[workload])


def expected_ends(state: State) -> I64:
    """Return per run row when it is over by what its workload states, never before now; safe work is not done again."""
    run, workload = state.run, state.workload
    rows = run.column("workload")
    limit = workload.expected_runtime_ms[rows]
    left = np.maximum(limit - workload.progress_ms[rows], 0)
    until = np.where(limit > 0, run.column("checkpoint_ms") + left, run.column("placed_ms") + UNKNOWN_RUNTIME_MS)
    result: I64 = np.maximum(until, state.counters.time_ms)
    return result


def expected_end(state: State, run: int) -> int:
    """Return the same of one run."""
    workload = int(state.run.workload[run])
    limit_ms = int(state.workload.expected_runtime_ms[workload])
    if limit_ms:
        left_ms = max(0, limit_ms - int(state.workload.progress_ms[workload]))
        return max(int(state.run.checkpoint_ms[run]) + left_ms, state.counters.time_ms)
    return max(int(state.run.placed_ms[run]) + UNKNOWN_RUNTIME_MS, state.counters.time_ms)


def free_times(state: State, *, guess: bool) -> I64:
    """Return per GPU row when the last run on it is expected to give it back: 0 or any instant that is past = it is free.

    Of a run that states nothing and may not be told to go it is ``NEVER_MS``, unless it is to be guessed.
    """
    memo = state.memo.at(state.moved)
    if memo.free_ms is None:
        memo.free_ms = np.empty((2, state.gpu.used), dtype=np.int64)
        release.free_times(state.run.used, state.alloc.used, held_by_runs(state), memo.free_ms)
    free_ms: I64 = memo.free_ms[int(guess)]
    return free_ms


def reserve(state: State, reservations: Reservations, workload: int, funded_ms: int = 0) -> bool:
    """Keep the earliest nodes that are not kept yet for a workload that cannot start now; tell whether it was done.

    For one that will be funded at ``funded_ms`` only, nothing is done when its nodes would be ready before that, or nobody knows
    when they will be: then every node would idle for a guess.
    """
    free_ms, kept = free_times(state, guess=not funded_ms), reservations.until_ms
    known = releases_of(state, int(state.workload.pool[workload]), guess=not funded_ms)
    closes_ms, left_ms = reservations.closes_ms, says_over_ms(state, workload) - state.counters.time_ms
    if reservations.drains:
        kept = kept.copy()
    while True:  # drained nodes on which it would not be over in time are left out, one look after the other: it starts later
        last_ms, rows = earliest_nodes(state, workload, free_ms, kept, NEVER_MS, known)
        if not reservations.drains:
            break
        late = rows[(closes_ms[rows] > 0) & (closes_ms[rows] < last_ms + left_ms)]
        if last_ms == NEVER_MS or not len(late):
            break
        kept[late] = NEVER_MS
    now_ms = state.counters.time_ms
    if funded_ms and not max(funded_ms, now_ms + 1) <= last_ms < NEVER_MS:  # whoever could start now starts, unfunded
        return False
    reservations.starts_ms[workload] = 0 if last_ms == NEVER_MS else last_ms
    if last_ms < NEVER_MS:
        reservations.keep(rows, workload, last_ms)
    return True

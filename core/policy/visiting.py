"""Starts in other pools: who still waits when every pool has been served, and accepts more than the one in which he waits.

A workload that named several pools waits in the first that could ever take it, its home: there it has its place in the order of its
budget, reservations, preemption, moves. What it cannot have at home now, it may have at once elsewhere: it knocks at the pools of
its wish one after the other, and starts in the first that has the GPUs idle and keeps them for nobody. So nobody who waits in a
pool is overtaken by a guest: all of them were tried before, starts only take space, and reservations and plans hold for guests as
for everybody. A pool's guests are served in its own fair order, as if they waited there: first those whom the pool would fund, then
all others, then work on idle cycles.

Who pays is the budget of the same path in the pool's own tree, the one that was found at the door. It is funded there if its
allowance says so, with what knocks counted as demand: a guest asks for nothing in a pool but in the moment in which it might start,
so it is owed nothing for having waited at home. Counting all who knock at the door at once keeps each of them to his part of it; as
soon as he runs there his demand is real, and his part no less. Inside the budget the guest stands behind all that waits there
(``precedence``): what he takes must not delay the first of it, unless he is over by then. A budget that lost a run in this cycle
starts nothing in that pool.

A pool under ``horizon`` takes no guests: there nobody starts beside the plan.

Nobody is asked to go for a guest, nothing is reserved and nobody moved for him: for that he has his home. So a guest that would be
funded in a full pool waits there no more than elsewhere. Of guests that come to a pool in the same cycle those who named it first
are served before those for whom it is the third, funded or not. After ``SHAPES_TRIED_MAX`` shapes that found no place the rest is
for the next cycle.

Naive equivalent: as long as somebody waits who could start in a pool of his wish, find the first in this order, and start him. A
pure function of the state; writes nothing but ``run.placed``, and the fold then takes the workload to that pool.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from apportion.core.kernels import profile as profile_kernels
from apportion.core.kernels import serve
from apportion.core.policy.emit import Emit
from apportion.core.policy.fitting import find_gpus
from apportion.core.policy.funding import Shares, fundable, shares_with
from apportion.core.policy.precedence import ends_of
from apportion.core.policy.reserving import Reservations, expected_end
from apportion.core.policy.starting import start
from apportion.core.policy.turn import SHAPES_TRIED_MAX, jobs_of, lines_of
from apportion.core.state import schema
from apportion.core.state.asks import Ask, ask_at
from apportion.core.state.queue import lent_queue, parts_of
from apportion.core.state.space import Space
from apportion.core.state.state import State
from apportion.core.units import BUCKET_MS, MAX_NODE_GPUS, MILLI, NEVER_MS, UNKNOWN_RUNTIME_MS

I64 = NDArray[np.int64]

FUNDED, UNFUNDED, IDLE_CYCLES = range(3)  # who is served before whom


def visit(state: State, emit: Emit, shares: Shares, made: list[Reservations]) -> None:
    """Emit the starts of this cycle in pools other than where their workloads wait; ``made`` is what each pool keeps."""
    guests = _guests(state)
    if not len(guests):
        return
    choice, line = state.choice, Line(state, shares)
    for place in np.unique(choice.place[guests]).tolist():
        for pool in np.unique(choice.pool[guests[choice.place[guests] == place]]).tolist():
            here = guests[(choice.place[guests] == place) & (choice.pool[guests] == pool)]
            here = here[state.workload.state[choice.workload[here]] == schema.PENDING]
            here = here[_may_fit(state, pool, here)]
            if len(here):
                Door(state, shares, pool, made[pool], line, here).serve(emit)


def _guests(state: State) -> I64:
    """Return the choices by which somebody could start now elsewhere than where he waits."""
    choice, table = state.choice, state.workload
    rows = np.flatnonzero((choice.column("key_code") != 0) & (choice.column("refusal") == 0))
    who = choice.workload[rows]
    open_ = state.pool.policy[choice.pool[rows]] != schema.HORIZON  # there nobody starts beside the plan
    ready = open_ & (table.state[who] == schema.PENDING) & (table.not_before_ms[who] <= state.counters.time_ms)
    result: I64 = rows[ready & (choice.pool[rows] != table.pool[who]) & (state.pool.idle_milli[choice.pool[rows]] > 0)]
    return result


def _may_fit(state: State, pool: int, rows: I64) -> NDArray[np.bool_]:
    """Tell which choices could be met by what is free, by count: False rules out."""
    choice, node, gpu = state.choice, state.node, state.gpu
    nodes, milli = choice.nodes[rows], choice.milli_per_node[rows]
    of_pool = (node.column("pool")[gpu.column("node")] == pool) & (gpu.column("out") == 0) & (gpu.column("held_by") == 0)
    used = gpu.column("used_milli")
    whole = np.bincount(gpu.column("node")[of_pool & (used == 0)], minlength=node.used)
    having = np.cumsum(np.bincount(whole, minlength=MAX_NODE_GPUS + 1)[::-1])[::-1]  # nodes with at least k whole GPUs free
    most = MILLI - int(used[of_pool].min(initial=MILLI))
    plain = np.where(milli < MILLI, milli <= most, having[np.minimum(milli // MILLI, MAX_NODE_GPUS)] >= nodes)
    result: NDArray[np.bool_] = (choice.gpus_milli[rows] <= state.pool.idle_milli[pool]) & ((choice.wish[rows] > 0) | plain)
    return result


class Line:
    """What waits in budgets as the guests find it: who is the first of each, and what he keeps (``precedence``)."""

    def __init__(self, state: State, shares: Shares) -> None:
        self._state = state
        self._jobs = jobs_of(state, *lent_queue(state))
        self._lines = lines_of(state, shares)
        self._ends = ends_of(state)
        parts_of(state, self._jobs.first, self._jobs.last)

    def delayed(self, ask: Ask, over_ms: int, reservations: Reservations) -> bool:
        """Tell whether a guest that is over by then would delay the first of its budget in its pool."""
        now_ms, found = self._state.counters.time_ms, np.zeros(3, dtype=np.int64)
        head = serve.first_in_line(self._jobs, ask.budget, now_ms)
        if head < 0 or not ask.min_runtime_ms:
            return False
        horizon_ms = int(self._state.pool.horizon_ms[ask.pool])
        reserved_ms = reservations.starts_ms.get(head, -1)
        serve.place(self._jobs, self._lines, self._ends, ask.budget, head, reserved_ms, now_ms, horizon_ms, found)
        until_ms, spare_us = int(found[1]), int(found[2])
        if found[0] < 0 or over_ms <= until_ms:
            return False
        return ask.gpus_milli * (max(0, until_ms - now_ms) + horizon_ms) > spare_us

    def add(self, run: int) -> None:
        """A run has started."""
        if not self._state.run.idle_cycles[run]:
            leaf, milli = int(self._state.run.budget[run]), int(self._state.run.gpus_milli[run])
            serve.add_end(run, leaf, expected_end(self._state, run), milli, self._ends)


class Door:
    """Those who knock at one pool at the same time, by budget, in its order."""

    def __init__(self, state: State, shares: Shares, pool: int, reservations: Reservations, line: Line, choices: I64) -> None:
        choice, table, budget = state.choice, state.workload, state.budget
        self._state, self._pool, self._reservations, self._line = state, pool, reservations, line
        who = choice.workload[choices]
        order = np.lexsort((table.event_seq[who], -table.priority[who], choice.budget[choices]))  # ends in the unique sequence
        self._rows, who = choices[order], who[order]
        self._leaf, self._milli, self._min_ms = (
            column[self._rows] for column in (choice.budget, choice.gpus_milli, choice.min_runtime_ms)
        )
        self._shape = choice.nodes[self._rows], choice.milli_per_node[self._rows], choice.wish[self._rows]
        left_ms = np.maximum(table.expected_runtime_ms[who] - table.progress_ms[who], 0)
        self._over_ms = np.where(table.expected_runtime_ms[who] > 0, state.counters.time_ms + left_ms, NEVER_MS)
        self._gone = losers(state)[self._leaf]  # started, or found to have no place
        asks = np.zeros(budget.used, dtype=np.int64)
        np.add.at(asks, self._leaf, np.where(self._min_ms > 0, self._milli, 0))
        self._shares = shares_with(state, shares, pool, asks)
        self._lines = lines_of(state, self._shares)
        serve.children(budget.used, pool, budget.pool, budget.parent, self._lines.first_child, self._lines.next_sibling)
        self._ordered = int(state.pool.policy[pool]) == schema.FAIR and not len(reservations.profile)

    def serve(self, emit: Emit) -> None:
        """Emit the starts."""
        tries, idle_milli, root = 0, self._state.pool.idle_milli, int(self._state.pool.root[self._pool])
        for turn in (FUNDED, UNFUNDED, IDLE_CYCLES):
            others = (self._min_ms == 0) != (turn == IDLE_CYCLES)  # who is not funded is another's in the first turn
            late = np.zeros(len(self._rows), dtype=np.bool_)  # would delay the first of its budget, as things are
            self._look(others | late)
            while tries < SHAPES_TRIED_MAX and (leaf := serve.next_leaf(self._lines, root)) >= 0:
                at = int(np.flatnonzero((self._leaf == leaf) & ~self._gone & ~others & ~late)[0])
                same = self._leaf == leaf
                if turn == FUNDED and not self._funded(at):
                    others |= same & (self._milli >= self._milli[at]) & (self._min_ms >= self._min_ms[at])
                elif self._delays(at):
                    late |= same & (self._milli >= self._milli[at]) & (self._over_ms >= self._over_ms[at])
                elif self._start(emit, at):
                    self._gone[at] = True
                    late[same] = False
                    self._gone |= self._milli > idle_milli[self._pool]
                else:
                    tries += 1
                    same = self._over_ms >= self._over_ms[at]
                    for column in self._shape:
                        same &= column == column[at]
                    self._gone |= same
                self._look(others | late)

    def _look(self, not_now: NDArray[np.bool_]) -> None:
        """Choose anew whose turn it is."""
        self._lines.ready[:] = 0
        self._lines.ready[self._leaf[~self._gone & ~not_now]] = 1
        serve.choose_all(self._lines, self._lines.allowance, self._lines.running)

    def _of(self, at: int) -> tuple[int, Ask]:
        row = int(self._rows[at])
        return int(self._state.choice.workload[row]), ask_at(self._state, row)

    def _funded(self, at: int) -> bool:
        workload, ask = self._of(at)
        return fundable(self._state, self._shares, workload, 0, ask)[0]

    def _delays(self, at: int) -> bool:
        return self._ordered and self._line.delayed(self._of(at)[1], int(self._over_ms[at]), self._reservations)

    def _start(self, emit: Emit, at: int) -> bool:
        """Start it if it fits, and tell whether it did."""
        state, (workload, ask), over_ms = self._state, self._of(at), int(self._over_ms[at])
        if not leaves_plan(state, ask, over_ms, self._reservations):
            return False
        gpus = find_gpus(state, workload, Space.now(state), self._reservations.beside(state, workload), ask=ask)
        if gpus:
            start(state, emit, self._shares, workload, gpus, ask=ask)
            self._line.add(int(state.workload.run[workload]))
            if len(self._reservations.profile):
                profile_kernels.take(self._reservations.profile, 0, _buckets(state, over_ms), ask.gpus_milli)
        return bool(gpus)


def losers(state: State) -> NDArray[np.bool_]:
    """Tell of each budget line whether a run of it was asked in this cycle to make room: it starts nothing."""
    run, lost = state.run, np.zeros(state.budget.used, dtype=np.bool_)
    asked = (run.column("stop_cause") == schema.STOP_PREEMPT) & (run.column("stop_seq") == state.counters.seq)
    lost[run.column("budget")[asked & (run.column("state") == schema.STOPPING)]] = True
    return lost


def leaves_plan(state: State, ask: Ask, over_ms: int, reservations: Reservations) -> bool:
    """Tell whether the plan of its pool, if there is one, leaves GPUs for a guest for all of its time."""
    left = reservations.profile[: _buckets(state, over_ms)]
    return not len(left) or int(left.min()) >= ask.gpus_milli


def _buckets(state: State, over_ms: int) -> int:
    """Return how many buckets of a plan somebody takes who is over by then, as ``kernels.serve`` counts them."""
    left_ms = over_ms - state.counters.time_ms if over_ms < NEVER_MS else UNKNOWN_RUNTIME_MS
    return max(1, -(-left_ms // BUCKET_MS))

"""One pool's turn in a cycle, as the kernels of ``serve`` walk it: columns, what is free, who was tried.

Decides nothing; it holds what the passes of ``placing`` share, and keeps it current while they start and stop runs. Made anew in
every cycle from the state, of which nothing here is a part.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from apportion.core.kernels import room as room_kernels
from apportion.core.kernels import serve
from apportion.core.policy.fitting import left_beside_gpus
from apportion.core.policy.funding import Shares
from apportion.core.policy.idling import demoted
from apportion.core.policy.reserving import Reservations, says_over_ms
from apportion.core.state import schema
from apportion.core.state.mix import asked_of, mix_of
from apportion.core.state.queue import lent_queue, parts_of
from apportion.core.state.space import Space
from apportion.core.state.state import State
from apportion.core.state.wishes import NO_ARRAY, wish_at
from apportion.core.units import MAX_NODE_GPUS, MILLI

I64 = NDArray[np.int64]

SHAPES_TRIED_MAX = 512
STARTS_MAX = 16_384  # listed before they are folded
STARTS_LEAST, LEAST_MILLI = 64, 200  # where little is free few are listed, for few who take less than that
STUCK_MAX = 8  # shapes per budget that pass 1 finds stuck in a cycle: each may cost a search for victims


class Turn:
    """What the passes over one pool share. ``jobs.queue`` is the queue as it was: who started meanwhile is skipped by state."""

    def __init__(self, state: State, shares: Shares, pool: int, reservations: Reservations) -> None:
        self.state, self.shares, self.pool, self.reservations = state, shares, pool, reservations
        rows, budget = state.budget.used, state.budget
        self.root, self.horizon_ms = int(state.pool.root[pool]), int(state.pool.horizon_ms[pool])
        self.mine = budget.column("pool") == pool
        self.blocked = np.zeros(rows, dtype=np.int64)  # per budget row: lost a run in this cycle
        self.jobs = jobs_of(state, *lent_queue(state))
        parts_of(state, self.jobs.first, self.jobs.last)
        self.lines = lines_of(state, shares)
        serve.children(rows, pool, budget.pool, budget.parent, self.lines.first_child, self.lines.next_sibling)
        self.tried = serve.Tried(np.zeros((SHAPES_TRIED_MAX, 4), dtype=np.int64), np.zeros(2, dtype=np.int64))
        self.seen = np.zeros(state.queued, dtype=np.uint8)  # per position of the queue: who need not be looked at
        self._gone_free, self._gone_part = (np.empty(state.node.used, dtype=np.int64) for _column in range(2))
        self._runs: tuple[int, serve.Runs] | None = None  # and the ``State.moved`` of which they tell
        self.profile = np.zeros(0, dtype=np.int64)  # of the plan, once there is one
        self._largest = int(state.node.column("gpus").max(initial=0))
        self.plain = int(state.pool.packing[pool] == schema.BEST_FIT)  # 1 = kernels choose GPUs, and list who has started
        self.ranks = _UNRANKED
        most = min(STARTS_MAX, state.queued, STARTS_LEAST + int(state.pool.idle_milli[pool]) // LEAST_MILLI)
        workload, why, running, first = (np.empty(most + 1, dtype=np.int64) for _column in range(4))
        gpus, count = np.empty(most + state.gpu.used, dtype=np.int64), np.zeros(1, dtype=np.int64)
        first[0] = 0  # what is behind the last one is not read
        self._starts = serve.Starts(workload[:most], why, running, first, gpus, workload, count)
        self.measure()

    @property
    def now_ms(self) -> int:
        """Time of the cycle."""
        return self.state.counters.time_ms

    def rank(self) -> bool:
        """Make the ranks of the pool's packing, so that kernels choose from now on; False when they do so already.

        Not before somebody may start: what comes to a pool is found by a walk over all its workloads.
        """
        if self.plain:
            return False
        state, packing = self.state, self.state.pool.cells.packing[self.pool]
        left, asked = left_beside_gpus(state, Space.now(state)), asked_of(MILLI, wish_at(state, 0))
        self.plain, self.ranks = 1, unjudged(packing, mix_of(state, self.pool), left, asked)
        return True

    def starts(self, *, runs: bool = True) -> serve.Starts:
        """Return the list of starts, with the rows that their ``runs`` will have; it is empty whenever this is asked."""
        return self._starts._replace(runs=self.state.run.coming(len(self._starts.workload))) if runs else self._starts

    def look_again(self, leaf: int) -> None:
        """Something of ``leaf`` started, or others were asked to stop for it: what was known of GPUs no longer holds.

        What could be freed stays an upper bound so long as the leaf is not above its allowance: nothing of it may go then.
        """
        keep = self.shares.running[leaf] <= self.shares.allowance[leaf]
        self.measure(self.room if keep else None)

    def measure(self, known: serve.Room | None = None) -> None:
        """Count what is free, by who asks; what was ``known`` of what could be freed still bounds it."""
        made = self.reservations
        if len(self.ranks.asked):
            self.ranks.known[:] = 0
            self.ranks.cpu_milli[:], self.ranks.memory_mib[:] = left_beside_gpus(self.state, Space.now(self.state))
        classes, most = len(made.instants_ms) + 1, min(self._largest, MAX_NODE_GPUS)
        self.room = serve.Room(
            made.instants_ms, np.empty((classes, most + 1), dtype=np.int64), np.empty(classes, dtype=np.int64),
            np.zeros((1, most + 1), dtype=np.int64), self._gone_free, self._gone_part, np.zeros(4, dtype=np.int64),
            np.array(list(made.starts_ms), dtype=np.int64), self.profile,
        )  # fmt: skip
        self.starts_ms = np.array(list(made.starts_ms.values()), dtype=np.int64)
        self.stock, self.room.sums[0] = self._stock()
        self.stock = self.stock._replace(until_ms=made.until_ms, holder=made.holder, closes_ms=made.closes_ms)
        serve.measure_classes(
            self.stock.free, self.stock.part, self.stock.last, made.until_ms, made.closes_ms, made.instants_ms, self.room.nodes,
            self.room.shared,
        )  # fmt: skip
        if known is not None and known.sums[3]:
            self.room.evictable[:], self.room.sums[1:3], self.room.sums[3] = known.evictable, known.sums[1:3], serve.BOUND

    def _stock(self) -> tuple[serve.Stock, int]:
        """Return what nodes have left, and how much that is in all, as if none were kept; both as they were if nothing moved."""
        state, kept = self.state, self.state.memo.at(self.state.moved).stocks
        if self.pool in kept:
            return kept[self.pool]
        node, gpu, spare = state.node, state.gpu, state.memo.spare_stocks.get(self.pool)
        if spare is not None and len(spare.used) == gpu.used and len(spare.free) == node.used:
            free, part, last, lowest, used, used_mib, shelves = spare[:7]
        else:
            free, part, last = (np.empty(node.used, dtype=np.int64) for _column in range(3))
            lowest = np.empty(MAX_NODE_GPUS + 1, dtype=np.int64)
            used, used_mib = (np.empty(gpu.used, dtype=np.int64) for _column in range(2))
            shelves = np.empty(-(-node.used // serve.SHELF), dtype=np.int64)
        used[:], used_mib[:] = gpu.column("used_milli"), gpu.column("used_memory_mib")
        free_milli = room_kernels.measure_free(
            self.pool, node.used, node.pool, node.first_gpu, node.gpus, used, gpu.out, gpu.held_by, free, part, last, lowest
        )
        serve.fill_shelves(part, shelves)
        kept_for = self.reservations  # whoever asks puts in his own
        made = serve.Stock(
            free, part, last, lowest, used, used_mib, shelves, gpu.out, gpu.held_by, gpu.node, node.first_gpu, node.gpus,
            node.gpu_memory_mib, kept_for.until_ms, kept_for.holder, kept_for.closes_ms,
        )  # fmt: skip
        state.memo.spare_stocks[self.pool] = made
        kept[self.pool] = made, free_milli
        return kept[self.pool]

    def keep_anew(self, *, bound: bool) -> None:
        """Other nodes are kept than were, and nothing has started: count by class anew. With ``bound`` what was known of what could
        be freed still bounds it.
        """
        made, stock, known = self.reservations, self.stock, self.room
        classes = len(made.instants_ms) + 1
        self.room = serve.Room(
            made.instants_ms, np.empty((classes, known.nodes.shape[1]), dtype=np.int64), np.empty(classes, dtype=np.int64),
            known.evictable, known.gone_free, known.gone_part, known.sums, np.array(list(made.starts_ms), dtype=np.int64),
            self.profile,
        )  # fmt: skip
        self.starts_ms = np.array(list(made.starts_ms.values()), dtype=np.int64)
        serve.measure_classes(
            stock.free, stock.part, stock.last, stock.until_ms, stock.closes_ms, made.instants_ms, self.room.nodes, self.room.shared
        )
        known.sums[3] = (serve.KEPT if known.sums[3] in (1, serve.KEPT) else serve.BOUND) if bound and known.sums[3] else 0

    def runs(self) -> serve.Runs:
        """Return the columns of runs, as they are now."""
        run, alloc, moved = self.state.run, self.state.alloc, self.state.moved
        if self._runs is not None and self._runs[0] == moved:
            return self._runs[1]
        unfunded = np.flatnonzero((run.column("payer") == schema.PAYER_UNFUNDED) & (run.column("pool") == self.pool))
        made = serve.Runs(
            unfunded, run.state, run.protected_until_ms, run.idle_cycles, demoted(self.state), run.budget, run.gpus_milli,
            self.state.budget.took_ms, run.first_alloc, alloc.next, alloc.gpu, alloc.milli,
        )  # fmt: skip
        self._runs = moved, made
        return made

    def open(self) -> serve.Open:
        """Return who may be worth a look in passes over everybody; it holds until somebody else has his turn."""
        memo, entries = self.state.memo, len(self.state.queue)
        if memo.spare_open is None or memo.spare_open.shape[1] < entries:
            memo.spare_open = np.empty((2, entries), dtype=np.int64)
        first, last = (np.empty((2, len(self.mine)), dtype=np.int64) for _column in range(2))
        asked, least_s = np.empty((serve.SIGNATURES, 2), dtype=np.int64), np.empty((2, serve.SIGNATURES + 1), dtype=np.int64)
        made = serve.Open(memo.spare_open, first, last, asked, least_s, np.zeros(1, dtype=np.int64))
        serve.rule_out(self.jobs, self.room, self.waiting(), self.now_ms, self.seen, made)
        return made

    def waiting(self) -> I64:
        """Return per budget row 1 where something waits that may start in this cycle."""
        ready: I64 = ((self.jobs.last > self.jobs.first) & (self.blocked == 0) & self.mine).astype(np.int64)
        return ready


def unjudged(packing: int, mix: I64, left: tuple[I64, I64], asked: I64) -> serve.Ranks:
    """Return the ranks of a packing, of which nothing is known yet; ``left`` is CPU and memory of each node."""
    nodes = len(left[0])
    each, known = np.zeros(serve.SHAPES, dtype=np.int64), np.zeros((serve.SHAPES, nodes), dtype=np.uint8)
    rank, gpu = (np.empty((serve.SHAPES, nodes), dtype=np.int64) for _column in range(2))
    scratch, able = np.empty((3, MAX_NODE_GPUS), dtype=np.int64), np.empty(nodes, dtype=np.int64)
    return serve.Ranks(packing, mix, *left, each, known, rank, gpu, np.zeros(1, dtype=np.int64), asked, scratch, able)


_UNRANKED = unjudged(schema.BEST_FIT, np.zeros((0, 0), dtype=np.int64), (NO_ARRAY, NO_ARRAY), NO_ARRAY)  # not written to


def jobs_of(state: State, queue: I64, asks: I64) -> serve.Jobs:
    """Return the columns of workloads with a queue of which the parts of budgets are not known yet."""
    table, rows = state.workload, state.budget.used
    nothing = np.zeros(len(queue), dtype=np.uint8)
    first, last = (np.zeros(rows, dtype=np.int64) for _column in range(2))
    return serve.Jobs(queue, asks, nothing, first, last, table.state, state.waits)


def lines_of(state: State, shares: Shares) -> serve.Lines:
    """Return the columns of budgets, without the lists of children and without a choice."""
    budget = state.budget
    first_child, next_sibling, best, ready = (np.full(budget.used, -1, dtype=np.int64) for _column in range(4))
    return serve.Lines(
        budget.parent, budget.children, first_child, next_sibling, budget.share_ppm, budget.closed, budget.metered,
        budget.granted_us, budget.charged_us, budget.lag_us, shares.reserved_us, shares.entitled, shares.wanted,
        shares.allowance, shares.running, best, ready,
    )  # fmt: skip


def note(turn: Turn, workload: int) -> None:
    """Remember that a workload found no place."""
    table = turn.state.workload
    shape = int(table.nodes[workload]), int(table.milli_per_node[workload]), int(table.wish[workload])
    serve.note(turn.tried, *shape, says_over_ms(turn.state, workload))

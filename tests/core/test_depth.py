"""Who is worth a look in depth: what is asked for in one number, the list of who may find room by it, and when it is over with."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import event, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from apportion.core.kernels import asked, pack, serve
from apportion.core.kernels.serve.shapes import has_room
from apportion.core.state.queue import empty_waits
from apportion.core.state.wishes import ANYWHERE, NO_ARRAY
from apportion.core.units import MILLI, MS_PER_DAY, NEVER_MS
from tests.core.test_columns import measured
from tests.strategies import Cluster, clusters, column, shapes

I64 = NDArray[np.int64]
quick = settings(derandomize=True, max_examples=150, deadline=None)
NOW_MS = 1_767_225_600_123
WAITING = st.tuples(
    st.integers(1, 2_048), st.integers(1, 72_000), st.booleans(), st.booleans(),
    st.one_of(st.just(NEVER_MS), st.integers(0, 366 * MS_PER_DAY)),
)  # fmt: skip


@quick
@given(st.lists(WAITING, min_size=1, max_size=20))
def test_what_is_asked_for_is_read_out_of_one_number_again(waiting: list[tuple[int, int, bool, bool, int]]) -> None:
    waits, asks = empty_waits(len(waiting)), np.empty(len(waiting), dtype=np.int64)
    for row, (nodes, each, wish, idle, left_ms) in enumerate(waiting):
        waits[row] = (7, nodes, each, each // MILLI, int(wish), 0 if idle else 60_000, left_ms, 0)
    asked.fill_asks(waits, np.arange(len(waiting)), asks)
    for ask, (nodes, each, wish, idle, left_ms) in zip(asks.tolist(), waiting, strict=True):
        plain = asked.plain_of(ask)
        assert (ask < 0) == wish
        assert (asked.nodes_of(plain), asked.each_of(plain), asked.idle_of(plain)) == (nodes, each, int(idle))
        over_ms = asked.over_ms_of(plain, NOW_MS)
        assert over_ms == NEVER_MS if left_ms == NEVER_MS else 0 <= NOW_MS + left_ms - over_ms < 1_000


class Waiting:
    """Some who wait, in three budgets, for GPUs of a cluster of which nodes are kept for one of them."""

    def __init__(self, cluster: Cluster, asks: list[tuple[int, int]], data: st.DataObject) -> None:
        count = len(asks)
        instant = st.sampled_from([0, 0, 0, NOW_MS + 60_000, NOW_MS + 120_000])
        self.cluster = cluster
        self.until_ms = column([data.draw(instant) for _ in range(cluster.nodes)])
        self.holder = np.where(self.until_ms > 0, data.draw(st.integers(1, count)), 0)
        self.waits, self.asks = empty_waits(count), np.empty(count, dtype=np.int64)
        left = st.sampled_from([0, 30_000, 59_999, 60_000, 60_001, 119_000, 120_500, NEVER_MS])
        lines = sorted(data.draw(st.integers(0, 2)) for _ in range(count))
        self.queue = column(data.draw(st.permutations(range(count))))
        for row, line, (nodes, each) in zip(self.queue.tolist(), lines, asks, strict=True):
            wish, idle = (data.draw(st.sampled_from([0, 0, 0, 1])) for _ in range(2))
            self.waits[row] = (line, nodes, each, each // MILLI, wish, 60_000 * (1 - idle), data.draw(left), 0)
        asked.fill_asks(self.waits, self.queue, self.asks)
        self.first, self.last = (column([sum(line < k for line in lines) for k in ks]) for ks in ((0, 1, 2), (1, 2, 3)))
        self.seen = np.array([data.draw(st.sampled_from([0, 0, 0, serve.OUT])) for _ in range(count)], dtype=np.uint8)
        self.open_ = serve.Open(
            np.empty((2, count), dtype=np.int64), np.empty((2, 3), dtype=np.int64), np.empty((2, 3), dtype=np.int64),
            np.empty((serve.SIGNATURES, 2), dtype=np.int64), np.empty((2, serve.SIGNATURES + 1), dtype=np.int64),
            np.zeros(1, dtype=np.int64),
        )  # fmt: skip

    @property
    def jobs(self) -> serve.Jobs:
        """The columns, as kernels take them."""
        zeros = np.zeros(len(self.queue), dtype=np.int64)
        return serve.Jobs(self.queue, self.asks, zeros.astype(np.uint8), self.first, self.last, zeros, self.waits)

    def room(self, used: I64) -> serve.Room:
        """What is free by class, when so much is used."""
        made, _stock = measured(self.cluster, used, self.until_ms, self.holder, np.zeros_like(self.until_ms))
        return made._replace(holders=np.unique(self.holder[self.holder > 0]) - 1)

    def finds_gpus(self, row: int, used: I64) -> bool:
        """Tell whether one who asks for nothing but GPUs finds them, by the one function that answers that."""
        nodes, each, left_ms = (int(self.waits[row, k]) for k in (1, 2, 6))
        kept = (self.until_ms > 0) & (self.holder != row + 1) & (self.until_ms < min(NEVER_MS, NOW_MS + left_ms))
        one, gpus = self.cluster, np.zeros(nodes * 72, dtype=np.int64)
        return pack.find_gpus(
            0, nodes, each, 0, 0, 0, -1, one.nodes, one.node_pool, one.node_first, one.node_gpus, np.full(one.nodes, 80_000),
            kept.astype(np.int64), used, np.zeros_like(used), one.out, one.held, *ANYWHERE, NO_ARRAY, gpus,
        ) > 0  # fmt: skip

    def may(self, at: int, room: serve.Room) -> bool:
        """Tell whether who stands at a position may find room by what he asks for, in whole seconds."""
        row = int(self.queue[at])
        nodes, each, wish, left_ms = (int(self.waits[row, k]) for k in (1, 2, 4, 6))
        over_ms = NEVER_MS if left_ms == NEVER_MS else NOW_MS + left_ms // 1_000 * 1_000
        class_ = int(np.searchsorted(room.instants_ms, over_ms))
        return wish > 0 or row in room.holders or has_room(nodes, each, room.nodes[class_], room.shared[class_])


@quick
@given(clusters(max_nodes=7), st.lists(shapes(), min_size=1, max_size=12), st.data())
def test_listed_is_who_may_find_room_and_the_list_is_over_with_when_none_of_them_does(
    cluster: Cluster, asks: list[tuple[int, int]], data: st.DataObject
) -> None:
    waiting = Waiting(cluster, asks, data)
    room, open_, ready = waiting.room(cluster.used), waiting.open_, column([data.draw(st.integers(0, 1)) for _ in range(3)])
    serve.rule_out(waiting.jobs, room, ready, NOW_MS, waiting.seen, open_)
    listed = ([], [])  # type: tuple[list[int], list[int]]
    for at in range(len(asks)):
        row = int(waiting.queue[at])
        if ready[waiting.waits[row, 0]] and waiting.seen[at] != serve.OUT and waiting.may(at, room):
            listed[int(waiting.waits[row, 5] == 0)].append(at)
        elif waiting.seen[at] != serve.OUT and ready[waiting.waits[row, 0]]:
            assert not waiting.finds_gpus(row, cluster.used)
    for idle_cycles in (0, 1):
        parts = [(int(open_.first[idle_cycles, leaf]), int(open_.last[idle_cycles, leaf])) for leaf in range(3)]
        assert all(one[1] == other[0] for one, other in pairwise(parts))
        assert open_.at[idle_cycles, : parts[2][1]].tolist() == listed[idle_cycles]
        for first, last in parts:
            assert len({int(waiting.waits[waiting.queue[at], 0]) for at in open_.at[idle_cycles, first:last]}) <= 1

    less = waiting.room(np.where(np.arange(len(cluster.used)) % data.draw(st.integers(1, 3)) == 0, 1_000, cluster.used))
    for idle_cycles in (0, 1):
        is_open = serve.is_open(less, NOW_MS, open_, idle_cycles)
        assert is_open == any(waiting.may(at, less) for at in listed[idle_cycles])
        event(f"still open: {is_open}")

"""Watchers of a story that are cores themselves, and what a cycle must have done: nothing placeable waits.

``Twin`` folds the same records and answers each tick by verifying or trusting the stored batch; ``Forgetful`` verifies without what
was kept from the cycle before; ``FastTwin`` takes the records in bulk, through the fast lane; ``Conserving`` looks at the state
after each cycle.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np

from apportion.core import events as ev
from apportion.core import ledger
from apportion.core.decisions import CycleBatch, RunPlaced, RunPreempted, encode_batch
from apportion.core.engine import Core
from apportion.core.envelope import Record, subject_of
from apportion.core.policy import placing
from apportion.core.policy.funding import Shares
from apportion.core.policy.reserving import Reservations
from apportion.core.state import schema
from apportion.core.state.asks import Ask, ask_of
from apportion.core.state.holdings import gpus_of_run, held_gpus
from apportion.core.state.memo import Memo
from apportion.core.state.state import State
from apportion.core.state.wishes import Wish, wish_at, wish_of
from tests.core import oracles
from tests.core.invariants import asks_of
from tests.core.line import behind, says_over_ms
from tests.strategies import Cluster


class Twin:
    """A second core, one record behind; it must reach the same digest after every record."""

    def __init__(self, ways: tuple[str, ...] = ("verify", "trust", "lazy")) -> None:
        self.core = Core.new()
        self.ways = ways
        self.ticks = 0

    def answer(self, body: bytes) -> None:
        """Answer the tick in the next way."""
        way = self.ways[self.ticks % len(self.ways)]
        self.ticks += 1
        if way == "verify":
            self.core.verify(body)
        else:
            self.core.trust(body, check=way == "trust")

    def after(self, core: Core, record: Record, batch: CycleBatch | None) -> None:
        """Follow, and compare."""
        if self.core.fold(record):
            assert batch is not None
            self.answer(encode_batch(batch))
        assert self.core.digest() == core.digest(), f"the twin differs after seq {record.seq}"
        assert self.core.due_ms() == core.due_ms()
        assert self.core.dirty == core.dirty


class Forgetful(Twin):
    """A second core that begins every cycle as one that was just restored: what is kept from cycle to cycle changes nothing."""

    def __init__(self) -> None:
        super().__init__(("verify",))

    def answer(self, body: bytes) -> None:
        """Derive the same without anything that was kept."""
        self.core.state.memo = Memo()
        super().answer(body)


class FastTwin(Twin):
    """A second core that reads in bulk between ticks."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: list[Record] = []

    def after(self, core: Core, record: Record, batch: CycleBatch | None) -> None:
        """Collect; at a tick fold everything, and compare."""
        self.waiting.append(record)
        if batch is None:
            return
        assert self.core.fold_many(self.waiting) == len(self.waiting)
        assert self.core.tick_pending
        self.waiting = []
        self.answer(encode_batch(batch))
        assert self.core.digest() == core.digest(), f"reading in bulk differs at seq {record.seq}"


class Conserving:
    """After a cycle nothing waits that fits on free GPUs, unless they are held or reserved, its budget just lost a run, or it
    stands behind the first of its budget, which it would delay.
    """

    def __init__(self) -> None:
        self.reservations: list[Reservations] = []
        self.allowance: Any = None
        self.ready = False

    @contextmanager
    def watching(self) -> Iterator[None]:
        """See the reservations and allowances of each cycle as the placing phase has them."""
        original = placing.place_all

        def place_all(state: State, emit: Any, shares: Shares) -> list[Reservations]:
            self.allowance = shares.allowance.copy()
            self.reservations = original(state, emit, shares)
            self.seen = replace(shares, allowance=self.allowance, running=shares.running.copy())
            self.ready = True
            return self.reservations

        with mock.patch.object(placing, "place_all", place_all):
            yield

    def after(self, core: Core, record: Record, batch: CycleBatch | None) -> None:
        """Try every waiting workload on what is free."""
        if batch is None:
            return
        assert self.ready, "the cycle was not seen"
        self.ready = False
        state, due_ms = core.state, core.due_ms()
        assert due_ms is None or due_ms > core.time_ms, f"due {core.time_ms - due_ms} ms ago right after a cycle"
        blocked = set()
        for decision in batch.decisions:
            if isinstance(decision, RunPreempted):
                run = state.run.row_of[f"{decision.workload}#{decision.run}"]
                leaf = int(state.run.budget[run])
                blocked.add(leaf)
                assert decision.certificate.victim_allowance_milli == int(self.allowance[leaf])
        check_spent(state)
        for pool, kept in enumerate(self.reservations):
            check_reservations(state, kept, pool)
        for decision in batch.decisions:
            if isinstance(decision, RunPlaced):
                check_placed(state, decision)
        table = state.workload
        for row in table.live_rows():
            if int(table.state[row]) not in (schema.PENDING, schema.HELD):
                continue
            assert int(table.reason[row]) > 0, f"{table.keys[row]} waits and nobody says why"
            planned = int(state.pool.policy[int(table.pool[row])]) == schema.HORIZON  # there GPUs may idle for what is planned
            late = int(table.not_before_ms[row]) > state.counters.time_ms
            if int(table.state[row]) == schema.HELD or late or int(table.budget[row]) in blocked:
                continue
            kept = self.reservations[int(table.pool[row])]
            held_back = planned or not fitting(state, row, kept) or behind(state, self.seen, kept, row)
            assert held_back, f"{table.keys[row]} waits although GPUs are free for it"
            self.elsewhere(state, row, blocked)

    def elsewhere(self, state: State, row: int, blocked: set[int]) -> None:
        """The same for every other pool that it accepts."""
        for ask in asks_of(state, row)[1:]:
            if int(state.pool.policy[ask.pool]) == schema.HORIZON:
                continue  # nobody visits a pool that is planned
            kept, told = self.reservations[ask.pool], f"{state.workload.keys[row]} waits, and could start in pool row {ask.pool}"
            held_back = ask.budget in blocked or not fitting(state, row, kept, ask) or behind(state, self.seen, kept, row, ask)
            assert held_back, told


def check_spent(state: State) -> None:
    """Whoever has nothing left that is not promised pays for nothing but time he has promised."""
    now_ms, budget = state.counters.time_ms, state.budget
    outstanding, promised = ledger.reserved_us(state, now_ms), ledger.reserved_milli(state, now_ms)
    for line in range(budget.used):
        left = int(budget.granted_us[line]) - int(budget.charged_us[line]) - int(outstanding[line])
        if budget.metered[line] and left <= 0:
            assert int(budget.funded_milli[line]) == int(promised[line]), f"{budget.keys[line]} is spent and pays on"


def kept_nodes(kept: Reservations) -> list[tuple[int, int]]:
    """Return (holder's row + 1, until when) per node row."""
    return list(zip(kept.holder.tolist(), kept.until_ms.tolist(), strict=True))


def check_reservations(state: State, kept: Reservations, pool: int) -> None:
    """Each holder has as many nodes as it needs, nobody else's, and on each enough GPUs can be free by the instant promised.

    One that started in another pool since needs none; what was kept for it is free in the next cycle.
    """
    table, node, gpu = state.workload, state.node, state.gpu
    gone_ms = [state.counters.time_ms] * gpu.used
    for row in state.run.live_rows():
        for one in gpus_of_run(state, row):
            gone_ms[one] = max(gone_ms[one], gone_by_ms(state, row))
    for workload, start_ms in kept.starts_ms.items():
        if int(table.state[workload]) == schema.RUNNING:
            assert int(table.pool[workload]) != pool, f"{table.keys[workload]} started, and nodes are kept for it"
            due_ms = Core.due_ms(Core(state))
            assert due_ms == state.counters.time_ms + 1, "nobody looks soon at what was kept for who is gone"
            continue
        places = enumerate(kept_nodes(kept))
        nodes = [place for place, (holder, until_ms) in places if holder == workload + 1 and until_ms == start_ms]
        wish, parts = wants_of(state, workload), 0
        assert len(nodes) == int((kept.holder == workload + 1).sum())
        assert wish.within is None or len({wish.within[place] for place in nodes}) <= 1
        for place in nodes:
            mine = range(int(node.first_gpu[place]), int(node.first_gpu[place]) + int(node.gpus[place]))
            able = [one for one in mine if not gpu.out[one] and not gpu.held_by[one] and gone_ms[one] <= start_ms]
            left_ms = says_over(state, workload) - state.counters.time_ms
            drained_ms = int(node.drain_ms[place])
            assert not drained_ms or start_ms + left_ms <= drained_ms, f"{node.keys[place]} is drained before it would be over"
            assert 1_000 * len(able) >= int(table.milli_per_node[workload]), f"{node.keys[place]} is not free in time"
            parts += len(able) if wish.loose else 1
        need = int(table.nodes[workload]) if start_ms else 0
        assert parts >= need if wish.loose else parts == need


def gone_by_ms(state: State, row: int) -> int:
    """Return when a run has given its GPUs back, by what it says or because it may be told to go.

    Who was told to go in this very cycle could be told when the reservation was made: his grace is no delay, somebody has to ask.
    """
    run, now_ms = state.run, state.counters.time_ms
    if int(run.state[row]) == schema.STOPPING and int(run.stop_seq[row]) == state.counters.seq:
        return now_ms
    if int(run.state[row]) == schema.STOPPING:
        return max(int(run.stop_by_ms[row]), now_ms)
    fair = int(state.pool.policy[int(run.pool[row])]) == schema.FAIR
    if fair and int(run.payer[row]) == schema.PAYER_UNFUNDED:
        return min(says_over_ms(state, row), max(int(run.protected_until_ms[row]), now_ms))
    return says_over_ms(state, row)


def says_over(state: State, workload: int) -> int:
    """Return when a waiting workload would be over by what it states, if it started now."""
    expected_ms = int(state.workload.expected_runtime_ms[workload])
    left_ms = max(0, expected_ms - int(state.workload.progress_ms[workload]))
    return state.counters.time_ms + left_ms if expected_ms else 1 << 60


def fitting(state: State, row: int, kept: Reservations, guest: Ask | None = None) -> bool:
    """Tell whether a waiting workload could start now, by the oracle; ``guest`` is what it is in another pool."""
    ask, node, gpu = guest or ask_of(state, row), state.node, state.gpu
    over_ms = says_over(state, row)
    masked = [int(holder not in (0, row + 1) and over_ms > until_ms) for holder, until_ms in kept_nodes(kept)]
    drained = [0 < int(drain_ms) < over_ms for drain_ms in node.column("drain_ms")]
    masked = [int(theirs or late) for theirs, late in zip(masked, drained, strict=True)]
    cluster = Cluster(
        node.column("pool"), node.column("first_gpu"), node.column("gpus"),
        np.array(masked, dtype=np.int64),
        gpu.column("used_milli"), gpu.column("out"), gpu.column("held_by"),
    )  # fmt: skip
    return oracles.fits(cluster, ask.pool, ask.nodes, ask.milli_per_node, row + 1, wants_of(state, row, ask))


def wants_of(state: State, row: int, guest: Ask | None = None) -> oracles.Wants:
    """Return what a workload wishes, with the domain of each node by its name; what is left of nodes recounted from runs."""
    ask = guest or ask_of(state, row)
    wish, milli = wish_at(state, ask.wish), ask.milli_per_node

    def labels(height: int) -> list[str] | None:
        if height < 0:
            return None
        domains = state.node.column(f"domain_{height}").tolist() if height else [0] * state.node.used
        return [state.domain.keys[d - 1] if d else f"alone {n}" for n, d in enumerate(domains)]

    memory = None
    if milli < 1_000:
        node_mib = state.node.gpu_memory_mib[state.gpu.column("node")]
        need_mib = wish.gpu_memory_mib or node_mib * milli // 1_000
        memory = (state.gpu.column("used_memory_mib") + need_mib <= node_mib).tolist()
    room = None if wish.plain else [parts_left(state, wish, node, row) for node in range(state.node.used)]
    place = (state.node.column("place") - 1).tolist()
    return oracles.Wants(bool(wish.loose), labels(wish.within - 1), labels(wish.near - 1), room, memory, bool(wish.aligned), place)


def parts_left(state: State, wish: Wish, node: int, mine: int) -> int:
    """Return how many parts with such a wish the node may serve by all but its GPUs, recounted from rows."""
    bears = {state.label.keys[int(state.tag.label[tag]) - 1] for tag in state.tag.live_rows() if int(state.tag.node[tag]) == node}
    if not set(wish.labels) <= bears or int(state.node.gpu_memory_mib[node]) < wish.gpu_memory_mib:
        return 0
    if wish.exclusive and int(state.node.gpus[node]) != wish.exclusive:
        return 0
    if wish.group and any(shares_domain(state, node, other, wish.apart_level - 1) for other in nodes_of_group(state, wish, mine)):
        return 0
    parts = 99
    for asked, offered, name in (
        (wish.cpu_milli, int(state.node.cpu_milli[node]), "cpu_milli"),
        (wish.memory_mib, int(state.node.memory_mib[node]), "memory_mib"),
    ):
        holders = [int(run) for run in state.run.live_rows() if int(state.run.state[run]) != schema.ENDED]
        on = [(int(state.run.workload[run]), gpus_of_run(state, run)) for run in holders]
        on += [(row, held_gpus(state, row)) for row in state.workload.live_rows() if row != mine and held_gpus(state, row)]
        taken = 0
        for owner, gpus in on:
            here, other = sum(1 for gpu in gpus if int(state.gpu.node[gpu]) == node), wish_of(state, owner)
            taken += getattr(other, name) * (here if other.loose else min(here, 1))
        if asked:
            parts = min(parts, max(0, offered - taken) // asked)
    return parts


def shares_domain(state: State, one: int, other: int, height: int) -> bool:
    """Tell whether two nodes are one, or of one domain."""
    if one == other or not height:
        return one == other
    domain = state.node.column(f"domain_{height}")
    return bool(domain[one] and domain[one] == domain[other])


def nodes_of_group(state: State, wish: Wish, mine: int) -> list[int]:
    """Return the nodes on which others of the group are, or have GPUs kept."""
    found = []
    for row in state.workload.live_rows():
        if row != mine and wish_of(state, row).group == wish.group:
            run = int(state.workload.run[row])
            gpus = gpus_of_run(state, run) if run >= 0 and int(state.run.state[run]) != schema.ENDED else []
            found += [int(state.gpu.node[gpu]) for gpu in gpus + held_gpus(state, row)]
    return found


def check_placed(state: State, placed: RunPlaced) -> None:
    """A new run is where its wish lets it be, and takes no more than there is."""
    row = state.workload.row_of[placed.workload]
    wish, pool = wish_of(state, row), placed.pool
    nodes = [state.node.row_of[piece.node] for piece in placed.pieces]
    assert all(state.pool.keys[int(state.node.pool[node])] == pool for node in nodes)
    for node, piece in zip(nodes, placed.pieces, strict=True):
        bears = {state.label.keys[int(state.tag.label[t]) - 1] for t in state.tag.live_rows() if int(state.tag.node[t]) == node}
        assert set(wish.labels) <= bears
        assert int(state.node.gpu_memory_mib[node]) >= wish.gpu_memory_mib
        assert not wish.exclusive or len(piece.gpus) == int(state.node.gpus[node])
        assert not wish.group or parts_left(state, wish._replace(cpu_milli=0, memory_mib=0), node, row) > 0
        assert not wish.cpu_milli or int(state.node.used_cpu_milli[node]) <= int(state.node.cpu_milli[node])
        assert not wish.memory_mib or int(state.node.used_memory_mib[node]) <= int(state.node.memory_mib[node])
        for position in piece.gpus if wish.gpu_memory_mib else ():
            gpu = int(state.node.first_gpu[node]) + position
            assert int(state.gpu.used_memory_mib[gpu]) <= int(state.node.gpu_memory_mib[node])
    if wish.aligned:
        each, at = len(placed.pieces[0].gpus), [int(state.node.place[node]) - 1 for node in nodes]
        assert all(piece.gpus == tuple(range(piece.gpus[0], piece.gpus[0] + each)) for piece in placed.pieces)
        assert all(piece.gpus[0] % each == 0 for piece in placed.pieces)
        assert len(at) == 1 or sorted(at) == list(range(min(at), min(at) + len(at)))
        assert len(at) == 1 or min(at) % len(at) == 0
    within = wants_of(state, row).within
    assert within is None or len({within[node] for node in nodes}) == 1


def check_refusal(before: bytes, core: Core, record: Record) -> None:
    """A refused record changed nothing but the counters, the chain, and the list of what the next cycle says.

    ``before`` is a snapshot from before the record. In its place another core reads a record of the same instant that means
    nothing; both are brought to the same instant, and every table must be the same.
    """
    other = Core.from_snapshot(before)
    nothing = ev.encode_event(
        ev.ForecastPublished(model="m", target="t", horizon_ms=1), event_id="nothing", at_ms=core.time_ms
    )
    other.fold(Record(record.seq, core.time_ms, subject_of("ops", "forecast.published"), nothing))
    mine = Core.from_snapshot(core.snapshot())
    assert mine.time_ms == other.time_ms
    for state in (mine.state, other.state):
        ledger.accrue(state, state.counters.time_ms)
    for name, table in mine.state.tables().items():
        assert table.physical() == other.state.tables()[name].physical(), f"a refused {record.subject} changed table {name}"
    assert mine.state.members == other.state.members
    ignored = ("refused", "dirty")
    assert {k: v for k, v in vars(mine.state.counters).items() if k not in ignored} == {
        k: v for k, v in vars(other.state.counters).items() if k not in ignored
    }

"""What is done in columns, many at once, or kept current, comes to the same as one by one, or measured anew."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from numpy.typing import NDArray

from apportion.adapters.bench.worlds.cycles.world import World
from apportion.core.decisions import Piece, RunPlaced
from apportion.core.engine import Core, emit_into
from apportion.core.errors import InvariantBroken
from apportion.core.events import BudgetClosed, PolicyActivated
from apportion.core.fold.outcomes import apply, apply_all
from apportion.core.kernels import fragments, pack, queue, room, serve
from apportion.core.policy import preempting
from apportion.core.policy.cycle import before_starts
from apportion.core.policy.funding import Shares, shares_of
from apportion.core.policy.reserving import Reservations, expected_ends, free_times
from apportion.core.policy.taking import Taking
from apportion.core.policy.turn import Turn, unjudged
from apportion.core.state import bulk, schema
from apportion.core.state.queue import empty_waits
from apportion.core.state.state import WAITS, State
from apportion.core.state.wishes import ANYWHERE, NO_ARRAY
from apportion.core.units import MILLI, MS_PER_HOUR, NEVER_MS
from tests.core import oracles
from tests.strategies import Cluster, clusters, column, shapes


@pytest.fixture(autouse=True, scope="module")
def few_starts_in_columns_too() -> Iterator[None]:
    """Two starts go over columns here, though one by one they would cost less."""
    few, bulk.FEW = bulk.FEW, 1
    yield
    bulk.FEW = few


I64 = NDArray[np.int64]
Costs = Callable[[I64], I64]
quick = settings(derandomize=True, max_examples=60, deadline=None)


def measured(cluster: Cluster, used: I64, until_ms: I64, holder: I64, closes_ms: I64) -> tuple[serve.Room, serve.Stock]:
    """Return room and stock of pool 0 as a turn measures them."""
    instants_ms = np.unique(np.concatenate((until_ms[until_ms > 0], closes_ms[closes_ms > 0])))
    most, nodes = int(cluster.node_gpus.max(initial=0)), cluster.nodes
    free, part, last = (np.empty(nodes, dtype=np.int64) for _ in range(3))
    lowest, memory_mib, node_of = np.empty(73, dtype=np.int64), np.full(nodes, 80_000), np.zeros_like(used)
    for node in range(nodes):
        node_of[cluster.node_first[node] : cluster.node_first[node] + cluster.node_gpus[node]] = node
    made = serve.Room(
        instants_ms, np.zeros((len(instants_ms) + 1, most + 1), dtype=np.int64), np.zeros(len(instants_ms) + 1, dtype=np.int64),
        np.zeros((1, most + 1), dtype=np.int64), NO_ARRAY, NO_ARRAY, np.zeros(4, dtype=np.int64), NO_ARRAY, NO_ARRAY,
    )  # fmt: skip
    stock = serve.Stock(
        free, part, last, lowest, used.copy(), np.zeros_like(used), np.empty(-(-nodes // serve.SHELF), dtype=np.int64),
        cluster.out, cluster.held, node_of, cluster.node_first, cluster.node_gpus, memory_mib, until_ms, holder, closes_ms,
    )  # fmt: skip
    made.sums[0] = room.measure_free(
        0, nodes, cluster.node_pool, cluster.node_first, cluster.node_gpus, used, cluster.out, cluster.held, free, part, last,
        lowest,
    )  # fmt: skip
    serve.fill_shelves(part, stock.shelves)
    serve.measure_classes(free, part, last, until_ms, closes_ms, instants_ms, made.nodes, made.shared)
    return made, stock


@settings(quick, max_examples=20)
@given(st.randoms(use_true_random=False), st.integers(1, 3 * serve.SHELF))
def test_fractions_fill_many_shelves_as_find_gpus_finds(dice: st.random.Random, nodes: int) -> None:
    gpus, zeros = 2 * nodes, np.zeros(2 * nodes, dtype=np.int64)
    used = column([dice.choice([0, 1_000, 1_000, 1_000, 750, 500, 250]) for _ in range(gpus)])
    pools = column([dice.randrange(8) // 7 for _ in range(nodes)])
    first, nobody = np.arange(0, gpus, 2), np.zeros(nodes, dtype=np.int64)
    cluster = Cluster(pools, first, np.full(nodes, 2), nobody, used, zeros, zeros)
    made, stock = measured(cluster, used, nobody, nobody, nobody)
    for _ in range(12):
        each, found, wanted = dice.choice([250, 500, 600, 750]), np.zeros(72, dtype=np.int64), np.zeros(72, dtype=np.int64)
        count = pack.find_gpus(
            0, 1, each, 0, 0, 0, -1, nodes, pools, first, cluster.node_gpus, stock.memory_mib, nobody, stock.used, stock.used_mib,
            zeros, zeros, *ANYWHERE, NO_ARRAY, wanted,
        )  # fmt: skip

        assert serve.pick_gpus(stock, made.nodes, 0, 1, each, NEVER_MS, found, 0) == count
        assert found[:count].tolist() == wanted[:count].tolist()
        serve.take_gpus(stock, made, found[:count], each)
        anew, fresh = measured(cluster, stock.used, nobody, nobody, nobody)
        assert (made.shared.tolist(), stock.shelves.tolist()) == (anew.shared.tolist(), fresh.shelves.tolist())


@settings(quick, max_examples=150)
@given(clusters(max_nodes=7), st.lists(shapes(), min_size=1, max_size=8), st.data())
def test_starts_take_what_find_gpus_finds_and_leave_what_measuring_anew_finds(
    cluster: Cluster, asked: list[tuple[int, int]], data: st.DataObject
) -> None:
    instant = st.sampled_from([0, 0, 0, 100, 200, 300])
    until_ms = column([data.draw(instant) for _ in range(cluster.nodes)])
    holder = column([data.draw(st.integers(1, 2)) if until else 0 for until in until_ms.tolist()])
    closes_ms = column([data.draw(instant) for _ in range(cluster.nodes)])
    made, stock = measured(cluster, cluster.used, until_ms, holder, closes_ms)
    for nodes, each in asked:
        row, over_ms = data.draw(st.integers(0, 2)), data.draw(st.sampled_from([50, 100, 150, 300, NEVER_MS]))
        theirs = (until_ms > 0) & (holder != row + 1) & (until_ms < over_ms)
        masked = (theirs | ((closes_ms > 0) & (closes_ms < over_ms))).astype(np.int64)
        gpus, wanted = (np.zeros(nodes * 72, dtype=np.int64) for _ in range(2))
        count = pack.find_gpus(
            0, nodes, each, 0, 0, 0, -1, cluster.nodes, cluster.node_pool, cluster.node_first, cluster.node_gpus, stock.memory_mib,
            masked, stock.used, stock.used_mib, cluster.out, cluster.held, *ANYWHERE, NO_ARRAY, wanted,
        )  # fmt: skip

        taken = serve.pick_gpus(stock, made.nodes, row, nodes, each, over_ms, gpus, 0)

        assert gpus[:taken].tolist() == wanted[:count].tolist()
        if not taken:
            continue
        serve.take_gpus(stock, made, gpus[:taken], min(MILLI, each))
        anew, fresh = measured(cluster, stock.used, until_ms, holder, closes_ms)
        assert made.nodes.tolist() == anew.nodes.tolist()
        assert (made.shared.tolist(), int(made.sums[0])) == (anew.shared.tolist(), int(anew.sums[0]))
        for name in ("free", "part", "last", "shelves"):
            assert getattr(stock, name).tolist() == getattr(fresh, name).tolist(), name
        assert (stock.lowest <= fresh.lowest).all()
    other_ms = column([data.draw(instant) for _ in range(cluster.nodes)])
    anew, fresh = measured(cluster, stock.used, other_ms, holder, closes_ms)
    by_class, shared = np.zeros_like(anew.nodes), np.zeros_like(anew.shared)
    serve.measure_classes(stock.free, stock.part, stock.last, other_ms, closes_ms, anew.instants_ms, by_class, shared)
    assert (by_class.tolist(), shared.tolist()) == (anew.nodes.tolist(), anew.shared.tolist())
    assert stock.last.tolist() == fresh.last.tolist()


MIXES = st.lists(
    st.tuples(st.integers(1, 90), st.sampled_from([(1, 250), (1, 500), (1, MILLI), (4, MILLI)]), st.sampled_from([0, 4_000])),
    min_size=1, max_size=4,
)  # fmt: skip


@settings(quick, max_examples=100)
@given(clusters(max_nodes=7), MIXES, st.sampled_from([schema.FGD, schema.BALANCED]), st.data())
def test_starts_by_rank_take_what_find_gpus_finds(
    cluster: Cluster, mixed: list[tuple[int, tuple[int, int], int]], packing: int, data: st.DataObject
) -> None:
    instant, nodes = st.sampled_from([0, 0, 0, 100, 200]), cluster.nodes
    until_ms, nobody = column([data.draw(instant) for _ in range(nodes)]), np.zeros(nodes, dtype=np.int64)
    made, stock = measured(cluster, cluster.used, until_ms, nobody + 1, nobody)
    mix = np.array([[weight, *shape, cpu_milli, 0, -1] for weight, shape, cpu_milli in mixed], dtype=np.int64)
    cpu_milli = column([data.draw(st.sampled_from([-1, 0, 3_000, 31_000])) for _ in range(nodes)])
    asked = column([0, 1, MILLI, 0, 0, -1])
    ranks = unjudged(packing, mix, (cpu_milli, nobody), asked)
    for each in data.draw(st.lists(st.sampled_from([*range(100, 1_000, 50), 1_000, 2_000, 4_000]), min_size=1, max_size=24)):
        count = data.draw(st.integers(1, 2)) if each >= MILLI else 1
        row, over_ms = data.draw(st.integers(0, 1)), data.draw(st.sampled_from([50, 150, NEVER_MS]))
        masked = ((until_ms > 0) & (row != 0) & (until_ms < over_ms)).astype(np.int64)
        free = np.where((cluster.out == 0) & (cluster.held == 0), MILLI - stock.used, 0)
        rank = np.zeros(len(free) if each < MILLI else nodes, dtype=np.int64)
        fragments.fill_ranks(
            packing, column([0, max(1, each // MILLI), min(each, MILLI), 0, 0, -1]), mix, 0, nodes, cluster.node_pool,
            cluster.node_first, cluster.node_gpus, free, cpu_milli, nobody, rank,
        )  # fmt: skip
        gpus, wanted = (np.zeros(count * 72, dtype=np.int64) for _ in range(2))
        found = pack.find_gpus(
            0, count, each, 0, 0, 0, -1, nodes, cluster.node_pool, cluster.node_first, cluster.node_gpus, stock.memory_mib, masked,
            stock.used, stock.used_mib, cluster.out, cluster.held, *ANYWHERE, rank, wanted,
        )  # fmt: skip

        assert serve.pick_ranked(ranks, stock, row, count, each, over_ms, gpus, 0) == found
        assert gpus[:found].tolist() == wanted[:found].tolist()
        serve.forget(ranks, stock.node_of, gpus, 0, found)
        serve.take_gpus(stock, made, gpus[:found], min(MILLI, each))


@settings(quick, max_examples=6)
@given(st.integers(8, 32), st.integers(1, 10_000), st.sampled_from(["fgd", "balanced"]))
def test_a_walk_by_rank_starts_whom_it_starts_one_by_one(nodes: int, seed: int, packing: Any) -> None:
    digests = list[list[str]]()
    for way in (Turn.rank, lambda _turn: False):
        world = World(nodes, seed)
        world.say(PolicyActivated(pool=world.setting.pool, packing=packing))
        world.submit(nodes * 12)
        digests.append([])
        with mock.patch.object(Turn, "rank", way):
            for minute in range(6):
                world.cycle(MS_PER_HOUR if minute == 3 else 60_000)
                digests[-1].append(world.core.digest())
                world.end(nodes // 4)
                world.submit(nodes // 2)

    assert digests[0] == digests[1]


@pytest.mark.parametrize("rows", [1, 64, 1_000])
def test_who_waits_stands_in_one_cache_line(rows: int) -> None:
    waits = empty_waits(rows)

    assert (waits.shape, waits.flags.c_contiguous, int(np.abs(waits).sum())) == ((rows, WAITS), True, 0)
    assert waits.ctypes.data % (WAITS * waits.itemsize) == 0


@quick
@given(st.integers(0, 24) | st.integers(3 * queue.HALVINGS, 4 * queue.HALVINGS), st.data())
def test_many_join_and_leave_the_queue_as_one_by_one(rows: int, data: st.DataObject) -> None:
    budget = [data.draw(st.integers(0, 3)) for _ in range(rows)]
    priority = [data.draw(st.integers(-1, 1)) for _ in range(rows)]
    seq = data.draw(st.permutations(range(rows)))
    columns, array, inside = (column(budget), column(priority), column(seq)), np.zeros(rows + 1, dtype=np.int64), list[int]()
    asks = np.zeros_like(array)
    for _ in range(4):
        coming = [row for row in range(rows) if row not in inside and data.draw(st.booleans())]
        rows_coming = column(oracles.queue_order(coming, budget, priority, seq))
        queue.merge(array, asks, len(inside), rows_coming, 10 * rows_coming, *columns)
        inside = oracles.queue_order([*inside, *coming], budget, priority, seq)
        assert array[: len(inside)].tolist() == inside

        many = data.draw(st.booleans())  # few are looked for, many are met on a walk
        going = [row for row in data.draw(st.permutations(inside)) if data.draw(st.booleans() if many else st.integers(0, 40)) == 1]
        assert asks[: len(inside)].tolist() == [10 * row for row in inside]
        one_by_one, asked = array.copy(), asks.copy()
        for already, row in enumerate(going):
            assert queue.remove(one_by_one, asked, len(inside) - already, row, *columns)
        count, missing = queue.remove_all(array, asks, len(inside), column(going), *columns)
        assert (array.tolist(), asks.tolist()) == (one_by_one.tolist(), asked.tolist())
        inside = [row for row in inside if row not in going]
        assert (array[:count].tolist(), int(missing)) == (inside, -1)
        assert asks[:count].tolist() == [10 * row for row in inside]
        assert not array[count:].any()
        assert not asks[count:].any()
    if going:
        missing = queue.remove_all(array, asks, len(inside), column(going[:1]), *columns)[1]
        assert int(missing) == going[0], "who is not there is told"


def busy(nodes: int, seed: int, minutes: int) -> World:
    """Return a world after some minutes of work, of which an hour passed at once, with a tick folded that is not decided."""
    world = World(nodes, seed)
    world.submit(nodes * 12)
    for minute in range(minutes):
        world.cycle(MS_PER_HOUR if minute == 2 else 60_000)
        world.end(nodes // 3)
        world.submit(nodes)
    for number in range(3):
        world.say(BudgetClosed(pool=world.setting.pool, budget=f"b{number}/b0/b0"))
    world.tick(60_000)
    return world


@settings(quick, max_examples=8)
@given(st.integers(4, 24), st.integers(1, 10_000), st.integers(0, 5))
def test_decisions_folded_together_give_the_state_that_they_give_one_by_one(nodes: int, seed: int, minutes: int) -> None:
    world = busy(nodes, seed, minutes)
    before = world.core.snapshot()
    decisions = world.core.decide_unhashed().decisions
    single, together = Core.from_snapshot(before), Core.from_snapshot(before)

    for decision in decisions:
        apply(single.state, decision)
    apply_all(together.state, decisions)

    assert single.digest() == together.digest()
    assert single.state.queue[: single.state.queued].tolist() == together.state.queue[: together.state.queued].tolist()
    rows = single.state.queue[: single.state.queued]
    assert single.state.waits[rows].tolist() == together.state.waits[rows].tolist()
    again = Core.from_snapshot(together.snapshot()).state
    assert again.waits[rows].tolist() == single.state.waits[rows].tolist(), "a restored core has the same in its queue"


WRONG: dict[str, Callable[[RunPlaced], RunPlaced]] = {
    "unknown workload": lambda one: replace(one, workload="nobody"),
    "unknown node": lambda one: replace(one, pieces=(Piece("nowhere", (0,), MILLI),)),
    "no such GPU": lambda one: replace(one, pieces=(Piece(one.pieces[0].node, (10**6,), MILLI),)),
    "beyond any number": lambda one: replace(one, pieces=(Piece(one.pieces[0].node, (2**64,), MILLI),)),
    "too much of a GPU": lambda one: replace(one, pieces=(Piece(one.pieces[0].node, (0, 0), MILLI),)),
    "unknown payer": lambda one: replace(one, payer="somebody"),
    "a number too large": lambda one: replace(one, protected_until_ms=2**70),
    "a run that is there": lambda one: replace(one, run=0),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_start_that_does_not_fit_the_state_is_told_as_one_by_one(what: str) -> None:
    world = World(8, 3)
    world.submit(40)
    world.tick(60_000)
    before = world.core.snapshot()
    decisions = list(world.core.decide_unhashed().decisions)
    at = [number for number, one in enumerate(decisions) if isinstance(one, RunPlaced)][3]
    decisions[at] = WRONG[what](decisions[at])  # type: ignore[arg-type]
    errors = list[str]()
    for fold in (lambda state: [apply(state, one) for one in decisions], lambda state: apply_all(state, decisions)):
        try:
            fold(Core.from_snapshot(before).state)
            errors.append("")
        except (KeyError, ValueError, IndexError, InvariantBroken) as error:
            errors.append(f"{type(error).__name__}: {error}")

    assert errors[0] == errors[1]
    assert errors[0] or what == "a run that is there"


def moment(nodes: int, seed: int, minutes: int) -> tuple[State, Shares]:
    """Return a state as the passes that place meet it."""
    state = busy(nodes, seed, minutes).core.state
    emit = emit_into(state)
    return state, before_starts(state, emit)


@settings(quick, max_examples=8)
@given(st.integers(4, 24), st.integers(1, 10_000), st.integers(0, 5))
def test_what_the_passes_ask_of_runs_is_what_the_rules_say(nodes: int, seed: int, minutes: int) -> None:
    state, shares = moment(nodes, seed, minutes)
    state.workload.service[state.run.column("workload")[::3]] = 1  # some of them serve
    for guess in (False, True):
        free_ms = np.maximum(free_times(state, guess=guess), state.counters.time_ms)
        assert free_ms.tolist() == naive_free_times(state, guess=guess).tolist()
    for workload in state.queue[: min(state.queued, 12)].tolist():
        field, loose_milli = preempting.field_of(state, shares, workload)
        eligible, cost, leaf, limit = naive_field(state, shares, workload)
        assert loose_milli == int(state.run.column("gpus_milli")[eligible].sum())
        if field is not None:
            assert (field.eligible == 1).tolist() == eligible.tolist()
            assert (field.leaf.tolist(), field.room.tolist()) == (leaf.tolist(), limit.tolist())
            assert field.cost.tolist() == cost(field.rank).tolist()


@settings(quick, max_examples=8)
@given(st.integers(4, 24), st.integers(1, 10_000), st.integers(0, 5))
def test_what_may_be_freed_and_who_is_ruled_out_is_what_the_table_says(nodes: int, seed: int, minutes: int) -> None:
    state, shares = moment(nodes, seed, minutes)
    turn = Turn(state, shares_of(state), 0, Reservations.none(state))
    serve.measure_freed(turn.lines, turn.room, turn.stock, turn.runs(), turn.now_ms, int(state.pool.quantum_ms[0]))
    stays = np.zeros(state.gpu.used, dtype=np.int64)
    live = np.flatnonzero(state.alloc.column("milli"))
    np.add.at(stays, state.alloc.gpu[live], state.alloc.milli[live])
    assert stays.tolist() == state.gpu.column("used_milli").tolist(), "what is used is what runs hold"
    for workload in state.queue[: state.queued].tolist():
        field, loose_milli = preempting.field_of(state, shares, workload)
        assert int(turn.room.sums[1]) > 0 or not loose_milli or field is None, "what may be freed is never too little"

    open_, listed = turn.open(), dict[int, int]()
    for idle_cycles in (0, 1):
        for leaf in range(state.budget.used):
            first, last = int(open_.first[idle_cycles, leaf]), int(open_.last[idle_cycles, leaf])
            assert sorted(open_.at[idle_cycles, first:last]) == list(open_.at[idle_cycles, first:last])
            listed.update(dict.fromkeys(turn.jobs.queue[open_.at[idle_cycles, first:last]].tolist(), idle_cycles))
            assert (state.workload.budget[turn.jobs.queue[open_.at[idle_cycles, first:last]]] == leaf).all()
    for row in turn.jobs.queue.tolist():
        class_ = int(np.searchsorted(turn.room.instants_ms, serve.says_over_ms(turn.jobs, row, turn.now_ms)))
        assert row in listed or not serve.may_fit(turn.jobs, turn.room, row, class_)
        assert listed.get(row, 0) == int(row in listed and not state.workload.min_runtime_ms[row])


@settings(quick, max_examples=10)
@given(st.integers(8, 32), st.integers(1, 10_000))
def test_nodes_are_kept_in_the_walk_as_they_are_kept_one_by_one(nodes: int, seed: int) -> None:
    walked, kept = Taking.walk, 0

    def by_hand(self: Taking, *args: Any, plain: bool) -> tuple[int, int]:
        return walked(self, *args[:-1], args[-1][:0], plain=plain)

    def counted(self: Taking, *args: Any, plain: bool) -> tuple[int, int]:
        nonlocal kept
        found = walked(self, *args, plain=plain)
        kept += found[1]
        return found

    digests = list[list[str]]()
    for way in (by_hand, counted):
        world = World(nodes, seed)
        world.submit(nodes * 12)
        digests.append([])
        with mock.patch.object(Taking, "walk", way):
            for minute in range(10):
                world.cycle(MS_PER_HOUR if minute == 5 else 60_000)
                digests[-1].append(world.core.digest())
                world.end(nodes // 4)
                world.submit(nodes // 2)
    assert digests[0] == digests[1]
    event(f"kept in the walk: {min(kept, 3)}")


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=60), st.integers(0, 5))
def test_instants_are_distinct_and_ascending(nodes: list[tuple[int, int]], grace_ms: int) -> None:
    until_ms, closes_ms = (column([each[k] * 7 for each in nodes]) for k in (0, 1))
    closing = closes_ms[closes_ms > 0]
    expected = np.unique(np.concatenate((until_ms[until_ms > 0], closing, closing - grace_ms)))
    assert serve.instants_of(until_ms, closes_ms, grace_ms).tolist() == expected.tolist()


def naive_free_times(state: State, *, guess: bool) -> I64:
    run, now_ms = state.run, state.counters.time_ms
    until = expected_ends(state)
    if not guess:
        until = np.where(state.workload.expected_runtime_ms[run.column("workload")] > 0, until, NEVER_MS)
    evictable = np.minimum(until, run.column("protected_until_ms"))
    fair = state.pool.policy[run.column("pool")] == schema.FAIR
    until = np.where(fair & (run.column("payer") == schema.PAYER_UNFUNDED), evictable, until)
    until = np.maximum(np.where(run.column("state") == schema.STOPPING, run.column("stop_by_ms"), until), now_ms)
    free_ms, live = np.full(state.gpu.used, now_ms, dtype=np.int64), np.flatnonzero(state.alloc.column("milli"))
    np.maximum.at(free_ms, state.alloc.gpu[live], until[state.alloc.run[live]])
    return free_ms


def naive_field(state: State, shares: Shares, workload: int) -> tuple[NDArray[np.bool_], Costs, I64, I64]:
    """Return who may go, their costs by the ranks of budgets, the budget that counts of each, and what budgets have to give."""
    run, now_ms = state.run, state.counters.time_ms
    taker, pool = int(state.workload.budget[workload]), int(state.workload.pool[workload])
    quantum_ms, leaf, milli = int(state.pool.quantum_ms[pool]), run.column("budget"), run.column("gpus_milli")
    unfunded = run.column("payer") == schema.PAYER_UNFUNDED
    off = (run.column("idle_since_ms") > 0) & (state.pool.idle_demotes[run.column("pool")] == 1) & unfunded
    idle = (run.column("idle_cycles") == 1) | off
    keeps = shares.running.copy()
    np.subtract.at(keeps, leaf[off], milli[off])
    limit = 2 * (keeps - shares.allowance)
    phases, took_ms = run.column("state"), state.budget.column("took_ms")
    graced = (took_ms > 0) & (now_ms - took_ms < quantum_ms)
    eligible = (run.column("pool") == pool) & ((phases == schema.PLACED) | (phases == schema.STARTED)) & unfunded
    eligible &= run.column("protected_until_ms") <= now_ms
    if not preempting._entitled(state, taker):
        eligible &= idle
    eligible &= idle | ((leaf != taker) & ~graced[leaf] & (milli < limit[leaf]))

    def cost(rank: I64) -> I64:
        counted, unsaved_ms = np.where(idle, 0, milli), np.minimum(now_ms - run.column("checkpoint_ms"), quantum_ms)
        unsaved_ms[state.workload.service[run.column("workload")] > 0] = 0  # traffic is served: there is no work to save
        columns = [
            counted * unsaved_ms, counted, (milli - counted) * unsaved_ms, milli, counted * rank[leaf],
            now_ms - run.column("placed_ms"), state.counters.seq - state.workload.event_seq[run.column("workload")],
        ]  # fmt: skip
        found: I64 = np.stack(columns, axis=1)
        found[~eligible] = 0
        return found

    return eligible, cost, np.where(idle, -1, leaf), limit

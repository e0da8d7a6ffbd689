"""What a cycle knows of releases is what it would find anew, after starts too; what could be freed is counted as by the rules."""

from __future__ import annotations

from unittest import mock

import numpy as np
from hypothesis import event, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from apportion.adapters.bench.worlds.cycles.world import World
from apportion.core.engine import emit_into
from apportion.core.events import BudgetClosed
from apportion.core.kernels import pack, release, serve
from apportion.core.policy import placing
from apportion.core.policy.cycle import before_starts
from apportion.core.policy.fitting import held_by_runs
from apportion.core.policy.reserving import Reservations
from apportion.core.policy.turn import Turn
from apportion.core.state import schema
from apportion.core.state.memo import Outliving
from apportion.core.state.state import State
from apportion.core.units import MILLI, MS_PER_HOUR, NEVER_MS

I64 = NDArray[np.int64]
few = settings(derandomize=True, max_examples=12, deadline=None)


def played(world: World, minute: int) -> None:
    """Play one more minute, or an hour."""
    world.cycle(MS_PER_HOUR if minute % 4 == 3 else 60_000)
    world.end(max(1, world.setting.nodes // 4))
    world.submit(world.setting.nodes // 2)


@few
@given(st.integers(6, 40), st.integers(1, 10_000))
def test_what_is_known_of_releases_after_starts_is_what_would_be_found_anew(nodes: int, seed: int) -> None:
    kept_on = 0

    def checked(state: State, kept: Outliving, workloads: I64) -> None:
        nonlocal kept_on
        keep(state, kept, workloads)
        memo = state.memo.at(state.moved)
        if memo.free_ms is None:
            return
        anew, node = np.empty_like(memo.free_ms), state.node
        release.free_times(state.run.used, state.alloc.used, held_by_runs(state), anew)
        assert memo.free_ms.tolist() == anew.tolist()
        for (pool, guess), made in memo.releases.items():
            for need in np.flatnonzero(made.known).tolist():
                kept_on += 1
                ready_ms = np.empty(node.used, dtype=np.int64)
                pack.ready_times(
                    pool, need, 0, 0, NEVER_MS, node.used, node.pool, node.first_gpu, node.gpus, state.gpu.out,
                    state.gpu.held_by, anew[int(guess)], ready_ms,
                )  # fmt: skip
                assert made.ready_ms[need].tolist() == ready_ms.tolist()
                assert made.order[need].tolist() == np.argsort(ready_ms, kind="stable").tolist()

    keep, world = placing.keep_releases, World(nodes, seed)
    world.submit(nodes * 12)
    with mock.patch.object(placing, "keep_releases", checked):
        for minute in range(10):
            played(world, minute)
    event(f"kept on: {min(kept_on, 3)}")


@few
@given(st.integers(6, 40), st.integers(1, 10_000))
def test_a_cycle_that_keeps_nothing_after_starts_decides_the_same(nodes: int, seed: int) -> None:
    digests = list[list[str]]()
    for keep in (placing.keep_releases, lambda _state, _kept, _workloads: None):
        world = World(nodes, seed)
        world.submit(nodes * 12)
        digests.append([])
        with mock.patch.object(placing, "keep_releases", keep):
            for minute in range(8):
                played(world, minute)
                digests[-1].append(world.core.digest())
    assert digests[0] == digests[1]


@few
@given(st.integers(4, 24), st.integers(1, 10_000), st.integers(1, 6))
def test_what_could_be_freed_is_counted_as_by_the_rules(nodes: int, seed: int, minutes: int) -> None:
    world = World(nodes, seed)
    world.submit(nodes * 12)
    for minute in range(minutes):
        played(world, minute)
    for number in range(3):
        world.say(BudgetClosed(pool=world.setting.pool, budget=f"b{number}/b0/b0"))
    world.tick(2 * MS_PER_HOUR if minutes % 2 else 60_000)
    state = world.core.state
    shares = before_starts(state, emit_into(state))
    state.run.idle_since_ms[: state.run.used : 5] = 1  # some do no work
    state.pool.idle_demotes[0] = seed % 2
    turn = Turn(state, shares, 0, Reservations.none(state))
    serve.measure_freed(turn.lines, turn.room, turn.stock, turn.runs(), turn.now_ms, int(state.pool.quantum_ms[0]))

    freed, able, shared = naive_freed(state, shares.running, shares.allowance)
    event(f"may be freed: {freed > 0}")
    assert int(turn.room.sums[1]) == freed
    assert (turn.room.gone_free.tolist(), turn.room.gone_part.tolist()) == (able, shared)


def naive_freed(state: State, running: I64, allowance: I64) -> tuple[int, list[int], list[int]]:
    """Return the milli-GPU that could be freed at most, and per node the GPUs free then and the most free of one."""
    run, now_ms, quantum_ms = state.run, state.counters.time_ms, int(state.pool.quantum_ms[0])
    keeps, gives, stays = running.copy(), dict[int, list[int]](), state.gpu.column("used_milli").copy()
    live = [row for row in range(run.used) if int(run.payer[row]) == schema.PAYER_UNFUNDED]
    off = {row for row in live if int(run.idle_since_ms[row]) and int(state.pool.idle_demotes[0])}
    for row in off:
        keeps[run.budget[row]] -= run.gpus_milli[row]
    freed, going = 0, list[int]()
    for row in live:
        leaf, milli = int(run.budget[row]), int(run.gpus_milli[row])
        if int(run.state[row]) not in (schema.PLACED, schema.STARTED) or int(run.protected_until_ms[row]) > now_ms:
            continue
        took_ms = int(state.budget.took_ms[leaf])
        if row in off or int(run.idle_cycles[row]):
            freed += milli
        elif (not took_ms or now_ms - took_ms >= quantum_ms) and milli < 2 * (int(keeps[leaf]) - int(allowance[leaf])):
            gives.setdefault(leaf, []).append(milli)
        else:
            continue
        going.append(row)
    for leaf, sizes in gives.items():
        freed += min(sum(sizes), (2 * (int(keeps[leaf]) - int(allowance[leaf])) + max(sizes) - 1) // 2)
    for row in np.flatnonzero(np.isin(state.alloc.column("run"), going) & (state.alloc.column("milli") > 0)).tolist():
        stays[state.alloc.gpu[row]] -= state.alloc.milli[row]
    able, shared = [0] * state.node.used, [0] * state.node.used
    for gpu in np.flatnonzero((state.gpu.column("out") == 0) & (state.gpu.column("held_by") == 0)).tolist():
        node = int(state.gpu.node[gpu])
        able[node] += int(stays[gpu] == 0)
        shared[node] = max(shared[node], MILLI - int(stays[gpu]))
    return freed, able, shared

"""What must hold of a state after every record, recomputed from rows: who holds which GPU, who waits, who runs.

Running totals of the core (rates, demand, counts, the queue, free lists) are compared with a recount; nothing is taken from a
total that the core keeps.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from apportion.core import ledger
from apportion.core.decisions import CycleBatch
from apportion.core.engine import Core
from apportion.core.envelope import Record
from apportion.core.kernels.queue import WAITING
from apportion.core.policy.funding import capacity_milli, shares_of
from apportion.core.state import schema
from apportion.core.state.asks import Ask, ask_at, ask_of, choices_of
from apportion.core.state.holdings import gpus_of_run
from apportion.core.state.queue import parts_of
from apportion.core.state.state import State
from apportion.core.state.unsettled import find_unsettled_later, unsettled_rows
from apportion.core.state.wishes import wish_at, wish_of
from tests.core.oracles import queue_order, queue_parts


def path_of(state: State, line: int) -> list[int]:
    """Return a budget line and those above it."""
    rows = []
    while line >= 0:
        rows.append(line)
        line = int(state.budget.parent[line])
    return rows


def offered(state: State) -> dict[int, int]:
    """Return the GPU rows in supply and the pool each belongs to."""
    node = state.node
    return {
        gpu: int(node.pool[row])
        for row in range(node.used)
        for gpu in range(int(node.first_gpu[row]), int(node.first_gpu[row] + node.gpus[row]))
    }


def used_by_gpu(state: State) -> Counter[int]:
    """Return milli per GPU row, counted from the runs' own lists."""
    used: Counter[int] = Counter()
    for run in state.run.live_rows():
        alloc = int(state.run.first_alloc[run])
        while alloc >= 0:
            assert int(state.alloc.run[alloc]) == run
            used[int(state.alloc.gpu[alloc])] += int(state.alloc.milli[alloc])
            alloc = int(state.alloc.next[alloc])
    return used


def asks_of(state: State, workload: int) -> list[Ask]:
    """Return what a workload is in each pool that may take it, in order of its wish."""
    rows = [row for row in choices_of(state, workload) if not int(state.choice.refusal[row])]
    return [ask_at(state, row) for row in rows] or [ask_of(state, workload)]


def in_progress(state: State) -> list[int]:
    """Return the rows of runs that hold their GPUs."""
    return [row for row in state.run.live_rows() if int(state.run.state[row]) != schema.ENDED]


def check_state(state: State) -> None:
    """Recount everything."""
    ledger.check_conservation(state)
    check_gpus(state)
    check_amounts(state)
    check_runs(state)
    check_budgets(state)
    check_queue(state)
    check_unsettled(state)
    check_shares(state)
    check_choices(state)


def check_gpus(state: State) -> None:
    """Per GPU at most 1,000 milli, per node busy + free = total, per pool the four rates; holds belong to somebody waiting."""
    used, supply = used_by_gpu(state), offered(state)
    rates: Counter[tuple[str, int]] = Counter()
    for gpu in range(state.gpu.used):
        assert int(state.gpu.used_milli[gpu]) == used[gpu], f"GPU row {gpu}: total and runs differ"
        assert 0 <= used[gpu] <= 1_000
        if gpu in supply:
            rates["supply", supply[gpu]] += 1_000
            rates["down" if state.gpu.out[gpu] else "idle", supply[gpu]] += 1_000 - used[gpu]
        else:
            assert used[gpu] == 0, f"GPU row {gpu} is used and not in supply"
            assert state.gpu.out[gpu], f"GPU row {gpu} is not in supply and could be placed on"
    for run in in_progress(state):
        if int(state.run.payer[run]) == schema.PAYER_UNFUNDED:
            rates["unfunded", int(state.run.pool[run])] += int(state.run.gpus_milli[run])
    for pool in range(state.pool.used):
        for name in ("supply", "down", "idle", "unfunded"):
            told = int(getattr(state.pool, f"{name}_milli")[pool])
            assert told == rates[name, pool], f"{name} rate of pool {state.pool.keys[pool]}: {told}, recount {rates[name, pool]}"
    for node in range(state.node.used):
        first, size = int(state.node.first_gpu[node]), int(state.node.gpus[node])
        out = bool(state.node.cordoned[node] or state.node.suspended[node] or state.node.silent[node])
        for gpu in range(first, first + size):
            assert int(state.gpu.node[gpu]) == node
            assert bool(state.gpu.out[gpu]) == (out or bool(state.gpu.broken[gpu]))
        here = {run for run in in_progress(state) for gpu in gpus_of_run(state, run) if first <= gpu < first + size}
        assert int(state.node.runs[node]) == len(here), f"runs on {state.node.keys[node]}: {state.node.runs[node]}, recount {here}"
        assert state.node.cells.beat[node] == int(state.node.beat[node]), "cells are of an older block"
    for gpu in range(state.gpu.used):
        if holder := int(state.gpu.held_by[gpu]):
            waits = int(state.workload.state[holder - 1]) == schema.HELD
            run = int(state.workload.run[holder - 1])
            moves = run >= 0 and int(state.run.stop_cause[run]) == schema.STOP_MOVE
            assert waits or moves, f"GPU row {gpu} is held for somebody who does not wait for it"


def check_amounts(state: State) -> None:
    """CPU and memory used per node, memory per GPU, are those of the runs there; kept wishes and labels are somebody's."""
    used: Counter[tuple[str, int]] = Counter()
    for run in state.run.live_rows():
        wish, seen = wish_of(state, int(state.run.workload[run])), set[int]()
        for gpu in gpus_of_run(state, run):
            node = int(state.gpu.node[gpu])
            if node not in seen or wish.loose:
                used["cpu", node] += wish.cpu_milli
                used["memory", node] += wish.memory_mib
            seen.add(node)
    for row in state.alloc.live_rows():
        assert int(state.alloc.milli[row]) < 1_000 or not state.alloc.gpu_memory_mib[row]
        used["gpu", int(state.alloc.gpu[row])] += int(state.alloc.gpu_memory_mib[row])
    for node in range(state.node.used):
        assert int(state.node.used_cpu_milli[node]) == used["cpu", node]
        assert int(state.node.used_memory_mib[node]) == used["memory", node]
    for gpu in range(state.gpu.used):
        assert int(state.gpu.used_memory_mib[gpu]) == used["gpu", gpu]
    wished = Counter(ask.wish for row in state.workload.live_rows() for ask in asks_of(state, row))
    wished += Counter(int(state.service.wish[row]) for row in state.service.live_rows())
    for row in state.wish.live_rows():
        assert int(state.wish.workloads[row]) == wished[row + 1] > 0
        assert wish_at(state, row + 1).key == state.wish.keys[row]
    named = Counter(int(state.wish.group[row]) for row in state.wish.live_rows())
    for row in state.group.live_rows():
        assert int(state.group.wishes[row]) == named[row + 1] > 0
    borne = Counter(int(state.tag.label[row]) for row in state.tag.live_rows())
    for row in state.label.live_rows():
        assert int(state.label.nodes[row]) == borne[row + 1] > 0
    for row in state.domain.live_rows():
        inside = sum(int((state.node.column(f"domain_{height}") == row + 1).sum()) for height in (1, 2, 3))
        assert int(state.domain.nodes[row]) == inside > 0


def check_runs(state: State) -> None:
    """Runs, their workloads and their allocations fit together."""
    run, workload = state.run, state.workload
    allocs = 0
    for row in run.live_rows():
        owner = int(run.workload[row])
        assert int(workload.state[owner]) == schema.RUNNING
        assert int(workload.run[owner]) == row
        assert run.keys[row] == f"{workload.keys[owner]}#{int(run.run_no[row])}"
        held, gpus, alloc = 0, list[int](), int(run.first_alloc[row])
        while alloc >= 0:
            held += int(state.alloc.milli[alloc])
            gpus.append(int(state.alloc.gpu[alloc]))
            alloc = int(state.alloc.next[alloc])
        allocs += len(gpus)
        assert len(set(gpus)) == len(gpus)
        ended = int(run.state[row]) == schema.ENDED
        assert held == (0 if ended else int(run.gpus_milli[row])), f"{run.keys[row]}: all of its GPUs or none"
        assert not (int(run.payer[row]) == schema.PAYER_BUDGET and run.idle_cycles[row]), "idle cycles are never funded"
        assert min(int(run.charged_us[row]), int(run.unfunded_us[row])) >= 0
        assert int(run.placed_ms[row]) <= int(run.payer_since_ms[row]) <= state.counters.time_ms
    assert allocs == len(state.alloc)
    for row in workload.live_rows():
        running = int(workload.state[row]) == schema.RUNNING
        assert running == (int(workload.run[row]) >= 0)
    assert len(set(workload.row_of) & set(state.closed.row_of)) == 0


def check_budgets(state: State) -> None:
    """Rates, demand and counts of each line are those of the runs and workloads on it and below it."""
    budget = state.budget
    count: Counter[tuple[str, int]] = Counter()
    for run in in_progress(state):
        funded = int(state.run.payer[run]) == schema.PAYER_BUDGET
        for line in path_of(state, int(state.run.budget[run])):
            count["funded_milli" if funded else "unfunded_milli", line] += int(state.run.gpus_milli[run])
            if not state.run.idle_cycles[run]:
                count["running_milli", line] += int(state.run.gpus_milli[run])
    for row in state.workload.live_rows():
        line = int(state.workload.budget[row])
        for ask in asks_of(state, row):
            count["workloads", ask.budget] += 1
        if int(state.workload.state[row]) in (schema.PENDING, schema.HELD) and state.workload.min_runtime_ms[row]:
            for above in path_of(state, line):
                count["pending_milli", above] += int(state.workload.gpus_milli[row])
    for row in state.service.live_rows():
        count["workloads", int(state.service.budget[row])] += 1
    for line in range(budget.used):
        count["children", line] = sum(1 for other in range(budget.used) if int(budget.parent[other]) == line)
        for name in ("funded_milli", "unfunded_milli", "running_milli", "pending_milli", "workloads", "children"):
            told = int(getattr(budget, name)[line])
            assert told == count[name, line], f"{name} of {budget.keys[line]}: {told}, recount {count[name, line]}"
        if count["children", line]:
            assert count["workloads", line] == 0, "workloads charge leaves only"
        assert int(budget.charged_us[line]) >= 0
        assert int(budget.unfunded_us[line]) >= 0
    for pool in range(state.pool.used):
        lags = [
            int(budget.lag_us[line]) for line in range(budget.used)
            if int(budget.pool[line]) == pool and not count["children", line]
        ]  # fmt: skip
        assert sum(lags) == 0, f"lags of pool {state.pool.keys[pool]} sum to {sum(lags)}"


def check_choices(state: State) -> None:
    """A workload is what it would be in the pool where it is; it waits at home; the lists hold all rows and no others."""
    choice, table, listed = state.choice, state.workload, list[int]()
    for row in table.live_rows():
        rows = choices_of(state, row)
        listed += rows
        assert [int(choice.place[one]) for one in rows] == list(range(len(rows)))
        assert len(rows) != 1
        assert all(choice.keys[one].partition(" ")[0] == table.keys[row] for one in rows)
        asks = asks_of(state, row)
        assert ask_of(state, row) in asks
        assert len({ask.pool for ask in asks}) == len(asks)
        if int(table.state[row]) in (schema.NEW, schema.PENDING):
            assert ask_of(state, row) == asks[0], f"{table.keys[row]} waits, and not at home"
    assert sorted(listed) == choice.live_rows()


def ask_in_one_number(state: State, row: int) -> int:
    """What somebody who waits asks for, as it stands beside the queue: written out, field by field."""
    cells = state.workload.cells
    expected_ms, idle = cells.expected_runtime_ms[row], int(cells.min_runtime_ms[row] == 0)
    left_s = max(0, expected_ms - cells.progress_ms[row]) // 1_000 if expected_ms > 0 else 2**28 - 1
    fields = f"{left_s:028b}{idle:b}{cells.nodes[row]:017b}{cells.milli_per_node[row]:017b}"
    return -1 - int(fields, 2) if cells.wish[row] else int(fields, 2)


def check_queue(state: State) -> None:
    """The incremental queue is the one that sorting gives."""
    table = state.workload
    waiting = [row for row in table.live_rows() if int(table.state[row]) in (schema.PENDING, schema.HELD)]
    expected = queue_order(waiting, table.budget.tolist(), table.priority.tolist(), table.event_seq.tolist())
    assert state.queue[: state.queued].tolist() == expected
    assert state.asks[: state.queued].tolist() == [ask_in_one_number(state, row) for row in expected]
    first, last = (np.zeros(state.budget.used, dtype=np.int64) for _column in range(2))
    parts_of(state, first, last)
    lines = [int(table.budget[row]) for row in expected]
    assert list(zip(first.tolist(), last.tolist(), strict=True)) == queue_parts(lines, state.budget.used)
    assert sorted(state.untold) == sorted(row for row in waiting if not table.reason[row] or table.funded_ms[row] > 0)
    marked = np.flatnonzero(state.in_queue[: table.used])
    assert marked.tolist() == sorted(expected)
    assert not (state.in_queue > WAITING).any()


def check_unsettled(state: State) -> None:
    """Who is new, over, cancelled or retired is listed, and nobody else."""
    listed = unsettled_rows(state)
    find_unsettled_later(state)
    assert unsettled_rows(state) == listed


def check_shares(state: State) -> None:
    """Allowances never exceed what is in service; entitlements never exceed demand."""
    shares = shares_of(state)
    for pool in range(state.pool.used):
        leaves = [
            line for line in range(state.budget.used)
            if int(state.budget.pool[line]) == pool and not state.budget.children[line]
        ]  # fmt: skip
        if int(state.pool.policy[pool]) != schema.FAIR:
            continue  # a baseline bounds nothing
        allowed = sum(int(shares.allowance[leaf]) for leaf in leaves)
        assert allowed <= capacity_milli(state, pool), f"allowances of pool {state.pool.keys[pool]} sum to {allowed}"
        for leaf in leaves:
            demand = int(state.budget.running_milli[leaf]) + int(state.budget.pending_milli[leaf])
            assert 0 <= int(shares.entitled[leaf]) <= demand
            assert 0 <= int(shares.allowance[leaf]) <= demand


def check_barred(state: State) -> None:
    """After a cycle: barred are closed lines, metered ones with nothing left that is not promised, and all below them."""
    budget, now_ms = state.budget, state.counters.time_ms
    promised: Counter[int] = Counter()
    for run in in_progress(state):
        if state.run.reserved[run]:
            left_ms = max(0, int(state.run.protected_until_ms[run]) - now_ms)
            for line in path_of(state, int(state.run.budget[run])):
                promised[line] += int(state.run.gpus_milli[run]) * left_ms
    spent = [
        bool(budget.metered[line]) and int(budget.granted_us[line]) - int(budget.charged_us[line]) <= promised[line]
        for line in range(budget.used)
    ]
    for line in range(budget.used):
        barred = any(spent[above] or budget.closed[above] for above in path_of(state, line))
        assert bool(budget.barred[line]) == barred, f"{budget.keys[line]} is barred: {not barred}, should be {barred}"


class Inspector:
    """Watcher of a story that recounts the state after every record."""

    def after(self, core: Core, record: Record, batch: CycleBatch | None) -> None:
        """Check everything."""
        check_state(core.state)
        if batch is not None:
            check_barred(core.state)

"""One node and one job: each test that stands between them, in order, and what came of the whole.

A pure function of a ``Cycle``. Each line is asked of the columns and of the functions that the feasibility function is made of
(``wishes.places_of``, ``reserving``), and the verdict on the node of that function itself, with all other nodes left out. So a node
on which every test holds is one that the core could have taken, and then the verdict says why it did not.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from apportion.adapters.explaining.causes import part_fits
from apportion.adapters.explaining.holders import run_told
from apportion.adapters.explaining.moment import Cycle
from apportion.core.policy.fitting import find_gpus
from apportion.core.policy.reserving import says_over_ms
from apportion.core.state import schema
from apportion.core.state.asks import Ask, ask_at, ask_of, choices_of
from apportion.core.state.holdings import runs_on_node
from apportion.core.state.space import Space
from apportion.core.state.state import State
from apportion.core.state.topology import domains_at
from apportion.core.state.wishes import Wish, places_of, wish_at
from apportion.core.units import MILLI

TESTS = (
    "pool", "in_service", "drain", "label", "gpu_memory", "cpu", "memory", "exclusive", "size", "free_gpus", "block", "apart",
    "kept", "domain", "others",
)  # fmt: skip


@dataclass(frozen=True)
class Test:
    """One test: its name, one of ``TESTS``; whether it holds; the numbers it is about."""

    name: str
    holds: bool
    numbers: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Verdict:
    """All tests in order; whether the node by itself would do for a part of the job; who holds its GPUs."""

    tests: list[Test]
    node_would_do: bool
    whole_would_fit: bool  # the job, now, with all nodes, beside what is kept for others
    chosen: list[str]  # the nodes that it would then get
    runs: list[dict[str, Any]]

    @property
    def failing(self) -> list[Test]:
        """Return the tests that do not hold; the first is the one that is met first."""
        return [test for test in self.tests if not test.holds]


def verdict_on(cycle: Cycle, node: int, workload: int) -> Verdict:
    """Return what stands between a node and a workload (rows) that waits, after the cycle."""
    state = cycle.state
    ask = _ask_there(state, workload, int(state.node.pool[node]))
    tests = list(_tests(cycle, node, workload, ask))
    made = cycle.reservations[ask.pool]
    only = np.zeros(state.node.used, dtype=np.int64)
    only[node] = 1
    masked = made.beside(state, workload)
    alone = part_fits(state, workload, ask, np.where(masked > 0, 0, only))
    gpus = find_gpus(state, workload, Space.now(state), masked, ask=ask)
    chosen = sorted(dict.fromkeys(state.node.keys[int(state.gpu.node[gpu])] for gpu in gpus))
    runs = [run_told(state, run, [node]) for run in runs_on_node(state, node)]
    return Verdict(tests, alone, bool(gpus), chosen, runs)


def _ask_there(state: State, workload: int, pool: int) -> Ask:
    """Return what the workload is in the node's pool, if it accepts that; else where it waits."""
    for choice in choices_of(state, workload):
        if not state.choice.refusal[choice] and int(state.choice.pool[choice]) == pool:
            return ask_at(state, choice)
    return ask_of(state, workload)


def _tests(cycle: Cycle, node: int, workload: int, ask: Ask) -> list[Test]:
    state, table = cycle.state, cycle.state.node
    wish = wish_at(state, ask.wish)
    found = [
        Test("pool", int(table.pool[node]) == ask.pool, {"pool": state.pool.keys[int(table.pool[node])]}),
        _in_service(state, node),
        _drain(cycle, node, workload, ask),
    ]
    found += _wishes(state, node, workload, wish)
    whole, free_part = _free(state, node, workload)
    usable = int((_gpus(state, node, "out") == 0).sum())
    need, part = ask.milli_per_node, ask.milli_per_node < MILLI
    found.append(Test("size", usable * MILLI >= need, {"need_milli": need, "node_milli": usable * MILLI}))
    free = free_part if part else whole * MILLI
    held = _gpus(state, node, "held_by")
    numbers: dict[str, Any] = {"need_milli": need, "free_milli": free}
    holders = sorted({state.workload.keys[int(row) - 1] for row in held[(held > 0) & (held != workload + 1)]})
    if holders:
        numbers["held_for"] = ", ".join(holders)
    found.append(Test("free_gpus", free >= need, numbers))
    if wish.aligned and ask.nodes == 1:
        only = np.zeros(table.used, dtype=np.int64)
        only[node] = 1
        one = ask._replace(nodes=1, gpus_milli=need)
        bare = find_gpus(state, workload, Space.now(state), np.where(only > 0, 0, 1), Wish(aligned=1), one)
        found.append(Test("block", bool(bare), {"need_milli": need, "free_milli": free}))
    if wish.group:
        room = places_of(state, Wish(group=wish.group, apart_level=wish.apart_level), 2, Space.now(state), workload + 1).room
        found.append(Test("apart", bool(room[node] > 0), {"group": wish.group.rpartition(":")[2]}))
    found.append(_kept(cycle, node, workload, ask))
    if ask.nodes > 1:
        found += _together(cycle, node, workload, ask, wish)
    return found


def _gpus(state: State, node: int, column: str) -> Any:
    first = int(state.node.first_gpu[node])
    return state.gpu.column(column)[first : first + int(state.node.gpus[node])]


def _in_service(state: State, node: int) -> Test:
    table = state.node
    numbers: dict[str, Any] = {"last_seen_ms": int(table.last_seen_ms[node])}
    if not table.gpus[node]:
        return Test("in_service", False, {"state": "left"})
    if table.silent[node]:
        return Test("in_service", False, {**numbers, "state": "silent"})
    if table.suspended[node]:
        return Test("in_service", False, {"state": "suspended", "failures": int(table.start_failures[node])})
    if table.cordoned[node]:
        return Test("in_service", False, {"state": "cordoned"})
    broken = int(_gpus(state, node, "broken").astype(bool).sum())
    return Test("in_service", True, {"state": "up", **({"broken": broken} if broken else {})})


def _drain(cycle: Cycle, node: int, workload: int, ask: Ask) -> Test:
    closes_ms, over_ms = int(cycle.reservations[ask.pool].closes_ms[node]), says_over_ms(cycle.state, workload)
    numbers = {"until_ms": closes_ms} if closes_ms else {}
    stated = cycle.state.workload.expected_runtime_ms[workload] > 0
    return Test("drain", not 0 < closes_ms < over_ms, numbers | ({"over_ms": over_ms} if stated and closes_ms else {}))


def _wishes(state: State, node: int, workload: int, wish: Wish) -> list[Test]:
    """Return a test for each thing that it asks of a node beside GPUs."""
    table, found = state.node, list[Test]()

    def room(part: Wish) -> int:
        return int(places_of(state, part._replace(loose=wish.loose), 2, Space.now(state), workload + 1).room[node])

    for label in wish.labels:
        found.append(Test("label", room(Wish(labels=(label,))) > 0, {"label": label}))
    if wish.gpu_memory_mib:
        offered = int(table.gpu_memory_mib[node])
        found.append(
            Test("gpu_memory", room(Wish(gpu_memory_mib=wish.gpu_memory_mib)) > 0, {"need": wish.gpu_memory_mib, "offers": offered})
        )
    if wish.cpu_milli:
        left = int(table.cpu_milli[node]) - int(table.used_cpu_milli[node])
        numbers = {"need": wish.cpu_milli // MILLI, "offers": left // MILLI}
        found.append(Test("cpu", room(Wish(cpu_milli=wish.cpu_milli)) > 0, numbers))
    if wish.memory_mib:
        left = int(table.memory_mib[node]) - int(table.used_memory_mib[node])
        found.append(Test("memory", room(Wish(memory_mib=wish.memory_mib)) > 0, {"need": wish.memory_mib, "offers": left}))
    if wish.exclusive:
        found.append(
            Test("exclusive", room(Wish(exclusive=wish.exclusive)) > 0, {"need": wish.exclusive, "offers": int(table.gpus[node])})
        )
    return found


def _free(state: State, node: int, workload: int) -> tuple[int, int]:
    """Return how many whole GPUs of a node are free for it, and the most that is free of one, in milli-GPU."""
    used, held = _gpus(state, node, "used_milli"), _gpus(state, node, "held_by")
    open_ = (_gpus(state, node, "out") == 0) & ((held == 0) | (held == workload + 1))
    return int((open_ & (used == 0)).sum()), int((MILLI - used[open_]).max(initial=0))


def _kept(cycle: Cycle, node: int, workload: int, ask: Ask) -> Test:
    made, state = cycle.reservations[ask.pool], cycle.state
    holder, until_ms = int(made.holder[node]), int(made.until_ms[node])
    if not until_ms or holder == workload + 1:
        return Test("kept", True, {})
    numbers = {"holder": state.workload.keys[holder - 1], "until_ms": until_ms}
    return Test("kept", not until_ms < says_over_ms(state, workload), numbers)


def _together(cycle: Cycle, node: int, workload: int, ask: Ask, wish: Wish) -> list[Test]:
    """Return whether enough nodes beside this one would do: in its domain, and at all."""
    state, made = cycle.state, cycle.reservations[ask.pool]
    masked = made.beside(state, workload)
    able = np.zeros(state.node.used, dtype=np.int64)
    for row in np.flatnonzero((state.node.column("pool") == ask.pool) & (masked == 0)).tolist():
        whole, part = _free(state, row, workload)
        if max(whole * MILLI, part if ask.milli_per_node < MILLI else 0) >= ask.milli_per_node:
            only = np.zeros(state.node.used, dtype=np.int64)
            only[row] = 1
            able[row] = int(part_fits(state, workload, ask, only))
    found = list[Test]()
    if wish.within:
        domains = domains_at(state, wish.within - 1)
        inside = int(able[domains == domains[node]].sum())
        found.append(Test("domain", inside >= ask.nodes, {"nodes_able": inside, "nodes_needed": ask.nodes}))
    found.append(Test("others", int(able.sum()) >= ask.nodes, {"nodes_able": int(able.sum()), "nodes_needed": ask.nodes}))
    return found


def waits(state: State, workload: int) -> bool:
    """Tell whether a workload (row) waits, so that it can be asked why it is not somewhere."""
    return int(state.workload.state[workload]) in (schema.PENDING, schema.HELD)



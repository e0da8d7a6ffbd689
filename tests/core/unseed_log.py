"""The log of the unseed test: written once from a seed, then read in processes that differ in everything that must not matter.

As a program: reads the log named on the command line, decides every cycle anew, and prints what came out as JSON.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from apportion.adapters.bench.worlds.packing.arrivals import Arrivals
from apportion.adapters.bench.worlds.packing.openb import Nodes, Trace
from apportion.adapters.bench.worlds.packing.play import play
from apportion.core import events as ev
from apportion.core.engine import Core
from apportion.core.envelope import Record
from apportion.core.policy.gaps import gaps_of

POLICIES: tuple[Any, ...] = ("fair", "horizon", "fair_tree", "drf", "priority", "fifo")
PACKINGS: tuple[Any, ...] = ("balanced", "fgd", "best_fit")
BACKFILLS = ("conservative", "easy")
KINDS = (  # weight, GPUs, milli, CPU, memory, models
    (9, 1, 1_000, 8_000, 1_024, -1), (7, 1, 300, 4_000, 1_024, -1), (5, 1, 810, 20_000, 1_024, 1), (3, 2, 1_000, 16_000, 1_024, 2),
    (2, 0, 0, 6_000, 4_096, -1), (1, 4, 1_000, 60_000, 1_024, 3), (4, 1, 500, 1_000, 65_536, -1),
)  # fmt: skip
SEED, CYCLES, RECORDS = 2, 300, 4_000


def write(path: Path) -> None:
    """Write the log: chaos until there are ``CYCLES`` cycles, heartbeats up to ``RECORDS``.

    With every kind of event, every policy, packing and way of backfill.
    """
    from tests.core.chaos import NODES, Chaos, Seeded
    from tests.core.story import Story

    story = Story()
    chaos = Chaos(story, Seeded(SEED))
    story.watchers = (chaos,)
    chaos.begin()
    story.tell(ev.CoreActivated(core=1))
    while len(story.batches) < CYCLES:
        chaos.act()
        if len(story.batches) % 10 == 0:
            story.tell(ev.DemandObserved(workload=f"w{chaos.made}", traffic_milli=5))
            chaos.money()
            chaos.serve()
            turn = len(story.batches) // 10
            packing = PACKINGS[turn % len(PACKINGS)]
            rules: Any = {"policy": POLICIES[turn % len(POLICIES)], "packing": packing, "backfill": BACKFILLS[turn % 2]}
            story.tell(ev.PolicyActivated(pool="p", **rules))
            story.tell(ev.BudgetTransferred(pool="p", from_budget="B", to_budget="C", gpu_us=1_000))
            story.tell(ev.BudgetWithdrawn(pool="p", budget="C", gpu_us=1_000))
        plain = RECORDS * (len(story.batches) + 1) // CYCLES - len(story.records)
        for number in range(max(0, plain)):
            node = tuple(NODES)[number % len(NODES)]
            chaos.beats[node] = chaos.beats.get(node, 0) + 1
            story.tell(ev.NodeHeartbeat(node=node, beat=chaos.beats[node]), f"agent-{node}")
    chaos.in_pieces()
    path.write_bytes(msgspec.msgpack.encode([tuple(record) for record in story.records]))


def read(path: Path) -> list[Record]:
    """Return the records of the log."""
    return [Record(*entry) for entry in msgspec.msgpack.decode(path.read_bytes())]


def outcome(records: list[Record]) -> dict[str, Any]:
    """Decide every cycle of the log; return digest, chain, and a hash over the exact bytes of all batches."""
    core, bodies, done = Core.new(), hashlib.sha256(), 0
    while done < len(records):
        done = core.fold_many(records, done)
        if core.tick_pending:
            bodies.update(core.decide())
    return {
        "digest": core.digest(),
        "chain": core.state.chain.hex(),
        "batches": bodies.hexdigest(),
        "snapshot": hashlib.sha256(core.snapshot()).hexdigest(),
        "gaps": [gaps_of(core.state, pool) for pool in range(core.state.pool.used)],
        "places": {packing: hashlib.sha256(repr(placed(packing)).encode()).hexdigest() for packing in PACKINGS},
        "cycles": core.cycle,
        "seq": core.seq,
    }


def placed(packing: str) -> list[int]:
    """Return where a made-up stream of tasks goes: the kernel of the placement bench, which no cycle calls."""
    count, kinds = 12, np.array(KINDS, dtype=np.int64)
    gpus = np.array([2 + 2 * (node % 4) for node in range(count)], dtype=np.int64)
    nodes = Nodes(np.cumsum(gpus) - gpus, gpus, 12_000 * gpus, 65_536 * gpus, 1 << np.arange(count) % 2, {})
    pods = [(7 * number * number + number) % len(KINDS) for number in range(80)]
    trace = Trace("made up", kinds, pods, kinds)
    return play(packing, trace, nodes, Arrivals(pods, np.arange(count - 1, -1, -1))).places


def surroundings() -> dict[str, Any]:
    """Return what this process is made of, to show that an environment was in force."""
    import llvmlite.binding as llvm
    import numba
    from numpy._core import _multiarray_umath as umath

    return {
        "hash": hash("apportion"),
        "jit": not numba.config.DISABLE_JIT,
        "cpu": numba.config.CPU_NAME or llvm.get_host_cpu_name(),
        "opt": str(numba.config.OPT),
        "simd": sorted(name for name, on in umath.__cpu_features__.items() if on),
    }


if __name__ == "__main__":
    print(json.dumps({"outcome": outcome(read(Path(sys.argv[1]))), "surroundings": surroundings()}))

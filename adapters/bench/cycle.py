"""The whole cycle without I/O: 2,048 nodes of 8 GPUs, 1,111 budgets, 100,000 pending workloads; milliseconds of CPU time.

The state is built from events through the core, nothing by hand (``worlds.cycles``). Measured is what ``Core`` does
between a tick and its decisions, the fold of the decisions included; the digest of the state and the bytes of the batch apart:

The digest is beside these figures (``hash_p50_ms``), not in them; a leader pays both.

- ``nothing_fits``: cycles in which nothing starts and nobody is preempted, before and after protected times have ended;
- ``steady``: once a minute, since the last cycle ``nodes // 100`` runs ended and as many workloads came;
- ``fill``: the cycle that fills the empty cluster, with as many starts as it makes (``fill_starts``); ``floor_ms`` is what the same
  decisions cost when nothing is decided: made from what they say, and folded, which is what a replay does;
- ``victims``: the least plan of victims for a gang of 64 GPUs, alone, of all that run (0 victims = there was none);
- ``backfill_10k``: the plan of the time to come for the first 10,000 (policy ``backfill: conservative``), without the starts;
- ``growth``: medians by nodes and pending, each built anew; a row takes as long as its state takes to build;
- ``rules``: the same for other packings, and where runs may be moved (all may), at a quarter of the size.

``noise_ratio`` is the 99th over the 50th percentile of a fixed loop of about a millisecond: what the machine adds by itself.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from apportion.adapters.bench.worlds.cycles.moments import floor_ms, plan_ms, victims_for
from apportion.adapters.bench.worlds.cycles.world import Taken, World
from apportion.adapters.comparing.setting import MINUTE_MS
from apportion.core.decisions import RunPreempted
from apportion.core.events import BudgetClosed, BudgetSet, PolicyActivated, WorkloadSubmitted
from apportion.core.units import MS_PER_HOUR

GROWTH = ((128, 1_000), (256, 5_000), (512, 10_000), (1_024, 50_000), (2_048, 1_000), (2_048, 100_000))
RULES: tuple[dict[str, Any], ...] = ({"packing": "fgd"}, {"packing": "balanced"}, {"moves": "carry_out"}, {})
RULES_SIZE = 512, 25_000
WAITING_PER_NODE = 5  # submitted beyond the pending, to fill the cluster
STEADY_CYCLES = 90
DEPTH = 10_000
GANG_NODES, GANG_PPM, OTHERS_PPM = 8, 910_000, 10_000
CLOSED = 7  # of ten programs, so that whole nodes could be emptied


def run(
    nodes: int = 2_048, pending: int = 100_000, rounds: int = 100, growth: int = 1, rules: int = 1, seed: int = 1
) -> dict[str, Any]:
    """Return the figures; ``growth`` 0 and ``rules`` 0 leave those tables out."""
    _small(seed)  # loads machine code
    before_mb = _rss_mb()
    world = World(nodes, seed)
    with tempfile.TemporaryFile() as before:
        admit, fill = _filled(world, pending, before)
        rss_mb = _rss_mb()
        floor = _floor_ms(before, fill)
    nothing = [world.cycle(1_000) for _round in range(rounds)]
    steady = [_minute(world) for _round in range(STEADY_CYCLES)]
    nothing += [world.cycle(1_000) for _round in range(rounds)]
    nothing = [one for one in nothing if not one.started and not one.preempted]
    plans = _plans(world)
    running, (victims_ms, victims) = len(world.live), _victims(world)
    figures: dict[str, Any] = {
        "nothing_fits_p99_ms": _at(nothing, 99),
        "nothing_fits_p50_ms": _at(nothing, 50),
        "steady_p99_ms": _at(steady, 99),
        "steady_p50_ms": _at(steady, 50),
        "steady_starts": sum(one.started for one in steady),
        "steady_preemptions": sum(one.preempted for one in steady),
        "fill_ms": round(fill.decide_ms, 1),
        "fill_starts": fill.started,
        "fill_us_per_start": round(1_000 * fill.decide_ms / max(1, fill.started), 1),
        "floor_ms": round(floor, 1),
        "fill_encode_ms": round(fill.encode_ms, 1),
        "victims_ms": victims_ms,
        "victims": victims,
        "running": running,
        "backfill_10k_ms": round(min(plans), 2),
        "backfill_10k_p50_ms": round(sorted(plans)[len(plans) // 2], 2),
        "hash_p50_ms": round(sorted(one.hash_ms for one in nothing)[len(nothing) // 2], 2),
        "encode_p50_ms": round(sorted(one.encode_ms for one in steady)[len(steady) // 2], 2),
        "admit_ms": round(admit.decide_ms, 1),
        "rss_mb": rss_mb,
        "rss_program_mb": before_mb,
        "warm_start_cpu_s": _warm_start_s(),
        "noise_ratio": _noise(),
        "nodes": nodes, "budgets": 1 + len(world.setting.tree), "pending": pending, "seed": seed, "clock": "CPU time",
    }  # fmt: skip
    del world
    figures["growth"] = [_row(*size, seed) for size in GROWTH] if growth else []
    figures["rules"] = [_row(*RULES_SIZE, seed, **rule) for rule in RULES] if rules else []
    return figures


def _filled(world: World, pending: int, before: IO[bytes]) -> tuple[Taken, Taken]:
    """Let everybody wait before nodes come into service; returns the cycle that admits them and the one that fills the cluster.

    ``before`` gets the state before the second: in a file, so that it takes no memory while that is measured.
    """
    world.close()
    world.submit(pending + WAITING_PER_NODE * world.setting.nodes)
    admit = world.cycle(1_000)
    world.open()
    world.tick(1_000)
    before.write(world.core.snapshot())
    return admit, world.decide()


def _floor_ms(before: IO[bytes], fill: Taken) -> float:
    before.seek(0)
    return floor_ms(before.read(), fill.batch)


def _minute(world: World) -> Taken:
    count = max(1, world.setting.nodes // 100)
    world.end(count)
    world.submit(count)
    return world.cycle(MINUTE_MS)


def _victims(world: World) -> tuple[float, int]:
    """Ask for 64 GPUs when protected times are over; returns what the plan took, and how many victims. Spoils the world.

    A thousandth of the pool does not fund a gang: the budget that is owed most gets most of what its siblings had. Seven of
    ten programs are closed, so that there is a choice of nodes. A cluster of a few hundred nodes has no victims to show.
    """
    world.cycle(MS_PER_HOUR)
    world.cycle(MS_PER_HOUR)
    state, setting = world.core.state, world.setting
    leaves = [state.budget.row_of[f"{setting.pool}:{path}"] for path in setting.leaves()]
    least = min(leaves, key=lambda row: (-int(state.budget.lag_us[row]), row))
    path = state.budget_path(least)
    above = path.rpartition("/")[0]
    for other in (one for one in setting.leaves() if one.rpartition("/")[0] == above and one != path):
        world.say(BudgetSet(pool=setting.pool, budget=other, share_ppm=OTHERS_PPM))
    world.say(BudgetSet(pool=setting.pool, budget=path, share_ppm=GANG_PPM))
    tops = [one for one, _share in setting.tree if "/" not in one and not path.startswith(f"{one}/")]
    for other in (one for one, _share in reversed(setting.tree) if one.partition("/")[0] in tops[:CLOSED]):
        world.say(BudgetClosed(pool=setting.pool, budget=other))  # what runs there is no longer paid for
    world.ask(
        WorkloadSubmitted(
            workload="gang", budget=path, pools=(setting.pool,), gpus_milli=8_000 * GANG_NODES, nodes=GANG_NODES, priority=9
        )
    )
    world.tick(1_000)
    taken, plan = victims_for(world.core, "gang")
    return round(taken, 2), sum(isinstance(one, RunPreempted) for one in plan)


def _plans(world: World, rounds: int = 15) -> list[float]:
    """Return what conservative backfill of the first ``DEPTH`` takes after each of some cycles under it."""
    world.say(PolicyActivated(pool=world.setting.pool, backfill="conservative", backfill_depth=DEPTH))
    taken, pool = list[float](), world.core.state.pool.row_of[world.setting.pool]
    for _round in range(rounds):
        _minute(world)
        taken.append(plan_ms(world.core, pool))
    return taken


def _row(nodes: int, pending: int, seed: int, **rule: Any) -> dict[str, Any]:
    world = World(nodes, seed, movable="moves" in rule)
    if rule:
        world.say(PolicyActivated(pool=world.setting.pool, **rule))
    with tempfile.TemporaryFile() as before:
        _admit, fill = _filled(world, pending, before)
        floor = _floor_ms(before, fill)
    nothing = [world.cycle(1_000) for _round in range(15)]
    steady = [_minute(world) for _round in range(15)]
    return {
        **rule, "nodes": nodes, "pending": pending, "nothing_fits_p50_ms": _at(nothing, 50), "steady_p50_ms": _at(steady, 50),
        "fill_ms": round(fill.decide_ms, 1), "fill_starts": fill.started, "floor_ms": round(floor, 1),
    }  # fmt: skip


def _small(seed: int) -> None:
    """Play every kind of cycle once in a small cluster."""
    world = World(16, seed)
    with tempfile.TemporaryFile() as before:
        _filled(world, 200, before)
    for _round in range(3):
        _minute(world)
    world.cycle(MS_PER_HOUR)
    _minute(world)
    world.say(PolicyActivated(pool=world.setting.pool, backfill="conservative", backfill_depth=100))
    _minute(world)


def _warm_start_s() -> float:
    """Return the CPU time in which a process loads every kernel of a cycle from the cache, the smaller of two; without imports."""
    code = (
        "import time; from apportion.adapters.bench import cycle; began = time.process_time(); "
        "cycle._small(1); print(time.process_time() - began)"
    )
    words = [sys.executable, "-c", code]
    taken = [float(subprocess.run(words, capture_output=True, check=True, text=True).stdout) for _try in range(2)]
    return round(min(taken), 2)


def _at(cycles: list[Taken], percent: int) -> float:
    """Return a percentile of what cycles took to decide: the smallest value that so many do not exceed."""
    times = sorted(one.decide_ms for one in cycles)
    return round(times[-(-len(times) * percent // 100) - 1], 2) if times else 0.0


def _noise(rounds: int = 200) -> float:
    times = sorted(_timed(lambda: sum(range(40_000))) for _round in range(rounds))
    return round(times[rounds * 99 // 100] / times[rounds // 2], 2)


def _timed(what: Callable[[], object]) -> float:
    began = time.process_time()
    what()
    return time.process_time() - began


def _rss_mb() -> int:
    """Return the memory of this process that is in RAM, in MiB."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) // 1_024
    return 0

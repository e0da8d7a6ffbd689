"""What could start now: how often each usual shape fits into what is free, beside what is kept for others.

A pure function of a ``Core``, which is used up by it: a workload is imagined in each shape, through the door's own function
(``fold.shapes``), and asked for with the one feasibility function, again and again in a space where the ones before have their
GPUs. What is kept comes from the passes that place, run once more on this core. So the table says what a submission would meet at
this instant, as far as GPUs go: whether a budget is funded is told by ``share``. It must never be asked for a core that goes on
deciding.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from apportion.core.engine import Core
    from apportion.core.events import WorkloadSubmitted
    from apportion.core.fold.shapes import Shape
    from apportion.core.policy.reserving import Reservations
    from apportion.core.state.state import State

FITS_MAX = 1_000  # counted no further; a cluster of 16,000 GPUs would be asked 16,000 times
FRACTIONS_MILLI = (250, 500)
_KEY = "what fits"  # no workload can be named so


class _Kind(NamedTuple):
    """A column of the table: how the GPUs must lie, in the words of a submission."""

    name: str
    block: bool = False
    within: str | None = None


def offers(core: Core, runtime_ms: int = 0) -> list[dict[str, Any]]:
    """Return per pool what is free and kept, and a row per shape; ``runtime_ms`` is what the work says it runs, 0 = nothing."""
    from apportion.core import ledger
    from apportion.core.engine import emit_into
    from apportion.core.policy.funding import shares_of
    from apportion.core.policy.placing import place_all

    state = core.state
    ledger.accrue(state, core.time_ms)
    kept = place_all(state, emit_into(state), shares_of(state))
    return [_pool(state, pool, kept[pool], runtime_ms) for pool in range(state.pool.used)]


def _pool(state: State, pool: int, reservations: Reservations, runtime_ms: int) -> dict[str, Any]:
    import numpy as np

    node = state.node
    mine = node.column("pool") == pool
    held = mine & (reservations.until_ms > 0)
    short_ms = int(reservations.until_ms[held].min()) if held.any() else 0
    largest = int(node.column("gpus")[mine].max()) if mine.any() else 0
    rows = [
        _row(state, pool, reservations, nodes, milli, kind, runtime_ms, short_ms)
        for nodes, milli in _sizes(largest, int(np.count_nonzero(mine)))
        for kind in _kinds(state, pool, nodes, milli)
    ]
    return {
        "pool": state.pool.keys[pool],
        "gpus_milli": int(state.pool.supply_milli[pool]),
        "free_milli": int(state.pool.idle_milli[pool]),
        "kept_nodes": int(np.count_nonzero(held)),
        "kept_until_ms": short_ms or None,
        "kept_for": [
            {"workload": state.workload.keys[row], "gpus_milli": int(state.workload.gpus_milli[row]), "starts_ms": start or None}
            for row, start in reservations.starts_ms.items()
        ],
        "levels": _levels(state, pool),
        "rows": [row for row in rows if row is not None],
    }


def _sizes(largest: int, nodes: int) -> list[tuple[int, int]]:
    """Return (nodes, milli per node): fractions, powers of two up to a whole node, and powers of two of whole nodes."""
    if not largest:
        return []
    powers = [1 << k for k in range(largest.bit_length())]
    single = [(1, milli) for milli in (*FRACTIONS_MILLI, *(gpus * 1_000 for gpus in dict.fromkeys([*powers, largest])))]
    return single + [(1 << k, largest * 1_000) for k in range(1, nodes.bit_length())]


def _kinds(state: State, pool: int, nodes: int, milli: int) -> list[_Kind]:
    kinds = [_Kind("any")]
    if nodes > 1 or milli > 1_000:
        kinds.append(_Kind("block", block=True))
    if nodes > 1:
        kinds += [_Kind(f"within {level}", within=level) for level in _levels(state, pool)]
    return kinds


def _levels(state: State, pool: int) -> list[str]:
    """Return the levels of the pool's topology in which some node is, narrowest first."""
    level, found = state.level, []
    prefix = f"{state.pool.keys[pool]}/"
    mine = state.node.column("pool") == pool
    for row in level.live_rows():
        if level.keys[row].startswith(prefix):
            height = int(level.height[row])
            if height and (state.node.column(f"domain_{height}")[mine] > 0).any():
                found.append((height, level.keys[row].removeprefix(prefix)))
    return [name for _height, name in sorted(found)]


def _row(
    state: State, pool: int, reservations: Reservations, nodes: int, milli: int, kind: _Kind, runtime_ms: int, short_ms: int
) -> dict[str, Any] | None:
    """Return how often a shape fits; None for one that the pool could never have."""
    from apportion.core.fold.access import No
    from apportion.core.fold.shapes import shape_of

    shape = shape_of(state, pool, _asked(state, pool, nodes, milli, kind))
    if isinstance(shape, No):
        return None
    now_ms = state.counters.time_ms
    workload = _imagine(state, pool, shape, runtime_ms)
    fits = _fits(state, workload, reservations)
    earliest_ms = now_ms if fits else _earliest_ms(state, workload, reservations)
    row: dict[str, Any] = {
        "pool": state.pool.keys[pool],
        "shape": kind.name,
        "nodes": nodes,
        "milli_per_node": milli,
        "gpus_milli": nodes * milli,
        "fits": fits,
        "fits_or_more": fits >= FITS_MAX,
        "earliest_ms": earliest_ms,
        "fits_short": None,
        "short_until_ms": None,
    }
    if short_ms > now_ms:
        state.workload.expected_runtime_ms[workload] = short_ms - now_ms
        row |= {"fits_short": _fits(state, workload, reservations), "short_until_ms": short_ms}
    _forget(state, workload)
    return row


def _asked(state: State, pool: int, nodes: int, milli: int, kind: _Kind) -> WorkloadSubmitted:
    from apportion.core.events import WorkloadSubmitted

    return WorkloadSubmitted(
        workload="what-fits", budget="anybody", pools=(state.pool.keys[pool],), gpus_milli=nodes * milli, nodes=nodes,
        block=kind.block, within=kind.within,
    )  # fmt: skip


def _imagine(state: State, pool: int, shape: Shape, runtime_ms: int) -> int:
    """Write a workload that nobody has submitted into the table; returns its row."""
    from apportion.core.fold.wishes import take_wish

    row = state.workload.add(_KEY)
    values = {
        "pool": pool, "budget": int(state.pool.root[pool]), "nodes": shape.nodes, "milli_per_node": shape.milli_per_node,
        "gpus_milli": shape.nodes * shape.milli_per_node, "wish": take_wish(state, shape.wish),
        "expected_runtime_ms": runtime_ms, "run": -1,
    }  # fmt: skip
    state.workload.put(row, values)
    return row


def _forget(state: State, workload: int) -> None:
    from apportion.core.fold.wishes import drop_wish

    drop_wish(state, int(state.workload.wish[workload]))
    state.workload.remove(workload)


def _fits(state: State, workload: int, reservations: Reservations) -> int:
    """Return how many such workloads could start now, side by side."""
    from apportion.core.policy.fitting import find_gpus
    from apportion.core.state.space import Space

    space, masked = Space.copy(state), reservations.beside(state, workload)
    milli, count = min(1_000, int(state.workload.milli_per_node[workload])), 0
    while count < FITS_MAX and (gpus := find_gpus(state, workload, space, masked)):
        for gpu in gpus:
            space.gpu_milli[gpu] += milli
            space.gpu_memory_mib[gpu] += int(state.node.gpu_memory_mib[int(state.gpu.node[gpu])]) * milli // 1_000
        count += 1
    return count


def _earliest_ms(state: State, workload: int, reservations: Reservations) -> int | None:
    """Return when one could start on nodes that nobody has, by what is known of the runs there; None when nobody knows."""
    from apportion.core.policy.fitting import earliest_nodes, releases_of
    from apportion.core.policy.reserving import free_times
    from apportion.core.units import NEVER_MS

    kept = reservations.until_ms + reservations.closes_ms
    known = releases_of(state, int(state.workload.pool[workload]), guess=False)
    start_ms, _nodes = earliest_nodes(state, workload, free_times(state, guess=False), kept, NEVER_MS, known)
    return start_ms if start_ms < NEVER_MS else None

"""What comes to a pool: its waiting and running work by class, as ``kernels.fragments`` takes it.

A class is what one part of a shape takes of a node: GPUs, or a fraction of one, CPU and memory; other wishes (labels, domains) are
left out. It weighs as many parts as the pool's pending and running workloads have of it: starting, stopping and preempting change
nothing, so within a cycle the mix stands. Published FGD knows the whole trace instead; here nothing is known of what has not come.
The ``CLASSES_MAX`` heaviest classes count, ties by the smaller one.

A pure function of the state. Kept in ``State.mixes`` until the next record: a cycle asks for it once per placement.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from apportion.core.kernels import fragments
from apportion.core.state import schema
from apportion.core.state.state import State
from apportion.core.state.wishes import Wish
from apportion.core.units import MAX_NODE_GPUS, MILLI

I64 = NDArray[np.int64]

CLASSES_MAX = 16
ANY_MODEL = -1  # a pool is of one class
_SIZES = MILLI + MAX_NODE_GPUS + 1  # a fraction by its milli, k whole GPUs by MILLI + k - 1
_WEIGHTS_MAX = fragments.WEIGHT_MAX - CLASSES_MAX


def mix_of(state: State, pool: int) -> I64:
    """Return the mix of a pool row, the heaviest class first."""
    kept = state.mixes.get(pool)
    if kept is None or kept[0] != state.counters.seq:
        kept = state.mixes[pool] = state.counters.seq, _mix(state, pool)
    return kept[1]


def asked_of(milli_per_node: int, wish: Wish) -> I64:
    """Return what one part of a shape takes of a node."""
    return _row(0, milli_per_node, wish.cpu_milli, wish.memory_mib)


def _mix(state: State, pool: int) -> I64:
    table = state.workload
    live = (table.column("state") >= schema.NEW) & (table.column("state") <= schema.RUNNING)
    rows = np.flatnonzero(live & (table.column("pool") == pool))
    needs, need_of = _needs(state)
    milli = table.milli_per_node[rows]
    size = np.where(milli < MILLI, milli, MILLI - 1 + milli // MILLI)
    parts = np.zeros(len(needs) * _SIZES, dtype=np.int64)
    np.add.at(parts, need_of[table.wish[rows]] * _SIZES + size, table.nodes[rows])
    classes = np.flatnonzero(parts)
    heaviest = classes[np.argsort(-parts[classes], kind="stable")][:CLASSES_MAX]
    total = int(parts[heaviest].sum())
    mix = np.zeros((len(heaviest), fragments.COLUMNS), dtype=np.int64)
    for number, each in enumerate(heaviest.tolist()):
        (cpu_milli, memory_mib), size_of = needs[each // _SIZES], each % _SIZES
        weight = int(parts[each]) if total <= _WEIGHTS_MAX else max(1, int(parts[each]) * _WEIGHTS_MAX // total)
        mix[number] = _row(weight, size_of if size_of < MILLI else (size_of - MILLI + 1) * MILLI, cpu_milli, memory_mib)
    return mix


def _needs(state: State) -> tuple[list[tuple[int, int]], I64]:
    """Return the different (CPU, memory) that are asked for, and by what a workload's column of wishes holds, which it is."""
    numbers: dict[tuple[int, int], int] = {(0, 0): 0}
    need_of = np.zeros(state.wish.used + 1, dtype=np.int64)
    asked = zip(state.wish.column("cpu_milli").tolist(), state.wish.column("memory_mib").tolist(), strict=True)
    for row, need in enumerate(asked):
        need_of[row + 1] = numbers.setdefault(need, len(numbers))
    return list(numbers), need_of


def _row(weight: int, milli: int, cpu_milli: int, memory_mib: int) -> I64:
    row = np.zeros(fragments.COLUMNS, dtype=np.int64)
    row[fragments.WEIGHT], row[fragments.GPUS], row[fragments.MILLI] = weight, max(1, milli // MILLI), min(milli, MILLI)
    row[fragments.CPU_MILLI], row[fragments.MEMORY_MIB] = min(cpu_milli, fragments.CPU_MILLI_MAX), memory_mib
    row[fragments.MODELS] = ANY_MODEL
    return row

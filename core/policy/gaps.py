"""What is free of a pool and what it is good for: fragment, and blocks by power of two, now and when stated limits are over.

The fragment is FGD's measure (``kernels.fragments``): how much of what is free is, on average over the classes of what waits and
runs (``state.mix``), no use to one more of them. Blocks are aligned, inside nodes, each size by itself. Free is what is in service,
used by nobody and kept for nobody; limits that are over take with them every run that states one, and nothing else is known.

A pure function of the state, for people: no decision rests on it. Naive equivalent: ``tests/core/test_gaps.py``.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from apportion.core.kernels import fragments
from apportion.core.state.mix import ANY_MODEL, mix_of
from apportion.core.state.state import State
from apportion.core.units import MAX_NODE_GPUS, MILLI

I64 = NDArray[np.int64]

BLOCK_SIZES = tuple(1 << k for k in range(MAX_NODE_GPUS.bit_length()))


class Gaps(NamedTuple):
    """What is free of one pool."""

    free_milli: int
    fragment_milli: int  # of it no use, on average
    blocks: dict[int, int]  # size -> how many; sizes of which there are none are left out
    blocks_after_limits: dict[int, int]


def gaps_of(state: State, pool: int) -> Gaps:
    """Return the gaps of a pool row."""
    node, alloc, run = state.node, state.alloc, state.run
    used = state.gpu.column("used_milli")
    live = np.flatnonzero(alloc.column("milli"))
    limited = live[state.workload.expected_runtime_ms[run.workload[alloc.run[live]]] > 0]
    later = used.copy()
    np.subtract.at(later, alloc.gpu[limited], alloc.milli[limited])
    free = _free(state, used)
    fragment_milli = fragments.pool_fragment(
        pool, node.used, node.pool, node.first_gpu, node.gpus, free,
        np.minimum(node.column("cpu_milli") - node.column("used_cpu_milli"), fragments.CPU_MILLI_MAX),
        node.column("memory_mib") - node.column("used_memory_mib"), ANY_MODEL, mix_of(state, pool),
    )  # fmt: skip
    mine = node.column("pool")[state.gpu.column("node")] == pool
    blocks = (_blocks(state, pool, column) for column in (free, _free(state, later)))
    return Gaps(int(free[mine].sum()), int(fragment_milli), *blocks)


def _free(state: State, used: I64) -> I64:
    usable = (state.gpu.column("out") == 0) & (state.gpu.column("held_by") == 0)
    return np.where(usable, MILLI - used, 0)


def _blocks(state: State, pool: int, free: I64) -> dict[int, int]:
    node, counts = state.node, np.zeros(len(BLOCK_SIZES), dtype=np.int64)
    fragments.free_blocks(pool, node.used, node.pool, node.first_gpu, node.gpus, free, counts)
    return {size: int(count) for size, count in zip(BLOCK_SIZES, counts.tolist(), strict=True) if count}

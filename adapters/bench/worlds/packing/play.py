"""One run of the experiment: each task is given a node and GPUs as it comes, or is turned away for good.

A pure function of the stream and the packing. The choice is the kernel's (``core.kernels.fragments``); here is only what is left
where. It must never look at a task that has not come, nor move one that was placed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from apportion.adapters.bench.worlds.packing.arrivals import Arrivals
from apportion.adapters.bench.worlds.packing.openb import Nodes, Trace
from apportion.core.kernels import fragments

PACKINGS = {"best_fit": fragments.BEST_FIT, "fgd": fragments.FGD, "balanced": fragments.BALANCED}


class Played(NamedTuple):
    """What came out."""

    allocated_milli: int
    capacity_milli: int
    places: list[int]  # node row of each task, -1 = turned away

    @property
    def allocated_percent(self) -> float:
        """Return the part of all GPUs that is allocated."""
        return 100 * self.allocated_milli / self.capacity_milli


def play(packing: str, trace: Trace, nodes: Nodes, arrivals: Arrivals) -> Played:
    """Place the stream."""
    code, count = PACKINGS[packing], len(nodes.gpus)
    free = np.full(int(nodes.gpus.sum()), fragments.WHOLE, dtype=np.int64)
    cpu_milli, memory_mib = nodes.cpu_milli.copy(), nodes.memory_mib.copy()
    version = np.zeros(count, dtype=np.int64)
    known = np.full((len(trace.kinds), count), -1, dtype=np.int64)
    score, position = np.zeros_like(known), np.zeros_like(known)
    places, allocated_milli = [], 0
    for kind in arrivals.kinds:
        asked = trace.kinds[kind]
        node = fragments.best_node(
            code, asked, trace.mix, arrivals.order, version, known[kind], score[kind], position[kind], nodes.first, nodes.gpus,
            free, cpu_milli, memory_mib, nodes.models,
        )  # fmt: skip
        places.append(int(node))
        if node < 0:
            continue
        here = free[nodes.first[node] : nodes.first[node] + nodes.gpus[node]]
        if position[kind, node] >= 0:
            here[position[kind, node]] -= asked[fragments.MILLI]
        else:
            here[np.flatnonzero(here == asked[fragments.MILLI])[: asked[fragments.GPUS]]] = 0
        cpu_milli[node] -= asked[fragments.CPU_MILLI]
        memory_mib[node] -= asked[fragments.MEMORY_MIB]
        version[node] += 1
        allocated_milli += trace.gpu_milli(kind)
    return Played(allocated_milli, nodes.capacity_milli, places)

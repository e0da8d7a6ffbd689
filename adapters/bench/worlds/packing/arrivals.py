"""The stream of one seed: which kind of pod comes when, and which node wins ties.

As published: the pods in an order that is drawn; while they ask for more than 130 % of all GPUs, one that is drawn goes, else
copies of pods that are drawn are appended, until one GPU's part of the next would be too much. Nodes get a drawn number in front
of their names before they are created, and the smallest name wins ties: so ties go by an order that is drawn anew for each seed.
This one is found in the published code only, and decides: by the plain names FGD fills the nodes of one model first, and falls by
1.8 points on ``cpu250``, 0.4 on ``gpuspec25`` and 0.3 on ``gpuspec10``.
The draws are ours (``simulation.dice``), not those of Go's generator: equal seeds are equal streams here, not those published.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from apportion.adapters.bench.worlds.packing.openb import ARRIVED_PERCENT, Nodes, Trace
from apportion.adapters.simulation.dice import Dice
from apportion.core.kernels import fragments

I64 = NDArray[np.int64]


class Arrivals(NamedTuple):
    """What one seed makes of a trace."""

    kinds: list[int]  # in order of arrival
    order: I64  # node rows: those first that win ties


def draw(trace: Trace, nodes: Nodes, seed: int) -> Arrivals:
    """Return the stream of a seed."""
    pods, asked_milli, most_milli = Dice(seed, "pods"), 0, ARRIVED_PERCENT * nodes.capacity_milli // 100
    kinds = list(trace.pods)
    pods.shuffle(kinds)
    asked_milli = sum(trace.gpu_milli(kind) for kind in kinds)
    while asked_milli > most_milli:
        asked_milli -= trace.gpu_milli(kinds.pop(pods.below(len(kinds))))
    if sum(trace.gpu_milli(kind) for kind in trace.pods) < most_milli:
        while asked_milli + int(trace.kinds[kind := trace.pods[pods.below(len(trace.pods))], fragments.MILLI]) <= most_milli:
            asked_milli += trace.gpu_milli(kind)
            kinds.append(kind)
    order = list(range(len(nodes.gpus)))
    Dice(seed, "nodes").shuffle(order)
    return Arrivals(kinds, np.array(order, dtype=np.int64))

"""Ranked: which GPUs somebody gets where another packing than best fit chooses.

For whoever asks for nothing but GPUs, the answer of ``pack.find_gpus`` by the ranks of ``fragments.fill_ranks``: the naive
equivalent, where every node is judged anew for everybody. Here what a node is worth for a shape stands until somebody starts on it
(``forget``): the mix of what comes does not change in a cycle, nor CPU and memory by whoever asks for none. Pure functions of
the columns; they write the GPUs, and what is remembered in ``Ranks``.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from apportion.core.kernels import fragments
from apportion.core.kernels.bare import bare
from apportion.core.kernels.serve.columns import WHOLE, Stock
from apportion.core.kernels.serve.stock import kept_from, pick_on_node

I64 = NDArray[np.int64]

# as in ``effects``
BUILT_ON = {
    "bare": "6b2fd7db475f", "fragments": "4019bc184b20", "serve.columns": "00138576507d", "serve.stock": "b80ae8957b60",
}  # fmt: skip

SHAPES = 16  # that are remembered; of more the one that came first is forgotten


class Ranks(NamedTuple):
    """What nodes are worth, by what is asked of a node."""

    packing: int
    mix: I64  # what comes
    cpu_milli: I64  # left on each node, and memory
    memory_mib: I64
    each: I64  # per shape: milli-GPU of a node, 0 = none yet
    known: NDArray[np.uint8]  # shape x node: 1 = the next two are so now
    rank: I64
    gpu: I64  # for a fraction, the GPU of that rank, -1 = none has room
    came: I64  # shapes that came so far
    asked: I64  # one shape as ``fragments`` takes it
    scratch: I64  # GPUs of a node x 3
    able: I64  # node rows


@bare
def _shape_of(ranks: Ranks, each: int) -> int:
    """Return the number of a shape, under which it is asked for next."""
    ranks.asked[fragments.GPUS], ranks.asked[fragments.MILLI] = max(1, each // WHOLE), min(each, WHOLE)
    for shape in range(len(ranks.each)):
        if ranks.each[shape] == each:
            return shape
    shape = ranks.came[0] % len(ranks.each)
    ranks.came[0] += 1
    ranks.each[shape] = each
    for node in range(ranks.known.shape[1]):
        ranks.known[shape, node] = 0
    return int(shape)


@bare
def _judge(ranks: Ranks, stock: Stock, shape: int, node: int, weight: int, per_gpu: int) -> None:
    """Find out what a node is worth for a shape now; for a fraction its best GPU, the lowest of equals."""
    first, gpus, asked, mix = stock.first_gpu[node], stock.gpus[node], ranks.asked, ranks.mix
    free, trial, scores, used, used_mib = ranks.scratch[0], ranks.scratch[1], ranks.scratch[2], stock.used, stock.used_mib
    cpu_milli, memory_mib = ranks.cpu_milli[node], ranks.memory_mib[node]
    milli, models = asked[fragments.MILLI], asked[fragments.MODELS]
    for k in range(gpus):
        gpu = first + k
        free[k] = WHOLE - used[gpu] if stock.out[gpu] == 0 and stock.held[gpu] == 0 else 0
    able = fragments.fits(asked, gpus, free, 0, cpu_milli, memory_mib, models)
    before = fragments.fragment(0, gpus, free, cpu_milli, memory_mib, models, mix) if able else 0
    ranks.known[shape, node] = 1
    ranks.rank[shape, node], ranks.gpu[shape, node] = fragments.NOWHERE, -1
    if milli == WHOLE:
        if able:
            ranks.rank[shape, node] = fragments.score_of(
                ranks.packing, asked, -1, 0, gpus, free, cpu_milli, memory_mib, models, mix, weight, per_gpu, before, trial
            )
        return
    left_mib = stock.memory_mib[node] - stock.memory_mib[node] * milli // WHOLE
    for k in range(gpus):
        scores[k] = fragments.NOWHERE
        if free[k] < milli:
            continue
        if able:
            like = 0  # a GPU with as much left has the same score
            while free[like] != free[k]:
                like += 1
            scores[k] = scores[like] if like < k else fragments.score_of(
                ranks.packing, asked, k, 0, gpus, free, cpu_milli, memory_mib, models, mix, weight, per_gpu, before, trial
            )  # fmt: skip
        gpu = first + k
        roomy = used[gpu] == 0 or used_mib[gpu] <= left_mib
        if roomy and (ranks.gpu[shape, node] < 0 or scores[k] > ranks.rank[shape, node]):
            ranks.rank[shape, node], ranks.gpu[shape, node] = scores[k], gpu


@bare
def pick_ranked(ranks: Ranks, stock: Stock, row: int, nodes: int, each: int, over_ms: int, gpus: I64, at: int) -> int:
    """Write the GPUs that a workload without wishes gets; returns how many, 0 = none."""
    shape, need, known, rank, able = _shape_of(ranks, each), each // WHOLE, ranks.known, ranks.rank, ranks.able
    weight, per_gpu, count = fragments.weight_of(ranks.mix), fragments.cpu_per_gpu(ranks.mix), 0
    free, part, last, until_ms, holder, closes_ms = (
        stock.free, stock.part, stock.last, stock.until_ms, stock.holder, stock.closes_ms,
    )  # fmt: skip
    for node in range(len(free)):
        if last[node] < 0 or free[node] < need or (need == 0 and free[node] == 0 and part[node] < each):
            continue
        if kept_from(until_ms, holder, closes_ms, node, row, over_ms):
            continue
        if known[shape, node] == 0:
            _judge(ranks, stock, shape, node, weight, per_gpu)
        if need > 0 or ranks.gpu[shape, node] >= 0:
            able[count] = node
            count += 1
    if count < nodes:
        return 0
    for taken in range(nodes):
        best = 0
        for k in range(1, count):
            if rank[shape, able[k]] > rank[shape, able[best]]:
                best = k
        node = able[best]
        if need == 0:
            gpus[at] = ranks.gpu[shape, node]
            return 1
        pick_on_node(stock.first_gpu[node], stock.gpus[node], need, stock.used, stock.out, stock.held, gpus, at + taken * need)
        count -= 1
        for k in range(best, count):  # in order of rows, as ties ask
            able[k] = able[k + 1]
    return nodes * need


@bare
def forget(ranks: Ranks, node_of: I64, gpus: I64, begin: int, end: int) -> None:
    """Somebody has taken of these GPUs: what their nodes are worth is not known any more."""
    for k in range(begin, end):
        for shape in range(len(ranks.each)):
            ranks.known[shape, node_of[gpus[k]]] = 0

"""How much of what is free is no use to the tasks that come, and which node to give a task so that least is lost.

A *mix* says what comes: one row per class of tasks, how often it comes, and what one of it takes of a node. The fragment of a node
is what a task drawn from the mix would find there and could not use, in milli-GPU times weight: all that is free where its class
does not fit (or takes no GPU at all), else what is free on GPUs with less left than it wants. Source: Weng et al., "Beware of
Fragmentation", USENIX ATC 2023 (FGD). Scores of a node for a task, the highest is taken, ties go to the node earlier in the order:

``BEST_FIT``  least CPU and GPU left, each as a part of 128 cores and 8 GPUs, as in the published baseline; a whole number 0..100.
``FGD``       least new fragment, as published: the sigmoid of the decrease in GPUs, a whole number 0..100. That rounding matters:
              it makes equals of nodes that differ by less than some 40 milli-GPU, of which the first in the order fills up first.
``BALANCED``  ours: least new fragment, unrounded, and least newly *stranded*: GPU that no CPU is left for, if all that comes takes
              as much CPU per GPU as the mix does on average. The fragment sees the next task only, and finds a node sound until
              one more no longer fits; what is stranded is seen from the first task on that takes more CPU than its part.

Pure; int64. The sum of a mix's weights is at most ``WEIGHT_MAX``, CPU at most ``CPU_MILLI_MAX``, so that no product leaves int64:
72,000 milli x 10^7 x 10^6, and 10^8 x 10^7 x 1,000.
Naive equivalent: ``tests/core/test_fragments.py``, in Python with fractions and a real sigmoid.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from apportion.core.kernels.bare import bare
from apportion.core.units import MAX_NODE_GPUS

I64 = NDArray[np.int64]

BUILT_ON = {"bare": "6b2fd7db475f"}

BEST_FIT, FGD, BALANCED = 1, 2, 3

# columns of a mix, and of a task that is asked for
WEIGHT, GPUS, MILLI, CPU_MILLI, MEMORY_MIB, MODELS, COLUMNS = 0, 1, 2, 3, 4, 5, 6

WHOLE = 1_000
WEIGHT_MAX = 10_000_000
CPU_MILLI_MAX = 100_000_000  # of a task or a node: a hundred thousand cores
NOWHERE = -(1 << 62)  # the score of a node that has no place for the task
BEST_FIT_CPU_MILLI, BEST_FIT_GPU_MILLI = 128_000, 8_000
FINE = 10_000  # of a score of BALANCED: one milli-GPU of fragment
STRANDED = 10_000  # and one that is stranded

# From these decreases on, in millionths of a milli-GPU, the score of FGD is 51, 52, .. 99: 1000 ln(k / (100 - k)), rounded up.
# Below 50 it is the mirror image.
_STEPS = np.array([
    40_005_335, 80_042_708, 120_144_312, 160_342_651, 200_670_696, 241_162_057, 281_851_153, 322_773_393, 363_965_378,
    405_465_109, 447_312_219, 489_548_226, 532_216_814, 575_364_145, 619_039_209, 663_294_218, 708_185_058, 753_771_803,
    800_119_301, 847_297_861, 895_384_048, 944_461_609, 994_622_576, 1_045_968_556, 1_098_612_289, 1_152_679_510,
    1_208_311_206, 1_265_666_374, 1_324_925_415, 1_386_294_362, 1_450_010_176, 1_516_347_490, 1_585_627_264, 1_658_228_077,
    1_734_601_056, 1_815_289_967, 1_900_958_762, 1_992_430_165, 2_090_741_097, 2_197_224_578, 2_313_634_930, 2_442_347_036,
    2_586_689_345, 2_751_535_314, 2_944_438_980, 3_178_053_831, 3_476_098_690, 3_891_820_299, 4_595_119_851,
], dtype=np.int64)  # fmt: skip


@bare
def fits(asked: I64, gpus: int, free: I64, first: int, cpu_milli: int, memory_mib: int, models: int) -> bool:
    """Tell whether a node has place for a task."""
    if cpu_milli < asked[CPU_MILLI] or memory_mib < asked[MEMORY_MIB]:
        return False
    if asked[GPUS] == 0:
        return True
    if asked[MODELS] & models == 0:
        return False
    able = 0
    for k in range(gpus):
        if free[first + k] >= asked[MILLI]:
            able += 1
    return able >= asked[GPUS]


@bare
def fragment(first: int, gpus: int, free: I64, cpu_milli: int, memory_mib: int, models: int, mix: I64) -> int:
    """Return the fragment of a node, of whose GPUs ``free`` tells what is left: milli-GPU x weight, summed over the mix."""
    total, whole, lost = 0, 0, 0
    for k in range(gpus):
        total += free[first + k]
        whole += 1 if free[first + k] == WHOLE else 0
    if total == 0:
        return 0
    for kind in range(len(mix)):
        able, short_milli = whole, total - whole * WHOLE  # of GPUs that do, and what is free on the others
        if mix[kind, MILLI] < WHOLE:
            able, short_milli = 0, 0
            for k in range(gpus):
                if free[first + k] >= mix[kind, MILLI]:
                    able += 1
                else:
                    short_milli += free[first + k]
        useless = mix[kind, GPUS] == 0 or able < mix[kind, GPUS] or mix[kind, MODELS] & models == 0
        if useless or cpu_milli < mix[kind, CPU_MILLI] or memory_mib < mix[kind, MEMORY_MIB]:
            short_milli = total
        lost += mix[kind, WEIGHT] * short_milli
    return lost


@bare
def _rounded(decrease: int, weight: int) -> int:
    """Return the score of FGD for a decrease in milli-GPU x weight: its sigmoid over GPUs, in per cent, rounded down."""
    low, high = 0, 99
    while low < high:
        middle = (low + high + 1) // 2
        least = _STEPS[middle - 51] if middle > 50 else 0 if middle == 50 else 1 - _STEPS[49 - middle]
        if decrease * 1_000_000 >= least * weight:
            low = middle
        else:
            high = middle - 1
    return low


@bare
def cpu_per_gpu(mix: I64) -> int:
    """Return the CPU, in milli, that the mix takes per GPU on average; classes without GPUs aside. 0 = none."""
    cpu_milli, gpu_milli = 0, 0
    for kind in range(len(mix)):
        if mix[kind, GPUS] > 0:
            cpu_milli += mix[kind, WEIGHT] * mix[kind, CPU_MILLI]
            gpu_milli += mix[kind, WEIGHT] * mix[kind, GPUS] * mix[kind, MILLI]
    return cpu_milli * WHOLE // gpu_milli if gpu_milli > 0 else 0


@bare
def _stranded(gpu_milli: int, cpu_milli: int, per_gpu: int) -> int:
    """Return what of the free GPU no CPU is left for."""
    return max(0, gpu_milli - cpu_milli * WHOLE // per_gpu) if per_gpu > 0 else 0


@bare
def score_of(
    packing: int, asked: I64, position: int, first: int, gpus: int, free: I64, cpu_milli: int, memory_mib: int, models: int,
    mix: I64, weight: int, per_gpu: int, before: int, trial: I64,
) -> int:  # fmt: skip
    """Return the score of a node that has place for the task; a fraction is tried on the GPU at ``position``."""
    missing, total = asked[GPUS], 0
    for k in range(gpus):
        trial[k] = free[first + k]
        total += trial[k]
        taken = k == position if position >= 0 else missing > 0 and trial[k] == asked[MILLI]
        if taken:
            trial[k] -= asked[MILLI]
            missing -= 1
    left_milli, cpu_left = total - asked[GPUS] * asked[MILLI], cpu_milli - asked[CPU_MILLI]
    if packing == BEST_FIT:
        most = 2 * BEST_FIT_CPU_MILLI * BEST_FIT_GPU_MILLI
        return (most - cpu_left * BEST_FIT_GPU_MILLI - left_milli * BEST_FIT_CPU_MILLI) * 100 // most
    decrease = before - fragment(0, gpus, trial, cpu_left, memory_mib - asked[MEMORY_MIB], models, mix)
    if packing == FGD:
        return _rounded(decrease, weight)
    stranded = _stranded(left_milli, cpu_left, per_gpu) - _stranded(total, cpu_milli, per_gpu)
    return decrease * FINE // weight - stranded * STRANDED


@bare
def weight_of(mix: I64) -> int:
    """Return the weight of all classes together, at least 1."""
    weight = 0
    for kind in range(len(mix)):
        weight += mix[kind, WEIGHT]
    return max(1, weight)


@njit(cache=True)
def best_node(
    packing: int, asked: I64, mix: I64, order: I64, version: I64, known: I64, score: I64, position: I64, node_first: I64,
    node_gpus: I64, free: I64, cpu_milli: I64, memory_mib: I64, models: I64,
) -> int:  # fmt: skip
    """Return the node for one task, -1 = there is place nowhere; ``position[node]`` is the GPU for a fraction, -1 for whole GPUs.

    ``order`` are the node rows, those first that win ties. ``score`` and ``position`` are kept by the caller for each kind of task:
    a node is looked at again when its ``version`` is not the ``known`` one.
    """
    weight, per_gpu, best = weight_of(mix), cpu_per_gpu(mix), -1
    trial = np.zeros(MAX_NODE_GPUS, dtype=np.int64)
    fraction = asked[GPUS] == 1 and asked[MILLI] < WHOLE
    for node in order:
        if known[node] != version[node]:
            known[node] = version[node]
            score[node], position[node] = NOWHERE, -1
            first, gpus = node_first[node], node_gpus[node]
            if fits(asked, gpus, free, first, cpu_milli[node], memory_mib[node], models[node]):
                before = 0
                if packing != BEST_FIT:
                    before = fragment(first, gpus, free, cpu_milli[node], memory_mib[node], models[node], mix)
                for k in range(gpus if fraction else 1):
                    if fraction and free[first + k] < asked[MILLI]:
                        continue
                    found = score_of(
                        packing, asked, k if fraction else -1, first, gpus, free, cpu_milli[node], memory_mib[node], models[node],
                        mix, weight, per_gpu, before, trial,
                    )  # fmt: skip
                    tighter = packing == BEST_FIT and fraction and free[first + k] < free[first + max(0, position[node])]
                    if score[node] == NOWHERE or found > score[node] or tighter:
                        score[node], position[node] = found, k if fraction else -1
        if score[node] > NOWHERE and (best < 0 or score[node] > score[best]):
            best = node
    return best


@njit(cache=True)
def fill_ranks(
    packing: int, asked: I64, mix: I64, pool_row: int, node_rows: int, node_pool: I64, node_first: I64, node_gpus: I64,
    free: I64, cpu_milli: I64, memory_mib: I64, rank: I64,
) -> None:  # fmt: skip
    """Fill ``rank`` with the scores of a pool's nodes for one task, or for a fraction with those of their GPUs.

    ``NOWHERE`` where there is no place for it. Whether it may be there is not asked here: that is for ``pack.find_gpus``.
    """
    weight, per_gpu = weight_of(mix), cpu_per_gpu(mix)
    trial = np.zeros(MAX_NODE_GPUS, dtype=np.int64)
    fraction = asked[GPUS] == 1 and asked[MILLI] < WHOLE
    rank[:] = NOWHERE
    for node in range(node_rows):
        first, gpus, cpu, memory = node_first[node], node_gpus[node], cpu_milli[node], memory_mib[node]
        if node_pool[node] != pool_row or not fits(asked, gpus, free, first, cpu, memory, asked[MODELS]):
            continue
        before = fragment(first, gpus, free, cpu, memory, asked[MODELS], mix)
        if not fraction:
            rank[node] = score_of(
                packing, asked, -1, first, gpus, free, cpu, memory, asked[MODELS], mix, weight, per_gpu, before, trial
            )
            continue
        for k in range(gpus):
            if free[first + k] >= asked[MILLI]:
                like = 0  # a GPU with as much left has the same score
                while free[first + like] != free[first + k]:
                    like += 1
                rank[first + k] = rank[first + like] if like < k else score_of(
                    packing, asked, k, first, gpus, free, cpu, memory, asked[MODELS], mix, weight, per_gpu, before, trial
                )  # fmt: skip


@njit(cache=True)
def pool_fragment(
    pool_row: int, node_rows: int, node_pool: I64, node_first: I64, node_gpus: I64, free: I64, cpu_milli: I64, memory_mib: I64,
    models: int, mix: I64,
) -> int:  # fmt: skip
    """Return the fragments of a pool's nodes together: milli-GPU on average over the mix, rounded down."""
    lost = 0
    for node in range(node_rows):
        if node_pool[node] == pool_row:
            lost += fragment(node_first[node], node_gpus[node], free, cpu_milli[node], memory_mib[node], models, mix)
    return lost // weight_of(mix)


@njit(cache=True)
def free_blocks(pool_row: int, node_rows: int, node_pool: I64, node_first: I64, node_gpus: I64, free: I64, counts: I64) -> None:
    """Fill ``counts[k]`` with the aligned blocks of 2^k GPUs inside nodes that are wholly free, each size by itself."""
    counts[:] = 0
    for node in range(node_rows):
        if node_pool[node] != pool_row:
            continue
        for k in range(len(counts)):
            for start in range(0, node_gpus[node] - (1 << k) + 1, 1 << k):
                whole = True
                for gpu in range(node_first[node] + start, node_first[node] + start + (1 << k)):
                    whole = whole and free[gpu] == WHOLE
                counts[k] += 1 if whole else 0

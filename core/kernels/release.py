"""When GPUs are expected to be free, and nodes to have enough of them, by what is known of runs (the rule: ``policy.reserving``).

One pass over runs and one over what they hold. An instant that is past stands as it was told, so that what is found holds as long
as the runs do; ``as_of`` makes of it what it is at an instant. After a few starts only what these took is looked at again. Pure
functions of the columns; what is told to be filled is all that is written. Naive equivalents: the same with NumPy, run by run, in
the tests of the kernels; after starts, everything anew.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from apportion.core.kernels.pack import ready_times
from apportion.core.units import NEVER_MS, UNKNOWN_RUNTIME_MS

I64 = NDArray[np.int64]

# as in ``effects``
BUILT_ON = {
    "pack": "886fb8cbf98f",
}  # fmt: skip

STOPPING, UNFUNDED = 3, 2  # run.state, run.payer


class Held(NamedTuple):
    """Columns of runs and of what they hold, and of their workloads, by which it is told when they give it back."""

    phase: I64
    workload: I64
    pool: I64
    payer: I64
    placed_ms: I64
    checkpoint_ms: I64
    protected_until_ms: I64
    stop_by_ms: I64
    first_alloc: I64
    expected_ms: I64  # per workload
    progress_ms: I64
    evicts: I64  # per pool: 1 = unfunded runs may be asked to go when their protected time is over
    alloc_run: I64
    alloc_gpu: I64
    alloc_milli: I64
    alloc_next: I64


class Nodes(NamedTuple):
    """Columns of nodes and GPUs."""

    pool: I64
    first_gpu: I64
    gpus: I64
    out: I64  # per GPU
    held: I64


class Releases(NamedTuple):
    """When nodes of a pool are ready for shapes without wishes, by GPUs per node; instants that are past stand as they were."""

    pool: int
    nodes: Nodes
    free_ms: I64  # per GPU its last release, 0 = it is free; no entries = not known
    ready_ms: I64  # number of GPUs x node
    order: I64  # nodes by that, then by row
    known: I64  # per number of GPUs: 1 = it was asked for
    as_of_ms: I64  # per number of GPUs: the instant of which the last two tell
    now_ready_ms: I64  # the same, nothing before that instant
    now_order: I64


@njit(cache=True)
def _over_ms(
    stated_ms: int, done_ms: int, placed_ms: int, checkpoint_ms: int, protected_until_ms: int, evictable: bool
) -> tuple[int, int]:
    """Return when a run gives back what it has: as it is known, ``NEVER_MS`` if it is not, and as it is guessed."""
    known_ms, guess_ms = NEVER_MS, placed_ms + UNKNOWN_RUNTIME_MS
    if stated_ms > 0:
        known_ms = checkpoint_ms + max(stated_ms - done_ms, 0)
        guess_ms = known_ms
    if evictable:
        known_ms, guess_ms = min(known_ms, protected_until_ms), min(guess_ms, protected_until_ms)
    return known_ms, guess_ms


@njit(cache=True)
def free_times(runs: int, allocs: int, held: Held, free_ms: I64) -> None:
    """Fill ``free_ms`` per GPU: the last release of a run on it, 0 where there is none; as it is known, and as it is guessed."""
    phase, workload, expected_ms, progress_ms = held.phase, held.workload, held.expected_ms, held.progress_ms
    pool, payer, placed_ms, checkpoint_ms, protected_until_ms, stop_by_ms, evicts = (
        held.pool, held.payer, held.placed_ms, held.checkpoint_ms, held.protected_until_ms, held.stop_by_ms, held.evicts,
    )  # fmt: skip
    until_ms, stated_ms, done_ms = (
        np.zeros((runs, 2), dtype=np.int64),
        np.empty(runs, dtype=np.int64),
        np.empty(runs, dtype=np.int64),
    )
    for run in range(runs):  # of workloads, which lie far apart: in loops that do nothing else the misses overlap
        stated_ms[run] = expected_ms[workload[run]]
    for run in range(runs):
        done_ms[run] = progress_ms[workload[run]]
    for run in range(runs):
        if phase[run] == STOPPING:
            until_ms[run, 0] = until_ms[run, 1] = stop_by_ms[run]
        elif phase[run] != 0:
            until_ms[run, 0], until_ms[run, 1] = _over_ms(
                stated_ms[run], done_ms[run], placed_ms[run], checkpoint_ms[run], protected_until_ms[run],
                evicts[pool[run]] == 1 and payer[run] == UNFUNDED,
            )  # fmt: skip
    free_ms[:] = 0
    alloc_run, alloc_gpu, alloc_milli, known, guessed = (
        held.alloc_run,
        held.alloc_gpu,
        held.alloc_milli,
        free_ms[0],
        free_ms[1],
    )
    for a in range(allocs):
        if alloc_milli[a] > 0:
            run, gpu = alloc_run[a], alloc_gpu[a]
            known[gpu] = max(known[gpu], until_ms[run, 0])
            guessed[gpu] = max(guessed[gpu], until_ms[run, 1])


@njit(cache=True)
def take_in(started: I64, held: Held, node_of: I64, free_ms: I64, met: NDArray[np.uint8]) -> None:
    """Let ``free_ms`` tell also of runs that have started since it was filled, and ``met`` of their nodes."""
    for run in started:
        row = held.workload[run]
        known_ms, guess_ms = _over_ms(
            held.expected_ms[row], held.progress_ms[row], held.placed_ms[run], held.checkpoint_ms[run],
            held.protected_until_ms[run], held.evicts[held.pool[run]] == 1 and held.payer[run] == UNFUNDED,
        )  # fmt: skip
        a = held.first_alloc[run]
        while a >= 0:
            gpu = held.alloc_gpu[a]
            free_ms[0, gpu], free_ms[1, gpu] = max(free_ms[0, gpu], known_ms), max(free_ms[1, gpu], guess_ms)
            met[node_of[gpu]] = 1
            a = held.alloc_next[a]


@njit(cache=True)
def make_known(made: Releases, need: int, now_ms: int) -> None:
    """Find when nodes have so many GPUs free; ``made.free_ms`` must be known."""
    count, nodes = made.ready_ms.shape[1], made.nodes
    ready_times(
        made.pool, need, 0, 0, NEVER_MS, count, nodes.pool, nodes.first_gpu, nodes.gpus, nodes.out, nodes.held, made.free_ms,
        made.ready_ms[need],
    )  # fmt: skip
    made.order[need] = np.argsort(made.ready_ms[need], kind="mergesort")
    made.known[need], made.as_of_ms[need] = 1, -1
    as_of(now_ms, made)


@njit(cache=True)
def find_ready(made: Releases, need: int, now_ms: int) -> bool:
    """Tell whether it is known when nodes have so many GPUs free, or can be found: then it is."""
    if need >= len(made.known) or (made.known[need] == 0 and len(made.free_ms) == 0):
        return False
    if made.known[need] == 0:
        make_known(made, need, now_ms)
    return True


@njit(cache=True)
def renew(made: Releases, met: NDArray[np.uint8]) -> None:
    """Find the same again, of all numbers that were asked for, when nothing has changed but on the nodes that are ``met``."""
    count, nodes = made.ready_ms.shape[1], made.nodes
    changed, other = np.empty(count, dtype=np.int64), np.empty(count, dtype=np.int64)
    for need in range(len(made.known)):
        if made.known[need] == 0:
            continue
        ready_ms, size = made.ready_ms[need], 0
        for node in range(count):
            if met[node] == 0:
                continue
            ready_times(
                made.pool, need, 0, 0, NEVER_MS, 1, nodes.pool[node : node + 1], nodes.first_gpu[node : node + 1],
                nodes.gpus[node : node + 1], nodes.out, nodes.held, made.free_ms, ready_ms[node : node + 1],
            )  # fmt: skip
            place = size
            while place > 0 and ready_ms[changed[place - 1]] > ready_ms[node]:
                changed[place] = changed[place - 1]
                place -= 1
            changed[place] = node
            size += 1
        at, place = 0, 0
        for node in made.order[need]:
            if met[node] == 1:
                continue
            while at < size and (
                ready_ms[changed[at]] < ready_ms[node]
                or (ready_ms[changed[at]] == ready_ms[node] and changed[at] < node)
            ):
                other[place] = changed[at]
                at, place = at + 1, place + 1
            other[place] = node
            place += 1
        other[place:] = changed[at:size]
        made.order[need] = other
        made.as_of_ms[need] = -1


@njit(cache=True)
def as_of(now_ms: int, made: Releases) -> None:
    """Fill in, for each number of GPUs that is known, when nodes are ready at ``now_ms``: no instant is before that.

    ``order`` lists them by ``ready_ms``, then by row, and ``now_order`` by what is filled in: who is ready by now is so at once.
    """
    for need in range(len(made.known)):
        if made.known[need] == 0 or made.as_of_ms[need] == now_ms:
            continue
        made.as_of_ms[need] = now_ms
        ready_ms, order, now_ready_ms, now_order = (
            made.ready_ms[need],
            made.order[need],
            made.now_ready_ms[need],
            made.now_order[need],
        )
        count, nodes = 0, len(ready_ms)
        for node in range(nodes):
            now_ready_ms[node] = max(now_ms, ready_ms[node])
            if ready_ms[node] <= now_ms:
                now_order[count] = node
                count += 1
        for at in range(count, nodes):  # as many are left, and they stand last in this order too
            now_order[at] = order[at]

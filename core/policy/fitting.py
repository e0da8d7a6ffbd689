"""The one question about space: which GPUs would this workload get? A thin call of ``kernels.pack.find_gpus``.

Placing, preempting, reserving and explaining all ask here, about the space as it is or about one in which runs are imagined gone;
``visiting`` asks about a workload as it would be in another pool.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from apportion.core.kernels import fragments, pack, release
from apportion.core.kernels.release import Releases
from apportion.core.kernels.serve.ahead import first_open
from apportion.core.state import schema
from apportion.core.state.asks import Ask, ask_of
from apportion.core.state.memo import Outliving
from apportion.core.state.mix import asked_of, mix_of
from apportion.core.state.space import Space
from apportion.core.state.state import State
from apportion.core.state.wishes import NO_ARRAY, Wish, places_of, wish_at, wish_of
from apportion.core.units import MAX_NODE_GPUS, MILLI

I64 = NDArray[np.int64]

STARTS_FEW = 64  # of which it costs less to look at their nodes alone than at all


def find_gpus(
    state: State, workload: int, space: Space, masked: I64, wish: Wish | None = None, ask: Ask | None = None
) -> list[int]:
    """Return the GPU rows the workload would get, in piece order; [] when it does not fit.

    ``space`` is what is used, now or in a plan; ``masked`` (per node row) > 0 leaves a node out; ``wish`` stands for the workload's
    own, ``ask`` for what it is where it waits.
    """
    node, gpu = state.node, state.gpu
    ask = ask_of(state, workload) if ask is None else ask
    nodes, wish = ask.nodes, wish_at(state, ask.wish) if wish is None else wish
    places = places_of(state, wish, nodes, space, workload + 1)
    rank = ranks_of(state, workload, space, wish, ask)
    chosen = np.zeros(min(nodes, node.used + 1) * MAX_NODE_GPUS, dtype=np.int64)
    count = pack.find_gpus(
        ask.pool, nodes, ask.milli_per_node, wish.loose, wish.aligned, wish.gpu_memory_mib,
        workload + 1, node.used, node.pool, node.first_gpu, node.gpus, node.gpu_memory_mib, masked, space.gpu_milli,
        space.gpu_memory_mib, gpu.out, gpu.held_by, *places, rank, chosen,
    )  # fmt: skip
    return [int(row) for row in chosen[:count]]


def ranks_of(state: State, workload: int, space: Space, wish: Wish, ask: Ask) -> I64:
    """Return how good each node, or GPU for a fraction, is by the pool's packing; without entries: by best fit.

    What is kept for others is no part of what is free. O(GPUs x classes of the mix): 0.4 to 0.9 ms for 2,048 nodes of 8 and 16
    classes, where best fit takes 0.05.
    """
    pool, node, gpu = ask.pool, state.node, state.gpu
    packing, milli = state.pool.cells.packing[pool], ask.milli_per_node
    if packing == schema.BEST_FIT:
        return NO_ARRAY
    held = gpu.column("held_by")
    usable = (gpu.column("out") == 0) & ((held == 0) | (held == workload + 1))
    rank = np.zeros(gpu.used if milli < MILLI else node.used, dtype=np.int64)
    fragments.fill_ranks(
        packing, asked_of(milli, wish), mix_of(state, pool), pool, node.used, node.pool, node.first_gpu, node.gpus,
        np.where(usable, MILLI - space.gpu_milli, 0), *left_beside_gpus(state, space), rank,
    )  # fmt: skip
    return rank


def left_beside_gpus(state: State, space: Space) -> tuple[I64, I64]:
    """Return what is left of CPU and memory on each node, as packings see it."""
    node = state.node
    cpu_milli: I64 = np.minimum(node.column("cpu_milli") - space.cpu_milli, fragments.CPU_MILLI_MAX)
    return cpu_milli, node.column("memory_mib") - space.memory_mib


def has_room(state: State, workload: int, gpus: list[int]) -> bool:
    """Tell whether the workload could start on these GPUs, which are kept for it, as far as all but GPUs goes."""
    if not state.workload.cells.wish[workload]:
        return True
    wish = wish_of(state, workload)
    room = places_of(state, wish, 1, Space.now(state), workload + 1).room
    if not len(room):
        return True
    nodes = [int(state.gpu.node[gpu]) for gpu in gpus]
    return all(room[node] >= (nodes.count(node) if wish.loose else 1) for node in dict.fromkeys(nodes))


def healthy_parts_for(state: State, ask: Ask, masked: I64) -> int:
    """Return how many parts of a workload's shape the nodes in service could hold when empty: most often, how many nodes.

    ``masked`` > 0 leaves a node out.
    """
    node, wish, nodes = state.node, wish_at(state, ask.wish), ask.nodes
    places = places_of(state, wish, nodes)
    pools = np.where(masked > 0, -1, node.column("pool"))
    return int(
        pack.most_parts(
            ask.pool, nodes, max(1, ask.milli_per_node // MILLI), wish.loose, wish.aligned,
            node.used, pools, node.first_gpu, node.gpus, state.gpu.out, places.room, places.within, places.place, 1,
        )
    )  # fmt: skip


def releases_of(state: State, pool: int, *, guess: bool) -> Releases:
    """Return what is known of when nodes of a pool are ready, as of now; ``earliest_nodes`` adds to it."""
    memo = state.memo.at(state.moved)
    kept, node = memo.releases, state.node
    if (pool, guess) not in kept:
        ready_ms, order, now_ready_ms, now_order = (
            np.empty((MAX_NODE_GPUS + 1, node.used), dtype=np.int64) for _column in range(4)
        )
        known, as_of_ms = (np.zeros(MAX_NODE_GPUS + 1, dtype=np.int64) for _column in range(2))
        nodes = release.Nodes(node.pool, node.first_gpu, node.gpus, state.gpu.out, state.gpu.held_by)
        kept[pool, guess] = Releases(pool, nodes, NO_ARRAY, ready_ms, order, known, as_of_ms, now_ready_ms, now_order)
    made = kept[pool, guess]
    if memo.free_ms is not None and not len(made.free_ms):
        made = kept[pool, guess] = made._replace(free_ms=memo.free_ms[int(guess)])
    release.as_of(state.counters.time_ms, made)
    return made


def held_by_runs(state: State) -> release.Held:
    """Return the columns that tell when runs give back what they hold."""
    run, table, alloc = state.run, state.workload, state.alloc
    return release.Held(
        run.state, run.workload, run.pool, run.payer, run.placed_ms, run.checkpoint_ms, run.protected_until_ms, run.stop_by_ms,
        run.first_alloc, table.expected_runtime_ms, table.progress_ms, (state.pool.policy == schema.FAIR).astype(np.int64),
        alloc.run, alloc.gpu, alloc.milli, alloc.next,
    )  # fmt: skip


def keep_releases(state: State, kept: Outliving, workloads: I64) -> None:
    """Know after the starts of ``workloads`` what was known before of GPUs and nodes that they did not take, and of these anew.

    ``kept`` is what was known before; nothing but these starts was folded since.
    """
    if kept.free_ms is None or len(workloads) > STARTS_FEW:
        return
    met = np.zeros(state.node.used, dtype=np.uint8)
    release.take_in(state.workload.run[workloads], held_by_runs(state), state.gpu.node, kept.free_ms, met)
    for made in kept.releases.values():
        if len(made.free_ms):
            release.renew(made, met)
        else:
            made.known[:] = 0
    state.memo.at(state.moved).put_back(kept)


def earliest_nodes(
    state: State, workload: int, gpu_free_ms: I64, kept: I64, never_ms: int, known: Releases
) -> tuple[int, I64]:
    """Return when the workload could start, and on which node rows, by when each GPU is expected to be free; never: no rows.

    What is past by ``gpu_free_ms`` is now.

    The parts that are ready first, within one domain where that is asked: of the domains the one that is ready first, then the
    lowest. Which nodes have few domains (``near``) is not asked: whatever is ready first will do. ``kept`` > 0 leaves out nodes.
    ``known`` is that of ``gpu_free_ms``.
    """
    if not state.workload.wish[workload]:
        return _earliest_plain(state, workload, gpu_free_ms, kept, never_ms, known)
    table, node, gpu = state.workload, state.node, state.gpu
    pool, nodes, wish = int(table.pool[workload]), int(table.nodes[workload]), wish_of(state, workload)
    places, now_ms = places_of(state, wish, nodes), state.counters.time_ms
    gpu_free_ms = _with_room_ms(state, workload, wish, gpu_free_ms)
    if wish.loose:
        able = (node.column("pool")[gpu.column("node")] == pool) & (gpu.column("out") == 0) & (gpu.column("held_by") == 0)
        ready_ms, node_of = np.where(able, np.maximum(gpu_free_ms, now_ms), never_ms), gpu.column("node")
    else:
        need = max(1, int(table.milli_per_node[workload]) // MILLI)
        ready_ms = _ready_ms(state, now_ms, pool, need, wish.aligned, gpu_free_ms, never_ms)
        node_of = np.arange(node.used, dtype=np.int64)
    ready_ms[kept[node_of] > 0] = never_ms
    if len(places.room):
        ready_ms[places.room[node_of] < 1] = never_ms
    order = np.argsort(ready_ms, kind="stable")
    start_ms, picked = never_ms, order[:0]
    within = places.within[node_of[order]] if len(places.within) else np.zeros(len(order), dtype=np.int64)
    labels = places.place[order] // nodes if len(places.place) else within
    for label in np.unique(labels[labels >= 0]):
        first = order[labels == label][:nodes]
        together = len(np.unique(within[labels == label])) == 1
        if together and len(first) == nodes and int(ready_ms[first[-1]]) < start_ms:
            start_ms, picked = int(ready_ms[first[-1]]), first
    return start_ms, np.unique(node_of[picked])


def _ready_ms(
    state: State, least_ms: int, pool: int, need: int, aligned: int, gpu_free_ms: I64, never_ms: int
) -> I64:
    node, gpu, ready_ms = state.node, state.gpu, np.zeros(state.node.used, dtype=np.int64)
    pack.ready_times(
        pool, need, aligned, least_ms, never_ms, node.used, node.pool, node.first_gpu, node.gpus, gpu.out,
        gpu.held_by, gpu_free_ms, ready_ms,
    )  # fmt: skip
    return ready_ms


def _earliest_plain(
    state: State, workload: int, gpu_free_ms: I64, kept: I64, never_ms: int, known: Releases
) -> tuple[int, I64]:
    """Return the same of a shape that asks for nothing but GPUs on any nodes."""
    table = state.workload
    need = max(1, int(table.milli_per_node[workload]) // MILLI)
    if not known.known[need]:
        release.make_known(known._replace(free_ms=gpu_free_ms), need, state.counters.time_ms)
    ready_ms, order = known.now_ready_ms[need], known.now_order[need]
    picked = np.zeros(min(int(table.nodes[workload]), len(order) + 1), dtype=np.int64)
    if not first_open(order, kept, picked) or int(ready_ms[picked[-1]]) >= never_ms:
        return never_ms, order[:0]
    return int(ready_ms[picked[-1]]), np.sort(picked, kind="stable")


def _with_room_ms(state: State, workload: int, wish: Wish, gpu_free_ms: I64) -> I64:
    """Return when GPUs are free together with room on their nodes: where there is too little now, when all runs there are over."""
    room = places_of(state, wish, 1, Space.now(state), workload + 1).room
    if not len(room):
        return gpu_free_ms
    node_of = state.gpu.column("node")
    last_ms = np.zeros(state.node.used, dtype=np.int64)
    np.maximum.at(last_ms, node_of, gpu_free_ms)
    scarce = room < (state.node.column("gpus") if wish.loose else 1)
    result: I64 = np.where(scarce[node_of], last_ms[node_of], gpu_free_ms)
    return result

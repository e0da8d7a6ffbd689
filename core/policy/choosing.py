"""The choice of victims: the least plan that frees what a workload needs, by exact search, or a valid one where that is bounded.

Exact in GPUs, domains, labels and whatever else a node is or is not: the kernel searches over nodes (over GPUs for a fraction or a
loose request), in each domain of which all nodes must be one; of blocks, each is looked at. After ``STEPS_MAX`` steps it takes the
best plan found so far, and if that is none, the first one in order of GPUs taken: valid plans, then not proved least. Amounts that
runs use up beside GPUs (CPU, memory, memory of a shared GPU), and runs of a group, are not in the search. If the least plan without
them has them too, it is the least. If not, runs are taken in order of cost until the workload fits, and put back where they turn
out not to be needed: valid, not always least, and where a budget may give only a part, perhaps not found.

A pure function of the state and of who may go (``preempting``); it decides nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from apportion.core.kernels import targets as target_kernels
from apportion.core.kernels import victims as victim_kernels
from apportion.core.policy.fitting import find_gpus
from apportion.core.state import work
from apportion.core.state.holdings import gpus_of_run
from apportion.core.state.space import Space
from apportion.core.state.state import State
from apportion.core.state.wishes import Places, places_of, wish_of
from apportion.core.units import MAX_NODE_GPUS, MILLI

I64 = NDArray[np.int64]

STEPS_MAX = 30_000  # of one search; a few milliseconds


@dataclass
class Field:
    """Who may be a victim for one beneficiary, one entry per run row, and what each budget may give."""

    eligible: I64
    cost: I64  # runs x target_kernels.COSTS
    leaf: I64  # budget row, -1 where it does not matter: on idle cycles, or demoted for doing no work
    milli: I64
    room: I64  # per budget row: 2 * (running - allowance)
    rank: I64  # per budget row: place in the order of over-service


def costs_of(state: State, counted_milli: I64, rank: I64, quantum_ms: int) -> I64:
    """Return what it costs that each run goes, as ``preempting`` lists it; ``counted_milli`` of its GPUs were promised anything."""
    run, now_ms = state.run, state.counters.time_ms
    milli = run.column("gpus_milli")
    unsaved_ms = np.minimum(work.unsaved_ms(state), quantum_ms)
    cost = np.zeros((run.used, target_kernels.COSTS), dtype=np.int64)
    cost[:, 0] = counted_milli * unsaved_ms
    cost[:, 1] = counted_milli
    cost[:, 2] = (milli - counted_milli) * unsaved_ms
    cost[:, 3] = milli
    cost[:, 4] = counted_milli * rank
    cost[:, 5] = now_ms - run.column("placed_ms")
    cost[:, 6] = state.counters.seq - state.workload.event_seq[run.column("workload")]
    return cost


def least_plan(state: State, field: Field, workload: int, masked: I64) -> tuple[list[int], list[int]] | None:
    """Return victims and the GPUs that the beneficiary gets; None when there is no plan, or none was found."""
    if state.workload.wish[workload]:
        masked = masked | _hopeless(state, field, workload)
    found = _fill_back(state, workload, *_search(state, field, workload, masked), masked)
    if found is None and _uses_up_more(state, workload):
        found = _fill_back(state, workload, _in_order_of_cost(state, field, workload, masked), False, masked)
    return found


def _uses_up_more(state: State, workload: int) -> bool:
    """Tell whether the workload needs anything, beside GPUs, that other runs use up."""
    shared = int(state.workload.milli_per_node[workload]) < MILLI and bool(state.gpu.column("used_memory_mib").any())
    return shared or wish_of(state, workload).contested


def _hopeless(state: State, field: Field, workload: int) -> I64:
    """Return 1 per node that lacks what is asked for beside GPUs, or would have too little even with all gone who may go."""
    wish = wish_of(state, workload)
    space = Space.copy(state)
    for run in np.flatnonzero(field.eligible).tolist() if wish.contested else ():
        space.take_out(run)
    room = places_of(state, wish, 1, space, workload + 1).room
    hopeless: I64 = (room < 1).astype(np.int64) if len(room) else np.zeros(state.node.used, dtype=np.int64)
    return hopeless


def _in_order_of_cost(state: State, field: Field, workload: int, masked: I64) -> list[int]:
    """Return runs whose end lets the workload start, the dearest first: of the cheapest that do, those that matter to it.

    These are on the nodes it gets, or of its group. Budgets give no more than they may. Whether it fits only grows with who is
    gone, so the number is found by halving.
    """
    order = sorted(np.flatnonzero(field.eligible).tolist(), key=lambda run: (*field.cost[run].tolist(), run))
    given: dict[int, tuple[int, int]] = {}  # per budget: sum and smallest
    able = []
    for run in order:
        leaf, milli = int(field.leaf[run]), int(field.milli[run])
        total, smallest = given.get(leaf, (0, milli))
        total, smallest = total + milli, min(smallest, milli)
        if leaf < 0 or 2 * total - smallest < int(field.room[leaf]):
            given[leaf] = total, smallest
            able.append(run)

    def fitting(count: int) -> list[int]:
        space = Space.copy(state)
        for run in able[:count]:
            space.take_out(run)
        return find_gpus(state, workload, space, masked)

    low, high = 0, len(able)
    if not fitting(high):
        return []
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if fitting(middle) else (middle + 1, high)
    nodes = {int(state.gpu.node[gpu]) for gpu in fitting(high)}
    group = wish_of(state, workload).group

    def concerned(run: int) -> bool:
        there = any(int(state.gpu.node[gpu]) in nodes for gpu in gpus_of_run(state, run))
        return there or (group != "" and wish_of(state, int(state.run.workload[run])).group == group)

    return [run for run in reversed(able[:high]) if concerned(run)]


def _search(state: State, field: Field, workload: int, masked: I64) -> tuple[list[int], bool]:
    """Return the runs of the best plan, ascending, and whether it is proved to be the least; [] when there is none."""
    if wish_of(state, workload).aligned:
        return _search_blocks(state, field, workload, masked), True
    table, node, gpu, alloc = state.workload, state.node, state.gpu, state.alloc
    wish, each = wish_of(state, workload), int(table.milli_per_node[workload])
    spots = places_of(state, wish, int(table.nodes[workload]))
    units = 0 if wish.loose else each // MILLI
    places = node.used if units else gpu.used
    missing, blocked = np.empty(places, dtype=np.int64), np.empty(gpu.used, dtype=np.int64)
    item_target, item_gain, following = (np.empty(alloc.used, dtype=np.int64) for _ in range(3))
    used = gpu.column("used_milli")
    entries = target_kernels.collect(
        int(table.pool[workload]), units, each, workload + 1, node.used, node.pool, node.first_gpu, node.gpus, masked, gpu.node,
        used, gpu.out, gpu.held_by, alloc.used, alloc.run, alloc.gpu, alloc.milli, field.eligible, missing, item_target,
        item_gain, following, blocked,
    )  # fmt: skip
    if not entries:
        return [], True
    heads = target_kernels.heads_of(places, item_target, alloc.run, field.cost)  # the cheap ones first; any order would do
    share, touched = np.empty_like(field.cost), np.empty(state.run.used, dtype=np.int64)
    floor = np.empty((places, target_kernels.COSTS), dtype=np.int64)
    first, count = np.empty(places, dtype=np.int64), np.empty(places, dtype=np.int64)
    target_kernels.least(
        places, missing, len(heads), heads, item_target, item_gain, following, alloc.run, field.cost, share, touched, floor,
        first, count,
    )  # fmt: skip
    order = target_kernels.by_floor(places, floor)
    domain = spots.within if units or not len(spots.within) else spots.within[gpu.column("node")]
    areas = _areas(int(table.nodes[workload]), missing, order, domain, floor)
    if not areas or areas[0].wanted < 1:
        return [], True
    class_of = np.full(places, -1, dtype=np.int64)
    target_kernels.classes(
        len(order), order, missing, first, count, heads, item_gain, following, alloc.run, touched, field.leaf, field.milli,
        class_of,
    )  # fmt: skip
    needed = np.array([table.gpus_milli[workload], field.milli[field.eligible == 1].max()], dtype=np.int64)
    chosen, best = np.zeros(state.run.used, dtype=np.int64), np.full(target_kernels.COSTS, target_kernels.NONE_LEFT, dtype=np.int64)
    left, proved = STEPS_MAX, True
    for area in areas:
        if area.least >= tuple(best.tolist()):
            break  # so do all that follow
        for first_try in (True, False):
            by = area.order if first_try else area.order[np.argsort(floor[area.order, 3], kind="stable")]
            steps = victim_kernels.search(
                area.wanted, len(by), by, class_of, missing, first, count, heads, item_gain, following, alloc.run, field.cost,
                share, floor, field.leaf, field.milli, field.room, needed, left, best, chosen,
            )  # fmt: skip
            if steps >= -left:
                break  # a plan, or the proof that there is none
        proved = proved and first_try and abs(steps) <= left
        left = max(0, left - abs(steps))
    return [int(run) for run in np.flatnonzero(chosen)], proved


def _search_blocks(state: State, field: Field, workload: int, masked: I64) -> list[int]:
    """Return the runs on the block that costs least; [] when there is none. A block leaves no choice: all on it must go."""
    table, node, gpu, alloc = state.workload, state.node, state.gpu, state.alloc
    nodes, each = int(table.nodes[workload]), int(table.milli_per_node[workload]) // MILLI
    places = places_of(state, wish_of(state, workload), nodes)
    fine = (node.column("pool") == table.pool[workload]) & (masked == 0)
    if len(places.place):
        fine &= (node.column("gpus") == each) & (places.place >= 0)
        fine[fine] = _of_one_domain(places, nodes, np.flatnonzero(fine))
    on, position = gpu.column("node"), gpu.column("position")
    kept = (gpu.column("held_by") > 0) & (gpu.column("held_by") != workload + 1)
    usable = fine[on] & (position < node.gpus[on]) & (gpu.column("out") == 0) & ~kept
    block = places.place[on] // nodes if len(places.place) else on * MAX_NODE_GPUS + position // each
    live = np.flatnonzero(alloc.column("milli"))
    usable[alloc.gpu[live[field.eligible[alloc.run[live]] == 0]]] = False
    blocks, count = np.unique(block[usable], return_counts=True)
    whole = blocks[count == nodes * each]
    going = live[(field.eligible[alloc.run[live]] == 1) & np.isin(block[alloc.gpu[live]], whole)]
    if len(np.setdiff1d(whole, block[alloc.gpu[going]])) or not len(going):
        return []  # one fits as it is, or there is none
    pairs = np.unique(np.stack((block[alloc.gpu[going]], alloc.run[going])), axis=1)
    costs = np.zeros((len(whole), target_kernels.COSTS), dtype=np.int64)
    np.add.at(costs, np.searchsorted(whole, pairs[0]), field.cost[pairs[1]])
    for candidate in np.lexsort(tuple(costs[:, k] for k in range(target_kernels.COSTS - 1, -1, -1))):
        runs = pairs[1][pairs[0] == whole[candidate]]
        if _may_go(field, runs, int(table.gpus_milli[workload])):
            return [int(run) for run in np.sort(runs, kind="stable")]
    return []


def _of_one_domain(places: Places, nodes: int, rows: I64) -> NDArray[np.bool_]:
    """Tell of each node whether all of its block are in one domain, where that is asked."""
    if not len(places.within):
        return np.ones(len(rows), dtype=np.bool_)
    block = places.place[rows] // nodes
    pairs = np.unique(np.stack((block, places.within[rows])), axis=1)
    blocks, domains = np.unique(pairs[0], return_counts=True)
    result: NDArray[np.bool_] = np.isin(block, blocks[domains == 1])
    return result


def _may_go(field: Field, runs: I64, need_milli: int) -> bool:
    """Tell whether these runs give no more than their budgets may, and together no more than needed and the largest of them."""
    sizes = field.milli[runs]
    for leaf in np.unique(field.leaf[runs]):
        mine = sizes[field.leaf[runs] == leaf]
        if leaf >= 0 and 2 * int(mine.sum()) - int(mine.min()) >= int(field.room[leaf]):
            return False
    return int(sizes.sum()) <= need_milli + int(sizes.max())


@dataclass
class Area:
    """Where a plan may lie: all targets, or those of one domain. ``order`` is by their least cost."""

    wanted: int
    order: I64
    least: tuple[int, ...]  # no plan costs less


def _areas(nodes: int, missing: I64, order: I64, domain: I64, floor: I64) -> list[Area]:
    """Return the areas in which there may be a plan, the one with the least bound first (ties: the lowest domain).

    A plan's targets cost at least their floors, so it costs at least the sum of the ``wanted`` least ones.
    """
    found = []
    if not len(domain):
        wanted = nodes - int(np.count_nonzero(missing < 1))
        if wanted > len(order):
            return []
        return [Area(wanted, order, tuple(floor[order[: max(0, wanted)]].sum(axis=0).tolist()))]
    labels = domain
    fits = np.bincount(labels[missing < 1], minlength=int(labels.max(initial=0)) + 1)
    able = np.bincount(labels[order], minlength=len(fits))
    for label in np.flatnonzero(fits + able >= nodes).tolist():
        wanted = nodes - int(fits[label])
        mine = order[labels[order] == label]
        if wanted < 1:
            return [Area(wanted, mine, ())]
        found.append(Area(wanted, mine, tuple(floor[mine[:wanted]].sum(axis=0).tolist())))
    return sorted(found, key=lambda area: area.least)


def _fill_back(
    state: State, workload: int, victims: list[int], proved: bool, masked: I64
) -> tuple[list[int], list[int]] | None:
    """Return the victims that are really needed and the GPUs the beneficiary gets, None when it would not start.

    Of a plan that is proved least all are needed: without one of them it would cost less.
    """
    space = Space.copy(state)
    for run in victims:
        space.take_out(run)
    gpus = find_gpus(state, workload, space, masked) if victims else []
    if not gpus:
        return None
    needed = list(victims)
    for run in () if proved else victims:
        space.put_back(run)
        without = find_gpus(state, workload, space, masked)
        if without:
            gpus = without
            needed.remove(run)
        else:
            space.take_out(run)
    return needed, gpus

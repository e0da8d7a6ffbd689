"""Preemption, planned whole: which unfunded runs must stop so that a funded workload starts (FUNDING rule 1.7).

A run may be a victim when (a) it is unfunded, (b) past its protected time, (c) its budget stays above its allowance by more than
half of it when all victims of the plan are gone (``2 * r + s > 2 * f``: none of them could be funded again at once, and the sum
of (f - r)^2 falls with each), and (d) its budget did not itself take GPUs by preemption within the quantum. Neither (c) nor (d) is
asked of runs on idle cycles, and of those that were demoted because they do no work (``idling``). A budget without a share lives
on what nobody is entitled to, and takes only from these two. The plan is the one with the least cost, compared number by number:

1. GPU time since the last checkpoint that would be lost, of each run at most one quantum: who saves his work loses less and goes
   before who does not, but nobody makes himself a fortress by never saving it; work on idle cycles was promised nothing, and
   counts 0, like that of demoted runs;
2. GPUs taken from runs that are not on idle cycles; 3. the GPU time that idle cycles would lose; 4. GPUs taken at all;
5. GPUs times the place of their budget in the order of (r - f) / share: the most over-served pays first;
6. the sum of how long ago they started; 7. the sum of how long ago they were submitted, in records.

Never more than ``needed + the largest victim`` is taken. The kernel searches exactly over nodes; after ``STEPS_MAX`` steps it
takes the best plan found so far, and if that is none, the first one in order of GPUs taken: valid plans, then not proved least.

A victim that turns out not to be needed is put back. That cannot break (c) for the others (what is given up of a budget only
shrinks), and it is checked again before anybody is told. If the beneficiary would still not fit, nobody dies. The proof that
this cannot loop is in FUNDING section 1; the property tests assert its quantity at every step.

A pure function of the state; writes nothing but decisions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from apportion.core.kernels import targets as target_kernels
from apportion.core.kernels import victims as victim_kernels
from apportion.core.policy.certifying import write_plan
from apportion.core.policy.emit import Emit
from apportion.core.policy.fitting import find_gpus
from apportion.core.policy.funding import Shares
from apportion.core.policy.idling import demoted
from apportion.core.state import schema
from apportion.core.state.holdings import imagine
from apportion.core.state.state import State
from apportion.core.state.wishes import places_of, wish_of
from apportion.core.units import MILLI, PPM

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


def preempt_for(state: State, emit: Emit, shares: Shares, workload: int, masked: I64) -> list[int] | None:
    """Plan for ``workload`` and write the plan; returns the workloads that lose their runs, or None when there is no plan.

    ``masked`` (per node row) > 0 leaves out the nodes kept for somebody else's reservation.
    """
    field = _field(state, shares, workload)
    loose_milli = int(field.milli[field.eligible == 1].sum())
    free_milli = int(state.pool.idle_milli[int(state.workload.pool[workload])])
    if not loose_milli or loose_milli + free_milli < int(state.workload.gpus_milli[workload]):
        return None
    chosen, proved = _search(state, field, workload, masked)
    found = _fill_back(state, workload, chosen, masked, proved=proved)
    if found is None:
        return None
    victims, gpus = _in_order(state, field, found[0]), found[1]
    if not _allowed(state, field, victims, int(state.workload.gpus_milli[workload])):
        return None
    off = demoted(state)

    def numbers(victim: int, _gone: list[int]) -> dict[str, int]:
        return {"idle_since_ms": int(state.run.idle_since_ms[victim])} if off[victim] else {}

    write_plan(state, emit, shares, workload, victims, gpus, numbers)
    return [int(state.run.workload[run]) for run in victims]


def _field(state: State, shares: Shares, workload: int) -> Field:
    """Apply rules (a), (b), (d), and (c) for each run alone; and count costs."""
    run, budget, now_ms = state.run, state.budget, state.counters.time_ms
    pool, taker = int(state.workload.pool[workload]), int(state.workload.budget[workload])
    quantum_ms = int(state.pool.quantum_ms[pool])
    leaf, milli = run.column("budget"), run.column("gpus_milli")
    off = demoted(state) & (run.column("payer") == schema.PAYER_UNFUNDED)
    idle = (run.column("idle_cycles") == 1) | off
    keeps = shares.running.copy()  # of which demoted runs may go at any time
    np.subtract.at(keeps, leaf[off], milli[off])
    room = 2 * (keeps - shares.allowance)
    phases, took_ms = run.column("state"), budget.column("took_ms")
    graced = (took_ms > 0) & (now_ms - took_ms < quantum_ms)
    eligible = (run.column("pool") == pool) & ((phases == schema.PLACED) | (phases == schema.STARTED))
    eligible &= (run.column("payer") == schema.PAYER_UNFUNDED) & (run.column("protected_until_ms") <= now_ms)
    if not _entitled(state, taker):
        eligible &= idle
    eligible &= idle | ((leaf != taker) & ~graced[leaf] & (milli < room[leaf]))
    rank = _ranks(state, room, np.unique(leaf[eligible & ~idle]))
    cost = np.zeros((run.used, target_kernels.COSTS), dtype=np.int64)
    counted = np.where(idle, 0, milli)
    unsaved_ms = np.minimum(now_ms - run.column("checkpoint_ms"), quantum_ms)
    cost[:, 0] = counted * unsaved_ms
    cost[:, 1] = counted
    cost[:, 2] = (milli - counted) * unsaved_ms
    cost[:, 3] = milli
    cost[:, 4] = counted * rank[leaf]
    cost[:, 5] = now_ms - run.column("placed_ms")
    cost[:, 6] = state.counters.seq - state.workload.event_seq[run.column("workload")]
    cost[~eligible] = 0
    return Field(eligible.astype(np.int64), cost, np.where(idle, -1, leaf), milli, room, rank)


def _entitled(state: State, line: int) -> bool:
    while line >= 0 and state.budget.share_ppm[line]:
        line = int(state.budget.parent[line])
    return line < 0


def _ranks(state: State, room: I64, leaves: I64) -> I64:
    """Return per budget row its place among ``leaves`` by (running - allowance) / share, the largest first, ties by row."""
    budget = state.budget
    weight = np.zeros(budget.used, dtype=np.int64)
    target_kernels.weights(budget.used, budget.parent, budget.share_ppm, weight)
    rank = np.zeros(budget.used, dtype=np.int64)
    order = np.argsort(-(room[leaves] * PPM // weight[leaves]), kind="stable")
    rank[leaves[order]] = np.arange(len(leaves), dtype=np.int64)
    return rank


def _search(state: State, field: Field, workload: int, masked: I64) -> tuple[list[int], bool]:
    """Return the runs of the best plan, ascending, and whether it is proved to be the least; [] when there is none."""
    table, node, gpu, alloc = state.workload, state.node, state.gpu, state.alloc
    wish, each = wish_of(state, workload), int(table.milli_per_node[workload])
    spots = places_of(state, wish, int(table.nodes[workload]))
    units = 0 if wish.loose else each // MILLI
    places = node.used if units else gpu.used
    missing, blocked = np.zeros(places, dtype=np.int64), np.zeros(gpu.used, dtype=np.int64)
    item_target, item_gain, following = (np.zeros(alloc.used, dtype=np.int64) for _ in range(3))
    used = gpu.column("used_milli")
    entries = target_kernels.collect(
        int(table.pool[workload]), units, each, workload + 1, node.used, node.pool, node.first_gpu, node.gpus, masked, gpu.node,
        used, gpu.out, gpu.held_by, alloc.used, alloc.run, alloc.gpu, alloc.milli, field.eligible, missing, item_target,
        item_gain, following, blocked,
    )  # fmt: skip
    if not entries:
        return [], True
    heads = np.flatnonzero(item_target >= 0)
    heads = heads[np.lexsort((field.cost[alloc.run[heads], 0], item_target[heads]))]  # the cheap ones first; any order would do
    share, touched = np.zeros_like(field.cost), np.zeros(state.run.used, dtype=np.int64)
    floor = np.zeros((places, target_kernels.COSTS), dtype=np.int64)
    first, count = np.zeros(places, dtype=np.int64), np.zeros(places, dtype=np.int64)
    target_kernels.least(
        places, missing, len(heads), heads, item_target, item_gain, following, alloc.run, field.cost, share, touched, floor,
        first, count,
    )  # fmt: skip
    able = np.flatnonzero(floor[:, 0] < target_kernels.NONE_LEFT)
    order = able[np.lexsort(tuple(floor[able, k] for k in range(target_kernels.COSTS - 1, -1, -1)))]
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
        for by in (area.order, area.order[np.argsort(floor[area.order, 3], kind="stable")]):
            steps = victim_kernels.search(
                area.wanted, len(by), by, class_of, missing, first, count, heads, item_gain, following, alloc.run, field.cost,
                share, floor, field.leaf, field.milli, field.room, needed, left, best, chosen,
            )  # fmt: skip
            if steps >= -left:
                break  # a plan, or the proof that there is none
        proved = proved and by is area.order and abs(steps) <= left
        left = max(0, left - abs(steps))
    return [int(run) for run in np.flatnonzero(chosen)], proved


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
    labels = domain if len(domain) else np.zeros(len(missing), dtype=np.int64)
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
    state: State, workload: int, victims: list[int], masked: I64, *, proved: bool
) -> tuple[list[int], list[int]] | None:
    """Return the victims that are really needed and the GPUs the beneficiary gets, None when it would not start.

    Of a plan that is proved least all are needed: without one of them it would cost less.
    """
    used = state.gpu.column("used_milli").copy()
    for run in victims:
        imagine(state, run, used, -1)
    gpus = find_gpus(state, workload, used, masked) if victims else []
    if not gpus:
        return None
    needed = list(victims)
    for run in () if proved else victims:
        imagine(state, run, used, 1)
        without = find_gpus(state, workload, used, masked)
        if without:
            gpus = without
            needed.remove(run)
        else:
            imagine(state, run, used, -1)
    return needed, gpus


def _in_order(state: State, field: Field, victims: list[int]) -> list[int]:
    """Return the order in which certificates count them: idle cycles, then by budget, the largest first, the latest first.

    With the smallest last, rule (c) holds for each certificate whenever it holds for the last: the order hides nothing.
    """
    run, seq = state.run, state.workload.event_seq

    def place(row: int) -> tuple[int, int, int, int, int]:
        leaf = int(field.leaf[row])
        rank = -1 if leaf < 0 else int(field.rank[leaf])
        return rank, leaf, -int(field.milli[row]), -int(run.placed_ms[row]), -int(seq[int(run.workload[row])])

    return sorted(victims, key=place)


def _allowed(state: State, field: Field, victims: list[int], need_milli: int) -> bool:
    """Check again, on what is left of the plan, what the search promised."""
    given: dict[int, int] = {}
    for run in victims:
        leaf, milli = int(field.leaf[run]), int(field.milli[run])
        if leaf >= 0:
            given[leaf] = given.get(leaf, 0) + milli
            if 2 * given[leaf] - milli >= int(field.room[leaf]):  # (c), r without those before it
                return False
    sizes = [int(field.milli[run]) for run in victims]
    return sum(sizes) <= need_milli + max(sizes)

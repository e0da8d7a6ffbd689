"""Preemption, planned whole: which unfunded runs must stop so that a funded workload starts (FUNDING rule 1.7).

A run may be a victim when it is unfunded, past its protected time, its budget stays above its allowance by more than half of
the run (``2 * r - s > 2 * f``, r without the victims already chosen), and its budget did not itself take GPUs by preemption
within the quantum. Runs on idle cycles may be victims at once and come first. Order of choice: most over-served budget, then
least work lost since the last checkpoint, latest start, highest row.

The plan is tried on copies of the GPU columns with the one feasibility function; victims that turn out not to be needed are
put back; if the beneficiary would still not fit, there is no plan and nobody dies. The proof that this cannot loop is in
FUNDING section 1; the property tests assert its quantity at every step.

Naive equivalent: try all subsets of eligible runs in order of size. This greedy choice is minimal (no victim can be put back),
not always the smallest.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from apportion.core.decisions import Certificate, GpusReserved, RunPreempted
from apportion.core.policy.emit import Emit
from apportion.core.policy.fitting import find_gpus
from apportion.core.policy.funding import Shares
from apportion.core.state import schema
from apportion.core.state.holdings import pieces_of
from apportion.core.state.state import State
from apportion.core.units import MILLI, gpu_us

I64 = NDArray[np.int64]


@dataclass
class Victim:
    """A run chosen to stop, with the numbers its certificate needs."""

    run: int
    leaf: int
    gpus_milli: int
    running_milli: int  # of its budget, without victims chosen before it


def preempt_for(state: State, emit: Emit, shares: Shares, workload: int, masked: I64) -> list[int] | None:
    """Plan for ``workload`` and write the plan; returns the workloads that lose their runs, or None when there is no plan.

    ``masked`` (per node row) > 0 leaves out the nodes kept for somebody else's reservation.
    """
    used = state.gpu.column("used_milli").copy()
    chosen = _choose(state, shares, workload, used, masked)
    if chosen is None:
        return None
    victims, gpus = chosen
    _write(state, emit, shares, workload, victims, gpus)
    return [int(state.run.workload[victim.run]) for victim in victims]


def _choose(
    state: State, shares: Shares, workload: int, used: I64, masked: I64
) -> tuple[list[Victim], list[int]] | None:
    eligible = _eligible(state, workload)
    if not eligible:
        return None
    everything = used.copy()
    for run in eligible:
        _give_back(state, run, everything, -1)
    if not find_gpus(state, workload, everything, masked):
        return None
    running = {leaf: int(shares.running[leaf]) for leaf in (int(state.run.budget[run]) for run in eligible)}
    weights = {leaf: _weight(state, leaf) for leaf in running}
    victims: list[Victim] = []
    gpus: list[int] = []
    while not gpus:
        run = _next_victim(state, shares, eligible, running, weights)
        if run < 0:
            return None
        eligible.remove(run)
        leaf, milli = int(state.run.budget[run]), int(state.run.gpus_milli[run])
        victims.append(Victim(run, leaf, milli, running[leaf]))
        if not state.run.idle_cycles[run]:
            running[leaf] -= milli
        _give_back(state, run, used, -1)
        gpus = find_gpus(state, workload, used, masked)
    for victim in list(victims):
        _give_back(state, victim.run, used, 1)
        without = find_gpus(state, workload, used, masked)
        if without:
            gpus = without
            victims.remove(victim)
        else:
            _give_back(state, victim.run, used, -1)
    return _recount(state, shares, victims), gpus


def _recount(state: State, shares: Shares, victims: list[Victim]) -> list[Victim]:
    """State each victim's budget as it is with only the remaining victims gone before it."""
    gone: dict[int, int] = {}
    for victim in victims:
        victim.running_milli = int(shares.running[victim.leaf]) - gone.get(victim.leaf, 0)
        if not state.run.idle_cycles[victim.run]:
            gone[victim.leaf] = gone.get(victim.leaf, 0) + victim.gpus_milli
    return victims


def _give_back(state: State, run: int, used: I64, sign: int) -> None:
    alloc = int(state.run.first_alloc[run])
    while alloc >= 0:
        used[int(state.alloc.gpu[alloc])] += sign * int(state.alloc.milli[alloc])
        alloc = int(state.alloc.next[alloc])


def _eligible(state: State, workload: int) -> list[int]:
    """Return runs that rules (a), (b) and (d) allow, without looking at allowances."""
    run, now_ms = state.run, state.counters.time_ms
    pool, taker = int(state.workload.pool[workload]), int(state.workload.budget[workload])
    quantum_ms = int(state.pool.quantum_ms[pool])
    rows = []
    phases = run.column("state")
    live = (run.column("pool") == pool) & ((phases == schema.PLACED) | (phases == schema.STARTED))
    loose = (run.column("payer") == schema.PAYER_UNFUNDED) & (run.column("protected_until_ms") <= now_ms)
    for row in (int(r) for r in np.flatnonzero(live & loose)):
        leaf = int(run.budget[row])
        if run.idle_cycles[row]:
            rows.append(row)
            continue
        if leaf == taker:
            continue
        took_ms = int(state.budget.took_ms[leaf])
        if took_ms and now_ms - took_ms < quantum_ms:
            continue
        rows.append(row)
    return rows


def _next_victim(
    state: State, shares: Shares, eligible: list[int], running: dict[int, int], weights: dict[int, int]
) -> int:
    """Return the first run in order of choice that rule (c) still allows, or -1."""
    run, now_ms = state.run, state.counters.time_ms
    best, best_key = -1, (0, 0, 0, 0, 0, 0)
    for row in eligible:
        leaf, milli = int(run.budget[row]), int(run.gpus_milli[row])
        over = running[leaf] - int(shares.allowance[leaf])
        if run.idle_cycles[row]:
            rank, pressure = 1, 0
        elif 2 * running[leaf] - milli > 2 * int(shares.allowance[leaf]):
            # pressure over / weight, scaled to integers; equal pressures go to the lower leaf row
            rank, pressure = 0, over * MILLI * MILLI // weights[leaf]
        else:
            continue
        lost_us = gpu_us(milli, now_ms - int(run.checkpoint_ms[row]))
        key = (rank, pressure, -leaf, -lost_us, int(run.placed_ms[row]), row)
        if best < 0 or key > best_key:
            best, best_key = row, key
    return best


def _weight(state: State, leaf: int) -> int:
    """Return the leaf's share of its pool in ppm of the whole, at least 1."""
    weight, row = MILLI * MILLI, leaf
    while row >= 0:
        weight = weight * int(state.budget.share_ppm[row]) // (MILLI * MILLI)
        row = int(state.budget.parent[row])
    return max(1, weight)


def _write(
    state: State, emit: Emit, shares: Shares, workload: int, victims: list[Victim], gpus: list[int]
) -> None:
    table, run, now_ms = state.workload, state.run, state.counters.time_ms
    taker, need = int(table.budget[workload]), int(table.gpus_milli[workload])
    freed = sum(victim.gpus_milli for victim in victims)
    for victim in victims:
        row = victim.run
        owner = int(run.workload[row])
        certificate = Certificate(
            beneficiary=table.keys[workload],
            beneficiary_budget=state.budget_path(taker),
            beneficiary_gpus_milli=need,
            beneficiary_running_milli=int(shares.running[taker]),
            beneficiary_allowance_milli=int(shares.allowance[taker]),
            victim_budget=state.budget_path(victim.leaf),
            victim_gpus_milli=victim.gpus_milli,
            victim_running_milli=victim.running_milli,
            victim_allowance_milli=int(shares.allowance[victim.leaf]),
            ran_ms=now_ms - int(run.placed_ms[row]),
            lost_gpu_us=gpu_us(victim.gpus_milli, now_ms - int(run.checkpoint_ms[row])),
            freed_milli=freed,
            needed_milli=need,
        )
        grace_ms = int(table.grace_ms[owner])
        emit(
            RunPreempted(
                workload=table.keys[owner], run=int(run.run_no[row]), grace_until_ms=now_ms + grace_ms, certificate=certificate
            )
        )
    milli_each = min(MILLI, int(table.milli_per_node[workload]))
    emit(GpusReserved(workload=table.keys[workload], pieces=pieces_of(state, gpus, milli_each)))

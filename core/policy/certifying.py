"""Writing a plan of preemption, or of moves: each run with its certificate, and the GPUs held for who starts on them.

Decides nothing: who must go, in which order certificates count them, and the numbers that a policy adds are the caller's. A
certificate shows shares as they are when the victims before it are gone; work on idle cycles counts as nobody's. What is written
is applied by the fold of the decisions.
"""

from __future__ import annotations

from collections.abc import Callable

from apportion.core.decisions import Certificate, GpusReserved, MoveCertificate, RunMoved, RunPreempted
from apportion.core.policy.emit import Emit
from apportion.core.policy.funding import Shares
from apportion.core.reasons import Payer
from apportion.core.state import schema
from apportion.core.state.codes import POLICIES
from apportion.core.state.holdings import pieces_of
from apportion.core.state.state import State
from apportion.core.state.work import unsaved_us
from apportion.core.units import MILLI

Numbers = Callable[[int, list[int]], dict[str, int]]  # of a victim (run row), and of those gone before it that counted


def write_plan(
    state: State, emit: Emit, shares: Shares, workload: int, victims: list[int], gpus: list[int], numbers: Numbers
) -> None:
    """Write that ``victims`` (run rows, in order) must stop so that ``workload`` starts on ``gpus`` (rows)."""
    table, run, now_ms = state.workload, state.run, state.counters.time_ms
    taker, need = int(table.budget[workload]), int(table.gpus_milli[workload])
    freed = sum(int(run.gpus_milli[victim]) for victim in victims)
    gone: list[int] = []
    for victim in victims:
        owner, leaf, milli = int(run.workload[victim]), int(run.budget[victim]), int(run.gpus_milli[victim])
        before = sum(int(run.gpus_milli[row]) for row in gone if int(run.budget[row]) == leaf)
        certificate = Certificate(
            beneficiary=table.keys[workload],
            beneficiary_budget=state.budget_path(taker),
            beneficiary_gpus_milli=need,
            beneficiary_running_milli=int(shares.running[taker]),
            beneficiary_allowance_milli=int(shares.allowance[taker]),
            victim_budget=state.budget_path(leaf),
            victim_gpus_milli=milli,
            victim_running_milli=int(shares.running[leaf]) - before,
            victim_allowance_milli=int(shares.allowance[leaf]),
            ran_ms=now_ms - int(run.placed_ms[victim]),
            lost_gpu_us=unsaved_us(state, victim, now_ms),
            freed_milli=freed,
            needed_milli=need,
            policy=POLICIES[int(state.pool.policy[int(table.pool[workload])])],
            numbers=numbers(victim, gone),
        )
        grace_until_ms = now_ms + int(table.grace_ms[owner])
        emit(
            RunPreempted(
                workload=table.keys[owner], run=int(run.run_no[victim]), grace_until_ms=grace_until_ms, certificate=certificate
            )
        )
        if not run.idle_cycles[victim]:
            gone.append(victim)
    milli_each = min(MILLI, int(table.milli_per_node[workload]))
    emit(GpusReserved(workload=table.keys[workload], pieces=pieces_of(state, gpus, milli_each)))


def write_moves(
    state: State, emit: Emit, workload: int, gpus: list[int], moves: dict[int, list[int]], *, funded: bool
) -> None:
    """Write that runs (rows) must stop and start again on other GPUs (rows), so that ``workload`` starts on ``gpus``."""
    table, run, now_ms = state.workload, state.run, state.counters.time_ms
    lost_us = {row: unsaved_us(state, row, now_ms) for row in moves}
    moved = sum(int(run.gpus_milli[row]) for row in moves)
    free = int(state.pool.idle_milli[int(table.pool[workload])])
    for row, places in moves.items():
        owner = int(run.workload[row])
        payer = Payer.BUDGET if int(run.payer[row]) == schema.PAYER_BUDGET else Payer.UNFUNDED
        certificate = MoveCertificate(
            beneficiary=table.keys[workload],
            beneficiary_budget=state.budget_path(int(table.budget[workload])),
            needed_milli=int(table.gpus_milli[workload]),
            free_milli=free,
            moves=len(moves),
            moved_milli=moved,
            gpus_milli=int(run.gpus_milli[row]),
            ran_ms=now_ms - int(run.placed_ms[row]),
            lost_gpu_us=lost_us[row],
            plan_lost_gpu_us=sum(lost_us.values()),
        )
        emit(
            RunMoved(
                workload=table.keys[owner],
                run=int(run.run_no[row]),
                grace_until_ms=now_ms + int(table.grace_ms[owner]),
                pieces=pieces_of(state, places, min(MILLI, int(table.milli_per_node[owner]))),
                payer=payer.value,
                certificate=certificate,
            )
        )
    milli_each = min(MILLI, int(table.milli_per_node[workload]))
    emit(GpusReserved(workload=table.keys[workload], pieces=pieces_of(state, gpus, milli_each), unfunded=not funded))

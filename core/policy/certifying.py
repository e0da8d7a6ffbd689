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
    line, milli, idle_cycles = state.run.cells.budget, state.run.cells.gpus_milli, state.run.cells.idle_cycles
    gone, running_milli, told = list[int](), list[int](), list[dict[str, int]]()
    for victim in victims:
        before = sum(milli[row] for row in gone if line[row] == line[victim])
        running_milli.append(int(shares.running[line[victim]]) - before)
        told.append(numbers(victim, gone))
        if not idle_cycles[victim]:
            gone.append(victim)
    taker_milli = int(shares.running[state.workload.cells.budget[workload]])
    emit.all(plan_of(state, shares, workload, taker_milli, victims, running_milli, told, gpus))


def plan_of(
    state: State, shares: Shares, workload: int, taker_milli: int, victims: list[int], running_milli: list[int],
    told: list[dict[str, int]], gpus: list[int],
) -> list[RunPreempted | GpusReserved]:  # fmt: skip
    """Return that as decisions, with what the budgets of the taker and of each victim run, and the numbers told of it."""
    table, run, now_ms = state.workload.cells, state.run.cells, state.counters.time_ms
    taker, need, name = table.budget[workload], table.gpus_milli[workload], state.workload.keys[workload]
    taker_path, taker_allowance, policy = (
        state.budget_path(taker), int(shares.allowance[taker]), POLICIES[state.pool.cells.policy[table.pool[workload]]],
    )  # fmt: skip
    freed, decisions = sum(run.gpus_milli[victim] for victim in victims), list[RunPreempted | GpusReserved]()
    for victim, milli, numbers in zip(victims, running_milli, told, strict=True):
        owner, leaf = run.workload[victim], run.budget[victim]
        certificate = Certificate(
            beneficiary=name,
            beneficiary_budget=taker_path,
            beneficiary_gpus_milli=need,
            beneficiary_running_milli=taker_milli,
            beneficiary_allowance_milli=taker_allowance,
            victim_budget=state.budget_path(leaf),
            victim_gpus_milli=run.gpus_milli[victim],
            victim_running_milli=milli,
            victim_allowance_milli=int(shares.allowance[leaf]),
            ran_ms=now_ms - run.placed_ms[victim],
            lost_gpu_us=unsaved_us(state, victim, now_ms),
            freed_milli=freed,
            needed_milli=need,
            policy=policy,
            numbers=numbers,
        )
        grace_until_ms = now_ms + table.grace_ms[owner]
        decisions.append(
            RunPreempted(
                workload=state.workload.keys[owner], run=run.run_no[victim], grace_until_ms=grace_until_ms, certificate=certificate
            )
        )
    milli_each = min(MILLI, table.milli_per_node[workload])
    decisions.append(GpusReserved(workload=name, pieces=pieces_of(state, gpus, milli_each)))
    return decisions


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

"""Fold of decisions: what a cycle decided, applied the same way whether it was derived just now or read from the log.

Each function takes everything it needs from the decision and the state; a decision that does not fit the state is a broken
invariant (a bug, or a log that is not ours) and stops the core with the sequence number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any, cast

import numpy as np

from apportion.core import ledger
from apportion.core.decisions import (
    AnyDecision,
    FundingChanged,
    GpusReserved,
    GrantIssued,
    MovesProposed,
    NodeSuspended,
    PendingExplained,
    PlanPublished,
    Rejected,
    RunCancelled,
    RunClosed,
    RunDrained,
    RunIdle,
    RunMoved,
    RunPlaced,
    RunPreempted,
    RunRetired,
    ServiceResized,
    WorkloadAdmitted,
    WorkloadClosed,
    WorkloadRejected,
)
from apportion.core.errors import check
from apportion.core.fold import choices, holds, services, starts, telling
from apportion.core.fold.grants import issued
from apportion.core.fold.nodes import refresh_gpus
from apportion.core.fold.release import drop_hold, release_run
from apportion.core.fold.waiting import dequeue, enqueue, enqueue_all
from apportion.core.fold.wishes import drop_wish
from apportion.core.reasons import OTHERS_WISH, RESUMABLE, NodeReason, Outcome
from apportion.core.state import schema
from apportion.core.state.bulk import FEW, Admitted, Bulk, Started, Told
from apportion.core.state.codes import OUTCOME_CODE, PAYER_CODE, SUSPEND_CODE
from apportion.core.state.holdings import runs_on_node
from apportion.core.state.state import State
from apportion.core.state.unsettled import note_unsettled, settle, settle_all


def apply(state: State, decision: AnyDecision) -> None:
    """Fold one decision."""
    state.moved += type(decision) not in _STILL
    _FOLDS[type(decision)](state, decision)


def apply_all(state: State, decisions: Sequence[AnyDecision]) -> None:
    """Fold many: the same as each by itself. What is of one kind and follows each other may be folded at once."""
    for kind, group in groupby(decisions, type):
        state.moved += kind not in _STILL
        if kind is RunPlaced:
            starts.apply_starts(state, cast(list[RunPlaced], list(group)))
        elif kind is WorkloadAdmitted:
            _admitted_all(state, cast(list[WorkloadAdmitted], list(group)))
        elif kind is PendingExplained:
            _explained_all(state, cast(list[PendingExplained], list(group)))
        elif kind is RunClosed:
            _closed_runs(state, cast(list[RunClosed], list(group)))
        else:
            fold = _FOLDS[kind]
            for decision in group:
                fold(state, decision)


def apply_bulk(state: State, bulk: Bulk) -> None:
    """Fold many of one kind that were made in this cycle and fit the state."""
    state.moved += type(bulk) is Started
    _BULKS[type(bulk)](state, bulk)


def _workload(state: State, name: str) -> int:
    row = state.workload.row_of.get(name, -1)
    if row < 0:
        check(False, state.counters.seq, f"a decision names workload {name}, which is not live")
    return row


def _run(state: State, workload: str, run_no: int) -> int:
    row = state.run.row_of.get(state.run_ref(workload, run_no), -1)
    if row < 0:
        check(False, state.counters.seq, f"a decision names run {workload}#{run_no}, which is not live")
    return row


def _said(state: State, decision: Rejected | WorkloadRejected) -> None:
    same = bool(state.refused) and state.refused[0] == decision
    check(same, state.counters.seq, f"refusal of seq {decision.event_seq} is not what the fold refused")
    state.refused.pop(0)


def _admitted(state: State, decision: WorkloadAdmitted) -> None:
    row = state.workload.row_of.get(decision.workload)
    if row is None:
        services.admitted(state, decision)
        return
    check(state.workload.cells.state[row] == schema.NEW, state.counters.seq, f"{decision.workload} is admitted twice")
    enqueue(state, row)
    settle(state, row)


def _admitted_all(state: State, decisions: list[WorkloadAdmitted]) -> None:
    rows = [state.workload.row_of.get(decision.workload, -1) for decision in decisions]
    if min(rows) < 0:  # services and their replicas among them
        for decision in decisions:
            _admitted(state, decision)
        return
    phase, known = state.workload.cells.state, dict.fromkeys(rows)
    for row, decision in zip(rows, decisions, strict=True):
        check(phase[row] == schema.NEW and len(known) == len(rows), state.counters.seq, f"{decision.workload} is admitted twice")
    _apply_admitted(state, Admitted(np.array(rows, dtype=np.int64)))


def _apply_admitted(state: State, admitted: Admitted) -> None:
    enqueue_all(state, admitted.workload)
    settle_all(state, admitted.workload)


def _explained(state: State, decision: PendingExplained) -> None:
    telling.told(state, decision, _workload(state, decision.workload))


def _explained_all(state: State, decisions: list[PendingExplained]) -> None:
    rows = [state.workload.row_of.get(decision.workload, -1) for decision in decisions]
    if min(rows) < 0 or len(dict.fromkeys(rows)) < len(rows):
        for decision in decisions:
            _explained(state, decision)
    else:
        telling.told_all(state, decisions, rows)


def _stop(state: State, run: int, cause: int, stop_by_ms: int, seq: int) -> None:
    cells = state.run.cells
    cells.state[run], cells.stop_cause[run], cells.stop_by_ms[run], cells.stop_seq[run] = schema.STOPPING, cause, stop_by_ms, seq


def _preempted(state: State, decision: RunPreempted) -> None:
    run = _run(state, decision.workload, decision.run)
    _stop(state, run, schema.STOP_PREEMPT, decision.grace_until_ms, state.counters.seq)
    taker = _workload(state, decision.certificate.beneficiary)
    state.budget.cells.took_ms[state.workload.cells.budget[taker]] = state.counters.time_ms


def _cancelled(state: State, decision: RunCancelled) -> None:
    run = _run(state, decision.workload, decision.run)
    _stop(state, run, schema.STOP_CANCEL, decision.grace_until_ms, decision.event_seq)


def _drained(state: State, decision: RunDrained) -> None:
    run = _run(state, decision.workload, decision.run)
    _stop(state, run, schema.STOP_DRAIN, decision.grace_until_ms, state.counters.seq)


def _moved(state: State, decision: RunMoved) -> None:
    run = _run(state, decision.workload, decision.run)
    _stop(state, run, schema.STOP_MOVE, decision.grace_until_ms, state.counters.seq)
    holds.hold(state, int(state.run.workload[run]), decision.pieces, schema.HOLD_MOVED)


def _retired(state: State, decision: RunRetired) -> None:
    run = _run(state, decision.workload, decision.run)
    _stop(state, run, schema.STOP_RETIRE, decision.grace_until_ms, state.counters.seq)
    services.retired(state, decision)


def _closed_run(state: State, decision: RunClosed) -> None:
    _close_run(state, decision, None)


def _closed_runs(state: State, decisions: list[RunClosed]) -> None:
    """Fold many; those who wait again come to the queue together, which moves what stands behind them once."""
    waiting = list[tuple[int, bool]]() if len(decisions) > FEW else None
    for decision in decisions:
        _close_run(state, decision, waiting)
    if waiting:
        enqueue_all(state, np.array([row for row, _held in waiting], dtype=np.int64))
        for row, held in waiting:
            if held:
                state.workload.cells.state[row] = schema.HELD


def _close_run(state: State, decision: RunClosed, waiting: list[tuple[int, bool]] | None) -> None:
    """Fold one; with a list of those who are to wait again it is put there, and comes to the queue later."""
    run = _run(state, decision.workload, decision.run)
    outcome = Outcome(decision.outcome)
    cells, table = state.run.cells, state.workload.cells
    if cells.state[run] != schema.ENDED:
        release_run(state, run, outcome)
    exact = (cells.charged_us[run], cells.unfunded_us[run])
    said = (decision.charged_gpu_us, decision.unfunded_gpu_us)
    if exact != said:
        check(False, state.counters.seq, f"{decision.workload}#{decision.run}: charged {exact}, the account says {said}")
    ledger.accrue(state, state.counters.time_ms)
    if decision.refunded_gpu_us or decision.unfunded_refunded_gpu_us:
        back = (decision.refunded_gpu_us, decision.unfunded_refunded_gpu_us)
        ledger.refund(state, cells.budget[run], cells.pool[run], *back)
    workload = cells.workload[run]
    for name in decision.blamed:
        state.node.start_failures[state.node.row_of[name]] += 1
    if outcome in RESUMABLE:
        fruitful = table.progress_ms[workload] > cells.resume_ms[run]
        again = outcome not in OTHERS_WISH
        table.fruitless[workload] = 0 if fruitful else table.fruitless[workload] + again
    state.run.remove(run)
    table.run[workload] = -1
    table.outcome[workload] = OUTCOME_CODE[outcome]
    table.not_before_ms[workload] = decision.not_before_ms
    if outcome is Outcome.FAILED:
        table.failures[workload] += 1
    if outcome is Outcome.START_FAILED:
        table.start_failures[workload] += 1
    kept = holds.keep_for_next_run(state, workload, decision)
    if decision.requeued:
        if decision.waits_in:
            choices.go(state, workload, decision.waits_in)
        if waiting is not None:
            waiting.append((workload, kept))
            return
        enqueue(state, workload)
        if kept:
            table.state[workload] = schema.HELD
    else:
        table.state[workload] = schema.OVER
        note_unsettled(state, workload)


def _closed_workload(state: State, decision: WorkloadClosed) -> None:
    service = state.service.row_of.get(decision.workload)
    if service is not None:
        drop_wish(state, state.service.cells.wish[service])
        services.remove_service(state, service)
        _keep_id(state, decision.workload)
        return
    row = _workload(state, decision.workload)
    if state.workload.cells.state[row] in (schema.PENDING, schema.HELD):
        dequeue(state, row)
        drop_hold(state, row)
    choices.drop_choices(state, row)
    state.workload.remove(row)
    settle(state, row)
    _keep_id(state, decision.workload)


def _keep_id(state: State, workload: str) -> None:
    closed = state.closed.add(workload)
    state.closed.cells.closed_ms[closed] = state.counters.time_ms


def _suspended(state: State, decision: NodeSuspended) -> None:
    node = state.node.row_of[decision.node]
    if decision.reason == NodeReason.DRAINED.value:
        state.node.cordoned[node] = 1
    elif decision.reason != NodeReason.HEARTBEAT_TIMEOUT.value:
        state.node.suspended[node] = SUSPEND_CODE[decision.reason]
    else:
        state.node.silent[node] = 1
        for run in runs_on_node(state, node):
            release_run(state, run, Outcome.NODE_LOST)
    refresh_gpus(state, node)


def _funding(state: State, decision: FundingChanged) -> None:
    ledger.accrue(state, state.counters.time_ms)
    run = _run(state, decision.workload, decision.run)
    ledger.change_payer(state, run, PAYER_CODE[decision.payer], state.counters.time_ms)


def _planned(state: State, decision: PlanPublished) -> None:
    pool = state.pool.row_of[decision.pool]
    state.pool.plan_ms[pool], state.pool.plan_mark[pool] = decision.from_ms, decision.mark


def _idle(state: State, decision: RunIdle) -> None:
    state.run.idle_since_ms[_run(state, decision.workload, decision.run)] = decision.since_ms


_BULKS: dict[type[Any], Callable[[State, Any], None]] = {
    Started: starts.apply_started,
    Admitted: _apply_admitted,
    Told: telling.apply_told,
}
# they leave runs, what these hold, GPUs, nodes and the tree alone: see ``State.moved``
_STILL = (Rejected, WorkloadRejected, WorkloadAdmitted, PendingExplained)

_FOLDS: dict[type[Any], Callable[[State, Any], None]] = {
    Rejected: _said,
    WorkloadRejected: _said,
    WorkloadAdmitted: _admitted,
    PendingExplained: _explained,
    RunPlaced: starts.placed,
    RunPreempted: _preempted,
    RunCancelled: _cancelled,
    RunDrained: _drained,
    RunMoved: _moved,
    RunRetired: _retired,
    ServiceResized: services.resized,
    MovesProposed: holds.proposed,
    GpusReserved: holds.reserved,
    RunClosed: _closed_run,
    WorkloadClosed: _closed_workload,
    NodeSuspended: _suspended,
    FundingChanged: _funding,
    GrantIssued: issued,
    PlanPublished: _planned,
    RunIdle: _idle,
}

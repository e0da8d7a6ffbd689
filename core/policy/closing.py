"""The final account of a run, and what becomes of its workload.

A pure function of the run's columns. Refund (hardware lost the work, not the budget): by the pool's rule the time since the
last checkpoint, the whole run, or only what was charged after the last sign of life; the last is always given back. The
reservation that was not used is void. A preempted, drained, moved, lost or failed-to-start workload is queued again with its
safe progress when it may resume, at home if it ran in another pool that it accepts; preemptions and lost nodes are no failures. But
attempts without progress back off: after the second run in a row that brought nothing safe the workload waits, each time twice as
long; new safe progress ends that. A replica of a service is queued again whatever ended it, unless it is retired.
"""

from __future__ import annotations

from apportion.core.decisions import RunClosed, WorkloadClosed
from apportion.core.policy.emit import Emit
from apportion.core.reasons import OTHERS_WISH, RESUMABLE, Outcome
from apportion.core.state import schema
from apportion.core.state.asks import way_home
from apportion.core.state.codes import OUTCOMES
from apportion.core.state.phases import runs_in
from apportion.core.state.state import State
from apportion.core.state.unsettled import unsettled_rows
from apportion.core.state.work import unsaved_us
from apportion.core.units import gpu_us

BACKOFF_FIRST_MS = 10_000
BACKOFF_DOUBLINGS = 6  # at most 640 s
START_FAILURES_LIMIT = 8  # of one workload, in a row; then it is closed as START_FAILED


def close_ended(state: State, emit: Emit) -> None:
    """Write the account of every run that has ended since the last cycle, in row order."""
    ended, outcome = runs_in(state, schema.ENDED), state.run.cells.outcome
    emit.all([_account(state, row, OUTCOMES[outcome[row] - 1]) for row in ended])  # none tells of another run


def close_run(state: State, emit: Emit, row: int, outcome: Outcome) -> None:
    """Write the account of one run; one that is still in progress ends at the cycle's time."""
    emit(_account(state, row, outcome))


def _account(state: State, row: int, outcome: Outcome) -> RunClosed:
    """Return the account of one run."""
    run, workload_table = state.run.cells, state.workload.cells
    workload, ended = run.workload[row], run.state[row] == schema.ENDED
    end_ms = run.ended_ms[row] if ended else state.counters.time_ms
    milli, charged, unfunded = run.gpus_milli[row], run.charged_us[row], run.unfunded_us[row]
    if not ended:
        tail = gpu_us(milli, end_ms - run.payer_since_ms[row])
        if run.payer[row] == schema.PAYER_BUDGET:
            charged += tail
        else:
            unfunded += tail
    back_charged, back_unfunded = _refund(state, row, outcome, end_ms, charged, unfunded)
    lost_us = 0
    if outcome is not Outcome.SUCCEEDED:
        lost_us = unsaved_us(state, row, end_ms)
    unused_ms = max(0, run.protected_until_ms[row] - end_ms)
    requeued, not_before_ms = _next_attempt(state, row, outcome, end_ms)
    goes_on = bool(workload_table.hold[workload]) and outcome in RESUMABLE and not not_before_ms  # where it was moved to
    return RunClosed(
        workload=state.workload.keys[workload],
        run=run.run_no[row],
        budget=state.budget_path(run.budget[row]),
        pool=state.pool.keys[run.pool[row]],
        outcome=outcome.value,
        placed_ms=run.placed_ms[row],
        end_ms=end_ms,
        gpus_milli=milli,
        charged_gpu_us=charged,
        unfunded_gpu_us=unfunded,
        refunded_gpu_us=back_charged,
        unfunded_refunded_gpu_us=back_unfunded,
        voided_gpu_us=gpu_us(milli, unused_ms) if run.reserved[row] else 0,
        lost_gpu_us=lost_us,
        progress_ms=workload_table.progress_ms[workload],
        exit_code=run.exit_code[row],
        event_seq=run.end_seq[row],
        requeued=requeued,
        not_before_ms=not_before_ms,
        blamed=tuple(state.node.keys[node] for node in _blamed(state, row)) if outcome is Outcome.START_FAILED else (),
        waits_in=way_home(state, workload) if requeued and not goes_on else "",
    )


def _blamed(state: State, row: int) -> list[int]:
    """Return the nodes that a failed start is counted against: whose agent refused it, else who did not do its part.

    When the start limit has passed: the nodes nobody has heard of since the placement; else, when some of its nodes have said that
    they have the run, those that have not; else the lead, whose word makes a run started.
    """
    run, node, alloc = state.run, state.node, int(state.run.first_alloc[row])
    if int(run.state[row]) == schema.ENDED:
        return [int(run.blame[row])]
    known: dict[int, bool] = {}  # in the order of its pieces
    while alloc >= 0:
        known[int(state.gpu.node[int(state.alloc.gpu[alloc])])] = int(state.alloc.missed[alloc]) >= 0
        alloc = int(state.alloc.next[alloc])
    unheard = [member for member in known if int(node.last_seen_ms[member]) <= int(run.placed_ms[row])]
    if unheard:
        return unheard
    if any(known.values()) and not all(known.values()):
        return [member for member in known if not known[member]]
    return [int(run.lead[row])]


def _refund(state: State, row: int, outcome: Outcome, end_ms: int, charged: int, unfunded: int) -> tuple[int, int]:
    """Return what goes back to the budget and to unfunded."""
    if outcome not in (Outcome.NODE_LOST, Outcome.LOST, *OTHERS_WISH):
        return 0, 0
    run = state.run
    rule = int(state.pool.refund_rule[int(run.pool[row])])
    if outcome in OTHERS_WISH and rule == schema.REFUND_UNCONFIRMED:
        return 0, 0
    if outcome in OTHERS_WISH:  # what is safe goes on elsewhere, so it was no loss under any rule
        return charged - int(run.safe_charged_us[row]), unfunded - int(run.safe_unfunded_us[row])
    if outcome is Outcome.NODE_LOST and rule == schema.REFUND_WHOLE_RUN:
        return charged, unfunded
    if outcome is Outcome.NODE_LOST and rule == schema.REFUND_SINCE_CHECKPOINT:
        return charged - int(run.safe_charged_us[row]), unfunded - int(run.safe_unfunded_us[row])
    confirmed_ms = int(run.confirmed_ms[row])
    if outcome is Outcome.NODE_LOST:
        confirmed_ms = max(confirmed_ms, int(state.node.last_seen_ms[int(run.lead[row])]))
    unconfirmed = gpu_us(int(run.gpus_milli[row]), max(0, end_ms - confirmed_ms))
    # the time nobody vouched for is the latest: first from who pays now, the rest from who paid before
    since_change = gpu_us(int(run.gpus_milli[row]), max(0, end_ms - int(run.changed_ms[row])))
    now_part = min(unconfirmed, since_change)
    if int(run.payer[row]) == schema.PAYER_BUDGET:
        back_charged = min(charged, now_part)
        return back_charged, min(unfunded, unconfirmed - back_charged)
    back_unfunded = min(unfunded, now_part)
    return min(charged, unconfirmed - back_unfunded), back_unfunded


def _next_attempt(state: State, row: int, outcome: Outcome, end_ms: int) -> tuple[bool, int]:
    """Return whether the run's workload is queued again, and not before when."""
    table, workload = state.workload, int(state.run.workload[row])
    if table.cancel_seq[workload] or table.retired[workload]:
        return False, 0
    if table.service[workload]:
        waits_ms = _replica_waits_ms(state, workload, outcome)
        return True, end_ms + waits_ms if waits_ms else 0
    if outcome in (Outcome.SUCCEEDED, Outcome.CANCELLED):
        return False, 0
    if outcome in RESUMABLE:
        fruitless = int(table.fruitless[workload])  # before this run
        fruitful = int(table.progress_ms[workload]) > int(state.run.resume_ms[row])
        again = bool(table.auto_resume[workload])
        wait = again and fruitless and not fruitful and outcome not in OTHERS_WISH
        return again, end_ms + (BACKOFF_FIRST_MS << min(fruitless - 1, BACKOFF_DOUBLINGS)) if wait else 0
    if outcome is Outcome.START_FAILED:
        attempts = int(table.start_failures[workload])
        if attempts + 1 >= START_FAILURES_LIMIT:
            return False, 0
        return True, end_ms + (BACKOFF_FIRST_MS << min(attempts, BACKOFF_DOUBLINGS))
    failures = int(table.failures[workload])
    if failures < int(table.max_failures[workload]):
        return True, end_ms + (BACKOFF_FIRST_MS << min(failures, BACKOFF_DOUBLINGS))
    return False, 0


def _replica_waits_ms(state: State, workload: int, outcome: Outcome) -> int:
    """Return how long a replica waits until it is started again, whatever ended it; what ends by itself backs off as it repeats."""
    if outcome in RESUMABLE:
        return 0
    table = state.workload
    again = int(table.start_failures[workload] if outcome is Outcome.START_FAILED else table.failures[workload])
    return BACKOFF_FIRST_MS << min(again, BACKOFF_DOUBLINGS)


def close_workloads(state: State, emit: Emit) -> None:
    """Write the end of workloads that are over, and of cancelled ones that do not run."""
    table = state.workload
    for row in unsettled_rows(state):
        phase, withdrawn = int(table.state[row]), bool(table.cancel_seq[row]) or bool(table.retired[row])
        if phase != schema.OVER and (phase == schema.RUNNING or not withdrawn):
            continue
        waiting = phase != schema.OVER
        cancelled = bool(table.cancel_seq[row])
        outcome = Outcome.CANCELLED if waiting else OUTCOMES[int(table.outcome[row]) - 1]
        if cancelled and outcome is not Outcome.SUCCEEDED:
            outcome = Outcome.CANCELLED
        if table.retired[row] and not cancelled:
            outcome = Outcome.RETIRED
        emit(
            WorkloadClosed(
                workload=table.keys[row], outcome=outcome.value, runs=int(table.run_no[row]), event_seq=int(table.cancel_seq[row])
            )
        )

"""Fold of what agents report about runs.

Every report names workload, run and, for starts and ends, the node; anything about a run that is not in progress is STALE:
refused, counted, without effect. The lead node's agent (first piece of the placement) speaks for the run; another node of a
gang can only make it fail.
"""

from __future__ import annotations

from apportion.core import ledger
from apportion.core.events import RunCheckpointed, RunFinished, RunLost, RunProgressed, RunStarted
from apportion.core.fold.access import No, not_permitted, speaks_for_node
from apportion.core.fold.release import release_run
from apportion.core.reasons import Outcome, Refusal
from apportion.core.state import schema
from apportion.core.state.holdings import gpus_of_run, holds_on_node
from apportion.core.state.state import State

RunReport = RunStarted | RunCheckpointed | RunProgressed | RunFinished | RunLost


def _find(state: State, event: RunReport, principal: str) -> int | No:
    """Return the run a report is about, if its sender speaks for a node of it (for the node it names, where it names one)."""
    reference = state.run_ref(event.workload, event.run)
    row = state.run.row_of.get(reference)
    if row is None or state.run.cells.state[row] == schema.ENDED:
        return No(Refusal.STALE, "run", "that run is not in progress", entity=reference)
    if isinstance(event, (RunCheckpointed, RunProgressed)):
        node = state.run.cells.lead[row]
    else:
        node = state.node.row_of.get(event.node, -1)
        if node < 0:
            return No(Refusal.UNKNOWN_NODE, "node", entity=event.node)
        if not holds_on_node(state, row, node):
            return No(Refusal.INVALID_DATA, "node", f"{event.node} holds no GPU of {reference}", entity=reference)
    if not speaks_for_node(state, principal, node):
        return not_permitted(principal, f"report for {reference} from that node")
    return row


def _from_lead(state: State, run: int, node: str) -> bool:
    return state.node.row_of.get(node) == state.run.cells.lead[run]


def _confirm(state: State, run: int) -> None:
    """Note a sign of life, and of work, of the whole run."""
    cells, now_ms = state.alloc.cells, state.counters.time_ms
    alloc = state.run.cells.first_alloc[run]
    while alloc >= 0:
        cells.confirmed_ms[alloc] = now_ms
        cells.idle_ms[alloc] = 0
        alloc = cells.next[alloc]


def note_known(state: State, run: int, node: int) -> None:
    """Note that the node has the run, as its agent has said."""
    cells, node_of = state.alloc.cells, state.gpu.cells.node
    alloc = state.run.cells.first_alloc[run]
    while alloc >= 0:
        if node_of[cells.gpu[alloc]] == node:
            cells.missed[alloc] = 0
            cells.confirmed_ms[alloc] = state.counters.time_ms
        alloc = cells.next[alloc]


def run_started(state: State, event: RunStarted, principal: str, _seq: int) -> No | None:
    """The processes run; the node has shown that it can start work."""
    row = _find(state, event, principal)
    if isinstance(row, No):
        return row
    node, run = state.node.row_of[event.node], state.run.cells
    if not _from_lead(state, row, event.node):
        note_known(state, row, node)  # a follower of a gang has its part; the lead's word counts
        state.node.start_failures[node] = 0
        return None
    if run.state[row] != schema.PLACED:
        return No(Refusal.STALE, "run", "it has started already", entity=state.run.keys[row])
    _confirm(state, row)
    note_known(state, row, node)
    run.state[row] = schema.STARTED
    run.started_ms[row] = state.counters.time_ms
    state.workload.cells.start_failures[run.workload[row]] = 0
    for gpu in gpus_of_run(state, row):
        state.node.cells.start_failures[state.gpu.cells.node[gpu]] = 0
    return None


def run_checkpointed(state: State, event: RunCheckpointed, principal: str, _seq: int) -> No | None:
    """Work up to ``progress_ms`` is safe; what is lost later is counted from here."""
    row = _find(state, event, principal)
    if isinstance(row, No):
        return row
    run, workloads = state.run.cells, state.workload.cells
    workload = run.workload[row]
    if event.progress_ms < workloads.progress_ms[workload]:
        return No(Refusal.STALE, "progress_ms", "below the progress already safe", entity=state.run.keys[row])
    _confirm(state, row)
    ledger.settle_run(state, row, state.counters.time_ms)
    if event.progress_ms > run.resume_ms[row]:
        workloads.fruitless[workload] = 0
    workloads.progress_ms[workload] = event.progress_ms
    run.checkpoint_gap_ms[row] = state.counters.time_ms - run.checkpoint_ms[row]
    run.checkpoint_ms[row] = state.counters.time_ms
    run.safe_charged_us[row] = run.charged_us[row]
    run.safe_unfunded_us[row] = run.unfunded_us[row]
    return None


def run_progressed(state: State, event: RunProgressed, principal: str, _seq: int) -> No | None:
    """Progress for people to see; nothing in the core depends on work that is not safe."""
    row = _find(state, event, principal)
    if isinstance(row, No):
        return row
    _confirm(state, row)
    return None


def run_finished(state: State, event: RunFinished, principal: str, seq: int) -> No | None:
    """The GPUs are free. What it means depends on whether somebody had asked it to stop."""
    row = _find(state, event, principal)
    if isinstance(row, No):
        return row
    if not _from_lead(state, row, event.node) and event.outcome in ("succeeded", "stopped"):
        return None  # a follower of a gang has done its part
    outcome, blame = outcome_of(state, row, event.outcome), state.node.row_of[event.node]
    release_run(state, row, outcome, seq=seq, exit_code=event.exit_code, blame=blame)
    return None


def outcome_of(state: State, run: int, reported: str) -> Outcome:
    """Return the outcome: success is success, also inside a grace; a stop is blamed on who asked for it.

    A crash while one of its GPUs is reported broken is the hardware's fault, not the user's.
    """
    if reported == "succeeded":
        return Outcome.SUCCEEDED
    if reported == "refused":
        return Outcome.START_FAILED
    cause = int(state.run.stop_cause[run])
    if cause == schema.STOP_PREEMPT:
        return Outcome.PREEMPTED
    if cause == schema.STOP_CANCEL:
        return Outcome.CANCELLED
    if cause == schema.STOP_DRAIN:
        return Outcome.DRAINED
    if cause == schema.STOP_MOVE:
        return Outcome.MOVED
    if cause == schema.STOP_RETIRE:
        return Outcome.RETIRED
    if any(int(state.gpu.broken[gpu]) for gpu in gpus_of_run(state, run)):
        return Outcome.NODE_LOST
    return Outcome.FAILED


def run_lost(state: State, event: RunLost, principal: str, seq: int) -> No | None:
    """The agent has no such run any more."""
    row = _find(state, event, principal)
    if isinstance(row, No):
        return row
    release_run(state, row, Outcome.LOST, seq=seq, blame=state.node.row_of[event.node])
    return None

"""No GPU idles while something that fits waits: an oracle over the state, with its own naive placement."""

from __future__ import annotations

from apportion.core.decisions import CycleBatch, RunPreempted
from apportion.core.policy.funding import fundable, shares_of
from apportion.core.policy.reserving import Reservations
from apportion.core.reasons import Pending
from apportion.core.state import schema
from apportion.core.state.codes import PENDING_CODE
from apportion.core.state.state import State
from tests.core.line import behind


def free_by_node(state: State, workload: int) -> list[list[int]]:
    """Return, per node of the workload's pool, the free milli of each GPU it could use."""
    found = []
    for node in range(state.node.used):
        if int(state.node.pool[node]) != int(state.workload.pool[workload]) or drained_before(state, node, workload):
            continue
        first, size = int(state.node.first_gpu[node]), int(state.node.gpus[node])
        free = []
        for gpu in range(first, first + size):
            usable = not state.gpu.out[gpu] and int(state.gpu.held_by[gpu]) in (0, workload + 1)
            free.append(1_000 - int(state.gpu.used_milli[gpu]) if usable else 0)
        found.append(free)
    return found


def drained_before(state: State, node: int, workload: int) -> bool:
    """Tell whether a drained node closes before the workload says that it is over, if it says so at all."""
    table, closes_ms = state.workload, int(state.node.drain_ms[node])
    limit_ms, done_ms = int(table.expected_runtime_ms[workload]), int(table.progress_ms[workload])
    return closes_ms > 0 and (not limit_ms or state.counters.time_ms + max(0, limit_ms - done_ms) > closes_ms)


def fits(state: State, workload: int) -> bool:
    """Tell whether the workload's shape could be placed now."""
    per_node = int(state.workload.milli_per_node[workload])
    nodes = free_by_node(state, workload)
    if per_node < 1_000:
        return any(free >= per_node for gpus in nodes for free in gpus)
    able = sum(1 for gpus in nodes if sum(1 for free in gpus if free == 1_000) * 1_000 >= per_node)
    return able >= int(state.workload.nodes[workload])


def funded_head_waits(state: State, now_ms: int) -> bool:
    """Tell whether the head of some budget's queue is funded: then GPUs may be kept free for it."""
    shares, seen = shares_of(state), dict[int, int]()
    for row in (int(row) for row in state.queue[: state.queued]):
        pending = int(state.workload.state[row]) == schema.PENDING and int(state.workload.not_before_ms[row]) <= now_ms
        if pending and state.workload.min_runtime_ms[row]:
            seen.setdefault(int(state.workload.budget[row]), row)
    return any(fundable(state, shares, row)[0] for row in seen.values())


def check_conserving(state: State, batch: CycleBatch) -> None:
    """Assert that whatever waits does not fit, is held back for a head, or has just lost a run of its budget."""
    table = state.workload
    lost = {decision.certificate.victim_budget for decision in batch.decisions if isinstance(decision, RunPreempted)}
    kept = (table.column("reason") == PENDING_CODE[Pending.PROTECTED_RUNS.value]).any()
    if kept or funded_head_waits(state, batch.time_ms):
        return  # nodes are kept for somebody; ``tests.core.followers`` looks at which and for how long
    shares = shares_of(state)
    for row in table.live_rows():
        if int(table.state[row]) != schema.PENDING or int(table.not_before_ms[row]) > batch.time_ms:
            continue
        if state.budget_path(int(table.budget[row])) in lost:
            continue
        held_back = not fits(state, row) or behind(state, shares, Reservations.none(state), row)
        assert held_back, f"cycle {batch.cycle}: {table.keys[row]} waits, fits, and nothing holds it back"

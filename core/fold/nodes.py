"""Fold of nodes and their heartbeats.

Liveness is by log time: a node is alive while its last accepted beat is younger than the pool's timeout, judged by cycles
only. An unchanged beat is no scheduling work. A beat that is not above the last one is dropped and counted.
"""

from __future__ import annotations

from apportion.core import ledger
from apportion.core.events import NodeCordoned, NodeDrained, NodeHeartbeat, NodeJoined, NodeLeft, NodeUncordoned
from apportion.core.fold.access import No, is_operator, not_permitted, principal_row, speaks_for_node
from apportion.core.fold.release import release_run
from apportion.core.fold.tags import describe_node, forget_node
from apportion.core.fold.topology import domain_keys, enter_domains, leave_domains, place_taken
from apportion.core.reasons import Outcome, Refusal
from apportion.core.state import schema
from apportion.core.state.holdings import runs_on_node
from apportion.core.state.state import State
from apportion.core.units import MAX_POOL_MILLI, MILLI

MISSED_BEATS_LOST = 3  # heartbeats in a row that do not list a run its agent had started


def node_out(state: State, node: int) -> bool:
    """Tell whether no run may start on the node."""
    table = state.node
    return bool(table.cordoned[node] or table.suspended[node] or table.silent[node] or not table.gpus[node])


def refresh_gpus(state: State, node: int) -> None:
    """Put the node's GPUs in or out of service after a change of the node or of a GPU."""
    ledger.accrue(state, state.counters.time_ms)
    out = node_out(state, node)
    pool, first = int(state.node.pool[node]), int(state.node.first_gpu[node])
    for gpu in range(first, first + int(state.node.gpus[node])):
        ledger.set_out(state, pool, gpu, out or bool(state.gpu.broken[gpu]))
    state.counters.dirty = 1


def _find(state: State, name: str) -> int | No:
    row = state.node.row_of.get(name)
    if row is None or not state.node.gpus[row]:
        return No(Refusal.UNKNOWN_NODE, "node", entity=name)
    return row


def node_joined(state: State, event: NodeJoined, principal: str, seq: int) -> No | None:
    """A node offers its GPUs; joining again with the same size is a sign of life."""
    agent = event.agent or principal
    row = state.node.row_of.get(event.node)
    if row is None:
        if event.agent is not None and event.agent != principal and not is_operator(state, principal):
            return not_permitted(principal, f"join {event.node} on behalf of {event.agent}")
    elif not speaks_for_node(state, principal, row):
        return not_permitted(principal, f"join {event.node}: it belongs to another agent")
    pool = state.pool.row_of.get(event.pool)
    if pool is None:
        return No(Refusal.UNKNOWN_POOL, "pool", entity=event.pool)
    domains = domain_keys(state, pool, event)
    if isinstance(domains, No):
        return domains
    if (no := place_taken(state, pool, event)) is not None:
        return no
    if row is not None and int(state.node.gpus[row]):
        if int(state.node.gpus[row]) == event.gpus and int(state.node.pool[row]) == pool:
            state.node.last_seen_ms[row] = state.counters.time_ms
            state.node.agent[row] = principal_row(state, agent)
            moved = enter_domains(state, row, domains)
            if describe_node(state, row, event, fresh=False) or moved:
                state.counters.dirty = 1
            _revive(state, row)
            return None
        if runs_on_node(state, row):
            return No(Refusal.NODE_OCCUPIED, "gpus", "drain it before changing its size or pool", entity=event.node)
    size = int(state.pool.supply_milli[pool]) + event.gpus * MILLI
    if row is not None and int(state.node.pool[row]) == pool:
        size -= int(state.node.gpus[row]) * MILLI  # it leaves before it joins again
    if size > MAX_POOL_MILLI:
        return No(Refusal.POOL_TOO_LARGE, "gpus", numbers={"limit_milli": MAX_POOL_MILLI, "pool_milli": size}, entity=event.pool)
    if row is not None and int(state.node.gpus[row]):
        _leave(state, row, seq)
    ledger.accrue(state, state.counters.time_ms)
    if row is None:
        row = state.node.add(event.node)
    if int(state.node.slots[row]) < event.gpus:
        state.node.first_gpu[row] = state.gpu.used
        state.node.slots[row] = event.gpus
        for position in range(event.gpus):
            gpu = state.gpu.add()
            state.gpu.node[gpu] = row
            state.gpu.position[gpu] = position
    state.node.pool[row] = pool
    state.node.agent[row] = principal_row(state, agent)
    state.node.gpus[row] = event.gpus
    enter_domains(state, row, domains)
    describe_node(state, row, event, fresh=True)
    state.node.last_seen_ms[row] = state.counters.time_ms
    state.node.suspended[row] = schema.SUSPEND_NONE
    state.node.silent[row] = 0
    state.node.start_failures[row] = 0
    state.node.broken[row] = 0
    first = int(state.node.first_gpu[row])
    for gpu in range(first, first + event.gpus):
        state.gpu.broken[gpu] = 0
        state.gpu.out[gpu] = int(state.node.cordoned[row])
        ledger.add_gpu(state, pool, gpu)
    state.counters.dirty = 1
    return None


def _revive(state: State, node: int) -> None:
    if state.node.silent[node]:
        state.node.silent[node] = 0
        refresh_gpus(state, node)


def node_heartbeat(state: State, event: NodeHeartbeat, principal: str, seq: int) -> No | None:
    """A sign of life, GPU health, and now and then the list of what runs there."""
    node, counters = state.node.cells, state.counters
    found = state.node.row_of.get(event.node)
    if found is None or not node.gpus[found]:
        return No(Refusal.UNKNOWN_NODE, "node", entity=event.node)
    if not speaks_for_node(state, principal, found):
        return not_permitted(principal, f"report for node {event.node}")
    if event.beat <= node.beat[found]:
        counters.stale_heartbeats += 1
        return None
    counters.heartbeats += 1
    node.beat[found] = event.beat
    node.last_seen_ms[found] = counters.time_ms
    if node.silent[found]:
        _revive(state, found)
    if event.gpus_down or node.broken[found]:
        _compare_gpus(state, found, event.gpus_down)
    if event.runs is not None:
        _compare_runs(state, found, event.runs, event.idle_runs, seq)
    return None


def _compare_gpus(state: State, node: int, gpus_down: tuple[int, ...]) -> None:
    """Take over which GPUs work; a run that holds a broken one goes on until somebody ends it."""
    first, size = int(state.node.first_gpu[node]), int(state.node.gpus[node])
    broken = state.gpu.broken[first : first + size]
    wanted = [1 if position in gpus_down else 0 for position in range(size)]
    if wanted != broken.tolist():
        ledger.accrue(state, state.counters.time_ms)
        broken[:] = wanted
        state.node.broken[node] = sum(wanted)
        refresh_gpus(state, node)


def _compare_runs(state: State, node: int, listed: tuple[str, ...], idle: tuple[str, ...], seq: int) -> None:
    """Count beats that no longer list a run which has GPUs here; after three it is lost, on whichever node of a gang.

    Of those it lists, note since when they do no work here.
    """
    known = 0
    for reference in dict.fromkeys(listed):
        row = state.run.row_of.get(reference)
        if row is not None and _mark(state, row, node, missing=False, idle=reference in idle) is not None:
            known += 1
    if known == state.node.cells.runs[node]:
        return
    for row in runs_on_node(state, node):
        started = int(state.run.state[row]) in (schema.STARTED, schema.STOPPING)
        if started and state.run.keys[row] not in listed:
            missed = _mark(state, row, node, missing=True)
            if missed is not None and missed >= MISSED_BEATS_LOST:
                release_run(state, row, Outcome.LOST, seq=seq, blame=node)


def _mark(state: State, run: int, node: int, *, missing: bool, idle: bool = False) -> int | None:
    """Note on the run's GPUs at this node that a beat listed it or not; returns beats missed in a row, None without GPUs here."""
    alloc, node_of, missed = state.alloc.cells, state.gpu.cells.node, None
    here = state.run.cells.first_alloc[run]
    while here >= 0:
        if node_of[alloc.gpu[here]] == node:
            missed = max(0, alloc.missed[here]) + 1 if missing else 0
            alloc.missed[here] = missed
            if not missing:
                alloc.confirmed_ms[here] = state.counters.time_ms
                if not idle:
                    alloc.idle_ms[here] = 0
                elif not alloc.idle_ms[here]:
                    alloc.idle_ms[here] = state.counters.time_ms
        here = alloc.next[here]
    return missed


def node_cordoned(state: State, event: NodeCordoned, principal: str, _seq: int) -> No | None:
    """Take no new work; what runs goes on."""
    if not is_operator(state, principal):
        return not_permitted(principal, f"cordon {event.node}")
    row = _find(state, event.node)
    if isinstance(row, No):
        return row
    state.node.cordoned[row] = 1
    refresh_gpus(state, row)
    return None


def node_drained(state: State, event: NodeDrained, principal: str, _seq: int) -> No | None:
    """Be empty by an instant. One that is drained already keeps the instant of the first order: what was saved since counts."""
    if not is_operator(state, principal):
        return not_permitted(principal, f"drain {event.node}")
    row = _find(state, event.node)
    if isinstance(row, No):
        return row
    node, now_ms = state.node, state.counters.time_ms
    node.drain_set_ms[row] = int(node.drain_set_ms[row]) or now_ms
    node.drain_ms[row] = max(event.by_ms, now_ms)
    node.drain_force[row] = int(event.force)
    if event.by_ms <= now_ms and not node.cordoned[row]:
        node.cordoned[row] = 1
        refresh_gpus(state, row)
    return None


def node_uncordoned(state: State, event: NodeUncordoned, principal: str, _seq: int) -> No | None:
    """Take work again; also ends a drain and a suspension, and forgets start failures."""
    if not is_operator(state, principal):
        return not_permitted(principal, f"uncordon {event.node}")
    row = _find(state, event.node)
    if isinstance(row, No):
        return row
    state.node.cordoned[row] = 0
    state.node.drain_set_ms[row] = state.node.drain_ms[row] = state.node.drain_force[row] = 0
    state.node.suspended[row] = schema.SUSPEND_NONE
    state.node.silent[row] = 0
    state.node.start_failures[row] = 0
    state.node.last_seen_ms[row] = state.counters.time_ms
    refresh_gpus(state, row)
    return None


def node_left(state: State, event: NodeLeft, principal: str, seq: int) -> No | None:
    """The node is gone, and its runs with it."""
    row = _find(state, event.node)
    if isinstance(row, No):
        return row
    if not speaks_for_node(state, principal, row):
        return not_permitted(principal, f"take {event.node} away")
    _leave(state, row, seq)
    return None


def _leave(state: State, node: int, seq: int) -> None:
    for run in runs_on_node(state, node):
        release_run(state, run, Outcome.NODE_LOST, seq=seq)
    ledger.accrue(state, state.counters.time_ms)
    pool, first = int(state.node.pool[node]), int(state.node.first_gpu[node])
    for gpu in range(first, first + int(state.node.gpus[node])):
        ledger.remove_gpu(state, pool, gpu)
        state.gpu.out[gpu] = 1
        state.gpu.held_by[gpu] = 0  # the cycle sees a hold that lost a GPU and gives it up
    state.node.gpus[node] = 0
    leave_domains(state, node)
    forget_node(state, node)
    state.counters.dirty = 1

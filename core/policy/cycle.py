"""One cycle: the order in which phases decide. Everything else is in the phases.

A pure function of the state at a folded tick. The order is part of the logic number: refusals first, then what is late, the
accounts of what ended, admissions, the size of services, grants that are due, funding, drains, starts, and last the reasons of
what still waits.
"""

from __future__ import annotations

import numpy as np

from apportion.core.decisions import WorkloadAdmitted
from apportion.core.policy import closing, draining, expire, explaining, funding, granting, idling, placing, resizing
from apportion.core.policy.emit import Emit
from apportion.core.state import schema
from apportion.core.state.asks import choices_of
from apportion.core.state.codes import REFUSALS
from apportion.core.state.state import State


def run_cycle(state: State, emit: Emit) -> None:
    """Emit all decisions of the cycle that the folded tick asks for."""
    state.mixes.clear()  # whoever looked before, the cycle looks for itself
    for refusal in list(state.refused):
        emit(refusal)
    expire.expire(state, emit)
    expire.stop_cancelled(state, emit)
    closing.close_ended(state, emit)
    expire.suspend_failing_nodes(state, emit)
    draining.shut_nodes(state, emit)
    closing.close_workloads(state, emit)
    admit(state, emit)
    resizing.resize(state, emit)
    granting.issue_due(state, emit)
    idling.note_idle(state, emit)
    shares = funding.shares_of(state)
    funding.fund_runs(state, emit, shares)
    draining.ask_to_go(state, emit, shares)
    reservations = placing.place_all(state, emit, shares)
    funding.demote_spent(state, emit, shares)
    explaining.explain(state, emit, shares, reservations)


def admit(state: State, emit: Emit) -> None:
    """Admit what was submitted since the last cycle, in order of submission."""
    table, choice = state.workload, state.choice.cells
    new = [int(row) for row in np.flatnonzero(table.column("state") == schema.NEW)]
    for row in sorted(new, key=lambda r: int(table.event_seq[r])):
        named = choices_of(state, row)
        accepted = [state.pool.keys[choice.pool[each]] for each in named if not choice.refusal[each]]
        emit(
            WorkloadAdmitted(
                workload=table.keys[row],
                event_seq=int(table.event_seq[row]),
                budget=state.budget_path(int(table.budget[row])),
                pool=state.pool.keys[int(table.pool[row])],
                nodes=int(table.nodes[row]),
                milli_per_node=int(table.milli_per_node[row]),
                min_runtime_ms=int(table.min_runtime_ms[row]),
                others=tuple(accepted[1:]),
                skipped={
                    state.choice.keys[each].partition(" ")[2]: REFUSALS[choice.refusal[each] - 1].value
                    for each in named
                    if choice.refusal[each]
                },
            )
        )

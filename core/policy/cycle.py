"""One cycle: the order in which phases decide. Everything else is in the phases.

A pure function of the state at a folded tick. The order is part of the logic number: refusals first, then what is late, the
accounts of what ended, admissions, the size of services, grants that are due, funding, drains, starts, and last the reasons of
what still waits.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.core.decisions import WorkloadAdmitted
from apportion.core.listed import Column, Listed, Numbers, Texts, texts_of
from apportion.core.policy import closing, draining, expire, explaining, funding, granting, idling, placing, resizing
from apportion.core.policy.emit import Emit
from apportion.core.policy.funding import Shares
from apportion.core.state import schema
from apportion.core.state.asks import choices_of
from apportion.core.state.bulk import Admitted
from apportion.core.state.codes import REFUSALS
from apportion.core.state.state import State
from apportion.core.state.unsettled import unsettled_rows

I64 = NDArray[np.int64]

MANY = 32  # admissions that cost less as columns


def run_cycle(state: State, emit: Emit, *, told: bool = True) -> None:
    """Emit all decisions of the cycle that the folded tick asks for; with ``told=False`` nobody is told why he waits.

    What was told is looked at by nobody but who tells, so all other decisions, of later cycles too, are the same.
    """
    shares = before_starts(state, emit)
    reservations = placing.place_all(state, emit, shares)
    funding.demote_spent(state, emit, shares)
    if told:
        explaining.explain(state, emit, shares, reservations)


def before_starts(state: State, emit: Emit) -> Shares:
    """Emit what a cycle decides before anybody may start; returns what it knows of budgets then."""
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
    return shares


def admit(state: State, emit: Emit) -> None:
    """Admit what was submitted since the last cycle, in order of submission."""
    table = state.workload
    new = [row for row in unsettled_rows(state) if table.cells.state[row] == schema.NEW]
    if len(new) > MANY:
        rows = np.array(new, dtype=np.int64)
        rows = rows[np.argsort(table.event_seq[rows], kind="stable")]
        emit.listed(admissions(state, rows), Admitted(rows))
    elif new:
        emit.all([admission(state, row) for row in sorted(new, key=lambda row: table.cells.event_seq[row])])


def admission(state: State, row: int) -> WorkloadAdmitted:
    """Return the admission of a new workload."""
    cells = state.workload.cells
    return WorkloadAdmitted(
        workload=state.workload.keys[row],
        event_seq=cells.event_seq[row],
        budget=state.budget_path(cells.budget[row]),
        pool=state.pool.keys[cells.pool[row]],
        nodes=cells.nodes[row],
        milli_per_node=cells.milli_per_node[row],
        min_runtime_ms=cells.min_runtime_ms[row],
        **(_choices(state, row) if cells.choices[row] else {}),
    )


def admissions(state: State, rows: I64) -> Listed[WorkloadAdmitted]:
    """Return the same of many, as columns."""
    table, names = state.workload, state.workload.keys
    chosen = np.flatnonzero(table.choices[rows])
    named = [_choices(state, int(row)) for row in rows[chosen]]
    of_named = np.full(len(rows), -1, dtype=np.int64)
    of_named[chosen] = np.arange(len(chosen))
    said: dict[str, Column] = {
        "workload": Texts([names[row] for row in rows.tolist()]),
        "event_seq": Numbers(table.event_seq[rows]),
        "budget": texts_of(table.budget[rows], state.budget.used, state.budget_paths),
        "pool": texts_of(table.pool[rows], state.pool.used, state.pool.keys_of),
        "nodes": Numbers(table.nodes[rows]),
        "milli_per_node": Numbers(table.milli_per_node[rows]),
        "min_runtime_ms": Numbers(table.min_runtime_ms[rows]),
        "others": Texts([one["others"] for one in named], of_named),
        "skipped": Texts([one["skipped"] for one in named], of_named),
    }
    return Listed(WorkloadAdmitted, len(rows), said)


def _choices(state: State, row: int) -> dict[str, Any]:
    """Return the other pools that may take it, and why others that it named cannot."""
    choice, named = state.choice.cells, choices_of(state, row)
    accepted = [state.pool.keys[choice.pool[each]] for each in named if not choice.refusal[each]]
    skipped = {
        state.choice.keys[each].partition(" ")[2]: REFUSALS[choice.refusal[each] - 1].value
        for each in named
        if choice.refusal[each]
    }
    return {"others": tuple(accepted[1:]), "skipped": skipped}

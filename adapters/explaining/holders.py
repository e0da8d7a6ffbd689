"""Who holds the nodes that would do: the runs there, whose they are, and until when.

A pure function of a ``Cycle``. Which nodes those are is asked of the function that reserves (``fitting.earliest_nodes``): the ones
that would be ready first by what is known of the runs there, and that are kept for nobody else.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from apportion.adapters.explaining.moment import Cycle
from apportion.core.policy.fitting import earliest_nodes, releases_of
from apportion.core.policy.reserving import expected_end, free_times
from apportion.core.state import schema
from apportion.core.state.holdings import gpus_of_run, held_gpus, runs_on_node
from apportion.core.state.state import State
from apportion.core.units import MILLI, NEVER_MS

HOLDERS_MAX = 12
NODES_MAX = 16  # whose runs are looked at


def would_do(cycle: Cycle, workload: int) -> tuple[int | None, list[int]]:
    """Return when it could start on the nodes that are ready first, None = nobody knows; and their rows, [] if there are none."""
    state, made = cycle.state, cycle.reservations[int(cycle.state.workload.pool[workload])]
    if held := held_gpus(state, workload):
        return None, sorted(dict.fromkeys(int(state.gpu.node[gpu]) for gpu in held))
    mine = np.flatnonzero(made.holder == workload + 1)
    if len(mine):
        return made.starts_ms.get(workload) or None, mine.tolist()
    kept = np.where(made.until_ms > 0, 1, 0) + made.beside(state, workload)
    pool = int(state.workload.pool[workload])
    (start_ms, nodes), (known_ms, _same) = (
        earliest_nodes(
            state, workload, free_times(state, guess=guess), kept, NEVER_MS, releases_of(state, pool, guess=guess)
        )
        for guess in (True, False)
    )
    if start_ms >= NEVER_MS:
        return None, []
    return (start_ms if known_ms < NEVER_MS else None), nodes.tolist()


def runs_on(state: State, nodes: list[int]) -> list[dict[str, Any]]:
    """Return the runs that hold GPUs on nodes (rows), who is expected to be gone last at the end, at most ``HOLDERS_MAX``."""
    rows: dict[int, None] = {}
    for node in nodes[:NODES_MAX]:
        rows |= dict.fromkeys(runs_on_node(state, node))
    told = [run_told(state, run, nodes) for run in rows]
    told.sort(key=lambda row: (row["until_ms"] is None, row["until_ms"] or 0, row["workload"]))
    return told[:HOLDERS_MAX]


def run_told(state: State, run: int, nodes: list[int] | None = None) -> dict[str, Any]:
    """Return what people ask of a run: whose it is, what it holds (there), who pays, and until when it says it runs."""
    table, workload, now_ms = state.workload, int(state.run.workload[run]), state.counters.time_ms
    gpus = gpus_of_run(state, run)
    here = len(gpus) if nodes is None else sum(int(state.gpu.node[gpu]) in nodes for gpu in gpus)
    stopping = int(state.run.state[run]) == schema.STOPPING
    states_end = int(table.expected_runtime_ms[workload]) > 0
    until_ms = int(state.run.stop_by_ms[run]) if stopping else expected_end(state, run) if states_end else None
    protected_ms, idle_ms = int(state.run.protected_until_ms[run]), int(state.run.idle_since_ms[run])
    return {
        "workload": table.keys[workload],
        "run": int(state.run.run_no[run]),
        "budget": state.budget_path(int(state.run.budget[run])),
        "user": state.principal.keys[int(table.submitter[workload])],
        "gpus_milli": int(state.run.gpus_milli[run]),
        "gpus_here_milli": here * min(MILLI, int(table.milli_per_node[workload])),
        "nodes": sorted(dict.fromkeys(state.node.keys[int(state.gpu.node[gpu])] for gpu in gpus)),
        "payer": "budget" if int(state.run.payer[run]) == schema.PAYER_BUDGET else "unfunded",
        "protected_until_ms": protected_ms if protected_ms > now_ms else None,
        "idle_since_ms": idle_ms or None,
        "until_ms": until_ms,  # by what it states, or the end of its grace; None: it states nothing
        "late": bool(states_end and not stopping and until_ms is not None and until_ms <= now_ms),
        "stopping": stopping,
    }

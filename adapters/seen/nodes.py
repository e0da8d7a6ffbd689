"""Nodes: in service or why not, what runs on them, what is held there, and for whom they are kept.

Pure functions of a ``Sight``. For whom a node is kept is of the last cycle; everything else is of the record itself.
"""

from __future__ import annotations

from typing import Any

from apportion.adapters.seen.sight import Sight
from apportion.core.state import schema
from apportion.core.state.holdings import runs_on_node
from apportion.core.state.state import State

SUSPENDED = {schema.SUSPEND_START: "suspended: failed starts", schema.SUSPEND_STOP: "suspended: a run would not stop"}


def nodes(sight: Sight) -> list[dict[str, Any]]:
    """Return a row per node that belongs to a pool, by name."""
    state, table, gpu = sight.core.state, sight.core.state.node, sight.core.state.gpu
    kept = _kept(sight)
    rows = []
    for row in table.live_rows():
        count = int(table.gpus[row])
        if not count:
            continue
        first = int(table.first_gpu[row])
        mine = slice(first, first + count)
        used, out, held = gpu.used_milli[mine], gpu.out[mine], gpu.held_by[mine]
        holder, until_ms = kept.get(row, ("", None))
        rows.append(
            {
                "node": table.keys[row],
                "pool": state.pool.keys[int(table.pool[row])],
                "state": _health(state, row),
                "gpus": count,
                "busy_milli": int(used.sum()),
                "free_milli": int((1_000 - used)[(out == 0) & (held == 0)].sum()),
                "broken_gpus": int(gpu.broken[mine].sum()),
                "last_seen_ms": int(table.last_seen_ms[row]),
                "drain_ms": int(table.drain_ms[row]) or None,
                "runs": [_run(state, run) for run in runs_on_node(state, row)],
                "held_for": sorted({state.workload.keys[int(each) - 1] for each in held if each}),
                "kept_for": holder,
                "kept_until_ms": until_ms,
            }
        )
    return sorted(rows, key=lambda found: (found["pool"], found["node"]))


def _run(state: State, run: int) -> str:
    return state.run_ref(state.workload.keys[int(state.run.workload[run])], int(state.run.run_no[run]))


def _health(state: State, row: int) -> str:
    """Return the state of a node in a few words, the gravest first."""
    table = state.node
    words = []
    if int(table.silent[row]):
        words.append("silent")
    if int(table.suspended[row]):
        words.append(SUSPENDED.get(int(table.suspended[row]), "suspended"))
    if int(table.cordoned[row]):
        words.append("cordoned")
    if int(table.drain_set_ms[row]):
        words.append("draining")
    return ", ".join(words) or "ok"


def _kept(sight: Sight) -> dict[int, tuple[str, int]]:
    if sight.cycle is None:
        return {}
    state, found = sight.cycle.state, {}
    for made in sight.cycle.reservations:
        for row in range(len(made.holder)):
            if made.holder[row]:
                found[row] = (state.workload.keys[int(made.holder[row]) - 1], int(made.until_ms[row]))
    return found

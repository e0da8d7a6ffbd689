"""What becomes of each run on a node that is drained, or would be: who is left, moved, stopped or waited for, and until when.

A pure function of a ``Core``, which the caller throws away: an order that is only thought of is folded into it. When a run is asked
to go comes from ``policy.draining.asks_of``, the function that decides; nothing is worked out a second time here. It must never be
asked for a core that goes on deciding.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from apportion.core.units import NEVER_MS

if TYPE_CHECKING:
    from apportion.core.engine import Core
    from apportion.core.events import NodeDrained

LEFT, MOVED, STOPPED, WAITED, STOPPING, STAYS = "left", "moved", "stopped", "waited for", "stopping", "stays"
IMAGINED = "imagined"


def imagine(core: Core, order: NodeDrained, principal: str, now_ms: int) -> str:
    """Fold an order that nobody has sent; returns the word of its refusal, "" when it is one the core would follow."""
    from apportion.core.decisions import Rejected
    from apportion.core.envelope import Record, subject_of
    from apportion.core.events import EVENT_TYPES, encode_event

    at_ms, already = max(now_ms, core.time_ms), len(core.state.refused)
    body = encode_event(order, event_id=IMAGINED, at_ms=at_ms)
    core.fold(Record(core.seq + 1, at_ms, subject_of(principal, EVENT_TYPES[type(order)]), body))
    said = core.state.refused[already:]
    return said[0].reason if said and isinstance(said[0], Rejected) else ""


def plan(core: Core, node: str) -> list[dict[str, Any]]:
    """Return one row per run that holds GPUs on the node, in the order in which they are expected to be gone.

    ``asked_ms`` is the latest instant at which it is asked to go, as things stand; None for who is not asked. ``gone_ms`` is when
    it has given its GPUs back by what is known; None where nothing says when.
    """
    from apportion.core.policy.draining import asks_of
    from apportion.core.state.holdings import runs_on_node

    state = core.state
    place = state.node.row_of.get(node)
    if place is None or not state.node.gpus[place]:
        return []
    asks = asks_of(state)
    asked = {
        int(run): (int(ask_ms), bool(forced))
        for run, where, ask_ms, forced in zip(asks.run, asks.node, asks.ask_ms, asks.forced, strict=True)
        if int(where) == place
    }
    rows = [_row(core, place, run, *asked.get(run, (NEVER_MS, False))) for run in runs_on_node(state, place)]
    return sorted(rows, key=lambda row: (row["gone_ms"] is None, row["gone_ms"] or 0, row["workload"]))


def empty_ms(rows: list[dict[str, Any]], now_ms: int) -> int | None:
    """Return when the last of the runs is expected to be gone; None where nothing says when."""
    ends = [row["gone_ms"] for row in rows]
    return None if None in ends else max([now_ms, *ends])


def _row(core: Core, place: int, row: int, ask_ms: int, forced: bool) -> dict[str, Any]:
    from apportion.core.state import schema

    state, run, now_ms = core.state, core.state.run, core.state.counters.time_ms
    workload = int(run.workload[row])
    grace_ms, deadline_ms = int(state.workload.grace_ms[workload]), int(state.node.drain_ms[place])
    end_ms = _stated_end(core, row)
    late = end_ms is None or end_ms > deadline_ms
    gone_ms: int | None = end_ms
    if int(run.state[row]) == schema.STOPPING:
        becomes, ask_ms, gone_ms = STOPPING, NEVER_MS, int(run.stop_by_ms[row])
    elif not state.node.drain_set_ms[place]:
        becomes = STAYS
    elif not late and end_ms is not None and end_ms > now_ms:
        becomes, ask_ms = LEFT, NEVER_MS
    elif ask_ms == NEVER_MS:
        becomes = WAITED
    else:
        saves = int(run.checkpoint_gap_ms[row]) > 0
        becomes, gone_ms = MOVED if saves else STOPPED, max(ask_ms, now_ms) + grace_ms
        gone_ms = gone_ms if end_ms is None or end_ms <= now_ms else min(gone_ms, end_ms)
    return {
        "workload": state.workload.keys[workload],
        "run": int(run.run_no[row]),
        "budget": state.budget_path(int(run.budget[row])),
        "gpus_milli": int(run.gpus_milli[row]),
        "nodes": int(state.workload.nodes[workload]),
        "payer": "budget" if int(run.payer[row]) == schema.PAYER_BUDGET else "unfunded",
        "protected_until_ms": int(run.protected_until_ms[row]),
        "stated_end_ms": end_ms,
        "saved_ms": int(run.checkpoint_ms[row]) if run.checkpoint_gap_ms[row] else None,
        "becomes": becomes,
        "forced": forced and becomes in (MOVED, STOPPED),
        "asked_ms": None if ask_ms >= NEVER_MS else max(ask_ms, now_ms),
        "gone_ms": gone_ms,
    }


def _stated_end(core: Core, row: int) -> int | None:
    """Return when the run is over by what its workload states, None if it states nothing."""
    state, workload = core.state, int(core.state.run.workload[row])
    limit_ms = int(state.workload.expected_runtime_ms[workload])
    left_ms = max(0, limit_ms - int(state.workload.progress_ms[workload]))
    return int(state.run.checkpoint_ms[row]) + left_ms if limit_ms else None

"""What runs and where, what waits and why, and what is kept or held for whom.

Pure functions of a ``Sight``. What waits, and why it was last said to wait, is of the record; nodes that are kept, and the reason
with its numbers, are of the last cycle: the core keeps no numbers, it finds them in each cycle and says them when they are news.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from apportion.adapters.seen.sight import Sight
from apportion.adapters.text import render
from apportion.core.policy.explaining import Offers, reason_for
from apportion.core.reasons import Pending
from apportion.core.state import schema
from apportion.core.state.holdings import gpus_of_run, held_gpus, pieces_of
from apportion.core.state.state import State

WORKLOAD_STATES = {1: "new", 2: "pending", 3: "held", 4: "running", 5: "over"}
RUN_STATES = {1: "placed", 2: "running", 3: "stopping", 4: "ended"}
STOP_CAUSES = {1: "preempted", 2: "cancelled", 3: "drained", 4: "moved", 5: "retired"}
HOLDS = {schema.HOLD_FUNDED: "funded", schema.HOLD_UNFUNDED: "unfunded", schema.HOLD_MOVED: "moved"}
REASONS = list(Pending)


def runs(sight: Sight) -> list[dict[str, Any]]:
    """Return a row per run in progress, the oldest first, with its pieces: which GPUs of which node, and how much of each."""
    state, table = sight.core.state, sight.core.state.run
    rows = []
    for row in table.live_rows():
        workload, gpus = int(table.workload[row]), gpus_of_run(state, row)
        each = int(table.gpus_milli[row]) // max(1, len(gpus))
        pieces = pieces_of(state, gpus, each)
        rows.append(
            {
                "workload": state.workload.keys[workload],
                "run": int(table.run_no[row]),
                "state": RUN_STATES.get(int(table.state[row]), "?"),
                "budget": state.budget_path(int(table.budget[row])),
                "pool": state.pool.keys[int(table.pool[row])],
                "gpus_milli": int(table.gpus_milli[row]),
                "payer": "budget" if int(table.payer[row]) == schema.PAYER_BUDGET else "unfunded",
                "placed_ms": int(table.placed_ms[row]),
                "protected_until_ms": int(table.protected_until_ms[row]),
                "idle_since_ms": int(table.idle_since_ms[row]) or None,
                "stopping": STOP_CAUSES.get(int(table.stop_cause[row]), ""),
                "charged_gpu_us": int(table.charged_us[row]),
                "unfunded_gpu_us": int(table.unfunded_us[row]),
                "nodes": render.clean(", ".join(dict.fromkeys(piece.node for piece in pieces))),
                "pieces": [{"node": piece.node, "gpus": list(piece.gpus), "milli_each": each} for piece in pieces],
            }
        )
    return sorted(rows, key=lambda found: (found["placed_ms"], found["workload"]))


def waiting(sight: Sight) -> list[dict[str, Any]]:
    """Return a row per workload that does not run yet: by pool and budget in the order of its queue, new ones last."""
    state, table = sight.core.state, sight.core.state.workload
    place = {int(row): at for at, row in enumerate(state.queue[: state.queued])}
    first: dict[int, int] = {}
    for row in state.queue[: state.queued]:
        first.setdefault(int(table.budget[row]), place[int(row)])
    numbers = _Reasons(sight)
    rows = []
    for row in table.live_rows():
        phase = int(table.state[row])
        if phase not in (schema.NEW, schema.PENDING, schema.HELD):
            continue
        code = int(table.reason[row])
        ahead = place[row] - first[int(table.budget[row])] if row in place else None
        rows.append(
            {
                "workload": table.keys[row],
                "state": WORKLOAD_STATES.get(phase, "?"),
                "budget": state.budget_path(int(table.budget[row])),
                "pool": state.pool.keys[int(table.pool[row])],
                "gpus_milli": int(table.gpus_milli[row]),
                "nodes": int(table.nodes[row]),
                "priority": int(table.priority[row]),
                "ahead": ahead,
                "submit_ms": int(table.submit_ms[row]),
                "submitted_seq": int(table.event_seq[row]),
                "runs": int(table.run_no[row]),
                "reason": REASONS[code - 1].value if code and phase != schema.NEW else None,
                **numbers.of(row, ahead or 0),
                "order": place.get(row, state.queued + int(table.event_seq[row])),
            }
        )
    rows.sort(key=lambda found: (found["pool"], found["budget"], found.pop("order")))
    return rows


class _Reasons:
    """Why workloads wait after the last cycle, with numbers, by the function that the core itself asks."""

    def __init__(self, sight: Sight) -> None:
        self._cycle = sight.cycle
        self._offers = Offers(sight.cycle.state) if sight.cycle is not None else None

    def of(self, row: int, ahead: int) -> dict[str, Any]:
        """Return the reason that holds now and its numbers; None for who came after the last cycle."""
        cycle, offers = self._cycle, self._offers
        if cycle is None or offers is None:
            return {"reason_now": None, "numbers": None}
        state, table = cycle.state, cycle.state.workload
        if row >= table.used or int(table.state[row]) not in (schema.PENDING, schema.HELD):
            return {"reason_now": None, "numbers": None}
        reason, numbers = reason_for(state, row, cycle.reservations[int(table.pool[row])], ahead, offers)
        since_ms, planned_ms = int(table.funded_ms[row]), cycle.reservations[int(table.pool[row])].planned_ms.get(row, 0)
        more = {"funded_since_ms": since_ms} if since_ms else {}
        more |= {"planned_ms": planned_ms} if planned_ms else {}
        return {"reason_now": reason.value, "numbers": {**numbers, "ahead": ahead, **more}}


def reservations(sight: Sight) -> list[dict[str, Any]]:
    """Return a row per workload that nodes are kept for, or whose start is planned: which nodes, and until when."""
    if sight.cycle is None:
        return []
    state, rows = sight.cycle.state, []
    for pool, made in enumerate(sight.cycle.reservations):
        for row, starts_ms in made.starts_ms.items():
            kept = np.flatnonzero(made.holder == row + 1)
            rows.append(_kept(state, pool, row, starts_ms, [state.node.keys[int(node)] for node in kept], planned=False))
        for row, planned_ms in made.planned_ms.items():
            rows.append(_kept(state, pool, row, planned_ms, [], planned=True))
    return sorted(rows, key=lambda found: (found["pool"], found["until_ms"] or 0, found["workload"]))


def _kept(state: State, pool: int, row: int, until_ms: int, nodes: list[str], *, planned: bool) -> dict[str, Any]:
    return {
        "workload": state.workload.keys[row],
        "budget": state.budget_path(int(state.workload.budget[row])),
        "pool": state.pool.keys[pool],
        "gpus_milli": int(state.workload.gpus_milli[row]),
        "until_ms": until_ms or None,
        "planned": planned,
        "nodes": nodes,
    }


def holds(sight: Sight) -> list[dict[str, Any]]:
    """Return a row per workload that GPUs are held for: it starts there as soon as their last run has gone."""
    state, rows = sight.core.state, []
    for row in state.workload.live_rows():
        gpus = held_gpus(state, row)
        if not gpus:
            continue
        pieces = pieces_of(state, gpus, 1_000)
        rows.append(
            {
                "workload": state.workload.keys[row],
                "budget": state.budget_path(int(state.workload.budget[row])),
                "pool": state.pool.keys[int(state.workload.pool[row])],
                "why": HOLDS.get(int(state.workload.hold[row]), "?"),
                "held_milli": len(gpus) * 1_000,
                "nodes": [piece.node for piece in pieces],
                "pieces": [{"node": piece.node, "gpus": list(piece.gpus)} for piece in pieces],
            }
        )
    return sorted(rows, key=lambda found: (found["pool"], found["workload"]))

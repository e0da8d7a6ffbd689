"""The whole explanation of one job at one cycle, as a document: for the command line, for ``ap.q.explain``, for JSON.

A pure function of a ``Moment`` and the job's name. It strings the questions together and puts their answers into words and numbers;
every one of them is answered elsewhere in this room.
"""

from __future__ import annotations

from typing import Any

import msgspec

from apportion.adapters.explaining.causes import Cause, ahead_of, causes_of, elsewhere, place_of
from apportion.adapters.explaining.changes import Change, smallest_changes
from apportion.adapters.explaining.commands import change_words, commands_of, cost_words, label_of, test_words
from apportion.adapters.explaining.holders import runs_on, would_do
from apportion.adapters.explaining.moment import Cycle, Moment
from apportion.adapters.explaining.nodes import verdict_on, waits
from apportion.adapters.explaining.trying import TRIALS_MAX
from apportion.adapters.text.wording import words_of
from apportion.core.policy.funding import fundable
from apportion.core.state import schema
from apportion.core.state.holdings import held_gpus
from apportion.core.state.state import State

AHEAD_SHOWN = 5
STATES = {schema.NEW: "new", schema.PENDING: "pending", schema.HELD: "held", schema.RUNNING: "running", schema.OVER: "over"}
RESERVATION, PLAN, RUNS, STOPS = "reservation", "plan", "runs", "stops"  # bases of an expected start that the core knows


def explanation(moment: Moment, workload: str, *, trials: bool = True, most: int = TRIALS_MAX) -> dict[str, Any]:
    """Return why a workload does not run after the cycle, and, with ``trials``, what would change that now.

    A workload that the core does not have, or that runs, is told by its ``state`` alone: "unknown", "running" or "over".
    """
    cycle = moment.cycle
    state = cycle.state
    row = state.workload.row_of.get(workload)
    document: dict[str, Any] = {"workload": workload, "seq": state.counters.seq, "time_ms": state.counters.time_ms}
    if row is None or not waits(state, row):
        return {**document, "state": "unknown" if row is None else STATES[int(state.workload.state[row])]}
    ahead = ahead_of(state, row)
    place, of = place_of(cycle, row)
    start_ms, nodes = would_do(cycle, row)
    pool = int(state.workload.pool[row])
    document |= {
        "state": STATES[int(state.workload.state[row])],
        "pool": state.pool.keys[pool],
        "causes": [_told(cause) for cause in causes_of(cycle, row)],
        "elsewhere": [_told(cause) for cause in elsewhere(cycle, row)],
        "budget": _budget(cycle, row),
        "ahead": len(ahead),
        "ahead_first": [_named(state, int(other)) for other in ahead[:AHEAD_SHOWN]],
        "turn": {"place": place, "of": of},
        "expected": _expected(cycle, row, start_ms),
        "holders": {"nodes": [state.node.keys[node] for node in nodes], "runs": runs_on(state, nodes)},
    }
    if trials:
        changes, count = smallest_changes(moment, workload, most)
        asked = int(state.workload.gpus_milli[row])
        document |= {"changes": [changed(change, workload, asked, state.pool.keys[pool]) for change in changes], "trials": count}
    return document


def node_explanation(moment: Moment, node: str, workload: str) -> dict[str, Any] | None:
    """Return what stands between a node and a workload that waits after the cycle; None when the core knows no such node."""
    state = moment.cycle.state
    place, row = state.node.row_of.get(node), state.workload.row_of.get(workload)
    if place is None:
        return None
    document: dict[str, Any] = {
        "node": node, "workload": workload, "seq": state.counters.seq, "time_ms": state.counters.time_ms
    }  # fmt: skip
    if row is None or not waits(state, row):
        return {**document, "state": "unknown" if row is None else STATES[int(state.workload.state[row])]}
    verdict = verdict_on(moment.cycle, place, row)
    return {
        **document,
        "state": STATES[int(state.workload.state[row])],
        "tests": [
            {
                "test": test.name, "label": label_of(test.name), "holds": test.holds, "numbers": test.numbers,
                "words": test_words(test),
            }
            for test in verdict.tests
        ],
        "first_failing": verdict.failing[0].name if verdict.failing else None,
        "node_would_do": verdict.node_would_do,
        "job_would_fit": verdict.whole_would_fit,
        "chosen": verdict.chosen,
        "runs": verdict.runs,
        "causes": [_told(cause) for cause in causes_of(moment.cycle, row)],
    }


def changed(change: Change, workload: str, asked_milli: int, pool: str) -> dict[str, Any]:
    """Return a change as people and programs read it."""
    return {
        "kind": change.kind,
        "what": change_words(change, asked_milli),
        "starts": change.outcome.starts,
        "cost": cost_words(change),
        "commands": commands_of(change, workload, pool),
        "numbers": change.numbers,
        "funded": change.outcome.placed.payer == "budget",
        "nodes": [piece.node for piece in change.outcome.placed.pieces],
        "preempts": change.outcome.stops,
        "delays": change.outcome.later,
        "asks": None if change.asks is None else msgspec.to_builtins(change.asks),
    }


def _told(cause: Cause) -> dict[str, Any]:
    sentence, action = words_of(cause.enum, cause.reason, cause.numbers)
    if cause.enum == "funding":
        sentence = f"nobody makes room for it, as nobody would pay for it now: {sentence}"
    pool = {"pool": cause.pool} if cause.pool else {}
    return {"enum": cause.enum, "reason": cause.reason, "numbers": cause.numbers, "sentence": sentence, "action": action, **pool}


def _named(state: State, row: int) -> dict[str, Any]:
    table = state.workload
    return {"workload": table.keys[row], "gpus_milli": int(table.gpus_milli[row]), "priority": int(table.priority[row])}


def _budget(cycle: Cycle, row: int) -> dict[str, Any]:
    line = int(cycle.state.workload.budget[row])
    funded, why = fundable(cycle.state, cycle.shares, row)
    return {
        "budget": cycle.state.budget_path(line),
        "allowance_milli": int(cycle.shares.allowance[line]),
        "running_milli": int(cycle.shares.running[line]),
        "entitled_milli": int(cycle.shares.entitled[line]),
        "funded": funded,
        "why": why.value,
    }


def _guessed(cycle: Cycle, row: int) -> int:
    """Return how many runs on the nodes that are kept for it state no end, and may not be asked to go: their ends are a guess."""
    _start_ms, nodes = would_do(cycle, row)
    return sum(run["until_ms"] is None and run["payer"] == "budget" for run in runs_on(cycle.state, nodes))


def _expected(cycle: Cycle, row: int, start_ms: int | None) -> dict[str, Any] | None:
    """Return when it is expected to start by what the core knows, and what that rests on; None: the core knows nothing."""
    made, now_ms = cycle.reservations[int(cycle.state.workload.pool[row])], cycle.state.counters.time_ms
    if int(cycle.state.workload.state[row]) == schema.HELD:
        nodes = dict.fromkeys(int(cycle.state.gpu.node[gpu]) for gpu in held_gpus(cycle.state, row))
        ends = [run["until_ms"] for run in runs_on(cycle.state, list(nodes)) if run["stopping"]]
        return {"start_ms": max([now_ms, *ends]), "basis": STOPS}
    if planned_ms := made.planned_ms.get(row, 0):
        return {"start_ms": planned_ms, "basis": PLAN}
    if reserved_ms := made.starts_ms.get(row, 0):
        return {"start_ms": reserved_ms, "basis": RESERVATION, "guessed": _guessed(cycle, row)}
    alone = not len(ahead_of(cycle.state, row))
    if alone and start_ms is not None and start_ms > now_ms and fundable(cycle.state, cycle.shares, row)[0]:
        return {"start_ms": start_ms, "basis": RUNS}
    return None

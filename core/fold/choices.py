"""Fold of the pools that a workload accepts: taken at the door, followed when it starts elsewhere or returns, forgotten at its end.

Each pool that could ever take it counts it among the workloads of its budget line, and keeps its wish: so what is planned for one
pool stays possible there. Its demand is counted in the queue in which it waits, and only there: asking twice gains nothing. Where
it starts is decided by ``policy.visiting``; nothing is decided here.
"""

from __future__ import annotations

from typing import NamedTuple

from apportion.core.decisions import PendingExplained
from apportion.core.errors import check
from apportion.core.fold.access import No
from apportion.core.fold.wishes import drop_wish
from apportion.core.state.asks import Ask, ask_at, choice_key, choices_of
from apportion.core.state.codes import PENDING_CODE, REFUSAL_CODE
from apportion.core.state.state import State


class Offer(NamedTuple):
    """The answer of a pool's door."""

    pool: str
    answer: Ask | No


def take_choices(state: State, workload: int, offers: list[Offer]) -> None:
    """Write down the pools that a new workload named, and count it in those that may take it; one is no choice."""
    table, above = state.choice, 0
    lines = [offer.answer.budget for offer in offers if isinstance(offer.answer, Ask)]
    for line in lines:
        state.budget.cells.workloads[line] += 1
    if len(offers) == 1:
        return
    for place, offer in enumerate(offers):
        row = table.add(choice_key(state.workload.keys[workload], offer.pool))
        table.put(row, {"workload": workload, "place": place})
        if isinstance(offer.answer, Ask):
            table.put(row, offer.answer._asdict())
        else:
            table.put(row, {"refusal": REFUSAL_CODE[offer.answer.reason.value], "pool": -1, "budget": -1})
        if above:
            table.cells.next[above - 1] = row + 1
        else:
            state.workload.cells.choices[workload] = row + 1
        above = row + 1


def go(state: State, workload: int, pool: str) -> None:
    """Let it be what it is in another pool that it accepts; it must not be in a queue."""
    name = state.workload.keys[workload]
    row = state.choice.row_of.get(choice_key(name, pool), -1)
    accepted = row >= 0 and not state.choice.cells.refusal[row]
    check(accepted, state.counters.seq, f"{name} is to be in pool {pool}, which it did not accept or which cannot take it")
    state.workload.put(workload, ask_at(state, row)._asdict())


def note_told(state: State, told: PendingExplained) -> None:
    """Remember why it did not start in other pools, as it was told."""
    for elsewhere in told.elsewhere:
        row = state.choice.row_of[choice_key(told.workload, elsewhere.pool)]
        state.choice.cells.reason[row] = PENDING_CODE[elsewhere.reason]


def forget_told(state: State, workload: int) -> None:
    """It starts: what was told of other pools is over."""
    for row in choices_of(state, workload):
        state.choice.cells.reason[row] = 0


def drop_choices(state: State, workload: int) -> None:
    """Forget what it would be anywhere: it is over."""
    cells, workloads = state.choice.cells, state.budget.cells.workloads
    rows = choices_of(state, workload)
    if not rows:
        workloads[state.workload.cells.budget[workload]] -= 1
        drop_wish(state, state.workload.cells.wish[workload])
    for row in rows:
        if not cells.refusal[row]:
            workloads[cells.budget[row]] -= 1
            drop_wish(state, cells.wish[row])
        state.choice.remove(row)

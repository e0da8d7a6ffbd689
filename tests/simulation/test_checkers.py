"""The oracles can fail: each kind of wrong decision, put into a sound history, is found."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from apportion.adapters.simulation.driver import simulate
from apportion.core.decisions import (
    AnyDecision,
    CycleBatch,
    FundingChanged,
    PendingExplained,
    RunClosed,
    RunPlaced,
    RunPreempted,
    WorkloadAdmitted,
    WorkloadClosed,
    decode_batch,
)
from apportion.core.reasons import Outcome, Payer
from tests.simulation.checkers import Checker
from tests.simulation.worlds import HOUR_MS, Setting, world_of

Change = Callable[[AnyDecision], list[AnyDecision] | None]


@pytest.fixture(scope="module")
def history() -> list[CycleBatch]:
    world = world_of(Setting(2, nodes=3, hours=5, demand_milli=2_500))
    logs = simulate(world, world.options.start_ms + 6 * HOUR_MS)
    return [decode_batch(stored.body) for stored in logs.batches]


def shown(batches: list[CycleBatch]) -> None:
    checker = Checker()
    for batch in batches:
        checker(batch)


def changed(history: list[CycleBatch], change: Change) -> Iterator[CycleBatch]:
    """Yield the history with the first decision changed for which ``change`` returns something."""
    done = False
    for batch in history:
        decisions: list[AnyDecision] = []
        for decision in batch.decisions:
            new = None if done else change(decision)
            done = done or new is not None
            decisions.extend([decision] if new is None else new)
        yield replace(batch, decisions=tuple(decisions))
    assert done, "nothing to change: the history does not hold such a decision"


def on(kind: type[Any], make: Callable[[Any], list[Any] | None]) -> Change:
    return lambda decision: make(decision) if isinstance(decision, kind) else None


def with_charge(closed: RunClosed) -> list[RunClosed] | None:
    return [replace(closed, charged_gpu_us=closed.charged_gpu_us + 1)] if closed.charged_gpu_us else None


def refunded(closed: RunClosed) -> list[RunClosed] | None:
    if closed.outcome != Outcome.SUCCEEDED.value or not closed.charged_gpu_us:
        return None
    return [replace(closed, refunded_gpu_us=1)]


def of_nobody(preempted: RunPreempted) -> list[RunPreempted]:
    return [replace(preempted, certificate=replace(preempted.certificate, beneficiary="nobody"))]


def unjust(preempted: RunPreempted) -> list[RunPreempted]:
    return [replace(preempted, certificate=replace(preempted.certificate, beneficiary_allowance_milli=0))]


CHANGES = {
    "a placement is missing": on(RunPlaced, lambda placed: []),
    "a placement comes twice": on(RunPlaced, lambda placed: [placed, placed]),
    "a run takes the GPUs of another": on(
        RunPlaced, lambda placed: [placed, replace(placed, workload=placed.workload + "x")]
    ),
    "an attempt is skipped": on(RunPlaced, lambda placed: [replace(placed, run=placed.run + 1)]),
    "pieces and total differ": on(RunPlaced, lambda placed: [replace(placed, gpus_milli=placed.gpus_milli + 1)]),
    "another payer": on(
        RunPlaced,
        lambda placed: [replace(placed, payer=Payer.UNFUNDED.value)] if placed.payer == Payer.BUDGET.value else None,
    ),
    "a microsecond too much": on(RunClosed, with_charge),
    "an end before the end": on(RunClosed, lambda closed: [replace(closed, end_ms=closed.end_ms - 1)]),
    "a run never closed": on(RunClosed, lambda closed: []),
    "a refund for a success": on(RunClosed, refunded),
    "a change of payer is missing": on(FundingChanged, lambda funded: []),
    "a change of payer comes twice": on(FundingChanged, lambda funded: [funded, funded]),
    "admitted twice": on(WorkloadAdmitted, lambda admitted: [admitted, admitted]),
    "never admitted": on(WorkloadAdmitted, lambda admitted: []),
    "ended twice": on(WorkloadClosed, lambda closed: [closed, closed]),
    "explained twice": on(PendingExplained, lambda explained: [explained, explained]),
    "preempted twice": on(RunPreempted, lambda preempted: [preempted, preempted]),
    "preempted for nobody": on(RunPreempted, of_nobody),
    "a certificate that does not allow it": on(RunPreempted, unjust),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_a_wrong_decision_is_found(history: list[CycleBatch], change: Change) -> None:
    with pytest.raises(AssertionError, match="cycle"):
        shown(list(changed(history, change)))


@pytest.mark.parametrize("name", ["supply", "down", "idle", "unfunded", "funded"])
def test_books_that_are_off_by_one_are_found(history: list[CycleBatch], name: str) -> None:
    batch = history[-1]
    books = replace(batch.books[0], **{name: getattr(batch.books[0], name) + 1})
    with pytest.raises(AssertionError):
        shown([*history[:-1], replace(batch, books=(books,))])


def test_a_missing_cycle_is_found(history: list[CycleBatch]) -> None:
    with pytest.raises(AssertionError, match="cycle follows"):
        shown([*history[:5], *history[6:]])


def test_the_sound_history_passes(history: list[CycleBatch]) -> None:
    shown(history)

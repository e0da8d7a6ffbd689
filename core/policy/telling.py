"""How it is told why workloads wait: each by itself, or many at once, as columns, who differ in nothing but numbers.

Decides who has something new to be told; what holds them back is found by ``explaining``, once for all whose reason cannot differ.
A pure function of the state; the engine's ``Emit`` folds what is written. Naive equivalent: a decision for each of them, with the
numbers of its answer and its own. Who has a reservation, or is told of other pools, always gets one of his own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from apportion.core.decisions import Elsewhere, PendingExplained
from apportion.core.kernels.spelling import ABSENT
from apportion.core.listed import Column, Listed, Named, Texts
from apportion.core.policy.emit import Emit
from apportion.core.reasons import Pending
from apportion.core.state.bulk import Told
from apportion.core.state.state import State
from apportion.core.units import BUCKET_MS

I64 = NDArray[np.int64]

MANY = 32  # told alike that cost less as columns


class Answer(NamedTuple):
    """A reason, found once for many."""

    reason: Pending
    numbers: dict[str, int]
    word: str
    code: int  # as the column of workloads holds it


Find = Callable[[int, int], Answer]  # of a row, with so many of its budget ahead
Elsewheres = dict[int, tuple[bool, tuple[Elsewhere, ...]]]  # by who is looked at: news, and why he did not start in other pools


class Fresh(NamedTuple):
    """Who may have to be told something, in the order of the queue."""

    at: I64  # among those looked at
    row: I64
    ahead: I64
    slot: I64
    class_: I64
    since_ms: I64
    plan_ms: I64
    told_ms: I64  # when it was planned to start as it was told last
    news: NDArray[np.bool_]  # what is planned is


class Teller:
    """Writes what each is told: one by one, or many at once who differ in nothing but numbers."""

    def __init__(
        self, state: State, find: Find, told: dict[tuple[int, int], Answer], elsewhere: Elsewheres, fresh: Fresh
    ) -> None:
        """``told`` are answers that were found already, by slot and class; ``find`` finds others."""
        self._state, self._find, self._told, self._elsewhere, self._fresh = state, find, told, elsewhere, fresh

    def tell(self, emit: Emit) -> None:
        """Write all, in their order."""
        fresh, count = self._fresh, len(self._fresh.at)
        if count <= MANY:
            emit.all(self._one_by_one(range(count)))
            return
        answers, answer = self._answers()
        alone = np.array([one.reason is Pending.PROTECTED_RUNS for one in answers] + [True])[answer]  # -1: a reason of its own
        alone[np.isin(fresh.at, np.array(list(self._elsewhere), dtype=np.int64))] = True
        edges = np.flatnonzero(np.diff(alone, prepend=~alone[:1], append=~alone[-1:])).tolist()
        behind = 0  # of who was told last
        for begin, end in pairwise(edges):
            if alone[begin] or end - begin <= MANY:
                continue
            emit.all(self._one_by_one(range(behind, begin)))
            columns = fresh.row, fresh.ahead, fresh.since_ms, fresh.plan_ms, fresh.told_ms, answer
            emit.listed(*_alike(self._state, answers, *(column[begin:end] for column in columns)))
            behind = end
        emit.all(self._one_by_one(range(behind, count)))

    def _answer_of(self, number: int) -> Answer:
        """Return the answer of an entry: found once for all of its slot and class."""
        fresh = self._fresh
        key = int(fresh.slot[number]), int(fresh.class_[number])
        found = self._told.get(key) if key[0] >= 0 else None
        if found is None:
            found = self._find(int(fresh.row[number]), int(fresh.ahead[number]))
            if key[0] >= 0:
                self._told[key] = found
        return found

    def _answers(self) -> tuple[list[Answer], I64]:
        """Return the different answers, and which of them each entry has; -1 = a reason of its own."""
        slot, class_ = self._fresh.slot, self._fresh.class_
        classes = int(class_.max()) + 1
        key = np.where(slot >= 0, slot * classes + class_, -1)
        first = np.full(int(key.max()) + 2, -1, dtype=np.int64)  # by key: an entry that has it; the last one is for -1
        first[key[::-1]] = np.arange(len(key))[::-1]
        first[-1] = -1
        met = np.flatnonzero(first >= 0)
        number = np.full(len(first), -1, dtype=np.int64)
        number[met] = np.arange(len(met))
        return [self._answer_of(at) for at in first[met].tolist()], number[key]

    def _one_by_one(self, numbers: range) -> list[PendingExplained]:
        """Return what entries are told that have something new to be told."""
        fresh, said, cells = self._fresh, list[PendingExplained](), self._state.workload.cells
        part = slice(numbers.start, numbers.stop)
        columns = fresh.at, fresh.row, fresh.ahead, fresh.since_ms, fresh.plan_ms, fresh.told_ms, fresh.news
        for number, at, workload, others, since, plan_ms, told_ms, news in zip(
            numbers, *(column[part].tolist() for column in columns), strict=True
        ):
            found = self._answer_of(number)
            reason, numbers_told = found.reason, dict(found.numbers)
            same = found.code == cells.reason[workload] and since == cells.funded_ms[workload]
            other_news, told_of = self._elsewhere.get(at, (False, ()))
            back = reason is Pending.PROTECTED_RUNS and moved_back(self._state, workload, numbers_told)
            if back or not same or news or other_news:
                numbers_told.update(_own_numbers(others, since, plan_ms, told_ms))
                name = self._state.workload.keys[workload]
                said.append(PendingExplained(workload=name, reason=found.word, numbers=numbers_told, elsewhere=told_of))
        return said


def moved_back(state: State, workload: int, numbers: dict[str, int]) -> bool:
    """Tell whether its reservation is later than it was told, and not just a little; adds how late it is to the numbers."""
    cells, now_ms = state.workload.cells, state.counters.time_ms
    told_ms, earliest_ms = cells.told_ms[workload], numbers.get("earliest_ms", 0)
    if not told_ms:
        return False
    if earliest_ms > now_ms:
        return earliest_ms - told_ms >= state.pool.cells.quantum_ms[cells.pool[workload]]
    if earliest_ms == 0 or told_ms >= now_ms:
        return False
    numbers["late_ms"] = now_ms - told_ms
    return numbers["late_ms"] >= 2 * cells.late_ms[workload]


def _own_numbers(ahead: int, since_ms: int, plan_ms: int, told_ms: int) -> dict[str, int]:
    """Return what one is told beside its answer: how many are ahead of it, and its instants, those that there are.

    ``told_ms`` is when it was planned to start as it was told last.
    """
    numbers = {"ahead": ahead}
    if since_ms:
        numbers["funded_since_ms"] = since_ms
    if plan_ms:
        numbers["planned_ms"] = plan_ms
    if 0 < told_ms < plan_ms - BUCKET_MS:
        numbers["moved_from_ms"] = told_ms
    return numbers


def _alike(
    state: State, answers: Sequence[Answer], rows: I64, ahead: I64, since_ms: I64, plan_ms: I64, told_ms: I64, answer: I64
) -> tuple[Listed[PendingExplained], Told]:
    """Return what workloads are told, and the same for the fold; ``answers[answer[k]]`` is the one of entry k.

    No answer is of one who has a reservation, and nobody is told of other pools.
    """
    moved = (told_ms > 0) & (told_ms < plan_ms - BUCKET_MS)
    own = {
        "ahead": ahead, "funded_since_ms": np.where(since_ms != 0, since_ms, ABSENT),
        "planned_ms": np.where(plan_ms != 0, plan_ms, ABSENT), "moved_from_ms": np.where(moved, told_ms, ABSENT),
    }  # fmt: skip
    names = dict.fromkeys(name for one in answers for name in one.numbers)
    shared = {name: np.array([one.numbers.get(name, ABSENT) for one in answers], dtype=np.int64)[answer] for name in names}
    table = {**shared, **own}
    codes, keys, nothing = np.array([one.code for one in answers], dtype=np.int64), state.workload.keys, np.zeros_like(rows)
    said: dict[str, Column] = {
        "workload": Texts([keys[row] for row in rows.tolist()]),
        "reason": Texts([one.word for one in answers], answer),
        "numbers": Named(list(table), np.stack(list(table.values()))),
    }
    return Listed(PendingExplained, len(rows), said), Told(rows, codes[answer], since_ms, plan_ms, nothing, nothing)

"""A state lent to the kernel that folds long stretches (``kernels.stretch``), and taken back.

While it is lent, rows are taken and given back by the kernel: free lists are stacks, names are bytes in the key indexes. Taking it
back brings ``Table`` up to date: counts, free lists, keys of renamed rows and their hashes, and what is derived from the tables.
Between the two nobody else may touch the state. A pure function of the state; what it comes to does not depend on how often it was
lent. Services, decaying usage and a core without machine code are not for this way (``may_lend``).
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from apportion.core.kernels import effects as kernel
from apportion.core.kernels import named as kernel_names
from apportion.core.kernels import reports, stored
from apportion.core.kernels.heard import HEARD
from apportion.core.kernels.keys import NAME_BYTES
from apportion.core.reasons import OTHERS_WISH, RESUMABLE, Outcome, Payer, Pending
from apportion.core.state import schema
from apportion.core.state.codes import OUTCOME_CODE, OUTCOMES, PENDING_CODE
from apportion.core.state.keyindex import KeyIndex
from apportion.core.state.queue import find_untold_later, follow_marks, make_room
from apportion.core.state.state import State
from apportion.core.state.table import Table, key_codes
from apportion.core.state.unsettled import find_unsettled_later

I64 = NDArray[np.int64]
U8 = NDArray[np.uint8]

ROOM = 1_024  # rows that a table has to spare when it is lent; one that is full all the same is left to the slow way
_ENUMS: tuple[type[Enum], ...] = (Outcome, Pending, Payer)
_STOPS = {
    schema.STOP_PREEMPT: Outcome.PREEMPTED,
    schema.STOP_CANCEL: Outcome.CANCELLED,
    schema.STOP_DRAIN: Outcome.DRAINED,
    schema.STOP_MOVE: Outcome.MOVED,
    schema.STOP_RETIRE: Outcome.RETIRED,
}


def words_of(texts: Iterable[str]) -> U8:
    """Return words as ``kernels.spelled.word_at`` takes them; one that is too long, or not ASCII, is never found."""
    coded = [text.encode() if text.isascii() and len(text) < NAME_BYTES else b"" for text in texts]
    words = np.zeros((len(coded), NAME_BYTES), dtype=np.uint8)
    for row, word in enumerate(coded):
        words[row, : len(word)] = np.frombuffer(word, dtype=np.uint8)
        words[row, -1] = len(word) or 255
    return words


def _columns() -> tuple[tuple[str, tuple[str, ...]], ...]:
    return (
        ("pool", kernel.POOL_COLUMNS), ("node", kernel.NODE_COLUMNS), ("gpu", kernel.GPU_COLUMNS),
        ("budget", kernel.BUDGET_COLUMNS), ("workload", kernel.WORKLOAD_COLUMNS), ("run", kernel.RUN_COLUMNS),
        ("alloc", kernel.ALLOC_COLUMNS), ("closed", kernel.CLOSED_COLUMNS), ("principal", kernel.PRINCIPAL_COLUMNS),
    )  # fmt: skip


class _Lent(NamedTuple):
    """A table that is lent: where its count of used rows is in the numbers, which of the stacks is its own, its key index."""

    table: Table
    used: int
    of: int
    keys: KeyIndex | None


class Lending:
    """Lends one state, again and again."""

    def __init__(self, state: State, nodes: KeyIndex, runs: KeyIndex) -> None:
        self._state = state
        self._nodes, self._runs = nodes, runs
        self._workloads, self._closed = KeyIndex(state.workload), KeyIndex(state.closed)
        self._lent: tuple[_Lent, ...] = ()
        self._free, self._renamed = np.zeros((0, 0), dtype=np.int64), np.zeros((0, 0), dtype=np.uint8)
        self._known = np.zeros((0, 0), dtype=np.int64)
        tables = state.tables()
        places = [tables[name].names.index(column) for name, columns in _columns() for column in columns]
        self.n = np.array([0] * kernel.COLUMNS + places, dtype=np.int64)
        n = self.n
        n[kernel.SUCCEEDED], n[kernel.FAILED] = OUTCOME_CODE[Outcome.SUCCEEDED], OUTCOME_CODE[Outcome.FAILED]
        n[kernel.START_FAILED], n[kernel.NODE_LOST] = OUTCOME_CODE[Outcome.START_FAILED], OUTCOME_CODE[Outcome.NODE_LOST]
        n[kernel.PROTECTED_RUNS] = PENDING_CODE[Pending.PROTECTED_RUNS.value]
        self._words = np.concatenate(
            [words_of(texts) for texts in (stored.DECISIONS, *([member.value for member in words] for words in _ENUMS))]
        )
        sizes = [len(stored.DECISIONS), *(len(words) for words in _ENUMS)]
        n[kernel.OUTCOMES], n[kernel.REASONS], n[kernel.PAYERS], n[kernel.IN_POOLS] = np.cumsum(sizes)

    def may_lend(self) -> bool:
        """Tell whether this state is one that the kernel knows."""
        state = self._state
        counters = state.counters
        plain = not len(state.service) and not counters.decaying
        return plain and bool(counters.opened) and not counters.tick_pending and reports.COMPILED

    def lend(self) -> kernel.World:
        """Return the arrays of the state; ``n`` then holds its numbers. Nobody but the kernel may change it until ``take``."""
        state = self._state
        self._lent = (
            _Lent(state.workload, kernel.WORKLOADS, kernel.OF_WORKLOADS, self._workloads),
            _Lent(state.run, kernel.RUNS, kernel.OF_RUNS, self._runs),
            _Lent(state.closed, kernel.CLOSED, kernel.OF_CLOSED, self._closed),
            _Lent(state.alloc, kernel.ALLOCS, kernel.OF_ALLOCS, None),
        )
        for lent in self._lent:
            lent.table.reserve(ROOM)
            if lent.keys is not None:
                lent.keys.reserve(ROOM)
        self._nodes.sync()
        free, renamed = self._stacks()
        self._put_numbers()
        make_room(state, 0)  # and so for everybody who may come
        self._known = self._knowledge()
        nodes, workloads, runs, closed = self._nodes, self._workloads, self._runs, self._closed
        return kernel.World(
            state.pool.block, state.node.block, state.gpu.block, state.budget.block, state.workload.block, state.run.block,
            state.alloc.block, state.closed.block, state.principal.block, free, renamed, nodes.names, nodes.slots,
            workloads.names, workloads.slots, runs.names, runs.slots, closed.names, closed.slots, state.in_queue, state.waits,
            self._known, np.zeros((state.node.used, HEARD), dtype=np.int64),
            np.concatenate((self._words, words_of(state.pool.keys))),
        )  # fmt: skip

    def _stacks(self) -> tuple[I64, U8]:
        """Return the free rows of the tables, and no marks yet of renamed ones: the same arrays again while they are as large."""
        size = max(lent.table.capacity for lent in self._lent)
        if self._free.shape[1] != size:
            self._free, self._renamed = np.zeros((kernel.OF, size), dtype=np.int64), np.zeros((kernel.OF, size), dtype=np.uint8)
        for table, used, of, keys in self._lent:
            self._free[of, : len(table.free)] = table.free
            self.n[used], self.n[used + 1] = table.used, len(table.free)
            if keys is not None:
                self.n[used + 2] = keys.entered
        return self._free, self._renamed

    def _knowledge(self) -> I64:
        known = np.zeros((kernel.KNOWN, max(self._state.budget.used, len(OUTCOMES) + 1, max(_STOPS) + 1)), dtype=np.int64)
        for outcome, code in OUTCOME_CODE.items():
            known[kernel.KNOWN_ENDS, code] = (outcome in RESUMABLE) + 2 * (outcome in OTHERS_WISH)
        for cause, outcome in _STOPS.items():
            known[kernel.KNOWN_CAUSES, cause] = OUTCOME_CODE[outcome]
        lines = self._state.budget.used
        known[kernel.KNOWN_WAITING, :lines] = self._state.waiting[:lines]
        return known

    def _put_numbers(self) -> None:
        state, counters, n = self._state, self._state.counters, self.n
        n[kernel.SEQ], n[kernel.TIME_MS], n[kernel.ACCRUED_MS] = counters.seq, counters.time_ms, counters.accrued_ms
        n[kernel.STATED], n[kernel.SILENCE_MS], n[kernel.PLANNED_MS] = counters.stated, counters.silence_ms, counters.planned_ms
        n[kernel.FAIR_STALE], n[kernel.DIRTY], n[kernel.CORE] = counters.fair_stale, counters.dirty, counters.core
        n[kernel.CYCLE], n[kernel.CYCLE_MS], n[kernel.PRUNED_MS] = counters.cycle, counters.cycle_ms, counters.pruned_ms
        n[kernel.HEARTBEATS] = counters.heartbeats
        n[kernel.POOLS], n[kernel.BUDGETS] = state.pool.used, state.budget.used
        n[kernel.NODES], n[kernel.GPUS] = state.node.used, state.gpu.used

    def take(self, *, tick_pending: bool) -> None:
        """Bring the state up to date with what the kernel did; ``tick_pending``: its last record is a tick that is not answered."""
        state, counters = self._state, self._state.counters
        (
            counters.seq, counters.time_ms, counters.accrued_ms, _stated, _silence, _planned, counters.fair_stale, counters.dirty,
            _core, counters.cycle, counters.cycle_ms, counters.pruned_ms, counters.heartbeats,
        ) = self.n[: kernel.HEARTBEATS + 1].tolist()  # fmt: skip
        counters.tick_pending = int(tick_pending)
        state.moved += 1
        for lent in self._lent:
            _give_back(self.n, lent, self._free[lent.of], self._renamed[lent.of])
        self._lent = ()
        state.waiting[: state.budget.used] = self._known[kernel.KNOWN_WAITING, : state.budget.used]
        follow_marks(state)
        find_unsettled_later(state)
        find_untold_later(state)


def _give_back(n: I64, lent: _Lent, free: I64, renamed: U8) -> None:
    table = lent.table
    table.used, table.free = int(n[lent.used]), free[: n[lent.used + 1]].tolist()
    table.keys.extend([""] * (table.used - len(table.keys)))
    if lent.keys is None:
        return
    lent.keys.entered = int(n[lent.used + 2])
    rows = np.flatnonzero(renamed[: table.used].view(np.bool_))  # of which NumPy looks at many at a time
    if not len(rows):
        return
    renamed[rows] = 0
    for key in table.keys_of(rows):
        if key:
            del table.row_of[key]
    names = lent.keys.names
    is_named = names[rows, -1] > 0
    for row in rows[~is_named].tolist():
        table.keys[row] = ""
    rows = rows[is_named]
    if not len(rows):
        return
    text = kernel_names.lines(names, rows)
    keys, taken = text.tobytes().decode().split("\n"), rows.tolist()
    for row, key in zip(taken, keys, strict=True):
        table.keys[row] = key
    table.row_of.update(zip(keys, taken, strict=True))
    table.key_code[rows] = key_codes(keys, text)

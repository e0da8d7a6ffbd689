"""The fast lane of the fold: a long list of records is taken apart a window at a time, its reports folded by one kernel.

A window is up to ``WINDOW`` records as columns: the bodies joined, and per record where its body stands, when it was stored, and
which type and principal its subject names. ``kernels.reports.fold`` then takes one run of heartbeats and checkpoints after the
other out of it, and what it leaves goes through ``records.fold_record``. A store that holds many records in one piece hands out
such columns itself (``text``; ``columns``, without the bytes). Short lists (a live log), another spelling of JSON, and a
core without machine code use the loop of ``beats`` instead. All of them are the same function of the records.

Everything here is derived: a window, the key indexes and the subjects met are no part of the state and change nothing in it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from apportion.core.envelope import MAX_BODY_BYTES, Record, split_subject, subject_of
from apportion.core.errors import ApportionError, LogGap
from apportion.core.fold.beats import fold_beats
from apportion.core.fold.columns import Columns
from apportion.core.fold.text import Text
from apportion.core.kernels import reports as kernel
from apportion.core.kernels.heard import HEARD
from apportion.core.state import schema
from apportion.core.state.digest import MAX_FRAMES
from apportion.core.state.keyindex import KeyIndex
from apportion.core.state.state import State

WINDOW = 2_048
WORTH = 64  # records from which on a window pays
KINDS = {"node.heartbeat": kernel.BEAT, "run.checkpointed": kernel.CHECKPOINT}
_SUFFIXES = tuple(f".{name}" for name in KINDS)
_OTHERS_MAX = 100_000  # subjects remembered as none of the kernel's business
_NONE, _UNHEARD = np.zeros(0, dtype=np.int64), np.zeros((0, HEARD), dtype=np.int64)
_FRAME_BYTES = 64  # of a frame without subject and body: three numbers, at most


class _Subjects(dict[str, int]):
    """Number of each subject met of the types in ``KINDS``, a column of ``speakers``; 0 for others, and of unknown principals."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._text = bytearray()
        self._used = 1
        self.longest = 0
        self._named: dict[str, int] = {}  # where in the text a node is named as if it spoke for itself
        self.speakers = np.zeros((4, 64), dtype=np.int64)  # kind, principal's row, start in the text, length
        self.text = np.zeros(0, dtype=np.uint8)

    def __missing__(self, subject: str) -> int:
        parts = split_subject(subject) if subject.endswith(_SUFFIXES) else None
        kind = KINDS.get(parts[1]) if parts is not None else None
        if parts is None or kind is None:
            if len(self) < _OTHERS_MAX:
                self[subject] = 0
            return 0
        row = self._state.principal.row_of.get(parts[0])
        if row is None:
            return 0  # not remembered: it may be met later
        if self._used == self.speakers.shape[1]:
            self.speakers = np.concatenate((self.speakers, self.speakers), axis=1)
        number = self[subject] = self._used
        self._used += 1
        self.speakers[:, number] = kind, row, len(self._text), len(subject)
        self._text += subject.encode()
        self.longest = max(self.longest, len(subject))
        return number

    def told_of(self, subject: str, node: str) -> tuple[int, int, int, int] | None:
        """Return kind, row of the principal, and place in ``text`` of a subject's reports; None for others.

        Where ``node`` says whose heartbeats they are, the text names that node, not the principal: in heartbeats that were read
        already the kernel looks for it nowhere else, and of those no frames are made.
        """
        number = self[subject]
        if not number:
            return None
        kind, row, start, length = self.speakers[:, number].tolist()
        if kind == kernel.BEAT and node:
            named = subject_of(node, "node.heartbeat")
            if named not in self._named:
                self._named[named] = len(self._text)
                self._text += named.encode()
            start, length = self._named[named], len(named)
        return kind, row, start, length

    def numbers_of(self, subjects: tuple[str, ...]) -> NDArray[np.int64]:
        """Return the number of each subject in ``speakers``; ``text`` then holds them all."""
        numbers = np.array(list(map(self.__getitem__, subjects)), dtype=np.int64)
        self.sync()
        return numbers

    def sync(self) -> None:
        """Bring ``text`` up to date."""
        if len(self.text) != len(self._text):
            self.text = np.frombuffer(bytearray(self._text), dtype=np.uint8)  # may be written, as it may while it is empty


class _Window:
    """The records of a list from ``first`` up to ``end``, as columns; ``whole`` is False when they are no unbroken sequence."""

    def __init__(self, records: list[Record], first: int, subjects: _Subjects, stated: int) -> None:
        self.records = records
        self.items = items = records[first : first + WINDOW]
        self.first, self.end, self.count = first, first + len(items), len(items)
        seqs, stored_ms, texts, bodies = zip(*items, strict=True)
        lengths = np.array(list(map(len, bodies)), dtype=np.int64)
        times = np.zeros(len(items), dtype=np.int64)
        self.told = kernel.Told(
            form=np.where(lengths <= MAX_BODY_BYTES, 0, kernel.HIDDEN), who=subjects.numbers_of(texts), stored_ms=times,
            start=np.cumsum(lengths) - lengths, length=lengths, at_ms=_NONE, beat=_NONE, down=_NONE, down_length=_NONE,
            frame_end=np.empty_like(lengths),
        )  # fmt: skip
        self.speakers = subjects.speakers
        try:
            times[:] = 0 if stated else stored_ms
            steps = np.diff(np.array(seqs, dtype=np.int64))
            self.whole = bool((steps == 1).all())
        except OverflowError:
            self.whole = False
        self.text = subjects.text
        self.data = np.frombuffer(bytearray().join(bodies), dtype=np.uint8)  # may be written, as columns may: one kernel

    def covers(self, records: list[Record], start: int) -> bool:
        """Tell whether the columns are those of ``records[start]`` and what follows it."""
        return records is self.records and self.first <= start < self.end


class Lane:
    """Folds the reports in lists of records into one state."""

    def __init__(self, state: State) -> None:
        self._state = state
        self.subjects = _Subjects(state)
        self._nodes: KeyIndex | None = None  # made with the first window: a short log does without
        self._runs: KeyIndex | None = None
        self._window: _Window | None = None
        self._columns: Columns | None = None
        self._frames = np.zeros(0, dtype=np.uint8)
        self._unread = False  # what the kernel stopped at last is in another spelling
        columns = [
            table.names.index(name)
            for table, names in (
                (state.node, kernel.NODE_COLUMNS),
                (state.alloc, kernel.ALLOC_COLUMNS),
                (state.gpu, kernel.GPU_COLUMNS),
                (state.run, kernel.RUN_COLUMNS + kernel.SAFE_COLUMNS),
                (state.workload, kernel.WORKLOAD_COLUMNS),
            )
            for name in names
        ]
        self._numbers = np.array([0] * kernel.COLUMNS + columns, dtype=np.int64)
        self._said = self._numbers.data  # the same, with items as Python integers
        self._said[kernel.RUN_ENDED], self._said[kernel.PAYER_BUDGET] = schema.ENDED, schema.PAYER_BUDGET

    def fold(self, records: list[Record], start: int) -> int:
        """Fold reports from ``records[start]`` on; returns the index of the first record left to the slow way.

        A list may be given again with a later ``start``, and then must be what it was: raises ``ApportionError`` otherwise.
        """
        counters = self._state.counters
        index = start
        while index < len(records) and counters.opened and not counters.tick_pending:
            if not self.subjects[records[index].subject]:
                break
            window = self._window
            if window is None or not window.covers(records, index):
                if len(records) - index < WORTH or not kernel.COMPILED:
                    return fold_beats(self._state, records, index)
                window = self._window = _Window(records, index, self.subjects, counters.stated)
            if not window.whole or window.items[index - window.first].seq != counters.seq + 1:
                return fold_beats(self._state, records, index)
            reached, unread = self._run(window, index)
            if records[index:reached] != window.items[index - window.first : reached - window.first]:
                raise ApportionError("a list of records was changed while it was folded; this state is not to be used further")
            index = reached
            if index == window.end:
                continue
            if not unread or b"[" in records[index].body:
                break
            reached = fold_beats(self._state, records, index)  # in another spelling, perhaps
            if reached == index:
                break
            index = reached
        return index

    def fold_columns(self, columns: Columns, start: int) -> int:
        """Fold reports from position ``start`` on, without frames; returns the first position left to the slow way.

        Raises ``LogGap`` when that is not the next record.
        """
        counters = self._state.counters
        if columns.first_seq + start != counters.seq + 1:
            raise LogGap(counters.seq + 1, columns.first_seq + start)
        if not counters.opened or counters.tick_pending or not kernel.COMPILED:
            return start
        if columns is not self._columns:
            self._columns = columns
            columns.introduce(self.subjects.told_of)
        index, self._unread = start, False
        while index < columns.count and (columns.kind(index) or columns.introduce(self.subjects.told_of, index)):
            self.subjects.sync()
            columns.text = self.subjects.text
            reached, self._unread = self._run(columns, index)
            if reached == index:
                break
            index = reached
        return index

    def fold_text(self, text: Text, start: int) -> int:
        """Fold reports from position ``start`` of ``text`` on; returns the first position left to the slow way.

        Raises ``LogGap`` when that is not the next record.
        """
        index = self.fold_columns(text, start)
        while self._unread and index < text.count:  # in another spelling, perhaps
            if b"[" in text.record(index).body:
                break
            taken = fold_beats(self._state, text.records(index, min(index + WORTH, text.count)), 0)
            if not taken:
                break
            index = self.fold_columns(text, index + taken)
        return index

    def indexes(self) -> tuple[KeyIndex, KeyIndex]:
        """Return where nodes and runs are found by their names; to be synced before use."""
        if self._nodes is None or self._runs is None:
            self._nodes, self._runs = KeyIndex(self._state.node), KeyIndex(self._state.run)
        return self._nodes, self._runs

    def numbers(self, *, chained: bool = False) -> NDArray[np.int64]:
        """Return what the kernel wants to know beside the blocks, and whether it is to write frames."""
        counters, said = self._state.counters, self._said
        said[kernel.CHAINED] = chained
        said[kernel.SEQ], said[kernel.TIME_MS] = counters.seq, counters.time_ms
        said[kernel.STATED], said[kernel.SILENCE_MS] = counters.stated, counters.silence_ms
        said[kernel.PLANNED_MS] = counters.planned_ms
        return self._numbers

    def _run(self, window: _Window | Columns, start: int) -> tuple[int, bool]:
        """Fold from ``start`` to the first record the kernel does not take: its index, and whether it could not read it."""
        state, counters, said = self._state, self._state.counters, self._said
        nodes, runs = self.indexes()
        nodes.sync()
        runs.sync()
        first = start - window.first
        stop, chained = window.count, isinstance(window, _Window | Text)
        if chained:
            stop = min(first + MAX_FRAMES - 1 - len(state.unchained), stop)
            self._make_room(window, first, stop)
        reached = kernel.fold(
            self.numbers(chained=chained), window.data, window.told, window.speakers, first, stop, window.text,
            state.node.block, state.alloc.block, state.gpu.block, state.run.block, state.workload.block,
            nodes.names, nodes.slots, runs.names, runs.slots, self._frames, _NONE, _UNHEARD,
        )  # fmt: skip
        if reached > first:
            counters.seq += reached - first
            counters.heartbeats += said[kernel.BEATS]
            if said[kernel.BEATS] < reached - first:
                counters.dirty = 1  # a checkpoint is news for the next cycle
                state.moved += 1
            counters.time_ms = said[kernel.TIME_MS]
            if chained:
                ends = window.told.frame_end[first:reached].copy()
                state.unchained.join(self._frames[: said[kernel.TAKEN_BYTES]].tobytes(), ends)
        return reached + window.first, bool(said[kernel.UNREAD])

    def _make_room(self, window: _Window | Columns, first: int, stop: int) -> None:
        """Let the frames of so many records fit, whose bodies lie one after the other."""
        if first >= stop:
            return
        starts, lengths = window.told.start, window.told.length
        bodies = int(starts[stop - 1] + lengths[stop - 1] - starts[first])
        wanted = bodies + (stop - first) * (_FRAME_BYTES + self.subjects.longest)
        if len(self._frames) < wanted:
            self._frames = np.zeros(wanted, dtype=np.uint8)

"""Heartbeats that were read long ago, and other records between them: what a play of the past hands to the fold.

A play has the heartbeats of its history as columns, and everything else, what the played world made of itself among it, as bytes.
``Between`` lays both out as the kernel of reports takes them, so that nobody writes a heartbeat down to have it read again. Folding
it is the same function of the state as folding its records one by one, but for the chain over their bytes (``Columns``). It
decides nothing and keeps no state; ``Speakers`` only remembers what it was told.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from apportion.core.envelope import MAX_BODY_BYTES, Record
from apportion.core.fold.columns import I64, Columns
from apportion.core.kernels import reports as kernel

ToldOf = Callable[[str, str], tuple[int, int, int, int] | None]
_TOLD = slice(kernel.KIND, kernel.SUBJECT_LENGTH + 1)  # rows of the table that ``ToldOf`` fills
_SAID = slice(kernel.AT_MS, kernel.COUNT + 1)


class Beats(NamedTuple):
    """Plain heartbeats in their order: who (a number of ``Speakers``), when, and which beat."""

    who: I64
    time_ms: I64
    beat: I64


class Speakers:
    """Who sends heartbeats, by number: subject and node. Asked for at one core only."""

    def __init__(self, names: Sequence[tuple[str, str]]) -> None:
        self._names = names
        self._told = np.zeros((_TOLD.stop - _TOLD.start, len(names)), dtype=np.int64)

    def told(self, told_of: ToldOf) -> I64:
        """Return a column each, nothing but zeros for one that is unknown; who is unknown is asked for again the next time."""
        for number in np.flatnonzero(self._told[0] == 0).tolist():
            found = told_of(*self._names[number])
            if found is not None:
                self._told[:, number] = kernel.COUNTED, *found[1:]
        return self._told


class Between(Columns):
    """Records ``first_seq`` and on. ``others``, instant, subject and body of each, are at ``places`` among the heartbeats.

    ``body`` writes a heartbeat down, by its position among ``beats``, where the kernel leaves it to the slow way.
    """

    def __init__(
        self, first_seq: int, speakers: Speakers, beats: Beats, others: Sequence[tuple[int, str, bytes]], places: I64,
        body: Callable[[int], tuple[str, bytes]],
    ) -> None:  # fmt: skip
        count = len(beats.who) + len(others)
        is_beat = np.ones(count, dtype=bool)
        is_beat[places] = False
        self._beat_at = np.flatnonzero(is_beat)
        bodies = [text for _at_ms, _subject, text in others]
        time_ms = np.empty(count, dtype=np.int64)
        time_ms[places] = [at_ms for at_ms, _subject, _body in others]
        time_ms[self._beat_at] = beats.time_ms
        data = np.frombuffer(b"".join(bodies) or b"\0", dtype=np.uint8)
        super().__init__(first_seq, (), (), time_ms, time_ms, data, self._record)
        lengths = np.array([len(text) for text in bodies], dtype=np.int64)
        self.table[kernel.LENGTH, places] = lengths
        self.table[kernel.START, places] = np.cumsum(lengths) - lengths
        self.table[_SAID, self._beat_at] = beats.time_ms, beats.beat
        self._who, self._sent_by, self._others, self._places, self._body = beats.who, speakers, others, places, body

    def introduce(self, told_of: ToldOf, position: int = -1) -> bool:
        """Take from ``told_of`` what the kernel wants to know of each subject; whom it does not know then goes the slow way."""
        if position >= 0:
            return False
        table, unknown = self.table, (0,) * (_TOLD.stop - _TOLD.start)
        table[_TOLD, self._beat_at] = self._sent_by.told(told_of).take(self._who, axis=1)
        if self._others:
            known = [
                told_of(subject, "") or unknown if len(body) <= MAX_BODY_BYTES else unknown
                for _at_ms, subject, body in self._others
            ]
            table[_TOLD, self._places] = np.array(known, dtype=np.int64).T
        return False

    def _record(self, position: int) -> Record:
        before = int(np.searchsorted(self._places, position))
        if before < len(self._places) and self._places[before] == position:
            at_ms, subject, body = self._others[before]
        else:
            at_ms, (subject, body) = int(self.table[kernel.STORED_MS, position]), self._body(position - before)
        return Record(self.first_seq + position, at_ms, subject, body)

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
from apportion.core.fold.columns import I64, Columns, room_for
from apportion.core.kernels import reports as kernel

ToldOf = Callable[[str, str], tuple[int, int, int, int] | None]
_UNKNOWN = (0,) * (kernel.SUBJECT_LENGTH + 1)  # as ``ToldOf`` tells of a subject


class Beats(NamedTuple):
    """Plain heartbeats in their order: who (a number of ``Speakers``), when, and which beat."""

    who: I64
    time_ms: I64
    beat: I64


class Speakers:
    """Who sends heartbeats, by number: subject and node. Asked for at one core only."""

    def __init__(self, names: Sequence[tuple[str, str]]) -> None:
        self._names = names
        self._told = np.zeros((len(_UNKNOWN), len(names)), dtype=np.int64)
        self.count = len(names)

    def told(self, told_of: ToldOf) -> I64:
        """Return a column each, nothing but zeros for one that is unknown; who is unknown is asked for again the next time."""
        for number in np.flatnonzero(self._told[0] == 0).tolist():
            found = told_of(*self._names[number])
            if found is not None:
                self._told[:, number] = found
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
        lengths = np.array([len(text) for text in bodies], dtype=np.int64)
        self._subjects_met = list(dict.fromkeys(subject for _at_ms, subject, _body in others))
        numbers = {subject: number for number, subject in enumerate(self._subjects_met, speakers.count)}
        told = room_for(count)
        for column in (told.start, told.length, told.at_ms, told.beat, told.down, told.down_length):
            column[:] = 0
        told.stored_ms[:] = time_ms
        told.form[self._beat_at], told.form[places] = kernel.READ, np.where(lengths <= MAX_BODY_BYTES, 0, kernel.HIDDEN)
        told.who[self._beat_at], told.who[places] = beats.who, [numbers[subject] for _at_ms, subject, _body in others]
        told.start[places], told.length[places] = np.cumsum(lengths) - lengths, lengths
        told.at_ms[self._beat_at], told.beat[self._beat_at] = beats.time_ms, beats.beat
        super().__init__(first_seq, count, (), (), told, data, self._record)
        self._sent_by, self._others, self._places, self._body = speakers, others, places, body

    def introduce(self, told_of: ToldOf, position: int = -1) -> bool:
        """Take from ``told_of`` what the kernel wants to know of each subject; whom it does not know then goes the slow way."""
        if position >= 0:
            return False
        known = [told_of(subject, "") or _UNKNOWN for subject in self._subjects_met]
        others = np.array(known, dtype=np.int64).reshape(len(known), len(_UNKNOWN)).T
        self.speakers = np.ascontiguousarray(np.concatenate((self._sent_by.told(told_of), others), axis=1))
        return False

    def _record(self, position: int) -> Record:
        before = int(np.searchsorted(self._places, position))
        if before < len(self._places) and self._places[before] == position:
            at_ms, subject, body = self._others[before]
        else:
            at_ms, (subject, body) = int(self.told.stored_ms[position]), self._body(position - before)
        return Record(self.first_seq + position, at_ms, subject, body)

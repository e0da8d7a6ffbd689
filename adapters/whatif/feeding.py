"""How what comes before a tick gets into the core: as the records that a log would have, or, where nobody keeps them, as columns.

Of history's plain heartbeats there are ten for every other record; as columns they need not be written down to be read again
(``core.fold.between``). Both ways fold the same in the same order, so they decide the same; only records have bytes, and a chain
over these. ``Feed`` is a pure function of the beats and of what it is given; it decides nothing.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from apportion.adapters.whatif.beats import Cursor, Item
from apportion.core.engine import Core
from apportion.core.envelope import Record
from apportion.core.fold.between import Beats, Between, Speakers


class Due(NamedTuple):
    """What is folded next: which of the heartbeats, and the rest in its order."""

    beats: slice
    others: list[Item]


class Feed:
    """Folds into one core. ``kept``: as records, which it returns."""

    def __init__(self, core: Core, beats: Cursor, *, kept: bool) -> None:
        self._core, self._beats, self._kept = core, beats, kept
        self._speakers = Speakers([(speaker.subject, speaker.node) for speaker in beats.speakers])

    def fold(self, due: Due, tick: Item | None) -> list[Record]:
        """Fold what is due, and then the tick."""
        return self._records(due, tick) if self._kept else self._columns(due, tick)

    def seqs(self, due: Due, wanted: int) -> list[int]:
        """Return the sequences that those of one kind (the second of an ``Item``) have when they are folded next."""
        before = self._beats.before(due.beats, due.others).tolist()
        first = self._core.seq + 1
        return [first + place + before[place] for place, item in enumerate(due.others) if item[1] == wanted]

    def _records(self, due: Due, tick: Item | None) -> list[Record]:
        core, items = self._core, sorted([*self._beats.items(due.beats), *due.others])
        items += [tick] if tick is not None else []
        records = [Record(seq, item[0], item[3], item[4]) for seq, item in enumerate(items, core.seq + 1)]
        position = 0
        while position < len(records):
            position = core.fold_many(records, position)
        return records

    def _columns(self, due: Due, tick: Item | None) -> list[Record]:
        core, beats, taken, others = self._core, self._beats, due.beats, due.others
        places = beats.before(taken, others) + np.arange(len(others))
        if tick is not None:
            places = np.append(places, taken.stop - taken.start + len(others))
            others = [*others, tick]
        columns = Between(
            core.seq + 1, self._speakers, Beats(beats.who[taken], beats.time_ms[taken], beats.beat[taken]),
            [(at_ms, subject, body) for at_ms, _kind, _number, subject, body in others], places,
            lambda position: beats.record(taken.start + position),
        )  # fmt: skip
        position = 0
        while position < columns.count:
            position = core.fold_columns(columns, position)
        return []

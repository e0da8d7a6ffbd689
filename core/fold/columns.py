"""A stretch of the log whose heartbeats were read already: what a store of columns hands to the fold instead of records.

It says of each record what ``kernels.reports.fold`` wants to know, so nine records in ten are folded without being bytes again; the
others, and whatever the kernel does not take, are made into records by ``record``, and go the slow way. Folding a stretch is
the same function of the state as folding its records, but for the chain over their bytes: the core takes that from the batch which
answers the next tick (``Core.trust_columns``). Whoever makes one vouches that the columns say what the bytes say.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from apportion.core.envelope import Record
from apportion.core.kernels import reports as kernel
from apportion.core.kernels.reports import Told

I64 = NDArray[np.int64]
U8 = NDArray[np.uint8]


_UNKNOWN = (0, 0, 0, 0)
_NONE = np.zeros(0, dtype=np.int64)


class Room:
    """Room for what is told of records, the same again for whoever is done with the last ones: new memory is cleared first."""

    def __init__(self) -> None:
        self._block = np.empty((9, 0), dtype=np.int64)

    def of(self, count: int) -> Told:
        """Return room for so many records; frames are nobody's who has read heartbeats already."""
        if self._block.shape[1] < count:
            self._block = np.empty((9, count), dtype=np.int64)
        form, who, stored_ms, start, length, at_ms, beat, down, down_length = self._block[:, :count]
        return Told(form, who, stored_ms, start, length, at_ms, beat, down, down_length, _NONE)


def room_for(count: int) -> Told:
    """Return room for what is told of so many records, which nobody else has."""
    return Room().of(count)


class Columns:
    """Records ``first_seq`` and on, ``count`` of them, as the kernel takes them.

    ``told`` numbers each record's subject in ``subjects`` (``who``); ``nodes`` says beside each whose its heartbeats are that were
    read already. Its places are in ``data``. ``record`` makes the record at a position.
    """

    def __init__(
        self, first_seq: int, count: int, subjects: Sequence[str], nodes: Sequence[str], told: Told, data: U8,
        record: Callable[[int], Record],
    ) -> None:  # fmt: skip
        self.first = 0  # as in a window
        self.first_seq = first_seq
        self.count = count
        self.data = data
        self.told = told
        self.record = record
        self.text = np.zeros(0, dtype=np.uint8)
        self.speakers = np.zeros((len(_UNKNOWN), max(1, len(subjects))), dtype=np.int64)
        self._subjects, self._nodes = subjects, nodes

    def kind(self, position: int) -> int:
        """Return the kind of a record as the kernel knows it; 0 when it is not for the kernel, or its subject is not introduced."""
        return int(kernel.kind_of(self.told, self.speakers, position))

    def introduce(self, told_of: Callable[[str, str], tuple[int, int, int, int] | None], position: int = -1) -> bool:
        """Take from ``told_of`` kind, principal's row and place in ``text`` of each subject; of one record's, if it was not known.

        Returns whether the record at ``position`` is the kernel's now.
        """
        if position < 0:
            known = [told_of(*speaker) or _UNKNOWN for speaker in zip(self._subjects, self._nodes, strict=True)]
            self.speakers[:, : len(known)] = np.array(known, dtype=np.int64).reshape(len(known), len(_UNKNOWN)).T
            return False
        who = int(self.told.who[position])
        if self.speakers[0, who] or (found := told_of(self._subjects[who], self._nodes[who])) is None:
            return False
        self.speakers[:, who] = found
        return self.kind(position) != 0

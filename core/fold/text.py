"""A stretch of the log whose bodies lie in one text: what a store of whole segments hands to the fold instead of records.

Reports are read from their bytes by the kernel, as those of a list of records are, but nine records in ten are folded without
being an object each; the others are made into records by ``record``, and go the slow way. Folding a stretch is the same
function of the state as folding its records one by one, chain included.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from apportion.core.envelope import MAX_BODY_BYTES, Record
from apportion.core.fold.columns import I64, U8, Columns
from apportion.core.kernels import reports as kernel


class Text(Columns):
    """Records ``first_seq`` and on: the body of each ends in ``data`` at one of ``ends``, and the next one's begins there.

    ``who`` numbers each record's subject in ``subjects``. The arrays must not change as long as it is in use.
    """

    def __init__(self, first_seq: int, subjects: Sequence[str], who: I64, stored_ms: I64, data: U8, ends: I64) -> None:
        super().__init__(first_seq, subjects, ("",) * len(subjects), who, stored_ms, data, self._record)
        lengths = np.diff(ends, prepend=0)
        nothing = np.zeros(self.count, dtype=np.int64)
        places = np.stack((ends - lengths, lengths))
        none = np.zeros((2, self.count), dtype=np.int64)
        self.place(places, nothing, nothing, none, counted=nothing, plain=(lengths <= MAX_BODY_BYTES).astype(np.int64))

    def records(self, start: int, end: int) -> list[Record]:
        """Return the records from position ``start`` to before ``end``."""
        return [self._record(position) for position in range(start, end)]

    def _record(self, position: int) -> Record:
        start, length = self.table[kernel.START : kernel.LENGTH + 1, position].tolist()
        subject, stored_ms = self._subjects[self._who[position]], int(self.table[kernel.STORED_MS, position])
        return Record(self.first_seq + position, stored_ms, subject, self.data[start : start + length].tobytes())

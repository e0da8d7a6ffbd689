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
        lengths, nothing = np.diff(ends, prepend=0), np.zeros(0, dtype=np.int64)
        told = kernel.Told(
            form=np.where(lengths <= MAX_BODY_BYTES, 0, kernel.HIDDEN), who=who, stored_ms=stored_ms, start=ends - lengths,
            length=lengths, at_ms=nothing, beat=nothing, down=nothing, down_length=nothing, frame_end=np.empty_like(ends),
        )  # fmt: skip
        super().__init__(first_seq, len(who), subjects, ("",) * len(subjects), told, data, self._record)

    def records(self, start: int, end: int) -> list[Record]:
        """Return the records from position ``start`` to before ``end``."""
        return [self._record(position) for position in range(start, end)]

    def _record(self, position: int) -> Record:
        told = self.told
        start, stored_ms = int(told.start[position]), int(told.stored_ms[position])
        body = self.data[start : start + int(told.length[position])].tobytes()
        return Record(self.first_seq + position, stored_ms, self._subjects[told.who[position]], body)

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

I64 = NDArray[np.int64]
U8 = NDArray[np.uint8]


_UNKNOWN = (0, 0, 0, 0)


class Columns:
    """Records ``first_seq`` and on, ``count`` of them, as the kernel takes them.

    ``who`` numbers each record's subject in ``subjects``; ``nodes`` says beside each whose its counted heartbeats are.
    ``lists`` are places in ``data``: of the body, or, where ``counted``, of the list of runs after its bracket; ``broken``
    those of the list of broken GPUs, between its brackets (length 0: no list); and then ``at_ms`` and ``counts`` are what
    the heartbeat says. ``plain`` is False for a record that the kernel must not see. ``record`` makes the record at a
    position.
    """

    def __init__(
        self, first_seq: int, subjects: Sequence[str], nodes: Sequence[str], who: I64, stored_ms: I64, data: U8,
        record: Callable[[int], Record],
    ) -> None:  # fmt: skip
        self.first = 0  # as in a window
        self.first_seq = first_seq
        self.count = len(who)
        self.data = data
        self.record = record
        self.text = np.zeros(0, dtype=np.uint8)
        self.table = np.zeros((kernel.DOWN_LENGTH + 1, self.count), dtype=np.int64)
        self.table[kernel.STORED_MS] = stored_ms
        self._subjects, self._nodes = subjects, nodes
        self._who = who
        self._speakers = np.zeros((len(_UNKNOWN), len(subjects)), dtype=np.int64)

    def place(self, lists: I64, counts: I64, at_ms: I64, broken: I64, *, counted: I64, plain: I64) -> None:
        """Say where each record's text is (``lists``, ``broken``: starts and lengths), and what the counted ones say."""
        table = self.table
        table[kernel.START : kernel.LENGTH + 1], table[kernel.DOWN : kernel.DOWN_LENGTH + 1] = lists, broken
        table[kernel.AT_MS], table[kernel.COUNT] = at_ms, counts
        self._counted, self._plain = counted == 1, plain == 1

    def kind(self, position: int) -> int:
        """Return the kind of a record as the kernel knows it; 0 when it is not for the kernel, or its subject is not introduced."""
        return int(self.table[kernel.KIND, position])

    def introduce(self, told_of: Callable[[str, str], tuple[int, int, int, int] | None], position: int = -1) -> bool:
        """Take from ``told_of`` kind, principal's row and place in ``text`` of each subject; of one record's, if it was not known.

        Returns whether the record at ``position`` is the kernel's now.
        """
        if position < 0:
            known = [told_of(*speaker) or _UNKNOWN for speaker in zip(self._subjects, self._nodes, strict=True)]
            self._speakers = np.array(known, dtype=np.int64).reshape(len(known), len(_UNKNOWN)).T
        else:
            who = int(self._who[position])
            found = told_of(self._subjects[who], self._nodes[who])
            if not self._plain[position] or found is None or self._speakers[0, who]:
                return False
            self._speakers[:, who] = found
        table, mine = self.table, slice(None) if position < 0 else np.flatnonzero(self._who == self._who[position])
        told = self._speakers.take(self._who[mine], axis=1)
        told[0][self._counted[mine] & (told[0] == kernel.BEAT)] = kernel.COUNTED
        told[0][~self._plain[mine]] = 0
        table[kernel.KIND : kernel.SUBJECT_LENGTH + 1, mine] = told
        return position >= 0 and self.kind(position) != 0

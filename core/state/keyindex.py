"""The keys of a table as bytes, where a kernel can search them: a second, derived index beside ``Table.row_of``.

Only keys of printable ASCII up to ``NAME_BYTES`` are in it (all that the events' rules allow); a key that is not is never found
here, so whoever searches falls back to ``row_of``. Brought up to date by ``sync`` from the rows the table says were renamed.
It changes nothing in the table and is no part of a snapshot.
"""

from __future__ import annotations

import numpy as np

from apportion.core.kernels import keys, named
from apportion.core.state.table import Table


class KeyIndex:
    """``names`` and ``slots`` as the kernel takes them; valid after ``sync``, replaced by it when the table has grown."""

    def __init__(self, table: Table) -> None:
        self._table = table
        table.renamed = []
        self._start_anew()

    def sync(self) -> None:
        """Take over what changed in the table since the last call."""
        table, renamed = self._table, self._table.renamed
        if not renamed:
            return
        if table.capacity != len(self.names) or self.entered + len(renamed) > len(self.slots) // 2:
            self._start_anew()
            return
        self.entered += len(renamed)
        for row in renamed:
            keys.rename(row, _fitting(table.keys[row]), self.names, self.slots)
        renamed.clear()

    def reserve(self, count: int) -> None:
        """Bring it up to date, with room for so many names more."""
        if len(self.names) != self._table.capacity or self.entered + count + len(self._table.renamed or ()) > len(self.slots) // 2:
            self._start_anew()
        self.sync()

    def find(self, key: str) -> int | None:
        """Return the row of a key as a kernel would find it."""
        found = keys.find(key.encode(), 0, len(key.encode()), self.names, self.slots)
        return None if found < 0 else int(found)

    def _start_anew(self) -> None:
        table = self._table
        self.names = np.zeros((table.capacity, keys.NAME_BYTES), dtype=np.uint8)
        self.slots = np.zeros(1 << (8 * table.capacity - 1).bit_length(), dtype=np.int64)  # a search goes round by a mask
        self.entered = len(table.keys)  # names that took a slot, forgotten ones too
        text = np.frombuffer("\n".join(table.keys).encode(), dtype=np.uint8)
        if table.keys and named.enter(text, self.names, self.slots) != len(table.keys):
            raise ValueError(f"a key of {type(table).__name__} has a line end")
        if table.renamed is not None:
            table.renamed.clear()


def _fitting(key: str) -> bytes:
    return key.encode() if key.isascii() and len(key) < keys.NAME_BYTES else b""

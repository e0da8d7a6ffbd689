"""A few rows of a large table, in the order in which they were listed: what a cycle must look at, without a walk over the table.

Derived: whoever lists them can find them again in the table. Equal contents may have been listed in another order, so whoever
decides by them sorts them first, or does not depend on their order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

_FEW = 256  # rows that left and still take room


class Rows:
    """Rows, each once."""

    def __init__(self) -> None:
        self._rows: dict[int, None] = {}  # a dict, for its order; one that shrinks keeps its size, and is walked as if it were full
        self._left = 0

    def __iter__(self) -> Iterator[int]:
        """Walk over them in the order of listing."""
        return iter(self._rows)

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._rows)

    def add(self, row: int) -> None:
        """List a row."""
        self._rows[row] = None

    def add_all(self, rows: Iterable[int]) -> None:
        """List many."""
        self._rows.update(dict.fromkeys(rows))

    def discard(self, row: int) -> None:
        """Take a row out, if it is listed."""
        if row not in self._rows:
            return
        del self._rows[row]
        self._left += 1
        self._shrink()

    def _shrink(self) -> None:
        if self._left > _FEW + len(self._rows):
            self._rows, self._left = dict.fromkeys(list(self._rows)), 0

    def discard_all(self, rows: Iterable[int]) -> None:
        """Take many out."""
        if self._rows:
            listed, before = self._rows, len(self._rows)
            for row in rows:
                listed.pop(row, None)
            self._left += before - len(listed)
            self._shrink()

    def clear(self) -> None:
        """Take all out."""
        self._rows, self._left = {}, 0

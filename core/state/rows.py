"""A few rows of a large table, in the order in which they were listed: what a cycle must look at, without a walk over the table.

Derived: whoever lists them can find them again in the table. Equal contents may have been listed in another order, so whoever
decides by them sorts them first, or does not depend on their order. Whoever changes a long stretch of the table leaves it to who
asks next to find them again (``find_later``): until then nothing is listed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

_FEW = 256  # rows that left and still take room


class Rows:
    """Rows, each once."""

    def __init__(self) -> None:
        self._rows: dict[int, None] = {}  # a dict, for its order; one that shrinks keeps its size, and is walked as if it were full
        self._left = 0
        self._find: Callable[[], Iterable[int]] | None = None

    def __iter__(self) -> Iterator[int]:
        """Walk over them in the order of listing."""
        self._list()
        return iter(self._rows)

    def __len__(self) -> int:
        """Return how many there are."""
        self._list()
        return len(self._rows)

    def find_later(self, find: Callable[[], Iterable[int]]) -> None:
        """List again what ``find`` finds in the table, when somebody asks; what is listed or taken out until then is no matter."""
        self.clear()
        self._find = find

    def _list(self) -> None:
        if self._find is not None:
            rows = self._find()
            self.clear()
            self.add_all(rows)

    def add(self, row: int) -> None:
        """List a row."""
        if self._find is None:
            self._rows[row] = None

    def add_all(self, rows: Iterable[int]) -> None:
        """List many."""
        if self._find is None:
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
        self._rows, self._left, self._find = {}, 0, None

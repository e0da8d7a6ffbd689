"""A table: named int64 columns of equal length, rows by number, an optional unique key per row.

Rows are physical: the free list and the order in which rows are reused are part of the state, so two cores that
folded the same records hold the same row numbers. Capacity (how far arrays have grown) is not part of the state.

Writers are the fold functions only; everybody else reads columns. It must never depend on the order of a set or on
anything outside its own contents.
"""

from __future__ import annotations

import hashlib
from array import array
from operator import itemgetter
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from apportion.core.kernels import codes as code_kernels
from apportion.core.kernels import pages as page_kernels

Column = NDArray[np.int64]

_FIRST_CAPACITY = 64
MAX_INT64 = (1 << 63) - 1
PAGE_ROWS = 64  # divides every capacity
_HASH_BYTES = 32  # of a page
_FEW = 16  # keys that are hashed sooner than they are put into lines


def key_code(key: str) -> int:
    """Return 63 bits of a hash of ``key``: puts names into the digest at the price of one column."""
    return int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest(), "little") >> 1


def key_codes(keys: list[str], text: NDArray[np.uint8] | None = None) -> Column:
    """Return the same of many; ``text`` is their lines, for whoever has them."""
    if len(keys) > _FEW:
        codes = np.empty(len(keys), dtype=np.int64)
        if text is None:
            text = np.frombuffer("\n".join(keys).encode(), dtype=np.uint8)
        if code_kernels.fill(text, codes) == len(keys):
            return codes
    hashed = b"".join([hashlib.blake2b(key.encode(), digest_size=8).digest() for key in keys])
    return np.frombuffer(hashed, dtype="<i8") >> 1 & MAX_INT64


def _larger(capacity: int) -> int:
    """Return the next capacity: about twice as much, and no power of two, so that the cells of a row do not all lie in the same
    few lines of a cache.
    """
    return 2 * capacity + PAGE_ROWS


class Cells:
    """The columns of a table again, for code that touches single cells: ``cells.beat[row]`` is a Python integer.

    A cell read or written this way costs a third of what NumPy takes. A column must not be held while rows are added: a table
    that grows has new ones.
    """

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> memoryview:
            """Return a column."""


class Table:
    """Base of all tables. A subclass declares its columns as class annotations of type ``Column``."""

    key_code: Column

    def __init__(self) -> None:
        self.used = 0  # rows ever in use; free ones among them are on the free list
        self.free: list[int] = []  # reused last in, first out
        self.keys: list[str] = []  # by row; "" for a free row or a table without keys
        self.row_of: dict[str, int] = {}
        self.renamed: list[int] | None = None  # rows whose key changed, for the one key index there may be; it empties the list
        self.capacity = _FIRST_CAPACITY
        self.names: tuple[str, ...] = ("key_code", *(n for n in type(self).__annotations__ if n != "key_code"))
        self._hashed = np.zeros((0, len(self.names), PAGE_ROWS), dtype=np.int64)  # what the page hashes were taken of, by page
        self._page_hashes = bytearray()
        self.cells = Cells()
        self._lay(np.zeros((len(self.names), self.capacity), dtype=np.int64))

    def __len__(self) -> int:
        """Return the number of rows in use."""
        return self.used - len(self.free)

    def column(self, name: str) -> Column:
        """Return the used part of a column (a view)."""
        array: Column = getattr(self, name)
        return array[: self.used]

    def keys_of(self, rows: Column) -> list[str]:
        """Return the keys of many rows: they lie far apart, and a loop that does nothing else waits for several at a time."""
        return list(itemgetter(*rows.tolist())(self.keys)) if len(rows) > 1 else [self.keys[row] for row in rows.tolist()]

    def add(self, key: str = "") -> int:
        """Take a row, zeroed, under ``key`` (unique unless empty) and return its number."""
        if key and key in self.row_of:
            raise KeyError(f"{type(self).__name__}: key {key!r} exists")
        if self.free:
            row = self.free.pop()
            self.keys[row] = key
        else:
            row = self.used
            if row == self.capacity:
                self._grow(_larger(self.capacity))
            self.used += 1
            self.keys.append(key)
        if key:
            self.row_of[key] = row
            self.key_code[row] = key_code(key)
            if self.renamed is not None:
                self.renamed.append(row)
        return row

    def add_all(self, keys: list[str]) -> Column:
        """Take as many rows, in the order in which ``add`` would, each under its key; new keys, or all of them empty."""
        rows = self.coming(len(keys))
        reused = min(len(keys), len(self.free))
        self.reserve(len(keys))
        self.used += len(keys) - reused
        del self.free[len(self.free) - reused :]
        self.keys.extend(keys[reused:])
        if keys and keys[0]:
            taken: list[int] = rows.tolist()
            for row, key in zip(taken[:reused], keys[:reused], strict=True):
                self.keys[row] = key
            self.row_of.update(zip(keys, taken, strict=True))
            self.key_code[rows] = key_codes(keys)
            if self.renamed is not None:
                self.renamed.extend(taken)
        return rows

    def reserve(self, count: int) -> None:
        """Grow until so many rows can be taken without growing."""
        capacity = self.capacity
        while capacity - self.used + len(self.free) < count:
            capacity = _larger(capacity)
        if capacity > self.capacity:
            self._grow(capacity)

    def coming(self, count: int) -> Column:
        """Return the rows that the next ``count`` calls of ``add`` will take."""
        reused = min(count, len(self.free))
        free = np.array(self.free[len(self.free) - reused :], dtype=np.int64)[::-1]
        return np.concatenate((free, np.arange(self.used, self.used + count - reused, dtype=np.int64)))

    def put(self, row: int, values: dict[str, int]) -> None:
        """Write several cells of a row."""
        columns = vars(self.cells)
        for name, value in values.items():
            columns[name][row] = value

    def remove(self, row: int) -> None:
        """Give the row back; its columns are zeroed so that no old value survives in the digest."""
        key = self.keys[row]
        if key:
            del self.row_of[key]
            if self.renamed is not None:
                self.renamed.append(row)
        self.keys[row] = ""
        self.block[:, row] = 0
        self.free.append(row)

    def live_rows(self) -> list[int]:
        """Return the rows in use, ascending."""
        if not self.free:
            return list(range(self.used))
        mask = np.ones(self.used, dtype=np.bool_)
        mask[self.free] = False
        return [int(row) for row in np.flatnonzero(mask)]

    def _lay(self, block: NDArray[np.int64]) -> None:
        """Make the rows of one contiguous block the columns: few large arrays are hashed and copied faster than many small."""
        self.block = block  # all columns, in the order of ``names``; another one after the table has grown
        for position, name in enumerate(self.names):
            setattr(self, name, block[position])
            setattr(self.cells, name, block[position].data)

    def _grow(self, capacity: int) -> None:
        block = np.zeros((len(self.names), capacity), dtype=np.int64)
        block[:, : self.used] = self.block[:, : self.used]
        self._lay(block)
        self.capacity = capacity

    def physical(self) -> list[bytes]:
        """Return the bytes that identify the contents: free list, then a hash of each page of ``PAGE_ROWS`` rows.

        Naive equivalent: hash every page anew. Here a page is hashed again only if its bytes differ from those hashed last
        time, which are kept beside the hash: the result is a function of the contents alone, whatever was hashed before.
        """
        identity = array("q", [self.used, *self.free]).tobytes()
        pages, known = -(-self.used // PAGE_ROWS), len(self._page_hashes) // _HASH_BYTES
        if not pages:
            return [identity]  # most tables of most clusters are empty
        if len(self._hashed) < pages or known > pages:
            self._hashed = np.empty((self.capacity // PAGE_ROWS, len(self.names), PAGE_ROWS), dtype=np.int64)
            self._page_hashes, known = bytearray(), 0
        hashes, text, size = self._page_hashes, self._hashed.data.cast("B"), self._hashed[0].nbytes
        hashes.extend(bytes(_HASH_BYTES * (pages - known)))
        for page in page_kernels.take_changed(self.block, self._hashed, known, pages).tolist():
            digest = hashlib.sha256(text[page * size : (page + 1) * size]).digest()
            hashes[page * _HASH_BYTES : (page + 1) * _HASH_BYTES] = digest
        return [identity, bytes(hashes)]

    def copy_from(self, other: Table) -> None:
        """Replace the contents by those of another table of this kind; neither changes with the other afterwards."""
        self._lay(other.block.copy())
        self.capacity, self.used = other.capacity, other.used
        self.free, self.keys, self.row_of = list(other.free), list(other.keys), dict(other.row_of)

    def restore(self, used: int, free: list[int], keys: list[str], columns: dict[str, bytes]) -> None:
        """Replace the contents by what a snapshot holds."""
        self.used = 0
        capacity = _FIRST_CAPACITY
        while capacity < used:
            capacity = _larger(capacity)
        self._grow(capacity)
        self.used = used
        self.free = list(free)
        self.keys = list(keys)
        self.row_of = {key: row for row, key in enumerate(keys) if key}
        for name in self.names:
            getattr(self, name)[:used] = np.frombuffer(columns[name], dtype=np.int64)

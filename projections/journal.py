"""The journal: what is committed and not in its tables yet.

A commit that touches every table costs many times one that touches a single one, however few rows it carries. So most commits
are one row here, with all that they add as one blob, in the transaction of the position; now and then, and before anybody reads,
the tables are brought up in one transaction that also empties the journal. The tables therefore stand at one tick all together
(``meta.refresh``), and journal and tables hold each row exactly once between them, whenever the process dies.

Decides nothing about rows: it carries those of ``sheets`` and ``open_rows``, in their order. Must never be read by a query.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import duckdb
import msgspec

from apportion.projections.sheet import OpenRows, Row, Sheet


class Changes(NamedTuple):
    """What a commit adds: new rows per sheet, and the rows that changed or the ids of those that ended per open table."""

    last_seq: int
    rows: list[tuple[int, list[Row]]]  # number of the sheet
    open: list[list[Row | int]]

    @property
    def size(self) -> int:
        """Return the number of rows, new and changed."""
        return sum(len(rows) for _, rows in self.rows) + sum(map(len, self.open))


_decode = msgspec.msgpack.Decoder(tuple[int, list[tuple[int, list[list[Any]]]], list[list[Any]]]).decode


class Journal:
    """Sheets and open rows of a projection on their way into the tables."""

    def __init__(self, sheets: Sequence[Sheet], open_rows: Sequence[OpenRows]) -> None:
        self.sheet = Sheet("meta.journal", "last_seq", "changes")
        self._sheets = sheets
        self._open = open_rows
        self._waiting: list[list[Row]] = [[] for _ in sheets]
        self._last_seq = 0
        self.size = 0  # rows, new and changed

    def load(self, con: duckdb.DuckDBPyConnection) -> None:
        """Take up the open tables and what the journal adds to them; forget what was collected."""
        for sheet in self._sheets:
            sheet.take()
        for rows in self._open:
            rows.load(con)
        self._waiting = [[] for _ in self._sheets]
        self.size = 0
        for (blob,) in con.execute("select changes from meta.journal order by last_seq").fetchall():
            last_seq, added, changed = _decode(blob)
            self.written(Changes(last_seq, [(number, [tuple(row) for row in part]) for number, part in added], changed))
            for open_rows, part in zip(self._open, changed, strict=True):
                open_rows.apply_changes(part)

    def take(self, last_seq: int) -> Changes:
        """Return what was collected since the last call."""
        rows = [(number, sheet.take()) for number, sheet in enumerate(self._sheets) if sheet.rows]
        return Changes(last_seq, rows, [rows.take_changes() for rows in self._open])

    def write(self, con: duckdb.DuckDBPyConnection, changes: Changes) -> None:
        """Write one row, inside the caller's transaction. ``written`` must follow the commit."""
        self.sheet.write(con, [(changes.last_seq, msgspec.msgpack.encode(changes))])

    def written(self, changes: Changes) -> None:
        """Note that a ``write`` was committed."""
        self._last_seq = changes.last_seq
        self.size += changes.size
        for number, rows in changes.rows:
            self._waiting[number] += rows

    def bring_up(self, con: duckdb.DuckDBPyConnection, changes: Changes | None = None) -> None:
        """Bring the tables up, with ``changes``, inside the caller's transaction. ``brought_up`` must follow the commit."""
        added = dict(changes.rows) if changes is not None else {}
        for number, sheet in enumerate(self._sheets):
            rows = self._waiting[number] + added.get(number, [])
            if rows:
                sheet.write(con, rows)
        for open_rows in self._open:
            open_rows.refresh(con)
        con.execute("delete from meta.journal")
        con.execute("delete from meta.refresh")
        con.execute(f"insert into meta.refresh values ({changes.last_seq if changes is not None else self._last_seq})")

    def brought_up(self) -> None:
        """Note that a ``bring_up`` was committed."""
        self.size = 0
        for rows in self._waiting:
            rows.clear()
        for open_rows in self._open:
            open_rows.refreshed()

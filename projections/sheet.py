"""Rows on their way into one table: collected as tuples, written as columns.

``Sheet`` is append-only. ``OpenRows`` are the rows that are not over yet: held in memory, found by id, and brought into
their ``*_open`` table only by a refresh. ``Intervals`` is a pair of both: closing a row moves it.

Why so: a statement costs DuckDB up to a millisecond whatever it carries, so a commit must touch few tables, and most touch
only the ``journal``; and a table that stays ordered by its end needs no index.

Rows travel as NumPy columns that are made once and filled in place (see ``_Stage``).
Nothing here knows what a row means.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import duckdb
import numpy as np

Row = tuple[Any, ...]
# what an unused row holds, and the dtype of the column; lists travel as text
_EMPTY: dict[str, tuple[Any, Any]] = {"BIGINT": (0, np.int64), "BOOLEAN": (False, np.bool_), "BLOB": (b"", object)}
_TEXT: tuple[Any, Any] = ("", object)
_LIST: tuple[Any, Any] = ("[]", object)
_CAPACITIES = (32, 256, 2_048)
_IDS_PER_DELETE = 2_000


class SchemaMismatch(Exception):
    """The code that fills a table and the SQL that creates it name different columns."""


class _Stage:
    """A place in memory for up to ``capacity`` rows, and the prepared statement that inserts those in use.

    A statement that DuckDB has to plan anew costs several times what a prepared one does. This one stays planned: it has no
    parameters, and it reads the same arrays again, which are filled in place; the column ``in_use`` says how far. DuckDB finds the
    arrays by the name of the variable that holds them where the statement is prepared. Registered as a view they would change the
    catalog, and what was prepared before or in that transaction would be planned anew at each execution, without a word.
    """

    def __init__(self, table: str, described: Sequence[tuple[str, str]], capacity: int) -> None:
        self._in_use = np.zeros(capacity, dtype=np.bool_)
        self._columns: list[np.ndarray[Any, Any]] = []
        self._arrays = {"in_use": self._in_use}
        for column, kind in described:
            array = np.full(capacity, *(_LIST if kind.endswith("[]") else _EMPTY.get(kind, _TEXT)))
            self._columns.append(array)
            self._arrays[column] = array
        casts = [f"{column}::{kind}" if kind.endswith("[]") else column for column, kind in described]
        name = f"insert_{table.replace('.', '_')}_{capacity}"
        self._prepare = f"prepare {name} as insert into {table} select {', '.join(casts)} from staged_arrays where in_use"
        self._execute = f"execute {name}"
        self._prepared = False

    def insert(self, con: duckdb.DuckDBPyConnection, rows: Sequence[Row]) -> None:
        """Insert at most ``capacity`` rows."""
        count = len(rows)
        for array, values in zip(self._columns, zip(*rows, strict=True), strict=True):
            array[:count] = values
        self._in_use[:count] = True
        self._in_use[count:] = False
        if not self._prepared:
            staged_arrays = self._arrays  # noqa: F841  # read by the statement
            con.execute(self._prepare)
            self._prepared = True
        con.execute(self._execute)


class Sheet:
    """New rows of one append-only table."""

    def __init__(self, table: str, *columns: str) -> None:
        self.table = table
        self.columns = columns
        self.rows: list[Row] = []
        self.types: list[str] = []
        self._stages: dict[int, _Stage] = {}

    def bind(self, con: duckdb.DuckDBPyConnection) -> None:
        """Compare the columns with the table's. Raises ``SchemaMismatch``."""
        schema, _, name = self.table.partition(".")
        described = con.execute(
            "select column_name, data_type from duckdb_columns() where schema_name = ? and table_name = ? order by column_index",
            [schema, name],
        ).fetchall()
        if tuple(column for column, _ in described) != self.columns:
            raise SchemaMismatch(f"{self.table}: code has {self.columns}, schema has {[column for column, _ in described]}")
        self.types = [data_type for _, data_type in described]
        self._stages = {}

    def take(self) -> list[Row]:
        """Return the collected rows and start anew."""
        rows, self.rows = self.rows, []
        return rows

    def write(self, con: duckdb.DuckDBPyConnection, rows: Sequence[Row]) -> None:
        """Insert ``rows`` in their order, inside the caller's transaction."""
        for start in range(0, len(rows), _CAPACITIES[-1]):
            part = rows[start : start + _CAPACITIES[-1]]
            capacity = next(capacity for capacity in _CAPACITIES if capacity >= len(part))
            stage = self._stages.get(capacity)
            if stage is None:
                described = list(zip(self.columns, self.types, strict=True))
                stage = self._stages[capacity] = _Stage(self.table, described, capacity)
            stage.insert(con, part)


class OpenRows:
    """Rows that are not over, by id (their first column); the table of the same name is a copy as of the last refresh."""

    def __init__(self, table: str, *columns: str) -> None:
        self.sheet = Sheet(table, *columns)
        self.table = table
        self.rows: dict[int, Row] = {}
        self._stored: set[int] = set()  # ids in the SQL table
        self._unstored: dict[int, None] = {}  # ids changed since the last refresh, in order
        self._changed: dict[int, None] = {}  # ids changed since the last commit, in order

    def put(self, row: Row) -> None:
        """Add a row, or replace the one with its id."""
        self.rows[row[0]] = row
        self._unstored[row[0]] = None
        self._changed[row[0]] = None

    def drop(self, row_id: int) -> Row:
        """Remove and return a row."""
        self._unstored[row_id] = None
        self._changed[row_id] = None
        return self.rows.pop(row_id)

    def take_changes(self) -> list[Row | int]:
        """Return what changed since the last call: whole rows, or ids of rows that are gone."""
        changes: list[Row | int] = [self.rows.get(row_id, row_id) for row_id in self._changed]
        self._changed = {}
        return changes

    def apply_changes(self, changes: Iterable[Sequence[Any] | int]) -> None:
        """Repeat changes that were taken earlier (after a restart)."""
        for change in changes:
            if isinstance(change, int):
                self.rows.pop(change, None)
                self._unstored[change] = None
            else:
                self.rows[change[0]] = tuple(change)
                self._unstored[change[0]] = None

    def load(self, con: duckdb.DuckDBPyConnection) -> None:
        """Read the table as of its last refresh."""
        columns = ", ".join(f"{c}::varchar" if t.endswith("[]") else c for c, t in zip(*self.described(), strict=True))
        stored = con.execute(f"select {columns} from {self.table} order by 1").fetchall()
        self.rows = {row[0]: row for row in stored}
        self._stored = set(self.rows)
        self._unstored, self._changed = {}, {}

    def described(self) -> tuple[tuple[str, ...], list[str]]:
        """Return column names and SQL types."""
        return self.sheet.columns, self.sheet.types

    def refresh(self, con: duckdb.DuckDBPyConnection) -> None:
        """Bring the table up to date, inside the caller's transaction. ``refreshed`` must follow the commit."""
        outdated = [row_id for row_id in self._unstored if row_id in self._stored]
        key = self.sheet.columns[0]
        for start in range(0, len(outdated), _IDS_PER_DELETE):
            ids = ", ".join(map(str, outdated[start : start + _IDS_PER_DELETE]))
            con.execute(f"delete from {self.table} where {key} in ({ids})")
        self.sheet.write(con, [self.rows[row_id] for row_id in self._unstored if row_id in self.rows])

    def refreshed(self) -> None:
        """Note that the last ``refresh`` was committed."""
        for row_id in self._unstored:
            if row_id in self.rows:
                self._stored.add(row_id)
            else:
                self._stored.discard(row_id)
        self._unstored = {}


class Intervals:
    """Rows with a beginning, and later an end: ``<name>_open`` (few) and ``<name>_closed`` (append-only, in order of end).

    Ids count up from 1 in the order of opening, so they are a function of the sequence alone.
    """

    def __init__(self, name: str, columns: Sequence[str], tail: Sequence[str]) -> None:
        self.open = OpenRows(f"{name}_open", *columns)
        self.closed = Sheet(f"{name}_closed", *columns, *tail)
        self._last_id = 0

    def load(self, con: duckdb.DuckDBPyConnection) -> None:
        """Find where the ids stand; open rows are loaded by the caller, with their carried changes."""
        key = self.closed.columns[0]
        found = con.execute(f"select coalesce(max({key}), 0) from {self.closed.table}").fetchone()
        self._last_id = max([found[0] if found else 0, *self.open.rows])

    def begin(self, *values: Any) -> int:
        """Open a row; returns its id. ``values`` are the columns after the id."""
        self._last_id += 1
        self.open.put((self._last_id, *values))
        return self._last_id

    def replace(self, row: Row) -> None:
        """Change an open row."""
        self.open.put(row)

    def end(self, row_id: int, *tail: Any) -> Row:
        """Close a row; returns it as it stands in the closed table."""
        row = self.open.drop(row_id) + tail
        self.closed.rows.append(row)
        return row

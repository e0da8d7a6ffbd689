"""The file of imported history: opened, filled by the batch, and merged so that no attempt counts twice.

``History`` decides which of two rows with one key stays: the one with an end, then the later end, then the greater row in the
order of its columns. That order is total, so the outcome is the same whatever the order of imports and however a file was cut
into pieces. A commit is one transaction: an import that is interrupted leaves nothing. It never reads a log of ours.

The naive equivalent, which is the oracle of its test: keep a dictionary from key to the greatest row seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib.resources import files
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import duckdb
import numpy as np

from apportion.core.errors import ApportionError

SCHEMA_VERSION = 1
BATCH_ROWS = 50_000
KEY = ("cluster", "job", "submit_ms", "start_ms")
COLUMNS = (
    *KEY, "end_ms", "eligible_ms", "elapsed_ms", "label", "name", "user", "account", "group", "qos", "queue", "state", "exit",
    "nodes", "cpus", "gpus_milli", "gpu_type", "node_list", "line",
)  # fmt: skip  # of a row as a reader gives it
_NULLABLE = frozenset(("start_ms", "end_ms", "eligible_ms", "elapsed_ms"))
_NUMBERS = frozenset((*_NULLABLE, "submit_ms", "nodes", "cpus", "gpus_milli", "line"))
# What decides between rows of one key, most telling first; ``line`` and ``file`` last, as they say least.
_ORDER = ", ".join(
    ["end_ms is not null desc", "end_ms desc"]
    + [f'"{name}" desc nulls last' for name in (*COLUMNS[5:-1], "zone", "until_ms")]
    + ["file", "line"]
)
_ALL = ", ".join(f'"{name}"' for name in (*COLUMNS[:-1], "zone", "until_ms", "file", "line"))
_SAME = " and ".join(f"stored.{name} is not distinct from staged.{name}" for name in KEY)


class HistoryError(ApportionError):
    """The file is not one of imported history, or another program has it open."""


class FileRead(NamedTuple):
    """What is kept about a file that was imported."""

    name: str
    kind: str
    zone: str
    until_ms: int | None
    lines: int
    passed: int
    notes: str  # JSON: what was assumed, and how often
    imported_ms: int


class Merged(NamedTuple):
    """What an import changed: attempts that are new, rows that told more than the stored one, rows already known."""

    new: int
    improved: int
    known: int


class Day(NamedTuple):
    """A calendar day of a zone."""

    zone: str
    day: Any
    from_ms: int
    until_ms: int


class History:
    """One open file of imported history; a context manager."""

    def __init__(self, path: Path | None, *, read_only: bool = False) -> None:
        """Open the file, made when it is not there; None: in memory. Raises ``HistoryError``."""
        self.path = path
        try:
            if path is not None and not read_only:
                path.parent.mkdir(parents=True, exist_ok=True)
            self.con = duckdb.connect(str(path) if path is not None else ":memory:", read_only=read_only)
        except (duckdb.Error, OSError) as error:
            raise HistoryError(
                f"{path} cannot be opened: {str(error).splitlines()[0]}; is it a file of `apportion import`, or is one running?"
            ) from None
        try:
            self._check(read_only)
        except HistoryError:
            self.con.close()
            raise
        self._rows: list[Sequence[Any]] = []
        self._refusals: list[tuple[int, str]] = []
        self._attempts = 0

    def _check(self, read_only: bool) -> None:
        try:
            found = self.con.execute("select schema_version from meta.imported").fetchone()
        except duckdb.Error:
            tables = self.con.execute("select count(*) from duckdb_tables() where not internal").fetchone()
            if read_only or (tables and tables[0]):
                raise HistoryError(f"{self.path} holds no imported history; name another file with --history") from None
            text = (files("apportion.projections.imported") / "schema.sql").read_text(encoding="utf-8")
            self.con.execute("begin")
            self.con.execute(text)
            self.con.execute("insert into meta.imported values (?)", [SCHEMA_VERSION])
            self.con.execute("commit")
            return
        if found is None or found[0] != SCHEMA_VERSION:
            raise HistoryError(
                f"{self.path} was written by another version (schema {found and found[0]}, this is {SCHEMA_VERSION}); "
                "remove it and import the files again"
            )

    def __enter__(self) -> History:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.con.close()

    def begin(self) -> None:
        """Start an import; what is added from now on is kept by ``commit`` or not at all."""
        self._rows, self._refusals, self._attempts = [], [], 0
        self.con.execute("begin")
        names = ", ".join(f'"{name}"' for name in COLUMNS)
        self.con.execute(f"create or replace temp table staged as select {names} from fact.imported_job limit 0")

    def add(self, row: Sequence[Any]) -> None:
        """Take one attempt: a row in the order of ``COLUMNS``."""
        self._rows.append(row)
        self._attempts += 1
        if len(self._rows) >= BATCH_ROWS:
            self._flush()

    def refuse(self, line: int, reason: str) -> None:
        """Keep that a line could not be read."""
        self._refusals.append((line, reason))

    def roll_back(self) -> None:
        """Forget the import."""
        self.con.execute("rollback")

    def commit(self, read: FileRead, days: Iterable[Day] = ()) -> Merged:
        """Merge what was added, keep what is known about the file, and the calendar days it needs."""
        self._flush()
        number = self._one("select coalesce(max(file), 0) + 1 from dim.imported_file")
        self.con.execute(
            "insert into dim.imported_file values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [
                number,
                *read[:4],
                read.lines,
                self._attempts,
                len(self._refusals),
                read.passed,
                read.notes,
                read.imported_ms,
            ],
        )
        self._insert("fact.imported_refusal", {
            "file": np.full(len(self._refusals), number), "line": np.array([line for line, _ in self._refusals], dtype=np.int64),
            "reason": _texts([reason for _, reason in self._refusals]),
        })  # fmt: skip
        merged = self._merge(number, read)
        self._keep_days(days)
        self.con.execute("commit")
        return merged

    def span(self, zone: str) -> tuple[int, int] | None:
        """Return the first start and the last end staged or stored for a zone, None when nothing ran."""
        sql = """select min(start_ms), max(greatest(end_ms, start_ms, until_ms)) from (
            select start_ms, end_ms, null::bigint as until_ms from staged
            union all select start_ms, end_ms, until_ms from fact.imported_job where zone = ?) where start_ms is not null"""
        self._flush()
        found = self.con.execute(sql, [zone]).fetchone()
        return (int(found[0]), int(found[1])) if found and found[0] is not None else None

    def set_units(self, rows: Sequence[tuple[str, str, str, str]]) -> None:
        """Replace the organisation by (member, unit1, unit2, unit3)."""
        self.con.execute("begin")
        self.con.execute("delete from dim.imported_unit")
        columns = ("member", "unit1", "unit2", "unit3")
        self._insert("dim.imported_unit", {name: _texts([row[at] for row in rows]) for at, name in enumerate(columns)})
        self.con.execute("commit")

    def _flush(self) -> None:
        if self._rows:
            columns = list(zip(*self._rows, strict=True))
            self._insert("staged", {name: _column(name, columns[at]) for at, name in enumerate(COLUMNS)})
            self._rows = []

    def _insert(self, table: str, columns: dict[str, Any]) -> None:
        if not len(next(iter(columns.values()))):
            return
        self.con.register("_given", columns)
        names = ", ".join(f'"{name}"' for name in columns)
        self.con.execute(f"insert into {table} ({names}) select {names} from _given")
        self.con.unregister("_given")

    def _merge(self, number: int, read: FileRead) -> Merged:
        """Keep the best row of every key that was staged."""
        before = self._one("select count(*) from fact.imported_job")
        self.con.execute(
            f"""create or replace temp table winner as select {_ALL} from (
                select * , ?::varchar as zone, ?::bigint as until_ms, ?::integer as file from staged
                union all by name
                select stored.* from fact.imported_job as stored where exists (select 1 from staged where {_SAME})
            ) qualify row_number() over (partition by {", ".join(KEY)} order by {_ORDER}) = 1""",
            [read.zone, read.until_ms, number],
        )
        improved = self._one(
            f"""select count(*) from winner as staged where file = ?
            and exists (select 1 from fact.imported_job as stored where {_SAME})""",
            number,
        )
        self.con.execute(f"delete from fact.imported_job as stored where exists (select 1 from staged where {_SAME})")
        self.con.execute(
            f"insert into fact.imported_job ({_ALL}) select {_ALL} from winner order by submit_ms, cluster, job"
        )
        new = self._one("select count(*) from fact.imported_job") - before
        self.con.execute("drop table winner; drop table staged")
        return Merged(new, improved, self._attempts - new - improved)

    def _keep_days(self, days: Iterable[Day]) -> None:
        given = list(days)
        if not given:
            return
        self.con.execute(
            "delete from dim.imported_day where zone in (select unnest(?))", [sorted({day.zone for day in given})]
        )
        self._insert("dim.imported_day", {
            "zone": _texts([day.zone for day in given]),
            "day": _texts([day.day.isoformat() for day in given]),
            "from_ms": np.array([day.from_ms for day in given], dtype=np.int64),
            "until_ms": np.array([day.until_ms for day in given], dtype=np.int64),
        })  # fmt: skip

    def _one(self, sql: str, *values: Any) -> int:
        found = self.con.execute(sql, list(values) or None).fetchone()
        return int(found[0]) if found and found[0] is not None else 0


def _column(name: str, values: Sequence[Any]) -> Any:
    if name in _NULLABLE:
        mask = np.array([value is None for value in values])
        return np.ma.array(np.array([value or 0 for value in values], dtype=np.int64), mask=mask)
    return np.array(values, dtype=np.int64) if name in _NUMBERS else _texts(values)


def _texts(values: Sequence[str]) -> Any:
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column

"""Named queries: SQL files with their question as the first line, and the one way to run them.

A query answers as of one decided tick, by default the newest that can be read; ``seq`` or ``at_ms`` asks for an earlier one.
So an answer is a function of the log and of its arguments, never of the clock. The header of a file is its interface::

    -- The question, as a person would ask it?
    -- name type [default][: what it means]

``$seq`` and ``$as_of_ms`` are given to every query; a parameter without default must be given. Nothing here writes.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any, NamedTuple

import duckdb
import msgspec

from apportion.core.errors import ApportionError

JSON_COLUMNS = frozenset(("body", "command", "detail", "labels", "numbers", "pieces", "pools"))
_ALIASES = {"budget_list": "budgets", "budget_show": "budget"}
_PARAMETER = re.compile(r"^-- ([a-z_]+) (varchar|bigint|boolean)(?: ([^:]+?))?(?::\s*(.*))?$")
_NAME = re.compile(r"\$([a-z_]+)")


class QueryRefused(ApportionError):
    """A query cannot be answered as asked: unknown name or parameter, or a sequence that is not projected yet."""


class AsOf(NamedTuple):
    """The decided tick an answer holds for."""

    seq: int
    time_ms: int


class Table(NamedTuple):
    """An answer: column names, rows, and the tick it holds for."""

    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]
    as_of_seq: int
    as_of_ms: int
    types: tuple[str, ...] = ()  # SQL types of the columns

    def dicts(self) -> list[dict[str, Any]]:
        """Return the rows with their column names."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


@dataclass(frozen=True)
class Parameter:
    """One argument of a query."""

    name: str
    kind: str  # varchar | bigint | boolean
    required: bool
    default: Any = None
    meaning: str = ""


@dataclass(frozen=True)
class Query:
    """One named query."""

    name: str
    question: str
    sql: str
    parameters: dict[str, Parameter] = field(default_factory=dict)
    uses: frozenset[str] = frozenset()  # all $names in the SQL


def parse(name: str, text: str) -> Query:
    """Return a query from its file. Raises ``ValueError`` when the header is not as agreed."""
    lines = text.splitlines()
    if not lines or not lines[0].startswith("-- "):
        raise ValueError(f"query {name}: the first line must be a comment with its question")
    parameters = {}
    for line in lines[1:]:
        if not line.startswith("-- "):
            break
        found = _PARAMETER.match(line)
        if found:
            parameter, kind, default, meaning = found.groups()
            parameters[parameter] = Parameter(parameter, kind, default is None, _literal(default), meaning or "")
    kinds = {"seq": "bigint", "as_of_ms": "bigint"} | {p.name: p.kind for p in parameters.values()}
    uses = frozenset(_NAME.findall(text))
    if uses - kinds.keys() or parameters.keys() - uses:
        raise ValueError(f"query {name}: header and SQL name different parameters: {sorted(uses ^ kinds.keys())}")
    typed = _NAME.sub(lambda match: f"${match[1]}::{kinds[match[1]]}", text)
    return Query(name, lines[0][3:], typed, parameters, uses)


def _literal(text: str | None) -> Any:
    if text is None or text == "null":
        return None
    if text in ("true", "false"):
        return text == "true"
    return text[1:-1] if text.startswith("'") else int(text)


@functools.cache
def catalog() -> dict[str, Query]:
    """Return all named queries by name."""
    folder = files("apportion.projections") / "queries"
    entries = sorted((entry for entry in folder.iterdir() if entry.name.endswith(".sql")), key=lambda entry: entry.name)
    return {entry.name[:-4]: parse(entry.name[:-4], entry.read_text(encoding="utf-8")) for entry in entries}


def find(name: str) -> Query:
    """Return a query by name. Raises ``QueryRefused`` naming the ones there are."""
    query = catalog().get(_ALIASES.get(name, name))
    if query is None:
        raise QueryRefused(f"no query is called {name!r}; there are: {', '.join(sorted(catalog()))}, report")
    return query


def as_of(con: duckdb.DuckDBPyConnection, seq: int | None = None, at_ms: int | None = None) -> AsOf:
    """Return the newest readable decided tick, or the last one at or before ``seq`` or ``at_ms``.

    Raises ``QueryRefused`` when ``seq`` is beyond what can be read.
    """
    readable = _one(con, "select mart.readable_seq()")
    if seq is not None and seq > readable:
        raise QueryRefused(f"seq {seq} is not projected yet, the projection is at seq {readable}; ask `wait`, or leave it out")
    limit = readable if seq is None else seq
    if at_ms is not None:
        limit = _one(con, "select max(seq) from fact.cycle where time_ms <= $ms::bigint and seq <= $q::bigint", ms=at_ms, q=limit)
    # the newest, by two sums instead of a sort: half a million cycles are a year
    newest = "select max(seq), arg_max(time_ms, seq) from fact.cycle where seq <= $q::bigint"
    found = con.execute(newest, {"q": limit}).fetchone()
    return AsOf(*found) if found and found[0] is not None else AsOf(0, 0)


def _one(con: duckdb.DuckDBPyConnection, sql: str, **values: int) -> int:
    found = con.execute(sql, values or None).fetchone()
    return int(found[0]) if found and found[0] is not None else 0


def bind(query: Query, params: dict[str, Any]) -> dict[str, Any]:
    """Return the values of a query's parameters. Raises ``QueryRefused`` naming what is missing, unknown or of the wrong kind."""
    unknown = params.keys() - query.parameters.keys()
    if unknown:
        known = ", ".join(sorted(query.parameters)) or "none"
        raise QueryRefused(f"query {query.name} has no parameter {', '.join(sorted(unknown))}; it has: {known}")
    values = {}
    for parameter in query.parameters.values():
        value = params.get(parameter.name)
        if value is None:
            if parameter.required:
                raise QueryRefused(f"query {query.name} needs {parameter.name} ({parameter.kind})")
            value = parameter.default
        values[parameter.name] = value
        wanted = {"varchar": str, "bigint": int, "boolean": bool}[parameter.kind]
        mixed = isinstance(value, bool) and parameter.kind != "boolean"
        if value is not None and (mixed or not isinstance(value, wanted)):
            raise QueryRefused(f"query {query.name}: {parameter.name} must be {parameter.kind}, got {value!r}")
        if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
            raise QueryRefused(f"query {query.name}: {parameter.name} must be within 64 bits, got {value}")
    return values


def run_at(con: duckdb.DuckDBPyConnection, name: str, at: AsOf, params: dict[str, Any]) -> Table:
    """Run a named query for a tick found by ``as_of``, inside whatever transaction the caller has."""
    query = find(name)
    values = bind(query, params) | {"seq": at.seq, "as_of_ms": at.time_ms}
    cursor = con.execute(query.sql, {key: value for key, value in values.items() if key in query.uses})
    columns = tuple(column[0] for column in cursor.description or ())
    types = tuple(str(column[1]) for column in cursor.description or ())
    rows = [_decoded(columns, row) for row in cursor.fetchall()]
    return Table(columns, rows, at.seq, at.time_ms, types)


def _decoded(columns: tuple[str, ...], row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the row with JSON text as values."""
    return tuple(
        msgspec.json.decode(value) if column in JSON_COLUMNS and isinstance(value, str) and value[:1] in ("{", "[") else value
        for column, value in zip(columns, row, strict=True)
    )


def run(
    con: duckdb.DuckDBPyConnection, name: str, *, seq: int | None = None, at_ms: int | None = None, **params: Any
) -> Table:
    """Run a named query in a read-only transaction of its own.

    ``usage`` also takes ``by``, a list of day, pool, budget, user, kind. Raises ``QueryRefused``.
    """
    params = expanded(name, params)
    con.execute("begin transaction read only")
    try:
        return run_at(con, name, as_of(con, seq, at_ms), params)
    finally:
        con.execute("rollback")


def expanded(name: str, params: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters with shorthands written out: ``by`` of ``usage``. Raises ``QueryRefused``."""
    if name != "usage" or "by" not in params:
        return params
    params = dict(params)
    return params | _usage_by(params.pop("by"))


def _usage_by(names: Any) -> dict[str, bool]:
    known = ("day", "pool", "budget", "user", "kind")
    wanted = names.split(",") if isinstance(names, str) else list(names or ())
    unknown = [name for name in wanted if name not in known]
    if unknown:
        raise QueryRefused(f"usage cannot be split by {', '.join(map(str, unknown))}; it can by {', '.join(known)}")
    return {f"by_{name}": name in wanted for name in known}

"""The audit: questions about a projection whose answer must be an empty table.

Each check is one SQL file of ``queries/audit``: its name, its question as the first line, and rows that break it. A pure
function of the projection at its newest readable tick. It must never repair anything; an exit code and the rows are for
people. Every check is shown to see the fault it is for by a test that puts that fault into a copy.
"""

from __future__ import annotations

import functools
from importlib.resources import files
from typing import Any, NamedTuple

import duckdb

from apportion.projections import queries
from apportion.projections.queries import AsOf, Query, QueryRefused, Table

SHOWN_ROWS = 20


class Finding(NamedTuple):
    """The result of one check; it holds when ``violations`` is 0."""

    name: str
    question: str
    violations: int
    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]  # the first SHOWN_ROWS

    @property
    def holds(self) -> bool:
        """Tell whether nothing breaks the rule."""
        return self.violations == 0

    def dicts(self) -> list[dict[str, Any]]:
        """Return the shown rows with their column names."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


class Audit(NamedTuple):
    """All findings, and the tick they hold for."""

    findings: list[Finding]
    as_of: AsOf

    @property
    def failed(self) -> list[Finding]:
        """Return the findings that do not hold."""
        return [finding for finding in self.findings if not finding.holds]

    def table(self) -> Table:
        """Return the findings as rows."""
        rows: list[tuple[Any, ...]] = [(found.name, found.question, found.violations, found.dicts()) for found in self.findings]
        return Table(("check", "question", "violations", "rows"), rows, self.as_of.seq, self.as_of.time_ms)


@functools.cache
def checks() -> dict[str, Query]:
    """Return all checks by name."""
    folder = files("apportion.projections") / "queries" / "audit"
    entries = sorted((entry for entry in folder.iterdir() if entry.name.endswith(".sql")), key=lambda entry: entry.name)
    return {entry.name[:-4]: queries.parse(entry.name[:-4], entry.read_text(encoding="utf-8")) for entry in entries}


def audit(con: duckdb.DuckDBPyConnection, check: str | None = None) -> Audit:
    """Run all checks, or one, in a read-only transaction. Raises ``QueryRefused`` for an unknown name."""
    if check is not None and check not in checks():
        raise QueryRefused(f"no check is called {check!r}; there are: {', '.join(checks())}")
    con.execute("begin transaction read only")
    try:
        return audit_at(con, queries.as_of(con), check)
    finally:
        con.execute("rollback")


def audit_at(con: duckdb.DuckDBPyConnection, at: AsOf, check: str | None = None) -> Audit:
    """Run all checks, or one, inside whatever transaction the caller has."""
    chosen = [query for name, query in checks().items() if check in (None, name)]
    return Audit([_find(con, query, at) for query in chosen], at)


def _find(con: duckdb.DuckDBPyConnection, query: Query, at: AsOf) -> Finding:
    values = {key: value for key, value in (("seq", at.seq), ("as_of_ms", at.time_ms)) if key in query.uses}
    cursor = con.execute(query.sql, values or None)
    columns = tuple(column[0] for column in cursor.description or ())
    rows = cursor.fetchall()
    return Finding(query.name, query.question, len(rows), columns, rows[:SHOWN_ROWS])

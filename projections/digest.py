"""The logical digest: what a projection says, apart from how its file came to be.

Two files built from the same input differ in their bytes; their digests are equal. Per table the number of rows and the
sum of a 64-bit hash of each row, which does not depend on row order: every table carries its order in its own columns
(sequence, position, line, id). Not in it: ``meta``, which tells about commits and not about the cluster, and the server's own
stored time of a record, which is the clock of whoever played a history again; the core's time of it is in.

A pure function of the tables.
"""

from __future__ import annotations

import hashlib

import duckdb


def table_digests(con: duckdb.DuckDBPyConnection) -> dict[str, tuple[int, int]]:
    """Return table -> (rows, hash), for finding where two projections differ."""
    tables = con.execute(
        "select schema_name || '.' || table_name from duckdb_tables() where schema_name in ('raw', 'dim', 'fact') order by 1"
    ).fetchall()
    found = {}
    for (table,) in tables:
        rows = f"(select * exclude (stored_ms) from {table})" if table == "raw.event_log" else table
        row = con.execute(
            f"select count(*), coalesce(sum(md5_number_lower(t::varchar)::hugeint), 0)::varchar from {rows} as t"
        ).fetchone()
        assert row is not None
        found[table] = (int(row[0]), int(row[1]))
    return found


def digest(con: duckdb.DuckDBPyConnection) -> str:
    """Return the digest of the whole projection in hex. The ``*_open`` tables must be refreshed."""
    text = "\n".join(f"{table} {rows} {value}" for table, (rows, value) in table_digests(con).items())
    return hashlib.sha256(text.encode()).hexdigest()

"""Answers in the formats of other programs: Parquet, and Arrow's stream, of rows with named and typed columns.

Pure functions of columns, their SQL types and rows, but for the temporary file that DuckDB writes Parquet into. Integers stay
integers: a type that another program would read as a float is never chosen here. Nested values are themselves.

Parquet is DuckDB's own COPY, so it needs nothing more; Arrow needs pyarrow, the extra ``arrow``, and says so without it.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from apportion.core.errors import ApportionError

Row = Mapping[str, Any]
LINE_MAX = 64 * 1024 * 1024  # bytes of one row


class FormatMissing(ApportionError):
    """A format needs a package that is not installed."""


def write_parquet(path: Path, columns: Sequence[str], types: Sequence[str], rows: Sequence[Row]) -> int:
    """Write the rows into ``path``, whole or not at all; return its bytes. Raises ``OSError`` when it cannot be written."""
    import duckdb

    with tempfile.TemporaryDirectory(prefix="apportion-parquet-") as folder, contextlib.closing(duckdb.connect()) as con:
        lines, made = Path(folder) / "rows.jsonl", Path(folder) / "rows.parquet"
        with lines.open("wb") as out:
            for row in rows:
                out.write(msgspec.json.encode({name: row.get(name) for name in columns}) + b"\n")
        con.execute("set TimeZone = 'UTC'")
        con.execute("set preserve_insertion_order = true")
        con.execute(_select(columns, types, lines, made))
        data = made.read_bytes()
    beside = path.with_name(f".{path.name}.tmp")
    try:
        beside.write_bytes(data)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
    return len(data)


def parquet_bytes(columns: Sequence[str], types: Sequence[str], rows: Sequence[Row]) -> bytes:
    """Return the rows as one Parquet file."""
    with tempfile.TemporaryDirectory(prefix="apportion-parquet-") as folder:
        path = Path(folder) / "answer.parquet"
        write_parquet(path, columns, types, rows)
        return path.read_bytes()


def _select(columns: Sequence[str], types: Sequence[str], lines: Path, made: Path) -> str:
    """Return the COPY from JSON lines with stated types; an empty file has the columns all the same."""
    described = ", ".join(f"{_quoted(name)}: {_text(kind)}" for name, kind in zip(columns, types, strict=True))
    options = f"format = 'newline_delimited', columns = {{{described}}}, maximum_object_size = {LINE_MAX}"
    source = f"read_json({_text(str(lines))}, {options})"
    if lines.stat().st_size == 0:
        listed = ", ".join(f"null::{kind} as {_quoted(name)}" for name, kind in zip(columns, types, strict=True))
        source = f"(select {listed} limit 0)"
    return f"copy (select * from {source}) to {_text(str(made))} (format parquet, compression zstd)"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def arrow_bytes(columns: Sequence[str], types: Sequence[str], rows: Sequence[Row]) -> bytes:
    """Return the rows as one Arrow IPC stream. Raises ``FormatMissing`` without pyarrow."""
    try:
        import pyarrow
        from pyarrow import ipc, parquet
    except ImportError:
        raise FormatMissing("Arrow needs the package pyarrow, which is not installed: pip install 'apportion[arrow]'") from None
    table = parquet.read_table(pyarrow.BufferReader(parquet_bytes(columns, types, rows)))
    sink = pyarrow.BufferOutputStream()
    with ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    found: bytes = sink.getvalue().to_pybytes()
    return found


def guessed_types(columns: Sequence[str], rows: Sequence[Row]) -> list[str]:
    """Return SQL types for rows that came without: by the first value of each column that is not null."""
    found = []
    for name in columns:
        value = next((row.get(name) for row in rows if row.get(name) is not None), None)
        if isinstance(value, bool):
            found.append("BOOLEAN")
        elif isinstance(value, int):
            found.append("BIGINT")
        elif isinstance(value, float):
            found.append("DOUBLE")
        elif isinstance(value, (dict, list)):
            found.append("JSON")
        else:
            found.append("VARCHAR")
    return found

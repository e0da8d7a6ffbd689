"""Answers as Parquet and Arrow: what another program reads back is what was asked, integers and nested values included."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import msgspec
import pyarrow as pa
import pytest
from pyarrow import ipc

from apportion.adapters.projector import formats
from apportion.projections import queries
from apportion.projections.runner import Projection
from tests.projections.history import simulated

TYPES = {"n": "BIGINT", "text": "VARCHAR", "flag": "BOOLEAN", "gpus": "UTINYINT[]", "by": "MAP(VARCHAR, BIGINT)", "body": "JSON"}
ROWS: list[dict[str, Any]] = [
    {"n": 2**63 - 1, "text": "a 'quoted' \"word\"\n,", "flag": True, "gpus": [0, 7], "by": {"x": 1}, "body": {"a": [1, None]}},
    {"n": -(2**63), "text": "", "flag": False, "gpus": [], "by": {}, "body": None},
    {"n": None, "text": None, "flag": None, "gpus": None, "by": None, "body": [1]},
]


def read(path: Path) -> list[dict[str, Any]]:
    with duckdb.connect() as con:
        cursor = con.execute("select * from read_parquet(?)", [str(path)])
        names = [column[0] for column in cursor.description or ()]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def plain(row: dict[str, Any]) -> dict[str, Any]:
    """A row as Parquet carries it: JSON as its text."""
    return {**row, "body": None if row["body"] is None else msgspec.json.encode(row["body"]).decode()}


@pytest.mark.parametrize("count", [0, 1, 3])
def test_parquet_carries_rows_types_and_order(tmp_path: Path, count: int) -> None:
    path = tmp_path / "it's.parquet"
    written = formats.write_parquet(path, list(TYPES), list(TYPES.values()), ROWS[:count])

    assert written == path.stat().st_size
    assert read(path) == [plain(row) for row in ROWS[:count]]
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]
    with duckdb.connect() as con:
        described = con.execute("describe select * from read_parquet(?)", [str(path)]).fetchall()
    assert [kind for _name, kind, *_ in described] == [kind if kind != "JSON" else described[5][1] for kind in TYPES.values()]


def test_a_file_that_cannot_be_written_leaves_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "answer.parquet"
    path.mkdir()
    with pytest.raises(OSError, match="answer"):
        formats.write_parquet(path, ["n"], ["BIGINT"], [{"n": 1}])
    assert [entry.name for entry in tmp_path.iterdir()] == ["answer.parquet"]


def test_arrow_carries_the_same() -> None:
    data = formats.arrow_bytes(list(TYPES), list(TYPES.values()), ROWS)
    table = ipc.open_stream(pa.BufferReader(data)).read_all()

    assert table.schema.field("n").type == pa.int64()
    rows = table.to_pylist()
    assert [row["n"] for row in rows] == [row["n"] for row in ROWS]
    assert [row["gpus"] for row in rows] == [row["gpus"] for row in ROWS]
    assert [dict(row["by"]) if row["by"] is not None else None for row in rows] == [row["by"] for row in ROWS]


@pytest.fixture(scope="module")
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    logs = simulated(21, hours=6)
    with Projection() as projection:
        projection.ingest(logs.records, logs.batches)
        projection.refresh()
        yield projection.con


@pytest.mark.parametrize("name", ["usage", "holders", "status", "decisions", "pools", "plan"])
def test_every_kind_of_answer_can_be_written(con: duckdb.DuckDBPyConnection, tmp_path: Path, name: str) -> None:
    table = queries.run(con, name)
    path = tmp_path / "answer.parquet"
    formats.write_parquet(path, table.columns, table.types, table.dicts())
    found = read(path)

    assert len(found) == len(table.rows)
    for told, row in zip(found, table.dicts(), strict=True):
        for column, kind in zip(table.columns, table.types, strict=True):
            expected = row[column]
            if kind in ("JSON", "VARCHAR") and isinstance(expected, (dict, list)):  # JSON as its text
                assert msgspec.json.decode(told[column]) == expected
            else:
                assert told[column] == expected, column


def test_types_are_guessed_where_none_are_told() -> None:
    rows = [{"a": None, "b": True, "c": 1, "d": 0.5, "e": {}}, {"a": "x", "b": None, "c": None, "d": None, "e": None}]
    assert formats.guessed_types(list("abcdef"), rows) == ["VARCHAR", "BOOLEAN", "BIGINT", "DOUBLE", "JSON", "VARCHAR"]

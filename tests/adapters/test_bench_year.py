"""A made year is a projection like any other: what is known of one of its days holds for each, and every check holds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from apportion.adapters.bench import _year
from apportion.adapters.bench.query import run
from apportion.core.errors import ApportionError
from apportion.projections import audit, queries

DAYS = 3


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, _year.Day]]:
    path = tmp_path_factory.mktemp("year") / "year.duckdb"
    told: list[str] = []
    yield path, _year.build(path, days=DAYS, seed=5, nodes=8, demand_milli=2_200, tell=told.append)
    assert told


@pytest.fixture(scope="module")
def con(made: tuple[Path, _year.Day]) -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(str(made[0])) as con:
        yield con


def test_each_day_is_used_as_the_first_and_the_audit_finds_nothing(
    con: duckdb.DuckDBPyConnection, made: tuple[Path, _year.Day]
) -> None:
    found = audit.audit(con)
    assert [(one.name, one.rows[:2]) for one in found.failed] == []
    usage = queries.run(con, "usage", by="day,user,kind").dicts()
    days = sorted({row["day"] for row in usage})
    used = [row for row in usage if row["funded_gpu_us"] + row["unfunded_gpu_us"]]
    first, *others = ([{**row, "day": ""} for row in used if row["day"] == day] for day in days[:DAYS])
    assert len(others) == DAYS - 1
    assert first
    assert all(other == first for other in others)
    jobs = con.execute("select count(*), count(distinct workload) from fact.workload").fetchone()
    assert jobs == (made[1].jobs * DAYS, made[1].jobs * DAYS)
    assert len(queries.run(con, "certificates_unused").rows) % DAYS == 0


def test_a_year_that_does_not_pass_the_audit_measures_nothing(
    made: tuple[Path, _year.Day], monkeypatch: pytest.MonkeyPatch, con: duckdb.DuckDBPyConnection
) -> None:
    def broken(path: Path, **_options: object) -> None:
        path.write_bytes(made[0].read_bytes())
        with duckdb.connect(str(path)) as copy:
            copy.execute("update fact.ledger set amount_gpu_us = amount_gpu_us + 1 where rowid = 10")

    con.execute("checkpoint")
    monkeypatch.setattr(_year, "build", broken)
    with pytest.raises(ApportionError, match="ledger_balanced"):
        run(days=DAYS, nodes=8, rounds=1)

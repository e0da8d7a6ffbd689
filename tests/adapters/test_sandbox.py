"""Ad-hoc SQL: honest questions are answered, attacks end in an error or a kill, and the next question runs."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from apportion.adapters.projector.sandbox import Limits, Request, SandboxRefused, answer, run_sql
from apportion.projections import storage
from apportion.projections.runner import Projection
from tests.projections.history import job, opened

PATIENT = Limits(time_s=60.0)


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("published")
    story = opened()
    for number in range(30):
        story.say(job(f"w{number}"), "ann", after_ms=1_000)
    story.tick(1_000)
    with Projection(folder / "live.duckdb") as projection:
        projection.ingest(story.logs.records, story.logs.batches)
        yield storage.publish(projection, folder / "copies")


def test_questions_are_answered_with_their_tick(copy: Path) -> None:
    answer = run_sql(copy, "select budget, count(*) as jobs from fact.workload group by budget; -- by budget", PATIENT)

    assert answer.dicts() == [{"budget": "lab", "jobs": 30}]
    assert answer.as_of_seq > 0
    assert not answer.truncated


@pytest.mark.parametrize(
    "sql",
    [
        "with recursive n(i) as (select 1 union all select i + 1 from n where i < 5) select sum(i) from n",
        "explain select * from fact.workload",
        "explain analyze select count(*) from fact.workload",
        "select * from mart.budget_at((select max(seq) from fact.cycle), 0)",
        "from fact.workload select workload where principal = 'ann' limit 3",
        "select current_date, 1.5::decimal(4, 2), 'x'::blob, [1, 2], {'a': 1}, null, interval 1 day, 2::hugeint ** 100",
        "select workload, row_number() over (order by seq) from fact.workload qualify row_number() over (order by seq) < 3",
        "select table_name from information_schema.tables where table_schema = 'fact'",
        "select count(*) from range(1000)",
    ],
)
def test_plain_sql_works(copy: Path, sql: str) -> None:
    assert answer(Request(str(copy), sql, 10, PATIENT.memory_bytes, PATIENT.time_s)).columns


def test_types_that_json_does_not_have_arrive_as_text(copy: Path) -> None:
    sql = "select date '2026-01-02', 1.5::decimal(4, 2), '\\xAA'::blob, [1, 2], {'a': 1}, null, 2::hugeint ** 100"
    assert run_sql(copy, sql, PATIENT).rows == [["2026-01-02", "1.50", "qg==", [1, 2], {"a": 1}, None, float(2**100)]]


@pytest.mark.parametrize("sql", ["select 1; select 2", "select * from read_csv('/etc/passwd')", "select * from duckdb_settings()"])
def test_the_child_refuses_too(copy: Path, sql: str) -> None:
    with pytest.raises(SandboxRefused) as caught:
        run_sql(copy, sql, PATIENT)

    assert caught.value.kind == "usage", caught.value


def test_rows_are_capped_and_it_says_so(copy: Path) -> None:
    answer = run_sql(copy, "select * from range(100000)", PATIENT)

    assert (len(answer.rows), answer.truncated) == (10_000, True)


REFUSED = [
    # not one SELECT
    "select 1; select 2",
    "",
    "insert into meta.refresh values (1)",
    "delete from fact.workload",
    "update fact.workload set kind = ''",
    "drop table fact.workload",
    "create table t (a int)",
    "create temp table t as select 1",
    "create or replace temp macro m() as 1",
    "create secret (type s3)",
    "set memory_limit = '100GB'",
    "set variable x = 1",
    "reset all",
    "pragma database_list",
    "pragma enable_profiling",
    "begin",
    "commit",
    "checkpoint",
    "vacuum",
    "attach 'other.duckdb'",
    "attach ':memory:' as m",
    "detach memory",
    "use fact",
    "install httpfs",
    "load httpfs",
    "prepare p as select 1",
    "execute p",
    "call pragma_version()",
    "copy fact.workload to 'x.csv'",
    "copy (select 1) to '/dev/stdout'",
    "export database 'x'",
    "import database 'x'",
    # writing inside a SELECT
    "with x as (insert into meta.refresh values (1) returning *) select * from x",
    "with x as (delete from fact.workload returning *) select * from x",
    "select * from checkpoint('x')",
    "select * from force_checkpoint()",
    "select write_log('x')",
    "explain analyze insert into meta.refresh values (1)",
    "explain copy fact.workload to 'x.csv'",
    # files and network
    "select * from read_csv('/etc/passwd')",
    "select * from read_text('/etc/passwd')",
    "select * from read_blob('/etc/passwd')",
    "select * from read_json('/etc/passwd')",
    "select * from read_parquet('x.parquet')",
    "select * from '/etc/passwd'",
    "select * from 'x.parquet'",
    "select * from glob('/*')",
    "select * from sniff_csv('/etc/passwd')",
    "select * from parquet_metadata('x.parquet')",
    "select * from 'https://example.org/x.parquet'",
    "select * from read_duckdb('x.duckdb')",
    # about the machine
    "select * from duckdb_databases()",
    "select * from duckdb_settings()",
    "select * from duckdb_secrets()",
    "select * from pragma_database_list()",
    "select current_setting('temp_directory')",
    "select getenv('HOME')",
    "select * from DUCKDB_SETTINGS()",
    'select * from "duckdb_settings"()',
    "select * from query('select * from duckdb_settings()')",
    "select * from query_table('fact.workload')",
    "select (select count(*) from (select * from duckdb_databases()))",
    "explain analyze select * from duckdb_databases()",
    "show databases",
    "show all tables",
    "summarize fact.workload",
    # Python's variables
    "select * from sys",
    "select * from request",
    # plain mistakes
    "selec 1",
    "select * from nowhere",
    "select 1 +",
]


@pytest.mark.parametrize("sql", REFUSED)
def test_what_is_not_a_plain_question_is_refused(copy: Path, sql: str) -> None:
    """In this process, to be quick: the child does the same, and more is out of its reach."""
    request = Request(str(copy), sql, 10, PATIENT.memory_bytes, PATIENT.time_s)
    with pytest.raises(SandboxRefused) as caught:
        answer(request)

    assert caught.value.kind == "usage", caught.value
    assert str(caught.value)


@pytest.mark.parametrize(
    "sql",
    [
        "select length(repeat('x', 4000000000))",
        "select list_sum(range(2000000000))",
        "select count(*) from range(1000000) a, range(1000000) b where a.range <> b.range",
        "with recursive n(i) as (select 1 union all select i + 1 from n) select max(i) from n",
        "select string_agg(repeat('y', 1000000), '') from range(100000)",
        "select list(range) from range(1000000000)",
        "select * from range(1000000000) order by hash(range)",
    ],
)
def test_attacks_on_time_and_memory_end_at_the_deadline(copy: Path, sql: str) -> None:
    began = time.monotonic()
    with pytest.raises(SandboxRefused) as caught:
        run_sql(copy, sql, Limits(time_s=3.0))

    assert caught.value.kind in ("time", "memory", "failed", "usage")
    assert time.monotonic() - began < 60  # the kill, not the query, ends it; a loaded machine may be slow to start the child
    assert run_sql(copy, "select 1", PATIENT).rows == [[1]]


def test_no_file_is_written_and_none_but_the_copy_is_touched(copy: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in copy.parent.iterdir()}
    run_sql(copy, "select * from range(200000) order by hash(range)", PATIENT)
    with pytest.raises(SandboxRefused):
        run_sql(copy, "copy (select 1) to 'x'", PATIENT)

    assert {path: path.stat().st_mtime_ns for path in copy.parent.iterdir()} == before


def test_a_copy_that_is_gone_is_told(tmp_path: Path) -> None:
    with pytest.raises(SandboxRefused, match=r"the copy none\.duckdb cannot be opened"):
        run_sql(tmp_path / "none.duckdb", "select 1", PATIENT)


def test_an_overlong_question_is_refused_at_once(copy: Path) -> None:
    with pytest.raises(SandboxRefused, match="longer than"):
        run_sql(copy, "select " + "1," * 50_000 + "1")


def test_the_child_leaves_no_process_behind(copy: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from apportion.adapters.projector.sandbox import Limits, SandboxRefused, run_sql\n"
        "try: run_sql(Path(sys.argv[1]), 'select list_sum(range(2000000000))', Limits(time_s=0.5))\n"
        "except SandboxRefused: pass\n"
        "import os; print('done')\n"
        "try: os.waitpid(-1, 0)\n"
        "except ChildProcessError: print('no children')\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(copy)], capture_output=True, text=True, timeout=60, check=True)

    assert done.stdout.split("\n")[:2] == ["done", "no children"]

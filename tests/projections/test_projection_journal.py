"""The journal: what is committed is in it or in its table, once, whenever the process fails or dies."""

from __future__ import annotations

import pickle
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from apportion.adapters.simulation.driver import Logs
from apportion.projections import audit, runner
from apportion.projections.digest import digest
from apportion.projections.runner import Projection
from apportion.projections.sheet import Sheet
from tests.projections.history import simulated

SEED = 23
JOURNAL_ROWS = 300  # about one commit in ten brings the tables up
STEP = 3  # cycles per commit
KILLS = 6


@pytest.fixture(scope="module")
def logs() -> Logs:
    return simulated(SEED, hours=6)


@pytest.fixture(scope="module")
def whole(logs: Logs) -> str:
    with Projection() as projection:
        projection.ingest(logs.records, logs.batches)
        return projection.digest()


@pytest.fixture
def short_journal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "JOURNAL_ROWS", JOURNAL_ROWS)


def feed(projection: Projection, logs: Logs, upto: int | None = None) -> Iterator[int]:
    """Commit ``STEP`` cycles at a time from the position on; yields the number of cycles committed."""
    while projection.position.decision_seq < len(logs.batches[:upto]):
        at = projection.position
        batches = logs.batches[at.decision_seq : min(at.decision_seq + STEP, upto or len(logs.batches))]
        projection.ingest(logs.records[at.seq : batches[-1].input_seq], batches)
        yield projection.position.decision_seq


def count(con: duckdb.DuckDBPyConnection, sql: str) -> int:
    found = con.execute(sql).fetchone()
    assert found is not None
    return int(found[0])


def test_a_commit_is_in_the_journal_until_the_tables_are_brought_up(logs: Logs) -> None:
    with Projection() as projection:
        projection.ingest(logs.records, logs.batches[:20])
        projection.ingest([], logs.batches[20:40])

        assert projection.position.decision_seq == 40
        assert count(projection.con, "select count(*) from meta.journal") == 2
        assert count(projection.con, "select mart.readable_seq()") == 0
        assert count(projection.con, "select count(*) from fact.cycle") == 0

        projection.refresh()

        assert count(projection.con, "select count(*) from meta.journal") == 0
        assert count(projection.con, "select mart.readable_seq()") == logs.batches[39].input_seq
        assert count(projection.con, "select count(*) from fact.cycle") == 40
        assert count(projection.con, "select count(*) from meta.commit_log") == 2
        assert not audit.audit(projection.con).failed


@pytest.mark.usefixtures("short_journal")
def test_a_full_journal_brings_the_tables_up_with_the_commit_that_fills_it(logs: Logs, whole: str) -> None:
    longest, brought_up = 0, 0
    with Projection() as projection:
        for cycles in feed(projection, logs):
            waiting = count(projection.con, "select count(*) from meta.journal")
            tables = count(projection.con, "select coalesce(max(decision_seq), 0) from fact.cycle")
            assert (tables == cycles) if waiting == 0 else (tables < cycles)
            assert audit.audit(projection.con, "position").findings[0].holds
            brought_up += waiting == 0
            longest = max(longest, waiting)

        assert brought_up >= 5
        assert longest >= 3
        assert projection.digest() == whole


def test_the_tables_never_get_ahead_of_the_position(logs: Logs, whole: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cycles that are staged and not committed are in the open rows already; no commit before them may bring these up."""
    monkeypatch.setattr(runner, "JOURNAL_ROWS", 0)
    half = len(logs.batches) // 2
    with Projection() as projection:
        first, second = projection.stage(logs.records, logs.batches[:half]), projection.stage([], logs.batches[half:])
        assert first is not None
        assert second is not None
        projection.commit(first)
        assert count(projection.con, "select mart.readable_seq()") == 0

        projection.commit(second)

        assert count(projection.con, "select mart.readable_seq()") == second.position.seq
        assert projection.digest() == whole


@pytest.mark.usefixtures("short_journal")
@pytest.mark.parametrize("table", ["meta.journal", "raw.event_log", "fact.run_open", "meta.commit_log"])
def test_a_write_that_fails_leaves_the_position_and_is_repeated(
    table: str, logs: Logs, whole: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever statement fails, the transaction is none; the same input then gives the same tables."""
    path = tmp_path / "p.duckdb"
    write, tries, failures = Sheet.write, 0, 0

    def failing(sheet: Sheet, con: duckdb.DuckDBPyConnection, rows: Any) -> None:
        nonlocal tries, failures
        write(sheet, con, rows)
        if sheet.table == table:
            tries += 1
            if tries % 2:
                failures += 1
                raise duckdb.IOException("no space left on device")

    with Projection(path) as projection:
        while projection.position.decision_seq < len(logs.batches):
            at = projection.position
            try:
                with monkeypatch.context() as broken:
                    broken.setattr(Sheet, "write", failing)
                    staged = projection.stage(
                        logs.records[at.seq : at.seq + 400], logs.batches[at.decision_seq : at.decision_seq + STEP]
                    )
                    if staged is not None:
                        projection.commit(staged)
            except duckdb.IOException:
                projection.recover()
                assert projection.position == at

        assert failures >= 3
        assert projection.digest() == whole
        assert not audit.audit(projection.con).failed


def test_what_is_left_in_the_journal_is_found(logs: Logs) -> None:
    """A row that is in its table and in the journal would be written twice after a restart: the audit sees it before."""
    with Projection() as projection:
        projection.ingest(logs.records, logs.batches[:20])
        projection.con.execute("begin")
        projection.con.execute("create temp table kept as select * from meta.journal")
        projection.con.execute("commit")
        projection.refresh()
        assert audit.audit(projection.con, "position").findings[0].holds

        projection.con.execute("insert into meta.journal select * from kept")

        assert [row[-1] for row in audit.audit(projection.con, "position").findings[0].rows] == ["journal"]


CHILD = """
import pickle, sys
from apportion.core.envelope import Record, StoredBatch
from apportion.projections import runner

path, kept, runner.JOURNAL_ROWS, step = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
with open(kept, "rb") as file:
    records, batches = pickle.load(file)
records, batches = [Record(*record) for record in records], [StoredBatch(*batch) for batch in batches]
with runner.Projection(path) as projection:
    while True:
        print(projection.position.decision_seq, flush=True)
        at = projection.position
        answered = batches[at.decision_seq : at.decision_seq + step]
        if not answered:
            break
        projection.ingest(records[at.seq : answered[-1].input_seq], answered)
"""


def test_a_process_killed_at_any_moment_has_lost_nothing_that_it_told(logs: Logs, whole: str, tmp_path: Path) -> None:
    """Kills among commits and bring-ups; the file then stands at the last commit told or the one after it."""
    path, kept = tmp_path / "p.duckdb", tmp_path / "logs.pickle"
    kept.write_bytes(pickle.dumps(([tuple(record) for record in logs.records], [tuple(batch) for batch in logs.batches])))
    command = [sys.executable, "-c", CHILD, str(path), str(kept), str(JOURNAL_ROWS), str(STEP)]
    choose = random.Random(SEED)
    inside = 0
    for kill in range(KILLS + 1):
        child = subprocess.Popen(command, stdout=subprocess.PIPE)
        try:
            assert child.stdout is not None
            told = int(child.stdout.readline())
            stop = told + choose.randint(1, 2 * len(logs.batches) // KILLS) if kill < KILLS else len(logs.batches)
            for line in child.stdout:
                told = int(line)
                if told >= stop and kill < KILLS:
                    time.sleep(choose.uniform(0, 0.02))
                    child.kill()
            child.wait(60)
            assert (child.returncode == 0) or kill < KILLS
        finally:
            if child.poll() is None:
                child.kill()
                child.wait(30)
            if child.stdout is not None:
                child.stdout.close()
        with duckdb.connect(str(path), read_only=True) as con:
            inside += count(con, "select count(*) from meta.journal") > 0
            assert audit.audit(con, "position").findings[0].holds
        with Projection(path) as projection:
            assert told <= projection.position.decision_seq <= told + STEP
            assert not audit.audit(projection.con).failed
    assert inside, "every kill fell beside the journal"
    with duckdb.connect(str(path), read_only=True) as con:
        assert digest(con) == whole

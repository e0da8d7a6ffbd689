"""``what-if`` on a real log of a real server: the range, the table, JSON, pictures, and what is said of a wrong wish."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from apportion.adapters.bus.connection import publish_command
from apportion.adapters.bus.local import Bus
from apportion.adapters.bus.server import EmbeddedServer
from apportion.adapters.cli.main import run
from apportion.adapters.processes.home import Home
from apportion.adapters.simulation.driver import Logs
from apportion.adapters.simulation.people import CALM
from apportion.core.decisions import decode_batch
from apportion.projections.runner import Projection
from tests.simulation.worlds import Setting
from tests.whatif.past import played_logs

SETTING = Setting(32, nodes=3, hours=5, demand_milli=2_500, largest=8, habits=CALM)


async def fill(home: Home, logs: Logs) -> None:
    """Write both logs into the installation's streams."""
    async with await Bus.at_home(home, name="test", create=True) as bus:
        for begin in range(0, len(logs.records), 500):
            part = logs.records[begin : begin + 500]
            await bus.connection.write([publish_command(one.subject.encode(), b"", b"", one.body) for one in part])
        while await bus.events.last_seq() < len(logs.records):
            await asyncio.sleep(0.02)
        for batch in logs.batches:
            await bus.decisions.commit(batch.body, batch.input_seq, batch.seq - 1)


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a log and its projection, whose server is stopped."""
    home = Home.of(tmp_path_factory.mktemp("past"))
    home.ensure()
    server = EmbeddedServer(home, sync="relaxed")
    server.start()
    try:
        asyncio.run(asyncio.wait_for(fill(home, played_logs(SETTING)), 60))
    finally:
        server.stop()
    with Projection(home.projection) as projection:
        projection.ingest(played_logs(SETTING).records, played_logs(SETTING).batches)
        projection.refresh()
    return home.root


def ask(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> tuple[str, str]:
    capsys.readouterr()
    assert run(arguments) == code, capsys.readouterr()
    said = capsys.readouterr()
    return said.out, said.err


def test_a_manager_asks_what_other_shares_would_have_given(
    installation: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shares = tmp_path / "shares.toml"
    shares.write_text('[shares]\n"itp/cluster04" = "10%"\n"itp/cluster07" = "40%"\n')
    asked = ["what-if", "--dir", str(installation), "--budgets", str(shares)]

    table, err = ask(capsys, *asked, "--out", str(tmp_path / "pictures"))
    text, _err = ask(capsys, *asked, "--json")

    document: dict[str, Any] = json.loads(text)
    assert "share 35.0 % -> 10.0 %" in table
    assert "itp/cluster07" in table
    assert "as of seq" in err
    assert document["to_seq"] == len(played_logs(SETTING).records)
    by_name = {row["budget"]: row for row in document["budgets"]}
    assert by_name["itp/cluster07"]["whatif"]["funded_gpu_us"] >= by_name["itp/cluster07"]["history"]["funded_gpu_us"]
    assert {file.name for file in (tmp_path / "pictures").iterdir()} == {"held.svg", "waits.svg"}


def test_the_range_is_named_by_instants_or_records_and_calibrated(installation: Path, capsys: pytest.CaptureFixture[str]) -> None:
    logs = played_logs(SETTING)
    middle, last = logs.batches[100].input_seq, logs.batches[-40].input_seq
    begin = "2026-01-01T01:00"
    text, _err = ask(capsys, "what-if", "--dir", str(installation), "--calibrate", "--from", begin, "--to", str(last), "--json")
    document = json.loads(text)

    assert document["to_seq"] == last
    assert 0 < document["from_seq"] < middle
    assert document["nothing_changed"]["differing"] == 0
    assert document["nothing_changed"]["cycles"] > 100
    empty = ["--without", "itp/cluster04", "--from", str(last), "--to", "9"]
    _text, err = ask(capsys, "what-if", "--dir", str(installation), *empty, code=2)
    assert "is empty" in err


@pytest.mark.parametrize(
    ("wish", "said"),
    [
        ([], "nothing is changed"),
        (["--budgets", "/nowhere.toml"], "cannot read /nowhere.toml"),
        (["--policy", "h100"], "--policy 'h100' is not understood"),
        (["--set", "h100.quantum_ms=soon"], "'soon' is not a duration"),
        (["--set", "h100.quantum=1"], "there is no rule quantum"),
        (["--without", "nobody"], "'nobody' is no workload and no budget"),
        (["--submit", "gpus=1"], "budget= is missing"),
        (["--from", "yesterday", "--without", "x"], "'yesterday' is no sequence and no time"),
        (["--without", "x", "--sql", "whatif.duckdb"], "no query could tell them apart"),
        (["--without", "x", "--sql", "/proc/worlds.duckdb"], "'x' is no workload and no budget"),
        (["--without", "itp/cluster04", "--sql", "/proc/worlds.duckdb"], "--sql /proc/worlds.duckdb"),
        (["--calibrate", "--without", "x"], "--calibrate changes nothing"),
        (["--set", "h100.reservations_max=--5"], "policy of h100"),
        (["--set", "h100.reservations_max=\N{SUPERSCRIPT TWO}"], "policy of h100"),
        (["--set", "h100.=5"], "--set 'h100.=5' names no pool and rule"),
        (["--set", "h100=5"], "--set 'h100=5' names no pool and rule"),
        (["--submit", "budget=itp/cluster04,gpus=1,runs=1h,times=0"], "times=0 is outside 1 to 10,000"),
        (["--submit", "budget=itp/cluster04,gpus=1,runs=1h,times=many"], "times=many is no whole number"),
        (["--submit", "budget=itp/cluster04,gpus=1,runs=1h,at=2030-01-01"], "outside the range from 2026-01-01 00:01:00Z to"),
        (["--to", "2020-01-01", "--without", "x"], "--to 2020-01-01: the log was opened after that"),
        (["--from", "2030-01-01", "--without", "x"], "--from 2030-01-01: the log ends before that"),
        (["--from", "400000000", "--without", "x"], "--from 400,000,000 is outside"),
        (["--to", "0", "--without", "x"], "is empty"),
        (["--to", "3", "--without", "x"], "is empty; the log has records 1 to"),
    ],
)
def test_a_wrong_wish_is_told(installation: Path, capsys: pytest.CaptureFixture[str], wish: list[str], said: str) -> None:
    _out, err = ask(capsys, "what-if", "--dir", str(installation), *wish, code=2)

    assert said in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("job", "event", "said"),
    [
        ("budget=itp/cluster04,gpus=800,runs=1h", "workload.submitted of what-if-1", "24 GPUs"),
        ("budget=itp/cluster04,gpus=1,runs=1h,as=nobody", "workload.submitted of what-if-1", "nobody"),
    ],
)
def test_a_change_that_the_core_refuses_is_no_answer(
    installation: Path, capsys: pytest.CaptureFixture[str], job: str, event: str, said: str
) -> None:
    out, err = ask(capsys, "what-if", "--dir", str(installation), "--submit", job, "--json", code=1)

    error = json.loads(err)["error"]
    assert out == ""
    assert f"the core refuses the change ({event})" in error["what"]
    assert said in error["what"]
    assert error["do"]
    assert error["decision"]["type"] == "workload.rejected"


def test_a_range_that_begins_before_the_first_cycle_begins_with_it(
    installation: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["what-if", "--dir", str(installation), "--calibrate", "--from", "0", "--to", "2026-01-01T01:00", "--json"]

    document = json.loads(ask(capsys, *asked)[0])

    first = played_logs(SETTING).batches[0].input_seq
    last = max(batch.input_seq for batch in played_logs(SETTING).batches if decode_batch(batch.body).time_ms <= 1_767_229_200_000)
    assert document["from_seq"] == first
    assert document["to_seq"] >= last


def test_both_worlds_are_tables_that_one_query_joins(
    installation: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "worlds.duckdb"
    asked = ["what-if", "--dir", str(installation), "--without", "itp/cluster04", "--sql", str(file), "--json"]
    document = json.loads(ask(capsys, *asked)[0])
    accounts = {row["budget"]: row for row in document["budgets"]}
    query = (
        "select h.budget, h.funded_gpu_us as history, coalesce(w.funded_gpu_us, 0) as whatif from history.burn as h "
        "left join whatif.burn as w using (pool, budget) where h.funded_gpu_us > 0 order by 1"
    )

    rows = json.loads(ask(capsys, "sql", "--dir", str(installation), "--history", str(file), query, "--json")[0])["rows"]

    assert "whatif.run" in document["sql"]["tables"]
    assert len(rows) > 5
    other = [row for row in rows if row["budget"] != "itp/cluster04"]
    assert sum(row["whatif"] for row in other) > sum(row["history"] for row in other)
    gone = next(row for row in rows if row["budget"] == "itp/cluster04")
    assert gone["whatif"] < gone["history"]
    first_ms = document["from_ms"]
    for row in rows:  # the marts count from the first record on, the what-if from the range's first: nothing was burnt before
        for side in ("history", "whatif"):
            told = accounts[row["budget"]][side]["funded_gpu_us"]
            assert abs(row[side] - told) <= told // 50 + 60_000 * 24_000, (row, side, first_ms)
    assert not list(tmp_path.glob("*.building.*"))


def test_a_dry_run_looks_ahead(installation: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = ["--budget", "itp/cluster10", "--gpus", "1", "--expected-runtime", "1h", "--as", "itp-managers"]
    place = ["--dir", str(installation), "--pool", "h100"]

    text, _err = ask(capsys, "what-if", "submit", *place, *job, "--json", "--", "python", "train.py")
    _out, err = ask(capsys, "submit", "--dry-run", *place, *job[:2], "--gpus", "4096", *job[4:], "--", "true", code=1)

    document = json.loads(text)
    assert document["dry_run"]
    assert document["ahead"][0]["basis"] == "limits"
    assert document["ahead"][0]["placed"]["workload"] == document["event"]["data"]["workload"]
    assert "it would be refused" in err

"""Two versions of a bill, through the command line: a node that is lost after midnight gives back time of the day before."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from apportion.adapters.cli.main import run
from apportion.adapters.processes.home import Home
from apportion.adapters.statements.versions import Moment, Unexplained, versions
from apportion.core.events import BudgetGranted, NodeHeartbeat, PolicyActivated, RunFinished, RunStarted
from apportion.projections.runner import Projection
from tests.projections.history import DAY_MS, HOUR_MS, MINUTE_MS, START_MS, job, opened

HOUR_US = 3_600_000_000


@pytest.fixture(scope="module")
def lost(tmp_path_factory: pytest.TempPathFactory) -> tuple[Home, int]:
    """Two runs over a midnight, of which one is lost with its node an hour later; the sequence of midnight's cycle."""
    story = opened(nodes=2)
    story.say(PolicyActivated(pool="h100", node_loss_refund="whole_run", heartbeat_timeout_ms=5 * MINUTE_MS))
    story.say(BudgetGranted(pool="h100", budget="lab", gpu_us=1_000 * HOUR_US, reason="January"))
    story.say(job("unlucky", 8, min_runtime_ms=HOUR_MS), "ann", after_ms=22 * HOUR_MS)
    story.say(job("lucky", 8, min_runtime_ms=HOUR_MS), "ann")
    story.tick()
    state = story.core.state
    node = {name: state.node.keys[int(state.run.lead[state.run.row_of[f"{name}#1"]])] for name in ("lucky", "unlucky")}
    beats = 0

    def beat(minutes: int, *names: str) -> None:
        nonlocal beats
        for _ in range(minutes):
            beats += 1
            for name in names:
                story.say(NodeHeartbeat(node=node[name], beat=beats, runs=(f"{name}#1",)), node[name])
            story.tick(MINUTE_MS)

    for name in node:
        story.say(RunStarted(workload=name, run=1, node=node[name]), node[name])
    beat(120, "lucky", "unlucky")
    midnight = story.core.seq
    assert story.now_ms == START_MS + DAY_MS
    beat(60, "lucky", "unlucky")
    beat(8, "lucky")
    story.say(RunFinished(workload="lucky", run=1, node=node["lucky"], outcome="succeeded"), node["lucky"])
    story.tick()
    home = Home.of(tmp_path_factory.mktemp("lost")).ensure()
    with Projection(home.projection) as projection:
        projection.ingest(story.logs.records, story.logs.batches)
        projection.refresh()
    return home, midnight


def told(home: Home, capsys: pytest.CaptureFixture[str], line: str, code: int = 0) -> Any:
    assert run([*line.split(), "--dir", str(home.root), "--json"]) == code, capsys.readouterr()
    out, err = capsys.readouterr()
    return json.loads(err if code else out)


def test_a_closed_day_has_two_bills_and_the_decision_that_made_the_second(
    lost: tuple[Home, int], capsys: pytest.CaptureFixture[str]
) -> None:
    home, midnight = lost
    (bill,) = told(home, capsys, f"statement --budget lab --period 2026-01-01 --as-known {midnight}")["bills"]
    before_midnight = 8_000 * 2 * HOUR_MS

    assert bill["as_known"]["cost_gpu_us"] == 2 * before_midnight
    assert bill["now"]["cost_gpu_us"] == before_midnight
    assert bill["difference_gpu_us"] == -before_midnight
    (line,) = bill["lines"]
    assert (line["workload"], line["run"], line["user"]) == ("unlucky", 1, "ann")
    assert (line["cost_then_gpu_us"], line["cost_now_gpu_us"]) == (before_midnight, 0)
    assert (line["outcome"], line["author"], line["reason"]) == ("node_lost", "core", "node_lost")
    assert line["seq"] > midnight
    assert line["decided_ms"] > START_MS + DAY_MS + HOUR_MS
    decided = told(home, capsys, f"query decisions cycle_seq={line['seq']} type=run.closed")["rows"]
    assert any((row["position"], row["workload"]) == (line["position"], "unlucky") for row in decided)

    by_time = told(home, capsys, "statement --budget lab --period 2026-01-01 --as-known 2026-01-02T00:00")
    assert by_time["bills"] == [bill]


def test_the_statement_of_the_closed_day_stays_and_the_next_one_shows_the_refund(
    lost: tuple[Home, int], capsys: pytest.CaptureFixture[str]
) -> None:
    home, midnight = lost
    then = told(home, capsys, f"statement --budget lab --period 2026-01-01 --seq {midnight}")["statements"][0]
    now = told(home, capsys, "statement --budget lab --period 2026-01-01")["statements"][0]
    names = ("opening_gpu_us", "closing_gpu_us", "funded_gpu_us", "refunded_gpu_us", "parts")
    assert [then[name] for name in names] == [now[name] for name in names]
    after = told(home, capsys, "statement --budget lab --period 2026-01-02")["statements"][0]
    assert after["refunded_gpu_us"] > 8_000 * 3 * HOUR_MS
    assert after["opening_gpu_us"] == now["closing_gpu_us"]


def test_a_period_is_compared_as_far_as_it_was_known(lost: tuple[Home, int], capsys: pytest.CaptureFixture[str]) -> None:
    home, _midnight = lost
    (bill,) = told(home, capsys, "statement --budget lab --period this-month --as-known 2026-01-01T23:00")["bills"]
    assert bill["to_ms"] == START_MS + 23 * HOUR_MS
    assert bill["difference_gpu_us"] == -8_000 * HOUR_MS
    run(["statement", "--budget", "lab", "--as-known", "2026-01-01T23:00", "--dir", str(home.root)])
    out = capsys.readouterr().out
    assert "(what was known of the period then)" in out
    assert "checked: 57,600 - given back 28,800 = 28,800 GPU-seconds" in out


@pytest.mark.parametrize(
    ("known", "word"),
    [
        ("99999999", "not projected yet"), ("2030-01-01", "not before"), ("soon", "soon"),
        ("2025-12-01", "nothing had been decided by then"),
    ],
)
def test_a_moment_that_makes_no_sense_is_refused(
    lost: tuple[Home, int], capsys: pytest.CaptureFixture[str], known: str, word: str
) -> None:
    code = 4 if known == "99999999" else 2
    error = told(lost[0], capsys, f"statement --budget lab --period 2026-01-01 --as-known {known}", code)["error"]
    assert word in error["what"]


def test_a_statement_is_written_as_parquet(lost: tuple[Home, int], capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    import duckdb

    path = tmp_path / "statement.parquet"
    made = told(lost[0], capsys, f"statement --budget lab --period 2026-01-02 --parquet {path}")["statements"][0]
    with duckdb.connect() as con:
        rows = con.execute(f"select kind, balance_gpu_us from read_parquet('{path}')").fetchall()
    assert rows[0] == ("opening", made["opening_gpu_us"])
    assert rows[-1] == ("closing", made["closing_gpu_us"])
    assert [balance for _kind, balance in rows[1:-1]] == [line["balance_gpu_us"] for line in made["lines"]]


def test_a_difference_without_a_decision_is_never_shown() -> None:
    amounts = {"funded_gpu_us": 10, "unfunded_gpu_us": 0, "refunded_gpu_us": 0, "unfunded_refunded_gpu_us": 0, "cost_gpu_us": 10}
    row = {"workload": "w", "run": 1, "budget": "lab", "user": "ann", **amounts}
    moments = (Moment(1, 1), Moment(2, 2))
    other = {**row, "refunded_gpu_us": 4, "cost_gpu_us": 6}
    with pytest.raises(Unexplained, match="w run 1"):
        versions("lab", "h100", (0, 1), moments, ([row], [other]), [])
    with pytest.raises(Unexplained, match="audit"):
        versions("lab", "h100", (0, 1), moments, ([row], []), [])
    assert versions("lab", "h100", (0, 1), moments, ([row], [row]), []).lines == []

"""Questions about moments and names that are not there: what is said names the value, and no empty table stands for a mistake."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from apportion.adapters.cli.main import run
from apportion.adapters.processes.home import Home
from apportion.core.decisions import decode_batch
from apportion.projections.runner import Projection
from tests.projections.history import START_MS, Story, job, opened

DAY_MS = 86_400_000


def told() -> Story:
    """A job that runs, and one that waits; the last cycle a day after the first."""
    story = opened(nodes=1)
    story.say(job("first", 8), "ann")
    story.tick(60_000)
    story.say(job("second", 8), "ann")
    story.tick(DAY_MS)
    return story


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a projection as a projector left it, and no server."""
    home = Home.of(tmp_path_factory.mktemp("left"))
    home.ensure()
    logs = told().logs
    with Projection(home.projection) as projection:
        projection.ingest(logs.records, logs.batches)
        projection.refresh()
    return home.root


def ask(capsys: pytest.CaptureFixture[str], installation: Path, line: str, code: int = 0) -> tuple[str, str]:
    capsys.readouterr()
    assert run(["--dir", str(installation), *line.split()]) == code, capsys.readouterr()
    said = capsys.readouterr()
    return said.out, said.err


@pytest.mark.parametrize("line", ["share", "query holders", "queue", "why first", "job first", "usage", "status", "budget list"])
@pytest.mark.parametrize("moment", ["--at 2020-01-01", "--seq 1"])
def test_before_the_first_cycle_there_is_nothing_to_tell(
    installation: Path, capsys: pytest.CaptureFixture[str], line: str, moment: str
) -> None:
    out, err = ask(capsys, installation, f"{line} {moment}", code=2)

    assert out == ""
    assert "nothing had been decided yet at" in err
    assert "try: name a later moment" in err


def test_an_instant_beyond_the_data_is_answered_with_the_newest_and_said(
    installation: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _out, err = ask(capsys, installation, "query holders --at 2030-01-01")

    assert "note: 2030-01-01 00:00:00Z is after the newest cycle, 2026-01-02 00:01:00Z, which is shown" in err
    document = json.loads(ask(capsys, installation, "query holders --at 2030-01-01 --json")[0])
    assert document["as_of"]["time_ms"] == START_MS + 60_000 + DAY_MS
    assert "which is shown" not in ask(capsys, installation, "query holders --at 2026-01-02T00:01")[1]


@pytest.mark.parametrize(
    ("line", "said", "do"),
    [
        ("query idle_hold budget=lub", "there is no budget 'lub'", "lab"),
        ("query bill budget=lab pool=a100 from=2026-01-01 to=2026-02-01", "there is no pool 'a100'", "h100"),
        ("query holders node=n9", "there is no node 'n9'", "n1"),
        ("query job workload=furst", "there is no job 'furst'", "did you mean first"),
        ("query idle_hold since=2026", "'2026' is not a time", "--about"),
        ("query idle_hold since=2026-01-02 until=2026-01-02", "since 2026-01-02 00:00:00Z is not before until", "without it"),
        ("query bill budget=lab pool=h100 from=2026-01-03 to=2026-01-02", "from 2026-01-03 00:00:00Z is not before to", "without"),
        ("query loops within=1", "'1' is not a duration", "--about"),
        ("query decisions cycle_seq=9223372036854775808", "too large; at most 9,223,372,036,854,775,807", "--about"),
        ("query decisions cycle_seq=\N{SUPERSCRIPT TWO}", "is not a whole number", "--about"),
        ("statement --budget lab --period 2026-01 --as-known 2020-01-01", "nothing had been decided by then", "in the period"),
        ("statement --budget lab --period 2026-01 --as-known soon", "'soon' is no sequence and no time", "2026-02-01"),
    ],
)
def test_what_is_not_there_is_named(
    installation: Path, capsys: pytest.CaptureFixture[str], line: str, said: str, do: str
) -> None:
    _out, err = ask(capsys, installation, line, code=2)

    assert said in err
    assert do in err


def test_instants_in_milliseconds_and_whole_spans_are_read(installation: Path, capsys: pytest.CaptureFixture[str]) -> None:
    last = decode_batch(told().logs.batches[-1].body).time_ms
    for line in (
        "query loops within_ms=3600000", "query loops within=1h", "query idle_hold since=0", f"query idle_hold since={START_MS}",
        f"statement --budget lab --period 2026-01 --as-known {last - 1}",
    ):  # fmt: skip
        assert ask(capsys, installation, line)[0]

"""Plans, as a user who has played a few hours of a day with a service: shown, compared, judged; and the picture of the day."""

from __future__ import annotations

import csv
import io
import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from apportion.adapters.demo import realtime
from apportion.adapters.demo.play import DemoOptions, run_demo
from apportion.adapters.demo.report import lines
from apportion.adapters.processes.home import Home
from tests.e2e.user import User

HOUR_MS = 3_600_000
HOURS = 3


class Played(NamedTuple):
    """Somebody in the directory of a demo that is over, and its report."""

    user: User
    document: dict[str, Any]


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    directory = tmp_path_factory.mktemp("day") / "one"
    document = run_demo(DemoOptions(home=Home.of(directory), realtime=True, length_ms=HOURS * HOUR_MS, quiet=True))
    return Played(User(directory), document)


def test_a_plan_is_shown_as_a_chart_that_fits(played: Played) -> None:
    user = played.user
    for columns in (80, 120):
        shown = user.run("plan show", columns=columns).out.splitlines()
        assert max(map(len, shown)) <= columns
        assert shown[0].startswith("plan h100.180 of pool h100, made 2026-01-01 03:00:00Z")
        assert any(line.startswith("chat ") and line.rstrip().endswith("#") for line in shown)
        assert any(line.startswith("objective ") for line in shown)
    first = user.run("plan list --limit 1000 --json").json["rows"][-1]["plan"]
    assert user.run(f"plan show {first}").out.startswith(f"plan {first} of pool h100")


def test_scripts_get_all_of_it(played: Played) -> None:
    user = played.user
    document = user.run("plan show --json").json
    rows = list(csv.DictReader(io.StringIO(user.run("plan show --csv").out)))

    assert document["plan"]["objective"] <= document["plan"]["bound"]
    assert document["plan"]["jobs"] == sum(row["start"] >= 0 for row in document["rows"])
    assert [row["workload"] for row in rows] == [row["workload"] for row in document["rows"]]
    assert len(document["services"]) == document["plan"]["steps"] == 48
    assert user.run("plan show -o workload,start --limit 2").out.split()[:2] == ["WORKLOAD", "START"]
    assert document["as_of"]["seq"] == document["plan"]["seq"]


def test_a_plan_is_drawn(played: Played, tmp_path: Path) -> None:
    told = played.user.run("plan show --svg", str(tmp_path / "plan.svg")).out
    root = ElementTree.parse(tmp_path / "plan.svg").getroot()

    assert f"picture: {tmp_path / 'plan.svg'}" in told
    assert "services need" in (root.findtext("{http://www.w3.org/2000/svg}desc") or "")


def test_an_earlier_moment_has_its_own_plan(played: Played) -> None:
    user = played.user
    early = user.run("plan show --at 2026-01-01T01:00 --json").json

    assert early["plan"]["time_ms"] <= early["as_of"]["time_ms"] < user.run("plan show --json").json["plan"]["time_ms"]
    for line in ("plan show", "plan risk", "plan compare"):
        assert "nothing had been decided yet at seq 1" in user.run(f"{line} --seq 1", code=2).err


def test_two_plans_are_compared(played: Played) -> None:
    user = played.user
    made = [row["plan"] for row in user.run("plan list --limit 1000 --json").json["rows"]]
    last = user.run("plan compare --json").json
    far = user.run(f"plan compare {made[0]} {made[-1]} --json").json

    assert (last["old"]["plan"], last["new"]["plan"]) == (made[1], made[0])
    assert (far["old"]["plan"], far["new"]["plan"]) == (made[-1], made[0]), "the older one comes first"
    assert sum(far["changes"].values()) == len(far["rows"])
    assert far["changes"]["started"] > 0
    assert far["changes"]["new"] > 0
    text = user.run(f"plan compare {made[-1]} {made[0]}", columns=80).out
    assert text.startswith(f"plan {made[-1]} of 2026-01-01 00:")
    assert "started" in text
    assert "is the first plan of pool h100" in user.run(f"plan compare --at 2026-01-01T00:0{1}", code=1).err


def test_how_sure_a_plan_is(played: Played) -> None:
    user = played.user
    document = user.run("plan risk --json").json
    text = user.run("plan risk").out

    assert len(document["rows"]) == 48
    for row in document["rows"]:
        assert row["uncovered"] == max(0, row["needs"] - row["held"])
        assert row["median"] <= row["needs"]
    assert sum(row["uncovered"] for row in document["rows"]) == document["plan"]["unmet_gpu_steps"]
    assert len(document["idle"]) > 0
    assert "expected to idle: " in text
    assert "less is held than services need" in text


def test_what_became_of_plans_is_listed(played: Played) -> None:
    rows = played.user.run("plan list --limit 1000 --json").json["rows"]

    assert len(rows) == played.document["realtime"]["plans"]
    assert all(row["jobs_started"] <= row["jobs_due"] for row in rows)
    assert rows[-1]["steps_passed"] == 2 * HOURS - 1
    assert "WERE TO START" in played.user.run("plan list").out


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        ("plan show h100.9999", 2, "there is no plan 'h100.9999'"),
        ("plan show --pool elsewhere", 2, "there is no pool 'elsewhere'"),
        ("plan show h100.180 --pool h200", 2, "is one of pool h100"),
        ("plan compare nothing", 2, "there is no plan 'nothing'"),
        ("plan show --seq 999999999", 4, "not projected yet"),
        ("plan show --json --csv", 2, "cannot both be given"),
        ("plan show --limit 0", 2, "limit"),
    ],
)
def test_what_cannot_be_meant_is_told(played: Played, line: str, code: int, said: str) -> None:
    assert said in played.user.run(line, code=code).err


def test_the_day_ends_with_its_picture_and_its_hours(played: Played) -> None:
    document = played.document
    day = document["realtime"]
    told = realtime.lines(day)

    assert document["ok"] is True
    assert json.loads(json.dumps(document)) == document
    assert sum(row["installed_gpu_us"] for row in day["hours"]) == document["supply_gpu_us"]
    assert sum(row["idle_gpu_us"] for row in day["hours"]) == document["idle_gpu_us"]
    held = sum(row["services_gpu_us"] + row["others_gpu_us"] for row in day["hours"])
    assert held == sum(line["gpu_us"] for line in document["shares"]) + document["unfunded_gpu_us"]
    assert day["utilization_ppm"] == held * 1_000_000 // document["supply_gpu_us"]
    assert [line[:5] for line in told[2 : 2 + HOURS]] == ["00:00", "01:00", "02:00"]
    assert max(map(len, told[:-1])) <= 100
    root = ElementTree.parse(day["picture"]).getroot()
    assert Path(day["picture"]).parent == played.user.directory
    assert [one.attrib["class"] for one in root.iter("{http://www.w3.org/2000/svg}polygon")] == ["batch", "served"]
    assert not any("service chat" in line for line in lines(document)), "the usual report stays as it was"

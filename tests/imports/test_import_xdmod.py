"""Open XDMoD's own tables for a real Slurm dump: totals and daily splits, by person, PI, queue, QOS, unit, size, to 4 decimals."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

import pytest

from apportion.adapters.imports import organisation
from apportion.projections.imported.history import History
from tests.imports.reading import DATA, broken_checks, by, imported_sacct, whole

FOLDER = DATA / "xdmod-sacct"
CLUSTER = "phillips"
GPU_HOUR_US, HOUR_MS = 3_600_000_000, 3_600_000
pytestmark = pytest.mark.skipif(
    not FOLDER.is_dir(), reason=f"{FOLDER} is not there: the published dumps are no part of the project"
)
# Their realms of GPU hours, and our split. All GPUs are on phillips, so its rows are the whole of these tables.
SPLITS = {
    "person": "user", "pi": "account", "queue": "queue", "qos": "qos", "gpucount": "gpus_milli", "fieldofscience": "unit3",
    "parentscience": "unit2", "nsfdirectorate": "unit1",
}  # fmt: skip
TOTALS = {
    "total_gpu_hours": ("gpu_us", GPU_HOUR_US), "total_cpu_hours": ("cpu_ms", HOUR_MS), "total_node_hours": ("node_ms", HOUR_MS),
    "total_wallduration_hours": ("wall_ms", HOUR_MS), "total_waitduration_hours": ("wait_ms", HOUR_MS),
}  # fmt: skip


@pytest.fixture(scope="module")
def phillips() -> Iterator[History]:
    history, intake = imported_sacct(FOLDER / "sacct" / f"{CLUSTER}.log")
    assert (intake.lines, intake.attempts, intake.refused) == (4_285, 4_285, 0)
    history.set_units(organisation.units(FOLDER / "hierarchy.csv", FOLDER / "group-to-hierarchy.csv"))
    with history:
        yield history


def table(realm: str, statistic: str, kind: str) -> list[list[str]]:
    """Return the rows of one of their tables, heading first."""
    path = FOLDER / "expected" / realm / statistic / f"{kind}-reference.csv"
    lines = path.read_text(encoding="utf-8").split("---------\n")[1].splitlines()
    return list(csv.reader(lines))


def daily(realm: str, statistic: str) -> dict[str, dict[str, str]]:
    """Return their days: name -> day -> value as printed."""
    heading, *days = table(realm, statistic, "timeseries-Day")
    names = [name[1:].partition("] ")[0] for name in heading[1:]]
    return {name: {day[0]: day[at] for day in days} for at, name in enumerate(names, 1)}


def hours(amount: int, per_hour: int, digits: int = 4) -> str:
    """Return an exact integer as hours, rounded as they are printed."""
    return str((Decimal(int(amount)) / per_hour).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP))


def shown(value: str) -> str:
    """Return one of their numbers as we would print it; days without anything are a bare 0."""
    return "0.0000" if value == "0" else value


def people() -> dict[str, str]:
    """Return the names that their tables show instead of user and group ids: ``Last, First``."""
    with (FOLDER / "names.csv").open(encoding="utf-8", newline="") as text:
        return {row[0]: f"{row[2]}, {row[1]}" if row[1] else row[2] for row in csv.reader(text)}


def named(realm: str, key: str) -> str:
    if realm in ("person", "pi"):
        return people()[key]
    return str(int(key) // 1_000) if realm == "gpucount" else key


@pytest.mark.parametrize("statistic", TOTALS)
def test_totals_are_theirs(phillips: History, statistic: str) -> None:
    column, per_hour = TOTALS[statistic]
    expected = dict(table("resource", statistic, "aggregate-Month")[1:])[CLUSTER]

    assert hours(whole(phillips)[column], per_hour) == expected


@pytest.mark.parametrize("statistic", TOTALS)
def test_days_are_theirs(phillips: History, statistic: str) -> None:
    column, per_hour = TOTALS[statistic]
    ours = {day: hours(row[column], per_hour) for day, row in by(phillips, "day").items()}
    theirs = {day: shown(value) for day, value in daily("resource", statistic)[CLUSTER].items()}

    assert ours == theirs


@pytest.mark.parametrize("realm", SPLITS)
def test_gpu_hours_of_each_are_theirs(phillips: History, realm: str) -> None:
    ours = {named(realm, key): hours(row["gpu_us"], GPU_HOUR_US) for key, row in by(phillips, SPLITS[realm]).items()}
    theirs = dict(table(realm, "total_gpu_hours", "aggregate-Month")[1:])

    assert ours.items() <= theirs.items()
    assert {name for name, value in theirs.items() if value != "0.0000"} <= ours.keys()


@pytest.mark.parametrize("realm", SPLITS)
def test_days_of_each_are_theirs(phillips: History, realm: str) -> None:
    theirs = {
        name: {day: shown(value) for day, value in days.items()}
        for name, days in daily(realm, "total_gpu_hours").items()
    }
    ours: dict[str, dict[str, str]] = {}
    for (day, key), row in by(phillips, "day", SPLITS[realm]).items():
        ours.setdefault(named(realm, key), {})[day] = hours(row["gpu_us"], GPU_HOUR_US)

    for name, days in ours.items():
        assert days.items() <= theirs[name].items()
    held = {(name, day) for name, days in theirs.items() for day, value in days.items() if value != "0.0000"}
    assert held <= {(name, day) for name, days in ours.items() for day in days}


def counted(history: History, condition: str) -> dict[str, int]:
    """Return how many parts of attempts meet a condition, by day; their counts are of jobs that ran on that day."""
    sql = f"""select day, count(*) filter (where {condition}) from mart.imported_usage(0, 4398046511104) as u
        join (select day, from_ms, until_ms from dim.imported_day) using (day) group by day order by day"""
    return {str(day): found for day, found in history.con.execute(sql).fetchall()}


@pytest.mark.parametrize(
    ("statistic", "condition"),
    [("running_job_count", "true"), ("started_job_count", "began"), ("job_count", "over"),
     ("submitted_job_count", "submit_ms >= from_ms and submit_ms < u.part_until_ms + 1")],
)  # fmt: skip
def test_counts_of_days_are_theirs(phillips: History, statistic: str, condition: str) -> None:
    theirs = {day: int(value) for day, value in daily("resource", statistic)[CLUSTER].items()}

    assert counted(phillips, condition) == theirs


def test_waits_per_job_are_theirs(phillips: History) -> None:
    started = counted(phillips, "began")
    ours = {day: row["wait_ms"] for day, row in by(phillips, "day").items()}
    theirs = daily("resource", "avg_waitduration_hours")[CLUSTER]
    mean = {row[0]: row[1] for row in table("resource", "avg_waitduration_hours", "aggregate-Month")[1:]}[CLUSTER]

    assert hours(whole(phillips)["wait_ms"], HOUR_MS * 4_046, 8) == mean
    for day, value in theirs.items():
        if started[day] and Decimal(value):
            assert hours(ours[day], HOUR_MS * started[day], 8) == value


def test_the_rule_of_attempts_that_never_ran(phillips: History) -> None:
    kinds: dict[str, Any] = dict(
        phillips.con.execute("select kind, count(*) from mart.imported_attempt group by kind").fetchall()
    )

    assert kinds == {"ran": 4_046, "never ran": 239}
    assert broken_checks(phillips) == []


@pytest.mark.skipif(
    not (FOLDER / "sacct" / "pozidriv.log").is_file(), reason="pozidriv.log is not among the published dumps at hand"
)
def test_pozidriv_is_theirs() -> None:
    history, intake = imported_sacct(FOLDER / "sacct" / "pozidriv.log")
    with history:
        total = whole(history)
        assert intake.refused == 0
        assert total["attempts"] == 11_285
        for statistic, (column, per_hour) in TOTALS.items():
            assert (
                hours(total[column], per_hour) == dict(table("resource", statistic, "aggregate-Month")[1:])["pozidriv"]
            )

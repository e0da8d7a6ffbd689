"""Published and live records that we did not write: the SDSC Blue Horizon log, a live Slurm, its share tree."""

from __future__ import annotations

import csv
import gzip
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest

from apportion.adapters.imports.budgets import formats
from apportion.adapters.imports.budgets.tree import lines
from apportion.adapters.imports.instants import Zone
from tests.imports.reading import DATA, broken_checks, by, imported_sacct, imported_swf, whole

BLUE = DATA / "pwa-swf" / "SDSC-BLUE-2000-4.2-cln.swf.gz"
SAMPLES = DATA / "slurm-samples"
needs_blue = pytest.mark.skipif(not BLUE.is_file(), reason=f"{BLUE} is not there: the log is no part of the project")
needs_samples = pytest.mark.skipif(not SAMPLES.is_dir(), reason=f"{SAMPLES} is not there")


@needs_blue
def test_the_blue_horizon_log_adds_up_to_its_own_header_and_columns() -> None:
    with gzip.open(BLUE, "rt", encoding="utf-8", errors="replace") as text:
        jobs = [[float(word) for word in line.split()] for line in text if line.strip() and not line.startswith(";")]
    held_s = sum(int(job[3]) * int(job[4] if job[4] >= 0 else job[7]) for job in jobs if job[3] > 0)

    history, intake, header = imported_swf(BLUE, "blue")
    with history:
        total = whole(history)
        ran = sum(1 for job in jobs if job[3] >= 0)

        assert intake.attempts == header.number("MaxRecords") == len(jobs) == 243_306
        assert intake.refused == 0
        assert total["attempts"] == ran
        assert total["cpu_ms"] == held_s * 1_000
        assert total["wall_ms"] == sum(int(job[3]) for job in jobs if job[3] > 0) * 1_000
        assert total["wait_ms"] == sum(int(job[2]) for job in jobs if job[3] >= 0) * 1_000
        users = by(history, "user")
        assert len({int(job[11]) for job in jobs}) == 468
        assert len(users) == len({int(job[11]) for job in jobs if job[3] >= 0})
        assert {int(user): row["attempts"] for user, row in users.items()} == Counter(
            int(job[11]) for job in jobs if job[3] >= 0
        )
        assert sum(row["cpu_ms"] for row in by(history, "day", "queue").values()) == total["cpu_ms"]
        assert broken_checks(history) == []


@needs_blue
def test_days_of_the_blue_horizon_fit_into_the_machine() -> None:
    """1,152 processors. The log itself overfills three of its 974 days, in May 2002, by 3.2 % at most; splitting must add none."""
    history, _, header = imported_swf(BLUE, "blue")
    processors = header.number("MaxProcs")
    with history:
        lengths = {
            str(day): length
            for day, length in history.con.execute("select day, until_ms - from_ms from dim.imported_day").fetchall()
        }
        held = {day: row["cpu_ms"] / lengths[day] for day, row in by(history, "day").items()}

    assert header.zone == "US/Pacific"
    assert {23 * 3_600_000, 24 * 3_600_000, 25 * 3_600_000} == set(lengths.values())
    assert processors == 1_152
    assert sorted(day for day, used in held.items() if used > processors) == ["2002-05-01", "2002-05-04", "2002-05-11"]
    assert max(held.values()) <= processors * 1.04


def rows_of(path: Path) -> list[dict[str, str]]:
    """Return the rows of a table with bars between fields."""
    with path.open(encoding="utf-8", newline="") as text:
        kept = [line for line in text if "|" in line]
    return list(csv.DictReader(kept, delimiter="|", quoting=csv.QUOTE_NONE))


@needs_samples
def test_gpu_time_is_what_slurm_says_elapsed_of_each_attempt() -> None:
    """``ElapsedRaw`` is Slurm's own count of seconds of each row; the attempts of arrays, requeued ones included."""
    rows = rows_of(SAMPLES / "sacct_wide.psv")
    expected: Counter[str] = Counter()
    for row in rows:
        gpus = 8 if "gres/gpu=8" in row["AllocTRES"] else 0
        expected[row["Account"]] += int(row["ElapsedRaw"]) * gpus * 1_000_000 if row["Start"] != "None" else 0

    history, intake = imported_sacct(SAMPLES / "sacct_wide.psv")
    with history:
        assert (intake.attempts, intake.refused) == (len(rows), 0)
        assert {account: row["gpu_us"] for account, row in by(history, "account").items()} == {
            account: amount for account, amount in expected.items() if amount
        }
        assert broken_checks(history) == []


@needs_samples
def test_gpu_time_of_accounts_is_within_slurms_own_report() -> None:
    """The report covers 12:00 to 14:00 of all jobs, in whole minutes; the dump at hand is a part of them: never more than it."""
    since, until = (int(datetime(2026, 11, 29, hour, tzinfo=UTC).timestamp()) * 1_000 for hour in (12, 14))
    reported = {
        row["Account"]: int(row["Used"].partition("(")[0])
        for row in rows_of(SAMPLES / "sreport_account.psv")
        if row.get("TRES Name") == "gres/gpu" and not row["Login"]
    }
    history, _ = imported_sacct(SAMPLES / "sacct_wide.psv", Zone("UTC"))
    with history:
        ours = {
            account: row["gpu_us"] for account, row in by(history, "account", since_ms=since, until_ms=until).items()
        }
        dumped_rows = len(rows_of(SAMPLES / "sacct_wide.psv"))

    assert ours["vision"] > 0
    for account, gpu_us in ours.items():
        minutes = (int(gpu_us) + 30_000_000_000) // 60_000_000_000 if dumped_rows else 0
        assert minutes <= reported[account]


@needs_samples
def test_the_share_tree_is_what_sshare_shows() -> None:
    """``NormShares`` of sshare: every account's part of its parent."""
    tree = formats.parse((SAMPLES / "sacctmgr_dump.cfg").read_text(encoding="utf-8"))
    ours = {line.path.rpartition("/")[2]: line.share_ppm for line in lines(tree)}
    theirs = {
        row["Account"].strip(): round(float(row["NormShares"]) * 1_000_000)
        for row in rows_of(SAMPLES / "sshare_l.psv")
        if not row["User"] and row["Account"] != "root"
    }

    assert ours.keys() == theirs.keys()
    assert all(abs(ours[name] - theirs[name]) <= 1 for name in ours)

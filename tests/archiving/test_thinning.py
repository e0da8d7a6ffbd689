"""Snapshots are taken out of an archive by a stated rule, and everything that is made from it stays what it was."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

import pytest

from apportion.adapters.archiving import thinning
from apportion.adapters.archiving.checking import findings
from apportion.adapters.archiving.thinning import thin, to_thin
from apportion.adapters.archiving.writing import write
from apportion.adapters.cli.main import run
from apportion.adapters.logs.archive import ArchiveDecisionLog, ArchiveEventLog
from apportion.adapters.logs.manifest import DayEntry, FileEntry, Manifest, load
from apportion.adapters.logs.memory import MemoryDecisionLog, MemoryEventLog
from apportion.adapters.past.replaying import state_at
from apportion.adapters.past.snapshots import ARCHIVED, DiskSnapshots
from tests.archived import played


def days(count: int, first: str = "2026-01-28") -> list[DayEntry]:
    begin = datetime.date.fromisoformat(first)
    return [
        DayEntry(
            day=str(begin + datetime.timedelta(days=number)), sealed=number < count - 1, first_seq=10 * number + 1,
            last_seq=10 * number + 10, last_ms=0, stated=False, cycles=1, last_decision=number + 1,
            snapshot=FileEntry(f"snapshots/{number}", 5, "x"),
        )
        for number in range(count)
    ]  # fmt: skip


def names(entries: list[DayEntry]) -> list[str]:
    return [entry.day[5:] for entry in entries]


def test_the_newest_stay_and_the_first_of_each_period_before_them() -> None:
    some = days(12)  # 01-28, a Wednesday, to 02-08; the last is open
    assert names(to_thin(some, 3, "month")) == ["01-29", "01-30", "01-31", "02-02", "02-03", "02-04"]
    assert names(to_thin(some, 3, "week")) == ["01-29", "01-30", "01-31", "02-01", "02-03", "02-04"]
    assert names(to_thin(some, 9, "month")) == ["01-29"]
    assert to_thin(some, 11, "month") == []
    assert to_thin(some, 0, "month") == to_thin(some, 2, "month"), "the next cut is proved by two"
    assert to_thin([], 2, "month") == []


def test_what_a_cut_was_made_by_stays() -> None:
    some = days(12)
    named = {some[1].last_seq, some[6].last_seq}  # cut after 01-29, archived up to 02-03
    assert names(to_thin(some, 3, "month", named)) == ["01-30", "01-31", "02-04"]


def test_where_the_first_of_a_period_has_none_the_next_that_has_one_stays() -> None:
    some = days(12)
    some[4] = thinning._without(some[4])  # 02-01
    assert names(to_thin(some, 3, "month")) == ["01-29", "01-30", "01-31", "02-03", "02-04"]
    left = [entry if entry.day[5:] not in names(to_thin(some, 3, "month")) else thinning._without(entry) for entry in some]
    assert to_thin(left, 3, "month") == [], "thinned again, nothing more goes"


@pytest.fixture
def archive(tmp_path: Path, run_async: Any) -> Path:
    """An archive of five days that are over."""
    history = played(5, rough=False, hours=124)
    events, decisions = MemoryEventLog(), MemoryDecisionLog()
    events._records, decisions._batches = history.records, history.batches
    run_async(write(events, decisions, tmp_path / "archive"))
    assert len(load(tmp_path / "archive").sealed) >= 5
    return tmp_path / "archive"


def kept(archive: Path) -> list[int]:
    return DiskSnapshots(archive / ARCHIVED).seqs()


def asked(capfd: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    capfd.readouterr()
    assert run([*words, "--json"]) == 0, capfd.readouterr().err
    document: dict[str, Any] = json.loads(capfd.readouterr().out)
    return document


def test_a_thinned_archive_is_whole_and_tells_the_same(archive: Path, run_async: Any, capfd: pytest.CaptureFixture[str]) -> None:
    before = load(archive)
    inside = [(entry.first_seq + entry.last_seq) // 2 for entry in before.sealed]
    thin_words = ["archive", "thin", str(archive), "--keep", "2", "--dir", str(archive)]

    def replays() -> list[str]:
        return [str(asked(capfd, "replay", "--dir", str(archive), "--seq", str(seq))["digest"]) for seq in inside]

    digests, all_kept = replays(), kept(archive)
    would = asked(capfd, *thin_words, "--dry-run")
    assert (load(archive), kept(archive), would["freed_bytes"]) == (before, all_kept, 0)

    done = asked(capfd, *thin_words)
    assert done["freed_bytes"] == would["bytes"] > 0
    wanted = to_thin(before.days, 2, "month")
    assert [row["day"] for row in done["thinned"]] == [entry.day for entry in wanted] != []
    assert kept(archive) == [seq for seq in all_kept if seq not in {entry.last_seq for entry in wanted}]
    assert findings(archive) == []
    assert replays() == digests
    assert asked(capfd, "verify", "--dir", str(archive), "--workers", "1")["ok"] is True
    for entry in wanted:
        core = run_async(state_at(ArchiveEventLog(archive), ArchiveDecisionLog(archive), entry.last_seq))
        assert core.digest() == entry.digest, "what was taken away can be made again"
    again = asked(capfd, *thin_words)
    assert (again["thinned"], again["freed_bytes"]) == ([], 0)


def test_one_that_was_killed_is_finished_by_the_next(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted, all_kept = to_thin(load(archive).days, 2, "month"), kept(archive)

    def killed(_directory: Path, _days: object) -> int:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(thinning, "_sweep", killed)
        with pytest.raises(KeyboardInterrupt):
            thin(archive, wanted)
    assert findings(archive) == [], "the manifest names no file that may be gone"
    assert kept(archive) == all_kept
    assert thin(archive, []) > 0
    assert kept(archive) == [seq for seq in all_kept if seq not in {entry.last_seq for entry in wanted}]


def test_a_manifest_that_cannot_be_written_takes_nothing_away(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_self: Manifest, _directory: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Manifest, "save", full)
    all_kept = kept(archive)
    with pytest.raises(OSError, match="No space"):
        thin(archive, to_thin(load(archive).days, 2, "month"))
    assert kept(archive) == all_kept

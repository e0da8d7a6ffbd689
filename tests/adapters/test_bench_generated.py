"""The archive of the measurements: going on with one gives the bytes of one that was never interrupted; another play is refused."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from apportion.adapters.bench.generated import ArchiveRefused, archive_of
from apportion.adapters.logs.manifest import Manifest, load
from apportion.adapters.past.snapshots import ARCHIVED

SETTING = {"nodes": 4, "beat_s": 300, "seed": 3}


def _forget_after(directory: Path, days: int) -> None:
    """Leave what a play has written that was stopped in the day after these: later files, but no line in the manifest."""
    Manifest(days=load(directory).days[:days]).save(directory)


def test_a_play_that_was_stopped_goes_on_as_if_it_had_not(tmp_path: Path) -> None:
    with archive_of(str(tmp_path / "whole"), 3, **SETTING) as whole:
        wanted = load(whole)
    shutil.copytree(whole, tmp_path / "stopped")
    _forget_after(tmp_path / "stopped", 1)
    for last in wanted.days[1:]:
        assert last.snapshot is not None
        (tmp_path / "stopped" / last.snapshot.name).unlink()

    with archive_of(str(tmp_path / "stopped"), 3, **SETTING) as stopped:
        assert load(stopped) == wanted
        kept = sorted(path.relative_to(stopped) for path in stopped.rglob("*.*"))
    assert kept == sorted(path.relative_to(whole) for path in whole.rglob("*.*"))
    for name in kept:
        assert (tmp_path / "stopped" / name).read_bytes() == (whole / name).read_bytes(), name


def test_days_of_another_play_are_not_gone_on_with(tmp_path: Path) -> None:
    with archive_of(str(tmp_path), 1, **SETTING):
        before = sorted(path.name for path in tmp_path.rglob("*"))
    with pytest.raises(ArchiveRefused, match=r"another play: what it has up to seq [0-9,]+ ends here at seq [0-9,]+"):
        archive_of(str(tmp_path), 2, **{**SETTING, "seed": 4}).__enter__()
    assert sorted(path.name for path in tmp_path.rglob("*")) == before


def test_a_day_without_its_state_is_named(tmp_path: Path) -> None:
    with archive_of(str(tmp_path), 1, **SETTING):
        shutil.rmtree(tmp_path / ARCHIVED)
    with pytest.raises(ArchiveRefused, match="lacks the state at the end of 2026-01-01"):
        archive_of(str(tmp_path), 2, **SETTING).__enter__()

"""What long commands say of how far they are, as lines on stderr."""

from __future__ import annotations

import pytest

from apportion.adapters.cli import showing
from apportion.adapters.past.driving import Progress


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return what the clock says, to be changed."""
    now = [1_000.0]
    monkeypatch.setattr(showing.time, "monotonic", lambda: now[0])
    return now


def test_the_part_that_is_done_is_of_the_work_and_not_of_the_log(clock: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    with showing.progress("verify") as show:
        clock[0] += 10
        show(Progress(last_seq=1_000, seq=900, events=0))
        clock[0] += 10
        show(Progress(last_seq=1_000, seq=950, events=50))
    begun, half = capsys.readouterr().err.splitlines()

    assert begun.split() == ["verify", "0", "%", "begins", "0", "events/s", "seq", "900"]
    assert half.split() == ["verify", "50", "%", "begins", "2", "events/s", "20s", "left", "seq", "950"]


def test_nobody_is_told_how_long_it_takes_before_anything_is_done(clock: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    with showing.counting("looking ahead", "hours") as show:
        clock[0] += 34
        show(0, 72)
        clock[0] += 6
        show(24, 72)
    begun, later = capsys.readouterr().err.splitlines()

    assert begun.strip() == "looking ahead   0 %  0 of 72 hours"
    assert later.strip() == "looking ahead  33 %  24 of 72 hours  1m 20s left"

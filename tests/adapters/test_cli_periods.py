"""Periods as people write them, relative to the data and never to the clock."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apportion.adapters.cli.periods import period_of


def at(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * 1_000


NOW = at("2026-03-31T12:00:00")


@pytest.mark.parametrize(
    ("text", "first", "after"),
    [
        ("2026-11", "2026-11-01", "2026-12-01"),
        ("2026-12", "2026-12-01", "2027-01-01"),
        ("2026-Q4", "2026-10-01", "2027-01-01"),
        ("2026-q1", "2026-01-01", "2026-04-01"),
        ("2024", "2024-01-01", "2025-01-01"),
        ("2024-02", "2024-02-01", "2024-03-01"),
        ("2026-11-03", "2026-11-03", "2026-11-04"),
        ("2026-11-03..2026-11-10", "2026-11-03", "2026-11-11"),
        ("2026-11-03T06:00..2026-11-03T18:30", "2026-11-03T06:00", "2026-11-03T18:30"),
        ("2026-11-03..2026-11-10T12:00", "2026-11-03", "2026-11-10T12:00"),
        ("last-month", "2026-02-01", "2026-03-01"),
        ("this-month", "2026-03-01", "2026-04-01"),
        (" Last-Month ", "2026-02-01", "2026-03-01"),
    ],
)
def test_what_people_write(text: str, first: str, after: str) -> None:
    assert period_of(text, NOW) == (at(first), at(after))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "november",
        "2026-13",
        "2026-Q5",
        "2026-11-31",
        "..",
        "2026-11-03..",
        "2026-11-10..2026-11-03",
        "0000",
        "9999",
    ],
)
def test_what_is_not_a_period_says_so_with_the_forms(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a period; write 2026-11|ends before it begins|outside the calendar"):
        period_of(text, NOW)


@given(st.integers(at("1980-01-01"), at("2090-01-01")))
def test_months_meet_without_a_gap(now_ms: int) -> None:
    this, last = period_of("this-month", now_ms), period_of("last-month", now_ms)

    assert last.from_ms < last.to_ms == this.from_ms <= now_ms < this.to_ms

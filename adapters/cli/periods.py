"""Reading a period as people write it: a day, month, quarter, year, two dates, or one counted back from the data.

A pure function of the text and of the moment the data holds for, never of the clock: ``last-month`` is the month before that
moment. Periods are in UTC, begin with their first millisecond and end before the first of what follows.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from apportion.adapters.cli.arguments import instant_ms

FORMS = "2026-11, 2026-Q4, 2026, 2026-11-03, 2026-11-03..2026-11-10 (both days included), this-month or last-month"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY = re.compile(r"\d{4}-\d\d-\d\d")


class Period(NamedTuple):
    """From an instant up to another, which is not included."""

    from_ms: int
    to_ms: int


def period_of(text: str, now_ms: int) -> Period:
    """Return the period that ``text`` names. Raises ``ValueError`` with the forms there are."""
    compact = text.strip().lower()
    found: Period | None = None
    if compact in ("this-month", "last-month"):
        now = _EPOCH + timedelta(milliseconds=now_ms)
        month = now.year * 12 + now.month - 1 - (compact == "last-month")
        found = _months(month, 1)
    elif match := re.fullmatch(r"(\d{4})", compact):
        found = _months(int(match[1]) * 12, 12)
    elif match := re.fullmatch(r"(\d{4})-q([1-4])", compact):
        found = _months(int(match[1]) * 12 + 3 * (int(match[2]) - 1), 3)
    elif match := re.fullmatch(r"(\d{4})-(0[1-9]|1[0-2])", compact):
        found = _months(int(match[1]) * 12 + int(match[2]) - 1, 1)
    elif ".." in compact:
        first, _, last = text.strip().partition("..")
        found = Period(_instant(first, text), _instant(last, text, after=True))
    elif _DAY.fullmatch(compact):
        found = Period(_instant(compact, text), _instant(compact, text, after=True))
    if found is None:
        raise ValueError(f"{text!r} is not a period; write {FORMS}")
    if found.to_ms <= found.from_ms:
        raise ValueError(f"{text!r} ends before it begins; write the earlier date first")
    return found


def _instant(part: str, text: str, *, after: bool = False) -> int:
    """Return an end of a range; a date that ends one is included whole."""
    try:
        at_ms = instant_ms(part)
    except ValueError:
        raise ValueError(f"{text!r} is not a period; write {FORMS}") from None
    return at_ms + 86_400_000 if after and _DAY.fullmatch(part.strip()) else at_ms


def _months(first: int, count: int) -> Period:
    def begin(month: int) -> int:
        return (datetime(month // 12, month % 12 + 1, 1, tzinfo=UTC) - _EPOCH) // timedelta(milliseconds=1)

    try:
        return Period(begin(first), begin(first + count))
    except ValueError:
        raise ValueError(f"the year {first // 12} is outside the calendar") from None

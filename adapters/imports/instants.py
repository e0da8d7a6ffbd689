"""Instants as schedulers write them, to milliseconds since 1970; and the calendar days of a zone.

``Zone`` decides what a time without a zone means: it is of the place where the scheduler ran, which the user names (UTC unless
said). Pure functions of text and zone. Days are of the zone too, so a day of a summer-time change has 23 or 25 hours, and hours
that are split over days add up all the same.

Read are ``2026-01-02T03:04:05`` (also with fraction, ``Z`` or ``+01:00``), ``Unknown``, ``None``, ``N/A`` or nothing for what
is not known, and seconds since 1970 (from 10^11 on milliseconds: as seconds that would be the year 5138).
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from decimal import Decimal
from typing import NamedTuple
from zoneinfo import ZoneInfo

from apportion.adapters.imports.attempt import Unread

UNKNOWN = frozenset(("", "unknown", "none", "n/a", "-1", "null"))
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)
_FIRST_MS = 100_000_000_000


class Day(NamedTuple):
    """One calendar day of a zone: its first instant, and the first one after it."""

    day: date
    from_ms: int
    until_ms: int


class Zone:
    """The zone in which a file's times without zone are meant."""

    def __init__(self, name: str) -> None:
        """Open a zone by its IANA name, ``UTC``, or an offset such as ``-08:00``. Raises ``ValueError``."""
        self.name = name
        self._of = _zone(name)
        self._cached = functools.lru_cache(maxsize=65_536)(self._parsed)

    def ms(self, text: str, what: str) -> int | None:
        """Return the instant, None when it is unknown; raises ``Unread`` with ``what`` for anything else."""
        try:
            return self._cached(text)
        except ValueError:
            raise Unread(
                f"{what} is {text[:40]!r}, not a time such as 2026-01-02T03:04:05 or seconds since 1970"
            ) from None

    def _parsed(self, text: str) -> int | None:
        compact = text.strip()
        if compact.lower() in UNKNOWN:
            return None
        if compact.replace(".", "", 1).isdigit() and compact.isascii() and len(compact) <= 24:
            number = Decimal(compact)
            return int(number) if number >= _FIRST_MS else int(number * 1_000)
        moment = datetime.fromisoformat(compact)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=self._of)
        try:
            return (moment - _EPOCH) // _MS
        except OverflowError:
            raise ValueError(text) from None

    def days(self, from_ms: int, until_ms: int) -> Iterator[Day]:
        """Yield the calendar days that hold ``from_ms`` to ``until_ms``."""
        day = (_EPOCH + timedelta(milliseconds=from_ms)).astimezone(self._of).date()
        begin = self._midnight_ms(day)
        while begin <= until_ms:
            after = day + timedelta(days=1)
            end = self._midnight_ms(after)
            yield Day(day, begin, end)
            day, begin = after, end

    def _midnight_ms(self, day: date) -> int:
        return (datetime(day.year, day.month, day.day, tzinfo=self._of) - _EPOCH) // _MS


def _zone(name: str) -> tzinfo:
    if name.upper() in ("UTC", "Z"):
        return UTC
    if name.startswith(("+", "-")):
        try:
            offset = datetime.fromisoformat(f"2000-01-01T00:00:00{name}").utcoffset()
            return timezone(offset or timedelta(0))
        except ValueError:
            raise ValueError(f"{name!r} is not an offset; write it like +01:00 or -08:00") from None
    try:
        return ZoneInfo(name)
    except (OSError, ValueError, KeyError):  # a missing zone is a KeyError
        raise ValueError(
            f"{name!r} is no time zone that this machine knows; write for example Europe/Berlin, UTC or -08:00"
        ) from None


def duration_ms(text: str, what: str) -> int | None:
    """Return ``[days-]hh:mm:ss[.fff]``, ``mm:ss`` or seconds in milliseconds, None when unknown; raises ``Unread``."""
    compact = text.strip()
    if compact.lower() in UNKNOWN:
        return None
    days, dash, clock = compact.rpartition("-")
    parts = clock.split(":")
    whole = [*parts[:-1], parts[-1].partition(".")[0], *([days] if dash else [])]
    fraction = parts[-1].partition(".")[2]
    if len(parts) > 3 or not all(
        part.isascii() and part.isdigit() and len(part) < 16 for part in [*whole, fraction or "0"]
    ):
        raise Unread(f"{what} is {text[:40]!r}, not a duration such as 1-02:03:04, 02:03:04 or seconds")
    seconds = 0
    for part in parts[:-1]:
        seconds = seconds * 60 + int(part)
    seconds = seconds * 60 + int(parts[-1].partition(".")[0]) + (int(days) * 86_400 if dash else 0)
    return seconds * 1_000 + int((fraction + "000")[:3])

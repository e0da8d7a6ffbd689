"""Months and quarters of the UTC calendar, in integers.

Instants are milliseconds since 1970; the Gregorian calendar, no leap seconds, as in every log. Pure functions; there is no other
calendar in the core, and nothing here knows what time it is.
"""

from __future__ import annotations

from apportion.core.units import MS_PER_DAY

_DAYS_BEFORE_MONTH = (0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334)
_FIRST_YEAR = 1970


def _is_leap(year: int) -> bool:
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


def _leap_years_before(year: int) -> int:
    return (year - 1) // 4 - (year - 1) // 100 + (year - 1) // 400


def _year_start(year: int) -> int:
    """Return the days from 1970 to the first of January."""
    return 365 * (year - _FIRST_YEAR) + _leap_years_before(year) - _leap_years_before(_FIRST_YEAR)


def month_start_ms(month: int) -> int:
    """Return the first instant of a month, counted from January 1970 = 0."""
    year, position = _FIRST_YEAR + month // 12, month % 12
    days = _year_start(year) + _DAYS_BEFORE_MONTH[position] + int(position > 1 and _is_leap(year))
    return days * MS_PER_DAY


def month_of(at_ms: int) -> int:
    """Return the month an instant lies in, counted from January 1970 = 0."""
    month = at_ms // MS_PER_DAY // 31  # never too late; a month is at most 31 days long
    while month_start_ms(month + 1) <= at_ms:
        month += 1
    return month


def period_end_ms(at_ms: int, months: int) -> int:
    """Return the first instant of the period of ``months`` (1, 3) that follows the one of ``at_ms``; quarters begin in January."""
    return month_start_ms((month_of(at_ms) // months + 1) * months)

"""Reading what people type: durations, GPUs, shares, GPU-hours, instants, principals.

Pure functions of text that return integers in the core's units. Each raises ``ValueError`` with the value and an
example. No float is formed anywhere: ``0.1`` of a GPU is exactly 100 milli-GPU or an error.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation

from apportion.adapters.agent.naming import principal_token
from apportion.core.units import GPU_US_PER_GPU_HOUR, MAX_POOL_MILLI, PPM

UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
UNITS_MIB = {"mib": 1, "gib": 1_024, "tib": 1_048_576}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)")
_PRINCIPAL = re.compile(r"^[A-Za-z0-9][A-Za-z0-9_\-]*$")


def duration_ms(text: str) -> int:
    """Return milliseconds for ``10m``, ``8h``, ``1d``, ``1h30m``, ``1.5h``, ``500ms`` or ``0``."""
    compact = text.strip().lower().replace(" ", "")
    if compact == "0":
        return 0
    parts = _PART.findall(compact)
    if not parts or "".join(number + unit for number, unit in parts) != compact:
        raise ValueError(f"{text!r} is not a duration; write a number and a unit, such as 30s, 10m, 8h, 1d or 1h30m")
    total = sum(Decimal(number) * UNITS_MS[unit] for number, unit in parts)
    if total != int(total):
        raise ValueError(f"{text!r} is not a whole number of milliseconds; write it in a smaller unit")
    return int(total)


def gpus_milli(text: str) -> int:
    """Return thousandths of a GPU for ``2`` or ``0.5``; at least 0.001 and at most a pool's bound."""
    milli = _scaled(text, 1_000, "a number of GPUs", "2 or 0.5")
    if not 1 <= milli <= MAX_POOL_MILLI:
        raise ValueError(f"{text!r} GPUs is outside 0.001 to {MAX_POOL_MILLI // 1000:,}; write for example 2 or 0.5")
    return milli


def weight_milli(text: str) -> int:
    """Return thousandths for a weight such as ``2`` or ``0.5``."""
    milli = _scaled(text, 1_000, "a weight", "2 or 0.5")
    if milli < 1:
        raise ValueError(f"{text!r} is no weight: it must be above zero; write for example 2 or 0.5")
    return milli


def traffic_milli(text: str) -> int:
    """Return thousandths of a unit of traffic for ``12.5``; not negative."""
    milli = _scaled(text, 1_000, "an amount of traffic", "12.5 or 300")
    if milli < 0:
        raise ValueError(f"{text!r} of traffic is below zero; write for example 12.5 or 0")
    return milli


@dataclass(frozen=True)
class Between:
    """Two numbers, both included."""

    least: int
    most: int


def between(text: str) -> Between:
    """Return both numbers of ``2-24``; one number alone is both."""
    least, dash, most = text.strip().partition("-")
    found = Between(whole_number(least, 0), whole_number(most if dash else least, 1))
    if found.least > found.most:
        raise ValueError(f"{text!r} has its least above its most; write for example 2-24")
    return found


def cpu_milli(text: str) -> int:
    """Return thousandths of a processor for ``4`` or ``0.5``; above zero."""
    milli = _scaled(text, 1_000, "a number of processors", "4 or 0.5")
    if milli < 1:
        raise ValueError(f"{text!r} processors is not above zero; write for example 4 or 0.5")
    return milli


def memory_mib(text: str) -> int:
    """Return mebibytes for ``512MiB``, ``40GiB``, ``1.5TiB`` or a plain number of them; above zero."""
    compact = text.strip().lower().replace(" ", "")
    scale = next((scale for unit, scale in UNITS_MIB.items() if compact.endswith(unit)), 0)
    mib = _scaled(compact[:-3] if scale else compact, scale or 1, "an amount of memory", "40GiB or 512MiB", shown=text)
    if mib < 1:
        raise ValueError(f"{text!r} of memory is not above zero; write for example 40GiB or 512MiB")
    return mib


def label(text: str) -> tuple[str, str]:
    """Return name and value for ``gen=sxm5``; the value may be empty."""
    name, equals, value = text.strip().partition("=")
    if not name or not equals:
        raise ValueError(f"{text!r} is not a label; write its name, = and its value, such as gen=sxm5")
    return name, value


def share_ppm(text: str) -> int:
    """Return parts per million for ``35%``, ``0.35`` or ``350000ppm``; from 0 to 100 %."""
    compact = text.strip().lower().replace(" ", "")
    if compact.endswith("ppm"):
        ppm = _scaled(compact[:-3], 1, "a share", "35%, 0.35 or 350000ppm", shown=text)
    elif compact.endswith("%"):
        ppm = _scaled(compact[:-1], PPM // 100, "a share", "35%, 0.35 or 350000ppm", shown=text)
    else:
        ppm = _scaled(compact, PPM, "a share", "35%, 0.35 or 350000ppm", shown=text)
        if ppm > PPM:
            raise ValueError(f"{text!r} is more than the whole; for percent write {compact}%, for parts {compact}ppm")
    if not 0 <= ppm <= PPM:
        raise ValueError(f"{text!r} is outside 0 % to 100 % of the parent budget")
    return ppm


def quantile_ppm(text: str) -> int:
    """Return parts per million for a quantile such as ``97.5%``; from 0 to 100 %."""
    try:
        return share_ppm(text)
    except ValueError:
        raise ValueError(f"{text!r} is no quantile from 0 % to 100 %; write for example 84% or 97.5%") from None


def gpu_hours_us(text: str) -> int:
    """Return GPU-microseconds for a number of GPU-hours such as ``512`` or ``0.5``; positive."""
    amount = _scaled(text, GPU_US_PER_GPU_HOUR, "a number of GPU-hours", "512 or 0.5")
    if amount < 1:
        raise ValueError(f"{text!r} GPU-hours is not above zero; write for example 512")
    return amount


def instant_ms(text: str) -> int:
    """Return milliseconds since 1970 for ISO 8601 text (UTC unless it names a zone), a date, or plain milliseconds."""
    compact = text.strip()
    if compact.isdigit() and len(compact) >= 9:
        return int(compact)
    try:
        moment = datetime.fromisoformat(compact)
    except ValueError:
        raise ValueError(
            f"{text!r} is not a time; write 2026-01-02, 2026-01-02T15:04 or 2026-01-02T15:04:05Z (UTC)"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    delta = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return delta.days * 86_400_000 + delta.seconds * 1_000 + delta.microseconds // 1_000


@dataclass(frozen=True)
class Mark:
    """A place in the log: a sequence, or an instant and then the last record at or before it. ``text`` is what was typed."""

    text: str
    seq: int | None = None
    at_ms: int | None = None


def mark(text: str) -> Mark:
    """Return the place that ``1200`` or ``2026-01-02T15:04`` names; 13 digits and more are milliseconds since 1970."""
    compact = text.strip().replace("_", "").replace(",", "")
    if compact.isdigit() and len(compact) <= 12:
        return Mark(text, seq=int(compact))
    try:
        return Mark(text, at_ms=instant_ms(text))
    except ValueError:
        raise ValueError(
            f"{text!r} is no sequence and no time; write a record's number such as 1200, or 2026-01-02T15:04 (UTC)"
        ) from None


def record(text: str) -> Mark:
    """Return the same where there must be a record: the first is 1."""
    found = mark(text)
    if found.seq == 0:
        raise ValueError(f"{text!r} is too small; the first record is 1")
    return found


def instant_or_after_ms(text: str, now_ms: int) -> int:
    """Return an instant as ``instant_ms`` does, or for a duration such as ``2h`` the instant so long after ``now_ms``."""
    try:
        return now_ms + duration_ms(text)
    except ValueError:
        pass
    try:
        return instant_ms(text)
    except ValueError:
        raise ValueError(
            f"{text!r} is not a time; write 2026-01-02T15:04 (UTC), or how long from now, such as 2h"
        ) from None


def principal_of(name: str) -> str:
    """Return a user's name made fit to be a token of a subject; never empty."""
    return principal_token(name.split("\\")[-1])


def checked_principal(text: str) -> str:
    """Return ``text`` when it is a principal as it stands; somebody else's name must not be changed silently."""
    if len(text) > 128 or not _PRINCIPAL.match(text):
        raise ValueError(f"{text!r} is not a principal; use letters, digits, - and _, such as {principal_of(text)!r}")
    return text


def whole_number(text: str, at_least: int | None = None, at_most: int | None = None) -> int:
    """Return a whole number within bounds."""
    try:
        number = int(text.strip().replace("_", "").replace(",", ""))
    except ValueError:
        raise ValueError(f"{text!r} is not a whole number") from None
    if at_least is not None and number < at_least:
        raise ValueError(f"{text!r} is too small; at least {at_least:,}")
    if at_most is not None and number > at_most:
        raise ValueError(f"{text!r} is too large; at most {at_most:,}")
    return number


def word_of(text: str, known: Sequence[str]) -> str:
    """Return the text when it is one of the known words."""
    if text not in known:
        raise ValueError(f"{text!r} is not known here; one of {', '.join(known)}")
    return text


def fields(text: str) -> list[str]:
    """Return the field names of ``-o a,b,c``."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise ValueError(f"{text!r} names no field; write for example -o workload,gpus_milli")
    return names


def _scaled(text: str, scale: int, what: str, example: str, shown: str | None = None) -> int:
    shown = text if shown is None else shown
    try:
        number = Decimal(text.strip().replace("_", "").replace(",", ""))
    except InvalidOperation:
        raise ValueError(f"{shown!r} is not {what}; write for example {example}") from None
    if not number.is_finite() or abs(number) > 10**15:
        raise ValueError(f"{shown!r} is not {what} that can be stored; write for example {example}")
    value = number * scale
    if value != int(value):
        raise ValueError(f"{shown!r} is finer than one part in {scale:,}; round it")
    return int(value)

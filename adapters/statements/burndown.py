"""The burn-down of a budget: its balance at the end of each day, and when it runs dry if it goes on like this.

A pure function of rows of the queries ``balance``, ``burn_down`` and ``entitlement``. A budget that was never granted GPU time has
no balance; for it each day tells what part of the pool's used time it got beside what it was entitled to. It must never look at
the clock: a projection into the future starts at the moment the data holds for, and counts on no further grant.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from apportion.core.errors import ApportionError
from apportion.core.units import MS_PER_DAY, PPM

Row = dict[str, Any]
MEAN_DAYS = 7
FAR_MS = 1 << 42  # the end of the calendar: what lasts longer never ends


class DoesNotBurn(ApportionError):
    """The days do not lead from the first balance to the last: a fault of the program or a damaged projection."""


@dataclass(frozen=True)
class Outlook:
    """When the balance ends at some rate; ``ends_ms`` is None where it does not."""

    basis: str
    rate_milli: int  # GPUs, as a mean
    ends_ms: int | None


def days_of(first_ms: int, as_of_ms: int, edges: Sequence[Row], burned: Sequence[Row]) -> list[Row]:
    """Return one row per day from ``first_ms`` on, each with the balance at its end. Raises ``DoesNotBurn``."""
    opening, closing = ({row["edge"]: row for row in edges}[name] for name in ("opening", "closing"))
    by_day = {row["day_ms"]: row for row in burned}
    metered, balance = bool(closing["metered"]), int(opening["balance_gpu_us"])
    rows = []
    for day_ms in range(first_ms, as_of_ms, MS_PER_DAY):
        row = by_day.get(day_ms, {})
        posted, charged, refunded, funded, unfunded, pool_used = (
            int(row.get(f"{name}_gpu_us", 0))
            for name in ("posted", "charged", "refunded", "funded", "unfunded", "pool_used")
        )
        balance += posted - charged + refunded
        rows.append(
            {
                "day_ms": day_ms,
                "until_ms": min(day_ms + MS_PER_DAY, as_of_ms),
                "posted_gpu_us": posted,
                "charged_gpu_us": charged,
                "refunded_gpu_us": refunded,
                "balance_gpu_us": balance if metered else None,
                "funded_gpu_us": funded,
                "unfunded_gpu_us": unfunded,
                "pool_used_gpu_us": pool_used,
                "got_ppm": (funded + unfunded) * PPM // pool_used if pool_used > 0 else None,
            }
        )
    if metered and rows and balance != int(closing["balance_gpu_us"]):
        raise DoesNotBurn(
            f"the burn-down DOES NOT ADD UP: its days lead to {balance} GPU-microseconds, the balance is "
            f"{closing['balance_gpu_us']}; run `apportion audit`, keep the log, and report it"
        )
    return rows


def outlooks(now_ms: int, balance_gpu_us: int, rate_milli: int, recent: Sequence[Row]) -> list[Outlook]:
    """Return when the balance ends: at the rate of now, and at the mean of the last days.

    ``recent`` are the rows of ``balance`` for the time since then; it is shorter where metering began later.
    """
    opening, closing = ({row["edge"]: row for row in recent}[name] for name in ("opening", "closing"))
    begun_ms = max(int(opening["at_ms"]), int(closing["metered_ms"] or 0))
    span_ms = now_ms - begun_ms
    used = int(closing["charged_gpu_us"]) - int(closing["refunded_gpu_us"])
    used -= int(opening["charged_gpu_us"]) - int(opening["refunded_gpu_us"])
    told = [Outlook("now", rate_milli, _ends(now_ms, balance_gpu_us, rate_milli, 1))]
    if span_ms > 0:
        basis = f"the last {MEAN_DAYS} days" if span_ms >= MEAN_DAYS * MS_PER_DAY else "the time since the first grant"
        told.append(Outlook(basis, used // span_ms, _ends(now_ms, balance_gpu_us, used, span_ms)))
    return told


def _ends(now_ms: int, balance_gpu_us: int, amount_gpu_us: int, span_ms: int) -> int | None:
    """Return the instant at which ``balance`` is used up at ``amount`` per ``span``; None: not within the calendar."""
    if balance_gpu_us <= 0:
        return now_ms
    if amount_gpu_us <= 0:
        return None
    ends_ms = now_ms + balance_gpu_us * span_ms // amount_gpu_us
    return ends_ms if ends_ms < FAR_MS else None

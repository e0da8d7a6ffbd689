"""Events of budgets: shares, GPU time put in and moved, who may charge them.

Pure data; bounds are checked at the door, the fold applies them.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from apportion.core.events.event import Event
from apportion.core.fields import BudgetPath, GpuUs, Instant, Name, Principal, SharePpm, Text
from apportion.core.units import MAX_GRANT_GPU_US


class BudgetSet(Event, frozen=True):
    """Create a budget or change its entitlement. The parent must exist; sibling shares may not exceed 1,000,000 ppm, ever.

    The share holds from ``from_ms`` until ``until_ms`` and replaces what was planned for that time; afterwards the budget
    is entitled to what it would have been without this event, or to 0 when it did not exist.
    """

    pool: Name
    budget: BudgetPath
    share_ppm: SharePpm
    from_ms: Instant = 0  # exactly at this instant; 0, or one that is past: at once
    until_ms: Instant = 0  # 0 = until another event
    users: Literal["none", "equal", "weighted"] | None = None  # who submits here gets a line of his own; at once; None: as before
    reason: Text = ""


class BudgetGranted(Event, frozen=True):
    """Put GPU time into a budget. From its first grant on a budget is metered: at zero its runs become unfunded."""

    pool: Name
    budget: BudgetPath
    gpu_us: GpuUs
    reason: Text = ""


class BudgetWithdrawn(Event, frozen=True):
    """Take back GPU time that was put into the budget and is neither spent nor promised to protected runs."""

    pool: Name
    budget: BudgetPath
    gpu_us: GpuUs
    reason: Text = ""


class GrantScheduled(Event, frozen=True):
    """Put GPU time into a budget at the first instant of every month or quarter (UTC), or once; meters it from the first one on.

    The first grant is at ``from_ms``, of the whole amount, without it at once; a budget that has a schedule keeps what it was given
    for its period and changes at its next one. What is not spent in a period lapses unless ``carry`` keeps it; ``gpu_us`` 0 ends
    the schedule at the next period. At ``until_ms`` the last period is settled by the same rule.
    """

    pool: Name
    budget: BudgetPath
    gpu_us: Annotated[int, Meta(ge=0, le=MAX_GRANT_GPU_US)]
    period: Literal["monthly", "quarterly", "none"]
    carry: Literal["none", "all", "cap"] = "none"
    carry_cap_ppm: SharePpm = 0  # of the amount; for carry = cap
    from_ms: Instant = 0
    until_ms: Instant = 0  # 0 = no end
    reason: Text = ""


class BudgetTransferred(Event, frozen=True):
    """Move unspent granted GPU time between two metered budgets of a pool."""

    pool: Name
    from_budget: BudgetPath
    to_budget: BudgetPath
    gpu_us: GpuUs
    reason: Text = ""


class BudgetClosed(Event, frozen=True):
    """No new workloads; running ones become unfunded."""

    pool: Name
    budget: BudgetPath
    reason: Text = ""


class MemberGranted(Event, frozen=True):
    """``member`` may charge (submit) or administer the budget path and everything below it, in all pools."""

    budget: BudgetPath
    member: Principal
    role: Literal["charge", "administer"] = "charge"
    weight_milli: Annotated[int, Meta(ge=1, le=1_000_000)] = 1_000  # among the users of a budget that is shared by weight
    reason: Text = ""


class MemberRevoked(Event, frozen=True):
    """Take the role back. Running work goes on."""

    budget: BudgetPath
    member: Principal
    role: Literal["charge", "administer"] = "charge"
    reason: Text = ""

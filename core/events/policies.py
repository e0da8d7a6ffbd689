"""The event that sets the rules of a pool.

Pure data; bounds are checked at the door, the fold applies them.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from apportion.core.events.event import Event
from apportion.core.fields import Name, SharePpm, Text, WeightMilli
from apportion.core.units import MS_PER_DAY


class PolicyActivated(Event, frozen=True):
    """Replace the rules of a pool. Absent fields keep their value; a pool starts as ``fair``.

    ``horizon`` plans batch work ahead, as blocks without a break, around what realtime services will need; nobody is preempted.
    Another policy begins with nothing owed and no usage remembered. ``fifo``, ``priority``, ``fair_tree`` and ``drf`` are
    baselines to compare with: under them everything that runs is paid by its budget while that has GPU time left.
    """

    pool: Name
    policy: Literal["fair", "horizon", "fifo", "priority", "fair_tree", "drf"] | None = None
    quantum_ms: Annotated[int, Meta(ge=1_000, le=7 * MS_PER_DAY)] | None = None  # q: default protected time
    horizon_ms: Annotated[int, Meta(ge=1_000, le=4 * 3_600_000)] | None = None  # tau of the allowance
    protected_cap_ms: Annotated[int, Meta(ge=1_000, le=30 * MS_PER_DAY)] | None = None
    heartbeat_timeout_ms: Annotated[int, Meta(ge=1_000, le=MS_PER_DAY)] | None = None
    start_timeout_ms: Annotated[int, Meta(ge=1_000, le=MS_PER_DAY)] | None = None
    review_ms: Annotated[int, Meta(ge=1_000, le=MS_PER_DAY)] | None = None  # longest time between two cycles with work
    node_loss_refund: Literal["unconfirmed", "since_checkpoint", "whole_run"] | None = None
    idle_hold_ms: Annotated[int, Meta(ge=60_000, le=30 * MS_PER_DAY)] | None = None  # a run that does no work so long is shown
    idle_hold_action: Literal["none", "demote"] | None = None  # demote: then its budget no longer pays for it
    half_life_ms: Annotated[int, Meta(ge=60_000, le=366 * MS_PER_DAY)] | None = None  # of usage, as fair_tree remembers it
    bank_ms: Annotated[int, Meta(ge=0, le=7 * MS_PER_DAY)] | None = None  # of its share that an idle budget stays owed; 0 = none
    weight_milli: WeightMilli | None = None
    packing: Literal["best_fit", "fgd", "balanced"] | None = None  # which of the nodes that would do; see kernels/fragments.py
    moves: Literal["none", "propose", "carry_out"] | None = None  # of movable runs, so that a gang fits; a pool starts with none
    reservations_max: Annotated[int, Meta(ge=0, le=256)] | None = None  # waiting workloads that nodes are kept for; 8 at first
    backfill: Literal["easy", "conservative"] | None = None  # conservative: nobody delays who is in the plan; easy at first
    backfill_depth: Annotated[int, Meta(ge=1, le=100_000)] | None = None  # waiting workloads in that plan; 1,000 at first
    step_ms: Annotated[int, Meta(ge=60_000, le=4 * 3_600_000)] | None = None  # of the plan; 30 minutes at first
    wait_bound_ms: Annotated[int, Meta(ge=60_000, le=30 * MS_PER_DAY)] | None = None  # who waited so long is planned first
    demand_ppm: SharePpm | None = None  # quantile of a forecast of traffic to keep ready for; 841,345 (one sigma above) at first
    reason: Text = ""

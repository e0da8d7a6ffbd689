"""The simulated cluster's opening: pool, nodes, budget tree, members, grants, as the first events of a log.

Decides who is entitled to what before the first job. A pure function of the layout; a driver publishes what it returns.
Entitlements of the default tree: ``itp/cluster04``, which asks for 43 % of all GPU time of the trace, gets 35 %, so it
overruns; the nine others share the rest by the GPU time they ask for. Two small programs live on *grants* of GPU time
besides: ``cluster09`` gets less than it will use, so it runs dry, and is topped up late; ``cluster05`` gets enough.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from apportion.adapters.simulation.stated import LEADER, OPERATOR, Stated, stated
from apportion.core.events import (
    BudgetGranted,
    BudgetSet,
    Event,
    LogOpened,
    MemberGranted,
    NodeJoined,
    PolicyActivated,
    PoolDefined,
)
from apportion.core.units import PPM, apportion, gpu_us

TimeSource = Literal["stated", "stored"]
Policy = Literal["fair", "horizon", "fifo", "priority", "fair_tree", "drf"]
ROOT = "itp"
MANAGER = "itp-managers"
MEMBERS_PER_PROGRAM = 4
# GPU time each program asks for, in hundredths of a per cent of the whole trace
ASKED = {
    "cluster01": 139,
    "cluster02": 758,
    "cluster03": 1013,
    "cluster04": 4322,
    "cluster05": 88,
    "cluster06": 759,
    "cluster07": 2247,
    "cluster08": 411,
    "cluster09": 239,
    "cluster10": 25,
}
OVERRUN_BY = "cluster04"
OVERRUN_PPM = 350_000


class Grant(NamedTuple):
    """GPU time for a program's budget: ``share_ppm`` of its entitlement over the play, put in at ``at_ppm`` of it."""

    program: str
    at_ppm: int
    share_ppm: int


GRANTS = (Grant("cluster05", 0, 1_500_000), Grant("cluster09", 0, 300_000), Grant("cluster09", 800_000, 100_000))


class Layout(NamedTuple):
    """The cluster: ``nodes`` nodes of ``gpus_per_node`` GPUs in one pool, and the programs' entitlements in ppm."""

    pool: str = "h100"
    nodes: int = 64
    gpus_per_node: int = 8
    shares: tuple[tuple[str, int], ...] = ()
    grants: tuple[Grant, ...] = GRANTS
    heartbeat_timeout_ms: int = 240_000
    start_timeout_ms: int = 900_000
    policy: Policy | None = None  # None = as pools begin: fair
    idle_hold_ms: int | None = None  # None = as pools begin
    idle_demotes: bool = False
    moves: Literal["none", "propose", "carry_out"] | None = None  # None = as pools begin

    @property
    def gpus(self) -> int:
        """All GPUs of the cluster."""
        return self.nodes * self.gpus_per_node


def default_shares() -> tuple[tuple[str, int], ...]:
    """Return (program, ppm) of the default tree; the sum is 1,000,000."""
    others = [name for name in ASKED if name != OVERRUN_BY]
    parts = apportion(PPM - OVERRUN_PPM, [ASKED[name] for name in others])
    shares = dict(zip(others, parts, strict=True)) | {OVERRUN_BY: OVERRUN_PPM}
    return tuple((name, shares[name]) for name in ASKED)


def shares_for(programs: Sequence[str]) -> tuple[tuple[str, int], ...]:
    """Return entitlements for these programs: the default tree, or equal shares where one is not of the trace."""
    if all(name in ASKED for name in programs):
        return default_shares()
    names = sorted(set(programs))
    return tuple(zip(names, apportion(PPM, [1] * len(names)), strict=True))


def node_name(position: int) -> str:
    """Return the name of a node, also its agent's principal."""
    return f"node{position + 1:03d}"


def member_names(program: str) -> list[str]:
    """Return the principals that may charge a program's budget."""
    return [f"{program}-team{number}" for number in range(1, MEMBERS_PER_PROGRAM + 1)]


def opening(layout: Layout, start_ms: int, log_id: str, time_source: TimeSource = "stated") -> list[Stated]:
    """Return the first events of the log, all at ``start_ms``."""
    shares = layout.shares or default_shares()
    events: list[tuple[str, Event]] = [
        (OPERATOR, LogOpened(log_id=log_id, time_source=time_source, operators=(OPERATOR, LEADER))),
        (OPERATOR, PoolDefined(pool=layout.pool, gpu_class=layout.pool)),
        (
            OPERATOR,
            PolicyActivated(
                pool=layout.pool,
                policy=layout.policy,
                heartbeat_timeout_ms=layout.heartbeat_timeout_ms,
                start_timeout_ms=layout.start_timeout_ms,
                node_loss_refund="since_checkpoint",
                idle_hold_ms=layout.idle_hold_ms,
                idle_hold_action="demote" if layout.idle_demotes else None,
                moves=layout.moves,
                reason="rules of the simulated cluster",
            ),
        ),
        (OPERATOR, BudgetSet(pool=layout.pool, budget=ROOT, share_ppm=PPM, reason="all of the cluster")),
        (OPERATOR, MemberGranted(budget=ROOT, member=MANAGER, role="administer")),
    ]
    for program, share_ppm in shares:
        path = f"{ROOT}/{program}"
        events.append((OPERATOR, BudgetSet(pool=layout.pool, budget=path, share_ppm=share_ppm)))
        events.extend((MANAGER, MemberGranted(budget=path, member=member)) for member in member_names(program))
    for position in range(layout.nodes):
        node = node_name(position)
        events.append((OPERATOR, NodeJoined(node=node, pool=layout.pool, gpus=layout.gpus_per_node, agent=node)))
    return [
        stated(start_ms, principal, event, f"opening.{number}") for number, (principal, event) in enumerate(events, 1)
    ]


def grants(layout: Layout, start_ms: int, length_ms: int) -> list[Stated]:
    """Return the grants of the play, each at its instant."""
    shares = dict(layout.shares or default_shares())
    events = []
    for number, grant in enumerate(layout.grants, 1):
        if grant.program not in shares:
            continue
        capacity = gpu_us(layout.gpus * 1_000, length_ms)
        amount = max(1, capacity * shares[grant.program] // PPM * grant.share_ppm // PPM)
        at_ms = start_ms + length_ms * grant.at_ppm // PPM
        event = BudgetGranted(
            pool=layout.pool, budget=f"{ROOT}/{grant.program}", gpu_us=amount, reason=f"grant {number} of the play"
        )
        events.append(stated(at_ms, OPERATOR, event, f"grant.{number}"))
    return events

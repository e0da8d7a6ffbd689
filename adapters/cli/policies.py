"""``policy set``: the rules of a pool, an option and a type each.

Types and their way into one event; what a rule means is ``PolicyActivated``, whether it may be set the core's answer.
"""

from __future__ import annotations

from typing import Annotated

import typer

from apportion.adapters.cli import arguments
from apportion.adapters.cli.asking import opened
from apportion.adapters.cli.deciding import written
from apportion.adapters.cli.failure import usage
from apportion.adapters.cli.finding import one_pool
from apportion.adapters.cli.output import Answer
from apportion.adapters.cli.publishing import checked
from apportion.adapters.cli.verbs import WritePlace, lasting, one_of, typed, whole, write_verb

PANEL = "Nodes"
BACKFILLS = ("easy", "conservative")
POLICIES = ("fair", "horizon", "fifo", "priority", "fair_tree", "drf")
PACKINGS = ("best_fit", "fgd", "balanced")
REFUNDS = ("unconfirmed", "since_checkpoint", "whole_run")
_OPTIONS = {
    "pool": "the pool", "quantum_ms": "--quantum", "horizon_ms": "--horizon",
    "protected_cap_ms": "--protected-cap", "heartbeat_timeout_ms": "--heartbeat-timeout", "review_ms": "--review",
    "start_timeout_ms": "--start-timeout", "node_loss_refund": "--node-loss-refund", "reason": "--reason",
    "policy": "--policy", "half_life_ms": "--half-life", "bank_ms": "--bank", "weight_milli": "--weight",
    "packing": "--packing", "idle_hold_ms": "--idle-hold", "idle_hold_action": "--idle-action", "moves": "--moves",
    "reservations_max": "--reservations", "backfill": "--backfill", "backfill_depth": "--backfill-depth",
    "step_ms": "--step", "wait_bound_ms": "--wait-bound", "demand_ppm": "--demand-quantile",
}  # fmt: skip
Pool = Annotated[str, typer.Argument(metavar="POOL", help="The pool")]
Quantum = Annotated[int | None, lasting("Default protected time of a run")]
Horizon = Annotated[int | None, lasting("Over how long a budget catches up")]
ProtectedCap = Annotated[int | None, lasting("Largest min_runtime accepted")]
HeartbeatTimeout = Annotated[int | None, lasting("Silence after which a node is suspended")]
StartTimeout = Annotated[int | None, lasting("How long a run may take to start")]
Review = Annotated[int | None, lasting("Longest time between two cycles while there is work")]
Policy = Annotated[
    str | None,
    typer.Option(
        parser=one_of(*POLICIES),
        metavar="NAME",
        help="Who is served: fair, horizon (planned ahead), or a baseline to compare with: fifo, priority, fair_tree, drf",
    ),
]
Bank = Annotated[int | None, lasting("Up to so long of its share an idle budget stays owed")]
Weight = Annotated[
    int | None,
    typer.Option(parser=typed(arguments.weight_milli), metavar="N", help="Of a GPU, in sums over pools (usage --weighted)"),
]
HalfLife = Annotated[int | None, lasting("After which usage counts half, for fair_tree")]
IdleHold = Annotated[int | None, lasting("A run that does no work for so long is shown to its owner and manager")]
IdleAction = Annotated[
    str | None,
    typer.Option(
        parser=one_of("none", "demote"),
        metavar="WHAT",
        help="What happens to it then: none, or demote: its budget no longer pays for it, so it makes room for others",
    ),
]
Packing = Annotated[
    str | None,
    typer.Option(
        parser=one_of(*PACKINGS),
        metavar="RULE",
        help="Which of the nodes that would do: the fullest (best_fit), the one where least is lost for what waits and runs "
        "(fgd), or with an eye on the CPU that is left beside the GPUs too (balanced)",
    ),
]
MovesRule = Annotated[
    str | None,
    typer.Option(
        parser=one_of("none", "propose", "carry_out"),
        metavar="WHAT",
        help="Moves of movable runs, so that somebody fits for whom enough is free but not together: none, propose, carry_out",
    ),
]
Reserved = Annotated[
    int | None, typer.Option(parser=whole(0), metavar="N", help="Waiting jobs that nodes are kept for, at most")
]
Backfill = Annotated[
    str | None,
    typer.Option(
        parser=one_of(*BACKFILLS),
        metavar="HOW",
        help="Who may start before others: easy, or conservative: only who delays nobody of the first --backfill-depth",
    ),
]
BackfillDepth = Annotated[
    int | None, typer.Option(parser=whole(1), metavar="N", help="Waiting jobs that conservative backfill plans")
]
Step = Annotated[int | None, lasting("Between two instants of the plan of policy horizon, and of a service's swap cap")]
WaitBound = Annotated[int | None, lasting("Under policy horizon a job that has waited so long starts, whatever others are worth")]
DemandQuantile = Annotated[
    int | None,
    typer.Option(
        parser=typed(arguments.quantile_ppm), metavar="SHARE",
        help="Quantile of forecast traffic that services are kept ready for, such as 84% (one sigma) or 97.5%",
    ),
]  # fmt: skip
NodeLossRefund = Annotated[
    str | None,
    typer.Option(
        parser=one_of(*REFUNDS),
        metavar="RULE",
        help="What is given back when a node is lost: unconfirmed, since_checkpoint or whole_run",
    ),
]


def add_to(app: typer.Typer) -> None:
    """Register the group ``policy``."""
    policy = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Policy: the rules of a pool.")
    policy.command("set")(write_verb(set_))
    app.add_typer(policy, name="policy", rich_help_panel=PANEL)


async def set_(
    place: WritePlace,
    pool: Pool,
    quantum: Quantum = None,
    horizon: Horizon = None,
    protected_cap: ProtectedCap = None,
    heartbeat_timeout: HeartbeatTimeout = None,
    start_timeout: StartTimeout = None,
    review: Review = None,
    policy: Policy = None,
    bank: Bank = None,
    weight: Weight = None,
    half_life: HalfLife = None,
    idle_hold: IdleHold = None,
    idle_action: IdleAction = None,
    packing: Packing = None,
    moves: MovesRule = None,
    reservations: Reserved = None,
    backfill: Backfill = None,
    backfill_depth: BackfillDepth = None,
    step: Step = None,
    wait_bound: WaitBound = None,
    demand_quantile: DemandQuantile = None,
    node_loss_refund: NodeLossRefund = None,
) -> Answer:
    """Change the rules of a pool; what is not named stays as it is."""
    from apportion.core.events import PolicyActivated

    changes = {
        "quantum_ms": quantum,
        "horizon_ms": horizon,
        "protected_cap_ms": protected_cap,
        "heartbeat_timeout_ms": heartbeat_timeout,
        "start_timeout_ms": start_timeout,
        "review_ms": review,
        "policy": policy,
        "half_life_ms": half_life,
        "bank_ms": bank,
        "weight_milli": weight,
        "idle_hold_ms": idle_hold,
        "idle_hold_action": idle_action,
        "packing": packing,
        "moves": moves,
        "node_loss_refund": node_loss_refund,
        "reservations_max": reservations,
        "backfill": backfill,
        "backfill_depth": backfill_depth,
        "step_ms": step,
        "wait_bound_ms": wait_bound,
        "demand_ppm": demand_quantile,
    }
    if all(value is None for value in changes.values()):
        raise usage("no rule is named, so nothing would change", "name one, such as --quantum 1h")
    async with opened(place) as source:
        event = checked(PolicyActivated, _OPTIONS, pool=await one_pool(source, pool), reason=place.reason, **changes)
        return await written(source, place, event, _OPTIONS, f"policy of {pool}", {"pools": [pool]}, pool=pool)

"""Verbs on money and people: budget list|show|set|grant|plan|transfer|close, member grant|revoke.

Reads ask the projector; writes publish one event and print the decision. GPU-hours are typed with a decimal point and
become exact GPU-microseconds before anything is sent.
"""

from __future__ import annotations

from typing import Annotated

import typer

from apportion.adapters.cli import arguments, budget_show
from apportion.adapters.cli.asking import opened
from apportion.adapters.cli.deciding import written
from apportion.adapters.cli.finding import one_pool
from apportion.adapters.cli.output import Answer, Section
from apportion.adapters.cli.publishing import checked
from apportion.adapters.cli.verbs import ReadPlace, WritePlace, moment, one_of, read_verb, typed, write_verb
from apportion.adapters.text import render

PANEL = "Budgets and members"
Budget = Annotated[str, typer.Argument(metavar="BUDGET", help="Path, such as lab/llm/olmo")]
Pool = Annotated[str, typer.Option("--pool", metavar="POOL", help="Pool [default: the only one]")]
Member = Annotated[str, typer.Argument(metavar="MEMBER", help="The person or service")]
Role = Annotated[
    str,
    typer.Option(
        "--role",
        parser=one_of("charge", "administer"),
        metavar="ROLE",
        help="charge: submit work; administer: change what is below",
    ),
]
Hours = Annotated[
    int,
    typer.Option("--gpu-hours", parser=typed(arguments.gpu_hours_us), metavar="N", help="How much, in GPU-hours"),
]
_OPTIONS = {
    "budget": "the budget", "from_budget": "--from", "to_budget": "--to", "pool": "--pool", "share_ppm": "--share",
    "gpu_us": "--gpu-hours", "member": "the member", "role": "--role", "reason": "--reason",
    "from_ms": "--from", "users": "--users", "weight_milli": "--weight",
    "until_ms": "--until", "period": "--every", "carry": "--carry", "carry_cap_ppm": "--carry",
}  # fmt: skip


_PERIODS = {"month": "monthly", "quarter": "quarterly", "once": "none"}


def _carry(text: str) -> str:
    """Return the rule: ``none``, ``all``, or how many ppm of the amount at most."""
    word = text.strip().lower()
    return word if word in ("none", "all") else str(arguments.share_ppm(text))


def _hours_or_none(text: str) -> int:
    return 0 if text.strip() == "0" else arguments.gpu_hours_us(text)


def add_to(app: typer.Typer) -> None:
    """Register the groups ``budget`` and ``member``."""
    budget = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Budgets: who is entitled to what.")
    budget.command("list")(read_verb(list_))
    budget.command("show")(read_verb(budget_show.show))
    budget.command("set")(write_verb(set_))
    budget.command("grant")(write_verb(grant))
    budget.command("withdraw")(write_verb(withdraw))
    budget.command("plan")(write_verb(plan))
    budget.command("transfer")(write_verb(transfer))
    budget.command("close")(write_verb(close))
    app.add_typer(budget, name="budget", rich_help_panel=PANEL)
    member = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Members: who may charge or administer.")
    member.command("grant")(write_verb(member_grant))
    member.command("revoke")(write_verb(member_revoke))
    app.add_typer(member, name="member", rich_help_panel=PANEL)


async def list_(place: ReadPlace, pool: Pool = "") -> Answer:
    """Show all budgets as a tree: share, what it entitles to, what is left, who pays now."""
    async with opened(place) as source:
        reply = await source.ask("budgets", **({"pool": pool} if pool else {}))
    rows = reply.rows
    shown = [{**row, "budget": _indented(str(row["budget"]))} for row in rows]
    section = Section(
        rows,
        _budget_columns(reply.columns),
        shown=shown,
        headings={"share_ppm": "share", "entitled_ppm": "of pool"},
        empty="no budget yet; an operator makes one: apportion budget set lab --share 100%",
    )
    return Answer([section], as_of=reply.as_of)


def _indented(path: str) -> str:
    """Return the path's last part, indented by its depth; a top-level budget stands as it is."""
    depth = path.count("/")
    return "  " * depth + path.rsplit("/", 1)[-1] if depth else path


def _budget_columns(columns: object) -> list[str]:
    wanted = ("pool", "budget", "share_ppm", "entitled_ppm", "running_milli", "pending_milli", "left_gpu_us", "state")
    known = list(columns) if isinstance(columns, (list, tuple)) else []
    return [name for name in wanted if name in known]


async def set_(
    place: WritePlace,
    budget: Budget,
    share: Annotated[
        int,
        typer.Option(
            parser=typed(arguments.share_ppm), metavar="SHARE", help="Of the parent's time: 35%, 0.35 or 350000ppm"
        ),
    ],
    pool: Pool = "",
    from_: Annotated[int | None, moment("Begins exactly then [default: at once]", "--from")] = None,
    until: Annotated[int | None, moment("Ends then: the share is what it would have been [default: never]", "--until")] = None,
    users: Annotated[
        str | None,
        typer.Option(
            parser=one_of("none", "equal", "weighted"), metavar="RULE", help="Share it among its users: equal, weighted or none"
        ),
    ] = None,
) -> Answer:
    """Create a budget, or change its share of its parent, at once or in the future."""
    from apportion.core.events import BudgetSet

    async with opened(place) as source:
        event = checked(
            BudgetSet,
            _OPTIONS,
            pool=await one_pool(source, pool),
            budget=budget,
            share_ppm=share,
            from_ms=from_ or 0,
            until_ms=until or 0,
            users=users,
            reason=place.reason,
        )
        subject = f"budget {budget} at {render.percent(share)} of its parent{_span(from_, until)}"
        return await written(source, place, event, _OPTIONS, subject, {"budget": budget})


async def grant(place: WritePlace, budget: Budget, hours: Hours, pool: Pool = "") -> Answer:
    """Put GPU-hours into a budget. From its first grant on a budget is metered."""
    from apportion.core.events import BudgetGranted

    async with opened(place) as source:
        event = checked(
            BudgetGranted, _OPTIONS, pool=await one_pool(source, pool), budget=budget, gpu_us=hours, reason=place.reason
        )
        subject = f"{render.gpu_time(hours)} for {budget}"
        return await written(source, place, event, _OPTIONS, subject, {"budget": budget})


async def withdraw(place: WritePlace, budget: Budget, hours: Hours, pool: Pool = "") -> Answer:
    """Take GPU-hours back out of a budget: what is not spent, and not promised to protected runs."""
    from apportion.core.events import BudgetWithdrawn

    async with opened(place) as source:
        event = checked(
            BudgetWithdrawn, _OPTIONS, pool=await one_pool(source, pool), budget=budget, gpu_us=hours, reason=place.reason
        )
        subject = f"{render.gpu_time(hours)} taken back from {budget}"
        return await written(source, place, event, _OPTIONS, subject, {"budget": budget})


def _span(from_ms: int | None, until_ms: int | None) -> str:
    """Return from when until when, where that is stated."""
    begin = f" from {render.when(from_ms)}" if from_ms else ""
    return begin + (f" until {render.when(until_ms)}" if until_ms else "")


async def plan(
    place: WritePlace,
    budget: Budget,
    hours: Annotated[
        int,
        typer.Option("--gpu-hours", parser=typed(_hours_or_none), metavar="N", help="Per period; 0 ends the plan"),
    ],
    period: Annotated[
        str,
        typer.Option("--every", parser=one_of(*_PERIODS), metavar="PERIOD", help="month, quarter (UTC) or once"),
    ] = "month",
    carry: Annotated[
        str,
        typer.Option("--carry", parser=typed(_carry), metavar="RULE", help="What is not spent: none, all, or at most 25%"),
    ] = "none",
    pool: Pool = "",
    from_: Annotated[
        int | None, moment("First grant [default: at once, or the next period of the plan it replaces]", "--from")
    ] = None,
    until: Annotated[int | None, moment("No grant from then on [default: never]", "--until")] = None,
) -> Answer:
    """Put GPU-hours into a budget at the beginning of every month or quarter."""
    from apportion.core.events import GrantScheduled

    async with opened(place) as source:
        event = checked(
            GrantScheduled,
            _OPTIONS,
            pool=await one_pool(source, pool),
            budget=budget,
            gpu_us=hours,
            period=_PERIODS[period],
            carry=carry if carry in ("none", "all") else "cap",
            carry_cap_ppm=0 if carry in ("none", "all") else int(carry),
            from_ms=from_ or 0,
            until_ms=until or 0,
            reason=place.reason,
        )
        each = {"month": " every month", "quarter": " every quarter", "once": ""}[period]
        subject = f"{render.gpu_time(hours)}{each} for {budget}{_span(from_, until)}"
        return await written(source, place, event, _OPTIONS, subject, {"budget": budget})


async def transfer(
    place: WritePlace,
    from_: Annotated[str, typer.Option("--from", metavar="BUDGET", help="Take from this budget")],
    to: Annotated[str, typer.Option("--to", metavar="BUDGET", help="Give to this budget")],
    hours: Hours,
    pool: Pool = "",
) -> Answer:
    """Move unspent GPU-hours from one budget to another."""
    from apportion.core.events import BudgetTransferred

    async with opened(place) as source:
        event = checked(
            BudgetTransferred,
            _OPTIONS,
            pool=await one_pool(source, pool),
            from_budget=from_,
            to_budget=to,
            gpu_us=hours,
            reason=place.reason,
        )
        return await written(source, place, event, _OPTIONS, f"{render.gpu_time(hours)} from {from_} to {to}", {"budget": from_})


async def close(place: WritePlace, budget: Budget, pool: Pool = "") -> Answer:
    """Close a budget: no new work; what runs goes on unfunded."""
    from apportion.core.events import BudgetClosed

    async with opened(place) as source:
        event = checked(BudgetClosed, _OPTIONS, pool=await one_pool(source, pool), budget=budget, reason=place.reason)
        return await written(source, place, event, _OPTIONS, f"close {budget}", {"budget": budget})


async def member_grant(
    place: WritePlace,
    budget: Budget,
    member: Member,
    role: Role = "charge",
    weight: Annotated[
        int,
        typer.Option(
            parser=typed(arguments.gpus_milli), metavar="N", help="Among the users of a budget shared by weight", show_default=True
        ),
    ] = "1",  # type: ignore[assignment]  # parsed like what is typed
) -> Answer:
    """Let somebody charge or administer a budget and all below it."""
    from apportion.core.events import MemberGranted

    async with opened(place) as source:
        event = checked(
            MemberGranted, _OPTIONS, budget=budget, member=member, role=role, weight_milli=weight, reason=place.reason
        )
        return await written(source, place, event, _OPTIONS, f"{member} to {role} {budget}", {"budget": budget})


async def member_revoke(place: WritePlace, budget: Budget, member: Member, role: Role = "charge") -> Answer:
    """Take a role back; running work goes on."""
    from apportion.core.events import MemberRevoked

    async with opened(place) as source:
        event = checked(MemberRevoked, _OPTIONS, budget=budget, member=member, role=role, reason=place.reason)
        return await written(source, place, event, _OPTIONS, f"{member} no longer to {role} {budget}", {"budget": budget})

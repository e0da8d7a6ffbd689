"""The verb queue: what runs and what waits, in which place, and why.

Asks the projector, and arranges the answer; sentences come from ``adapters.text.wording``. JSON and CSV carry the rows as the
projection has them, plus the sentences made from their reasons.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from apportion.adapters.cli.asking import opened
from apportion.adapters.cli.finding import budget_of
from apportion.adapters.cli.output import Answer, Section
from apportion.adapters.cli.reads import PANEL, BudgetOption, Pool, User, given, without_constant
from apportion.adapters.cli.verbs import ReadPlace, one_of, principal_now, read_verb, whole
from apportion.adapters.seen.standing import PROTECTED
from apportion.adapters.text import render
from apportion.adapters.text.wording import label_of, words_of

STATES = ("pending", "placed", "running", "stopping", "all")


def add_to(app: typer.Typer) -> None:
    """Register the verb."""
    app.command("queue", rich_help_panel=PANEL)(read_verb(queue))


async def queue(
    place: ReadPlace,
    mine: Annotated[bool, typer.Option("--mine", help="Only what you submitted")] = False,
    user: User = "",
    budget: BudgetOption = "",
    pool: Pool = "",
    state: Annotated[
        str, typer.Option("--state", parser=one_of(*STATES), metavar="STATE", help=f"One of {', '.join(STATES)}")
    ] = "all",
    limit: Annotated[int, typer.Option("--limit", "-n", parser=whole(1), metavar="N", help="At most so many")] = 1_000,
) -> Answer:
    """Show what runs and what waits, in which place, and why."""
    who = principal_now(None) if mine and not user else user
    async with opened(place) as source:
        if budget:
            await budget_of(source, budget)
        reply = await source.ask(
            "queue", state=state, row_limit=limit, **given(budget=budget, pool=pool, principal=who)
        )
        waits = await source.ask(
            "funded_waits", seq=reply.as_of.seq, row_limit=1, **given(budget=budget, pool=pool, principal=who)
        )
    now_ms = reply.as_of.time_ms
    rows = [{**row, "funded_wait_ms": funded_wait(row, now_ms), **reason_words(row)} for row in reply.rows]
    rows.sort(
        key=lambda row: (row["pool"], row["state"] == "pending")
    )  # what runs first; the projection's order inside
    shown = [{**row, "earliest_ms": (row["numbers"] or {}).get("earliest_ms"), "why": row["short"]} for row in rows]
    for row in rows:
        del row["short"]
    columns = [
        "position",
        "workload",
        "state",
        "gpus_milli",
        "budget",
        "pool",
        "principal",
        "age_ms",
        "funded_wait_ms",
        "earliest_ms",
        "why",
    ]
    unsaid = [name for name in ("earliest_ms", "funded_wait_ms") if not any(row[name] for row in shown)]
    section = Section(
        rows,
        without_constant(columns, shown, "pool", "principal", *unsaid),
        shown=shown,
        headings={"position": "#", "gpus_milli": "GPUs", "principal": "user", "earliest_ms": "starts by",
                  "funded_wait_ms": "funded for"},
        empty=_nothing_queued(who, budget),
        drop=("earliest_ms", "funded_wait_ms", "age_ms", "principal", "pool"),
    )
    after = [longest_funded_wait(row) for row in waits.rows]
    after += [f"the first {limit:,} are shown; --limit shows more"] if len(rows) == limit else []
    return Answer([section], after=after, as_of=reply.as_of)


def funded_wait(row: dict[str, Any], now_ms: int) -> int | None:
    """Return for how long a job has waited at the head of its queue although it would be funded."""
    return now_ms - row["funded_since_ms"] if row["state"] == "pending" and row["funded_since_ms"] else None


def longest_funded_wait(row: dict[str, Any]) -> str:
    """Return the longest wait of a funded request, with its owner and its reason."""
    sentence, _action = words_of("pending", str(row["reason"]), row.get("numbers") or {})
    return (
        f"longest wait of a funded request: {row['principal']}'s {row['workload']}, {render.gpus(row['gpus_milli'])} on "
        f"{row['budget']}, for {render.duration(row['funded_wait_ms'])}: {sentence}"
    )


def _nothing_queued(who: str, budget: str) -> str:
    whose = f" of {who}" if who else ""
    where = f" in {budget}" if budget else ""
    return f"nothing{whose} runs or waits{where}; submit with: apportion submit --budget PATH --gpus N -- COMMAND"


def reason_words(row: dict[str, Any]) -> dict[str, str]:
    """Return ``why`` and ``action`` for a row of the queue, and ``short``: the same as a label."""
    reason = str(row.get("reason") or "")
    if row["state"] == "pending":
        if not reason:
            return {"why": "not explained yet", "action": "", "short": "not explained yet"}
        sentence, action = words_of("pending", reason, row.get("numbers") or {})
        return {
            "why": sentence,
            "action": action.replace("JOB", str(row["workload"])),
            "short": label_of("pending", reason),
        }
    if not reason:
        return {"why": "", "action": "", "short": ""}
    sentence, action = words_of("funding", reason, {})
    stands = standing_words(row)
    return {"why": f"{stands}: {sentence}", "action": action, "short": f"{stands}, {label_of('funding', reason)}"}


def standing_words(row: dict[str, Any]) -> str:
    """Return how a run stands: protected until when, and funded or unfunded, which counts after that."""
    paid = "funded" if row.get("payer") == "budget" else "unfunded"
    if row.get("standing") != PROTECTED:
        return paid
    return f"protected to {render.when(row['protected_until_ms'])[5:16]}, {paid}"

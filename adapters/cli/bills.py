"""``statement --as-known``: two versions of a period's bill, and each decision that made a difference.

Asks the projection at both moments; what differs and why is ``adapters.statements.versions``.
"""

from __future__ import annotations

from typing import Any

from apportion.adapters.cli import arguments
from apportion.adapters.cli.asking import Opened
from apportion.adapters.cli.failure import usage
from apportion.adapters.cli.output import Answer, AsOf, Section
from apportion.adapters.cli.periods import Period
from apportion.adapters.cli.verbs import ReadPlace
from apportion.adapters.statements.versions import Moment, Versions, versions
from apportion.adapters.text import render

HEADINGS = {
    "cost_then_gpu_us": "as known h", "cost_now_gpu_us": "now h", "given_back_gpu_us": "given back h",
    "unfunded_given_back_gpu_us": "unfund. back h", "decided_ms": "decided", "cause_seq": "seq",
}  # fmt: skip
EQUAL = "both versions are equal: nothing of that time was given back since"
COLUMNS = ("run", "user", "cost_then_gpu_us", "given_back_gpu_us", "unfunded_given_back_gpu_us", "cost_now_gpu_us", "decided_ms",
           "cause_seq", "author", "reason")  # fmt: skip


async def compared(
    source: Opened, place: ReadPlace, budget: str, pools: list[str], span: Period, as_of: AsOf, known: str
) -> Answer:
    """Return both versions for each pool. Raises ``Failure`` (2) for a moment that is not before the other."""
    then = await _moment(source, known)
    if then.seq >= as_of.seq:
        raise usage(
            f"--as-known {known} is seq {then.seq:,}, which is not before seq {as_of.seq:,}", "name an earlier sequence or instant"
        )
    if then.time_ms <= span.from_ms:
        raise usage(
            f"nothing of that period was known at {render.when(then.time_ms)}: it begins at {render.when(span.from_ms)}",
            "name a moment in the period or after it",
        )
    now = Moment(as_of.seq, as_of.time_ms)
    made = [await _one(source, budget, pool, Period(span.from_ms, min(span.to_ms, then.time_ms)), then, now) for pool in pools]
    document: dict[str, Any] = {"as_of": as_of.document(), "bills": [one.document() for one in made]}
    if place.form.as_csv or place.form.only:
        rows = [{"pool": one.pool, **line} for one in made for line in one.lines]
        return Answer([Section(rows, list(rows[0]) if rows else ["pool", *COLUMNS], empty=EQUAL)], as_of=as_of)
    return Answer([_section(one, span) for one in made], document=document if place.as_json else None, as_of=as_of)


async def _moment(source: Opened, known: str) -> Moment:
    """Return the decided tick that a sequence or an instant names."""
    try:
        mark = arguments.mark(known)
    except ValueError as error:
        raise usage(f"--as-known {error}", "a sequence of the log, or an instant such as 2026-02-01") from None
    asked = {"seq": mark.seq} if mark.seq is not None else {"at_ms": mark.at_ms}
    at = (await source.ask("pools", **asked)).as_of
    if not at.seq:
        raise usage(f"--as-known {known}: nothing had been decided by then", "name a moment in the period or after it")
    return Moment(at.seq, at.time_ms)


async def _one(source: Opened, budget: str, pool: str, span: Period, then: Moment, now: Moment) -> Versions:
    asked = {"budget": budget, "pool": pool, "from_ms": span.from_ms, "to_ms": span.to_ms}
    bills = ((await source.ask("bill", seq=then.seq, **asked)).rows, (await source.ask("bill", seq=now.seq, **asked)).rows)
    found = await source.ask("corrections", seq=now.seq, known_seq=then.seq, budget=budget, pool=pool)
    return versions(budget, pool, span, (then, now), bills, found.rows)


def _section(made: Versions, asked: Period) -> Section:
    cut = "" if made.to_ms == asked.to_ms else " (what was known of the period then)"
    title = [
        f"bill of {made.budget} in pool {made.pool}, {render.when(made.from_ms)} to {render.when(made.to_ms)}{cut}",
        f"as known at seq {made.then.seq:,}, {render.when(made.then.time_ms)}: {_cost(made.totals_then)}",
        f"as known at seq {made.now.seq:,}, {render.when(made.now.time_ms)}: {_cost(made.totals_now)}",
    ]
    shown = [
        {**line, "run": f"{line['workload']} run {line['run']}", "author": f"{line['author']}: {line['cause']}"}
        for line in made.lines
    ]
    amounts = ("cost_then_gpu_us", "given_back_gpu_us", "unfunded_given_back_gpu_us", "cost_now_gpu_us")
    used = [name for name in COLUMNS if name != "unfunded_given_back_gpu_us" or any(line[name] for line in made.lines)]
    total: dict[str, Any] = {"run": "sum", **{name: sum(line[name] for line in made.lines) for name in amounts if name in used}}
    back = total["given_back_gpu_us"]
    count = len(made.lines)
    after = [
        f"checked: {render.gpu_seconds(made.totals_then['cost_gpu_us'])} - given back {render.gpu_seconds(back)} = "
        f"{render.gpu_seconds(made.totals_now['cost_gpu_us'])} GPU-seconds, exact to the GPU-microsecond",
        f"{count:,} of {made.totals_now['runs']:,} runs differ; a decision is shown by `apportion query decisions cycle_seq=SEQ`",
    ]
    return Section(
        made.lines, used, key=made.pool, title="\n".join(title), headings=HEADINGS, shown=shown,
        total=total if made.lines else None, after=after if made.lines else [], empty=EQUAL,
        drop=("user", "unfunded_given_back_gpu_us"), flexible="reason",
    )  # fmt: skip


def _cost(totals: dict[str, Any]) -> str:
    free = totals["unfunded_gpu_us"] - totals["unfunded_refunded_gpu_us"]
    return f"{render.gpu_time(totals['cost_gpu_us'])} paid, {render.gpu_time(free)} unfunded, {render.many(totals['runs'], 'run')}"

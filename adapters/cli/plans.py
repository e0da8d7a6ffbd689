"""The rolling plans of pools under ``horizon``: what is planned, what changed, how sure it is, and what became of the plans before.

Nothing is planned or worked out here: rows come from the queries ``plan*``. A plan is a promise for its step 0 alone.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from apportion.adapters.cli.asking import Opened, Reply, opened
from apportion.adapters.cli.failure import Failure, usage
from apportion.adapters.cli.finding import nearest, one_pool
from apportion.adapters.cli.output import Answer, Section, terminal_width
from apportion.adapters.cli.reads import PANEL, Pool, given
from apportion.adapters.cli.verbs import ReadPlace, lasting, read_verb, whole
from apportion.adapters.text import render

Row = dict[str, Any]
PIPE_WIDTH = 120
IDLE_SHOWN = 5
NONE_YET = "no plan is made yet; a pool makes plans under `apportion policy set POOL --policy horizon`"
LEGEND = "# = planned, > = beyond the plan; of a service # = held, . = needed and not held; GPUs of a job as it asked for them"
CHANGES = {
    "earlier": "starts earlier", "later": "starts later", "new": "new", "planned": "has a place now", "started": "started",
    "over": "is over", "gone": "has no place any more", "same": "as before",
}  # fmt: skip
LISTED = {
    "plan": "plan", "time_ms": "made", "jobs_due": "were to start", "jobs_started": "did", "later_mean_steps_milli": "steps late",
    "later_max_steps_milli": "at most", "jobs_promised_gpu_us": "jobs", "jobs_held_gpu_us": "had",
    "services_promised_gpu_us": "services", "services_held_gpu_us": "held", "unmet_promised_gpu_us": "not to cover",
    "unmet_gpu_us": "unmet",
}  # fmt: skip
PlanId = Annotated[str, typer.Argument(metavar="[PLAN]", help="Its id [default: the last one]", show_default=False)]


def add_to(app: typer.Typer) -> None:
    """Register the group ``plan``."""
    plan = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Plans of the hours to come, and what became of them.")
    plan.command("show")(read_verb(show))
    plan.command("compare")(read_verb(compare))
    plan.command("risk")(read_verb(risk))
    plan.command("list")(read_verb(list_))
    app.add_typer(plan, name="plan", rich_help_panel=PANEL)


async def show(
    place: ReadPlace,
    plan: PlanId = "",
    pool: Pool = "",
    limit: Annotated[int, typer.Option("--limit", "-n", parser=whole(1), metavar="N", help="At most so many jobs")] = 40,
    svg: Annotated[Path | None, typer.Option("--svg", metavar="FILE", help="Write it as a picture")] = None,
) -> Answer:
    """Show a plan: who starts when, and what services are to hold."""
    async with opened(place) as source:
        found, reply = await _plan_of(source, plan, pool)
        if found is None:
            return _none(place, reply)
        key = {"plan": found["plan"], "seq": reply.as_of.seq}
        jobs, services = (await source.ask("plan_jobs", **key)).rows, (await source.ask("plan_services", **key)).rows
    if svg is not None:
        from apportion.adapters.charts.plan import chart

        svg.write_text(chart(found, jobs, services), encoding="utf-8")
    drawn = [f"picture: {svg}"] if svg is not None else []
    if _for_scripts(place):
        columns = ["workload", "budget", "gpus_milli", "start_ms", "end_ms", "first", "gpus", "late"]
        return Answer([Section(jobs, columns), Section(services, [], key="services")], more={"plan": found}, as_of=reply.as_of)
    from apportion.adapters.charts.gantt import gantt

    width = terminal_width(sys.stdout) or PIPE_WIDTH
    picture = gantt(found, jobs[:limit], services, width)
    rest = [f"the first {limit:,} of {len(jobs):,} jobs are shown; --limit shows more"] if len(jobs) > limit else []
    text = "\n".join([*_title(found), "", picture])
    return Answer(text=text, lines=[*facts(found), *rest], after=[LEGEND, *drawn], as_of=reply.as_of)


def _title(plan: Row) -> list[str]:
    step = render.duration(plan["step_ms"])
    return [
        f"plan {plan['plan']} of pool {plan['pool']}, made {render.when(plan['time_ms'])}",
        f"{render.many(plan['steps'], 'step')} of {step}, to {render.when(plan['until_ms'])}",
    ]


def facts(plan: Row) -> list[str]:
    """Return what a plan is worth, and whom it leaves out."""
    if not plan["waiting"] and not plan["services"]:
        return ["no job waited when it was made, and there was no service"]
    left = plan["waiting"] - plan["jobs"]
    lines = [
        f"{plan['jobs']:,} of {render.many(plan['waiting'], 'waiting job')} {'is' if plan['jobs'] == 1 else 'are'} planned, "
        f"{plan['starts_now']:,} of them now"
        + (f"; {render.many(left, 'has', 'have')} no place in it" if left else "")
    ]
    if plan["late"]:
        lines.append(f"{plan['late']:,} had waited too long to start within the pool's wait bound, whatever was planned")
    if plan["services"]:
        lines.append(f"demand of services that it does not cover: {plan['unmet_gpu_steps']:,} GPU-steps")
    return [*lines, worth(plan)]


def worth(plan: Row) -> str:
    """Return what a plan is worth beside its bound, which knows no blocks and no order in time."""
    part = f", {render.percent(plan['of_bound_ppm'])} of what no plan could exceed" if plan["of_bound_ppm"] is not None else ""
    return f"objective {plan['objective']:,}, bound {plan['bound']:,}{part}"


async def compare(
    place: ReadPlace,
    old: Annotated[str, typer.Argument(metavar="[OLD]", help="[default: the last but one]", show_default=False)] = "",
    new: Annotated[str, typer.Argument(metavar="[NEW]", help="[default: the last one]", show_default=False)] = "",
    pool: Pool = "",
    all_: Annotated[bool, typer.Option("--all", help="Also jobs for which nothing changed")] = False,
) -> Answer:
    """Show what changed from one plan to another, and why."""
    async with opened(place) as source:
        before, after, reply = await _two(source, old, new, pool)
        rows = (await source.ask("plan_changes", old=before["plan"], new=after["plan"], seq=reply.as_of.seq)).rows
    counts = {change: sum(row["change"] == change for row in rows) for change in CHANGES}
    more = {"old": before, "new": after, "changes": counts}
    wanted = [row for row in rows if all_ or row["change"] != "same"]
    wanted.sort(key=lambda row: list(CHANGES).index(row["change"]))  # stable: in order of start below that
    shown = [{**row, "change": CHANGES[row["change"]], "shift_ms": shift_words(row)} for row in wanted]
    lines = [
        f"plan {before['plan']} of {render.when(before['time_ms'])}: {render.many(before['jobs'], 'job')}, {worth(before)}",
        f"plan {after['plan']} of {render.when(after['time_ms'])}: {render.many(after['jobs'], 'job')}, {worth(after)}",
        ", ".join(f"{counts[change]:,} {said}" for change, said in CHANGES.items() if counts[change]) or "neither has a job",
    ]
    columns = ["workload", "change", "gpus_milli", "budget", "old_start_ms", "new_start_ms", "shift_ms"]
    headings = {"gpus_milli": "GPUs", "old_start_ms": "was to start", "new_start_ms": "is to start", "shift_ms": "by"}
    section = Section(
        rows if _for_scripts(place) else wanted, columns, shown=shown, headings=headings, empty="nothing changed",
        drop=("budget", "old_start_ms"),
    )  # fmt: skip
    return Answer([section], lines, more=more, as_of=reply.as_of)


def shift_words(row: Row) -> str:
    """Return by how much a start moved, or when it was."""
    if row["change"] in ("earlier", "later"):
        return ("+" if row["shift_ms"] > 0 else "") + render.duration(row["shift_ms"])
    return f"at {render.when(row['placed_ms'])[5:16]}" if row["placed_ms"] else ""


async def risk(place: ReadPlace, plan: PlanId = "", pool: Pool = "") -> Answer:
    """Show how sure a plan is: demand not covered, idle windows, late jobs."""
    async with opened(place) as source:
        found, reply = await _plan_of(source, plan, pool)
        if found is None:
            return _none(place, reply)
        key = {"plan": found["plan"], "seq": reply.as_of.seq}
        steps = (await source.ask("plan_risk", **key)).rows
        idle = (await source.ask("plan_idle", **key)).rows
        late = [row for row in (await source.ask("plan_jobs", **key)).rows if row["late"]]
    columns = ["from_ms", "needs", "median", "held", "uncovered", "risk_ppm", "planned", "idle"]
    headings = {"from_ms": "from", "uncovered": "not covered", "risk_ppm": "of it", "planned": "jobs"}
    if not found["services"]:
        columns = ["from_ms", "planned", "idle"]
    risky = [row for row in steps if row["uncovered"]]
    lines = [f"plan {found['plan']} of pool {found['pool']}, made {render.when(found['time_ms'])}; GPUs by step", *facts(found)]
    if found["services"]:
        said = f"{len(risky)} of {render.many(len(steps), 'step')}" if risky else "no step"
        lines.append(f"in {said} less is held than services need at the quantile kept ready for")
    after = [f"expected to idle: {window_words(idle)}" if idle else "no GPU is expected to idle"]
    after += [f"late: {late_words(row)}" for row in late]
    sections = [
        Section(steps, columns, headings=headings),
        *([Section(idle, [], key="idle"), Section(late, [], key="late")] if place.form.as_json else []),
    ]
    return Answer(sections, lines, after=after, more={"plan": found}, as_of=reply.as_of)


def window_words(idle: list[Row]) -> str:
    """Return in words how much is expected to idle, and the largest windows."""
    most = sorted(idle, key=lambda row: (-row["idle_gpu_us"], row["from_ms"]))[:IDLE_SHOWN]
    spells = ", ".join(
        f"{row['gpus']:,} from {render.when(row['from_ms'])[5:16]} to {render.when(row['until_ms'])[5:16]}"
        for row in sorted(most, key=lambda row: int(row["from_ms"]))
    )
    return f"{render.gpu_time(sum(row['idle_gpu_us'] for row in idle))}, most of it: {spells}"


def late_words(row: Row) -> str:
    """Return who is late, and when it starts."""
    starts = f"starts {render.when(row['start_ms'])[5:16]}" if row["start"] >= 0 else "has no place in the plan"
    waited = render.duration(row["waited_ms"])
    return f"{row['workload']} of {row['budget']}, {render.gpus(row['gpus_milli'])}, waits for {waited}, {starts}"


async def list_(
    place: ReadPlace,
    pool: Pool = "",
    limit: Annotated[int, typer.Option("--limit", "-n", parser=whole(1), metavar="N", help="The newest so many")] = 20,
    since: Annotated[int, lasting("Made so long ago at most", "any time")] = 0,
) -> Answer:
    """List plans: what each promised for the time that has passed, and what happened."""
    async with opened(place) as source:
        as_of = (await source.ask("plan")).as_of
        since_ms = max(0, as_of.time_ms - since) if since else 0
        reply = await source.ask("plan_regret", row_limit=limit, since_ms=since_ms, seq=as_of.seq, **given(pool=pool))
    after = [
        "GPU-hours of the steps that have passed: promised to jobs, to services, and what was had; demand that was not to be "
        "covered, and that was unmet. Steps late: of the jobs that started, on average and at most."
    ]
    section = Section(
        reply.rows, list(LISTED), headings=LISTED, empty=NONE_YET,
        drop=("later_max_steps_milli", "unmet_promised_gpu_us", "time_ms"),
    )  # fmt: skip
    return Answer([section], after=after if reply.rows else [], as_of=as_of)


async def _plan_of(source: Opened, plan: str, pool: str) -> tuple[Row | None, Reply]:
    """Return the plan that is meant: by id, else the last one of the pool. Raises ``Failure`` (2) for an unknown one."""
    if plan:
        reply = await source.ask("plan", plan=plan)
        if reply.first is None:
            raise await _unknown(source, plan)
        if pool and reply.first["pool"] != pool:
            raise usage(f"plan {plan} is one of pool {reply.first['pool']}", "leave out --pool, or the plan")
        return reply.first, reply
    if pool:
        pool = await one_pool(source, pool)
    reply = await source.ask("plan", **given(pool=pool))
    if len(reply.rows) > 1:
        names = ", ".join(row["pool"] for row in reply.rows)
        raise usage(f"{len(reply.rows)} pools have plans and none is named", f"--pool POOL, one of {names}")
    return reply.first, reply


async def _two(source: Opened, old: str, new: str, pool: str) -> tuple[Row, Row, Reply]:
    """Return the two plans to compare, and an answer of their moment."""
    after, reply = await _plan_of(source, new, pool)
    if after is None:
        raise Failure(1, "no plan is made yet", "`apportion policy set POOL --policy horizon` makes a pool plan")
    if not old:
        made = await source.ask("plans", pool=after["pool"], row_limit=2, seq=after["seq"])
        if len(made.rows) < 2:
            raise Failure(1, f"{after['plan']} is the first plan of pool {after['pool']}", "wait for the next one, or name two")
        old = made.rows[1]["plan"]
    before, _reply = await _plan_of(source, old, "")
    assert before is not None
    if before["pool"] != after["pool"]:
        raise usage(f"{before['plan']} and {after['plan']} are plans of two pools", "name two of one pool")
    if before["seq"] > after["seq"]:
        before, after = after, before
    return before, after, reply


async def _unknown(source: Opened, plan: str) -> Failure:
    known = [str(row["plan"]) for row in (await source.ask("plans", row_limit=500)).rows]
    return nearest(plan, known, "plan", "`apportion plan list` shows them")


def _none(place: ReadPlace, reply: Reply) -> Answer:
    if _for_scripts(place):
        return Answer([Section([], ["plan"])], more={"plan": None}, as_of=reply.as_of)
    return Answer(lines=[NONE_YET], as_of=reply.as_of)


def _for_scripts(place: ReadPlace) -> bool:
    return bool(place.form.as_json or place.form.as_csv or place.form.only)

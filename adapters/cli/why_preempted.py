"""``why-preempted JOB``: the certificate of a preemption in sentences, every number with the sum that it must satisfy.

Certificate, ends and starts come from the projection; who else was considered from the core's own functions on its state at that
cycle (``adapters.explaining.victims``). For who may not read the log that part is left out, and said so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer

from apportion.adapters.cli.asking import Opened, opened
from apportion.adapters.cli.failure import FAILED, Failure
from apportion.adapters.cli.finding import workload_of
from apportion.adapters.cli.jobs import PANEL, Job
from apportion.adapters.cli.moments import moment_if_readable
from apportion.adapters.cli.output import Answer, Section
from apportion.adapters.cli.verbs import ReadPlace, read_verb, whole
from apportion.adapters.cli.why import until_words
from apportion.adapters.text import render

WITHOUT = "who else was considered needs the log, which cannot be read here"
CHOICE = "chosen is the cheapest set whose GPUs, with what is free, hold the beneficiary; cheaper runs on other nodes are no help"
FAIR = "fair"


def add_to(app: typer.Typer) -> None:
    """Register the verb."""
    app.command("why-preempted", rich_help_panel=PANEL)(read_verb(why_preempted))


async def why_preempted(
    place: ReadPlace,
    job: Job,
    run: Annotated[
        int | None, typer.Option("--run", parser=whole(1), metavar="N", help="This run [default: the last one preempted]")
    ] = None,
) -> Answer:
    """Prove a preemption: for whom, by which numbers, what it cost, and whether it helped."""
    async with opened(place) as source:
        workload = await workload_of(source, job)
        name = str(workload["workload"])
        reply = await source.ask("preemptions", workload=name)
        own = [row for row in reply.rows if row["victim"] == name and run in (None, row["victim_run"])]
        if not own:
            which = f"run {run} of {name}" if run else name
            what = f"{which} was not preempted up to record {reply.as_of.seq:,}"
            raise Failure(FAILED, what, f"`apportion job {job}` shows its runs")
        proof = own[-1]
        plan = [row for row in reply.rows if row["seq"] == proof["seq"] and row["beneficiary"] == proof["beneficiary"]]
        plan = plan if len(plan) > 1 else await _plan(source, proof)
        runs = (await source.ask("runs", workload=name)).rows
        other = await source.ask("workload", workload=proof["beneficiary"])
    ended = next((row for row in runs if row["run"] == proof["victim_run"]), {})
    moment = await moment_if_readable(place, int(proof["seq"]), WITHOUT)
    found: dict[str, Any] | None = None
    victim: dict[str, Any] | None = None
    if moment is not None:
        from apportion.adapters.explaining.victims import considered, standing

        found, victim = considered(moment, str(proof["beneficiary"])), standing(moment, name, int(proof["victim_run"]))
    checks = checks_of(proof, plan, ended, workload, victim)
    lines = _lines(proof, plan, ended, workload, other.first or {}, reply.as_of.time_ms)
    sections = [
        Section(checks, ["what", "sum", "holds"], key="checks", title="what had to hold, and did",
                headings={"what": "rule"}, shown=[{**row, "holds": "yes" if row["holds"] else "NO"} for row in checks])
    ]  # fmt: skip
    if found is not None:
        lines += considered_lines(found)
        chosen = {(row["victim"], row["victim_run"]) for row in plan}
        rows = [{**row, "chosen": (row["workload"], row["run"]) in chosen} for row in found["cheapest"]]
        sections.append(
            Section(rows, ["chosen", "workload", "gpus_milli", "budget", "cost_lost_gpu_us", "until"], key="considered",
                    title="who could go, the cheapest first; what was promised nothing counts nothing",
                    headings={"gpus_milli": "GPUs", "cost_lost_gpu_us": "counts as lost"},
                    shown=[_shown(row) for row in rows], empty="nobody else", drop=("until",),
                    after=[CHOICE] if rows else [])
        )  # fmt: skip
    document = {
        "as_of": reply.as_of.document(), "workload": workload, "certificate": proof, "plan": plan, "run": ended, "checks": checks,
        "considered": found, "lines": lines,
    }  # fmt: skip
    code = 0 if all(row["holds"] for row in checks) else FAILED
    return Answer(sections, lines, document=document if place.as_json else None, as_of=reply.as_of, code=code)


async def _plan(source: Opened, proof: dict[str, Any]) -> list[dict[str, Any]]:
    """Return all certificates of the plan: of everybody who went for the same beneficiary in that cycle."""
    rows = (await source.ask("preemptions", workload=proof["beneficiary"], after_seq=proof["seq"] - 1)).rows
    return [row for row in rows if row["seq"] == proof["seq"] and row["beneficiary"] == proof["beneficiary"]]


def checks_of(
    proof: dict[str, Any], plan: list[dict[str, Any]], ended: dict[str, Any], workload: dict[str, Any],
    victim: dict[str, Any] | None,
) -> list[dict[str, Any]]:
    """Return each rule with its numbers and whether it holds; only what the numbers at hand can tell."""
    now_ms, running, gpus, allowance = (
        proof[name] for name in ("time_ms", "victim_running_milli", "victim_gpus_milli", "victim_allowance_milli")
    )
    took, needed, theirs = proof["freed_milli"], proof["needed_milli"], proof["beneficiary_gpus_milli"]
    checks = list[dict[str, Any]]()

    def check(what: str, told: str, holds: bool) -> None:
        checks.append({"what": what, "sum": told, "holds": bool(holds)})

    protected_ms = ended.get("protected_until_ms") or 0
    told = f"protected until {render.when(protected_ms)}, asked at {render.when(now_ms)}"
    check("protected time was over", told, protected_ms <= now_ms)
    if victim is not None:
        check("nobody paid for it", f"its payer was {victim['payer']}", victim["payer"] == "unfunded")
    if proof["policy"] != FAIR:
        _check_baseline(proof, check)
        return checks
    promised_nothing = workload["min_runtime_ms"] == 0 or bool(victim and victim["idle_since_ms"])
    if promised_nothing:
        idle = bool(victim and victim["idle_since_ms"]) and workload["min_runtime_ms"] > 0
        told = "min_runtime 0: idle cycles only"
        if idle and victim:
            told = f"it did no work since {render.when(victim['idle_since_ms'])}"
        check("it was promised nothing", told, True)
    else:
        left = 2 * running - gpus
        check(
            "its budget could not have funded it again at once",
            f"2 x {render.gpu_count(running)} - {render.gpu_count(gpus)} = {render.gpu_count(left)} > 2 x "
            f"{render.gpu_count(allowance)} = {render.gpu_count(2 * allowance)}",
            left > 2 * allowance,
        )
    before, may = proof["beneficiary_running_milli"], proof["beneficiary_allowance_milli"]
    check(
        "the beneficiary was funded",
        f"2 x {render.gpu_count(before)} + {render.gpu_count(theirs)} = {render.gpu_count(2 * before + theirs)} <= 2 x "
        f"{render.gpu_count(may)} = {render.gpu_count(2 * may)}",
        2 * before + theirs <= 2 * may,
    )
    freed = sum(row["victim_gpus_milli"] for row in plan)
    check("all that was freed is told", f"{' + '.join(render.gpu_count(row['victim_gpus_milli']) for row in plan)} = "
          f"{render.gpu_count(freed)}, the certificate says {render.gpu_count(took)}", freed == took)  # fmt: skip
    largest = max(row["victim_gpus_milli"] for row in plan)
    check("no more than was needed, but for one run", f"{render.gpu_count(took)} <= {render.gpu_count(needed)} + "
          f"{render.gpu_count(largest)}", took <= needed + largest)  # fmt: skip
    return checks


def _check_baseline(proof: dict[str, Any], check: Callable[[str, str, bool], None]) -> None:
    """Check the rule of a baseline policy, by its own numbers."""
    numbers = proof["numbers"] or {}
    if proof["policy"] == "priority":
        theirs, mine = numbers["beneficiary_priority"], numbers["victim_priority"]
        check("the beneficiary has the higher priority", f"{mine:,} < {theirs:,}", mine < theirs)
    if proof["policy"] == "drf":
        left = (numbers["beneficiary_line_milli"] + proof["beneficiary_gpus_milli"]) * numbers["victim_weight_ppm"]
        right = numbers["victim_line_milli"] * numbers["beneficiary_weight_ppm"]
        check("the beneficiary's line has less for its weight, with it", f"{left:,} < {right:,}", left < right)


def _lines(
    proof: dict[str, Any], plan: list[dict[str, Any]], ended: dict[str, Any], workload: dict[str, Any], other: dict[str, Any],
    at_ms: int,
) -> list[str]:
    name, budget = proof["victim"], proof["victim_budget"]
    lines = [
        f"{name}: run {proof['victim_run']} ({render.gpus(proof['victim_gpus_milli'])} of {budget}) was asked at "
        f"{render.when(proof['time_ms'])} to make room for {proof['beneficiary']} of {proof['beneficiary_budget']} "
        f"({render.gpus(proof['beneficiary_gpus_milli'])})",
        f"  shares: {budget} ran {render.gpus(proof['victim_running_milli'])} of an allowance of "
        f"{render.gpus(proof['victim_allowance_milli'])}, "
        f"{render.gpus(proof['victim_running_milli'] - proof['victim_gpus_milli'])} after it; {proof['beneficiary_budget']} ran "
        f"{render.gpus(proof['beneficiary_running_milli'])} of "
        f"{render.gpus(proof['beneficiary_allowance_milli'])}, "
        f"{render.gpus(proof['beneficiary_running_milli'] + proof['beneficiary_gpus_milli'])} with it",
    ]
    others = [f"{row['victim']} ({render.gpus(row['victim_gpus_milli'])})" for row in plan if row["victim"] != name]
    together = f", together with {', '.join(others)}" if others else ""
    lines.append(f"  freed {render.gpus(proof['freed_milli'])} of {render.gpus(proof['needed_milli'])} needed{together}")
    lines.append(
        f"  it had run {render.duration(proof['ran_ms'])}; at most {render.gpu_time(proof['lost_gpu_us'])} since it last saved "
        "were at stake"
    )
    if proof["end_ms"]:
        refund = ended.get("refunded_gpu_us") or 0
        given = f"{render.gpu_time(refund)} were given back" if refund else "nothing was given back: no refund for a preemption"
        lost = render.gpu_time(ended.get("lost_gpu_us") or 0)
        took = render.duration(proof["end_ms"] - proof["time_ms"])
        lines.append(f"  it was gone after {took} ({proof['outcome']}); in the end {lost} of work were lost, {given}")
    else:
        lines.append(f"  it has until {render.when(proof['grace_until_ms'])} to go")
    if proof["beneficiary_placed_ms"]:
        waited = render.duration(proof["beneficiary_waited_ms"])
        lines.append(f"  {proof['beneficiary']} started {waited} later; it is {other.get('state', 'unknown')} now")
    else:
        since = render.duration(at_ms - proof["time_ms"])
        lines.append(f"  {proof['beneficiary']} has not started since then, for {since}; it is {other.get('state', 'unknown')} now")
    return [*lines, f"  where it stands now: {name} is {workload['state']}" + (", queued again then" if proof["requeued"] else "")]


def considered_lines(found: dict[str, Any]) -> list[str]:
    """Return how many runs were looked at, and which rule kept how many."""
    from apportion.adapters.explaining.commands import RULES

    kept = [
        f"{told['runs']} ({render.gpus(told['gpus_milli'])}) {RULES[rule]}" for rule, told in found["rules"].items() if told["runs"]
    ]
    return [f"  of {found['runs']} runs in the pool as the cycle began: {', '.join(kept)}"]


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    return {
        **row, "chosen": "yes" if row["chosen"] else "", "cost_lost_gpu_us": render.gpu_time(row["cost_lost_gpu_us"]),
        "until": until_words(row),
    }  # fmt: skip

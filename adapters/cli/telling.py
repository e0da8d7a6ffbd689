"""Decisions in sentences, for ``submit``, ``job`` and everything that shows what the core decided.

Pure functions of a decision as it stands in its batch. Reasons take their words from ``adapters.text.wording``; here is only
what a decision says beside its reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from apportion.adapters.text import render
from apportion.adapters.text.wording import words_of

if TYPE_CHECKING:
    from apportion.core.events import Event

REFUSING = ("rejected", "workload.rejected")


def named_in(event: Event) -> dict[str, str]:
    """Return what an event names, by its field: pools, a budget, a workload. The refusal of a submission tells the field only."""
    found = {name: getattr(event, name, "") for name in ("pools", "budget", "workload")}
    return {name: value if isinstance(value, str) else ", ".join(value) for name, value in found.items()}


def refusal_words(
    decision: dict[str, Any], options: Mapping[str, str] | None = None, named: Mapping[str, str] | None = None
) -> tuple[str, str]:
    """Return ``(sentence, action)`` of a refusing decision; ``options`` names the option behind each field."""
    decision = {"entity": (named or {}).get(str(decision.get("field", "")), ""), **decision}
    numbers = {
        name: render.clean(value) if isinstance(value, str) else value
        for name, value in decision.items()
        if isinstance(value, (int, str)) and name != "reason"
    }
    field = str(numbers.get("field") or "")
    numbers["field"] = (options or {}).get(field, f"field {field}") if field else ""
    told = decision.get("numbers") or {}
    if not told.get("largest_node_milli", 1):  # no node has what is wished for, so there is nothing to count
        told = {}
    numbers.update(told)
    sentence, action = words_of("refusal", str(decision["reason"]), numbers)
    shown = str(numbers["field"])  # an option, or words for an argument
    return sentence + (f" ({shown})" if shown and shown.removeprefix("the ") not in sentence else ""), action


def decision_lines(subject: str, decision: dict[str, Any]) -> list[str]:
    """Return one decision in sentences; the first names the subject."""
    kind = decision["type"]
    if kind == "workload.admitted":
        nodes = decision["nodes"]
        shape = render.gpus(decision["milli_per_node"] * nodes) + (f" on {nodes} nodes" if nodes > 1 else "")
        protected = decision.get("min_runtime_ms", 0)
        until = f", protected for {render.duration(protected)} once it runs" if protected else ", on idle GPUs only"
        lines = [f"{subject}: admitted to {decision['budget']} in pool {decision['pool']}: {shape}{until}"]
        if others := decision.get("others"):
            lines.append(f"  when it cannot start there it may start in {' or '.join(others)}")
        return lines + [skipped_words(pool, reason) for pool, reason in (decision.get("skipped") or {}).items()]
    if kind == "run.placed":
        pieces = ", ".join(piece_words(piece) for piece in decision["pieces"])
        why, action = words_of("funding", decision["why"], decision)
        payer, _action = words_of("payer", decision["payer"])
        where = f" in pool {decision['pool']}" if decision.get("pool") else ""
        lines = [f"{subject}: placed as run {decision['run']} on {pieces}{where}", f"  {payer}: {why}"]
        if decision.get("protected_until_ms", 0) > decision.get("time_ms", 0):
            lines.append(f"  not interrupted before {render.when(decision['protected_until_ms'])}")
        return lines + ([f"  to change that: {action}"] if action and decision["payer"] == "unfunded" else [])
    if kind == "pending.explained":
        why, action = words_of("pending", decision["reason"], decision.get("numbers") or {})
        others = [elsewhere_words(other["pool"], other) for other in decision.get("elsewhere") or []]
        return [f"{subject}: waits: {why}", *others] + ([f"  what helps: {action}"] if action else [])
    if kind == "gpus.reserved" and not decision["pieces"]:
        where = f", and it waits in pool {home} again" if (home := decision.get("waits_in")) else ""
        return [f"{subject}: nothing is held for it any more{where}"]
    if kind == "gpus.reserved":
        return [f"{subject}: GPUs are held for it on {', '.join(piece_words(piece) for piece in decision['pieces'])}"]
    if kind == "run.preempted":
        certificate = decision["certificate"]
        return [
            f"{subject}: run {decision['run']} makes room for {certificate['beneficiary']} "
            f"of {certificate['beneficiary_budget']}; it has until {render.when(decision['grace_until_ms'])}"
        ]
    if kind == "run.cancelled":
        return [
            f"{subject}: cancelled; run {decision['run']} was sent SIGTERM and has until "
            f"{render.when(decision['grace_until_ms'])}"
        ]
    if kind == "run.drained":
        forced = ", although it is funded or protected" if decision.get("forced") else ""
        return [
            f"{subject}: run {decision['run']} has to leave {decision['node']}, which is to be empty by "
            f"{render.when(decision['deadline_ms'])}{forced}; it has until {render.when(decision['grace_until_ms'])}"
        ]
    if kind == "run.moved":
        certificate = decision["certificate"]
        return [
            f"{subject}: run {decision['run']} moves to {', '.join(piece_words(piece) for piece in decision['pieces'])}, so that "
            f"{certificate['beneficiary']} of {certificate['beneficiary_budget']} fits; it has until "
            f"{render.when(decision['grace_until_ms'])} and loses at most {render.gpu_time(certificate['lost_gpu_us'])}"
        ]
    if kind == "moves.proposed":
        return [f"{subject}: {moves_words(decision)}"]
    if kind == "run.closed":
        return [f"{subject}: {closed_words(decision)}"]
    if kind == "workload.closed":
        sentence, _action = words_of("outcome", decision["outcome"], {})
        return [f"{subject}: over: {sentence} (runs: {decision['runs']})"]
    if kind == "funding.changed":
        why, _action = words_of("funding", decision["why"], decision)
        payer = "funded" if decision["payer"] == "budget" else "unfunded"
        return [f"{subject}: run {decision['run']} is now {payer}: {why}"]
    if kind == "grant.issued":
        kept = f", {render.gpu_time(carried)} carried over" if (carried := decision.get("carried_gpu_us", 0)) else ""
        gone = f", {render.gpu_time(lapsed)} not spent lapsed" if (lapsed := decision.get("lapsed_gpu_us", 0)) else ""
        return [f"{subject}: {decision['budget']} gets {render.gpu_time(decision['gpu_us'])} for its next period{kept}{gone}"]
    if kind == "run.idle":
        if not decision["since_ms"]:
            return [f"{subject}: run {decision['run']} works again"]
        return [f"{subject}: run {decision['run']} holds {render.gpus(decision['gpus_milli'])} and does no work "
                f"since {render.when(decision['since_ms'])}"]  # fmt: skip
    if kind == "node.suspended":
        why, action = words_of("node", decision["reason"], decision.get("numbers") or {})
        said = "cordoned" if decision["reason"] == "drained" else "suspended"
        return [f"node {decision['node']}: {said}: {why}", f"  what helps: {action}"]
    if kind == "run.retired":
        until = render.when(decision["grace_until_ms"])
        return [f"{subject}: run {decision['run']} is retired, {decision['service']} needs it no more; it has until {until}"]
    if kind == "service.resized":
        return [f"{subject}: {resize_words(decision)}"]
    if kind == "plan.published":
        return [f"{subject}: {line}" if not number else f"  {line}" for number, line in enumerate(plan_words(decision))]
    if kind in REFUSING:
        what, do = refusal_words(decision)
        return [f"{subject}: refused: {what}"] + ([f"  what helps: {do}"] if do else [])
    return [f"{subject}: {kind} {render.cell('', decision)}"]


def plan_words(decision: dict[str, Any]) -> list[str]:
    """Return what a plan promises, and what it cannot."""
    jobs, late = decision.get("jobs") or [], decision.get("late") or []
    now = sum(job[1] == 0 for job in jobs)
    lines = [
        f"plan {decision['plan']} of pool {decision['pool']}, {render.many(decision['steps'], 'step')} of "
        f"{render.duration(decision['step_ms'])}: "
        f"{len(jobs):,} of {decision['waiting']:,} waiting jobs have a place, {now:,} of them now"
    ]
    if services := decision.get("services") or []:
        unmet = decision["unmet_gpu_steps"]
        short = f"{unmet:,} GPU-steps of their demand are not covered" if unmet else "all of their demand is covered"
        lines.append(f"services {', '.join(service[0] for service in services)}: {short}")
    if late:
        lines.append(f"waited too long to start in time: {', '.join(late)}")
    return lines


def resize_words(decision: dict[str, Any]) -> str:
    """Return how many replicas a service is to have, and why."""
    numbers = decision.get("numbers") or {}
    each, before, now = render.gpus(decision["gpus_milli"]), decision["before"], decision["replicas"]
    why, _action = words_of("resize", decision["why"], numbers)
    bound = f"; {words_of('bound', decision['bound'], numbers)[0]}" if decision.get("bound") else ""
    return f"from {before} to {render.many(now, 'replica')} of {each} each: {why}{bound}"


def elsewhere_words(pool: str, told: dict[str, Any]) -> str:
    """Return why a job that waits did not start in another pool that it accepts."""
    return f"  in pool {pool} neither: {words_of('pending', str(told['reason']), told.get('numbers') or {})[0]}"


def skipped_words(pool: str, reason: str) -> str:
    """Return why a pool that a job named can never take it."""
    return f"  pool {pool} is left out: {words_of('refusal', reason, {})[0]}"


def moves_words(proposal: dict[str, Any]) -> str:
    """Return which moves would let a job start, and at what price."""
    moves = [
        f"{move['workload']} to {', '.join(piece_words(piece) for piece in move['pieces'])}" for move in proposal.get("moves") or []
    ]
    if not moves:
        return "there are no moves any more by which it would start"
    lost = render.gpu_time(proposal.get("lost_gpu_us", 0))
    return f"it would start if these were moved, at a loss of {lost}: {'; '.join(moves)}"


def closed_words(decision: dict[str, Any]) -> str:
    """Return the final account of a run in one sentence."""
    ran_ms = decision["end_ms"] - decision["placed_ms"]
    sentence, _action = words_of("outcome", decision["outcome"], {**decision, "ran_ms": ran_ms})
    paid = [
        f"{render.gpu_time(decision[f'{name}_gpu_us'])} {words}"
        for name, words in (("charged", f"charged to {decision['budget']}"), ("unfunded", "unfunded"))
        if decision[f"{name}_gpu_us"]
    ] or ["nothing charged"]
    refunded = decision.get("refunded_gpu_us", 0) + decision.get("unfunded_refunded_gpu_us", 0)
    if refunded:
        paid.append(f"{render.gpu_time(refunded)} given back")
    if decision.get("requeued"):
        paid.append("it is queued again" + (f" in pool {home}" if (home := decision.get("waits_in")) else ""))
    return f"run {decision['run']} ended: {sentence}; {', '.join(paid)}"


def piece_words(piece: Any) -> str:
    """Return the GPUs of one node: ``node-1 GPUs 0-3,6``, with the part of each where it is not whole."""
    node, gpus, milli_each = (
        (piece["node"], piece["gpus"], piece["milli_each"])
        if isinstance(piece, dict)
        else (piece[0], piece[1], piece[2])
    )
    each = "" if milli_each == 1000 else f" ({render.gpus(milli_each)} of it)"
    noun = "GPU" if len(gpus) == 1 else "GPUs"
    return f"{node} {noun} {_spans(list(gpus))}{each}"


def _spans(numbers: list[int]) -> str:
    """Return ``0-3,6`` for 0, 1, 2, 3, 6."""
    parts: list[str] = []
    start = previous = None
    for number in [*sorted(numbers), None]:
        if previous is not None and number == previous + 1:
            previous = number
            continue
        if start is not None:
            parts.append(str(start) if start == previous else f"{start}-{previous}")
        start = previous = number
    return ",".join(parts)

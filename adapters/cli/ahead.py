"""``submit --dry-run`` and ``what-if submit``: when a job would start, at whose cost, and who would feel it.

What is told comes from the production core, played on from a copy of its newest state (``adapters.whatif.forward``); nothing is
sent. Where the log cannot be read, what the projection knows is told alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from apportion.adapters.cli.asking import Opened
from apportion.adapters.cli.cores import core_if_readable
from apportion.adapters.cli.deciding import known_of
from apportion.adapters.cli.failure import FAILED, Failure
from apportion.adapters.cli.output import Answer, AsOf
from apportion.adapters.cli.showing import counting
from apportion.adapters.cli.telling import named_in, piece_words, refusal_words
from apportion.adapters.cli.verbs import WritePlace, use_kernels
from apportion.adapters.text import render
from apportion.adapters.text.wording import words_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from apportion.adapters.whatif.forward import Ahead
    from apportion.core.events import WorkloadSubmitted

SHOWN = 5
SOON_MS = 5_000
_WITHOUT = "when it would start needs the log, which cannot be read here"
_BASES = {"limits": "if every job runs as long as it states", "forecast": "if jobs run as long as forecast"}


async def dry_run(source: Opened, place: WritePlace, event: WorkloadSubmitted, options: Mapping[str, str]) -> Answer:
    """Return what would become of a submission. Raises ``Failure`` (1) when the core would refuse it."""
    answer = await known_of(source, place, event, budget=event.budget, pools=list(event.pools))
    use_kernels()
    core = await core_if_readable(place, answer.as_of.seq if answer.as_of is not None else 0, _WITHOUT)
    if core is None:
        return answer
    from apportion.adapters.whatif.forward import Basis, has_forecasts, look_ahead

    if event.service is not None:
        asked = look_ahead(core, event, place.principal, ahead_ms=SOON_MS)
        if asked.refusal is not None:
            _refuse(asked, options, event)
        answer.lines += ["", "it would be accepted; how many replicas it has follows its traffic, which is not foretold here"]
        return answer
    bases: list[Basis] = ["limits", "forecast"] if has_forecasts(core) else ["limits"]
    found = []
    with counting("looking ahead", "hours", quiet=place.as_json) as show:
        for basis in bases:
            found.append(look_ahead(core, event, place.principal, basis=basis, progress=show))
            if found[-1].refusal is not None:
                _refuse(found[-1], options, event)
    answer.lines += ["", *(line for one in found for line in lines_of(one, event))]
    answer.document |= {"ahead": [document_of(one) for one in found]}
    answer.as_of = AsOf(core.seq, core.time_ms)
    return answer


def _refuse(found: Ahead, options: Mapping[str, str], event: WorkloadSubmitted) -> None:
    import msgspec

    decision = msgspec.to_builtins(found.refusal)
    what, do = refusal_words(decision, options, named_in(event))
    raise Failure(FAILED, f"it would be refused: {what}", do, decision=decision, dry_run=True)


def lines_of(found: Ahead, event: WorkloadSubmitted) -> list[str]:
    """Return what would become of it by one basis, in sentences."""
    lines = [f"{_start_words(found)} ({_BASES[found.basis]}, and nothing else arrives)"]
    placed = found.placed
    if placed is not None:
        lines.append(f"  on {', '.join(piece_words(_piece(piece)) for piece in placed.pieces)} in pool {placed.pool}")
        why, _action = words_of("funding", placed.why, {})
        numbers = (
            f"; {placed.budget} then has an allowance of {render.gpus(placed.allowance_milli)} and runs "
            f"{render.gpus(placed.running_milli)} besides"
        )
        lines.append(f"  {'funded' if placed.payer == 'budget' else 'unfunded'}: {why}{numbers}")
        until = f"to its end {render.when(found.end_ms)}" if found.end_ms is not None else f"up to {render.when(found.to_ms)}"
        paid = f"{render.gpu_hours(found.funded_gpu_us)} GPU-h paid by {event.budget}"
        free = f", {render.gpu_hours(found.unfunded_gpu_us)} GPU-h unfunded" if found.unfunded_gpu_us else ""
        stops = f", making room {render.many(found.preempted, 'time')}" if found.preempted else ""
        lines.append(f"  {until}: {paid}{free}{stops}")
    if found.waits is not None and found.start_ms != found.from_ms:
        sentence, action = words_of("pending", found.waits.reason, found.waits.numbers)
        lines.append(f"  why not at once: {sentence}")
        lines += [f"  what helps: {action.replace('JOB', event.workload)}"] if action else []
    for victim in found.victims[:SHOWN]:
        one = victim.certificate
        lines.append(
            f"  it would take {render.gpus(one.victim_gpus_milli)} from {victim.workload} of {one.victim_budget}, which runs "
            f"{render.gpus(one.victim_running_milli)} with an allowance of {render.gpus(one.victim_allowance_milli)} "
            f"and would lose {render.gpu_time(one.lost_gpu_us)}"
        )
    lines += [f"  ... and {len(found.victims) - SHOWN} more"] if len(found.victims) > SHOWN else []
    lines += _later_words(found)
    if found.unstated:
        jobs = render.many(found.unstated, "job says nothing of how long it takes", "jobs say nothing of how long they take")
        lines.append(f"  {jobs}{_this_one(found, event)}: taken to run for a day")
    if found.without_end:
        beyond = "running job is beyond what it stated, and is", "running jobs are beyond what they stated, and are"
        lines.append(f"  {render.many(found.without_end, *beyond)} taken to run on")
    return lines


def _this_one(found: Ahead, event: WorkloadSubmitted) -> str:
    if event.expected_runtime_ms:
        return ""
    return ", this one" if found.unstated == 1 else ", this one among them"


def _piece(piece: Any) -> dict[str, Any]:
    return {"node": piece.node, "gpus": list(piece.gpus), "milli_each": piece.milli_each}


def _start_words(found: Ahead) -> str:
    if found.start_ms is None:
        return f"it would not start within {render.duration(found.to_ms - found.from_ms)}"
    wait_ms = found.start_ms - found.from_ms
    if wait_ms <= 2_000:
        return "it would start at once"
    return f"it would start in {render.duration(wait_ms)}, {render.when(found.start_ms)}"


def _later_words(found: Ahead) -> list[str]:
    if found.start_ms is None:
        return []
    if not found.later:
        return ["  no other job would start later because of it"]
    lines = [f"  {render.many(len(found.later), 'job')} would start later because of it:"]
    for workload, budget, milli, without_ms, with_ms in found.later[:SHOWN]:
        then = "later than that" if with_ms is None else f"{render.when(with_ms)}, {render.duration(with_ms - without_ms)} later"
        lines.append(f"    {workload} of {budget}, {render.gpus(milli)}: not {render.when(without_ms)} but {then}")
    return lines + ([f"    ... and {len(found.later) - SHOWN} more"] if len(found.later) > SHOWN else [])


def document_of(found: Ahead) -> dict[str, Any]:
    """Return everything found by one basis."""
    import msgspec

    return {
        "basis": found.basis, "from_ms": found.from_ms, "to_ms": found.to_ms, "start_ms": found.start_ms, "end_ms": found.end_ms,
        "placed": msgspec.to_builtins(found.placed), "waits": msgspec.to_builtins(found.waits),
        "victims": msgspec.to_builtins(found.victims), "funded_gpu_us": found.funded_gpu_us,
        "unfunded_gpu_us": found.unfunded_gpu_us, "preempted": found.preempted,
        "beyond_limit": found.without_end, "unstated": found.unstated,
        "later": [
            {"workload": workload, "budget": budget, "gpus_milli": milli, "without_ms": without_ms, "with_ms": with_ms}
            for workload, budget, milli, without_ms, with_ms in found.later
        ],
    }  # fmt: skip

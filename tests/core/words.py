"""Quantities and decisions in the short words of the scenario tables: ``1h``, ``50%``, ``place a1#1 n1:0-3 budget``.

Times are exact: GPU time is written as the time one GPU would need (``40h`` = 40 GPU-hours).
"""

from __future__ import annotations

import re
from fractions import Fraction

from apportion.core import decisions as d
from apportion.core.units import MILLI

UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
Said = tuple[list[str], dict[str, str]]  # words in order, then what is said by name


def duration_ms(text: str) -> Fraction:
    """Return ``1.5h`` in milliseconds; a bare 0 is 0."""
    match = re.fullmatch(r"([+-]?[0-9.]+)(ms|s|m|h|d)", text)
    if not match:
        if text == "0":
            return Fraction(0)
        raise ValueError(f"{text!r} is no time; write 90s, 10m, 1h")
    return Fraction(match[1]) * UNITS_MS[match[2]]


def whole_ms(text: str) -> int:
    """Return a duration that must be whole milliseconds."""
    value = duration_ms(text)
    assert value.denominator == 1, text
    return int(value)


def gpu_time_us(text: str) -> int:
    """Return ``40h`` (of one GPU) in GPU-microseconds."""
    value = duration_ms(text) * MILLI
    assert value.denominator == 1, text
    return int(value)


def gpus_milli(text: str) -> int:
    """Return ``0.5`` GPUs in thousandths."""
    value = Fraction(text) * MILLI
    assert value.denominator == 1, text
    return int(value)


def share_ppm(text: str) -> int:
    """Return ``12.5%`` in parts per million."""
    value = Fraction(text.removesuffix("%")) * 10_000
    assert value.denominator == 1, text
    return int(value)


def time_text(value_ms: Fraction | int) -> str:
    """Return a duration in the largest unit that leaves it whole."""
    for unit in ("h", "m", "s", "ms"):
        amount = Fraction(value_ms) / UNITS_MS[unit]
        if amount.denominator == 1 and (amount or unit == "ms"):
            return f"{amount}{unit}" if amount else "0"
    return f"{float(value_ms)}ms"


def gpu_time_text(amount_us: int) -> str:
    """Return GPU time as the time of one GPU."""
    return time_text(Fraction(amount_us, MILLI))


def gpus_text(amount_milli: int) -> str:
    """Return thousandths of GPUs as GPUs."""
    return f"{amount_milli / MILLI:g}"


def positions_text(positions: tuple[int, ...]) -> str:
    """Return ``0-3,6``."""
    parts: list[list[int]] = []
    for position in positions:
        if parts and position == parts[-1][1] + 1:
            parts[-1][1] = position
        else:
            parts.append([position, position])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)


def pieces_text(pieces: tuple[d.Piece, ...]) -> str:
    """Return ``n1:0-3+n2:0-3``; a shared GPU as ``n1:0@250``."""
    return "+".join(
        f"{piece.node}:{positions_text(piece.gpus)}" + (f"@{piece.milli_each}" if piece.milli_each < MILLI else "")
        for piece in pieces
    )


def numbers_text(numbers: dict[str, int]) -> dict[str, str]:
    """Return a decision's numbers under their own names."""
    return {name: str(value) for name, value in numbers.items()}


def said(decision: d.AnyDecision, batch: d.CycleBatch, start_ms: int) -> Said:
    """Return the decision as words that a table must give, and what it may give by name."""
    match decision:
        case d.WorkloadAdmitted():
            words = ["admit", decision.workload, decision.budget]
            shape = f"{decision.nodes}x{gpus_text(decision.milli_per_node)}"
            return words, {
                "shape": shape, "min": time_text(decision.min_runtime_ms), "pool": decision.pool,
                "others": ",".join(decision.others), "skipped": ",".join(f"{p}:{why}" for p, why in decision.skipped.items()),
            }  # fmt: skip
        case d.WorkloadRejected():
            names = {"workload": decision.workload, "field": decision.field, "by": decision.principal}
            return ["refuse", "workload.submitted", decision.reason], names | numbers_text(decision.numbers)
        case d.Rejected():
            names = {"entity": decision.entity, "field": decision.field, "by": decision.principal}
            return ["refuse", decision.event_type, decision.reason], names | numbers_text(decision.numbers)
        case d.RunPlaced():
            return _placed(decision, start_ms)
        case d.RunPreempted():
            proof = decision.certificate
            return ["preempt", f"{decision.workload}#{decision.run}", "for", proof.beneficiary], {
                "grace": time_text(decision.grace_until_ms - batch.time_ms), "ran": time_text(proof.ran_ms),
                "lost": gpu_time_text(proof.lost_gpu_us), "r": gpus_text(proof.victim_running_milli),
                "f": gpus_text(proof.victim_allowance_milli), "freed": gpus_text(proof.freed_milli),
                "policy": proof.policy, **{name: str(value) for name, value in proof.numbers.items()},
            }  # fmt: skip
        case d.RunCancelled():
            grace = time_text(decision.grace_until_ms - batch.time_ms)
            return ["stop", f"{decision.workload}#{decision.run}"], {"grace": grace}
        case d.RunDrained():
            words = ["drain", f"{decision.workload}#{decision.run}", decision.node]
            told = ("forced" if decision.forced else "", "saved" if decision.saved else "")
            return [*words, *(word for word in told if word)], {
                "grace": time_text(decision.grace_until_ms - batch.time_ms), "payer": decision.payer,
                "deadline": time_text(decision.deadline_ms - start_ms), "lost": gpu_time_text(decision.lost_gpu_us),
            }  # fmt: skip
        case d.RunMoved():
            proof = decision.certificate
            words = ["move", f"{decision.workload}#{decision.run}", pieces_text(decision.pieces), "for", proof.beneficiary]
            return words, {
                "grace": time_text(decision.grace_until_ms - batch.time_ms), "payer": decision.payer,
                "lost": gpu_time_text(proof.lost_gpu_us), "plan": gpu_time_text(proof.plan_lost_gpu_us),
                "moves": str(proof.moves), "moved": gpus_text(proof.moved_milli), "free": gpus_text(proof.free_milli),
                "need": gpus_text(proof.needed_milli), "ran": time_text(proof.ran_ms),
            }  # fmt: skip
        case d.PlanPublished():
            jobs = [f"{job.workload}@{job.start}+{job.steps}:{job.first}-{job.first + job.gpus - 1}" for job in decision.jobs]
            told = {"waiting": str(decision.waiting), "unmet": str(decision.unmet_gpu_steps), "gpus": str(decision.gpus)}
            told["late"] = ",".join(decision.late) or "none"
            told |= {f"held_{one.workload}": ",".join(map(str, one.held[:6])) for one in decision.services}
            return ["plan", decision.pool, *jobs], told
        case d.RunRetired():
            return ["retire", f"{decision.workload}#{decision.run}"], {"grace": time_text(decision.grace_until_ms - batch.time_ms)}
        case d.ServiceResized():
            words = ["resize", decision.workload, str(decision.before), str(decision.replicas), decision.why]
            return [*words, *([decision.bound] if decision.bound else [])], numbers_text(decision.numbers)
        case d.MovesProposed():
            moves = [f"{move.workload}#{move.run}>{pieces_text(move.pieces)}" for move in decision.moves]
            return ["propose", decision.workload, pieces_text(decision.pieces) or "none", *moves], {
                "lost": gpu_time_text(decision.lost_gpu_us)
            }
        case d.GpusReserved():
            if not decision.pieces:
                return ["unkeep", decision.workload], {"home": decision.waits_in}
            return ["keep", decision.workload, pieces_text(decision.pieces)], {"unfunded": "yes" if decision.unfunded else "no"}
        case d.RunClosed():
            return _closed(decision)
        case d.WorkloadClosed():
            return ["end", decision.workload, decision.outcome], {"runs": str(decision.runs)}
        case d.NodeSuspended():
            return ["suspend", decision.node, decision.reason], numbers_text(decision.numbers)
        case d.FundingChanged():
            return ["fund", f"{decision.workload}#{decision.run}", decision.payer, decision.why], {
                "f": gpus_text(decision.allowance_milli), "before": gpus_text(decision.before_milli),
                "since": time_text(decision.idle_since_ms - start_ms) if decision.idle_since_ms else "",
            }  # fmt: skip
        case d.RunIdle():
            since = time_text(decision.since_ms - start_ms) if decision.since_ms else "no"
            return ["idle", f"{decision.workload}#{decision.run}"], {
                "since": since, "gpus": gpus_text(decision.gpus_milli), "limit": time_text(decision.limit_ms),
            }  # fmt: skip
        case d.GrantIssued():
            return ["issue", decision.budget, gpu_time_text(decision.gpu_us)], {
                "carried": gpu_time_text(decision.carried_gpu_us), "lapsed": gpu_time_text(decision.lapsed_gpu_us),
                "period": time_text(decision.period_ms - start_ms), "pool": decision.pool,
                "until": time_text(decision.until_ms - start_ms) if decision.until_ms else "never",
            }  # fmt: skip
        case d.PendingExplained():
            others = {pool.pool: pool.reason for pool in decision.elsewhere}
            return ["wait", decision.workload, decision.reason], numbers_text(decision.numbers) | others
    raise AssertionError(f"no words for {decision}")


def _placed(placed: d.RunPlaced, start_ms: int) -> Said:
    words = ["place", f"{placed.workload}#{placed.run}", pieces_text(placed.pieces), placed.payer]
    if placed.beneficiary:
        words.append("kept")
    return words, {
        "why": placed.why, "until": time_text(placed.protected_until_ms - start_ms), "from": time_text(placed.resume_from_ms),
        "reserved": gpu_time_text(placed.reserved_gpu_us), "f": gpus_text(placed.allowance_milli),
        "r": gpus_text(placed.running_milli), "pool": placed.pool,
    }  # fmt: skip


def _closed(closed: d.RunClosed) -> Said:
    words = ["close", f"{closed.workload}#{closed.run}", closed.outcome]
    if closed.requeued:
        words.append("requeue")
    return words, {
        "ran": time_text(closed.end_ms - closed.placed_ms), "paid": gpu_time_text(closed.charged_gpu_us),
        "free": gpu_time_text(closed.unfunded_gpu_us), "back": gpu_time_text(closed.refunded_gpu_us),
        "backfree": gpu_time_text(closed.unfunded_refunded_gpu_us), "void": gpu_time_text(closed.voided_gpu_us),
        "lost": gpu_time_text(closed.lost_gpu_us), "progress": time_text(closed.progress_ms), "exit": str(closed.exit_code),
        "blamed": ",".join(closed.blamed), "home": closed.waits_in,
        "after": time_text(closed.not_before_ms - closed.end_ms) if closed.not_before_ms else "0",
    }  # fmt: skip


def text_of(told: Said) -> str:
    """Return all of it on one line."""
    words, names = told
    return " ".join([*words, *(f"{name}={value}" for name, value in names.items() if value not in ("", "0"))])


def same_value(expected: str, got: str) -> bool:
    """Tell whether two values are the same, whatever their unit."""
    try:
        return duration_ms(expected) == duration_ms(got)
    except ValueError:
        return expected == got


def matches(expected: Said, got: Said) -> bool:
    """Tell whether a line of a table describes the decision: the same words, and nothing named that is otherwise."""
    words, names = expected
    return words == got[0] and all(name in got[1] and same_value(value, got[1][name]) for name, value in names.items())


def parse_line(text: str) -> Said:
    """Return the words and the named values of a line."""
    words, names = list[str](), dict[str, str]()
    for word in text.split():
        name, equals, value = word.partition("=")
        if equals and re.fullmatch(r"[a-z_]+", name, re.IGNORECASE):
            names[name] = value
        else:
            words.append(word)
    return words, names

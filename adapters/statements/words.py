"""The words of a statement: what stands above its lines and below them, and each line as a person reads it.

Pure functions of a ``Statement``, shared by the terminal and the page, so that both say the same. They round for the eye only;
the sum that checks is printed exactly.
"""

from __future__ import annotations

from typing import Any

from apportion.adapters.statements.statement import Statement
from apportion.adapters.text import render


def heading_lines(made: Statement) -> list[str]:
    """Return what stands above the lines."""
    so_far = "" if made.until_ms == made.to_ms else f", so far to {render.when(made.until_ms)}"
    lines = [
        f"statement of {made.budget} in pool {made.pool}",
        f"{render.when(made.from_ms)} to {render.when(made.to_ms)}{so_far}",
    ]
    if not made.metered:
        lines.append("never granted GPU time: no balance, only what it used since the log began")
    elif made.metered_ms is not None and made.metered_ms > made.from_ms:
        lines.append(f"the balance begins with the first grant, {render.when(made.metered_ms)}")
    lines.append(f"opening {made.word}: {render.gpu_time(made.opening_gpu_us)}")
    return lines


def closing_lines(made: Statement) -> list[str]:
    """Return what stands below the lines: each part, and the sum that checks."""
    opening, closing = render.gpu_seconds(made.opening_gpu_us), render.gpu_seconds(made.closing_gpu_us)
    parts = [f"{'-' if amount < 0 else '+'} {word} {render.gpu_seconds(abs(amount))}" for word, amount in made.parts()]
    return [
        f"closing {made.word}: {render.gpu_time(made.closing_gpu_us)}",
        f"checked: opening {opening} {' '.join(parts)} = closing {closing} GPU-seconds, exact to the GPU-microsecond",
    ]


def shown_line(line: dict[str, Any], made: Statement) -> dict[str, Any]:
    """Return a line as a person reads it: what it is, and what of it lies outside the period."""
    money = line["credit_gpu_us"] - line["debit_gpu_us"] if line["kind"] not in ("run", "refund") else None
    return {
        "what": render.clean(_what(line, made)),
        "user": line["user"],
        "from": short(line["start_ms"]) if line["start_ms"] else "",
        "to": "goes on"
        if line["kind"] == "run" and line["end_ms"] is None
        else short(line["end_ms"] or line["booked_ms"]),
        "gpus_milli": line["gpus_milli"] if line["gpus_milli"] is not None else "",
        "funded_gpu_us": line["funded_gpu_us"],
        "unfunded_gpu_us": line["unfunded_gpu_us"],
        "refunded_gpu_us": line["refunded_gpu_us"] + line["unfunded_refunded_gpu_us"],
        "credit_gpu_us": money or 0,
        "balance_gpu_us": line["balance_gpu_us"],
    }


def _what(line: dict[str, Any], made: Statement) -> str:
    if line["kind"] not in ("run", "refund"):
        other = f" {'to' if line['debit_gpu_us'] else 'from'} {line['other']}" if line["other"] else ""
        return f"{line['kind']}{other}" + (f": {line['reason']}" if line["reason"] else "")
    name = f" ({line['name']})" if line["name"] and line["name"] != line["workload"] else ""
    run = f"{line['workload']} run {line['run']}{name}"
    if line["kind"] == "refund":
        return f"refund for {run}, which ended before"
    notes = []
    if line["start_ms"] < made.from_ms:
        notes.append("began before")
    if line["end_ms"] is not None and line["end_ms"] > made.until_ms:
        notes.append("went on after")
    inside = render.duration(line["to_ms"] - line["from_ms"])
    return run + (f": {' and '.join(notes)}, {inside} in this period" if notes else "")


def short(time_ms: int) -> str:
    """Return an instant without its year: the period is in the title."""
    return render.when(time_ms)[5:-1]

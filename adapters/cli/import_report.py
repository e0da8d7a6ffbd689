"""What an import says when it is done: what became of the lines, what had to be assumed, what it adds up to.

A pure function of the counts and totals it is given. Lines that were not read come as a table; the first twenty on the screen,
the first thousand in the document, all of them in ``fact.imported_refusal``.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from apportion.adapters.cli.failure import FAILED
from apportion.adapters.cli.output import Answer, Section
from apportion.adapters.text import render

if TYPE_CHECKING:
    from apportion.adapters.imports.attempt import Attempt
    from apportion.adapters.imports.intake import Intake

HOURS = {"cpu_ms": "CPU-h", "node_ms": "node-h", "wall_ms": "wall h", "wait_ms": "wait h"}
ATTEMPT_COLUMNS = (
    "line", "cluster", "job", "user", "account", "queue", "state", "submit_ms", "start_ms", "end_ms", "gpus_milli", "cpus", "nodes",
)  # fmt: skip
REFUSALS_ON_SCREEN = 20


class Outcome(NamedTuple):
    """What was asked for, and what the history holds after it."""

    path: Path
    dry_run: bool
    jobs_file: Path | None
    zone: str
    totals: list[dict[str, Any]]  # one row per cluster of the file
    kinds: dict[str, int]
    jobs: int | None  # written as a trace; None when not asked for
    stated: dict[str, int]  # what the file says about itself


def told(outcome: Outcome, intake: Intake) -> Answer:
    """Return what became of one file; exits with 1 when a line could not be read, or there is none."""
    sections = []
    if intake.refusals:
        rows: list[dict[str, Any]] = [refusal._asdict() for refusal in intake.refusals]
        left = intake.refused - REFUSALS_ON_SCREEN
        sections.append(
            Section(
                rows, ["line", "reason"], key="refusals", title="lines that were not read", shown=rows[:REFUSALS_ON_SCREEN],
                after=[f"and {left:,} more; all are in the table fact.imported_refusal"] if left > 0 else (),
            )
        )  # fmt: skip
    if outcome.dry_run and intake.first:
        firsts = [_row(attempt) for attempt in intake.first]
        sections.insert(0, Section(firsts, _columns(firsts), key="first", title="the first attempts, as understood"))
    document = {
        "file": str(outcome.path), "zone": outcome.zone, "lines": intake.lines, "attempts": intake.attempts,
        "refused": intake.refused, "passed": dict(intake.passed), "notes": dict(intake.notes), "dry_run": outcome.dry_run,
        "merged": intake.merged._asdict(), "kinds": outcome.kinds, "totals": outcome.totals, "stated": outcome.stated,
        **({"jobs": outcome.jobs} if outcome.jobs is not None else {}),
    }  # fmt: skip
    code = FAILED if intake.refused or not intake.lines else 0
    return Answer(sections, lines=_lines(outcome, intake), more=document, code=code)


def _lines(outcome: Outcome, intake: Intake) -> list[str]:
    counts = f"{render.many(intake.attempts, 'attempt')}, {intake.refused:,} not read, {intake.passed.total():,} passed over"
    lines = [f"{outcome.path.name}: {render.many(intake.lines, 'line')}: {counts}"]
    if not intake.lines:
        lines.append("  the file is empty: was the dump cut off, or written elsewhere?")
    if intake.passed:
        lines.append("  passed over: " + _counted(intake.passed.most_common()))
    lines += [f"  {render.many(many, 'time')}: {text}" for text, many in intake.notes.most_common()]
    if outcome.stated:
        lines.append("  the log states " + ", ".join(f"{name} {value:,}" for name, value in outcome.stated.items()))
    if outcome.dry_run:
        lines.append("  dry run: nothing is kept")
    else:
        new, improved, known = intake.merged
        lines.append(f"  {new:,} are new, {improved:,} tell more than before, {known:,} were known")
    lines.append("  the history now holds " + (_counted((kind, many) for kind, many in outcome.kinds.items()) or "nothing"))
    for row in outcome.totals:
        others = ", ".join(f"{hours(row[name])} {unit}" for name, unit in HOURS.items())
        lines.append(f"  {row['cluster']}: {render.gpu_hours(row['gpu_us'])} GPU-h, {others}")
    if outcome.jobs is not None:
        none = "none held a GPU (in a log of processors: --as-gpus)"
        play = f"play them: apportion compare --trace {outcome.jobs_file}" if outcome.jobs else none
        lines.append(f"  {outcome.jobs:,} jobs are in {outcome.jobs_file}; {play}")
    return lines


def _counted(counts: Iterable[tuple[str, int]]) -> str:
    return ", ".join(f"{many:,} {what}" for what, many in counts)


def _row(attempt: Attempt) -> dict[str, Any]:
    return {name: value for name, value in attempt._asdict().items() if value not in ("",)}


def _columns(rows: list[dict[str, Any]]) -> list[str]:
    return [name for name in ATTEMPT_COLUMNS if any(row.get(name) not in (None, 0, "") for row in rows)]


def hours(ms: int) -> str:
    """Return milliseconds of something as hours with one decimal, in integers."""
    tenths = (int(ms) * 10 + 1_800_000) // 3_600_000
    return f"{tenths // 10:,}.{tenths % 10}"



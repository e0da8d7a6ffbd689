"""One import: what a reader makes of a file goes into a history, counted line by line.

Decides nothing about lines: it counts them, keeps the first few to show, and asks the history to merge. ``take_in`` is the one
place where readers and the store meet. Interrupted or failed, it leaves the history as it was.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from apportion.adapters.imports.attempt import Attempt, Read, Refusal
from apportion.adapters.imports.instants import Zone
from apportion.projections.imported.history import Day, FileRead, History, Merged

SHOWN = 5
REFUSALS_SHOWN = 1_000
NOTHING = Merged(0, 0, 0)


@dataclass
class Intake:
    """What became of the lines of one file."""

    lines: int = 0
    attempts: int = 0
    refused: int = 0
    passed: Counter[str] = field(default_factory=Counter)
    notes: Counter[str] = field(default_factory=Counter)
    clusters: dict[str, None] = field(default_factory=dict)  # in the order of their first line
    first: list[Attempt] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    merged: Merged = NOTHING

    def note(self, text: str) -> None:
        """Count something a reader had to assume."""
        self.notes[text] += 1


def take_in(
    intake: Intake,
    reads: Iterable[Read],
    history: History,
    zone: Zone,
    about: Mapping[str, str],
    *,
    until_ms: int | None = None,
    now_ms: int = 0,
) -> Intake:
    """Put all attempts into the history and return the counts. ``about``: ``name`` and ``kind`` of the file."""  # fmt: skip
    history.begin()
    try:
        for read in reads:
            intake.lines += 1
            if isinstance(read, Attempt):
                _keep(intake, read, history)
            elif isinstance(read, Refusal):
                intake.refused += 1
                history.refuse(read.line, read.reason)
                if len(intake.refusals) < REFUSALS_SHOWN:
                    intake.refusals.append(read)
            else:
                intake.passed[read.why] += 1
        file = FileRead(
            about["name"], about["kind"], zone.name, until_ms, intake.lines, intake.passed.total(),
            json.dumps(dict(sorted(intake.notes.items()))), now_ms,
        )  # fmt: skip
        span = history.span(zone.name)
        last_ms = max(span[1], until_ms or 0) if span else 0
        days = (Day(zone.name, *day) for day in zone.days(span[0], last_ms)) if span else ()
        intake.merged = history.commit(file, days)
    except BaseException:
        history.roll_back()
        raise
    return intake


def _keep(intake: Intake, attempt: Attempt, history: History) -> None:
    intake.attempts += 1
    intake.clusters.setdefault(attempt.cluster)
    if len(intake.first) < SHOWN:
        intake.first.append(attempt)
    history.add(_row(attempt))


def _row(attempt: Attempt) -> tuple[object, ...]:
    """Return the attempt in the order of ``history.COLUMNS``."""
    a = attempt
    return (
        a.cluster, a.job, a.submit_ms, a.start_ms, a.end_ms, a.eligible_ms, a.elapsed_ms, a.label, a.name, a.user, a.account,
        a.group,
        a.qos, a.queue, a.state, a.exit, a.nodes, a.cpus, a.gpus_milli, a.gpu_type, a.node_list, a.line,
    )  # fmt: skip

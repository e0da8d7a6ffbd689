"""What imported history asked for, as a trace that the simulation plays: submissions, demands, budgets; no starts.

Decides what a recorded job is to a simulation: one submission (of several attempts the last that ran, for a requeued job begins
anew), its GPUs in whole numbers (parts of a GPU are rounded up), its length as it was, and whose budget it charges. ``written``
is a pure function of the history, ``read`` of the file. Starts and nodes are left out on purpose: who decides is the core.

The file is CSV: ``job_id,submit_ms,duration_ms,gpus,budget``; ``submit_ms`` since 1970, in order.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from apportion.adapters.demo.trace import TraceError
from apportion.adapters.simulation.job import Job
from apportion.core.units import MAX_DURATION_MS, MAX_POOL_MILLI, MAX_TIME_MS, MS_PER_DAY
from apportion.projections.imported.history import History

COLUMNS = ("job_id", "submit_ms", "duration_ms", "gpus", "budget")
BUDGET_BY = ("account", "group", "user", "queue", "qos", "cluster")
_UNFIT = re.compile(r"[^A-Za-z0-9_\-.]+")

_SQL = """
select cluster, job, submit_ms, counted_end_ms - start_ms as duration_ms, (gpus_milli + 999) // 1000 as gpus, {budget} as budget
from mart.imported_attempt
where kind = 'ran' and gpus_milli > 0 and counted_end_ms > start_ms and cluster in (select unnest($clusters))
qualify row_number() over (partition by cluster, job, submit_ms order by start_ms desc) = 1
order by submit_ms, cluster, job
"""


class Slice(NamedTuple):
    """Some days of a trace: the instant at which they begin, and their jobs counted from there."""

    start_ms: int
    jobs: list[Job]


def fit(text: str) -> str:
    """Return a name as one part of a budget's path."""
    return _UNFIT.sub("-", text).strip("-.")[:64].lstrip("_") or "unnamed"


def chosen(history: History, clusters: Iterable[str], budget_by: str) -> Iterator[tuple[str, int, int, int, str]]:
    """Yield the jobs of these clusters in the order of their submission, as rows of the trace."""
    if budget_by not in BUDGET_BY:
        raise ValueError(f"{budget_by!r} is not one of {', '.join(BUDGET_BY)}")
    sql = _SQL.format(
        budget=f"coalesce(nullif(\"{budget_by}\", ''), nullif(account, ''), nullif(\"group\", ''), nullif(\"user\", ''), cluster)"
    )
    seen: dict[str, int] = {}
    for _cluster, job, submit_ms, duration_ms, gpus, budget in history.con.execute(
        sql, {"clusters": list(clusters)}
    ).fetchall():
        name = fit(job)
        seen[name] = seen.get(name, 0) + 1
        yield (name if seen[name] == 1 else f"{name}:{seen[name]}", submit_ms, duration_ms, gpus, fit(budget))


def written(path: Path, rows: Iterable[tuple[str, int, int, int, str]]) -> int:
    """Write the trace and return how many jobs it has. Raises ``OSError``."""
    jobs = 0
    with path.open("w", encoding="utf-8", newline="") as text:
        out = csv.writer(text, lineterminator="\n")
        out.writerow(COLUMNS)
        for row in rows:
            out.writerow(row)
            jobs += 1
    return jobs


def is_jobs(path: Path) -> bool:
    """Tell whether a file is such a trace, by its first line."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as text:
            return text.readline().strip() == ",".join(COLUMNS)
    except (OSError, UnicodeDecodeError):
        return False


def read(path: Path, days: int) -> Slice:
    """Return the jobs of the first ``days`` days (UTC) of a trace. Raises ``TraceError`` with the line that is not as written."""
    jobs: list[Job] = []
    start_ms = before_ms = 0
    with path.open(encoding="utf-8-sig", newline="") as text:
        for number, row in enumerate(csv.reader(text), 1):
            if number == 1:
                continue
            try:
                job_id, submit_ms, duration_ms, gpus, budget = row[0], int(row[1]), int(row[2]), int(row[3]), row[4]
            except (ValueError, IndexError):
                raise TraceError(f"{path} line {number}: {','.join(row)[:80]!r} is not {','.join(COLUMNS)}") from None
            if not (
                before_ms <= submit_ms <= MAX_TIME_MS
                and 0 < duration_ms <= MAX_DURATION_MS
                and 0 < gpus <= MAX_POOL_MILLI // 1_000
            ):
                raise TraceError(f"{path} line {number}: not in order of submission, or outside the bounds of a job")
            start_ms = start_ms or submit_ms - submit_ms % MS_PER_DAY
            before_ms = submit_ms
            if submit_ms < start_ms + days * MS_PER_DAY:
                jobs.append(Job(job_id, submit_ms - start_ms, duration_ms, gpus, budget))
    if not jobs:
        raise TraceError(f"{path}: it holds no job")
    return Slice(start_ms, jobs)

"""Who used what of imported history: by day, cluster, user, account, group, queue, qos, unit, size, in exact integers.

Pure functions of the file and the arguments. A question names its splits; the words are checked against the list here before
they become SQL, so nothing a user types is ever run. Sums are GPU-microseconds, CPU-, node- and wall-milliseconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import duckdb

from apportion.core.errors import ApportionError
from apportion.core.units import MAX_TIME_MS

BY = (
    "day", "cluster", "user", "account", "group", "queue", "qos", "state", "gpus_milli", "gpu_type", "cpus", "nodes", "unit1",
    "unit2", "unit3",
)  # fmt: skip
ALIASES = {
    "partition": "queue",
    "size": "gpus_milli",
    "gpus": "gpus_milli",
    "pi": "account",
    "department": "unit2",
    "person": "user",
}
SUMS = ("attempts", "gpu_us", "cpu_ms", "node_ms", "wall_ms", "wait_ms")


class UsageRefused(ApportionError):
    """A question about imported history that cannot be answered as asked."""


@dataclass(frozen=True)
class Asked:
    """A question: split by what, from when until when, of which cluster."""

    by: tuple[str, ...] = ()
    since_ms: int = 0
    until_ms: int = MAX_TIME_MS
    cluster: str = ""


def split_of(names: Sequence[str]) -> tuple[str, ...]:
    """Return the columns to split by; raises ``UsageRefused`` naming those there are."""
    wanted = [ALIASES.get(name, name) for name in names]
    unknown = [name for name in wanted if name not in BY]
    if unknown:
        raise UsageRefused(f"usage cannot be split by {', '.join(unknown)}; it can by {', '.join((*BY, *ALIASES))}")
    return tuple(dict.fromkeys(wanted))


def usage(con: duckdb.DuckDBPyConnection, asked: Asked) -> list[dict[str, Any]]:
    """Return one row per split, largest GPU time first, days in their order. ``attempts``: how many held something then."""
    keys = ", ".join(f'"{name}"' for name in asked.by)
    counted = "count(*)" if "day" in asked.by else "count(distinct (cluster, job, submit_ms, start_ms))"
    order = ", ".join(
        [*(['"day"'] if "day" in asked.by else []), "gpu_us desc", "cpu_ms desc", *(f'"{n}"' for n in asked.by)]
    )
    sums = ", ".join(f"coalesce(sum({name}), 0)::hugeint as {name}" for name in SUMS[1:])
    sql = f"""select {keys + ", " if keys else ""}{counted} as attempts, {sums}
        from mart.imported_usage($since::bigint, $until::bigint) where $cluster = '' or cluster = $cluster
        {"group by " + keys if keys else ""} order by {order}"""
    cursor = con.execute(sql, {"since": asked.since_ms, "until": asked.until_ms, "cluster": asked.cluster})
    names = [column[0] for column in cursor.description or ()]
    return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def kinds(con: duckdb.DuckDBPyConnection) -> dict[str, int]:
    """Return how many attempts are of which kind: ran, open, ghost, never ran, waiting, superseded."""
    return dict(con.execute("select kind, count(*) from mart.imported_attempt group by kind order by kind").fetchall())


def sources(con: duckdb.DuckDBPyConnection) -> list[dict[str, Any]]:
    """Return the files that were imported, oldest first."""
    cursor = con.execute(
        "select file, name, kind, zone, lines, attempts, refused, passed, notes, imported_ms from dim.imported_file order by file"
    )
    names = [column[0] for column in cursor.description or ()]
    return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


CHECKS = {
    "key_unique": (
        "Is every attempt there once?",
        """select cluster, job, submit_ms, start_ms, count(*) as times from fact.imported_job
        group by all having count(*) > 1""",
    ),
    "days_sum": (
        "Do the days of every attempt add up to the whole of it?",
        """select * from (select cluster, job, submit_ms, start_ms, gpu_us + cpu_ms + node_ms + wall_ms as whole
            from mart.imported_attempt where kind in ('ran', 'open')) as a
        left join (select cluster, job, submit_ms, start_ms, sum(gpu_us + cpu_ms + node_ms + wall_ms) as parts
            from mart.imported_usage(0, 4398046511104) group by all) as d using (cluster, job, submit_ms, start_ms)
        where parts is distinct from whole""",
    ),
    "one_at_a_time": (
        "Does no job run twice at once?",
        """select cluster, job, submit_ms, start_ms, before_end_ms from (
            select *, lag(counted_end_ms) over (partition by cluster, job, submit_ms order by start_ms) as before_end_ms
            from mart.imported_attempt where kind = 'ran') where before_end_ms > start_ms""",
    ),
    "lines_counted": (
        "Is every line of every file an attempt, a refusal or passed?",
        "select file, name, lines, attempts, refused, passed from dim.imported_file where lines <> attempts + refused + passed",
    ),
    "ghosts": (
        "Does nothing without an end share its number with a later attempt? (ghosts are not counted)",
        "select cluster, job, submit_ms, start_ms, gpus_milli from mart.imported_attempt where kind = 'ghost'",
    ),
    "wait_positive": (
        "Did everything start after it was submitted?",
        "select cluster, job, submit_ms, start_ms from mart.imported_attempt where start_ms < submit_ms",
    ),
}

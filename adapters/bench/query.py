"""Questions of auditors over a year of a 1,024-GPU cluster: milliseconds each, and the whole audit.

The year is one day decided by the real core, its rows laid end to end (see ``_year``): some 1.36 million jobs, 7.7 million records
of the log besides heartbeats, 13 million five-minute rows of them. All checks of the audit must hold on it, else nothing is told.
Each question is asked through the code that the projector asks it with, on one thread as the projector does, in a read-only
transaction, and its best time of ``rounds`` counts: ``ms`` by the clock, ``cpu_ms`` of this process. ``keep`` names a file that is
made once and used again. A measurement, not a test.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb

from apportion.adapters.bench import _year
from apportion.core.errors import ApportionError
from apportion.core.units import MS_PER_DAY
from apportion.projections import audit, queries
from apportion.projections.fingerprint import fingerprint

BUDGET, POOL = "itp/cluster04", "h100"
TABLES = {
    "jobs": "fact.workload", "runs": "fact.run_closed", "records": "raw.event_log", "decisions": "fact.decision",
    "ledger_lines": "fact.ledger", "allocations": "fact.alloc_closed", "heartbeat_rows": "fact.heartbeat_5m_closed",
}  # fmt: skip
TARGET_MS = {"usage by day and budget": 1_000, "holders at an instant": 20, "audit": 60_000}


def run(
    days: int = 365, nodes: int = 128, demand_milli: int = 3_600, rounds: int = 3, threads: int = 1, seed: int = 5, keep: str = ""
) -> dict[str, Any]:
    """Return a row per question, and what the year holds. Raises ``ApportionError`` when a check does not hold on it."""
    with _made(days, nodes, demand_milli, seed, keep) as path, duckdb.connect(str(path), read_only=True) as con:
        con.execute("set TimeZone = 'UTC'")
        con.execute(f"set threads = {threads}")
        rows = [_ask(con, title, name, params, rounds) for title, name, params in _questions(con)]
        rows.append(_audit(con))
        counts = {
            key: (con.execute(f"select count(*) from {table}").fetchone() or (0,))[0]
            for key, table in TABLES.items()
        }
        size_mb = round(path.stat().st_size / 1e6)
    return {
        "questions": rows, "checks": len(audit.checks()), "days": days, "gpus": nodes * 8, **counts, "file_mb": size_mb,
        "threads": threads, "rounds": rounds,
    }  # fmt: skip


@contextmanager
def _made(days: int, nodes: int, demand_milli: int, seed: int, keep: str) -> Iterator[Path]:
    """Give the file of the year: the kept one, if it was made of the same by the same code, else a new one."""
    with tempfile.TemporaryDirectory(prefix="apportion-bench-") as folder:
        path = Path(keep) if keep else Path(folder) / "year.duckdb"
        note = path.with_name(path.name + ".made")
        made_of = f"{days} {nodes} {demand_milli} {seed} {fingerprint()}"
        if not (keep and path.is_file() and note.is_file() and note.read_text() == made_of):
            for left in (note, path, path.with_name(path.name + ".wal")):
                left.unlink(missing_ok=True)
            _year.build(path, days=days, seed=seed, nodes=nodes, demand_milli=demand_milli, tell=_tell)
            if keep:
                note.write_text(made_of)
        yield path


def _tell(line: str) -> None:
    sys.stderr.write(line + "\n")


def _questions(con: duckdb.DuckDBPyConnection) -> list[tuple[str, str, dict[str, Any]]]:
    """Return what is asked: its title, the named query, its parameters. Moments are in the middle of the year, at no round time."""
    now = queries.as_of(con)
    first_ms = (con.execute("select min(time_ms) from fact.cycle").fetchone() or (0,))[0]
    mid_ms = first_ms + (now.time_ms - first_ms) // 2 + 12_345
    month_ms = mid_ms - 30 * MS_PER_DAY
    month = {"pool": POOL, "from_ms": month_ms, "to_ms": mid_ms}
    found = con.execute("select workload, event_seq from fact.run_closed where end_ms >= ? order by closed_seq limit 1", [mid_ms])
    workload, event_seq = found.fetchone() or ("", 0)
    early = queries.as_of(con, at_ms=mid_ms)
    return [
        ("usage by day and budget", "usage", {"by": "day,budget"}),
        ("usage by day, user and kind", "usage", {"by": "day,user,kind"}),
        ("usage by day and budget, 30 days", "usage", {"by": "day,budget", "since_ms": month_ms, "until_ms": mid_ms}),
        ("holders at an instant", "holders", {"at_ms": mid_ms}),
        ("balances at an instant", "budgets", {"at_ms": mid_ms}),
        ("shares at an instant", "share", {"at_ms": mid_ms}),
        ("queue at an instant", "queue", {"at_ms": mid_ms}),
        ("bill of a month", "bill", {"budget": BUDGET, **month}),
        ("statement of a month", "statement", {"budget": BUDGET, **month}),
        ("corrections since an instant", "corrections", {"known_seq": early.seq}),
        ("capacity by day", "capacity", {}),
        ("pillars by day", "pillars", {}),
        ("idle holds", "idle_hold", {}),
        ("lost work by day", "lost_work", {}),
        ("certificates unused", "certificates_unused", {}),
        ("loops", "loops", {}),
        ("fruitless attempts", "fruitless", {}),
        ("waits by size", "waits", {}),
        ("one job's life", "job", {"workload": workload}),
        ("the decision of an event", "decision_of", {"event_seq": event_seq}),
    ]


def _ask(con: duckdb.DuckDBPyConnection, title: str, name: str, params: dict[str, Any], rounds: int) -> dict[str, Any]:
    best_s, best_cpu_s, rows = float("inf"), float("inf"), 0
    for _ in range(rounds):
        began, cpu_began = time.perf_counter(), time.process_time()
        rows = len(queries.run(con, name, **params).rows)
        best_s = min(best_s, time.perf_counter() - began)
        best_cpu_s = min(best_cpu_s, time.process_time() - cpu_began)
    return _row(title, name, best_s, best_cpu_s, rows)


def _audit(con: duckdb.DuckDBPyConnection) -> dict[str, Any]:
    """Ask all checks, once. Raises ``ApportionError`` naming those that do not hold."""
    began, cpu_began = time.perf_counter(), time.process_time()
    found = audit.audit(con)
    took_s, cpu_s = time.perf_counter() - began, time.process_time() - cpu_began
    if found.failed:
        told = "; ".join(f"{one.name}: {one.violations} rows, such as {one.rows[0]}" for one in found.failed)
        raise ApportionError(f"the year does not pass the audit, so it measures nothing: {told}")
    return _row("audit", "audit", took_s, cpu_s, len(found.findings))


def _row(title: str, name: str, took_s: float, cpu_s: float, rows: int) -> dict[str, Any]:
    target = {"target_ms": TARGET_MS[title]} if title in TARGET_MS else {}
    times = {"ms": round(took_s * 1_000, 1), "cpu_ms": round(cpu_s * 1_000, 1)}
    return {"question": title, "query": name, **times, "rows": rows, **target}

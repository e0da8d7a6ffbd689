"""The report: everything a statement about a pool's time needs, as one dictionary of integers.

A pure function of a projection at one decided tick. Amounts are GPU-microseconds, parts are ppm; who shows hours or per
cent divides there. For every pool together, exactly: supply = sum of shares' gpu_us + unfunded + idle + down.
"""

from __future__ import annotations

from typing import Any

import duckdb

from apportion.projections import queries
from apportion.projections.queries import AsOf, Table


def report(con: duckdb.DuckDBPyConnection, *, seq: int | None = None, at_ms: int | None = None) -> dict[str, Any]:
    """Return the report as of the newest readable tick, or of ``seq`` or ``at_ms``. Raises ``QueryRefused``."""
    con.execute("begin transaction read only")
    try:
        return report_at(con, queries.as_of(con, seq, at_ms))
    finally:
        con.execute("rollback")


def report_at(con: duckdb.DuckDBPyConnection, at: AsOf) -> dict[str, Any]:
    """Return the report for a tick found by ``queries.as_of``, inside whatever transaction the caller has."""

    def rows(name: str, **params: Any) -> list[dict[str, Any]]:
        table: Table = queries.run_at(con, name, at, params)
        return table.dicts()

    totals = rows("totals")[0]
    pools = rows("status")
    shares = [_share(line) for line in rows("own_share")]
    sums = {name: sum(pool[f"{name}_gpu_us"] for pool in pools) for name in ("supply", "down", "idle", "unfunded", "funded")}
    used = sum(line["gpu_us"] for line in shares)
    return {
        "as_of": {"seq": at.seq, "time_ms": at.time_ms},
        "first_ms": totals["first_ms"],
        "events": totals["events"],
        "heartbeats": totals["heartbeats"],
        "cycles": totals["cycles"],
        "decisions": totals["decisions"],
        "jobs": {name: totals[name] for name in ("submitted", "started", "finished", "succeeded")},
        "runs": totals["runs"],
        "preemptions": totals["preemptions"],
        "rejections": totals["rejections"],
        "lost_gpu_us": totals["lost_gpu_us"],
        "supply_gpu_us": sums["supply"],
        "funded_gpu_us": sums["funded"],
        "unfunded_gpu_us": sums["unfunded"],
        "idle_gpu_us": sums["idle"],
        "down_gpu_us": sums["down"],
        "occupancy_ppm": _ppm(sums["funded"] + sums["unfunded"], sums["supply"] - sums["down"]),
        # what the statement below does not explain; anything but 0 is a fault, and an audit check says where
        "conservation_error": sums["supply"] - used - sums["unfunded"] - sums["idle"] - sums["down"],
        "pools": pools,
        "shares": shares,
        "days": rows("capacity"),
        "waits": rows("waits"),
        "ledger": {
            "sum_gpu_us": totals["ledger_sum_gpu_us"],
            "lines": totals["ledger_lines"],
            "accounts": rows("account_totals"),
        },
        "budgets": rows("budgets"),
        "refused": rows("rejection_counts"),
    }


def _share(line: dict[str, Any]) -> dict[str, Any]:
    """Return a line of own time: ``gpu_us`` is funded only, ``got_ppm`` counts both."""
    return {
        "pool": line["pool"],
        "budget": line["budget"],
        "entitled_ppm": line["entitled_ppm"],
        "got_ppm": line["got_ppm"],
        "got_of_used_ppm": line["got_of_used_ppm"],
        "gpu_us": line["funded_gpu_us"],
        "unfunded_gpu_us": line["unfunded_gpu_us"],
        "running_milli": line["running_milli"],
        "pending_milli": line["pending_milli"],
    }


def _ppm(part: int, whole: int) -> int | None:
    return part * 1_000_000 // whole if whole > 0 else None

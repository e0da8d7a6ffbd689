"""The part of a demo's report that a day with a service has besides: how it breathed over batch work, as a table and a picture.

``build`` reads the projection's file (nobody else may have it open) and writes the picture; ``lines`` shows what it is given.
Integers in the dictionary; whole GPUs with one decimal in the text.
"""

from __future__ import annotations

from typing import Any

import duckdb

from apportion.adapters.charts.services import chart
from apportion.adapters.processes.home import Home
from apportion.adapters.text import render
from apportion.core.units import MS_PER_HOUR, PPM
from apportion.projections import queries

PICTURE = "realtime.svg"
STEP_MS = 600_000  # of the picture
ALL = 1_000_000  # more plans than a demo makes
Row = dict[str, Any]


def build(home: Home, pool: str, service: str) -> dict[str, Any]:
    """Return what the day was like, and write its picture into the demo's directory."""
    with duckdb.connect(str(home.projection), read_only=True) as con:
        found = queries.run(con, "services", workload=service)
        hours = queries.run(con, "pool_curve", pool=pool, step_ms=MS_PER_HOUR).dicts()
        traffic = _traffic(queries.run(con, "service_curve", workload=service, step_ms=MS_PER_HOUR).dicts())
        parts = queries.run(con, "pool_curve", pool=pool, step_ms=STEP_MS).dicts()
        curve = queries.run(con, "service_curve", workload=service, step_ms=STEP_MS).dicts()
        plans = queries.run(con, "plans", pool=pool, row_limit=ALL).dicts()
        waits = queries.run(con, "waits").dicts()[-1]
    picture = home.root / PICTURE
    drawn = _picture(found.dicts()[0], curve, parts, render.when(found.as_of_ms))
    picture.write_text(drawn, encoding="utf-8")
    installed = sum(row["installed_gpu_us"] for row in hours)
    used = sum(row["services_gpu_us"] + row["others_gpu_us"] for row in hours)
    worth = [row["of_bound_ppm"] for row in plans if row["of_bound_ppm"] is not None]
    return {
        "service": service,
        "pool": pool,
        "hours": [{**row, "traffic_milli": traffic.get(row["from_ms"])} for row in hours],
        "needed_gpu_us": sum(row["needed_gpu_us"] for row in hours),
        "unmet_gpu_us": sum(row["unmet_gpu_us"] for row in hours),
        "utilization_ppm": used * PPM // installed if installed else 0,
        "longest_wait_ms": waits["max_ms"],
        "waiting": waits["waiting"],
        "plans": len(plans),
        "of_bound_mean_ppm": sum(worth) // len(worth) if worth else None,
        "late_jobs_max": max((row["late"] for row in plans), default=0),
        "picture": str(picture),
    }


def _traffic(curve: list[Row]) -> dict[int, int | None]:
    return {row["from_ms"]: row["traffic_milli"] for row in curve}


def _picture(service: Row, curve: list[Row], parts: list[Row], as_of: str) -> str:
    """Return the service's day with the pool's other work on top of it."""
    others = {row["from_ms"]: row["others_gpu_us"] // STEP_MS for row in parts}
    whole = [row for row in curve if row["from_ms"] in others]  # the last instant has only begun
    most = max((row["installed_gpu_us"] // STEP_MS for row in parts), default=0)
    return chart(service, whole, STEP_MS, as_of, batch_milli=[others[row["from_ms"]] for row in whole], pool_milli=most)


# -- for people ------------------------------------------------------------------------------------------------------------


def lines(day: dict[str, Any]) -> list[str]:
    """Return the day as lines of text."""
    head = f"{'hour':<6} {'traffic':>8} {'needed':>7} {'service':>8} {'batch':>6} {'idle':>6} {'down':>6}"
    rows = [f"service {day['service']} over batch work: mean GPUs by hour; traffic at its most", head]
    for row in day["hours"]:
        traffic = "-" if row["traffic_milli"] is None else f"{row['traffic_milli'] // 1_000:,}"
        cells = [_gpus(row[f"{name}_gpu_us"]) for name in ("needed", "services", "others", "idle", "down")]
        bar = _bar(row)
        needed, service, batch, idle, down = cells
        hour = render.when(row["from_ms"])[11:16]
        rows.append(f"{hour:<6} {traffic:>8} {needed:>7} {service:>8} {batch:>6} {idle:>6} {down:>6}  {bar}")
    bound = "-" if day["of_bound_mean_ppm"] is None else render.percent(day["of_bound_mean_ppm"])
    wait = "-" if day["longest_wait_ms"] is None else render.duration(day["longest_wait_ms"] // 1_000 * 1_000)
    unmet, needed = day["unmet_gpu_us"], day["needed_gpu_us"]
    part = f" ({render.percent(unmet * PPM // needed)} of what was needed)" if needed else ""
    return [
        *rows,
        "# held by the service, = by batch work, of all GPUs",
        f"utilization {render.percent(day['utilization_ppm'])}; demand not met {render.gpu_hours(unmet)} GPU-h{part}",
        f"longest wait of a job that started {wait}; {day['waiting']:,} wait at the end",
        f"{day['plans']:,} plans, on average {bound} of what no plan could exceed; jobs late at most {day['late_jobs_max']:,}",
        f"picture  {day['picture']}",
    ]


def _gpus(gpu_us: int) -> str:
    """Return the mean GPUs of an hour, with one decimal."""
    tenths = (gpu_us * 10 + MS_PER_HOUR * 500) // (MS_PER_HOUR * 1_000)
    return f"{tenths // 10}.{tenths % 10}"


def _bar(row: Row, cells: int = 32) -> str:
    installed = max(1, row["installed_gpu_us"])
    service = cells * row["services_gpu_us"] // installed
    both = cells * (row["services_gpu_us"] + row["others_gpu_us"]) // installed
    return str("#" * service + "=" * (both - service))

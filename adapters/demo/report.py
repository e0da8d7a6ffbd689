"""The demo's report: one dictionary for scripts, and the same as text for people.

``build`` reads the projection's file (nobody else may have it open) and compares it with the core's own books in the last
batch; ``lines`` shows what it is given. Both are pure functions of their input. Integers to the last microsecond in the
dictionary; GPU-hours with one decimal, which add up, in the text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import duckdb

from apportion.adapters.demo.outcome import Outcome
from apportion.adapters.processes.home import Home
from apportion.adapters.text import render
from apportion.projections.audit import audit
from apportion.projections.report import report

BAR_CELLS = 24
PPM = 1_000_000
MS_PER_DAY = 86_400_000


def build(home: Home, outcome: Outcome) -> dict[str, Any]:
    """Return the report of a play that has ended."""
    with duckdb.connect(str(home.projection), read_only=True) as con:
        found = report(con)
        checked = audit(con)
    books = outcome.last_batch.books
    supply, unfunded = sum(book.supply for book in books), sum(book.unfunded for book in books)
    idle, down = sum(book.idle for book in books), sum(book.down for book in books)
    shares = [_share(line, outcome.asked.get(line["budget"], 0)) for line in found["shares"]]
    # the core's books against the projection's statement of who used what
    error = supply - sum(line["gpu_us"] for line in shares) - unfunded - idle - down
    unfunded_error = unfunded - sum(line["unfunded_gpu_us"] for line in shares)
    failed = [finding.name for finding in checked.failed]
    ledger = found["ledger"]
    document = {
        "source": outcome.source,
        "length_ms": outcome.length_ms,
        "events": outcome.events,
        "cycles": outcome.cycles,
        "jobs": found["jobs"],
        "runs": found["runs"],
        "preemptions": found["preemptions"],
        "rejections": found["rejections"],
        "occupancy": _fraction(found["occupancy_ppm"]),
        "pillars": _pillars(found["pools"]),
        "shares": shares,
        "supply_gpu_us": supply,
        "funded_gpu_us": sum(line["gpu_us"] for line in shares),
        "unfunded_gpu_us": unfunded,
        "idle_gpu_us": idle,
        "down_gpu_us": down,
        "lost_gpu_us": found["lost_gpu_us"],
        "conservation_error": error,
        "unfunded_error": unfunded_error,
        "ledger": {"lines": ledger["lines"], "sum_gpu_us": ledger["sum_gpu_us"]},
        "waits": found["waits"],
        "verify": outcome.verify,
        "audit": {"checks": len(checked.findings), "failed": len(failed), "failed_names": failed},
        "complaints": list(outcome.complaints),
        "played_s": round(outcome.played_s, 1),
        "wall_s": round(outcome.played_s, 1),
        "rss_mb": sum(outcome.rss_mb.values()),
        "rss_mb_by_process": outcome.rss_mb,
        "cpu_s_by_process": outcome.cpu_s,
        "dir": str(home.root),
    }
    sound = not error and not unfunded_error and not failed and not outcome.complaints and not ledger["sum_gpu_us"]
    document["ok"] = bool(sound and outcome.verify["ok"])
    return document


def _share(line: dict[str, Any], asked_gpu_us: int) -> dict[str, Any]:
    names = ("pool", "budget", "entitled_ppm", "got_ppm", "got_of_used_ppm", "gpu_us", "unfunded_gpu_us")
    return {name: line[name] for name in names} | {"asked_gpu_us": asked_gpu_us}


def _fraction(ppm: int | None) -> float:
    return 0.0 if ppm is None else ppm / PPM


def _pillars(pools: Sequence[dict[str, Any]]) -> dict[str, int | None]:
    """Return the four pillars in ppm; a demo has one pool."""
    names = ("availability", "occupancy", "impact", "utilization")
    return {name: pools[0][f"{name}_ppm"] if pools else None for name in names}


# -- for people ------------------------------------------------------------------------------------------------------------


def lines(document: dict[str, Any]) -> list[str]:
    """Return the report as lines of text."""
    return [
        *_headline(document),
        "",
        *_budgets(document),
        "",
        *_time(document),
        "",
        *_waits(document["waits"]),
        "",
        *_proofs(document),
        "",
        *_next(document),
    ]


def _headline(document: dict[str, Any]) -> list[str]:
    jobs, rate = document["jobs"], int(document["events"] / max(document["wall_s"], 0.1))
    return [
        f"{_length(document['length_ms'])} of a simulated cluster in {document['wall_s']:.0f} s "
        f"({document['source']}): {document['events']:,} events ({rate:,}/s), {render.many(document['cycles'], 'cycle')}",
        f"jobs: {jobs['submitted']:,} submitted, {jobs['started']:,} started, {jobs['finished']:,} finished; "
        f"{render.many(document['runs'], 'run')}, {render.many(document['preemptions'], 'preemption')}, "
        f"{render.many(document['rejections'], 'refused event')}",
    ]


def _length(length_ms: int) -> str:
    days = length_ms // MS_PER_DAY
    if days < 1 or length_ms % MS_PER_DAY:
        return render.duration(length_ms)
    return render.many(days, "day")


def _budgets(document: dict[str, Any]) -> list[str]:
    shares = document["shares"]
    hours = [
        render.gpu_hours_column([line[name] for line in shares])
        for name in ("asked_gpu_us", "gpu_us", "unfunded_gpu_us")
    ]
    largest = max((max(line["got_ppm"] or 0, line["entitled_ppm"] or 0) for line in shares), default=1) or 1
    width = max([19, *(len(line["budget"]) for line in shares)])
    rows = [f"{'GPU-hours by budget':<{width}}  {'asked':>10} {'funded':>10} {'unfunded':>10}   share  entitled"]
    for line, asked, funded, unfunded in zip(shares, *hours, strict=True):
        got, entitled = line["got_ppm"] or 0, line["entitled_ppm"] or 0
        share = f"{render.percent(got):>6}   {render.percent(entitled):>6}"
        spent = f"{asked:>10} {funded:>10} {unfunded:>10}"
        rows.append(f"{line['budget']:<{width}}  {spent}  {share}  {_bar(got, entitled, largest)}")
    rows.append(
        "asked: what the jobs submitted need in all; share: of all GPU time, funded and unfunded, where in the bars"
    )
    rows.append(
        "# is what a budget got and | what it is entitled to. A budget that asks for less than its share gets less."
    )
    return rows


def _bar(got: int, entitled: int, largest: int) -> str:
    cells = ["#" if position < got * BAR_CELLS // largest else " " for position in range(BAR_CELLS + 1)]
    cells[min(BAR_CELLS, entitled * BAR_CELLS // largest)] = "|"
    return "".join(cells).rstrip()


def _time(document: dict[str, Any]) -> list[str]:
    names = ("funded", "unfunded", "idle", "down")
    amounts = [document[f"{name}_gpu_us"] for name in names]
    hours = render.gpu_hours_column(amounts)
    supply = document["supply_gpu_us"]
    parts = ", ".join(
        f"{name} {shown} ({render.percent(amount * PPM // supply if supply else 0)})"
        for name, shown, amount in zip(names, hours, amounts, strict=True)
    )
    pillars = ", ".join(
        f"{name} {render.percent(value) if value is not None else 'not known'}"
        for name, value in document["pillars"].items()
    )
    lost = render.gpu_hours(document["lost_gpu_us"])
    return [
        f"all GPU time {render.gpu_hours(supply)} GPU-h = {parts}",
        f"pillars: {pillars}",
        f"work done twice after preemptions and losses: {lost} GPU-h",
    ]


def _waits(rows: Sequence[dict[str, Any]]) -> list[str]:
    shown = [f"{'waits to the first start':<24} {'jobs':>7} {'started':>8} {'p50':>8} {'p90':>8} {'p99':>8}"]
    for row in rows:
        name = "all sizes" if row["gpus_milli"] is None else render.gpus(row["gpus_milli"])
        cells = [
            "-" if row[key] is None else render.duration(row[key] // 1_000 * 1_000)
            for key in ("p50_ms", "p90_ms", "p99_ms")
        ]
        shown.append(
            f"{name:<24} {row['submitted']:>7,} {row['started']:>8,} {cells[0]:>8} {cells[1]:>8} {cells[2]:>8}"
        )
    return shown


def _proofs(document: dict[str, Any]) -> list[str]:
    verify, checked, ledger = document["verify"], document["audit"], document["ledger"]
    error = document["conservation_error"]
    exact = "exact to the microsecond" if not error else f"WRONG by {error} GPU-us"
    derived = f"{verify['cycles']:,} of {render.many(document['cycles'], 'cycle')} derived again"
    held = f"all {checked['checks']} checks hold"
    if checked["failed"]:
        held = f"{checked['failed']} of {checked['checks']} checks FAIL: {', '.join(checked['failed_names'])}"
    memory = ", ".join(f"{name} {size}" for name, size in document["rss_mb_by_process"].items())
    found = [
        f"books    supply = funded + unfunded + idle + down, {exact}",
        f"ledger   {render.many(ledger['lines'], 'line')}, sum {ledger['sum_gpu_us']:,} GPU-us",
        f"verify   {'ok' if verify['ok'] else 'DIFFERENT'}: {derived}, digest {verify['digest'][:16]}",
        f"audit    {held}",
        f"memory   {document['rss_mb']:,} MiB at most ({memory})",
    ]
    found.extend(f"WRONG    {complaint}" for complaint in document["complaints"][:5])
    return found


def _next(document: dict[str, Any]) -> list[str]:
    where = f"--dir {document['dir']}"
    return [
        "next:",
        f"  apportion share {where}                 the tree: entitled, used, owed",
        f"  apportion usage {where} --by day,budget who burned what",
        f"  apportion queue {where}                 who waits, and why",
        f"  apportion audit {where} --all           each check with its question",
        f"  apportion verify {where}                derive every decision again",
    ]

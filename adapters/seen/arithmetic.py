"""The arithmetic of an allowance as one line per budget, so that a program manager can recompute it by hand.

Pure functions of a row of ``adapters.seen.standing``: they choose and write out the numbers that the core's own function used, and
work out nothing but the differences and sums they print. GPUs have three decimals, as the core counts them, and every
division is rounded down; GPU-seconds are exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from apportion.adapters.seen.standing import STANDINGS
from apportion.adapters.text.render import gpu_count, gpu_seconds, many

Row = dict[str, Any]


def allowance_line(row: Row) -> str:
    """Return the arithmetic of a leaf's allowance."""
    head = f"allowance {gpu_count(row['allowance_milli'])}"
    if row["barred"]:
        return f"{head}: {'it is closed' if row['closed'] else 'the GPU time granted to it, or above it, is spent'}"
    entitled, owed = row["entitled_milli"], row["owed_milli"]
    if row["policy"] != "fair":
        return f"{head}: all it asks for; policy {row['policy']} looks at no share"
    wanted = row["wanted_milli"]
    if row["allowance_milli"] != wanted:
        return (
            f"{head} = {gpu_count(entitled)} + ({gpu_count(wanted)} - {gpu_count(entitled)}) x "
            f"{gpu_count(row['given_up_milli'])} / {gpu_count(row['catch_up_milli'])} (the cap); it wants {gpu_count(wanted)} = "
            f"{_sum(row)}{_bound(row)}"
        )
    if wanted == entitled + owed and not row["lag_gpu_us"]:
        return f"{head} = entitled {gpu_count(entitled)}, and nothing is owed"
    return f"{head} = {_sum(row)}{_bound(row)}"


def _sum(row: Row) -> str:
    """Return ``entitled 4 + owed 12,000 GPU-s / 3,600 s (3.333)``; a debt is subtracted."""
    owed_us, owed = row["lag_gpu_us"], row["owed_milli"]
    sign, word = ("-", "overdrawn") if owed_us < 0 else ("+", "owed")
    horizon = gpu_seconds(row["horizon_ms"] * 1_000)
    return (
        f"entitled {gpu_count(row['entitled_milli'])} {sign} {word} {gpu_seconds(abs(owed_us))} GPU-s / {horizon} s "
        f"({gpu_count(abs(owed))})"
    )


def _bound(row: Row) -> str:
    """Return what keeps the sum from being the allowance, where something does."""
    total, wanted = row["entitled_milli"] + row["owed_milli"], row["wanted_milli"]
    if total == wanted:
        return ""
    if wanted == 0 and total < 0:
        return f" = {gpu_count(total)}, at least 0"
    if wanted == row["demand_milli"]:
        return f" = {gpu_count(total)}, at most the {gpu_count(wanted)} it asks for"
    return f" = {gpu_count(total)}, at most the {gpu_count(wanted)} in service"


def entitled_line(row: Row) -> str:
    """Return why a budget is entitled to what it is entitled to now, beside what it is guaranteed."""
    guaranteed, entitled = row["guaranteed_milli"], row["entitled_milli"]
    if row["barred"]:
        return "only what its paid, protected runs hold"
    if entitled == row["demand_milli"] and entitled != guaranteed:
        return "all it asks for" if entitled else "it asks for nothing"
    if entitled > guaranteed:
        return f"guaranteed {gpu_count(guaranteed)}, and {gpu_count(entitled - guaranteed)} that others do not ask for"
    if entitled < guaranteed:
        return f"guaranteed {gpu_count(guaranteed)}; those below it ask for no more"
    return "as guaranteed"


def sum_line(row: Row, below: Sequence[Row]) -> str:
    """Return the arithmetic of an inner line: the sum of the lines right below it."""
    parts = [child for child in below if child["allowance_milli"]]
    if not parts:
        return "allowance 0: nothing below it has one"
    if len(parts) > 6:
        return f"allowance {gpu_count(row['allowance_milli'])} = the sum of the {many(len(below), 'budget')} below it"
    terms = " + ".join(f"{child['budget'].rpartition('/')[2]} {gpu_count(child['allowance_milli'])}" for child in parts)
    return f"allowance {gpu_count(row['allowance_milli'])} = {terms}"


def runs_line(row: Row) -> str:
    """Return what runs, by standing, and what waits."""
    running = sum(row[f"runs_{name}_milli"] for name in STANDINGS)
    parts = [
        f"{gpu_count(row[f'runs_{name}_milli'])} {name}" for name in STANDINGS if row[f"runs_{name}_milli"]
    ]
    told = f"runs {gpu_count(running)}" + (f" ({' + '.join(parts)})" if parts else "")
    return told + f", {gpu_count(row['pending_milli'])} waiting"


def pool_lines(pool: Row) -> list[str]:
    """Return what all allowances of a pool add up to, and the cap."""
    lines = [
        f"pool {pool['pool']}: {gpu_count(pool['capacity_milli'])} GPUs in service; entitled in all "
        f"{gpu_count(pool['entitled_milli'])}, allowances in all {gpu_count(pool['allowance_milli'])}"
    ]
    wanted, left = pool["catch_up_milli"], pool["given_up_milli"]
    if wanted > left and pool["policy"] == "fair":
        lines.append(
            f"  the cap: budgets that are owed want {gpu_count(wanted)} above what they are entitled to, the others leave "
            f"{gpu_count(left)} of theirs: each gets {gpu_count(left)} / {gpu_count(wanted)} of what it wants"
        )
    return lines

"""The backtests of a trace, or of what we generate, as rows for a table and for scripts.

Pure functions of the files; which trace it is shows in what the folder holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from apportion.adapters.demo.generator import Shape, generate
from apportion.adapters.demo.trace import TRACE_EPOCH_MS, TraceError
from apportion.adapters.forecasting import backtest, backtest_traffic, gentd26, requests, runtimes, traffic
from apportion.adapters.forecasting.requests import Requests
from apportion.adapters.forecasting.scoring import Score
from apportion.adapters.text import render
from apportion.core.units import MS_PER_DAY, MS_PER_HOUR

GENERATED_GPUS = 128
NOTES = [
    "pinball loss: the mean over the quantiles, the least for the true ones; of runtimes in logarithms (0.69: a factor of two), of",
    "traffic in parts of the mean. Coverage by quantile, of work 10, 25, 50, 84.1 and 97.7 %, of traffic the last three; a point",
    "forecast has but one. Limits are made from the runtimes (see simulation.people), so they tell more than people's do.",
]


def of(path: Path | None, days: int, weeks: int, seed: int) -> dict[str, Any]:
    """Return rows by name of the test, and the models. Raises ``ValueError`` for what is no trace."""
    if path is None:
        jobs = generate(seed, Shape(days=days, gpus=GENERATED_GPUS))
        asked = backtest.asked_of(jobs, TRACE_EPOCH_MS)
        found = backtest.backtest(asked, TRACE_EPOCH_MS + days * MS_PER_DAY, weeks)
        return {**_of_work("generated jobs", found), **_of_traffic(requests.made(seed))}
    try:
        if (path / requests.LORA).is_file() or (path / gentd26.ARCHIVE).is_file():
            read = [requests.lora(path)] if (path / requests.LORA).is_file() else []
            read += [requests.qps(path)] if (path / gentd26.ARCHIVE).is_file() else []
            return {name: rows for one in read for name, rows in _of_traffic(one).items()}
        return _of_work(f"ITP, {render.many(days, 'day')}", backtest.of_itp(path, days, weeks))
    except (TraceError, gentd26.GenaiError) as error:
        raise ValueError(str(error)) from None


def _of_work(name: str, found: dict[str, Any]) -> dict[str, Any]:
    rows = [
        {"which": line.rows, "way": line.way, **_scored(line.score, runtimes.QUANTILES_PPM), "error_h": line.error_h}
        for line in found["lines"]
    ]  # fmt: skip
    return {f"runtimes, {name}": rows, "models": found["models"]}


def _of_traffic(one: Requests) -> dict[str, Any]:
    found = {}
    days = len(one.milli) * one.step_ms // MS_PER_DAY
    for ahead_ms, words in ((MS_PER_DAY, "a day ahead"), (2 * MS_PER_HOUR, "two hours ahead")):
        warm_ms = MS_PER_DAY * min(days // 3, 8) if days else 2 * MS_PER_HOUR
        if days or ahead_ms < MS_PER_DAY:
            lines = backtest_traffic.backtest(one, warm_ms, ahead_ms)
            found[f"traffic, {one.name}, {words}"] = [
                {"way": line.way, **_scored(line.score, traffic.QUANTILES_PPM)} for line in lines
            ]
    return found


def _scored(score: Score, quantiles_ppm: tuple[int, ...]) -> dict[str, Any]:
    return {
        "rows": score.rows, "pinball": score.mean, "of_median": score.pinball[quantiles_ppm.index(500_000)],
        "quantiles_ppm": list(quantiles_ppm), "losses": list(score.pinball), "coverage": list(score.coverage),
    }  # fmt: skip


def shown(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row as the table shows it."""
    cover = [f"{part * 100:.1f}" for part in row["coverage"]]
    same = len(set(cover)) == 1
    error = {"error_h": f"{row['error_h']:.2f}"} if "error_h" in row else {}
    losses = {name: f"{row[name]:.3f}" for name in ("pinball", "of_median")}
    return {**row, **losses, "coverage": cover[0] if same else " ".join(cover), **error}

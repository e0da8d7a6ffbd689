"""What a forecaster knows: submissions and how they ended, each with the instant from which it was known.

Pure data, made from the rows of the named queries ``forecast_workloads`` and ``forecast_traffic`` or from a trace. A runtime is
the useful time of a workload from its start to its end: what its last run resumed from and what that run took, so work that was
done twice after a preemption is not counted twice. Work that was cancelled, or is not over, has no runtime.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from apportion.adapters.forecasting.variant import variant_of

KINDS = ("training", "batch_inference", "quantization")  # each has a model of its own
ENDED = ("succeeded", "failed")  # outcomes that tell how long such work takes


class Asked(NamedTuple):
    """A workload as it was submitted, and what became of it."""

    workload: str
    submitted_ms: int
    principal: str
    budget: str
    kind: str
    name: str
    gpus_milli: int
    nodes: int = 1
    priority: int = 0
    limit_ms: int = 0  # 0 = none stated
    min_runtime_ms: int = 0
    checkpoint_ms: int = 0  # between two checkpoints; 0 = none
    variant: str = "other"
    ended_ms: int = 0  # 0 = it is not over, or tells nothing
    runtime_ms: int = 0


class Open(NamedTuple):
    """A workload that waits or runs, and what was last forecast of it."""

    workload: str
    elapsed_ms: int  # useful time it has run already; 0 while it has not started
    model: str = ""  # '' = nothing was forecast
    values_ms: tuple[int, ...] = ()  # by quantile, ascending


class History(NamedTuple):
    """Everything about workloads, in order of submission, as of an instant."""

    asked: list[Asked]
    open: list[Open]


def history_of(rows: Iterable[Mapping[str, Any]]) -> History:
    """Return the history that rows of ``forecast_workloads`` tell."""
    asked: list[Asked] = []
    still: list[Open] = []
    for row in rows:
        variant = variant_of(row["variant"] or "", row["name"] or row["workload"], row["command"] or ())
        over = row["outcome"] in ENDED and row["runtime_ms"] is not None and row["runtime_ms"] > 0
        asked.append(Asked(
            row["workload"], row["submitted_ms"], row["principal"], row["budget"], row["kind"], row["name"] or row["workload"],
            row["gpus_milli"], row["nodes"], row["priority"], row["expected_runtime_ms"], row["min_runtime_ms"],
            row["checkpoint_interval_ms"], variant, row["ended_ms"] if over else 0, row["runtime_ms"] if over else 0,
        ))  # fmt: skip
        if row["outcome"] is None:
            values = tuple(int(part) for part in (row["forecast_ms"] or "").split(",") if part)
            still.append(Open(row["workload"], row["elapsed_ms"] or 0, row["model"] or "", values))
    asked.sort(key=lambda one: (one.submitted_ms, one.workload))
    return History(asked, still)

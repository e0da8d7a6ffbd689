"""Which forecasts are worth an event: those of targets that have none, and those that differ enough from what was last said.

Pure functions of models, history and what was said. A forecast differs when a quantile of it does by more than ``CHANGE``; of
traffic also when less than half of its time is left. So a model that says what the one before it said is silent, and so is the
next round. Targets without a forecast come first. ``process`` publishes what is returned here; nobody is told twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from apportion.adapters.forecasting import runtimes, traffic
from apportion.adapters.forecasting.history import History
from apportion.adapters.forecasting.trees import F64, Model
from apportion.core.events import ForecastPublished
from apportion.core.units import MAX_DURATION_MS

CHANGE = 0.10
COUNT_MAX = 2**53
STEP_MS = 1_800_000  # of forecasts of traffic: the usual step of a plan
STEPS = 96  # two days, so that the plan's day is always told of


class Due(NamedTuple):
    """Forecasts to publish, in order, and how many are as they were said."""

    events: list[ForecastPublished]
    unchanged: int


class Said(NamedTuple):
    """What was last forecast of a service: values by quantile and the first instant of each step."""

    values: dict[tuple[int, int], int]
    until_ms: int


def runtimes_due(models: Mapping[str, Model], history: History, table: F64) -> Due:
    """Return what is to be said about work that waits or runs; ``table`` has the features of ``history.asked``."""
    row_of = {one.workload: row for row, one in enumerate(history.asked)}
    new: list[ForecastPublished] = []
    other: list[ForecastPublished] = []
    unchanged = 0
    for kind, model in models.items():
        mine = [one for one in history.open if history.asked[row_of[one.workload]].kind == kind]
        rows = [row_of[one.workload] for one in mine]
        asked = [history.asked[row] for row in rows]
        told = runtimes.forecast(model, table[rows], asked, [one.elapsed_ms for one in mine])
        model_id = model.model_id
        for one, values in zip(mine, told, strict=True):
            if not _differ(one.values_ms, values):
                unchanged += 1
                continue
            event = ForecastPublished(
                model=model_id, target=one.workload, of="runtime", horizon_ms=min(values[-1], MAX_DURATION_MS),
                quantiles_ppm=model.quantiles_ppm, values=values,
            )  # fmt: skip
            (other if one.values_ms else new).append(event)
    return Due(new + other, unchanged)


def _differ(before: Sequence[int], after: Sequence[int]) -> bool:
    return len(before) != len(after) or any(
        abs(new - old) > CHANGE * max(new, old) for old, new in zip(before, after, strict=True)
    )


def traffic_event(service: str, ahead: traffic.Ahead) -> ForecastPublished:
    """Return the event that says so, in whole thousandths, rounded up."""
    steps = ahead.milli.shape[1]
    values = tuple(min(-int(-value // 1), COUNT_MAX) for value in ahead.milli.ravel().tolist())
    return ForecastPublished(
        model=ahead.model, target=service, of="traffic", from_ms=ahead.from_ms, step_ms=ahead.step_ms,
        horizon_ms=steps * ahead.step_ms, quantiles_ppm=traffic.QUANTILES_PPM, values=values,
    )  # fmt: skip


def worth_saying(event: ForecastPublished, said: Said | None) -> bool:
    """Tell whether a forecast of traffic differs enough from the one before."""
    if said is None or said.until_ms - event.from_ms < event.horizon_ms // 2:
        return True
    steps = len(event.values) // len(event.quantiles_ppm)
    usual = sum(event.values[:steps]) // steps  # of little traffic a tenth is nothing
    for place, value in enumerate(event.values):
        at = (event.quantiles_ppm[place // steps], event.from_ms + place % steps * event.step_ms)
        before = said.values.get(at)
        if before is not None and abs(value - before) > CHANGE * max(value, before, usual):
            return True
    return False

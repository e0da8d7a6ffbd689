"""How good quantiles were: pinball loss and coverage. Pure functions of what was forecast and what came.

The pinball loss of a quantile q is q times what came above it, and 1 - q times what came below; its mean is least for the true
quantile. A point forecast, such as a user's limit, counts as all quantiles at once: that is what a scheduler must take it for.
Coverage is the part of what came that was at most the forecast; of a good quantile q it is q.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from apportion.adapters.forecasting.trees import F64


class Score(NamedTuple):
    """The mean loss and the coverage of each quantile."""

    rows: int
    pinball: tuple[float, ...]
    coverage: tuple[float, ...]

    @property
    def mean(self) -> float:
        """The mean of the losses over the quantiles."""
        return sum(self.pinball) / len(self.pinball)


def score(levels: tuple[float, ...], forecast: F64, came: F64) -> Score:
    """Return the score of rows by quantiles."""
    above = came[:, None] - forecast
    level = np.array(levels)
    loss = np.where(above >= 0, level * above, (level - 1.0) * above)
    pinball, coverage = loss.mean(axis=0), (above <= 0).mean(axis=0)
    return Score(len(came), tuple(float(value) for value in pinball), tuple(float(value) for value in coverage))


def points(values: F64, levels: tuple[float, ...]) -> F64:
    """Return a point forecast as quantiles."""
    return np.repeat(np.asarray(values, dtype=np.float64)[:, None], len(levels), axis=1)

"""Made-up histories of workloads and of traffic for the tests of the forecasters: Hypothesis strategies, and drawn ones by seed."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import strategies as st

from apportion.adapters.forecasting.history import KINDS, Asked
from apportion.adapters.forecasting.variant import VARIANTS
from apportion.core.units import MS_PER_DAY, MS_PER_HOUR

START_MS = 20_454 * MS_PER_DAY  # 2026-01-01, a Thursday


@st.composite
def histories(draw: st.DrawFn) -> list[Asked]:
    """A few workloads of few users, sizes and names, in order; some have not ended."""
    asked = []
    for number in range(draw(st.integers(1, 14))):
        submitted_ms = START_MS + draw(st.integers(0, 8)) * MS_PER_HOUR // 2
        runtime_ms = draw(st.integers(0, 6)) * MS_PER_HOUR // 2
        asked.append(Asked(
            f"w{number}", submitted_ms, draw(st.sampled_from(("ann", "bob"))), draw(st.sampled_from(("lab/a", "lab/b"))),
            draw(st.sampled_from(KINDS)), draw(st.sampled_from(("eval-1", "eval-2", "train"))),
            draw(st.sampled_from((1_000, 8_000))), limit_ms=draw(st.sampled_from((0, MS_PER_HOUR))),
            variant=draw(st.sampled_from(VARIANTS)), ended_ms=submitted_ms + runtime_ms if runtime_ms else 0, runtime_ms=runtime_ms,
        ))  # fmt: skip
    asked.sort(key=lambda one: (one.submitted_ms, one.workload))
    return asked


def drawn(seed: int, count: int, *, kind: str = "training") -> list[Asked]:
    """Work whose runtime is its user's habit, a fifth of the limit where there is one, and noise: the quantiles are known."""
    dice = np.random.default_rng(seed)
    asked = []
    for number in range(count):
        user = int(dice.integers(0, 4))
        middle_ms = MS_PER_HOUR * 2.0**user
        limit_ms = int(5 * middle_ms) if dice.random() < 0.5 else 0
        runtime_ms = int(middle_ms * math.exp(min(0.5 * dice.standard_normal(), 1.5)))
        submitted_ms = START_MS + number * MS_PER_HOUR // 4
        variant = "qlora" if user == 0 else "full"
        asked.append(Asked(
            f"w{number:05d}", submitted_ms, f"user{user}", "lab", kind, f"run-{number}", 1_000, limit_ms=limit_ms, variant=variant,
            ended_ms=submitted_ms + runtime_ms, runtime_ms=runtime_ms,
        ))  # fmt: skip
    return asked


def weeks(seed: int, days: int, *, step_ms: int = MS_PER_HOUR, noise: float = 0.2, weekend: float = 0.3) -> dict[int, int]:
    """Return traffic with a day, a week and noise that is a factor, by step."""
    dice = np.random.default_rng(seed)
    found = {}
    for at_ms in range(START_MS, START_MS + days * MS_PER_DAY, step_ms):
        hour, day = at_ms % MS_PER_DAY / MS_PER_HOUR, (at_ms // MS_PER_DAY + 3) % 7
        middle = 10_000 * (1.2 + math.sin((hour - 9) / 24 * 2 * math.pi)) * (weekend if day >= 5 else 1.0)
        found[at_ms] = int(middle * math.exp(noise * dice.standard_normal()))
    return found

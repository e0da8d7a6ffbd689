"""A realtime service of the simulated world: its traffic by minute, and what a profile forecasts of it.

The day has the published shape of GenTD26 (22.9 hours of requests per minute to image models, counted here from eight in the
morning): a steep morning, a dip at noon, the day's peak at three, little at night. Minutes lie on lines between the hours, with
noise of up to ``NOISE_PERMILLE`` either way: half of the trace's minutes differ from the one before by 57 thousandths of the peak
or more. The forecast knows the shape and not the noise: its median is the shape, its upper quantile as far above as the noise goes.

Pure functions of a seed; integers only.
"""

from __future__ import annotations

from typing import NamedTuple

from apportion.adapters.simulation.dice import hashed
from apportion.adapters.simulation.people import Fate
from apportion.core.events import DemandObserved, ForecastPublished, Service, WorkloadSubmitted

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
ENDLESS_MS = 366 * 24 * HOUR_MS
NOISE_PERMILLE = 60
STEP_MS = 30 * MINUTE_MS
STEPS = 48
QUANTILES_PPM = (500_000, 841_345)
# mean traffic by hour of the day, in thousandths of the busiest hour
HOURS = (51, 94, 27, 37, 16, 13, 16, 80, 185, 726, 893, 646, 288, 840, 920, 1000, 843, 539, 222, 184, 165, 215, 79, 89)


class Curve(NamedTuple):
    """A service and its day. ``peak_milli``: traffic in its busiest hour, in thousandths."""

    name: str
    budget: str
    principal: str
    pool: str
    gpus_milli: int
    service: Service
    peak_milli: int
    seed: int = 1
    min_runtime_ms: int = 5 * MINUTE_MS

    @property
    def submission(self) -> WorkloadSubmitted:
        """What is asked for."""
        return WorkloadSubmitted(
            workload=self.name, budget=self.budget, pools=(self.pool,), gpus_milli=self.gpus_milli, kind="realtime",
            min_runtime_ms=self.min_runtime_ms, grace_ms=30_000, service=self.service,
        )  # fmt: skip

    def expected_milli(self, at_ms: int) -> int:
        """Return the traffic of the shape at an instant of the day."""
        hour, within_ms = divmod(at_ms % (24 * HOUR_MS), HOUR_MS)
        low, high = HOURS[hour], HOURS[(hour + 1) % 24]
        return self.peak_milli * (low * (HOUR_MS - within_ms) + high * within_ms) // (HOUR_MS * 1_000)

    def observed(self, at_ms: int) -> DemandObserved:
        """Return what is seen at an instant."""
        noise = hashed(self.seed, self.name, at_ms // MINUTE_MS) % (2 * NOISE_PERMILLE + 1) - NOISE_PERMILLE
        return DemandObserved(workload=self.name, traffic_milli=self.expected_milli(at_ms) * (1_000 + noise) // 1_000)

    def forecast(self, at_ms: int) -> ForecastPublished:
        """Return what a profile says of the day to come: the most of each step."""
        first_ms = at_ms // STEP_MS * STEP_MS
        most = [
            max(self.expected_milli(first_ms + step * STEP_MS + part * 5 * MINUTE_MS) for part in range(7)) for step in range(STEPS)
        ]
        upper = [milli * (1_000 + NOISE_PERMILLE) // 1_000 for milli in most]
        return ForecastPublished(
            model="day-profile", target=self.name, from_ms=first_ms, horizon_ms=STEPS * STEP_MS, step_ms=STEP_MS,
            quantiles_ppm=QUANTILES_PPM, values=(*most, *upper),
        )  # fmt: skip

    def fate(self, replica: str) -> Fate:
        """Return what becomes of a replica: it serves until it is asked to stop."""
        return Fate(
            workload=replica, principal=self.principal, event=self.submission, duration_ms=ENDLESS_MS, checkpoint_ms=0,
            saves_on_stop=False, fails_at_ms=-1, fails_runs=0, cancel_after_ms=-1, busy_milli=700, memory_mib=40_000, restart_ms=0,
            asleep_from_ms=-1,
        )  # fmt: skip

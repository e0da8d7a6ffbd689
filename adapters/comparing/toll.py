"""What sharing costs: preemptions, work done twice, idle GPUs, and who is pushed out again and again.

Pure functions of the batches, in their order; counted inside the window, except ``often``, which counts all the play. *Lost* is
work since the last checkpoint of runs that were stopped, plus the time in which a resumed run only loads its checkpoint.
"""

from __future__ import annotations

from apportion.core.decisions import CycleBatch, RunClosed, RunPlaced, RunPreempted
from apportion.core.engine import Core
from apportion.core.units import GPU_US_PER_GPU_HOUR

OFTEN = 3  # a run preempted more often than this is one too many


class Toll:
    """Counts of one play."""

    def __init__(self, from_ms: int, to_ms: int, quantum_ms: int, restart_ms: int) -> None:
        self.preemptions = 0
        self.alternations = 0  # x took from y less than a quantum after y took from x
        self.lost_us = 0
        self.used_us = 0
        self.supply_us = 0
        self.ran: dict[str, int] = {}  # workload -> how often it was preempted
        self._from_ms, self._to_ms = from_ms, to_ms
        self._quantum_ms, self._restart_ms = quantum_ms, restart_ms
        self._took_ms: dict[tuple[str, str], int] = {}  # (taker, loser) -> when last
        self._first: tuple[int, int] | None = None

    def take(self, _core: Core | None, batch: CycleBatch) -> None:
        """Count one batch."""
        now_ms = batch.time_ms
        inside = self._from_ms <= now_ms < self._to_ms
        pairs: dict[tuple[str, str], None] = {}
        for decision in batch.decisions:
            if isinstance(decision, RunPlaced):
                self.ran.setdefault(decision.workload, 0)
            elif isinstance(decision, RunPreempted):
                self.ran[decision.workload] += 1
                self.preemptions += inside
                pairs[decision.certificate.beneficiary_budget, decision.certificate.victim_budget] = None
            elif isinstance(decision, RunClosed):
                self._close(decision)
        for taker, loser in pairs:
            back_ms = self._took_ms.get((loser, taker))
            if taker != loser and back_ms is not None and now_ms - back_ms < self._quantum_ms:
                self.alternations += 1
            self._took_ms[taker, loser] = now_ms
        self._books(batch)

    def _close(self, account: RunClosed) -> None:
        if not self._from_ms <= account.end_ms < self._to_ms:
            return
        self.lost_us += account.lost_gpu_us
        if account.run > 1:
            loading_ms = min(self._restart_ms, account.end_ms - account.placed_ms)
            self.lost_us += loading_ms * account.gpus_milli

    def _books(self, batch: CycleBatch) -> None:
        supply = sum(books.supply - books.down for books in batch.books)
        used = sum(books.funded + books.unfunded for books in batch.books)
        if batch.time_ms < self._from_ms or self._first is None:
            self._first = (supply, used)
        if batch.time_ms <= self._to_ms:
            self.supply_us, self.used_us = supply - self._first[0], used - self._first[1]

    @property
    def occupancy_pct(self) -> float:
        """Return the part of the GPUs in service that was allocated."""
        return 100 * self.used_us / self.supply_us if self.supply_us else 0.0

    @property
    def lost_pct(self) -> float:
        """Return the part of the allocated time that was work done twice or loading of checkpoints."""
        return 100 * self.lost_us / self.used_us if self.used_us else 0.0

    @property
    def preemptions_per_1000_gpu_h(self) -> float:
        """Return preemptions per thousand GPU-hours allocated."""
        return 1_000 * self.preemptions * GPU_US_PER_GPU_HOUR / self.used_us if self.used_us else 0.0

    @property
    def often_pct(self) -> float:
        """Return how many of the workloads that ran were preempted more than ``OFTEN`` times."""
        return 100 * sum(count > OFTEN for count in self.ran.values()) / len(self.ran) if self.ran else 0.0

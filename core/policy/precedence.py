"""Inside a budget the first in line goes first: what may start behind a head that waits for its budget's allowance.

Without this, small work of a budget takes every GPU that its big head could save up for, and the head never starts (measured at
3 times demand: gangs of 64 GPUs waited for 180 of 192 hours). The rule is EASY backfill on the allowance instead of on nodes. If
nothing else of its budget started, the head would be funded at an instant T that follows from what the budget is owed, from what
it is entitled to, and from the ends its own runs state: the first at which ``2 r + s <= 2 (a + L / tau)``, with L growing by
a - r. At T something may be to spare (an end gives more than was missing): ``spare = L + (a - r - s / 2) tau``, in GPU time. Work
behind the head may use that: so long as it runs before T it uses up L, and if it does not say that it is over by T, it is also
part of r then. A head that its budget could not pay anyhow (closed, spent) keeps nothing, and neither does one that would never
be funded: where the cap of rule 1.4 holds an allowance down, saving does not raise it. (Else several large heads save at once, each
too little, and who is deepest in debt runs on what they save: with gangs of four times the share budgets got 15 % less than their
due.) GPUs that would then idle, because everybody saves, go to work that is over by T even when it uses more: it delays its own
head a little, and nobody else.

Nobody else is held back by it: what one budget saves, others use. A pure function of the state; nothing of it is stored. It looks
at stated limits, never at what a run will really take.
"""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass

import numpy as np

from apportion.core.policy.funding import Shares, fundable
from apportion.core.policy.reserving import Reservations, expected_end, expected_ends
from apportion.core.reasons import Funding
from apportion.core.state import schema
from apportion.core.state.state import State
from apportion.core.units import MAX_AMOUNT_GPU_US, MAX_ELAPSED_MS


@dataclass
class Place:
    """What a budget keeps for its first in line, ``head`` (-1 = nobody waits), which could start at ``until_ms``."""

    head: int
    until_ms: int
    spare_us: int  # GPU time that others of the budget may use before and at that instant
    in_time_free: bool = False  # or any time before it

    @classmethod
    def free(cls) -> Place:
        """Return the absence of a place."""
        return cls(-1, 0, 0)


class Ends:
    """The runs of each budget that have not been asked to stop, in order of the end they state."""

    def __init__(self, state: State) -> None:
        run = state.run
        phases = run.column("state")
        counted = (phases == schema.PLACED) | (phases == schema.STARTED)
        rows = np.flatnonzero(counted & (run.column("idle_cycles") == 0))
        ends_ms = expected_ends(state)[rows]
        order = np.lexsort((rows, ends_ms, run.budget[rows]))
        self._state = state
        self._rows, self._ends_ms = rows[order], ends_ms[order]
        self._lines = run.budget[self._rows]
        self._of: dict[int, list[tuple[int, int, int]]] = {}

    def of(self, leaf: int) -> list[tuple[int, int, int]]:
        """Return (end, run row, milli-GPU) of the budget's runs, ascending."""
        if leaf not in self._of:
            first, last = np.searchsorted(self._lines, leaf, "left"), np.searchsorted(self._lines, leaf, "right")
            rows = self._rows[first:last]
            milli = self._state.run.gpus_milli[rows]
            self._of[leaf] = list(zip(self._ends_ms[first:last].tolist(), rows.tolist(), milli.tolist(), strict=True))
        return self._of[leaf]

    def add(self, workload: int) -> None:
        """Take in the run that has just started for ``workload``."""
        run = int(self._state.workload.run[workload])
        if not self._state.run.idle_cycles[run]:
            entry = (expected_end(self._state, run), run, int(self._state.run.gpus_milli[run]))
            insort(self.of(int(self._state.run.budget[run])), entry)


def place_for(state: State, shares: Shares, ends: Ends, reservations: Reservations, head: int) -> Place:
    """Return the place that the budget of ``head``, its first in line, keeps for it.

    One that is funded already and waits for nodes starts when its reservation says so, if it has it.
    """
    table = state.workload
    leaf, pool, milli = int(table.budget[head]), int(table.pool[head]), int(table.gpus_milli[head])
    why = fundable(state, shares, head)[1]
    if why not in (Funding.WITHIN_ALLOWANCE, Funding.ABOVE_ALLOWANCE):
        return Place.free()
    horizon_ms, entitled = int(state.pool.horizon_ms[pool]), int(shares.entitled[leaf])
    # where the cap of rule 1.4 lowers the allowance, only that much is owed that can be paid, and it does not grow
    lag_us = min(int(state.budget.lag_us[leaf]), (int(shares.allowance[leaf]) - entitled) * horizon_ms)
    capped = int(shares.allowance[leaf]) < int(shares.wanted[leaf])
    now_ms, running = state.counters.time_ms, int(shares.running[leaf])
    fixed_ms = now_ms if why is Funding.WITHIN_ALLOWANCE else -1
    if head in reservations.starts_ms:
        fixed_ms = max(now_ms, reservations.starts_ms[head])

    def spare_us() -> int:
        return lag_us + (2 * (entitled - running) - milli) * horizon_ms // 2

    last_ms = now_ms + MAX_ELAPSED_MS  # what is later is never
    for end_ms, _run, over_milli in [*ends.of(leaf), (last_ms, -1, 0)]:
        growth, instant_ms = min(entitled - running, 0 if capped else entitled), fixed_ms
        if instant_ms < 0 and spare_us() >= 0:
            instant_ms = now_ms
        elif instant_ms < 0:
            instant_ms = now_ms - (spare_us() // growth) if growth > 0 else last_ms  # rounded up
        if instant_ms < end_ms:
            lag_us += growth * (instant_ms - now_ms)
            return Place(head, instant_ms, min(max(0, spare_us()), MAX_AMOUNT_GPU_US))
        lag_us += growth * (end_ms - now_ms)
        now_ms, running = end_ms, running - over_milli
    return Place.free()

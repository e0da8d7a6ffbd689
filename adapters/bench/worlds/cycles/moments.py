"""Single moments of a cycle, as the phase that comes then meets them: for measuring it alone.

A pure function of the state it is given but for the clock, which only measures. Nothing in the core is replaced: each moment is
reached by the core's own phases, on a copy where they change the state, and the phase is called as the cycle calls it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import msgspec

from apportion.core.decisions import AnyDecision, CycleBatch, RunPlaced
from apportion.core.engine import Core, emit_into
from apportion.core.fold.outcomes import apply_all
from apportion.core.policy import planning
from apportion.core.policy.cycle import before_starts
from apportion.core.policy.funding import shares_of
from apportion.core.policy.preempting import preempt_for
from apportion.core.policy.reserving import Reservations
from apportion.core.policy.starting import count_held_as_running
from apportion.core.policy.turn import Turn


def victims_for(core: Core, workload: str) -> tuple[float, Sequence[AnyDecision]]:
    """Plan victims for a workload that was submitted before the tick that ``core`` has folded; returns milliseconds and the plan.

    The cycle's phases before the starts come first, so that who is unfunded now is told so. The core is used up.
    """
    state = core.state
    shares = before_starts(state, emit_into(state))
    count_held_as_running(state, shares)
    row, emit = state.workload.row_of[workload], emit_into(state)
    masked = Reservations.none(state).from_takers(state, row)
    began = time.process_time()
    preempt_for(state, emit, shares, row, masked)
    return 1_000 * (time.process_time() - began), emit.decisions


def plan_ms(core: Core, pool: int) -> float:
    """Return what it takes to plan the time to come, as the pool's policy says, between two cycles; changes nothing."""
    state = core.state
    turn = Turn(state, shares_of(state), pool, Reservations.none(state))
    began = time.process_time()
    planning.plan(state, turn)
    return 1_000 * (time.process_time() - began)


def floor_ms(snapshot: bytes, batch: CycleBatch) -> float:
    """Return what the starts of a cycle cost that decides nothing: their decisions are made from what they say, and folded.

    ``snapshot`` is of the moment before the cycle, with its tick folded.
    """
    core = Core.from_snapshot(snapshot)
    told = [msgspec.structs.asdict(one) for one in batch.decisions if isinstance(one, RunPlaced)]
    began = time.process_time()
    apply_all(core.state, [RunPlaced(**words) for words in told])
    return 1_000 * (time.process_time() - began)

"""Who stands behind the first of his budget and must wait for it: the rule of ``precedence`` in plain words and fractions.

Slow, obviously right, shares no code with it but what the state and the cycle's shares say.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise
from math import ceil, floor

from apportion.core import ledger
from apportion.core.policy.funding import Shares
from apportion.core.policy.reserving import Reservations
from apportion.core.state import schema
from apportion.core.state.asks import Ask, ask_of
from apportion.core.state.state import State
from apportion.core.units import MAX_ELAPSED_MS, gpu_us


def behind(state: State, shares: Shares, reservations: Reservations, row: int, guest: Ask | None = None) -> bool:
    """Tell whether the workload would delay the first of its budget, by the rule of ``precedence`` in plain words.

    ``guest`` is what it is in another pool, where it stands behind all that waits.
    """
    table, now_ms, ask = state.workload, state.counters.time_ms, guest or ask_of(state, row)
    leaf = ask.budget
    if not ask.min_runtime_ms or int(state.pool.policy[ask.pool]) != schema.FAIR:
        return False
    line = [one for one in state.queue[: state.queued].tolist() if int(table.budget[one]) == leaf]
    ready = [
        one
        for one in line
        if int(table.state[one]) == schema.PENDING and int(table.not_before_ms[one]) <= now_ms and table.min_runtime_ms[one]
    ]
    if not ready or ready[0] == row:
        return False
    head = ready[0]
    left_us = ledger.available_us(state, leaf, shares.reserved_us)
    need_us = gpu_us(int(table.gpus_milli[head]), int(table.min_runtime_ms[head]))
    if state.budget.closed[leaf] or (left_us is not None and left_us < max(1, need_us)):
        return False
    pool = ask.pool
    tau_ms, a, size = int(state.pool.horizon_ms[pool]), int(shares.entitled[leaf]), int(table.gpus_milli[head])
    lag = min(int(state.budget.lag_us[leaf]), (int(shares.allowance[leaf]) - a) * tau_ms)
    own = [run for run in state.run.live_rows() if int(state.run.budget[run]) == leaf and not state.run.idle_cycles[run]]
    own = [run for run in own if int(state.run.state[run]) in (schema.PLACED, schema.STARTED)]
    over = {run: (says_over_ms(state, run), int(state.run.gpus_milli[run])) for run in own}
    running = int(shares.running[leaf])

    most = 0 if int(shares.allowance[leaf]) < int(shares.wanted[leaf]) else a  # what is owed and cannot be paid does not grow

    def spare(at_ms: Fraction | int) -> Fraction:
        grown, left = Fraction(0), running
        steps = sorted((min(end_ms, at_ms), milli) for end_ms, milli in over.values() if end_ms <= at_ms)
        for (from_ms, milli), (to_ms, _milli) in pairwise([(now_ms, 0), *steps, (at_ms, 0)]):
            left -= milli
            grown += min(a - left, most) * (to_ms - from_ms)
        return lag + grown + (a - left - Fraction(size, 2)) * tau_ms

    funded = 2 * running + size <= 2 * int(shares.allowance[leaf])
    if head in reservations.starts_ms or funded:
        start_ms = max(now_ms, reservations.starts_ms.get(head, now_ms))
    else:
        found = first_ms(spare, now_ms, sorted(end_ms for end_ms, _milli in over.values()))
        if found is None:
            return False  # it saves for nothing
        start_ms = found
    limit_ms = int(table.expected_runtime_ms[row])
    left_ms = max(0, limit_ms - int(table.progress_ms[row]))
    if limit_ms > 0 and now_ms + left_ms <= start_ms:
        return False
    return ask.gpus_milli * (start_ms - now_ms + tau_ms) > max(0, floor(spare(start_ms)))


def first_ms(spare: Callable[[int], Fraction], now_ms: int, ends_ms: list[int]) -> int | None:
    """Return the first whole millisecond at which ``spare``, linear between ends, is not negative; within two years."""
    last_ms = now_ms + MAX_ELAPSED_MS
    for from_ms, to_ms in pairwise([now_ms, *ends_ms, last_ms]):
        if spare(from_ms) >= 0:
            return from_ms
        if to_ms - from_ms > 1 and spare(from_ms + 1) > spare(from_ms):
            slope = spare(from_ms + 1) - spare(from_ms)
            hit_ms = from_ms + ceil(-spare(from_ms) / slope)
            if hit_ms < to_ms:
                return hit_ms
    return None


def says_over_ms(state: State, run: int) -> int:
    """Return when a run is over by what its workload states; a day after its start when it states nothing."""
    workload = int(state.run.workload[run])
    limit_ms = int(state.workload.expected_runtime_ms[workload])
    over_ms = int(state.run.placed_ms[run]) + 24 * 3_600_000
    if limit_ms:
        over_ms = int(state.run.checkpoint_ms[run]) + max(0, limit_ms - int(state.workload.progress_ms[workload]))
    return max(over_ms, state.counters.time_ms)

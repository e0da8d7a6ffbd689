"""Preemption under a baseline, planned whole: which runs must stop so that a workload starts.

The baseline says who may be asked and in which order; here is what all have in common. Only a workload whose budget pays for it may
take; only runs past their protected time may be asked; work on idle cycles goes first. Victims are added until the workload fits
on copies of the GPU columns; who turns out not to be needed stays; if it would still not fit, nobody goes. Freed GPUs are held.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from apportion.core.policy.baselines.baseline import Baseline
from apportion.core.policy.certifying import write_plan
from apportion.core.policy.emit import Emit
from apportion.core.policy.fitting import find_gpus
from apportion.core.policy.funding import Shares, fundable
from apportion.core.state import schema
from apportion.core.state.space import Space
from apportion.core.state.state import State

I64 = NDArray[np.int64]


def evict_for(
    state: State, emit: Emit, shares: Shares, workload: int, masked: I64, baseline: Baseline
) -> list[int] | None:
    """Write a plan that lets ``workload`` start outside the nodes ``masked``; returns the workloads that lose their runs.

    None when there is no plan.
    """
    if not fundable(state, shares, workload)[0]:
        return None
    plan = _plan(state, shares, workload, masked, baseline)
    if plan is None:
        return None
    victims, gpus = plan

    def numbers(victim: int, gone: list[int]) -> dict[str, int]:
        return {} if state.run.idle_cycles[victim] else baseline.proof(state, shares, workload, victim, gone)

    write_plan(state, emit, shares, workload, victims, gpus, numbers)
    return [int(state.run.workload[victim]) for victim in victims]


def _plan(
    state: State, shares: Shares, workload: int, masked: I64, baseline: Baseline
) -> tuple[list[int], list[int]] | None:
    """Return the runs that must go and the GPUs the workload gets.

    Naive equivalent: ask one after the other until it fits. Who fits after some have gone also fits after more, so the number is
    found by halving; most plans fail with all of them, at once.
    """
    space = Space.copy(state)
    pool, need = int(state.workload.pool[workload]), int(state.workload.gpus_milli[workload])
    asked = list(_victims(state, shares, workload, baseline))
    if int(state.pool.idle_milli[pool]) + sum(int(state.run.gpus_milli[victim]) for victim in asked) < need:
        return None
    gone, fewest, most = 0, 1, len(asked)

    def fit(count: int) -> list[int]:
        nonlocal gone
        for victim in asked[gone:count]:
            space.take_out(victim)
        for victim in asked[count:gone]:
            space.put_back(victim)
        gone = count
        return find_gpus(state, workload, space, masked)

    if not asked or not fit(most):
        return None
    while fewest < most:
        middle = (fewest + most) // 2
        if fit(middle):
            most = middle
        else:
            fewest = middle + 1
    gpus = fit(most)
    chosen = asked[:most]
    for victim in list(chosen):
        space.put_back(victim)
        without = find_gpus(state, workload, space, masked)
        if without:
            gpus = without
            chosen.remove(victim)
        else:
            space.take_out(victim)
    return chosen, gpus


def _victims(state: State, shares: Shares, workload: int, baseline: Baseline) -> Iterator[int]:
    """Yield who may be asked, in order: the latest on idle cycles first, then whom the baseline names."""
    run, pool = state.run, int(state.workload.pool[workload])
    phases = run.column("state")
    live = (run.column("pool") == pool) & ((phases == schema.PLACED) | (phases == schema.STARTED))
    loose = np.flatnonzero(live & (run.column("protected_until_ms") <= state.counters.time_ms))
    idle = loose[run.idle_cycles[loose] == 1]
    yield from (int(row) for row in idle[np.lexsort((-idle, -run.placed_ms[idle]))])
    yield from baseline.victims(state, shares, workload, loose[run.idle_cycles[loose] == 0])

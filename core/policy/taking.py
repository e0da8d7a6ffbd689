"""Plans of preemption as a kernel lists them: what it is given to read and to fill, and the decisions that its list means.

Decides nothing: whom somebody takes from is the rule of ``preempting``, which is asked one by one wherever more than GPUs matters
(wishes, other packings than best fit, drained nodes, moves, a plan of the time to come). What is written is applied by the fold.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from apportion.core.decisions import GpusReserved, RunPreempted
from apportion.core.kernels import losers, serve
from apportion.core.kernels.taking import ELSEWHERE, NOBODY
from apportion.core.policy.certifying import plan_of
from apportion.core.policy.choosing import STEPS_MAX
from apportion.core.policy.emit import Emit
from apportion.core.policy.funding import Shares
from apportion.core.policy.preempting import numbers_of
from apportion.core.policy.turn import Turn
from apportion.core.state import schema


class Taking:
    """The list of one pool's plans in a cycle, and the columns beside it."""

    def __init__(self, turn: Turn, searches: int) -> None:
        self._turn, self._searches, self.plain, state = turn, searches, False, turn.state
        gpus, plans = state.gpu.used, min(searches, state.queued)
        workload, running, first_run, first_gpu = (np.zeros(plans + 1, dtype=np.int64) for _column in range(4))
        run, run_running, held = (np.empty(size, dtype=np.int64) for size in (state.run.used, state.run.used, gpus))
        self._takes = serve.Takes(workload, running, first_run, first_gpu, run, run_running, held, np.zeros(3, dtype=np.int64))

    def walk(self, starts: serve.Starts, runs: serve.Runs, *arguments: Any, plain: bool) -> tuple[int, int]:
        """Let who is funded start or take until something else is to be decided; ``arguments`` are those of ``start_funded``.

        Not ``plain``: nobody takes here.
        """
        turn, state, takes = self._turn, self._turn.state, self._takes
        run, table, alloc = state.run, state.workload, state.alloc
        self.plain = plain and int(state.pool.packing[turn.pool]) == schema.BEST_FIT
        takes.counts[:] = min(self._searches, len(takes.workload) - 1), 0, ELSEWHERE
        if not self.plain:
            return serve.start_funded(turn.jobs, turn.lines, turn.room, turn.stock, turn.ranks, starts, runs, *arguments)
        runs = runs._replace(phase=run.column("state").copy(), took_ms=state.budget.took_ms.copy())
        stock = turn.stock._replace(held=state.gpu.held_by.copy())
        holders = losers.Holders(
            runs.unfunded, runs.phase, run.protected_until_ms, run.idle_cycles, runs.off, run.budget, run.gpus_milli,
            run.checkpoint_ms, run.placed_ms, run.workload, run.first_alloc, alloc.next, alloc.gpu, alloc.milli,
            alloc.gpu_memory_mib, table.event_seq, table.service, table.min_runtime_ms, table.gpus_milli,
        )  # fmt: skip
        return serve.take_funded(
            turn.jobs, turn.lines, turn.room, stock, turn.ranks, holders, takes, state.counters.seq,
            int(state.pool.idle_milli[turn.pool]), STEPS_MAX, table.hold, starts, runs, *arguments,
        )  # fmt: skip

    @property
    def nobody(self) -> bool:
        """Tell whether it is known that whoever was returned last can take from nobody."""
        return bool(self._takes.counts[2] == NOBODY)

    def write(self, emit: Emit, shares: Shares) -> int:
        """Write the plans that are listed; returns how many there were."""
        state, takes, count = self._turn.state, self._takes, int(self._takes.counts[1])
        decisions = list[RunPreempted | GpusReserved]()
        first_run, first_gpu = takes.first_run[: count + 1].tolist(), takes.first_gpu[: count + 1].tolist()
        runs, running = takes.run[: first_run[-1]].tolist(), takes.run_running[: first_run[-1]].tolist()
        gpus = takes.gpus[: first_gpu[-1]].tolist()
        for k, (workload, milli) in enumerate(zip(takes.workload[:count].tolist(), takes.running[:count].tolist(), strict=True)):
            at, end = first_run[k], first_run[k + 1]
            numbers = [numbers_of(state, run) for run in runs[at:end]]
            decisions += plan_of(
                state, shares, workload, milli, runs[at:end], running[at:end], numbers, gpus[first_gpu[k] : first_gpu[k + 1]]
            )
        emit.all(decisions)
        self._searches -= count
        takes.counts[1] = 0
        return count

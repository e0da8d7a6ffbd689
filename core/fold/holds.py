"""Fold of what is held for whom: GPUs that are being freed for a workload, and those that a run which is moved will go to.

A workload has GPUs held for it while it waits for others to go from them (``HELD``), or while its own run is stopped to be moved:
then it is ``HELD`` as soon as that run is over, if it may start again at once; else what was held is free.
"""

from __future__ import annotations

from apportion.core.decisions import GpusReserved, MovesProposed, Piece, RunClosed
from apportion.core.errors import check
from apportion.core.fold.choices import go
from apportion.core.fold.release import drop_hold
from apportion.core.fold.waiting import dequeue, enqueue
from apportion.core.reasons import RESUMABLE, Outcome
from apportion.core.state import schema
from apportion.core.state.holdings import gpu_rows
from apportion.core.state.state import State


def hold(state: State, workload: int, pieces: tuple[Piece, ...], why: int) -> None:
    """Hold these GPUs for a workload and no others; none: it has nothing held."""
    table, held_by = state.workload.cells, state.gpu.cells.held_by
    if table.hold[workload]:  # else no GPU is
        drop_hold(state, workload)
    for gpu in gpu_rows(state, pieces):
        if held_by[gpu]:
            check(False, state.counters.seq, f"GPU row {gpu} is held twice")
        held_by[gpu] = workload + 1
    table.hold[workload] = why if pieces else schema.HOLD_NONE
    table.proposed[workload] = 0


def reserved(state: State, decision: GpusReserved) -> None:
    """It waits for these GPUs, or for none in particular: then at home."""
    workload = state.workload.row_of[decision.workload]
    hold(state, workload, decision.pieces, schema.HOLD_UNFUNDED if decision.unfunded else schema.HOLD_FUNDED)
    if decision.waits_in:
        dequeue(state, workload)
        go(state, workload, decision.waits_in)
        enqueue(state, workload)
    state.workload.state[workload] = schema.HELD if decision.pieces else schema.PENDING


def proposed(state: State, decision: MovesProposed) -> None:
    """Remember which moves were proposed, so that they are proposed once."""
    state.workload.proposed[state.workload.row_of[decision.workload]] = decision.mark


def keep_for_next_run(state: State, workload: int, closed: RunClosed) -> bool:
    """A run is over: tell whether GPUs stay held for its workload, because it was moved there and may start at once."""
    if not state.workload.cells.hold[workload]:
        return False
    if closed.requeued and Outcome(closed.outcome) in RESUMABLE and not closed.not_before_ms:
        return True  # should a node with some of them have gone meanwhile, the cycle gives the rest up
    hold(state, workload, (), schema.HOLD_NONE)
    return False

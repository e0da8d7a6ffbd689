"""Work that is lost when a run ends now: all since its last safe point, and nothing of a service, whose traffic is served.

Pure functions of the state, used by every decision that tells a price in work.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from apportion.core.state.state import State
from apportion.core.units import gpu_us

I64 = NDArray[np.int64]


def unsaved_us(state: State, run: int, at_ms: int) -> int:
    """Return the GPU time that would have to be spent again, were the run over at that instant."""
    cells = state.run.cells
    if state.workload.cells.service[cells.workload[run]]:
        return 0
    return gpu_us(cells.gpus_milli[run], at_ms - cells.checkpoint_ms[run])


def unsaved_ms(state: State) -> I64:
    """Return per run row the time since its last safe point; 0 for replicas of services."""
    serves = state.workload.service[state.run.column("workload")] > 0
    result: I64 = np.where(serves, 0, state.counters.time_ms - state.run.column("checkpoint_ms"))
    return result

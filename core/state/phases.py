"""Which runs are in which phase: asked by many phases of a cycle, of which most find none.

A pure function of the state; what was found stands in ``State.memo`` until a run may have changed, so the fold must not ask.
"""

from __future__ import annotations

import numpy as np

from apportion.core.state.state import State


def runs_in(state: State, *phases: int) -> list[int]:
    """Return the rows of runs in one of these phases, ascending."""
    kept = state.memo.at(state.moved).runs_in
    if phases not in kept:
        column = state.run.column("state")
        found = column == phases[0]
        for phase in phases[1:]:
            found |= column == phase
        kept[phases] = np.flatnonzero(found).tolist()
    return kept[phases]

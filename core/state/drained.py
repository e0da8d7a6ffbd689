"""Whether any node is drained: most clusters have none, and most phases of a cycle ask.

A pure function of the state; the answer stands in ``State.memo`` until a node may have changed, so the fold must not ask.
"""

from __future__ import annotations

from apportion.core.state.state import State


def any_drained(state: State) -> bool:
    """Tell whether a node was ordered to be empty."""
    memo = state.memo.at(state.moved)
    if memo.drains is None:
        memo.drains = bool(state.node.column("drain_set_ms").any() or state.node.column("drain_ms").any())
    return memo.drains

"""Where nodes are: levels of a pool's topology, and the domain of each node at a level, as the kernels take it.

A level has a height: 0 is the node itself, 1 the pool's narrowest level (a rack, an NVLink domain), and so on up. A node that is in
no domain of a level is alone there: it never shares a domain with another one.

Pure functions of the state, used at the door and by every cycle; they never change it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from apportion.core.state.state import State

I64 = NDArray[np.int64]

NODE_LEVEL = "node"


def level_key(pool: str, level: str) -> str:
    """Return the key of a level."""
    return f"{pool}/{level}"


def height_of(state: State, pool: int, level: str) -> int | None:
    """Return the height of a level in a pool, None when the pool has none of that name."""
    if level == NODE_LEVEL:
        return 0
    row = state.level.row_of.get(level_key(state.pool.keys[pool], level))
    return None if row is None else int(state.level.height[row])


def domains_at(state: State, height: int) -> I64:
    """Return one number per node row: equal for nodes of one domain, different for all others."""
    rows = np.arange(state.node.used, dtype=np.int64)
    if not height:
        return rows
    domain = state.node.column(f"domain_{height}")
    numbers: I64 = np.where(domain > 0, domain - 1, state.domain.used + rows)
    return numbers

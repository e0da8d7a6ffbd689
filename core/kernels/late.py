"""Whether anything is late, before anybody looks at what: most cycles find nothing.

Pure functions of the columns; what is late, and what becomes of it, is for ``policy.expire`` to say.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

I64 = NDArray[np.int64]


@njit(cache=True)
def any_silent(
    now_ms: int, nodes: int, last_seen_ms: I64, pool: I64, gpus: I64, silent: I64, timeout_ms: I64
) -> bool:
    """Tell whether a node that is in service was not heard of for longer than its pool allows, and is not known to be silent."""
    for node in range(nodes):
        if now_ms - last_seen_ms[node] > timeout_ms[pool[node]] and gpus[node] > 0 and silent[node] == 0:
            return True
    return False

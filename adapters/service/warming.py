"""Kernels of the rolling plan, made ready before anybody waits for them.

Compiled for the first time they take longer than a server waits for a client that does not read (10 s); afterwards they are loaded
from the cache of this build in a fraction of a second. Decides nothing: it plans a tiny instance and forgets the plan.
"""

from __future__ import annotations


def warm_horizon() -> None:
    """Compile or load all kernels that a plan needs."""
    import numpy as np

    from apportion.core.horizon.instance import Instance, Services, decaying, jobs, pinned
    from apportion.core.horizon.planner import plan

    steps, one = 4, np.ones(1, dtype=np.int64)
    curve = np.array([[1, 2, 2, 1]], dtype=np.int64)
    services = Services(curve // 2, curve, curve + 1, one, one, one, one)
    work = jobs([(1, 2, 1, 1, 0, 1, 0, 0), (2, 4, 2, 1, 0, 99, 1, 0), (3, 1, 1, 2, 1, 99, 0, -1)])  # one of them falls due
    protected = np.ones((1, steps), dtype=np.int64)
    plan(Instance(8, steps, work, pinned([(6, 1, 2)]), services, decaying(8, 60_000), protected), 50)

"""Numba kernels: loops over columns, int64 in and out, one file each with its helpers (a stale machine-code cache is
silent when a helper lives elsewhere).

``@njit(cache=True)`` only: no fastmath, no parallel, no floats, no allocation that outlives the call unless it is the
result. (Helpers that are called at each of many thousand steps are ``bare``, without counting references to the arrays they are
given: half of the time of ``reports``, and of ten thousand starts, went into that.) Branches about what to do stay in Python;
loops about how much stay here. Each docstring tells the naive equivalent, which lives in ``tests/core/oracles.py``.
"""

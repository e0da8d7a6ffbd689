"""A plan: who starts when and where, how many GPUs each service holds, and what that is worth.

A value, in the rows of its instance. Only step 0 of it is ever carried out; the rest is what is expected, and is made again.
It must never be believed because it is there: ``check`` finds what is wrong with it, by itself.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

I64 = NDArray[np.int64]


class Plan(NamedTuple):
    """What is planned."""

    start: I64  # step by job, -1 = not in this horizon
    first: I64  # GPU by job, -1 likewise
    held: I64  # GPUs by service and step
    objective: int
    unmet: int  # GPU-steps of demand
    late: I64  # rows of jobs that fall due and could not start in time, nothing else considered
    joint: bool  # the half that searched curves as well won
    candidates: int

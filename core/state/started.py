"""Starts as columns: what the decisions of many starts say, for whoever folds them together.

Pure data. Made by the fold from decisions that were read, or by the policy beside those that it makes; both are the same numbers.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

I64 = NDArray[np.int64]


class Started(NamedTuple):
    """One entry each, per start, per piece or per GPU, in their order."""

    workload: I64
    run_no: I64
    milli: I64
    protected_until_ms: I64
    reserved: I64
    resume_ms: I64
    payer: I64
    node: I64  # per piece
    gpu: I64  # per GPU
    each: I64  # milli of it
    start: I64  # of which start it is

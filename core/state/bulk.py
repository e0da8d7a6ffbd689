"""Many decisions of one kind, as the numbers that the fold needs of them: rows and columns, and no names but of new rows.

Pure data, one entry each per decision, in their order. Made by the fold from decisions that were read, or by the policy beside
those that it makes; both are the same numbers. A reader of stored bytes that finds names in columns makes these from them, and
folds without a struct.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

I64 = NDArray[np.int64]
FEW = 4  # decisions of a kind that cost less one by one (measured on a week's cycles)


class Started(NamedTuple):
    """Starts: one entry per start, per piece or per GPU."""

    workload: I64  # rows
    names: list[str]  # of the workloads
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


class Admitted(NamedTuple):
    """Admissions of workloads that were submitted: no service, no replica."""

    workload: I64  # rows


class Told(NamedTuple):
    """Why workloads wait, each told once."""

    workload: I64  # rows
    reason: I64  # codes
    funded_ms: I64
    planned_ms: I64
    told_ms: I64  # when its reservation said that it starts, and how much later than that it is; 0 and 0 without one
    late_ms: I64


Bulk = Started | Admitted | Told

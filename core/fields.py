"""The types of fields in events, each with its bounds: names, paths, amounts, instants.

Pure data. Bounds are checked at the door by msgspec, so the fold never sees a negative or a 2^63.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from apportion.core.units import (
    MAX_DURATION_MS,
    MAX_GRANT_GPU_US,
    MAX_NODE_GPUS,
    MAX_PLACES,
    MAX_POOL_MILLI,
    MAX_TIME_MS,
    PPM,
)

_END = r"$(?!\n)"  # Python's $ also matches before a newline; published schemas do without the look-ahead
Name = Annotated[str, Meta(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9][A-Za-z0-9_\-.:]*" + _END)]
BudgetPath = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=256,
        pattern=r"^[A-Za-z0-9][A-Za-z0-9_\-.]*(/[A-Za-z0-9][A-Za-z0-9_\-.]*)*" + _END,
    ),
]
DomainName = Annotated[str, Meta(max_length=64, pattern=r"^([A-Za-z0-9][A-Za-z0-9_\-.:]*)?" + _END)]
Labels = Annotated[dict[Name, DomainName], Meta(max_length=32)]
Principal = Annotated[str, Meta(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9][A-Za-z0-9_\-]*" + _END)]
Text = Annotated[str, Meta(max_length=1_000)]
Count = Annotated[int, Meta(ge=0, le=2**53)]
Instant = Annotated[int, Meta(ge=0, le=MAX_TIME_MS)]
Duration = Annotated[int, Meta(ge=0, le=MAX_DURATION_MS)]
GpusMilli = Annotated[int, Meta(ge=1, le=MAX_POOL_MILLI)]
GpuUs = Annotated[int, Meta(ge=1, le=MAX_GRANT_GPU_US)]
SharePpm = Annotated[int, Meta(ge=0, le=PPM)]
NodePlace = Annotated[int, Meta(ge=0, lt=MAX_PLACES)]
GpuIndex = Annotated[int, Meta(ge=0, lt=MAX_NODE_GPUS)]
RunNumber = Annotated[int, Meta(ge=1, le=2**31)]
WeightMilli = Annotated[int, Meta(ge=0, le=1_000_000)]  # of a GPU of the pool in sums over pools, for reports only
Kind = Literal["training", "batch_inference", "quantization", "realtime", "interactive"]

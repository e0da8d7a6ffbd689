"""What a play itself knows at its end; everything else in the report is read from the projection.

Pure data, made by ``play`` and shown by ``report``; nothing in it may enter an event.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from apportion.core.decisions import CycleBatch


@dataclass(frozen=True)
class Outcome:
    """The end of a play. Memory is each process's peak in MiB, processor time in seconds."""

    source: str
    length_ms: int  # of simulated time
    events: int
    cycles: int
    last_batch: CycleBatch
    asked: dict[str, int]  # budget -> GPU-microseconds its submitted jobs need
    complaints: tuple[str, ...]  # of the world: decisions that cannot be right
    verify: dict[str, Any]
    rss_mb: dict[str, int]
    cpu_s: dict[str, float]
    played_s: float

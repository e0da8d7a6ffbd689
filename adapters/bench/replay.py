"""Trust replay from an archive: the state at the end of a month, and of a year, of 1,024 GPUs whose nodes report every ten seconds.

Rebuilds the state from the segments of an archive (``generated``): each segment's hash is verified, heartbeats are folded as
columns, each stored batch is trusted, the last one with its digest. ``month_s`` and ``year_s`` are CPU time of this process; with
fewer days they are None, and ``day_s`` is the mean of the days there are. A measurement, not a test: it depends on the machine.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from apportion.adapters.bench.generated import archive_of
from apportion.adapters.logs.archive import segments_of
from apportion.adapters.logs.manifest import load
from apportion.adapters.logs.segments import read_sheet
from apportion.adapters.past.trusting import COMPILES, state_from
from apportion.adapters.processes.build import is_kept

MONTH, YEAR = 30, 365
_OTHERS = ("bodies", "length")  # sections of what is no heartbeat


def run(
    days: int = MONTH, nodes: int = 128, beat_s: int = 10, seed: int = 1, rounds: int = 1, directory: str = ""
) -> dict[str, Any]:
    """Return the figures; ``directory`` keeps the archive, and is not generated again where it holds one of as many days."""
    with archive_of(directory, days, nodes, beat_s, seed) as place:
        manifest = load(place)
        first_days = manifest.days[:days]
        if not is_kept("stretch"):
            sys.stderr.write(f"{COMPILES}\n")
        state_from(place, first_days[0].last_seq)  # loads the machine code of all that a day needs
        measured: dict[int, float] = {}
        for wanted in sorted({min(days, MONTH), days}):
            measured[wanted] = min(_seconds(place, first_days[wanted - 1].last_seq) for _round in range(rounds))
        beats, beat_bytes = _heartbeats(place)
        events = first_days[-1].last_seq
        return {
            "month_s": round(measured[MONTH], 2) if MONTH in measured else None,
            "year_s": round(measured[YEAR], 2) if YEAR in measured else None,
            "day_s": round(measured[days] / days, 3),
            "days": days,
            "events": events,
            "events_per_s": int(events / measured[days]),
            "cycles": sum(entry.cycles for entry in first_days),
            "heartbeats": beats,
            "bytes_per_heartbeat": round(beat_bytes / beats, 3),
            "archive_bytes": sum(file.size for entry in first_days for file in entry.files),
            "clock": "CPU time of this process",
        }


def _seconds(directory: Path, to_seq: int) -> float:
    began = time.process_time()
    state_from(directory, to_seq)
    return time.process_time() - began


def _heartbeats(directory: Path) -> tuple[int, int]:
    """Return how many heartbeats are kept as numbers, and the bytes of all segments of events but for other records' bodies."""
    beats = size = 0
    for segment in segments_of(directory, "events"):
        beats += read_sheet(segment).heartbeats
        size += segment.path.stat().st_size - sum(one.size for one in segment.header.sections if one.name in _OTHERS)
    return beats, size

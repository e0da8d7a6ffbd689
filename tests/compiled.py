"""The machine code of the kernels, made before tests ask for it, so that no two of their processes make the same at once.

As a program: compiles the part named on the command line into the cache that tests and the processes they start share. The parts
have little in common and take about the same time, so each goes to a core of its own. What no part calls is compiled by the first
test that does.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from apportion.adapters.processes.build import keep_kernels_apart


def without_settings() -> dict[str, str]:
    """Return what a process inherits but for settings of Numba, NumPy and hashes; where machine code is kept stays."""
    ours = ("NUMBA_", "NPY_", "PYTHONHASHSEED")
    return {k: v for k, v in os.environ.items() if k == "NUMBA_CACHE_DIR" or not k.startswith(ours)}


def cycles() -> None:
    """Compile what decides: the log of the unseed test has every kind of event, and every policy, packing and backfill."""
    from tests.core import unseed_log

    with TemporaryDirectory() as folder:
        path = Path(folder) / "log"
        unseed_log.write(path)
        unseed_log.outcome(unseed_log.read(path)[:1])


def past() -> None:
    """Compile what folds a log in each of its forms, on a day of few records and no cycle."""
    from apportion.adapters.logs.segments import events_segment, opened, read_sheet
    from apportion.adapters.past.trusting import columns_of
    from apportion.core.engine import Core
    from apportion.core.envelope import Record
    from apportion.core.fold.lane import WORTH
    from apportion.core.fold.stretches import Batches
    from tests.conftest import Script

    script = Script()
    told = [*script.opening(), script.submission("w"), *(script.heartbeat(0, beat) for beat in range(1, WORTH + 1))]
    records = [Record(seq, seq, subject, body) for seq, (subject, body, _) in enumerate(told, start=1)]
    with TemporaryDirectory() as folder:
        path = Path(folder) / "day"
        path.write_bytes(events_segment("1970-01-01", "", records))
        sheet = read_sheet(opened(path, "events", 1, ""))
    columns, text = columns_of(sheet, 1, len(records)), sheet.text(1, 0, len(records))
    Core.new().fold_many(records)
    Core.new().fold_text(text)
    core, position = Core.new(), 0
    while position < len(records):
        position = core.trust_columns(columns, position, Batches((), 0))


PARTS: dict[str, Callable[[], None]] = {"cycles": cycles, "past": past}

if __name__ == "__main__":
    keep_kernels_apart()
    PARTS[sys.argv[1]]()

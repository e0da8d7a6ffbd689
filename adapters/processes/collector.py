"""The collector of cycles, paused while many records are made or folded.

Records, batches and decisions form no cycles, so counting references frees all of them. Python's collector would walk them again
and again, and with them, at every full collection, the hundreds of thousands of objects of the compiler: a seventh of the time of
a replay. Whoever pauses it lets it run when the work is done.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collector() -> Iterator[None]:
    """Pause the collector of cycles."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()

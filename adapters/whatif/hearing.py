"""When nodes were heard: how often they usually are, and which of them fell silent for longer than that.

A *gap* is more than twice and a half the shortest time between two heartbeats of a node. A pure function of what it is told, in the
order of the log; plain heartbeats may be told many at once, ahead of time, and count when something else is asked of their node.
It decides nothing: what a gap means is for who reads the history.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

I64 = NDArray[np.int64]
GAPS = 5  # twice and a half the usual time between two beats, in halves, is a gap


class Hearing:
    """All nodes of a range."""

    def __init__(self) -> None:
        self._last_ms: dict[str, int] = {}
        self._every_ms: dict[str, int] = {}
        self._gap_ms: dict[str, int] = {}  # when it was heard last before a gap that is not explained yet
        self._ahead: dict[str, tuple[I64, I64]] = {}  # heartbeats that do not count yet: records, instants

    def heard(self, node: str, time_ms: int) -> bool:
        """Note a heartbeat; True when it ends a gap."""
        return self._note(node, [time_ms])

    def ahead(self, node: str, seqs: I64, times_ms: I64) -> None:
        """Take heartbeats that come after what was told so far; all before them must have been caught up with."""
        self._ahead[node] = seqs, times_ms

    def catch_up(self, node: str, seq: int) -> bool:
        """Let the heartbeats count that were taken ahead and come before a record; True when one ends a gap."""
        found = self._ahead.get(node)
        if found is None:
            return False
        seqs, times_ms = found
        count = int(np.searchsorted(seqs, seq))
        if not count:
            return False
        self._ahead[node] = seqs[count:], times_ms[count:]
        return self._note(node, times_ms[:count].tolist())

    def waiting(self) -> list[str]:
        """Return the nodes of which heartbeats were taken ahead."""
        return list(self._ahead)

    def _note(self, node: str, times_ms: list[int]) -> bool:
        last_ms, every_ms, gap = self._last_ms.get(node), self._every_ms.get(node), False
        for time_ms in times_ms:
            if last_ms is not None and time_ms > last_ms:
                step_ms = time_ms - last_ms
                if every_ms is not None and 2 * step_ms > GAPS * every_ms:
                    self._gap_ms[node], gap = last_ms, True
                every_ms = step_ms if every_ms is None or step_ms < every_ms else every_ms
            last_ms = time_ms
        if last_ms is not None:
            self._last_ms[node] = last_ms
        if every_ms is not None:
            self._every_ms[node] = every_ms
        return gap

    def silent(self, node: str, time_ms: int) -> bool:
        """Tell whether nothing was heard of a node for longer than a gap, or a gap of it is not explained yet."""
        every_ms = self._every_ms.get(node)
        return node in self._gap_ms or (every_ms is not None and 2 * (time_ms - self._last_ms[node]) > GAPS * every_ms)

    def gap_of(self, node: str) -> int | None:
        """Return when a node was heard last before its gap, which is explained now; None when it had none."""
        return self._gap_ms.pop(node, None)

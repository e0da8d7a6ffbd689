"""Who held which part of the cluster, and what was his due, in intervals of equal length.

Pure function of the batches, by way of ``fairness.measures.Shares``; an interval ends with the first cycle at or after its end.
"""

from __future__ import annotations

from apportion.adapters.comparing.measures import Shares
from apportion.adapters.comparing.setting import Tree
from apportion.core.decisions import CycleBatch
from apportion.core.units import PPM


class Timeline:
    """Parts of the GPU time in service, in ppm, per interval and budget."""

    def __init__(self, tree: Tree, from_ms: int, to_ms: int, intervals: int) -> None:
        self._shares = Shares(tree, from_ms, to_ms)
        self._marks_ms = [from_ms + (to_ms - from_ms) * number // intervals for number in range(1, intervals + 1)]
        self._before: dict[str, tuple[int, int]] = {path: (0, 0) for path, _ppm in tree}
        self._supply_us = 0
        self.got_ppm: dict[str, list[int]] = {path: [] for path, _ppm in tree}
        self.due_ppm: dict[str, list[int]] = {path: [] for path, _ppm in tree}

    def take(self, batch: CycleBatch) -> None:
        """Count one batch; close an interval that has passed."""
        self._shares.take(None, batch)
        if not self._marks_ms or batch.time_ms < self._marks_ms[0]:
            return
        self._marks_ms.pop(0)
        supply_us = sum(books.supply - books.down for books in batch.books)
        whole = max(1, supply_us - self._supply_us)
        self._supply_us = supply_us
        for path, (got, due) in self._before.items():
            row = self._shares.row_of[path]
            now = (int(self._shares.got[row]), int(self._shares.due[row]))
            self.got_ppm[path].append((now[0] - got) * PPM // whole)
            self.due_ppm[path].append((now[1] - due) * PPM // whole)
            self._before[path] = now

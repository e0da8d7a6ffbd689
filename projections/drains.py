"""Drains: which nodes were ordered to be empty, by when, by whom and why, from one sequence to another.

A pure function of the accepted events. A further order of a node ends one row and begins the next, so that every decision can be
judged by the order that was in force. Must never say what still runs there: that is ``allocations``.
"""

from __future__ import annotations

import duckdb

from apportion.core import events
from apportion.projections.moment import Said
from apportion.projections.sheet import Intervals, Row

_COLUMNS = (
    "drain_id", "node", "deadline_ms", "force", "reason", "principal", "first_ms", "from_seq", "from_ms",
)  # fmt: skip
_NODE, _REASON, _PRINCIPAL, _FIRST_MS = (_COLUMNS.index(name) for name in ("node", "reason", "principal", "first_ms"))


class Drains:
    """Rows of drains; a node has at most one that is open."""

    def __init__(self) -> None:
        self.spans = Intervals("fact.drain", _COLUMNS, ("to_seq", "to_ms"))
        self._of: dict[str, int] = {}  # node -> its open row

    def load(self, _con: duckdb.DuckDBPyConnection) -> None:
        """Take up the open rows, which are loaded already."""
        self._of = {row[_NODE]: row_id for row_id, row in self.spans.open.rows.items()}

    def order(self, at: Said, event: events.NodeDrained) -> None:
        """It is to be empty by then; what was ordered before ends, but for when it first was."""
        before = self.end(at, event.node)
        first_ms = at.time_ms if before is None else before[_FIRST_MS]
        deadline_ms = max(event.by_ms, at.time_ms)
        self._of[event.node] = self.spans.begin(
            event.node, deadline_ms, event.force, event.reason, at.principal, first_ms, at.seq, at.time_ms
        )

    def end(self, at: Said, node: str) -> Row | None:
        """It is not drained any more; returns the row that ended, if there was one."""
        row_id = self._of.pop(node, None)
        return None if row_id is None else self.spans.end(row_id, at.seq, at.time_ms)

    def why(self, node: str) -> tuple[str, str]:
        """Return the reason of a node's drain and who ordered it."""
        row = self.spans.open.rows[self._of[node]]
        return row[_REASON], row[_PRINCIPAL]

"""The time of each record, by the core's rule, and the chain over all records read.

Time begins with the accepted ``log.opened``: from the server's stored time, or from what producers state. It never runs
backwards. The chain is the core's own function over the same frames, so that a projector which read other records than
the core finds out at the next cycle.

Pure; must never read a clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

from apportion.core.envelope import Record
from apportion.core.state import digest
from apportion.core.state.state import EMPTY_CHAIN, State
from apportion.core.units import MAX_ELAPSED_MS, MAX_TIME_MS


@dataclass
class LogClock:
    """Time and chain after the last record."""

    opened: bool = False
    stated: bool = False
    time_ms: int = 0
    chain: bytes = EMPTY_CHAIN
    unchained: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        # the core's chain functions use of a state: chain, unchained, counters.time_ms
        self.counters: Any = SimpleNamespace(time_ms=self.time_ms)

    def advance(self, stored_ms: int, at_ms: int) -> int:
        """Return the time of the next record; ``at_ms`` is its producer's claim, 0 when it has none."""
        if self.opened:
            claimed = at_ms if self.stated else stored_ms
            limit = min(self.time_ms + MAX_ELAPSED_MS, MAX_TIME_MS)
            if not self.stated or 0 <= claimed <= limit:  # the core refuses a stated time that cannot follow
                self.time_ms = max(self.time_ms, min(claimed, limit))
        return self.time_ms

    def extend(self, record: Record) -> None:
        """Take the record into the chain, at the time it was just given."""
        self.counters.time_ms = self.time_ms
        digest.extend_chain(cast(State, self), record)

    def open(self, stated: bool, stored_ms: int, at_ms: int) -> int:
        """Begin time with an accepted ``log.opened``; returns its time."""
        self.opened, self.stated = True, stated
        self.time_ms = min(max(at_ms if stated else stored_ms, 0), MAX_TIME_MS)
        return self.time_ms

    def close_chain(self) -> str:
        """Close the chain at an accepted tick; returns its value in hex."""
        digest.close_chain(cast(State, self))
        return self.chain.hex()

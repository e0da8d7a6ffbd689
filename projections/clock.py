"""The time of each record, by the core's rule, and the chain over all records read.

Time begins with the accepted ``log.opened``: from the server's stored time, or from what producers state; the rule is the core's
(``core.units``). The chain is the core's (``core.state.digest``) over the same frames, so that a projector which read other records
than the core finds out at the next cycle; so does one whose rule of time is not the core's, for a frame carries the time.

Pure; must never read a clock.
"""

from __future__ import annotations

import hashlib
from typing import Any

from apportion.core.envelope import Record
from apportion.core.state.digest import MAX_FRAMES
from apportion.core.state.state import EMPTY_CHAIN
from apportion.core.units import first_time_ms, next_time_ms

_FRAME, _PARTS = b"%d %d %b %d\n%b", 5


class LogClock:
    """Time and chain after the last record."""

    __slots__ = ("_subjects", "chain", "frames", "opened", "stated", "time_ms")

    def __init__(self, opened: bool = False, stated: bool = False, time_ms: int = 0, chain: bytes = EMPTY_CHAIN) -> None:
        self.opened = opened
        self.stated = stated
        self.time_ms = time_ms
        self.chain = chain
        self.frames: list[Any] = []  # taken since the chain was closed: sequence, time, subject, length and body of each
        self._subjects: dict[str, bytes] = {}

    def take(self, record: Record, at_ms: int) -> int:
        """Take the next record into time and chain; returns its time. ``at_ms`` is its producer's claim, 0 when it has none."""
        seq, stored_ms, subject, body = record
        if self.opened:
            now_ms = next_time_ms(self.time_ms, at_ms if self.stated else stored_ms, stated=self.stated)
            if now_ms is not None:
                self.time_ms = now_ms
        encoded = self._subjects.get(subject)
        if encoded is None:
            encoded = self._subjects[subject] = subject.encode("utf-8", "surrogatepass")
        self.frames += (seq, self.time_ms, encoded, len(body), body)
        if self.room < 0:
            self.close_chain()
        return self.time_ms

    @property
    def room(self) -> int:
        """How many frames may be added to ``frames`` before ``take`` must be asked, which then closes the chain."""
        return MAX_FRAMES - 1 - len(self.frames) // _PARTS

    @property
    def taken(self) -> int:
        """How many records were taken since the chain was closed."""
        return len(self.frames) // _PARTS

    def open(self, stated: bool, stored_ms: int, at_ms: int) -> int:
        """Begin time with an accepted ``log.opened``, which is in the chain at the time before; returns its time."""
        self.opened, self.stated = True, stated
        self.time_ms = first_time_ms(at_ms if stated else stored_ms)
        return self.time_ms

    def close_chain(self) -> str:
        """Close the chain at an accepted tick; returns its value in hex."""
        frames = _FRAME * (len(self.frames) // _PARTS) % tuple(self.frames)  # one call instead of one for each
        self.chain = hashlib.sha256(self.chain + frames).digest()
        self.frames.clear()
        if len(self._subjects) > 100_000:
            self._subjects.clear()
        return self.chain.hex()

"""When the leader writes a ``clock.tick``, and what became of it.

``Ticker`` decides that a cycle should run now: something read may change a decision (``dirty``), or a deadline in the state
has come (``due``, or ``plan`` for the next step of a rolling plan). It publishes the tick as the principal ``core`` and
remembers it until the log has brought it back; until then it writes no other, so a burst of events shares one cycle. It
reads the wall clock, which decides nothing but *when to ask*: the cycle's time is the tick's own, as stored.

It never touches the core's state.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable

from apportion.adapters.processes import ending
from apportion.adapters.service.ports import EventPublisher
from apportion.core.engine import Core
from apportion.core.envelope import subject_of
from apportion.core.errors import ApportionError
from apportion.core.events import ClockTick, encode_event
from apportion.core.reasons import TickWhy

logger = logging.getLogger(__name__)

TICK_TYPE = "clock.tick"
RETRY_S = 0.5
SAME_DEADLINE_S = 0.2  # a deadline that a cycle did not settle (a server clock behind ours) is asked again after this
LONGEST_WAIT_S = 1.0
QUIET_S = 0.005  # nothing arrived for this long: there is time to search for deadlines
LOOK_EVERY_S = 0.05  # they are searched for this often even while records keep arriving


def wall_ms() -> int:
    """Return the wall clock in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


async def publish_tick(publisher: EventPublisher, principal: str, why: TickWhy, at_ms: int) -> int:
    """Write one tick and return its sequence."""
    event_id = secrets.token_hex(16)
    body = encode_event(ClockTick(why=why.value), event_id=event_id, at_ms=at_ms)
    return (await publisher.publish(subject_of(principal, TICK_TYPE), body, event_id))[0]


class Ticker:
    """At most one tick of ours is under way at any moment."""

    def __init__(self, publisher: EventPublisher, principal: str, wake: Callable[[], None]) -> None:
        self._publisher = publisher
        self._principal = principal
        self._wake = wake
        self._task: asyncio.Task[int] | None = None
        self._not_before_s = 0.0
        self._asked_due_ms: int | None = None
        self._asked_at_s = 0.0
        self._looked_at_s = 0.0
        self.written = 0

    def next_wait_s(self, core: Core, last_tick_seq: int, *, busy: bool) -> float:
        """Write a tick when one is needed; return for how long the reader may wait before asking again.

        ``busy`` (records are arriving) puts off the search for deadlines a little, which costs more than looking at
        ``dirty``; ``last_tick_seq`` is the last tick the core accepted. Raises ``ApportionError`` when a tick of ours was
        read back and refused: then no cycle would ever run.
        """
        if self._task is not None and not self._settled(core, last_tick_seq):
            return LONGEST_WAIT_S
        counters = core.state.counters
        if not counters.opened or counters.stated or core.tick_pending:
            return LONGEST_WAIT_S
        now_s = time.monotonic()
        if now_s < self._not_before_s:
            return self._not_before_s - now_s
        if core.dirty:
            self._write(TickWhy.DIRTY, wall_ms())
            return LONGEST_WAIT_S
        if busy and now_s - self._looked_at_s < LOOK_EVERY_S:
            return QUIET_S
        self._looked_at_s = now_s
        return self._next_deadline_s(core, now_s)

    def _next_deadline_s(self, core: Core, now_s: float) -> float:
        """Write a tick when a deadline has come; return how long it is to the next one, or to the next look."""
        due_ms, now_ms = core.due_ms(), wall_ms()
        if due_ms is None:
            return LONGEST_WAIT_S
        if due_ms > now_ms:
            return min(max((due_ms - now_ms) / 1_000, 0.001), LONGEST_WAIT_S)
        again_s = self._asked_at_s + SAME_DEADLINE_S
        if due_ms == self._asked_due_ms and now_s < again_s:
            return again_s - now_s
        self._asked_due_ms, self._asked_at_s = due_ms, now_s
        self._write(core.why_due(now_ms), now_ms)
        return LONGEST_WAIT_S

    async def close(self) -> None:
        """Forget the tick under way."""
        task, self._task = self._task, None
        if task is not None:
            await ending.let_go(task)

    def _write(self, why: TickWhy, at_ms: int) -> None:
        self._task = asyncio.get_running_loop().create_task(publish_tick(self._publisher, self._principal, why, at_ms))
        self._task.add_done_callback(self._on_written)

    def _on_written(self, task: asyncio.Task[int]) -> None:
        if task.cancelled() or task.exception() is not None:
            self._wake()  # nothing will be read back: look again

    def _settled(self, core: Core, last_tick_seq: int) -> bool:
        """Tell whether the tick under way has been read back, or will not be."""
        task = self._task
        assert task is not None
        if not task.done():
            return False
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if error is not None:
            logger.error("a clock.tick could not be written: %s; trying again", error)
            self._not_before_s = time.monotonic() + RETRY_S
        elif core.seq < task.result():
            return False
        elif last_tick_seq < task.result():
            raise refused_tick(task.result(), self._principal)
        else:
            self.written += 1
        self._task = None
        return True


def refused_tick(tick_seq: int, principal: str) -> ApportionError:
    """Return the error for a tick that was read and refused."""
    return ApportionError(
        f"the clock.tick of {principal!r} at seq {tick_seq} was refused by the core: the log is not opened, or {principal!r} "
        "is no operator of it (log.opened names them); start the core as a principal that is"
    )

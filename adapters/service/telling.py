"""Who is told of a cycle once its batch is stored: callbacks, and drivers that wait for the tick they wrote.

``Told`` decides nothing and writes nothing. It keeps the last batches, so a driver whose tick was answered before it
asked still gets the answer.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import deque
from collections.abc import Awaitable, Callable

from apportion.core.envelope import StoredBatch

logger = logging.getLogger(__name__)

OnBatch = Callable[[StoredBatch], Awaitable[None] | None]
REMEMBERED_BATCHES = 64


class Told:
    """The listeners of one service."""

    def __init__(self) -> None:
        self._callbacks: list[OnBatch] = []
        self._recent: deque[StoredBatch] = deque(maxlen=REMEMBERED_BATCHES)
        self._waiting: dict[int, asyncio.Future[StoredBatch]] = {}  # by the tick's sequence

    def add(self, callback: OnBatch) -> None:
        """Call ``callback`` with every batch from now on."""
        self._callbacks.append(callback)

    async def tell(self, batch: StoredBatch) -> None:
        """Hand a stored batch to everybody. What a callback raises is logged: the core does not depend on listeners."""
        self._recent.append(batch)
        waiting = self._waiting.pop(batch.input_seq, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(batch)
        for callback in self._callbacks:
            try:
                result = callback(batch)
                if inspect.isawaitable(result):
                    await result
            except Exception:
                logger.exception("a callback failed on the batch of seq %d", batch.input_seq)

    def recent(self, tick_seq: int) -> StoredBatch | None:
        """Return the batch that answered the tick, if it is among the last ones."""
        return next((batch for batch in self._recent if batch.input_seq == tick_seq), None)

    async def wait_for(self, tick_seq: int) -> StoredBatch:
        """Wait for the batch that answers the tick."""
        future: asyncio.Future[StoredBatch] = asyncio.get_running_loop().create_future()
        self._waiting[tick_seq] = future
        return await future

    def fail(self, error: Callable[[int], Exception], *, up_to_seq: int | None = None, but_seq: int = 0) -> None:
        """End the waits for ticks up to ``up_to_seq`` (all when None) except ``but_seq`` with ``error(seq)``."""
        for seq in list(self._waiting):
            if seq != but_seq and (up_to_seq is None or seq <= up_to_seq):
                future = self._waiting.pop(seq)
                if not future.done():
                    future.set_exception(error(seq))

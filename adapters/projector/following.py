"""From the two streams into the projection: read, fold, commit, tell who waits.

Read some batches and the records they answer, ``projection.ingest`` them, repeat. Commits are made at once while little
happens, but at most every ``FLUSH_S`` or ``COMMIT_EVENTS`` while much does, and larger ones while far behind: a commit costs
a millisecond whatever it carries. Folding the next cycles while a commit is written was tried and is slower: DuckDB reads our
columns of text under the interpreter's lock, once per column, and waits for it each time.

Batches are read first, and records only up to what they answer, so nothing piles up when the core stands still. What is
committed is brought into its tables (``refresh``) when a reader wants it or nothing else is to be done.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from apportion.adapters.bus.stream import Tail
from apportion.adapters.service.ports import FollowedDecisions, FollowedEvents
from apportion.core.envelope import Record, StoredBatch
from apportion.projections.runner import Projection

logger = logging.getLogger(__name__)

COMMIT_EVENTS = 1_000
CATCH_UP_EVENTS = 10_000  # behind by more than this, commits carry more: the readers' wait is long anyway
FLUSH_S = 0.1
BATCHES_MAX = 2_000
IDLE_REFRESH_S = 1.0

T = TypeVar("T")


class Follower:
    """Feeds one projection. ``run`` until ``stop``; everything else may be called meanwhile."""

    def __init__(self, projection: Projection, events: FollowedEvents, decisions: FollowedDecisions) -> None:
        self.projection = projection
        self.decided_seq = projection.position.seq  # the newest tick that the core has answered, as far as read
        self.readable_seq = 0
        self.behind_since: float | None = None
        self.commits = 0
        self._events = events
        self._decisions = decisions
        self._writer = ThreadPoolExecutor(1, "projector-write")
        self._stopping = False
        self._tails: tuple[Tail[StoredBatch], Tail[Record]] | tuple[()] = ()
        self._refresh_wanted = False
        self._changed = asyncio.Event()
        self._quiet_work: list[tuple[Callable[[], object], asyncio.Future[object]]] = []

    def stop(self) -> None:
        """Let ``run`` end after the commit in progress."""
        self._stopping = True
        self._wake()

    def _wake(self) -> None:
        for tail in self._tails:
            tail.wake()

    async def fresh(self) -> None:
        """Return when what is committed now can be read."""
        target = self.projection.position.seq
        while self.readable_seq < target and not self._stopping:
            self._refresh_wanted = True
            self._wake()
            await self._next_change()

    async def reach(self, seq: int, timeout_s: float) -> bool:
        """Wait until record ``seq`` is decided, projected and readable; False when that takes longer."""
        try:
            async with asyncio.timeout(timeout_s):
                while self.projection.position.seq < seq:
                    if self._stopping:
                        return False
                    await self._next_change()
                await self.fresh()
        except TimeoutError:
            return False
        return self.readable_seq >= seq

    async def quietly(self, work: Callable[[], T]) -> T:
        """Run ``work`` on the writer's thread between two commits."""
        done: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self._quiet_work.append((work, done))
        self._wake()
        return await done  # type: ignore[return-value]  # what work returned

    async def _next_change(self) -> None:
        changed = self._changed
        await changed.wait()

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Follow both streams until ``stop``. Raises what the streams or the projection raise."""
        at = self.projection
        batches = self._decisions.tail(at.wants_after_decision_seq)
        records = self._events.tail(at.wants_after_seq)
        self._tails = (batches, records)
        committed_at = 0.0
        try:
            while not self._stopping:
                taken = await batches.take(BATCHES_MAX, 0.0 if self._refresh_wanted or self._quiet_work else IDLE_REFRESH_S)
                if taken:
                    self.decided_seq = taken[-1].input_seq
                    self.behind_since = self.behind_since or time.monotonic()
                    taken += await self._more(batches, committed_at)
                    await self._ingest(records, taken)
                    committed_at = time.monotonic()
                if self._refresh_wanted or self._quiet_work or not taken:
                    await self._quiet(idle=not taken)
        finally:
            await batches.close()
            await records.close()
            self._tails = ()
            self._tell()

    async def _more(self, batches: Tail[StoredBatch], committed_at: float) -> list[StoredBatch]:
        """Gather what arrives until the next commit may be made; nothing while commits are rare."""
        until = committed_at + FLUSH_S
        found: list[StoredBatch] = []
        events = self.decided_seq - self.projection.wants_after_seq
        while not self._stopping and not self._refresh_wanted and events < COMMIT_EVENTS:
            left_s = until - time.monotonic()
            if left_s <= 0:
                break
            taken = await batches.take(BATCHES_MAX, left_s)
            if not taken:
                break
            found += taken
            self.decided_seq = taken[-1].input_seq
            events = self.decided_seq - self.projection.wants_after_seq
        return found

    async def _ingest(self, records: Tail[Record], batches: list[StoredBatch]) -> None:
        """Read the records that ``batches`` answer, and commit both in pieces."""
        loop = asyncio.get_running_loop()
        size = COMMIT_EVENTS if self.decided_seq - self.projection.wants_after_seq <= CATCH_UP_EVENTS else CATCH_UP_EVENTS
        answered: list[StoredBatch] = []
        for number, batch in enumerate(batches):
            answered.append(batch)
            if batch.input_seq - self.projection.wants_after_seq < size and number + 1 < len(batches):
                continue
            read: list[Record] = []
            while (missing := batch.input_seq - self.projection.wants_after_seq - len(read)) > 0:
                if self._stopping:
                    return  # a server that is gone does not send them any more; the next start reads both again
                read += await records.take(missing)
            await loop.run_in_executor(self._writer, self.projection.ingest, read, answered)
            answered = []
            self.commits += 1
            if self.projection.position.seq >= self.decided_seq:
                self.behind_since = None
            self._tell()
            if self._stopping:
                return
            if self._refresh_wanted:
                await self._quiet(idle=False)

    async def _quiet(self, *, idle: bool) -> None:
        """Between commits: refresh for readers, and do what was asked to be done quietly."""
        loop = asyncio.get_running_loop()
        if self.readable_seq < self.projection.position.seq and (self._refresh_wanted or idle or self._quiet_work):
            self._refresh_wanted = False
            await loop.run_in_executor(self._writer, self.projection.refresh)
            self.readable_seq = self.projection.position.seq
            self._tell()
        self._refresh_wanted = False
        waiting, self._quiet_work = self._quiet_work, []
        for work, done in waiting:
            try:
                result = await loop.run_in_executor(self._writer, work)
            except Exception as error:
                if not done.done():
                    done.set_exception(error)
            else:
                if not done.done():
                    done.set_result(result)

    async def close(self) -> None:
        """Finish: refresh, then release the threads. ``run`` must have ended; the projection stays open."""
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(self._writer, self.projection.recover)
            await loop.run_in_executor(self._writer, self.projection.refresh)
        finally:
            for _work, done in self._quiet_work:
                done.cancel()
            self._writer.shutdown()

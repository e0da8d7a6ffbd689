"""``SchedulerService``: drives one ``Core`` over the logs, as leader or as standby.

First it catches up: records in bulk, and for every tick the stored batch, trusted (``core.trust`` checks the digest it
promises). Then it follows. The leader answers each tick by deciding and committing; the standby waits for the leader's
batch and derives it again (``core.verify``). Promotion is a flag: the next tick without a batch is answered here.

It decides nothing itself: what is decided is the core's, whether it counts is the fence's. On ``Fenced``, ``Divergence``,
``LogGap`` and every other ``ApportionError`` it stops loudly: ``run`` raises, and nothing is written after.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import time
from collections import deque
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Literal

from apportion.adapters.bus.stream import Tail
from apportion.adapters.past.snapshots import record_hash
from apportion.adapters.processes import ending
from apportion.adapters.processes.collector import without_collector
from apportion.adapters.service.ports import EventPublisher, FollowedDecisions, FollowedEvents, Snapshots
from apportion.adapters.service.recovery import StoredCycles, restore
from apportion.adapters.service.telling import OnBatch, Told
from apportion.adapters.service.ticking import LONGEST_WAIT_S, Ticker, publish_tick, refused_tick, wall_ms
from apportion.adapters.service.warming import warm_horizon
from apportion.core.engine import Core
from apportion.core.envelope import Record, StoredBatch
from apportion.core.errors import ApportionError, LogMismatch
from apportion.core.reasons import TickWhy
from apportion.core.state import schema

logger = logging.getLogger(__name__)

Role = Literal["leader", "standby"]

CATCH_UP_RECORDS = 16_384
FOLLOW_RECORDS = 10_000
STOP_PATIENCE_S = 5.0  # for the cycle in progress; the logs wait through any outage, which is wrong for a core that is to end


@dataclass(frozen=True)
class Settings:
    """How a scheduler process behaves; none of it changes a decision."""

    principal: str = "core"  # under which ticks are written; must be an operator of the log
    snapshot_every_records: int = 250_000
    snapshot_every_s: float = 600.0
    takeover_after_s: float | None = None  # a standby becomes leader when nothing is decided for this long
    verify_from_start: bool = False  # derive the stored cycles again while catching up, instead of trusting them


class SchedulerService:
    """See the module. ``run`` is the process; everything else may be called from other tasks of the same event loop."""

    def __init__(
        self,
        events: FollowedEvents,
        decisions: FollowedDecisions,
        publisher: EventPublisher,
        snapshots: Snapshots | None = None,
        *,
        role: Role = "leader",
        settings: Settings | None = None,
    ) -> None:
        self._events = events
        self._decisions = decisions
        self._publisher = publisher
        self._snapshots = snapshots
        self.settings = settings or Settings()
        self.role: Role = role
        self.core = Core.new()
        self.decision_seq = 0
        self.ready = asyncio.Event()
        self._told = Told()
        self._tail: Tail[Record] | None = None
        self._decision_tail: Tail[StoredBatch] | None = None
        self._stored: StoredCycles | None = None
        self._committing: asyncio.Task[None] | None = None
        self._committing_seq = 0  # the tick whose batch is decided and perhaps not yet stored
        self._heard: deque[StoredBatch] = deque()  # batches of the leader not yet compared
        self._last_record: Record | None = None
        self._last_tick_seq = 0
        self._ticker = Ticker(publisher, self.settings.principal, self._wake)
        self._snapshot_seq = 0
        self._snapshot_at_s = time.monotonic()
        self._overdue_since_s: float | None = None
        self._stop = asyncio.Event()
        self._ended: BaseException | None = None

    # -- what others call ----------------------------------------------------------------------------------------------

    def on_batch(self, callback: OnBatch) -> None:
        """Call ``callback`` with every batch once DECISIONS holds it (not while catching up). Its errors are logged."""
        self._told.add(callback)

    def promote(self) -> None:
        """Become the leader from the next undecided tick on. The fence decides whether that was right."""
        if self.role == "standby":
            logger.warning("becoming leader at seq %d", self.core.seq)
            self.role = "leader"
            self._wake()

    def stop(self) -> None:
        """End ``run`` cleanly: the current cycle is finished and a snapshot is made."""
        self._stop.set()
        self._wake()

    async def tick(self, at_ms: int, why: TickWhy = TickWhy.DUE) -> StoredBatch:
        """Write a tick at a stated time and return its batch once committed: for the driver of a log in stated time.

        Raises ``ApportionError`` when the core refuses the tick, and whatever ended the service when it has ended.
        """
        self._raise_if_ended()
        seq = await publish_tick(self._publisher, self.settings.principal, why, at_ms)
        self._raise_if_ended()
        batch = self._told.recent(seq)
        if batch is not None:
            return batch
        if seq > self.core.seq or (seq == self.core.seq and self.core.tick_pending) or seq == self._committing_seq:
            return await self._told.wait_for(seq)
        raise self._refused(seq)

    async def run(self) -> None:
        """Catch up, then follow until ``stop``. Raises what ended it otherwise; then nothing more is written."""
        try:
            if await self._done_in_time(self._catch_up()) and await self._done_in_time(self._follow()):
                await self._ticker.close()
                await self._save_snapshot()
            else:
                logger.warning("stopped while the logs did not answer; the next start reads what they hold")
        except asyncio.CancelledError as error:
            self._ended = error
            raise
        except BaseException as error:
            self._ended = error
            logger.critical("the core stops at seq %d: %s: %s", self.core.seq, type(error).__name__, error)
            raise
        finally:
            await self._close()

    async def _done_in_time(self, step: Coroutine[None, None, None]) -> bool:
        """Take one step; False when it had to be given up because this service is to end and the logs do not answer."""
        return await ending.until_stopped(self._stop, step, patience_s=STOP_PATIENCE_S) is not None

    # -- catching up ---------------------------------------------------------------------------------------------------

    async def _catch_up(self) -> None:
        """Read the logs to their ends. Leaves a tick at the very end to ``_follow``, unless this is the leader."""
        began_s = time.monotonic()
        start = await restore(self._events, self._decisions, self._snapshots)
        self.core, self.decision_seq, self._last_record = start.core, start.decision_seq, start.last_record
        self._snapshot_seq = first_seq = self.core.seq
        self._stored = StoredCycles(self._decisions, self.decision_seq)
        with without_collector():
            while not self._stop.is_set():
                if self.core.tick_pending and not await self._answer_stored():
                    break
                records = await self._events.read(self.core.seq, CATCH_UP_RECORDS)
                if not records or not await self._fold_stored(records):
                    break
                await self._maybe_snapshot()
        if not self._stop.is_set():
            await self._check_decisions_end()
        logger.info(
            "caught up at seq %d (%d records in %.2f s), cycle %d, as %s",
            self.core.seq, self.core.seq - first_seq, time.monotonic() - began_s, self.core.cycle, self.role,
        )  # fmt: skip

    async def _fold_stored(self, records: list[Record]) -> bool:
        """Fold records whose cycles are stored; False when a tick was met that has no batch yet."""
        position = 0
        while position < len(records):
            position = self.core.fold_many(records, position)
            self._last_record = records[position - 1]
            if self.core.tick_pending and not await self._answer_stored():
                return False
        return True

    async def _answer_stored(self) -> bool:
        """Apply the stored batch of the pending tick; False when there is none and this is no leader."""
        assert self._stored is not None
        batch = await self._stored.answer_to(self.core.seq)
        if batch is None:
            if self.role == "leader" and not self._stop.is_set():
                await self._decide()
                await self._settle_commit()
                self._stored = StoredCycles(self._decisions, self.decision_seq)
                return True
            return False
        if self.settings.verify_from_start:
            self.core.verify(batch.body)
        else:
            self.core.trust(batch.body)
        self.decision_seq = batch.seq
        self._last_tick_seq = batch.input_seq
        return True

    async def _check_decisions_end(self) -> None:
        """Refuse a log whose decisions answer records it does not have."""
        assert self._stored is not None
        batch = None if self.core.tick_pending else await self._stored.peek()
        if batch is not None and batch.input_seq > await self._events.last_seq():
            raise LogMismatch(
                f"DECISIONS seq {batch.seq} answers the tick at seq {batch.input_seq}, but EVENTS ends at seq {self.core.seq}: "
                "the end of the events is missing. Restore them from their archive"
            )

    # -- following -----------------------------------------------------------------------------------------------------

    async def _follow(self) -> None:
        self._tail = tail = self._events.tail(self.core.seq)
        if (self.core.state.pool.column("policy") == schema.HORIZON).any():
            await asyncio.to_thread(warm_horizon)
        gc.freeze()  # what was built by now stays: the collector need not walk it at every full collection
        self.ready.set()
        records: list[Record] = []
        while not self._stop.is_set():
            if self.core.tick_pending:
                await self._cycle()
                continue
            if self._committing is not None and self._committing.done():
                await self._settle_commit()
            wait_s = LONGEST_WAIT_S
            if self.role == "leader":
                wait_s = self._ticker.next_wait_s(self.core, self._last_tick_seq, busy=bool(records))
            else:
                self._watch_leader()
            records = await tail.take(FOLLOW_RECORDS, wait_s)
            await self._fold(records)
            await self._maybe_snapshot()
        await self._settle_commit()

    async def _fold(self, records: list[Record]) -> None:
        position = 0
        while position < len(records):
            position = self.core.fold_many(records, position)
            self._last_record = records[position - 1]
            if self.core.tick_pending and not await self._cycle():
                return  # stopping, with the tick undecided: the next start answers it
            self._told.fail(self._refused, up_to_seq=self.core.seq, but_seq=self._committing_seq)

    async def _cycle(self) -> bool:
        """Answer the pending tick: decide and commit, or wait for the leader's batch and compare. False when stopping."""
        self._last_tick_seq = self.core.seq
        while self.role == "standby":
            batch = await self._next_heard()
            if batch is not None:
                if batch.input_seq != self.core.seq:
                    raise LogMismatch(
                        f"DECISIONS seq {batch.seq} answers the tick at seq {batch.input_seq}, due was the one at seq "
                        f"{self.core.seq}: the two logs do not belong together"
                    )
                self.core.verify(batch.body)
                self.decision_seq = batch.seq
                self._overdue_since_s = None
                await self._told.tell(batch)
                return True
            if self._stop.is_set():
                return False
            self._watch_leader()
        if self._stop.is_set():
            return False
        await self._drop_decision_tail()
        await self._decide()
        return True

    async def _decide(self) -> None:
        """Decide the pending tick and begin to commit its batch, once the one before is committed.

        The commit goes on while further records are folded and the next tick is written; only the next cycle, a snapshot and
        the end wait for it. Nobody acts on a batch before its commit: the callbacks are part of it.
        """
        await self._settle_commit()
        self._last_tick_seq = seq = self.core.seq
        body = self.core.decide()
        self._committing_seq = seq
        self._committing = asyncio.get_running_loop().create_task(self._commit(body, seq))
        self._committing.add_done_callback(self._on_committed)

    async def _commit(self, body: bytes, input_seq: int) -> None:
        self.decision_seq = await self._decisions.commit(body, input_seq, self.decision_seq)
        await self._told.tell(StoredBatch(self.decision_seq, input_seq, body))

    def _on_committed(self, task: asyncio.Task[None]) -> None:
        if task.cancelled() or task.exception() is not None:
            self._wake()  # the loop must see why

    async def _settle_commit(self) -> None:
        """Wait until the last batch is committed. Raises what prevented it."""
        if self._committing is not None:
            await self._committing
            self._committing = None

    async def _next_heard(self) -> StoredBatch | None:
        if not self._heard:
            if self._decision_tail is None:
                self._decision_tail = self._decisions.tail(self.decision_seq)
            self._heard.extend(await self._decision_tail.take(FOLLOW_RECORDS, LONGEST_WAIT_S))
        return self._heard.popleft() if self._heard else None

    def _watch_leader(self) -> None:
        """Take over when the leader has let something lie for too long."""
        if self.settings.takeover_after_s is None or self.core.state.counters.stated:
            return
        due_ms = self.core.due_ms()
        overdue = self.core.tick_pending or self.core.dirty or (due_ms is not None and due_ms <= wall_ms())
        now_s = time.monotonic()
        if not overdue or not self.core.state.counters.opened:
            self._overdue_since_s = None
        elif self._overdue_since_s is None:
            self._overdue_since_s = now_s
        elif now_s - self._overdue_since_s >= self.settings.takeover_after_s:
            logger.warning("no decision for %.1f s while one is due", now_s - self._overdue_since_s)
            self.promote()

    # -- snapshots, waking, ending -------------------------------------------------------------------------------------

    async def _maybe_snapshot(self) -> None:
        if self._snapshots is None or self.core.tick_pending:
            return
        records = self.core.seq - self._snapshot_seq
        by_time = records > 0 and time.monotonic() - self._snapshot_at_s >= self.settings.snapshot_every_s
        if records >= self.settings.snapshot_every_records or by_time:
            await self._save_snapshot()

    async def _save_snapshot(self) -> None:
        """Keep the state, unless a cycle is pending or nothing was read since the last one."""
        await self._settle_commit()
        record = self._last_record
        if self._snapshots is None or record is None or self.core.tick_pending or self.core.seq == self._snapshot_seq:
            return
        seq, data, decision_seq = self.core.seq, self.core.snapshot(), self.decision_seq
        known_by = record_hash(record.subject, record.body)
        await asyncio.to_thread(self._snapshots.save, seq, data, record_hash=known_by, decision_seq=decision_seq)
        self._snapshot_seq, self._snapshot_at_s = seq, time.monotonic()
        logger.info("snapshot of seq %d, %d bytes", seq, len(data))

    def _wake(self) -> None:
        for tail in (self._tail, self._decision_tail):
            if tail is not None:
                tail.wake()

    async def _drop_decision_tail(self) -> None:
        self._heard.clear()
        tail, self._decision_tail = self._decision_tail, None
        if tail is not None:
            await tail.close()

    def _refused(self, tick_seq: int) -> ApportionError:
        return refused_tick(tick_seq, self.settings.principal)

    def _raise_if_ended(self) -> None:
        if self._ended is not None:
            raise ApportionError(f"the core has ended: {type(self._ended).__name__}: {self._ended}") from self._ended

    async def _close(self) -> None:
        self._ended = self._ended or ApportionError("the core was stopped")
        await self._ticker.close()
        committing, self._committing = self._committing, None
        if committing is not None:  # ended by something else: what is stored will be read at the next start
            await ending.let_go(committing)
        ended = self._ended
        self._told.fail(lambda _seq: ApportionError(f"the core has ended: {ended}"))
        await ending.within("closing the reader of DECISIONS", self._drop_decision_tail())
        tail, self._tail = self._tail, None
        if tail is not None:
            await ending.within("closing the reader of EVENTS", tail.close())

"""Explanations on request, from a core that is kept up to date between questions: the projector answers ``ap.q.explain`` by it.

Why here: the process that decides must not be asked, and one that reads a snapshot and the log's tail for each question takes
seconds.
This one follows as a standby does, trusting the stored decisions, but only when it is asked: it keeps the core before the newest
tick that was asked about, and takes in what came since. When a newer snapshot is far ahead it starts from that instead. Nothing is
loaded before the first question; that one waits for it.

One question at a time, on a thread of its own, each on a copy. A question about a tick that is behind the core kept is refused
(``Past``): whoever may read the log finds it there. Never writes, never decides.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

from apportion.adapters.past.recalling import newest
from apportion.adapters.past.snapshots import DiskSnapshots, WithArchived
from apportion.core.envelope import Record, StoredBatch
from apportion.core.errors import ApportionError, LogMismatch
from apportion.core.ports import DecisionLog, EventLog

if TYPE_CHECKING:
    from apportion.adapters.explaining.moment import Moment
    from apportion.core.engine import Core

T = TypeVar("T")

READ_RECORDS = 5_000
READ_BATCHES = 200
FAR_RECORDS = 20_000  # a snapshot so far ahead is quicker than the log
PATIENCE_S = 8.0  # below the limit of a question; what is not caught up by then goes on


class Past(ApportionError):
    """The tick asked about is before the core that is kept."""


class Behind(ApportionError):
    """The core is still being brought up to the tick asked about."""


class Explainer:
    """Answers about the newest ticks of two logs."""

    def __init__(self, events: EventLog, decisions: DecisionLog, snapshots: DiskSnapshots | WithArchived | None = None) -> None:
        self._events, self._decisions, self._snapshots = events, decisions, snapshots
        self._thread = ThreadPoolExecutor(1, "explainer")
        self._lock = asyncio.Lock()
        self._core: Core | None = None
        self._after_decision = 0  # sequence of DECISIONS up to which batches were read
        self._waiting: deque[StoredBatch] = deque()
        self._moment: Moment | None = None  # of the last question: its cycle is known
        self._catching: asyncio.Task[None] | None = None

    async def explain(self, seq: int, workload: str, *, trials: bool = True) -> dict[str, Any]:
        """Return why a workload does not run after the tick at ``seq``. Raises ``Past``, ``Behind``, ``ApportionError``."""

        def answer(moment: Moment) -> dict[str, Any]:
            from apportion.adapters.explaining.report import explanation

            return explanation(moment, workload, trials=trials)

        return await self._asked(seq, answer)

    async def explain_node(self, seq: int, node: str, workload: str) -> dict[str, Any] | None:
        """Return what stands between a node and a workload after the tick at ``seq``. Raises as ``explain``."""

        def answer(moment: Moment) -> dict[str, Any] | None:
            from apportion.adapters.explaining.report import node_explanation

            return node_explanation(moment, node, workload)

        return await self._asked(seq, answer)

    async def close(self) -> None:
        """Stop: what is being caught up is dropped."""
        if self._catching is not None:
            self._catching.cancel()
            await asyncio.gather(self._catching, return_exceptions=True)
        self._thread.shutdown(wait=False, cancel_futures=True)  # the question in progress is bounded, and nobody waits for it

    async def _asked(self, seq: int, answer: Callable[[Moment], T]) -> T:
        async with self._lock:
            moment = self._moment
            if moment is None or moment.tick.seq != seq:
                moment = self._moment = await self._moment_of(seq)
            return await self._apart(answer, moment)

    async def _apart(self, work: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, *arguments)

    async def _moment_of(self, seq: int) -> Moment:
        """Bring the core up to the record before the tick; it stays there."""
        if self._core is not None and seq <= self._core.seq:
            raise Past(f"the core kept for explanations is at record {self._core.seq:,}, after the tick at {seq:,}")
        self._moment = None  # its core moves on
        if self._catching is None or self._catching.done():
            self._catching = asyncio.create_task(self._catch_up(seq - 1))
        try:
            async with asyncio.timeout(PATIENCE_S):
                await asyncio.shield(self._catching)
        except TimeoutError:
            at = 0 if self._core is None else self._core.seq
            raise Behind(f"explanations are being caught up: record {at:,} of {seq:,}") from None
        core = self._core
        assert core is not None
        if core.seq != seq - 1:  # somebody asked about another tick meanwhile
            raise Behind(f"explanations are caught up to record {core.seq:,} of {seq:,}") if core.seq < seq else Past(
                f"the core kept for explanations is at record {core.seq:,}, after the tick at {seq:,}"
            )
        from apportion.adapters.explaining.moment import Moment

        (tick,) = await self._events.read(seq - 1, 1)
        return Moment(core, tick)

    async def _catch_up(self, seq: int) -> None:
        try:
            await self._advance(seq)
        except BaseException:
            self._core, self._after_decision = None, 0  # it may be in the middle of a cycle: the next question begins anew
            self._waiting.clear()
            raise

    async def _advance(self, seq: int) -> None:
        await self._begin(seq)
        core = self._core
        assert core is not None
        while core.seq < seq:
            records = await self._events.read(core.seq, min(READ_RECORDS, seq - core.seq))
            if not records:
                raise LogMismatch(f"the log promised seq {seq:,} but ends at {core.seq:,}")
            await self._read_batches(records[-1].seq)
            await self._apart(self._fold, core, records)

    async def _begin(self, seq: int) -> None:
        """Start from a snapshot where there is none yet, or one that is far ahead."""
        after = 0 if self._core is None else self._core.seq + FAR_RECORDS
        found = await newest(self._snapshots, self._events, seq, after) if self._snapshots is not None else None
        if found is not None:
            self._core, self._after_decision = found.core, found.meta.decision_seq
            self._waiting.clear()
        elif self._core is None:
            from apportion.core.engine import Core

            self._core = Core.new()

    async def _read_batches(self, up_to_seq: int) -> None:
        """Read the batches that answer ticks up to a record."""
        while not self._waiting or self._waiting[-1].input_seq < up_to_seq:
            found = await self._decisions.read(self._after_decision, READ_BATCHES)
            if not found:
                return
            self._after_decision = found[-1].seq
            self._waiting.extend(found)

    def _fold(self, core: Core, records: list[Record]) -> None:
        position = 0
        while position < len(records):
            position = core.fold_many(records, position)
            if not core.tick_pending:
                continue
            while self._waiting and self._waiting[0].input_seq < core.seq:
                self._waiting.popleft()  # folded by the snapshot
            if not self._waiting or self._waiting[0].input_seq != core.seq:
                raise LogMismatch(f"the tick at seq {core.seq:,} has no stored batch")
            core.trust(self._waiting.popleft().body, check=False)

"""Reads DECISIONS for one agent: from its own cursor, without gaps, into ``Orders``.

The cursor is the agent's, on disk; the server keeps none. At start the last batch read is compared with what the log
holds at its place now: a log that was cut or replaced stops the agent, because the runs it would stop or start would be
somebody else's. Nothing is acted on before the end of the log, as known at start, was reached once.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable

import msgspec

from apportion.adapters.agent.memory import Follow, Memory, WrongAgent, mark_of
from apportion.adapters.agent.orders import Orders
from apportion.adapters.bus.archived import ArchiveMissing, lost
from apportion.adapters.bus.connection import Connection
from apportion.adapters.bus.decisions import begin_after
from apportion.adapters.bus.stream import Tail
from apportion.adapters.logs.joined import JoinedDecisionLog, JoinedEventLog
from apportion.core.decisions import decode_batch
from apportion.core.envelope import StoredBatch, decode_envelope
from apportion.core.errors import LogMismatch
from apportion.core.events import LogOpened, decode_data

logger = logging.getLogger(__name__)

BATCHES = 500
SAVE_EVERY_S = 5.0
RETRY_S = 0.5


async def log_id(connection: Connection, events: JoinedEventLog) -> str:
    """Return the log's id, waiting through outages and until somebody has opened it. Raises ``WrongAgent``."""
    said = False
    while True:
        try:
            gone = await lost(connection, "EVENTS")
            if gone is not None:  # whoever cut it has read its first record
                return gone.cut.log_id
            body = await events.body_at(1) if await events.last_seq() else None
        except TimeoutError as error:  # an outage at the start is an outage like any other
            logger.warning("the bus does not answer (%s); trying again", error)
            await asyncio.sleep(RETRY_S)
            continue
        if body is not None:
            try:
                envelope = decode_envelope(body)
                opened = decode_data(envelope.type, envelope.v, envelope.data)
            except msgspec.DecodeError as error:
                raise WrongAgent(f"the first record of the log cannot be read: {error}") from None
            if not isinstance(opened, LogOpened):
                raise WrongAgent(f"the first record of the log is {envelope.type}, it must be log.opened")
            return opened.log_id
        if not said:
            logger.info("waiting for log.opened: nobody has set up this log yet")
            said = True
        await asyncio.sleep(RETRY_S)


class Follower:
    """The agent's reader of decisions; ``orders`` is the state after the last batch taken."""

    def __init__(self, connection: Connection, log: JoinedDecisionLog, memory: Memory) -> None:
        """Open the state of the last start, or an empty one."""
        self._connection = connection
        self._log = log
        self._memory = memory
        known = memory.load_follow()
        self.fresh = known is None  # never followed this log: what was placed before now was not placed on us
        identity = memory.identity
        orders = Orders(node=identity.node, principal=identity.principal)
        self.state = known or Follow(before=0, cursor=0, mark="", orders=orders)
        self._tail: Tail[StoredBatch] | None = None
        self._saved_at = time.monotonic()
        self._agent_dir = memory.agent_dir
        self._remedy = f"Restore it, or stop what still runs here, move {memory.agent_dir} away, and start again"

    @property
    def orders(self) -> Orders:
        """What is ordered as of the last batch taken."""
        return self.state.orders

    async def catch_up(self) -> int:
        """Read to the end of the log as it is now; return how many batches that were.

        Raises ``LogMismatch`` when the log is not the one followed before, ``LogGap`` when a batch is missing.
        """
        last = await self._log.last_seq()
        known = self.state
        if last < known.cursor:
            raise LogMismatch(
                f"DECISIONS ends at seq {last}, this agent has read up to seq {known.cursor}: the log was cut or "
                f"replaced. {self._remedy}"
            )
        if not known.cursor and (gone := await lost(self._connection, "DECISIONS")) is not None:
            known.before = await begin_after(self._connection, gone.until_seq)  # who was admitted before is kept by name
        self._tail = self._log.tail(known.before)
        if known.cursor:
            batch = await self._read_last()
            if (batch.seq, mark_of(batch.body)) != (known.cursor, known.mark):
                raise LogMismatch(
                    f"the batch at DECISIONS seq {batch.seq} is not the one this agent read there: the log was "
                    f"replaced. {self._remedy}"
                )
        read = 0
        while self.state.cursor < last:
            batches = await self._tail.take(BATCHES)
            self._fold(batches)
            read += len(batches)
        return read

    async def _read_last(self) -> StoredBatch:
        """Return the batch that was read last, as the log has it now. Raises ``ArchiveMissing``."""
        assert self._tail is not None
        try:
            return (await self._tail.take(1))[0]
        except ArchiveMissing as error:
            away = f"this agent was away for longer than the log reaches back (it has read up to seq {self.state.cursor:,})"
            or_else = f"Or stop what still runs here, move {self._agent_dir} away, and start again"
            raise ArchiveMissing(f"{away}: {error}. {or_else}") from None

    async def take(self) -> None:
        """Wait for the next batches and fold them."""
        if self._tail is None:
            raise RuntimeError("catch_up comes first")
        self._fold(await self._tail.take(BATCHES))

    def save(self, *, now: bool = False) -> None:
        """Keep the state on disk, not more often than every few seconds unless ``now``."""
        if now or time.monotonic() - self._saved_at >= SAVE_EVERY_S:
            self._memory.save_follow(self.state)
            self._saved_at = time.monotonic()

    async def close(self) -> None:
        """Stop reading."""
        if self._tail is not None:
            await self._tail.close()

    def _fold(self, batches: Iterable[StoredBatch]) -> None:
        for batch in batches:
            self.state.orders.fold(decode_batch(batch.body))
            self.state.before, self.state.cursor = self.state.cursor or self.state.before, batch.seq
            self.state.mark = mark_of(batch.body)

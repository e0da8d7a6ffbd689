"""A small typed client for other services: publish events, wait for the core's answer, follow decisions.

::

    from apportion.adapters.client import Client
    from apportion.core.decisions import RunPlaced

    async with Client.connect("nats://portal:secret@nats.example:4222", principal="portal") as client:
        job = await client.submit(budget="lab/llm/olmo", pools=["h100"], gpus=8, command=["python", "train.py"])
        answer = await client.wait(job.seq)  # of the first cycle that has read it
        print(answer.decisions)  # workload.admitted, or workload.rejected with its reason, field and numbers
        async for decided in client.decisions(job.seq):
            if isinstance(decided.decision, RunPlaced) and decided.decision.workload == job.workload:
                print("starts at", decided.time_ms, "on", decided.decision.pieces)
                break

It publishes to ``ap.ev.<principal>.<type>``; the server lets a user publish under its own principal only. An event is
checked by the core's own rules before it is sent, and stored once however often it is sent under one id. It decides
nothing and keeps nothing: the position in the stream of decisions is the caller's. It loads neither Numba nor DuckDB.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Any, NamedTuple

from apportion.adapters.bus import frames
from apportion.adapters.bus.archived import lost
from apportion.adapters.bus.connection import Connection
from apportion.adapters.bus.decisions import FOLLOW_LIMIT, INPUT_SEQ_HEADER, NatsDecisionLog
from apportion.adapters.bus.messages import get_message, last_seq
from apportion.adapters.bus.publisher import Publisher
from apportion.adapters.bus.topology import DECISIONS
from apportion.adapters.ingress.check import check_event
from apportion.core.decisions import AnyDecision, CycleBatch, decode_batch
from apportion.core.envelope import subject_of
from apportion.core.errors import ApportionError, LogGap, LogMismatch
from apportion.core.events import EVENT_TYPES, Event, WorkloadCancelled, WorkloadSubmitted, encode_event
from apportion.core.units import MILLI

ACK_TIMEOUT_S = 30.0
WAIT_TIMEOUT_S = 60.0


class Unanswered(ApportionError):
    """No acknowledgement in time: whether the event is stored is unknown. Publish it again under the same id."""

    def __init__(self, subject: str, event_id: str, timeout_s: float) -> None:
        super().__init__(
            f"no acknowledgement for {subject} within {timeout_s:g} s: the server is away, or this user may not publish "
            f"there; publish it again with event_id={event_id!r}, which stores it once"
        )
        self.event_id = event_id


class Undecided(ApportionError):
    """No cycle has answered the event in time: no core is running, or it is behind. The event is stored all the same."""


class Published(NamedTuple):
    """Where an event is stored. ``duplicate``: an event had been stored under this id before, at this sequence."""

    seq: int
    event_id: str
    duplicate: bool


class Submitted(NamedTuple):
    """Where a submission is stored, and the name of its workload."""

    seq: int
    event_id: str
    duplicate: bool
    workload: str


class Decided(NamedTuple):
    """One decision, with the cycle it was made in. ``seq``: the tick in EVENTS that the cycle answers."""

    seq: int
    time_ms: int
    cycle: int
    decision: AnyDecision


class Answer(NamedTuple):
    """The first cycle that had read an event, and those of its decisions that name it as their cause."""

    batch: CycleBatch
    decisions: tuple[AnyDecision, ...]


class Client:
    """See the module. Made by ``Client.connect``; usable by many tasks of one event loop."""

    def __init__(self, connection: Connection, publisher: Publisher, principal: str) -> None:
        self.principal = principal
        self._connection = connection
        self._publisher = publisher
        self._log = NatsDecisionLog(connection)

    @classmethod
    @contextlib.asynccontextmanager
    async def connect(
        cls, url: str, principal: str, *, inbox_prefix: str = "", timeout_s: float = 5.0
    ) -> AsyncIterator[Client]:
        """Connect, and close at the end of the context. User and password may stand in the URL.

        ``inbox_prefix`` is where this user may listen for answers; ``_INBOX_<user>`` without it, as in
        ``deploy/nats.conf``. Raises ``BusUnreachable`` when no server lets us in within ``timeout_s``; later outages
        are waited through.
        """
        name = f"apportion-client-{principal}"
        connection = await Connection.open(url, name=name, timeout_s=timeout_s, inbox_prefix=inbox_prefix)
        try:
            publisher = await Publisher.open(connection)
            try:
                yield cls(connection, publisher, principal)
            finally:
                await publisher.close()
        finally:
            await connection.close()

    # -- writing -------------------------------------------------------------------------------------------------------

    async def publish(
        self,
        event: Event,
        *,
        event_id: str = "",
        cause: str = "",
        flow: str = "",
        timeout_s: float = ACK_TIMEOUT_S,
    ) -> Published:
        """Store one event and return where.

        Raises ``RequestRefused`` (nothing sent; field, value and rule are in its ``problem``), ``PublishRefused`` (the
        server does not store it), ``Unanswered`` (unknown: publish again under the same ``event_id``).
        """
        event = check_event(event)
        event_id = event_id or secrets.token_hex(16)
        subject = subject_of(self.principal, EVENT_TYPES[type(event)])
        now_ms = time.time_ns() // 1_000_000  # information only; the log assigns the time of record
        body = encode_event(event, event_id=event_id, at_ms=now_ms, cause=cause, flow=flow)
        try:
            async with asyncio.timeout(timeout_s):
                ack = await self._publisher.publish(subject, body, event_id)
        except TimeoutError:
            raise Unanswered(subject, event_id, timeout_s) from None
        return Published(ack.seq, event_id, ack.duplicate)

    async def submit(
        self,
        *,
        budget: str,
        pools: Sequence[str],
        gpus: int = 0,
        gpus_milli: int = 0,
        workload: str = "",
        event_id: str = "",
        timeout_s: float = ACK_TIMEOUT_S,
        **fields: Any,
    ) -> Submitted:
        """Ask for GPUs: whole ones by ``gpus``, or thousandths by ``gpus_milli``. Returns where the request is stored.

        ``fields`` are those of ``WorkloadSubmitted``; lists may stand for tuples. Without ``workload`` the job gets a
        name that nobody can guess. Raises as ``publish``.
        """
        workload = workload or f"job-{secrets.token_hex(6)}"
        lists: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()
        }
        event = WorkloadSubmitted(
            workload=workload, budget=budget, pools=tuple(pools), gpus_milli=gpus_milli or gpus * MILLI, **lists
        )
        published = await self.publish(event, event_id=event_id, timeout_s=timeout_s)
        return Submitted(*published, workload)

    async def cancel(self, workload: str, reason: str = "", *, timeout_s: float = ACK_TIMEOUT_S) -> Published:
        """Withdraw a workload; a run in progress is stopped with its grace. Raises as ``publish``."""
        return await self.publish(WorkloadCancelled(workload=workload, reason=reason), timeout_s=timeout_s)

    # -- reading -------------------------------------------------------------------------------------------------------

    async def wait(self, seq: int, *, timeout_s: float = WAIT_TIMEOUT_S) -> Answer:
        """Return the first cycle that had read the event at ``seq``. Raises ``Undecided`` when none comes in time.

        An event that changes nothing the core decides about (a heartbeat, a progress report) is read by the next cycle,
        whenever that runs.
        """
        try:
            async with asyncio.timeout(timeout_s):
                return await self._answer(seq)
        except TimeoutError:
            raise Undecided(
                f"no cycle has read the event at seq {seq} within {timeout_s:g} s: it is stored, and waits for a core; "
                "see `apportion doctor`"
            ) from None

    async def _answer(self, seq: int) -> Answer:
        async with contextlib.aclosing(self.batches(seq - 1)) as batches:
            async for batch in batches:
                mine = tuple(decision for decision in batch.decisions if getattr(decision, "event_seq", 0) == seq)
                return Answer(batch, mine)
        raise AssertionError("batches() has no end")

    async def decisions(self, after_seq: int | None = None) -> AsyncGenerator[Decided, None]:
        """Yield the decisions of every cycle that answers a tick above ``after_seq`` in EVENTS, without end.

        ``None`` starts with the next cycle; 0 starts with the first of all.
        """
        async with contextlib.aclosing(self.batches(after_seq)) as batches:
            async for batch in batches:
                for decision in batch.decisions:
                    yield Decided(batch.seq, batch.time_ms, batch.cycle, decision)

    async def batches(self, after_seq: int | None = None) -> AsyncGenerator[CycleBatch, None]:
        """Yield whole cycles, with their books and digests; see ``decisions``."""
        newest = await last_seq(self._connection, DECISIONS)
        start = newest if after_seq is None else await self._position(after_seq, newest)
        tail = self._log.tail(start)
        try:
            while True:
                for stored in await tail.take(FOLLOW_LIMIT):
                    yield decode_batch(stored.body)
        finally:
            await tail.close()

    async def _position(self, after_seq: int, newest: int) -> int:
        """Return the last sequence of DECISIONS that answers a tick at or below ``after_seq``.

        Raises ``LogMismatch`` when what follows ``after_seq`` begins before the log was cut.
        """
        try:
            return await self._searched(after_seq, newest, 0)
        except LogGap:
            gone, records = await lost(self._connection, "DECISIONS"), await lost(self._connection, "EVENTS")
            if gone is None or records is None:
                raise
        if after_seq < records.until_seq:
            raise LogMismatch(
                f"the decisions after seq {after_seq} begin before the log was cut, at seq {records.until_seq}; "
                "on a machine with the archive `apportion cycle` and `apportion events` read them"
            )
        return await self._searched(after_seq, newest, gone.until_seq)

    async def _searched(self, after_seq: int, newest: int, first: int) -> int:
        """Search above ``first``: back from the end, in doubling steps, then halving; most ask about the newest few."""
        known, step = newest + 1, 1  # known: the lowest position seen that lies above
        below = newest
        while below > first and await self._input_seq(below) > after_seq:
            known, below, step = below, max(first, below - step), step * 2
        while known - below > 1:
            middle = (known + below) // 2
            if await self._input_seq(middle) > after_seq:
                known = middle
            else:
                below = middle
        return below

    async def _input_seq(self, position: int) -> int:
        """Return which tick of EVENTS the message at ``position`` of DECISIONS answers; waits through outages."""
        while True:
            await self._connection.wait_until_up()
            try:
                message = await get_message(self._connection, DECISIONS, position)
            except TimeoutError:
                continue
            if message is None:
                raise LogGap(position, position + 1)
            return int(frames.fields_of(message.header)[INPUT_SEQ_HEADER])

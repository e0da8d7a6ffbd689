"""A gap-free reader of one stream, from the reader's own cursor on.

``StreamTail`` turns a stream into items in order: every message from ``after_seq + 1`` on, each exactly once, whatever
happens to connection, server or consumer meanwhile. The cursor is the caller's; the server keeps nothing that matters.

How: an ephemeral pull consumer without acknowledgements, our own pull requests of bounded size, and a tap. Three checks
on each message: the consumer's sequence (a hole means a delivery was lost: build the consumer again), the stream's
sequence (a hole means a record is gone: ``LogGap``, unless the stream's leader has it and only the replica that serves
this consumer does not: build it again, on another one by chance), and on every rebuild the last message received is compared with
what the stream now holds at its sequence (a difference means that the log was cut and written over: ``LogMismatch``).
Silence longer than the idle heartbeats allow, a lost connection and every unexpected status mean: build it again.

Times are the server's integer nanoseconds from the acknowledgement subject; the client library's own conversion goes
through a float and is often a microsecond off.

It never decides that the log has ended: ``num_pending`` of a consumer may be 0 on a replica that lags. Whoever needs the
end asks STREAM.INFO.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

import msgspec
import nats.errors

from apportion.adapters.bus import frames
from apportion.adapters.bus.connection import ApiError, BusUnreachable, Connection
from apportion.adapters.bus.messages import get_message, parse_ack_subject
from apportion.adapters.bus.permission import NotPermitted, Refusal
from apportion.adapters.bus.topology import StreamInfo, stream_info
from apportion.core.errors import ApportionError, LogGap, LogMismatch

logger = logging.getLogger(__name__)

T = TypeVar("T")

PULL_MESSAGES = 4_096
PULL_BYTES = 16 * 1024 * 1024
PULL_EXPIRES_S = 30.0
IDLE_HEARTBEAT_S = 2.0
SILENCE_S = 3 * IDLE_HEARTBEAT_S
INACTIVE_S = 60.0
RETRY_S = 0.05
GAP_TRIES_MAX = 40  # a consumer is put on any of the replicas by chance
_NS = 1_000_000_000

# Statuses of a pull request: 100 idle heartbeat; 404 and 408: it is over; 409: see its text; 503: nobody there.
_IDLE, _NO_MESSAGES, _EXPIRED, _CONFLICT = 100, 404, 408, 409
_HARMLESS_CONFLICTS = ("message size exceeds maxbytes", "batch completed")

Collect = Callable[[int, int, bytes, bytes, bytes], Any]
"""``collect(seq, stored_ns, subject, header, body)`` returns an item, or None when more messages make up one item."""


class Tail(Protocol[T]):
    """A log being followed. ``take`` is the only way forward; it loses nothing when cancelled or timed out."""

    async def take(self, limit: int, timeout_s: float | None = None) -> list[T]:
        """Return the next items, at least one and at most ``limit``; none after ``timeout_s`` or a ``wake``."""
        ...

    def wake(self) -> None:
        """Let a waiting ``take`` return at once."""
        ...

    async def close(self) -> None:
        """Stop reading."""
        ...


class _ConsumerAnswer(msgspec.Struct):
    name: str


class StreamTail(Generic[T]):
    """See the module. One task at a time may ``take``."""

    def __init__(
        self,
        connection: Connection,
        stream: str,
        after_seq: int,
        collect: Callable[[int, int, bytes, bytes, bytes], T | None],
        *,
        scanner: Callable[[StreamTail[T]], frames.Scanner] | None = None,
    ) -> None:
        self._connection = connection
        self._stream = stream
        self._collect = collect
        self._items: list[T] = []
        self._next_seq = after_seq + 1  # the stream sequence expected next
        self._last: tuple[int, bytes, bytes] | None = None  # seq, subject and body of the message received last
        self._consumer = ""
        self._consumer_seq = 0
        self._credit = 0  # messages asked for and not yet received
        self._inbox = ""
        self._tap: frames.Tap | None = None
        self._scanner = None if scanner is None else scanner(self)
        self._broken = "not started"
        self._failure: ApportionError | None = None
        self._gap: LogGap | None = None  # what a consumer came to
        self._gap_seq = self._gap_tries = 0  # where the last one was, and how many consumers came to it
        self._waiter: asyncio.Future[None] | None = None
        self._woken = False
        self._heard = False  # anything received since the last wait began
        self._silent_s = 0.0  # time spent waiting without hearing anything; time spent elsewhere does not count
        self._closed = False
        self._stop_listening = connection.listen(self._on_lost, self._on_lost)
        self._stop_hearing = connection.listen_refused(self._on_refused)

    @property
    def next_seq(self) -> int:
        """The stream sequence expected next (of messages, not of items taken)."""
        return self._next_seq

    # -- the caller's side ---------------------------------------------------------------------------------------------

    async def take(self, limit: int, timeout_s: float | None = None) -> list[T]:
        """Return the next items as soon as there are any, at most ``limit``.

        An empty list means that ``timeout_s`` passed or ``wake`` was called. Raises ``LogGap``, ``LogMismatch``, and
        ``BusUnreachable`` when the connection was closed for good.
        """
        loop = asyncio.get_running_loop()
        deadline = None if timeout_s is None else loop.time() + timeout_s
        while True:
            if self._items:
                return self._take_now(limit)
            if self._failure is not None:
                raise self._failure
            if self._closed:
                raise BusUnreachable(f"this reader of {self._stream} is closed")
            if self._woken:
                self._woken = False
                return []
            remaining = None if deadline is None else deadline - loop.time()
            if remaining is not None and remaining <= 0:
                return []
            if self._broken and not (self._connection.is_up and await self._rebuild()):
                self._connection.check_open()
                await self._wait(RETRY_S if remaining is None else min(RETRY_S, remaining))
                continue
            if self._credit <= PULL_MESSAGES // 2 and not await self._pull():
                continue
            if not self._items and not self._woken and not self._broken:
                await self._wait(SILENCE_S if remaining is None else min(SILENCE_S, remaining))
                if self._silent_s >= SILENCE_S:
                    self._break("silence")

    def _take_now(self, limit: int) -> list[T]:
        if len(self._items) <= limit:
            taken, self._items = self._items, []
        else:
            taken = self._items[:limit]
            del self._items[:limit]
        return taken

    def wake(self) -> None:
        """Let a waiting ``take``, or else the next one, return at once."""
        self._woken = True
        self._resolve()

    async def close(self) -> None:
        """End the consumer; harmless when closed."""
        if self._closed:
            return
        self._closed = True
        self._stop_listening()
        self._stop_hearing()
        self._resolve()
        await self._drop_consumer()

    # -- waiting -------------------------------------------------------------------------------------------------------

    async def _wait(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        self._waiter = loop.create_future()
        timer = loop.call_later(seconds, self._resolve)
        try:
            await self._waiter
        finally:
            timer.cancel()
            self._waiter = None
        self._silent_s = 0.0 if self._heard else self._silent_s + loop.time() - began
        self._heard = False

    def _resolve(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _break(self, why: str) -> None:
        if not self._broken:
            self._broken = why
        self._resolve()

    def _on_lost(self) -> None:
        self._heard = True
        self._break("connection lost")

    # -- the server's side ---------------------------------------------------------------------------------------------

    def _on_message(self, subject: bytes, reply: bytes, body: bytes, header: bytes) -> None:
        self._heard = True
        if header and (status := frames.status_of(header)):
            self._on_status(status, header)
            return
        if self._broken or self._failure is not None:
            return
        seq, consumer_seq, stored_ns = parse_ack_subject(reply)
        if consumer_seq != self._consumer_seq + 1:
            self._break(f"delivery {consumer_seq} came after {self._consumer_seq}")
            return
        if seq != self._next_seq:
            self._gap = LogGap(self._next_seq, seq)
            self._break(f"seq {seq} came after {self._next_seq - 1}")
            return
        self._consumer_seq = consumer_seq
        self._next_seq = seq + 1
        self._credit -= 1
        self._last = (seq, subject, body)
        try:
            item = self._collect(seq, stored_ns, subject, header, body)
        except ApportionError as error:
            self._failure = error
            self._resolve()
            return
        if item is not None:
            self._items.append(item)
            if self._waiter is not None:
                self._resolve()

    @property
    def position(self) -> tuple[int, int, int] | None:
        """For a scanner: the subscription's number, the stream and the consumer sequence; None when it must not scan."""
        if self._broken or self._failure is not None or self._tap is None:
            return None
        return self._tap.sid, self._next_seq, self._consumer_seq

    def accept(self, items: list[T], subject: bytes, body: bytes) -> None:
        """From a scanner: the next items, one per message without a hole, and the last one's subject and body."""
        count = len(items)
        self._heard = True
        self._next_seq += count
        self._consumer_seq += count
        self._credit -= count
        self._last = (self._next_seq - 1, subject, body)
        self._items += items
        if self._waiter is not None:
            self._resolve()

    def _on_status(self, status: int, header: bytes) -> None:
        if status == _IDLE:
            self._resolve()
            return
        fields = frames.fields_of(header)
        text = fields[""]
        if status in (_NO_MESSAGES, _EXPIRED) or (status == _CONFLICT and text.lower() in _HARMLESS_CONFLICTS):
            self._credit -= int(fields.get("Nats-Pending-Messages", PULL_MESSAGES))
            self._credit = max(self._credit, 0)
            self._resolve()
            return
        self._break(f"status {status} {text}")

    def _on_refused(self, refused: Refusal) -> None:
        """Whoever may make a consumer and not ask it for messages would wait for them without end."""
        asked = f"$JS.API.CONSUMER.MSG.NEXT.{self._stream}"
        if refused.what == "publish" and refused.subject.startswith(f"{asked}.".lower()):
            self._failure = NotPermitted(refused.what, f"{asked}.*", self._connection.url)
            self._resolve()

    async def _pull(self) -> bool:
        """Ask for more messages; False when that could not be sent."""
        request = {
            "batch": PULL_MESSAGES,
            "max_bytes": PULL_BYTES,
            "expires": int(PULL_EXPIRES_S * _NS),
            "idle_heartbeat": int(IDLE_HEARTBEAT_S * _NS),
        }
        try:
            await self._connection.client.publish(
                f"$JS.API.CONSUMER.MSG.NEXT.{self._stream}.{self._consumer}",
                msgspec.json.encode(request),
                reply=self._inbox,
            )
        except (nats.errors.Error, OSError) as error:
            self._connection.check_open()
            self._break(f"pull request failed: {type(error).__name__}")
            return False
        self._credit += PULL_MESSAGES
        return True

    async def _rebuild(self) -> bool:
        """Make a new consumer that starts at the next sequence; False when it must be tried again."""
        if self._broken != "not started":
            logger.info("reader of %s at seq %d starts anew: %s", self._stream, self._next_seq, self._broken)
        await self._drop_consumer()
        try:
            await self._verify_log()
            await self._make_consumer()
        except (TimeoutError, nats.errors.Error, OSError) as error:
            self._connection.check_open()
            self._broken = f"{self._broken}; then {type(error).__name__}" if len(self._broken) < 200 else self._broken
            return False
        except ApiError as error:
            if error.code < 500:
                raise
            return False
        return True

    async def _verify_log(self) -> None:
        """Check that the stream still is the log that was read so far."""
        info: StreamInfo = await stream_info(self._connection, self._stream)
        last_seq, first_seq = info.state.last_seq, info.state.first_seq
        if last_seq < self._next_seq - 1:
            raise LogMismatch(
                f"{self._stream} ends at seq {last_seq} but was read up to seq {self._next_seq - 1}: its end is missing; "
                "stop, and restore the log from its archive before starting again"
            )
        if first_seq > self._next_seq:
            raise LogGap(self._next_seq, first_seq)
        await self._verify_gap()
        if self._last is not None and self._last[0] >= first_seq:  # one that was cut meanwhile cannot be compared
            seq, subject, body = self._last
            stored = await get_message(self._connection, self._stream, seq)
            if stored is None or stored.body != body or stored.subject.encode() != subject:
                raise LogMismatch(
                    f"{self._stream} holds another record at seq {seq} than the one read before: its end was lost and "
                    "written over; stop, and restore the log from its archive before starting again"
                )

    async def _verify_gap(self) -> None:
        """Check that a hole was one of the replica that served the consumer, and not of the stream."""
        gap, self._gap = self._gap, None
        if gap is None:
            return
        self._gap_tries = self._gap_tries + 1 if gap.expected_seq == self._gap_seq else 1
        self._gap_seq = gap.expected_seq
        if self._gap_tries > GAP_TRIES_MAX or await get_message(self._connection, self._stream, gap.expected_seq) is None:
            raise gap

    async def _make_consumer(self) -> None:
        self._broken = ""  # from here on a lost connection is news
        name = f"tail-{secrets.token_hex(8)}"
        inbox = self._connection.inbox()
        self._consumer_seq = 0
        self._credit = 0
        self._silent_s = 0.0
        self._tap = await self._connection.tap(inbox, self._on_message, self._scanner)
        config = {
            "name": name,
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": self._next_seq,
            "ack_policy": "none",
            "replay_policy": "instant",
            "inactive_threshold": int(INACTIVE_S * _NS),
            "mem_storage": True,
            "num_replicas": 1,
        }
        try:
            await self._connection.api(
                f"CONSUMER.CREATE.{self._stream}.{name}",
                {"stream_name": self._stream, "config": config, "action": "create"},
                _ConsumerAnswer,
            )
        except BaseException as error:
            self._broken = f"consumer not created: {type(error).__name__}"
            raise
        self._consumer = name
        self._inbox = inbox

    async def _drop_consumer(self) -> None:
        tap, self._tap = self._tap, None
        consumer, self._consumer = self._consumer, ""
        try:
            if tap is not None:
                await tap.close()
            if consumer and self._connection.is_up:  # nobody waits for the answer; unused ones end by themselves
                await self._connection.client.publish(f"$JS.API.CONSUMER.DELETE.{self._stream}.{consumer}", b"")
        except (nats.errors.Error, OSError):
            pass

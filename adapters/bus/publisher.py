"""A pipelined, idempotent publisher of events.

``Publisher`` keeps up to ``window`` messages in flight and gives each one a future that resolves to the stored sequence,
or to the server's error. Every message carries its event id as ``Nats-Msg-Id``: after an outage everything that was
not acknowledged is sent again in the original order, and the server answers with the first sequence where it had stored
it already. Order among the messages of one publisher is kept through outages.

Messages without an id (``event_id=""``) cost the server no memory for duplicates, but cannot be sent again safely: when
the connection breaks, or no answer comes in time, their futures fail with ``OutcomeUnknown``.

It never decides what an event means; the core judges events when it reads them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Coroutine, Iterable
from typing import NamedTuple

import msgspec
import nats.errors

from apportion.adapters.bus import frames
from apportion.adapters.bus.connection import Connection, publish_command
from apportion.adapters.bus.permission import NotPermitted, Refusal
from apportion.adapters.bus.topology import FULL
from apportion.core.errors import ApportionError

logger = logging.getLogger(__name__)

WINDOW = 2_000
CHUNK = 256
ACK_TIMEOUT_S = 10.0
NOBODY_WAIT_S = 0.5
MAX_ID_LENGTH = 256


class PublishRefused(ApportionError):
    """The server does not store the event: ``err_code`` 10077 the log is full, 10054 too large, 10071 not expected."""

    def __init__(self, subject: str, code: int, err_code: int, description: str) -> None:
        super().__init__(f"event on {subject} was not stored: {description} (code {code}, err_code {err_code})")
        self.code = code
        self.err_code = err_code


class OutcomeUnknown(ApportionError):
    """The connection broke before the answer came, or none came, and the event has no id to send it again under."""


class Ack(NamedTuple):
    """Where the event is stored. ``duplicate``: it had been stored before, at this sequence."""

    seq: int
    duplicate: bool


class _Error(msgspec.Struct):
    code: int = 0
    err_code: int = 0
    description: str = ""


class _AckBody(msgspec.Struct):
    seq: int = 0
    duplicate: bool = False
    error: _Error | None = None


class _Pending(msgspec.Struct):
    subject: str
    body: bytes
    header: bytes
    future: asyncio.Future[Ack] | None
    sent_at: float


_decode_ack = msgspec.json.Decoder(_AckBody).decode


class Publisher:
    """See the module. Open it with ``Publisher.open``; usable by many tasks of one event loop."""

    def __init__(self, connection: Connection, window: int) -> None:
        self._connection = connection
        self._window = window
        self._inbox = connection.inbox()
        self._reply_prefix = self._inbox.encode() + b"."
        self._prefix_length = len(self._reply_prefix)
        self._low_water = window * 3 // 4
        self._pending: dict[int, _Pending] = {}  # in the order of sending
        self._number = 0
        self._tap: frames.Tap | None = None
        self._nobody_said_at = -math.inf
        self._held_back = False  # the connection is down, or what was in flight is being sent again
        self._room: asyncio.Event = asyncio.Event()
        self._room.set()
        self._drained = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._first_error: BaseException | None = None
        self._stop_listening = connection.listen(self._on_lost, self._on_back)
        self._stop_hearing = connection.listen_refused(self._on_refused)
        self._closed = False
        self._loop = asyncio.get_running_loop()
        self._checked_subjects: set[str] = set()

    @classmethod
    async def open(cls, connection: Connection, *, window: int = WINDOW) -> Publisher:
        """Return a ready publisher."""
        publisher = cls(connection, window)
        publisher._tap = await connection.tap(f"{publisher._inbox}.*", publisher._on_ack)
        publisher._spawn(publisher._watch_acks())
        return publisher

    @property
    def in_flight(self) -> int:
        """Messages sent and not yet acknowledged."""
        return len(self._pending)

    async def publish(self, subject: str, body: bytes, event_id: str, *, expected_last_seq: int | None = None) -> Ack:
        """Store one event and return where; waits through outages.

        Raises ``PublishRefused``, ``NotPermitted``, ``OutcomeUnknown``.
        """
        return await (await self.send(subject, body, event_id, expected_last_seq=expected_last_seq))

    async def send(
        self, subject: str, body: bytes, event_id: str, *, expected_last_seq: int | None = None
    ) -> asyncio.Future[Ack]:
        """Send one event as soon as the window has room; the future resolves with its ``Ack`` or error.

        A caller that does not look at every future calls ``flush`` at its end, which raises the first error.
        """
        await self._wait_for_room()
        header = self._header(subject, body, event_id, expected_last_seq)
        pending = _Pending(subject, body, header, self._loop.create_future(), self._loop.time())
        self._number += 1
        self._pending[self._number] = pending
        await self._write([self._command(self._number, pending)])
        assert pending.future is not None
        return pending.future

    async def send_many(self, events: Iterable[tuple[str, bytes, str]]) -> None:
        """Send many ``(subject, body, event id)`` in order, for imports: no futures; ``flush`` raises the first error."""
        commands: list[bytes] = []
        for subject, body, event_id in events:
            if len(commands) >= CHUNK or len(self._pending) >= self._window or self._held_back:
                await self._write(commands)
                commands = []
                await self._wait_for_room()
                now = self._loop.time()
            elif not commands:
                self._check_open()
                now = self._loop.time()
            pending = _Pending(subject, body, self._header(subject, body, event_id, None), None, now)
            self._number += 1
            self._pending[self._number] = pending
            commands.append(self._command(self._number, pending))
        await self._write(commands)

    async def flush(self) -> None:
        """Wait until everything sent is acknowledged. Raises the first error of a message since the last ``flush``."""
        while self._pending:
            self._check_open()
            self._drained.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await self._drained.wait()
        error, self._first_error = self._first_error, None
        if error is not None:
            raise error

    async def close(self) -> None:
        """Stop; futures still open fail with ``OutcomeUnknown``."""
        if self._closed:
            return
        self._closed = True
        self._stop_listening()
        self._stop_hearing()
        for task in list(self._tasks):
            task.cancel()
        for number in list(self._pending):
            self._fail(number, OutcomeUnknown("the publisher was closed before the answer came"))
        self._room.set()
        if self._tap is not None:
            await self._tap.close()

    # -- details -------------------------------------------------------------------------------------------------------

    def _check_open(self) -> None:
        self._connection.check_open()
        self._connection.check_answers()
        if self._closed:
            raise OutcomeUnknown("the publisher is closed")

    async def _wait_for_room(self) -> None:
        while len(self._pending) >= self._window or self._held_back:
            self._room.clear()
            await self._room.wait()
            self._check_open()
        self._check_open()

    def _header(self, subject: str, body: bytes, event_id: str, expected_last_seq: int | None) -> bytes:
        """Return the raw header block; raises ``PublishRefused`` for what must not go on the wire."""
        if subject not in self._checked_subjects:
            self._check_subject(subject)
        if len(body) > self._connection.client.max_payload:
            raise PublishRefused(subject, 400, 10054, f"the body has {len(body)} bytes, more than the server takes")
        header = b""
        if event_id:
            if len(event_id) > MAX_ID_LENGTH or not event_id.isprintable():
                raise PublishRefused(subject, 400, 0, f"event id {event_id[:80]!r} is too long or has control characters")
            header = b"NATS/1.0\r\nNats-Msg-Id: %b\r\n\r\n" % event_id.encode()
        if expected_last_seq is not None:
            header = header[:-2] or b"NATS/1.0\r\n"
            header += b"Nats-Expected-Last-Sequence: %d\r\n\r\n" % expected_last_seq
        return header

    def _check_subject(self, subject: str) -> None:
        """Refuse a subject that would break the wire protocol or match nothing; remember good ones."""
        tokens = subject.split(".")
        if not subject.isprintable() or " " in subject or not all(tokens) or "*" in tokens or ">" in tokens:
            raise PublishRefused(subject, 400, 0, "the subject has empty tokens, wildcards, spaces or control characters")
        if len(self._checked_subjects) >= 20_000:
            self._checked_subjects.clear()
        self._checked_subjects.add(subject)

    def _command(self, number: int, pending: _Pending) -> bytes:
        return publish_command(pending.subject.encode(), self._reply_prefix + b"%d" % number, pending.header, pending.body)

    async def _write(self, commands: list[bytes]) -> None:
        """Hand commands to the socket. A connection that is down is no error: they are sent again when it is back."""
        if commands:
            with contextlib.suppress(nats.errors.Error, OSError):
                await self._connection.write(commands)
            self._connection.check_open()

    def _on_ack(self, subject: bytes, _reply: bytes, body: bytes, header: bytes) -> None:
        number = int(subject[self._prefix_length :])
        pending = self._pending.get(number)
        if header and frames.status_of(header) == 503:
            if pending is not None:
                self._on_nobody(pending)
            return
        ack = _decode_ack(body)
        if pending is None:
            return  # the answer to a copy that was sent again
        if ack.error is None:
            del self._pending[number]
            if pending.future is not None and not pending.future.done():
                pending.future.set_result(Ack(ack.seq, ack.duplicate))
        elif ack.error.code < 500 or ack.error.err_code in FULL:
            error = ack.error
            self._fail(number, PublishRefused(pending.subject, error.code, error.err_code, error.description))
        if len(self._pending) <= self._low_water:
            if not self._held_back:
                self._room.set()
            if not self._pending:
                self._drained.set()

    def _on_nobody(self, pending: _Pending) -> None:
        """Nobody listens there now (a leader is being elected, or the stream is being cut): hold back, and soon send it again."""
        pending.sent_at = -math.inf  # not stored, for certain: it may be sent again whatever it is
        if not self._held_back:
            self._held_back = True
            self._room.clear()
            self._spawn(self._send_again_soon())

    async def _send_again_soon(self) -> None:
        now = self._loop.time()
        if now - self._nobody_said_at >= ACK_TIMEOUT_S:
            self._nobody_said_at = now
            logger.warning("nobody takes events in now (an election, or a log that is being cut); sending them again")
        await asyncio.sleep(NOBODY_WAIT_S)
        await self._send_again(everything=False)

    def _fail(self, number: int, error: ApportionError) -> None:
        pending = self._pending.pop(number)
        if self._first_error is None:
            self._first_error = error
        if not self._pending:
            self._drained.set()
        if pending.future is not None and not pending.future.done():
            pending.future.set_exception(error)
            pending.future.exception()  # looked at: a caller may rely on flush alone

    def _on_refused(self, refused: Refusal) -> None:
        """The server drops messages on a subject, or the answers to all: they are not waited for."""
        for number, pending in list(self._pending.items()):
            if refused.what == "publish" and pending.subject.lower() != refused.subject:
                continue
            try:
                self._connection.check_permitted(pending.subject)
            except NotPermitted as error:
                self._fail(number, error)
        if len(self._pending) <= self._low_water and not self._held_back:
            self._room.set()

    def _on_lost(self) -> None:
        self._held_back = True
        self._room.clear()
        for number in [number for number, pending in self._pending.items() if not _may_repeat(pending)]:
            self._fail(number, OutcomeUnknown("the connection broke before the answer came; look the event up by its id"))
        if self._connection.client.is_closed:
            for number in list(self._pending):
                self._fail(number, OutcomeUnknown("the connection was closed before the answer came"))
            self._room.set()

    def _on_back(self) -> None:
        self._spawn(self._send_again(everything=True))

    async def _send_again(self, *, everything: bool) -> None:
        """Send what is in flight again, in order, before anything new."""
        now = self._loop.time()
        self._held_back = True
        try:
            for number, pending in list(self._pending.items()):
                if number not in self._pending or not (everything or now - pending.sent_at > ACK_TIMEOUT_S):
                    continue
                if pending.sent_at > -math.inf and not _may_repeat(pending):
                    self._fail(number, OutcomeUnknown(f"no answer came within {ACK_TIMEOUT_S} s; look whether the event is stored"))
                    continue
                pending.sent_at = now
                await self._connection.write([self._command(number, pending)])
        except (nats.errors.Error, OSError):
            return  # lost again: stays held back until the connection is back
        self._held_back = False
        self._room.set()

    async def _watch_acks(self) -> None:
        """Send again what was not answered in time though the connection stands (an election, a lost answer)."""
        while True:
            await asyncio.sleep(ACK_TIMEOUT_S / 4)
            oldest = next(iter(self._pending.values()), None)
            late = oldest is not None and self._loop.time() - oldest.sent_at > ACK_TIMEOUT_S
            if late and self._connection.is_up and not self._held_back:
                logger.warning("no answer to events for %s s; sending them again", ACK_TIMEOUT_S)
                await self._send_again(everything=False)

    def _spawn(self, coroutine: Coroutine[None, None, None]) -> None:
        task = self._loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _may_repeat(pending: _Pending) -> bool:
    """Tell whether sending again cannot store twice: it has an id, or it is fenced."""
    return bool(pending.header)

"""One connection to NATS, with the settings that do not lose messages silently.

Decides nothing. It connects for good (reconnects without end), tells its users when the connection was lost and when it
is back, and speaks JetStream's API in typed structs.

Three habits of the client library are switched off here. It gives up after sixty attempts: not with -1. It buffers what
is published while disconnected and sends it after reconnecting, when the sender has long given up: ``pending_size=0``,
and what it had not yet written when the connection broke is thrown away, because our senders resend what they still
want, in order. And its read loop may die silently: a watchdog expects an answer to a ping.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from typing import TypeVar
from urllib.parse import urlsplit

import msgspec
import nats.errors
from nats.aio.client import Client

from apportion.adapters.bus import frames
from apportion.adapters.bus.permission import NotPermitted, Refusal, refusal
from apportion.adapters.processes import ending
from apportion.core.errors import ApportionError

logger = logging.getLogger(__name__)

T = TypeVar("T")
PING_INTERVAL_S = 5
WATCHDOG_INTERVAL_S = 10.0
RECONNECT_WAIT_S = 0.1
LOG_EVERY_S = 10.0
REFUSED_MAX = 1_000


class BusUnreachable(ApportionError):
    """No NATS server answers at the URL. Met at start; later the connection is tried again without end."""


class ApiError(ApportionError):
    """JetStream answered a request with an error; ``err_code`` is its stable number (10071: wrong last sequence)."""

    def __init__(self, verb: str, code: int, err_code: int, description: str) -> None:
        super().__init__(f"JetStream refused {verb}: {description} (code {code}, err_code {err_code})")
        self.code = code
        self.err_code = err_code
        self.description = description


class _Error(msgspec.Struct):
    code: int = 0
    err_code: int = 0
    description: str = ""


class _Answer(msgspec.Struct):
    error: _Error | None = None


def publish_command(subject: bytes, reply: bytes, header: bytes, body: bytes) -> bytes:
    """Return the wire form of one publish; ``header`` is a raw block, empty for none."""
    if header:
        sizes = b"%d %d" % (len(header), len(header) + len(body))
        return b"HPUB %b %b %b\r\n%b%b\r\n" % (subject, reply, sizes, header, body)
    return b"PUB %b %b %d\r\n%b\r\n" % (subject, reply, len(body), body)


def inbox_of(url: str) -> str:
    """Return where the user of this URL listens for answers: ``_INBOX_<user>``, so that no user reads another's."""
    user = urlsplit(url).username
    return f"_INBOX_{user}" if user else "_INBOX"


def without_password(url: str) -> str:
    """Return the URL as it may stand in a message."""
    parts = urlsplit(url)
    return url if parts.password is None else url.replace(f":{parts.password}@", ":***@", 1)


class Connection:
    """A connected client, its taps, and JetStream's API."""

    def __init__(self, url: str, name: str) -> None:
        self.url = without_password(url)  # for messages
        self.name = name
        self.client = Client()
        self._parser: frames.BulkParser | None = None
        self._lost_listeners: list[Callable[[], None]] = []
        self._back_listeners: list[Callable[[], None]] = []
        self._refused_listeners: list[Callable[[Refusal], None]] = []
        self._refused: dict[Refusal, None] = {}  # what the server said on this connection that we may not, the last of it
        self._answers = inbox_of(url)
        self._deaf = False  # we may not listen for answers
        self._watchdog: asyncio.Task[None] | None = None
        self._up = asyncio.Event()
        self._logged_at = 0.0
        self._closing = False

    @classmethod
    async def open(
        cls, url: str, *, name: str, timeout_s: float = 5.0, bulk: bool = True, inbox_prefix: str = ""
    ) -> Connection:
        """Connect to the server at ``url``. Raises ``BusUnreachable`` when none answers within ``timeout_s``.

        User and password may stand in the URL; answers are then listened for where only that user may (``inbox_of``).
        ``bulk=False`` reads through the library's public callback only.
        """
        connection = cls(url, name)
        client = connection.client
        if bulk:
            connection._parser = frames.install(client)
        connecting = asyncio.get_running_loop().create_task(
            client.connect(
                url,
                name=name,
                error_cb=connection._on_error,
                disconnected_cb=connection._on_lost,
                reconnected_cb=connection._on_back,
                closed_cb=connection._on_closed,
                max_reconnect_attempts=-1,
                reconnect_time_wait=RECONNECT_WAIT_S,  # type: ignore[arg-type]  # a float works, the hint says int
                ping_interval=PING_INTERVAL_S,
                max_outstanding_pings=2,
                pending_size=0,
                inbox_prefix=inbox_prefix or connection._answers,
            )
        )
        try:
            await asyncio.wait((connecting,), timeout=timeout_s)
            if not connecting.done() or connecting.cancelled():
                raise TimeoutError
            connecting.result()
        except (TimeoutError, OSError, nats.errors.Error) as error:
            connection._closing = True
            await ending.let_go(connecting)
            with contextlib.suppress(Exception):
                await ending.within(f"closing the connection to {connection.url}", client.close())
            why = client.last_error or error  # "Authorization Violation" is retried until the time is over
            raise BusUnreachable(
                f"no NATS server lets us in at {connection.url} ({type(why).__name__}: {why}); "
                "start one with `apportion up`, or give the right URL, user and password"
            ) from error
        finally:
            await ending.let_go(connecting)
        connection._up.set()
        connection._watchdog = asyncio.get_running_loop().create_task(connection._watch(), name="the watch over the connection")
        return connection

    async def close(self) -> None:
        """Close the connection within seconds, whatever the server does; harmless when closed."""
        self._closing = True
        if self._watchdog is not None:
            await ending.let_go(self._watchdog)
            self._watchdog = None
        self._up.set()
        if not self.client.is_closed:
            with contextlib.suppress(TimeoutError, OSError, nats.errors.Error):
                await ending.within(f"closing the connection to {self.url}", self.client.close())
            # The library waits for a socket that its own reconnecting may have stopped waiting for: that is a cancellation to it,
            # and it tells nobody of the end.
            await self._on_closed()

    async def __aenter__(self) -> Connection:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.close()

    # -- state ---------------------------------------------------------------------------------------------------------

    @property
    def is_up(self) -> bool:
        """Tell whether messages can be sent now."""
        return self._up.is_set() and self.client.is_connected

    async def wait_until_up(self) -> None:
        """Wait until messages can be sent. Raises ``BusUnreachable`` when the connection is closed for good."""
        while not self.is_up:
            self.check_open()
            self._up.clear()
            if self.client.is_connected:  # came back between the two looks
                self._up.set()
                break
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await self._up.wait()
        self.check_open()

    def check_open(self) -> None:
        """Raise ``BusUnreachable`` when the connection is closed for good."""
        if self._closing or self.client.is_closed:
            raise BusUnreachable(f"the connection {self.name!r} to {self.url} is closed")

    def listen(self, on_lost: Callable[[], None], on_back: Callable[[], None]) -> Callable[[], None]:
        """Call ``on_lost`` when the connection breaks and ``on_back`` when it is back; returns the way to stop it."""
        self._lost_listeners.append(on_lost)
        self._back_listeners.append(on_back)

        def stop() -> None:
            self._lost_listeners.remove(on_lost)
            self._back_listeners.remove(on_back)

        return stop

    def listen_refused(self, on_refused: Callable[[Refusal], None]) -> Callable[[], None]:
        """Call ``on_refused`` when the server says that this user may not do something; returns the way to stop it."""
        self._refused_listeners.append(on_refused)
        return lambda: self._refused_listeners.remove(on_refused)

    def check_permitted(self, subject: str) -> None:
        """Raise ``NotPermitted`` when the server has refused a message on ``subject``, or the answers to it."""
        if Refusal("publish", subject.lower()) in self._refused:
            raise NotPermitted("publish", subject, self.url)
        self.check_answers()

    def check_answers(self) -> None:
        """Raise ``NotPermitted`` when the server does not let this user listen for answers."""
        if self._deaf:
            raise NotPermitted("subscription", f"{self._answers}.>", self.url)

    # -- talking -------------------------------------------------------------------------------------------------------

    async def tap(
        self, subject: str, handler: frames.Handler, scanner: frames.Scanner | None = None
    ) -> frames.Tap:
        """Subscribe with a synchronous handler (see ``frames``)."""
        return await frames.tap(self.client, self._parser, subject, handler, scanner)

    async def write(self, commands: list[bytes]) -> None:
        """Write publish commands (``publish_command``), past the library's checks: the caller has made them.

        Raises ``OutboundBufferLimitError`` while the connection is down: nothing is kept to be sent later.
        """
        client = self.client
        if not client.is_connected:
            self.check_open()
            raise nats.errors.OutboundBufferLimitError
        await client._send_command(commands[0] if len(commands) == 1 else b"".join(commands))
        if client._flush_queue is not None and client._flush_queue.empty():
            await client._flush_pending()

    def inbox(self) -> str:
        """Return a fresh reply subject."""
        return self.client.new_inbox()

    async def api(self, verb: str, request: object, answer: type[T], timeout_s: float = 5.0) -> T:
        """Call ``$JS.API.<verb>`` and decode the answer.

        Raises ``ApiError`` when JetStream refuses, ``NotPermitted`` when the server drops such requests of this user,
        ``TimeoutError`` when nobody answers in time or the connection is lost meanwhile: then it is unknown whether the
        request was carried out.
        """
        try:
            message = await self.client.request(
                f"$JS.API.{verb}", msgspec.json.encode(request) if request is not None else b"", timeout=timeout_s
            )
        except (TimeoutError, nats.errors.Error, OSError) as error:
            self.check_open()
            self.check_permitted(f"$JS.API.{verb}")
            raise TimeoutError(f"no answer to {verb}: {type(error).__name__} {error}") from error
        error_part = msgspec.json.decode(message.data, type=_Answer).error
        if error_part is not None:
            raise ApiError(verb, error_part.code, error_part.err_code, error_part.description)
        return msgspec.json.decode(message.data, type=answer)

    # -- what the library tells ----------------------------------------------------------------------------------------

    async def _on_error(self, error: Exception) -> None:
        refused = refusal(str(error))
        if refused is not None:
            self._refused[refused] = None
            if len(self._refused) > REFUSED_MAX:
                del self._refused[next(iter(self._refused))]
            self._deaf = self._deaf or (refused.what == "subscription" and refused.subject.startswith(self._answers.lower()))
            for listener in list(self._refused_listeners):
                listener(refused)
        now = time.monotonic()
        if now - self._logged_at >= LOG_EVERY_S:  # a server that is away raises one at every attempt
            self._logged_at = now
            logger.warning("%s: NATS connection to %s: %s: %s", self.name, self.url, type(error).__name__, error)

    async def _on_lost(self) -> None:
        self._up.clear()
        if getattr(self.client, "_pending", None):
            self.client._pending = []
            self.client._pending_data_size = 0
        if self._closing:
            return
        logger.warning("%s: connection to %s lost, trying again", self.name, self.url)
        for listener in list(self._lost_listeners):
            listener()

    async def _on_back(self) -> None:
        self._refused.clear()  # it may be another server, or the permissions may be others now
        self._deaf = False
        logger.warning("%s: connection to %s is back", self.name, self.url)
        self._up.set()
        for listener in list(self._back_listeners):
            listener()

    async def _on_closed(self) -> None:
        if not self._closing:
            logger.critical("%s: connection to %s closed by %s", self.name, self.url, self.client.last_error)
        self._up.set()  # whoever waits must see that it is closed
        for listener in list(self._lost_listeners):
            listener()

    async def _watch(self) -> None:
        """Expect an answer to a ping now and then; force a reconnect when none comes though all seems well."""
        while True:
            await asyncio.sleep(WATCHDOG_INTERVAL_S)
            if not self.client.is_connected:
                continue
            try:
                await self.client.rtt(timeout=int(WATCHDOG_INTERVAL_S))
            except (TimeoutError, nats.errors.Error, OSError):
                if self.client.is_connected and not self._closing:
                    logger.error("%s: %s does not answer a ping; reconnecting", self.name, self.url)
                    await self.client.force_reconnect()

"""Taps: messages of a subscription handed over as bytes, in one synchronous call each.

The client library builds an object per message and passes it through a queue and a task: 5 us and more. A replay reads
millions, so ``BulkParser`` takes the place of the library's wire parser and calls the tap of a subscription directly
from the read buffer. Everything that is not tapped goes the library's own way.

That replaces a private part of the library (its minor version is pinned). ``install`` looks before it touches: where the
parts are not as expected, taps run on the library's public callback, slower and with the same result.

A tap handler must not block and must not raise; what it raises is logged, because an exception in the library's read
loop would end reading silently.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import ProtocolError
from nats.protocol.parser import Parser

logger = logging.getLogger(__name__)

Handler = Callable[[bytes, bytes, bytes, bytes], None]
"""``handler(subject, reply, body, header)``; ``header`` is the raw block from ``NATS/1.0`` on, empty without headers."""

Scanner = Callable[[bytes, int], int]
"""``scanner(buffer, position)`` takes what it can of the messages that start there; returns where it stopped."""

_MAX_CONTROL_LINE = 1 << 20
_H = ord("H")
_MESSAGE = (_H, ord("M"))


class BulkParser(Parser):
    """The wire parser of a client, with taps by subscription id. Same protocol, same order, fewer steps per message."""

    def __init__(self, client: Client) -> None:
        self.taps: dict[bytes, Handler] = {}
        self.scanners: dict[bytes, Scanner] = {}
        super().__init__(client)

    def reset(self) -> None:
        """Forget the unfinished input; called by the client when it reconnects."""
        super().reset()
        self._parts: list[bytes] = []
        self._held = 0
        self._needed = 0
        self._resets = getattr(self, "_resets", 0) + 1

    async def parse(self, data: bytes = b"") -> None:
        """Handle everything complete in ``data`` and what was left over before; keep the rest."""
        if self._parts:
            self._parts.append(data)
            self._held += len(data)
            if self._held < self._needed:
                return  # one long message in many reads: join it once, not at every read
            data = b"".join(self._parts)
            self._parts = []
        resets = self._resets
        taps, scanners, client = self.taps, self.scanners, self.nc
        position, end, needed = 0, len(data), 0
        while position < end:
            line_end = data.find(b"\r\n", position)
            if line_end < 0:
                if end - position > _MAX_CONTROL_LINE:
                    raise ProtocolError(f"nats: control line of more than {_MAX_CONTROL_LINE} bytes")
                break
            first = data[position]
            if first in _MESSAGE:
                words = data[position:line_end].split()
                if words[0] != (b"HMSG" if first == _H else b"MSG") or not 4 <= len(words) <= 6:
                    raise ProtocolError(f"nats: unknown protocol {data[position : position + 64]!r}")
                if scanners and (scanner := scanners.get(words[2])) is not None:
                    try:
                        after = scanner(data, position)
                    except Exception:
                        logger.exception("a scanner failed on subject %r; going on without it", words[1])
                        after = position
                        del scanners[words[2]]
                    if after > position:
                        position = after
                        continue
                body = line_end + 2
                after = body + _size(words[-1])
                if after + 2 > end:
                    needed = after + 2 - position
                    break
                header = b""
                if first == _H:
                    start, body = body, body + _size(words[-2])
                    header = data[start:body]
                    reply = words[3] if len(words) == 6 else b""
                else:
                    reply = words[3] if len(words) == 5 else b""
                position = after + 2
                handler = taps.get(words[2])
                if handler is not None:
                    try:
                        handler(words[1], reply, data[body:after], header)
                    except Exception:
                        logger.exception("a tap failed on subject %r; its message is dropped", words[1])
                    continue
                await client._process_msg(int(words[2]), words[1], reply, data[body:after], header or None)
            else:
                line = data[position:line_end]
                position = line_end + 2
                await self._control(line)
            if self._resets != resets:
                return  # the connection was lost while a message was handled: this input is void
        if position < end:
            self._parts = [data[position:] if position else data]
            self._held = end - position
            self._needed = needed

    async def _control(self, line: bytes) -> None:
        word = line.split(None, 1)
        name = word[0].upper() if word else b""
        if name == b"PING":
            await self.nc._process_ping()
        elif name == b"PONG":
            await self.nc._process_pong()
        elif name == b"INFO":
            await self.nc._process_info(json.loads(word[1]))
        elif name == b"-ERR":
            await self.nc._process_err((word[1] if len(word) > 1 else b"").decode(errors="replace").lower())
        elif name != b"+OK":
            raise ProtocolError(f"nats: unknown protocol {line[:64]!r}")


def _size(word: bytes) -> int:
    if not word.isdigit():
        raise ProtocolError(f"nats: {word[:32]!r} is no size")
    return int(word)


class Tap:
    """One tapped subscription. ``sid`` is its number on the wire, 0 where taps run on the public callback."""

    def __init__(self, sid: int, close: Callable[[], Any]) -> None:
        self.sid = sid
        self._close = close

    async def close(self) -> None:
        """End the subscription; no call follows."""
        await self._close()


def install(client: Client) -> BulkParser | None:
    """Put a ``BulkParser`` into a client that has not connected yet; None where the client is not the one we know."""
    if type(getattr(client, "_ps", None)) is not Parser or not callable(getattr(client, "_process_msg", None)):
        logger.warning("this version of nats-py is not the one the bulk parser knows; reading is slower without it")
        return None
    parser = BulkParser(client)
    client._ps = parser
    return parser


async def tap(
    client: Client, parser: BulkParser | None, subject: str, handler: Handler, scanner: Scanner | None = None
) -> Tap:
    """Subscribe to ``subject`` and hand every message to ``handler``, through the parser where there is one.

    ``scanner`` may take runs of messages from the buffer first, where there is a parser; it must not rely on it.
    """
    if parser is None:
        return await _tap_by_callback(client, subject, handler)

    async def unreachable(_message: Msg) -> None:
        raise AssertionError("a tapped message took the ordinary way")

    subscription = await client.subscribe(subject, cb=unreachable)
    key = str(subscription._id).encode()
    parser.taps[key] = handler
    if scanner is not None:
        parser.scanners[key] = scanner

    async def close() -> None:
        parser.scanners.pop(key, None)
        parser.taps[key] = _drop
        if not client.is_closed:
            await subscription.unsubscribe()
        parser.taps.pop(key, None)

    return Tap(subscription._id, close)


def _drop(_subject: bytes, _reply: bytes, _body: bytes, _header: bytes) -> None:
    """Take what still arrives after the end."""


async def _tap_by_callback(client: Client, subject: str, handler: Handler) -> Tap:
    async def callback(message: Msg) -> None:
        handler(message.subject.encode(), message.reply.encode(), message.data, _raw_header(message.headers))

    # Delivery is bounded by the pull requests and windows of the callers, so the library must not drop any.
    subscription = await client.subscribe(subject, cb=callback, pending_msgs_limit=0, pending_bytes_limit=0)

    async def close() -> None:
        if not client.is_closed:
            await subscription.unsubscribe()

    return Tap(0, close)


def _raw_header(headers: dict[str, str] | None) -> bytes:
    """Write the library's dictionary as the block it was made from."""
    if not headers:
        return b""
    fields = dict(headers)
    first = f"NATS/1.0 {fields.pop('Status', '')} {fields.pop('Description', '')}".rstrip()
    return "\r\n".join([first, *(f"{name}: {value}" for name, value in fields.items()), "", ""]).encode()


def status_of(header: bytes) -> int:
    """Return the status code of a header block, 0 when it has none."""
    first = header[8:12]
    return int(first) if first[:1] == b" " and first[1:4].isdigit() else 0


def fields_of(header: bytes) -> dict[str, str]:
    """Return the header fields; the status line's text stands under the empty name."""
    lines = header.split(b"\r\n")
    fields = {"": lines[0][13:].decode(errors="replace")}
    for line in lines[1:]:
        name, colon, value = line.partition(b":")
        if colon:
            fields[name.strip().decode(errors="replace")] = value.strip().decode(errors="replace")
    return fields

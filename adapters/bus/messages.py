"""Single questions about a stream: its end, one stored message, and what an acknowledgement subject says.

``last_seq`` and ``get_message`` are answered by the stream's leader, never by a direct get from a replica that may lag:
they decide about ends of logs, commits and cut logs. ``parse_ack_subject`` is a pure function of the subject.
"""

from __future__ import annotations

import asyncio
import base64

import msgspec

from apportion.adapters.bus.connection import ApiError, Connection
from apportion.adapters.bus.topology import stream_info

MISSING_STREAM_PATIENCE = 20
_NO_MESSAGES = 404


class StoredMessage(msgspec.Struct, frozen=True):
    """One message as STREAM.MSG.GET returns it."""

    seq: int
    subject: str
    header: bytes
    body: bytes


class _RawMessage(msgspec.Struct):
    seq: int
    subject: str
    time: str = ""
    data: str = ""
    hdrs: str = ""


class _MessageAnswer(msgspec.Struct):
    message: _RawMessage


def parse_ack_subject(reply: bytes) -> tuple[int, int, int]:
    """Return ``(stream sequence, consumer sequence, stored ns)`` of an acknowledgement subject.

    Two forms exist: nine tokens, and eleven or more where the domain and the account's hash come first. Raises
    ``ValueError`` on any other subject.
    """
    tokens = reply.split(b".")
    count = len(tokens)
    if count == 9:
        return int(tokens[5]), int(tokens[6]), int(tokens[7])
    if count >= 11:
        return int(tokens[7]), int(tokens[8]), int(tokens[9])
    raise ValueError(f"not a JetStream acknowledgement subject: {reply!r}")


async def get_message(connection: Connection, stream: str, seq: int, timeout_s: float = 5.0) -> StoredMessage | None:
    """Read one message through the stream's leader (never a direct get); None when it does not exist."""
    return await _message(connection, stream, {"seq": seq}, timeout_s)


async def message_on(connection: Connection, stream: str, subject: str, timeout_s: float = 5.0) -> StoredMessage | None:
    """Read the newest message on one subject in the same way; None when there is none, or no such stream."""
    return await _message(connection, stream, {"last_by_subj": subject}, timeout_s)


async def _message(connection: Connection, stream: str, which: dict[str, object], timeout_s: float) -> StoredMessage | None:
    try:
        answer = await connection.api(f"STREAM.MSG.GET.{stream}", which, _MessageAnswer, timeout_s)
    except ApiError as error:
        if error.code == _NO_MESSAGES:
            return None
        raise
    raw = answer.message
    return StoredMessage(raw.seq, raw.subject, base64.b64decode(raw.hdrs), base64.b64decode(raw.data))


async def last_seq(connection: Connection, stream: str) -> int:
    """Return the stream's last sequence as its leader knows it; waits while the connection is down."""
    missing = 0
    while True:
        await connection.wait_until_up()
        try:
            return (await stream_info(connection, stream)).state.last_seq
        except TimeoutError:
            await asyncio.sleep(0.05)
        except ApiError as error:
            missing += 1
            if error.code < 500 or missing > MISSING_STREAM_PATIENCE:
                raise
            await asyncio.sleep(0.1)

"""Asking the projector a named query over NATS request/reply: the client's side, and the wire form both sides agree on.

A request on ``ap.q.<name>`` carries the parameters as one JSON object. The answer is one JSON object::

    {"columns": [...], "rows": [{column: value}, ...], "as_of": {"seq", "time_ms", "lag", "lag_ms", "stream_seq"}}
    {"error": {"kind", "what", "do"}}

``kind`` is ``usage`` (the question is wrong), ``stale`` (the projection is not that far), ``time`` (it took too long) or
``failed``. An answer larger than one message comes in parts, whose header says which of how many; ``ask`` joins them.

Light on purpose: no DuckDB, so that a command line starts fast.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

from apportion.adapters.bus.permission import NotPermitted, refusal
from apportion.core.errors import ApportionError

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg
    from nats.aio.subscription import Subscription

SUBJECT = "ap.q"
PART_HEADER = "Apportion-Part"  # "1/3"
PART_BYTES = 900_000  # below the server's max_payload of 1 MiB, with room for headers
PARTS_MAX = 200
LOOK_EVERY_S = 0.5  # whether the question was refused


class NoAnswer(ApportionError):
    """Nobody answered, or not in time. Met when no projector runs."""


def subject_for(name: str) -> str:
    """Return the subject of a named query."""
    return f"{SUBJECT}.{name}"


def split(body: bytes) -> list[bytes]:
    """Return the parts an answer travels in."""
    return [body[start : start + PART_BYTES] for start in range(0, len(body), PART_BYTES)] or [b""]


async def ask(client: Client, name: str, params: dict[str, Any] | None = None, *, timeout_s: float = 30.0) -> dict[str, Any]:
    """Return the projector's answer to a named query, errors included. Raises ``NoAnswer``, ``NotPermitted``."""
    inbox = client.new_inbox()
    parts: dict[int, bytes] = {}
    wanted = 0
    subscription = await client.subscribe(inbox)
    try:
        async with asyncio.timeout(timeout_s):
            await client.publish(subject_for(name), msgspec.json.encode(params or {}), reply=inbox)
            while not wanted or len(parts) < wanted:
                message = await _next(client, subscription, name)
                if _nobody(message):
                    raise NoAnswer(f"no projector answers {subject_for(name)}")
                number, wanted = _part(message)
                parts[number] = message.data
    except TimeoutError as error:
        came = f"{len(parts)} of {wanted or '?'} parts"
        raise NoAnswer(f"no answer to {subject_for(name)} within {timeout_s:g} s ({came})") from error
    finally:
        await subscription.unsubscribe()
    answer: dict[str, Any] = msgspec.json.decode(b"".join(parts[number] for number in sorted(parts)))
    return answer


async def _next(client: Client, subscription: Subscription, name: str) -> Msg:
    """Return the next message; nobody answers a question that the server drops, and it says so beside."""
    while True:
        try:
            return await subscription.next_msg(timeout=LOOK_EVERY_S)
        except TimeoutError:
            if refusal(str(client.last_error or "")) == ("publish", subject_for(name).lower()):
                url = client.connected_url
                where = url.netloc.rpartition("@")[2] if url is not None else "the server"
                raise NotPermitted("publish", subject_for(name), where) from None


def _nobody(message: Msg) -> bool:
    return (message.headers or {}).get("Status") == "503"


def _part(message: Msg) -> tuple[int, int]:
    number, _, count = (message.headers or {}).get(PART_HEADER, "1/1").partition("/")
    if not (number.isdigit() and count.isdigit() and 1 <= int(number) <= int(count) <= PARTS_MAX):
        raise NoAnswer(f"an answer with a broken {PART_HEADER} header came; ask again")
    return int(number), int(count)

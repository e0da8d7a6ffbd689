"""Removing the oldest messages of one stream, where history cannot be deleted or purged: fence, limit, open again.

``deny_delete`` and ``deny_purge`` stand, and the server lets nobody lift them. What removes messages is a limit: ``discard: old``
with ``max_msgs``. A limit that stays would drop a kept record for each new one. So:

1. *fence*: the stream listens to a subject that nobody uses, and declares the cut (``cut``). From here on nothing can be stored in
   it; who publishes is told that nobody listens, and sends again later, as in an election.
2. *limit*: when its end stands still, ``discard: old`` and as many messages as lie beyond the cut. The server drops the rest.
3. *open*: subjects, ``discard`` and ``max_msgs`` as they must be, in one update.

Sequences, stored times, headers, duplicate window and expected last sequence stay what they were; readers beyond the cut notice
nothing. Killed at any point, what stands is a fence (every process that starts refuses it, nothing can be lost behind it), and
``reopen`` is all that is needed. A replica that was not there when the limit was lifted has it on its disk: when it comes back, it
first drops a message for each that was written while it was away. The archive was compared a good way beyond the cut, so it has
them for that long; who was not there is told to whoever cuts (``Shortened.behind``).

Decides nothing about what may go: who calls has made sure that an archive holds it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from apportion.adapters.bus.connection import Connection
from apportion.adapters.bus.cut import Cut, declared, declaring, fence_of, is_fenced
from apportion.adapters.bus.topology import REQUIRED, StreamInfo, StreamState, stream_info
from apportion.core.errors import LogMismatch

STREAMS: tuple[Literal["DECISIONS"], Literal["EVENTS"]] = ("DECISIONS", "EVENTS")
LOOK_EVERY_S = 0.05
LOOKS_MAX = 200
TRIES_MAX = 5
UPDATE_TIMEOUT_S = 10.0
RETRY_S = 1.0

OnStep = Callable[[str], None]


@dataclass(frozen=True)
class Shortened:
    """What the stream holds now, and the replicas that were not heard of after its limit was lifted."""

    state: StreamState
    behind: tuple[str, ...]


_OPEN = ("subjects", "discard", "max_msgs")


def nothing(_step: str) -> None:
    """Take no notice of a step."""


async def shorten_both(connection: Connection, decisions: Cut, events: Cut, after_step: OnStep = nothing) -> tuple[str, ...]:
    """Cut DECISIONS, then EVENTS; return the replicas that were not there. Raises as ``shorten``."""
    done = [await shorten(connection, stream, cut, after_step) for stream, cut in zip(STREAMS, (decisions, events), strict=True)]
    return tuple(sorted({name for one in done for name in one.behind}))


async def open_again(connection: Connection) -> list[str]:
    """Take away the fences that an interrupted cut left; return of which streams."""
    return [stream for stream in STREAMS if await reopen(connection, stream)]


async def shorten(connection: Connection, stream: str, cut: Cut, after_step: OnStep = nothing) -> Shortened:
    """Drop the messages up to ``cut.cut_seq``; return what became of the stream. ``after_step`` hears each step's name.

    Whatever goes wrong, the stream is opened again on the way out. Raises ``LogMismatch`` when the stream holds nothing beyond the
    cut, or less than the archive covers, ``ApiError`` (no permission, an election) and ``TimeoutError``.
    """
    info = await stream_info(connection, stream)
    _check_reached(stream, info, cut)
    fenced = declaring({**info.config, "subjects": [fence_of(stream)]}, cut)
    last_seq = info.state.last_seq
    try:
        await _update(connection, stream, fenced)
        after_step(f"{stream} fenced")
        last_seq = await _end(connection, stream)
        keep = last_seq - cut.cut_seq
        if keep < 1:
            raise LogMismatch(f"{stream} ends at seq {last_seq}: nothing would be left beyond seq {cut.cut_seq}; cut less")
        await _update(connection, stream, {**fenced, "discard": "old", "max_msgs": keep})
        after_step(f"{stream} limited")
        await _done(connection, stream, cut.cut_seq)
    finally:
        await reopen(connection, stream)
    after_step(f"{stream} open")
    behind = await _unheard(connection, stream)
    state = (await stream_info(connection, stream)).state
    if state.last_seq < last_seq or state.first_seq > cut.archived_seq + 1:
        raise LogMismatch(
            f"{stream} now holds seq {state.first_seq} to {state.last_seq}, expected {cut.cut_seq + 1} to {last_seq}: it lost more "
            "than was to go; stop everything that writes, and compare it with its archive"
        )
    return Shortened(state, behind)


def _check_reached(stream: str, info: StreamInfo, cut: Cut) -> None:
    """Check that the archive reaches what is left: somebody else may have cut more since this was planned."""
    before = declared(info.config)
    gone_seq = max(info.state.first_seq - 1, 0 if before is None else before.cut_seq)
    if gone_seq > cut.archived_seq:
        where = "" if before is None else f" behind {before.archive}"
        raise LogMismatch(
            f"{stream} was cut beyond seq {cut.archived_seq:,}, where the archive {cut.archive} ends, while this cut was planned: "
            f"up to seq {gone_seq:,}{where}; cut behind that archive"
        )


async def reopen(connection: Connection, stream: str) -> bool:
    """Take a fence away that an interrupted cut left; False when there is none. What was declared stays declared."""
    info = await stream_info(connection, stream)
    if not is_fenced(info.config):
        return False
    await _update(connection, stream, {**info.config, **{name: REQUIRED[stream][name] for name in _OPEN}})
    return True


async def _update(connection: Connection, stream: str, config: dict[str, Any]) -> None:
    """Change the settings; a lost answer is asked for again, as the same update twice is one."""
    for attempt in range(TRIES_MAX):
        try:
            await connection.api(f"STREAM.UPDATE.{stream}", config, StreamInfo, UPDATE_TIMEOUT_S)
            return
        except TimeoutError:
            if attempt + 1 == TRIES_MAX:
                raise
            await asyncio.sleep(RETRY_S)


async def _end(connection: Connection, stream: str) -> int:
    """Return the last sequence once it stands still: what was on its way when the fence came is stored by then."""
    last_seq = -1
    for _look in range(LOOKS_MAX):
        now = (await stream_info(connection, stream)).state.last_seq
        if now == last_seq:
            return now
        last_seq = now
        await asyncio.sleep(LOOK_EVERY_S)
    raise LogMismatch(f"{stream} still grows behind its fence (seq {last_seq}): who writes there?")


async def _done(connection: Connection, stream: str, cut_seq: int) -> None:
    """Wait until the oldest are gone and every replica is current; not for ever, because the fence stops the cluster."""
    for _look in range(LOOKS_MAX):
        info = await stream_info(connection, stream)
        if info.state.first_seq > cut_seq and not info.lagging:
            return
        await asyncio.sleep(LOOK_EVERY_S)


async def _unheard(connection: Connection, stream: str) -> tuple[str, ...]:
    """Wait until every replica was heard of after now, a second or two; return those that were not for as long as a look lasts."""
    loop = asyncio.get_running_loop()
    from_s, unheard = loop.time(), list[str]()
    for _look in range(LOOKS_MAX):
        unheard = (await stream_info(connection, stream)).unheard(loop.time() - from_s)
        if not unheard:
            break
        await asyncio.sleep(LOOK_EVERY_S)
    return tuple(unheard)

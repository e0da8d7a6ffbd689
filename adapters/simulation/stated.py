"""An event of the simulated world, as it reaches the log: an instant, a subject, and the body as published.

Decides only the ids: a pure count, so that equal seeds give equal bytes (real producers make unguessable ones). The
instant is stated in the envelope too, so a log opened with ``time_source: stated`` lives in simulated time.
"""

from __future__ import annotations

from typing import NamedTuple

from apportion.core.envelope import subject_of
from apportion.core.events import EVENT_TYPES, ClockTick, Event, encode_event

OPERATOR = "ops"  # people who run the cluster
LEADER = "core"  # the scheduler: writes ticks

_HEARTBEAT = (
    b'{"at_ms":%d,"data":{"node":"%b","beat":%d%b,"busy_milli":%d,"memory_mib":%d,"watts":%d},'
    b'"id":"%b.%d","type":"node.heartbeat","v":1}'
)


class Stated(NamedTuple):
    """One event: ``at_ms`` since 1970, in simulated time; ``body`` are the exact bytes to publish on ``subject``."""

    at_ms: int
    subject: str
    body: bytes


def stated(at_ms: int, principal: str, event: Event, event_id: str, cause: str = "") -> Stated:
    """Return ``event`` as published by ``principal`` at ``at_ms``."""
    body = encode_event(event, event_id=event_id, at_ms=at_ms, cause=cause)
    return Stated(at_ms, subject_of(principal, EVENT_TYPES[type(event)]), body)


def tick_event(at_ms: int, number: int) -> Stated:
    """Return the leader's ``number``-th tick."""
    return stated(at_ms, LEADER, ClockTick(why="due"), f"tick.{number}")


def heartbeat_body(
    at_ms: int, node: bytes, beat: int, gpus_down: bytes, busy_milli: int, memory_mib: int, watts: int
) -> bytes:
    """Return the bytes ``encode_event`` makes of a ``NodeHeartbeat`` without ``runs``, several times as fast.

    ``gpus_down`` is empty or ``,"gpus_down":[...]``; the three amounts must not be 0, as the wire leaves zeros out.
    A test compares the bytes.
    """
    return _HEARTBEAT % (at_ms, node, beat, gpus_down, busy_milli, memory_mib, watts, node, beat)

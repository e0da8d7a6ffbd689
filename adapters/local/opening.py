"""The first records of a local log: who operates it, one pool, a small budget tree to try things with.

``steps`` is a pure function of names. ``complete`` publishes those steps that the log does not hold yet, so a set-up
that was cut short is finished at the next start, and a finished one is never repeated. Set-up records are known by the
``flow`` of their envelope.

It must never change a log that somebody else has opened, or what people have changed since.
"""

from __future__ import annotations

import secrets
import time
from typing import NamedTuple

import msgspec

from apportion.adapters.bus.local import Bus
from apportion.adapters.bus.publisher import PublishRefused
from apportion.core.envelope import decode_envelope, split_subject, subject_of
from apportion.core.errors import ApportionError
from apportion.core.events import (
    EVENT_TYPES,
    BudgetSet,
    Event,
    LogOpened,
    MemberGranted,
    PoolDefined,
    decode_data,
    encode_event,
)

FLOW = "up-setup"
CORE_PRINCIPAL = "core"
LOOK_AT = 200  # set-up is at the very beginning, or did not happen
ATTEMPTS = 5
TREE = (
    ("lab", 1_000_000),
    ("lab/llm", 600_000),
    ("lab/llm/olmo", 700_000),
    ("lab/llm/eval", 300_000),
    ("lab/robotics", 400_000),
)
REASON = "example tree of a local cluster"


class OtherLog(ApportionError):
    """The log was set up for something else than what was asked for."""


class Opening(NamedTuple):
    """What is known of a log after its set-up."""

    log_id: str
    pool: str
    operators: tuple[str, ...]
    published: int  # steps that were missing


class _Known(NamedTuple):
    opened: LogOpened | None
    flow: str
    steps: list[Event]
    last_seq: int


def steps(operator: str, pool: str, gpu_class: str) -> list[Event]:
    """Return the events that set a local log up, in order; the first has a fresh log id."""
    operators = tuple(dict.fromkeys((operator, CORE_PRINCIPAL)))
    return [
        LogOpened(log_id=f"local-{secrets.token_hex(4)}", time_source="stored", operators=operators),
        PoolDefined(pool=pool, gpu_class=gpu_class),
        *(BudgetSet(pool=pool, budget=budget, share_ppm=share_ppm, reason=REASON) for budget, share_ppm in TREE),
        MemberGranted(budget=TREE[0][0], member=operator, role="administer", reason=REASON),
    ]


async def complete(bus: Bus, operator: str, pool: str, gpu_class: str) -> Opening:
    """Publish the set-up steps the log lacks, as ``operator``.

    A log that was not opened by this set-up is left alone. Raises ``OtherLog`` when the log's set-up was for another
    pool or by another operator.
    """
    for _attempt in range(ATTEMPTS):
        known = await _known(bus)
        if known.opened is not None and known.flow != FLOW:
            return Opening(known.opened.log_id, pool, known.opened.operators, 0)
        wanted = steps(operator, pool, gpu_class)
        if known.opened is not None:
            _same_names(known, operator, pool)
            wanted[0] = known.opened
            done = {(type(event), _key(event)) for event in known.steps}
            wanted = [event for event in wanted if (type(event), _key(event)) not in done]
        if await _publish(bus, operator, wanted, known):
            opened = known.opened or next(event for event in wanted if isinstance(event, LogOpened))
            return Opening(opened.log_id, pool, opened.operators, len(wanted))
    raise OtherLog("another process writes the first records of this log; start one of them at a time")


def _same_names(known: _Known, operator: str, pool: str) -> None:
    pools = [event.pool for event in known.steps if isinstance(event, PoolDefined)]
    if pools and pool not in pools:
        raise OtherLog(
            f"this log was set up with pool {pools[0]!r}, not {pool!r}; start with --pool {pools[0]}, or in another --dir"
        )
    if known.opened is not None and operator not in known.opened.operators:
        names = ", ".join(known.opened.operators)
        raise OtherLog(
            f"{operator!r} does not operate this log ({names} do); start as one of them (--as), or in another --dir"
        )


def _key(event: Event) -> str:
    """Return what makes two set-up steps the same step, whatever its values were then."""
    return " ".join(str(getattr(event, name, "")) for name in ("pool", "budget", "member"))


async def _known(bus: Bus) -> _Known:
    """Read the beginning of the log."""
    last_seq = await bus.events.last_seq()
    opened, flow, found = None, "", list[Event]()
    for record in await bus.events.read(0, LOOK_AT) if last_seq else []:
        try:
            envelope = decode_envelope(record.body)
            event = decode_data(envelope.type, envelope.v, envelope.data)
        except msgspec.DecodeError:
            continue
        if record.seq == 1 and isinstance(event, LogOpened):
            opened, flow = event, envelope.flow
        principal, _type = split_subject(record.subject) or ("", "")
        if opened is not None and envelope.flow == FLOW and principal in opened.operators:
            found.append(event)
    if opened is None and last_seq:
        raise OtherLog(
            "the first record of this log is not log.opened: every record in it is refused. Start in another --dir"
        )
    return _Known(opened, flow, found, last_seq)


async def _publish(bus: Bus, operator: str, events: list[Event], known: _Known) -> bool:
    """Publish in order, each where it is expected; return False when somebody else wrote in between."""
    last_seq = known.last_seq
    for event in events:
        event_id = secrets.token_hex(16)
        body = encode_event(event, event_id=event_id, at_ms=int(time.time() * 1_000), flow=FLOW)
        subject = subject_of(operator, EVENT_TYPES[type(event)])
        try:
            ack = await bus.publisher.publish(subject, body, event_id, expected_last_seq=last_seq)
        except PublishRefused as refused:
            if refused.err_code == WRONG_LAST_SEQUENCE:
                return False
            raise
        last_seq = ack.seq
    return True


WRONG_LAST_SEQUENCE = 10071

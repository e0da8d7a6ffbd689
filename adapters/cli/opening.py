"""The first records of a local log: who operates it, one pool, and a small budget tree to try things with.

A pure function of names; ``up`` publishes the result once, into an empty log, and the core reads it like any other input.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from apportion.adapters.bus.local import Bus
    from apportion.core.events import Event

CORE_PRINCIPAL = "core"
TREE = (
    ("lab", 1_000_000),
    ("lab/llm", 600_000),
    ("lab/llm/olmo", 700_000),
    ("lab/llm/eval", 300_000),
    ("lab/robotics", 400_000),
)


def first_events(operator: str, pool: str, gpu_class: str) -> list[Event]:
    """Return the events that open a local log, in order."""
    from apportion.core.events import BudgetSet, LogOpened, PoolDefined

    operators = tuple(dict.fromkeys((operator, CORE_PRINCIPAL)))
    return [
        LogOpened(log_id=f"local-{secrets.token_hex(4)}", time_source="stored", operators=operators),
        PoolDefined(pool=pool, gpu_class=gpu_class),
        *(
            BudgetSet(pool=pool, budget=budget, share_ppm=share_ppm, reason="example tree of `apportion up`")
            for budget, share_ppm in TREE
        ),
    ]


async def open_log(bus: Bus, operator: str, pool: str, gpu_class: str) -> bool:
    """Publish the first records when the log is empty; False when it was open already.

    The first record is fenced (it must be the first), so two processes cannot open one log twice.
    """
    from apportion.adapters.bus.publisher import PublishRefused
    from apportion.adapters.cli.publishing import now_ms
    from apportion.core.envelope import subject_of
    from apportion.core.events import EVENT_TYPES, encode_event

    if await bus.events.last_seq() > 0:
        return False
    for position, event in enumerate(first_events(operator, pool, gpu_class)):
        event_id = secrets.token_hex(16)
        body = encode_event(event, event_id=event_id, at_ms=now_ms())
        subject = subject_of(operator, EVENT_TYPES[type(event)])
        try:
            await bus.publisher.publish(subject, body, event_id, expected_last_seq=position)
        except PublishRefused as error:
            if error.err_code == 10071:  # somebody else opens it at this moment
                return False
            raise
    return True

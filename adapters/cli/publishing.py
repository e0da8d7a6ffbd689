"""A write: check the event, publish it as the principal, wait for the core's decision, put it in words.

``checked`` refuses before anything is sent what the log would refuse anyway, naming the field and the rule. What the
core alone can know (budgets, members, room) is left to the core, and its answer is awaited: nothing is assumed.
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any

from apportion.adapters.cli.failure import usage
from apportion.adapters.cli.verbs import WritePlace
from apportion.adapters.text.bounds import place_of, rule_words
from apportion.adapters.text.template import number_words

if TYPE_CHECKING:
    from apportion.core.events import Event

_READABLE = "abcdefghjkmnpqrstuvwxyz23456789"  # no letters that are read as others


def new_id(stem: str) -> str:
    """Return a new name that starts with ``stem`` and nobody can guess in advance."""
    import secrets

    fit = re.sub(r"[^A-Za-z0-9_\-.:]+", "-", stem).strip("-_.:")[:80] or "job"
    return f"{fit}-{''.join(secrets.choice(_READABLE) for _ in range(8))}"


def checked(event_class: type[Event], options: dict[str, str], **fields: Any) -> Event:
    """Return the event, every bound checked; ``options`` names the option of each field for the message.

    Raises ``Failure`` (usage) with the option, the value and the rule.
    """
    import msgspec

    fields = {name: value for name, value in fields.items() if value is not None}
    try:
        return msgspec.convert(fields, event_class)
    except msgspec.ValidationError as error:
        text, path = place_of(error)
        name = path[-1] if path else ""
        option = options.get(name, name)
        value: Any = fields
        for step in path:
            value = value.get(step) if isinstance(value, dict) else getattr(value, step, None)
        raise usage(
            f"{option} {_shown(name, value)} is not accepted: {rule_words(name, text)}" if name else f"not accepted: {text}",
            _HELP.get(name, "`apportion schema` shows every field with its rule"),
        ) from None


def _shown(name: str, value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return number_words(name, value)
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


_HELP = {"kind": "one of training, batch_inference, quantization, realtime, interactive"}


def event_document(place: WritePlace, event: Event) -> dict[str, Any]:
    """Return the event as it would stand in the log, for ``--dry-run``."""
    import msgspec

    from apportion.core.envelope import subject_of
    from apportion.core.events import EVENT_TYPES, NEWEST

    event_type = EVENT_TYPES[type(event)]
    return {
        "subject": subject_of(place.principal, event_type),
        "type": event_type,
        "v": NEWEST[event_type],
        "data": msgspec.to_builtins(event),
    }


def now_ms() -> int:
    """Return the producer's clock, which is information only; the log assigns the time of record."""
    return time.time_ns() // 1_000_000

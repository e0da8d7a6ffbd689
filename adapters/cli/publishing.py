"""A write: check the event, publish it as the principal, wait for the core's decision, put it in words.

``checked`` refuses before anything is sent what the log would refuse anyway, naming the field and the rule. What the
core alone can know (budgets, members, room) is left to the core, and its answer is awaited: nothing is assumed.
"""

from __future__ import annotations

import secrets
import time
from typing import TYPE_CHECKING, Any

from apportion.adapters.cli.failure import usage
from apportion.adapters.cli.verbs import WritePlace

if TYPE_CHECKING:
    from apportion.core.events import Event

_READABLE = "abcdefghjkmnpqrstuvwxyz23456789"  # no letters that are read as others


def new_id(stem: str) -> str:
    """Return a new name that starts with ``stem`` and nobody can guess in advance."""
    import re

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
        text, _, path = str(error).partition(" - at `$.")
        name = path.rstrip("`").partition("[")[0]
        option = options.get(name, name)
        value = fields.get(name)
        raise usage(
            f"{option or 'the event'} {value!r} is not accepted: {_rule(text)}" if name else f"not accepted: {text}",
            f"correct {option}" if option else "",
        ) from None


def _rule(text: str) -> str:
    """Return msgspec's sentence in plainer words."""
    if "matching regex" in text:
        return "use letters, digits and _ - . : (paths: parts joined by /), starting with a letter or digit"
    return text[:1].lower() + text[1:]


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

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
        text, _, path = str(error).partition(" - at `$.")
        name = path.rstrip("`").partition("[")[0]
        option = options.get(name, name)
        value = fields.get(name)
        raise usage(
            f"{option} {_shown(name, value)} is not accepted: {_rule(name, text)}" if name else f"not accepted: {text}",
            _HELP.get(name, "`apportion schema` shows every field with its rule"),
        ) from None


def _shown(name: str, value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return number_words(name, value) if name.endswith(("_milli", "_ms", "_ppm", "_gpu_us")) else f"{value:,}"
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


_HELP = {"kind": "one of training, batch_inference, quantization, realtime, interactive"}


def _rule(name: str, text: str) -> str:
    """Return msgspec's sentence in the words and units people typed."""
    if "matching regex" in text:
        if "budget" in name:
            return "use a path of names joined by /, each of letters, digits and _ - . such as lab/llm/olmo"
        return "use letters, digits and _ - . : starting with a letter or digit"
    if text.startswith("Invalid enum value"):
        return "not one of the values known"
    bound = re.match(r"Expected `int` (>=|<=|<|>) (-?\d+)$", text)
    if bound:
        words = {">=": "at least", "<=": "at most", "<": "less than", ">": "more than"}[bound[1]]
        return f"it must be {words} {number_words(name, int(bound[2]))}"
    length = re.match(r"Expected `(str|array)` of length (>=|<=) (\d+)$", text)
    if length:
        what = "characters" if length[1] == "str" else "entries"
        return f"it must have {'at least' if length[2] == '>=' else 'at most'} {length[3]} {what}"
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

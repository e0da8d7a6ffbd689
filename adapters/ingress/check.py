"""Is this request a good event? If not: which field, which value, which rule.

``checked`` is a pure function of subject, body and a fresh id; the ingress publishes what it returns, and the client
uses the same rules before it sends. What it accepts, the core can read; whether the core *accepts* it (budgets,
members, room) is decided by the core alone. It never repairs a value.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import msgspec

from apportion.adapters.ingress.wire import EventId, Problem, Request
from apportion.core.envelope import MAX_BODY_BYTES, MAX_DEPTH, encode, subject_of, too_deep
from apportion.core.errors import ApportionError
from apportion.core.events import EVENTS, NEWEST, Event, UnknownType, UnknownVersion, decode_data
from apportion.core.fields import Principal
from apportion.core.reasons import Refusal

INGRESS_PREFIX = "ap.in"
INTERNAL = frozenset({"log.opened", "clock.tick", "core.activated"})
"""Types that only the core's own processes write, never on behalf of somebody."""
ACCEPTED = tuple(name for name in NEWEST if name not in INTERNAL)
MAX_SHOWN = 200

_decode_request = msgspec.json.Decoder(Request[msgspec.Raw]).decode
_PLACE = re.compile(r" - at (?:`key` in )?`\$(?P<path>[^`]*)`$")
_MISSING = re.compile(r"Object missing required field `(?P<name>[^`]+)`")
_STEP = re.compile(r"\.(?P<name>[^.\[]+)|\[(?P<index>\d+)\]|\[\.\.\.\]")


class RequestRefused(ApportionError):
    """A request that is no good event. Met by programs that send one; ``problem`` says what to change."""

    def __init__(self, problem: Problem, event_id: str = "") -> None:
        super().__init__(problem.message)
        self.problem = problem
        self.event_id = event_id


class Accepted(NamedTuple):
    """A good event, ready to be published: its subject, id and body, and the fields this version does not know."""

    subject: str
    event_id: str
    body: bytes
    event: Event
    ignored: tuple[str, ...]


def checked(subject: str, body: bytes, fresh_id: str) -> Accepted:
    """Return the event a request on ``subject`` asks for; ``fresh_id`` becomes its id when it brings none.

    Raises ``RequestRefused`` with the first thing that is wrong.
    """
    principal, event_type = split_request(subject)
    if len(body) > MAX_BODY_BYTES:
        raise _refused(Refusal.TOO_LARGE, f"at most {MAX_BODY_BYTES} bytes", "body", f"{len(body)} bytes")
    if too_deep(body):
        raise _broken(body, f"at most {MAX_DEPTH} levels of nesting")
    try:
        document = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _broken(body, str(error)) from None
    try:
        request = _decode_request(body)
    except msgspec.ValidationError as error:
        raise RequestRefused(explain(error, document, Refusal.BROKEN_JSON)) from None
    event_id = _check_id(request.id) if request.id else fresh_id
    try:
        if request.type not in ("", event_type):
            raise _refused(Refusal.TYPE_MISMATCH, f"the subject says {event_type}", "type", request.type)
        event = _decode_event(event_type, request.v, request.data)
        stamped: dict[str, Any] = {
            "at_ms": request.at_ms, "data": request.data, "id": event_id, "type": event_type, "v": request.v,
        }  # fmt: skip
        if request.cause:
            stamped["cause"] = request.cause
        if request.flow:
            stamped["flow"] = request.flow
        encoded = encode(stamped)
        if len(encoded) > MAX_BODY_BYTES:
            raise _refused(Refusal.TOO_LARGE, f"at most {MAX_BODY_BYTES} bytes", "body", f"{len(encoded)} bytes")
    except RequestRefused as refused:
        raise RequestRefused(refused.problem, event_id) from None
    return Accepted(
        subject_of(principal, event_type), event_id, encoded, event, _unknown_fields(document, event, request.v)
    )


def check_event(event: Event) -> Event:
    """Return the event as the core will read it; struct constructors check nothing. Raises ``RequestRefused``."""
    event_type = next(name for (name, _v), event_class in EVENTS.items() if isinstance(event, event_class))
    try:
        data = encode(event)
    except (TypeError, ValueError, OverflowError) as error:
        raise _refused(Refusal.INVALID_DATA, f"not to be written as JSON ({error})", "data", repr(event)) from None
    return _decode_event(event_type, NEWEST[event_type], msgspec.Raw(data))


def explain(error: msgspec.ValidationError, document: Any, refusal: Refusal, root: str = "") -> Problem:
    """Return what msgspec's error says about a decoded ``document``, with the value found at its place."""
    text = str(error)
    match = _PLACE.search(text)
    path = match["path"] if match else ""
    rule = text[: match.start()] if match else text
    if missing := _MISSING.search(rule):
        field = f"{root}{path}.{missing['name']}".lstrip(".")
        return Problem(refusal=refusal.value, field=field, rule="required", message=f"{field} is missing")
    field = f"{root}{path}".lstrip(".") or "body"
    value = shown(_look_up(document, path))
    return Problem(refusal=refusal.value, field=field, rule=rule, value=value, message=_sentence(field, value, rule))


def shown(value: Any) -> Any:
    """Return the value itself when it is short, else the beginning of its JSON."""
    text = msgspec.json.encode(value).decode()
    return value if len(text) <= MAX_SHOWN else text[:MAX_SHOWN] + "…"


def _sentence(field: str, value: Any, rule: str) -> str:
    rule = rule[:1].lower() + rule[1:] if rule[1:2].islower() else rule
    return f"{field} is {msgspec.json.encode(value).decode()}: {rule}"


def _refused(refusal: Refusal, rule: str, field: str, value: Any) -> RequestRefused:
    value = shown(value)
    return RequestRefused(
        Problem(refusal=refusal.value, field=field, rule=rule, value=value, message=_sentence(field, value, rule))
    )


def _broken(body: bytes, rule: str) -> RequestRefused:
    return _refused(Refusal.BROKEN_JSON, rule, "body", body[:MAX_SHOWN].decode(errors="replace"))


def split_request(subject: str) -> tuple[str, str]:
    """Return ``(principal, type)`` of a request's subject. Raises ``RequestRefused`` when nobody may ask there."""
    parts = subject.split(".", 3)
    if len(parts) != 4 or ".".join(parts[:2]) != INGRESS_PREFIX:
        raise _refused(Refusal.MALFORMED_SUBJECT, f"{INGRESS_PREFIX}.<principal>.<type>", "subject", subject)
    try:
        msgspec.convert(parts[2], Principal)
    except msgspec.ValidationError:
        rule = "a principal is letters, digits, _ and -, and starts with a letter or digit"
        raise _refused(Refusal.MALFORMED_SUBJECT, rule, "subject", subject) from None
    if parts[3] not in ACCEPTED:
        rule = "only the core's own processes write it" if parts[3] in INTERNAL else f"one of {', '.join(ACCEPTED)}"
        raise _refused(Refusal.UNKNOWN_TYPE, rule, "subject", parts[3])
    return parts[2], parts[3]


def _check_id(event_id: str) -> str:
    try:
        return msgspec.convert(event_id, EventId)
    except msgspec.ValidationError:
        rule = "1 to 128 printable ASCII characters without spaces"
        raise _refused(Refusal.INVALID_DATA, rule, "id", event_id) from None


def _decode_event(event_type: str, version: int, data: msgspec.Raw) -> Event:
    try:
        return decode_data(event_type, version, data)
    except UnknownType as error:
        raise _refused(Refusal.UNKNOWN_TYPE, str(error), "type", event_type) from None
    except UnknownVersion as error:
        raise _refused(Refusal.UNKNOWN_VERSION, str(error), "v", version) from None
    except msgspec.ValidationError as error:
        raise RequestRefused(explain(error, msgspec.json.decode(data), Refusal.INVALID_DATA, "data")) from None


def _look_up(value: Any, path: str) -> Any:
    """Return what stands at msgspec's ``.pools[1]``; the container itself where the path names no member of it."""
    for step in _STEP.finditer(path):
        if step["name"] is not None and isinstance(value, dict) and step["name"] in value:
            value = value[step["name"]]
        elif step["index"] is not None and isinstance(value, list) and int(step["index"]) < len(value):
            value = value[int(step["index"])]
    return value


def _unknown_fields(document: dict[str, Any], event: Event, version: int) -> tuple[str, ...]:
    """Name the fields that nobody reads, so that a misspelt one does not pass in silence."""
    top = set(document).difference(Request.__struct_encode_fields__)
    inner: set[str] = set()
    if EVENTS.get((NEWEST_NAME[type(event)], version)) is type(event):
        inner = set(document["data"]).difference(event.__struct_encode_fields__)
    return tuple(sorted(top) + sorted(f"data.{name}" for name in inner))


NEWEST_NAME = {EVENTS[name, version]: name for name, version in NEWEST.items()}

"""A record of the log, and the envelope inside its body.

``Record`` is what the log assigns (sequence, stored time, subject) plus the bytes as published. ``Envelope`` is what
the producer wrote. Decoding is in two steps: envelope first, payload second by ``(type, v)`` through the upcasters of
``events``; so a payload nobody can read still has a readable name and place.

Pure functions of bytes. Never trusts an identity inside a body: the principal is a token of the subject, because the
server enforces subjects.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Generic, NamedTuple, TypeVar

import msgspec

EVENT_PREFIX = "ap.ev"
DECISION_SUBJECT = "ap.dec.cycle"
MAX_BODY_BYTES = 256 * 1024
MAX_DEPTH = 64  # of objects and arrays inside each other; an event needs five

Data = TypeVar("Data")


class Record(NamedTuple):
    """One record of EVENTS as read: ``seq`` from 1, ``stored_ms`` from the server's integer nanoseconds."""

    seq: int
    stored_ms: int
    subject: str
    body: bytes


class Envelope(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a producer publishes. ``id`` is client-made, unguessable, and also the ``Nats-Msg-Id``.

    But of a heartbeat: it is published without a ``Nats-Msg-Id``, so its id is node and counter, as anybody can tell.
    """

    id: str
    type: str
    v: int = 1
    at_ms: int = 0  # the producer's claim; time of record only where the log's time_source is "stated"
    cause: str = ""
    flow: str = ""
    data: msgspec.Raw = msgspec.Raw(b"{}")


class Whole(msgspec.Struct, Generic[Data], frozen=True, gc=False):
    """An envelope whose payload is decoded in the same pass: what decodes as one means what the two steps would give."""

    id: str
    type: str
    data: Data
    v: int = 1
    at_ms: int = 0
    cause: str = ""
    flow: str = ""


class StoredBatch(NamedTuple):
    """One CycleBatch of DECISIONS as read: ``seq`` in DECISIONS, ``input_seq`` of the tick it answers, exact bytes."""

    seq: int
    input_seq: int
    body: bytes


_envelope_decoder = msgspec.json.Decoder(Envelope)
_encoder = msgspec.json.Encoder(order="deterministic")


_brackets = re.compile(rb'(?s)"(?:[^"\\]|\\.)*(?:"|\\?\Z)|[\[{\]}]').finditer  # an open string ends at the end


def too_deep(body: bytes) -> bool:
    """Tell whether ``body`` is nested more than ``MAX_DEPTH`` levels deep.

    To be asked before every decode of what others wrote: the decoder recurses, and where its recursion ends with an
    error depends on the caller's own stack, so two cores could differ about the same bytes.
    """
    if body.count(b"[") + body.count(b"{") <= MAX_DEPTH:
        return False
    depth = 0
    for token in _brackets(body):
        first = body[token.start()]
        if first in b"[{":
            depth += 1
            if depth > MAX_DEPTH:
                return True
        elif first in b"]}":
            depth -= 1
    return False


def decode_envelope(body: bytes) -> Envelope:
    """Decode the envelope; raises ``msgspec.DecodeError``, ``msgspec.ValidationError`` or ``UnicodeDecodeError``."""
    if too_deep(body):
        raise msgspec.DecodeError(f"JSON is nested more than {MAX_DEPTH} levels deep")
    return _envelope_decoder.decode(body)


def encode(value: object) -> bytes:
    """Encode to JSON bytes that are a pure function of the value (sorted keys for dicts)."""
    return _encoder.encode(value)


def encode_lines(values: Sequence[object]) -> bytes:
    """Encode each of many values as ``encode`` does, one a line: JSON holds no line end of its own."""
    return _encoder.encode_lines(values)


def subject_of(principal: str, event_type: str) -> str:
    """Return the subject an event of ``principal`` is published on."""
    return f"{EVENT_PREFIX}.{principal}.{event_type}"


def split_subject(subject: str) -> tuple[str, str] | None:
    """Return ``(principal, event type)`` or None when the subject is not of the agreed form."""
    parts = subject.split(".", 3)
    if not subject.isascii() or len(parts) != 4 or parts[0] != "ap" or parts[1] != "ev" or not parts[2] or not parts[3]:
        return None
    return parts[2], parts[3]

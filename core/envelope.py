"""A record of the log, and the envelope inside its body.

``Record`` is what the log assigns (sequence, stored time, subject) plus the bytes as published. ``Envelope`` is what
the producer wrote. Decoding is in two steps: envelope first, payload second by ``(type, v)`` through the upcasters of
``events.py``; so a payload nobody can read still has a readable name and place.

Pure functions of bytes. Never trusts an identity inside a body: the principal is a token of the subject, because the
server enforces subjects.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

EVENT_PREFIX = "ap.ev"
DECISION_SUBJECT = "ap.dec.cycle"
MAX_BODY_BYTES = 256 * 1024


class Record(NamedTuple):
    """One record of EVENTS as read: ``seq`` from 1, ``stored_ms`` from the server's integer nanoseconds."""

    seq: int
    stored_ms: int
    subject: str
    body: bytes


class Envelope(msgspec.Struct, frozen=True, kw_only=True):
    """What a producer publishes. ``id`` is client-made, unguessable, and also the ``Nats-Msg-Id``."""

    id: str
    type: str
    v: int = 1
    at_ms: int = 0  # the producer's claim; time of record only where the log's time_source is "stated"
    cause: str = ""
    flow: str = ""
    data: msgspec.Raw = msgspec.Raw(b"{}")


class StoredBatch(NamedTuple):
    """One CycleBatch of DECISIONS as read: ``seq`` in DECISIONS, ``input_seq`` of the tick it answers, exact bytes."""

    seq: int
    input_seq: int
    body: bytes


_envelope_decoder = msgspec.json.Decoder(Envelope)
_encoder = msgspec.json.Encoder(order="deterministic")


def decode_envelope(body: bytes) -> Envelope:
    """Decode the envelope; raises ``msgspec.DecodeError`` or ``msgspec.ValidationError``."""
    return _envelope_decoder.decode(body)


def encode(value: object) -> bytes:
    """Encode to JSON bytes that are a pure function of the value (sorted keys for dicts)."""
    return _encoder.encode(value)


def subject_of(principal: str, event_type: str) -> str:
    """Return the subject an event of ``principal`` is published on."""
    return f"{EVENT_PREFIX}.{principal}.{event_type}"


def split_subject(subject: str) -> tuple[str, str] | None:
    """Return ``(principal, event type)`` or None when the subject is not of the agreed form."""
    parts = subject.split(".", 3)
    if len(parts) != 4 or parts[0] != "ap" or parts[1] != "ev" or not parts[2] or not parts[3]:
        return None
    return parts[2], parts[3]

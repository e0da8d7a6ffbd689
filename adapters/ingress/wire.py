"""Requests and replies of the ingress, as structs that also describe themselves in the AsyncAPI document.

Pure data. ``Documented`` is what lets FastStream's generator, which knows pydantic only, describe a msgspec struct: it
answers pydantic's question for a schema with the JSON Schema that msgspec makes.
"""

from __future__ import annotations

from typing import Annotated, Any, Generic, Literal, TypeVar

import msgspec
from msgspec import Meta

from apportion.adapters.ingress.schemas import schema_of

E = TypeVar("E")

EventId = Annotated[str, Meta(min_length=1, max_length=128, pattern=r"^[!-~]+$(?!\n)")]
"""Printable ASCII without spaces: it becomes a header of the stored message."""


class Documented(msgspec.Struct, frozen=True, kw_only=True):
    """Base of the structs that stand in the AsyncAPI document."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, _handler: Any) -> Any:
        """Tell pydantic to take any value, and to describe it by msgspec's schema. Never used to validate."""
        from pydantic_core import core_schema

        described = schema_of(source)
        return core_schema.any_schema(metadata={"pydantic_js_functions": [lambda _schema, _handler: described]})


class Request(Documented, Generic[E], frozen=True, kw_only=True, omit_defaults=True):
    """What a program sends: the event's ``data``, and an ``id`` of its own making if it wants to repeat safely."""

    data: E
    id: Annotated[str, Meta(description="unguessable; the same id stores once; absent: the ingress makes one")] = ""
    type: Annotated[str, Meta(description="if given, the type of the subject")] = ""
    v: Annotated[int, Meta(ge=1, le=2**31, description="version of the type's data")] = 1
    at_ms: Annotated[int, Meta(ge=0, le=2**53, description="the sender's clock, for information")] = 0
    cause: Annotated[str, Meta(max_length=128, description="id of what led to this event")] = ""
    flow: Annotated[str, Meta(max_length=128, description="name of a larger undertaking")] = ""


class Stored(Documented, frozen=True, kw_only=True):
    """The event is in the log. Whether the core accepts it is a decision, read from the stream of decisions."""

    ok: Literal[True] = True
    seq: int
    id: str
    duplicate: bool = False  # the same event had been stored before, at this sequence
    ignored: tuple[str, ...] = ()  # fields that this version does not know: misspelt, or newer


class Problem(Documented, frozen=True, kw_only=True):
    """What was wrong: the refusal (a stable word), the field, the rule it breaks, and the value found there."""

    refusal: str
    rule: str
    field: str = ""
    value: Any = None
    message: str = ""


class Refused(Documented, frozen=True, kw_only=True):
    """Nothing was stored, unless ``refusal`` is ``outcome_unknown``: then send again under the same id."""

    ok: Literal[False] = False
    id: str
    error: Problem


class Status(Documented, frozen=True, kw_only=True):
    """How this ingress is, answered on ``ap.status.ingress``."""

    ok: bool  # the log answers
    version: str
    stored: int  # since this process started
    refused: dict[str, int]  # by refusal, since this process started
    log_last_seq: int  # -1 when the log does not answer
    log_problem: str = ""

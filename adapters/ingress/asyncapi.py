"""The AsyncAPI document of the whole surface: requests, events and decisions.

A pure function of the structs. FastStream describes the handlers; added here is what it cannot know: the replies, the
subjects of the log itself (a program may publish to them directly), and the stream of decisions. ``make schemas`` writes
the document to ``deploy/asyncapi.json``; a test compares.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from faststream.specification import AsyncAPI

from apportion.adapters.ingress.app import Ingress
from apportion.adapters.ingress.check import ACCEPTED
from apportion.adapters.ingress.schemas import batch_schema, event_schema, schema_of
from apportion.adapters.ingress.wire import Refused, Status, Stored
from apportion.core.envelope import DECISION_SUBJECT, EVENT_PREFIX
from apportion.core.events import NEWEST

_PRINCIPAL = {
    "principal": {"description": "who acts; the server lets a user publish under its own principal only"},
}


def asyncapi_document() -> dict[str, Any]:
    """Return the AsyncAPI 3.0 document, self-contained."""
    ingress = Ingress("nats://127.0.0.1:4222")
    specification = AsyncAPI(
        ingress.broker,
        title="apportion",
        version=version("apportion"),
        description=(
            "Budgets of GPU time. Send requests to ap.in.<principal>.<type> and read the reply, or publish events to "
            f"{EVENT_PREFIX}.<principal>.<type>, which JetStream acknowledges. Decisions are read from the stream DECISIONS."
        ),
        schema_version="3.0.0",
    )
    document: dict[str, Any] = _plain_keys(specification.to_specification().to_jsonable())
    server = document["servers"].pop("development")
    document["servers"] = {
        "nats": {"host": server["host"], "protocol": "nats", "description": "the server of your installation"},
    }
    for channel in document["channels"].values():
        channel["servers"] = [{"$ref": "#/servers/nats"}]
        if "{principal}" in channel["address"]:
            channel["parameters"] = _PRINCIPAL
    _add_replies(document)
    for event_type in ACCEPTED:
        _add_channel(document, f"event.{event_type}", f"{EVENT_PREFIX}.{{principal}}.{event_type}", _event(event_type))
    _add_channel(document, "decisions", DECISION_SUBJECT, batch_schema())
    _add_operation(document, "decisions", "send")
    for part in (document["channels"], document["operations"], *document["components"].values()):
        for name in sorted(part):  # the framework collects them in no order
            part[name] = part.pop(name)
    return document


def _event(event_type: str) -> dict[str, Any]:
    return event_schema(event_type, NEWEST[event_type])


def _add_channel(document: dict[str, Any], name: str, address: str, payload: dict[str, Any]) -> None:
    payload = {key: value for key, value in payload.items() if key != "$schema"}
    document["components"]["schemas"][name] = payload
    document["components"]["messages"][name] = {
        "title": payload["title"],
        "payload": {"$ref": f"#/components/schemas/{name}"},
    }
    channel = {
        "address": address,
        "description": payload.get("description", ""),
        "servers": [{"$ref": "#/servers/nats"}],
        "messages": {name: {"$ref": f"#/components/messages/{name}"}},
    }
    document["channels"][name] = {**channel, "parameters": _PRINCIPAL} if "{principal}" in address else channel


def _add_operation(document: dict[str, Any], name: str, action: str) -> None:
    document["operations"][name] = {
        "action": action,
        "channel": {"$ref": f"#/channels/{name}"},
        "messages": [{"$ref": f"#/channels/{name}/messages/{name}"}],
    }


def _add_replies(document: dict[str, Any]) -> None:
    """Give each operation its reply; FastStream documents requests only."""
    answers = {"stored": Stored, "refused": Refused, "status.answer": Status}
    for name, struct in answers.items():
        document["components"]["schemas"][name] = schema_of(struct)
        document["components"]["messages"][name] = {"title": name, "payload": {"$ref": f"#/components/schemas/{name}"}}
    document["channels"]["reply"] = {
        "address": None,  # the reply subject each request brings
        "messages": {name: {"$ref": f"#/components/messages/{name}"} for name in answers},
    }
    for name, operation in document["operations"].items():
        given = ("status.answer",) if name == "status" else ("stored", "refused")
        operation["reply"] = {
            "channel": {"$ref": "#/channels/reply"},
            "messages": [{"$ref": f"#/channels/reply/messages/{answer}"} for answer in given],
        }


def _plain_keys(node: Any) -> Any:
    """Return the document with names as AsyncAPI allows them: FastStream puts colons into them and into references."""
    if isinstance(node, list):
        return [_plain_keys(item) for item in node]
    if isinstance(node, dict):
        return {_plain(key): _plain(value) if key == "$ref" else _plain_keys(value) for key, value in node.items()}
    return node


def _plain(name: str) -> str:
    if name.startswith("$"):
        return name
    return name.replace(":SubscribeMessage", "").replace(":Message:Payload", "").replace(":", ".")

"""JSON Schemas of every event and decision, made from the structs the core itself decodes with.

Decides nothing: the documents are a pure function of ``core.events`` and ``core.decisions``. ``make schemas`` writes
them to ``deploy/schemas``; a test compares what is committed there with what the code says, and another checks that a
schema accepts exactly what the code accepts. They are never edited by hand.

An event's schema describes the whole message body (envelope and ``data``). What JSON Schema cannot say: integers are
written without a fraction (``1.0`` is refused), and text holds no lone surrogates.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, get_args

import msgspec

from apportion.core.decisions import AnyDecision, CycleBatch
from apportion.core.envelope import DECISION_SUBJECT, EVENT_PREFIX, Envelope
from apportion.core.events import EVENTS

DIALECT = "https://json-schema.org/draft/2020-12/schema"
DECISIONS: dict[str, type[msgspec.Struct]] = {
    str(decision_class.__struct_config__.tag): decision_class for decision_class in get_args(AnyDecision)
}


def schema_of(struct: Any) -> dict[str, Any]:
    """Return the JSON Schema of any type, self-contained: every reference is replaced by what it refers to."""
    (root,), components = msgspec.json.schema_components([struct], ref_template="{name}")
    schema: dict[str, Any] = _inline(root, components)
    return schema


def _inline(node: Any, components: dict[str, Any]) -> Any:
    if isinstance(node, list):
        return [_inline(item, components) for item in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        return _inline(components[node["$ref"]], components)
    return {name: _portable(name, _inline(value, components)) for name, value in node.items()}


def _portable(name: str, value: Any) -> Any:
    """Return a keyword's value as other languages and people read it; ``$`` means the very end everywhere but here."""
    if name == "pattern" and isinstance(value, str):
        return value.removesuffix("(?!\\n)")
    return value.replace("``", "`") if name == "description" and isinstance(value, str) else value


def event_schema(event_type: str, version: int) -> dict[str, Any]:
    """Return the schema of the message body of one event. Raises ``KeyError`` for an unknown type or version."""
    event_class = EVENTS[event_type, version]
    data = schema_of(event_class)
    fields = [field for field in msgspec.structs.fields(Envelope) if field.name != "data"]
    properties = {
        **{field.name: _field_schema(field) for field in fields},
        "type": {"const": event_type},
        "v": {"const": version} if version > 1 else {"const": version, "default": version},
        "data": data if data.get("required") else {**data, "default": {}},
    }
    required = [field.name for field in fields if field.required]
    required += ["v"] if version > 1 else []
    required += ["data"] if data.get("required") else []
    return {
        "$schema": DIALECT,
        "title": f"{event_type} v{version}",
        "description": f"{data.get('description', '')} Published to {EVENT_PREFIX}.<principal>.{event_type}.",
        "type": "object",
        "properties": properties,
        "required": required,
    }


def _field_schema(field: msgspec.structs.FieldInfo) -> dict[str, Any]:
    schema = schema_of(field.type)
    return schema if field.required else {**schema, "default": field.default}


def decision_schema(tag: str) -> dict[str, Any]:
    """Return the schema of one decision, as it stands in a batch. Raises ``KeyError`` for an unknown one."""
    schema = schema_of(DECISIONS[tag])
    return {"$schema": DIALECT, **schema, "title": tag}


def batch_schema() -> dict[str, Any]:
    """Return the schema of a CycleBatch: what is read from the stream of decisions."""
    schema = schema_of(CycleBatch)
    description = f"{schema.get('description', '')} Read from {DECISION_SUBJECT}."
    return {"$schema": DIALECT, **schema, "title": "cycle batch", "description": description}


def documents() -> dict[str, dict[str, Any]]:
    """Return every schema under the name of its file."""
    made = {f"event.{name}.v{version}.json": event_schema(name, version) for name, version in EVENTS}
    made |= {f"decision.{tag}.json": decision_schema(tag) for tag in DECISIONS}
    made["cycle_batch.json"] = batch_schema()
    return made


def text_of(document: dict[str, Any]) -> str:
    """Return a document as it is committed."""
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def write(deploy: Path) -> list[Path]:
    """Write all schemas to ``deploy/schemas``, the AsyncAPI document beside it; remove what is no longer made."""
    from apportion.adapters.ingress.asyncapi import asyncapi_document

    folder = deploy / "schemas"
    folder.mkdir(parents=True, exist_ok=True)
    made = {folder / name: text_of(document) for name, document in documents().items()}
    made[deploy / "asyncapi.json"] = text_of(asyncapi_document())
    for stale in set(folder.glob("*.json")) - set(made):
        stale.unlink()
    for path, text in made.items():
        path.write_text(text, encoding="utf-8")
    return sorted(made)


def main() -> None:
    """Write to the directory named on the command line."""
    if len(sys.argv) != 2:
        sys.exit("usage: python -m apportion.adapters.ingress.schemas DEPLOY_DIRECTORY")
    written = write(Path(sys.argv[1]))
    print(f"{len(written)} documents in {sys.argv[1]}")


if __name__ == "__main__":
    main()

"""The published schemas are those of the code, and accept exactly what the code accepts.

JSON Schema cannot say two things, and the documents tell so: ``1.0`` is no integer here, and text holds no lone
surrogates. Mutations therefore make neither.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from apportion.adapters.ingress.asyncapi import asyncapi_document
from apportion.adapters.ingress.check import ACCEPTED
from apportion.adapters.ingress.schemas import DECISIONS, documents, event_schema, text_of
from apportion.core.decisions import AnyDecision, CycleBatch
from apportion.core.envelope import decode_envelope
from apportion.core.events import EVENTS, decode_data

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden"
SAMPLES = {
    path.name.removesuffix(".json"): json.loads(path.read_bytes())
    for path in sorted((GOLDEN / "events").glob("*.json"))
}
BATCH = json.loads((GOLDEN / "batches" / "core2.every_decision.json").read_bytes())


def pattern_to_the_very_end(_validator: Any, pattern: str, text: Any, _schema: Any) -> Iterator[Any]:
    """Read ``$`` as every other language does: the end, and not also before a newline at the end."""
    if isinstance(text, str) and not re.search(pattern.replace("$", r"\Z"), text):
        yield jsonschema.ValidationError(f"{text!r} does not match {pattern!r}")


Validator = jsonschema.validators.extend(jsonschema.Draft202012Validator, {"pattern": pattern_to_the_very_end})
VALIDATORS = {name.removesuffix(".json"): Validator(document) for name, document in documents().items()}


def code_accepts_event(event_type: str, version: int, body: bytes) -> bool:
    try:
        envelope = decode_envelope(body)
        if (envelope.type, envelope.v) != (event_type, version):
            return False
        decode_data(envelope.type, envelope.v, envelope.data)
    except (msgspec.ValidationError, msgspec.DecodeError):
        return False
    return True


def code_accepts(struct: Any, body: bytes) -> bool:
    """Tell whether the code reads it as this struct: decisions through their union, as a batch does."""
    try:
        decoded = msgspec.json.decode(body, type=CycleBatch if struct is CycleBatch else AnyDecision)
    except (msgspec.ValidationError, msgspec.DecodeError):
        return False
    return type(decoded) is struct


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path]
    if isinstance(value, dict):
        for key, inner in value.items():
            found += places(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            found += places(inner, (*path, index))
    return found


EDGES = [
    -(2**63),
    -1_000_001,
    -256,
    -1,
    0,
    1,
    2,
    72,
    73,
    1_000,
    1_000_000,
    1_000_001,
    2**31 + 1,
    2**42 + 1,
    2**53 + 1,
    2**58,
    2**63,
    2**64,
    10**30,
]
TEXTS = [
    "",
    "a",
    "a\n",
    "-a",
    "a/b",
    "a//b",
    "a.b-c_d",
    "ü",
    "a" * 129,
    "a" * 257,
    "a" * 1001,
    "fair",
    "charge",
    "training",
    "\u0000",
]
leaves = (
    st.none()
    | st.booleans()
    | st.sampled_from(EDGES)
    | st.integers(-10, 1000)
    | st.sampled_from([0.5, -1.25, 1e-300])
    | st.sampled_from(TEXTS)
    | st.text(st.characters(exclude_categories=("Cs",)), max_size=5)
)
anything = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abv", max_size=2), inner, max_size=3),
    max_leaves=4,
)


@st.composite
def mutated(draw: st.DrawFn, sample: Any) -> Any:
    """Return the sample with a few members replaced, removed, added or repeated."""
    document = copy.deepcopy(sample)
    for _ in range(draw(st.integers(0, 3))):
        path = draw(st.sampled_from(places(document)))
        if not path:
            continue
        parent = document
        for step in path[:-1]:
            parent = parent[step]
        action = draw(st.sampled_from(["replace", "replace", "remove", "add", "repeat"]))
        if action == "replace":
            parent[path[-1]] = draw(anything)
        elif action == "remove":
            del parent[path[-1]]
        elif isinstance(parent, dict):
            parent[draw(st.sampled_from(["extra", "V", "data2"]))] = draw(anything)
        elif action == "add":
            parent.append(draw(anything))
        else:
            parent.extend([copy.deepcopy(parent[path[-1]])] * draw(st.sampled_from([1, 8, 33])))
    return document


quick = settings(
    max_examples=40, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)


@pytest.mark.parametrize("name", SAMPLES)
def test_an_events_schema_accepts_what_the_code_accepts(name: str) -> None:
    event_type, version = name.rsplit(".v", 1)[0], int(name.rsplit(".v", 1)[1].split(".")[0])
    validator = VALIDATORS[f"event.{event_type}.v{version}"]
    told = {True: 0, False: 0}

    @quick
    @given(mutated(SAMPLES[name]))
    def agree(document: Any) -> None:
        body = json.dumps(document).encode()
        accepted = code_accepts_event(event_type, version, body)
        told[accepted] += 1
        assert validator.is_valid(document) == accepted, (
            f"code {'accepts' if accepted else 'refuses'} {body.decode()[:500]}, its schema does not: "
            f"{[error.message for error in validator.iter_errors(document)][:3]}"
        )

    agree()
    assert all(told.values()), f"only one answer was ever tried: {told}"


@pytest.mark.parametrize("tag", DECISIONS)
def test_a_decisions_schema_accepts_what_the_code_accepts(tag: str) -> None:
    batches = [json.loads(path.read_bytes()) for path in sorted((GOLDEN / "batches").glob("*.json"))]
    told = [decision for batch in batches for decision in batch["decisions"] if decision["type"] == tag]
    sample = max(told, key=len)
    validator = VALIDATORS[f"decision.{tag}"]

    @quick
    @given(mutated(sample))
    def agree(document: Any) -> None:
        body = json.dumps(document).encode()
        assert validator.is_valid(document) == code_accepts(DECISIONS[tag], body), body.decode()[:500]

    agree()


def test_the_batchs_schema_accepts_what_the_code_accepts() -> None:
    @quick
    @given(mutated(BATCH))
    def agree(document: Any) -> None:
        body = json.dumps(document).encode()
        assert VALIDATORS["cycle_batch"].is_valid(document) == code_accepts(CycleBatch, body), body.decode()[:500]

    agree()


@pytest.mark.parametrize("name", documents())
def test_every_schema_is_a_schema(name: str) -> None:
    jsonschema.Draft202012Validator.check_schema(documents()[name])


def test_the_committed_schemas_are_those_of_the_code() -> None:
    committed = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "deploy" / "schemas").glob("*.json")}
    made = {name: text_of(document) for name, document in documents().items()}

    assert committed == made, "run `make schemas` and commit; a change of a shipped event needs a new version of it"


def test_the_committed_asyncapi_document_is_that_of_the_code() -> None:
    committed = (ROOT / "deploy" / "asyncapi.json").read_text(encoding="utf-8")

    assert committed == text_of(asyncapi_document()), "run `make schemas` and commit"


def test_the_asyncapi_document_is_whole() -> None:
    document = asyncapi_document()
    names = re.compile(r"^[\w.\-]+$")
    channels = {channel["address"] for channel in document["channels"].values()}

    def resolve(reference: str) -> Any:
        node: Any = document
        for step in reference.removeprefix("#/").split("/"):
            assert step in node, f"{reference} points nowhere"
            node = node[step]
        return node

    def references(node: Any) -> Iterator[str]:
        if isinstance(node, dict):
            yield from ([node["$ref"]] if isinstance(node.get("$ref"), str) else [])
            for inner in node.values():
                yield from references(inner)
        elif isinstance(node, list):
            for inner in node:
                yield from references(inner)

    for reference in references(document):
        assert resolve(reference) is not None
    for part in (document["channels"], document["operations"], *document["components"].values()):
        assert all(names.match(name) for name in part), f"AsyncAPI allows no such name: {sorted(part)}"
    for event_type in ACCEPTED:
        assert {f"ap.in.{{principal}}.{event_type}", f"ap.ev.{{principal}}.{event_type}"} <= channels
        assert len(document["operations"][event_type]["reply"]["messages"]) == 2


def test_the_core_writes_some_events_alone_and_they_are_described_too() -> None:
    for event_type in sorted({name for name, _version in EVENTS} - set(ACCEPTED)):
        assert event_schema(event_type, 1)["properties"]["type"] == {"const": event_type}

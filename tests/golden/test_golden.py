"""Every event and decision ever shipped is still read, and still means the same.

A sample is what a producer of its day published. Once shipped it is never changed: a new version gets a new file, and
the old one goes on being decoded through its upcaster; a field added to a version gets a further sample,
``<type>.v<v>.<what>.json``. Every field of a sample has a value other than its default, so
that nothing in it can be lost without a difference.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args, get_type_hints

import msgspec
import pytest

from apportion.core.decisions import AnyDecision, CycleBatch, decode_batch, encode_batch
from apportion.core.envelope import Envelope, decode_envelope
from apportion.core.events import EVENTS, NEWEST, decode_data, encode_event

HERE = Path(__file__).resolve().parent
EVENT_FILES = {path.name.removesuffix(".json"): path for path in sorted((HERE / "events").glob("*.json"))}
BATCH_FILES = {path.name: path for path in sorted((HERE / "batches").glob("*.json"))}


def envelope_of(name: str) -> Envelope:
    return decode_envelope(EVENT_FILES[name].read_bytes())


def data_of(name: str) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(bytes(envelope_of(name).data))
    return data


@pytest.mark.parametrize("name", EVENT_FILES)
def test_an_event_ever_shipped_is_read_and_keeps_every_value(name: str) -> None:
    sample = json.loads(EVENT_FILES[name].read_bytes())
    envelope = envelope_of(name)
    event = decode_data(envelope.type, envelope.v, envelope.data)
    again = json.loads(
        encode_event(event, event_id=envelope.id, at_ms=envelope.at_ms, cause=envelope.cause, flow=envelope.flow)
    )

    assert f"{name}.".startswith(f"{envelope.type}.v{envelope.v}."), "the file is named after its type and version"
    if envelope.v == NEWEST[envelope.type]:
        assert again == sample, f"{name} loses or changes a value on its way through the structs"
    else:
        assert type(event) is EVENTS[envelope.type, NEWEST[envelope.type]], f"{name} must be read through its upcaster"


@pytest.mark.parametrize(("event_type", "version"), EVENTS)
def test_every_event_has_a_sample(event_type: str, version: int) -> None:
    assert f"{event_type}.v{version}" in EVENT_FILES, (
        f"add tests/golden/events/{event_type}.v{version}.json: one record as a producer would publish it"
    )


@pytest.mark.parametrize(("event_type", "version"), EVENTS)
def test_some_sample_of_an_event_has_each_field(event_type: str, version: int) -> None:
    prefix = f"{event_type}.v{version}"
    found = {field for name in EVENT_FILES if f"{name}.".startswith(f"{prefix}.") for field in data_of(name)}
    constant = {
        field for field, type_ in get_type_hints(EVENTS[event_type, version]).items() if len(get_args(type_)) == 1
    }
    missing = {field.encode_name for field in msgspec.structs.fields(EVENTS[event_type, version])} - found - constant

    assert not missing, f"{sorted(missing)}: add tests/golden/events/{prefix}.<what>.json with them"


@pytest.mark.parametrize("name", EVENT_FILES)
def test_no_value_of_a_sample_is_its_default(name: str) -> None:
    envelope = envelope_of(name)
    data = data_of(name)
    defaults = {field.encode_name: field.default for field in msgspec.structs.fields(EVENTS[envelope.type, envelope.v])}
    told = {
        field for field, value in data.items() if msgspec.to_builtins(defaults.get(field, ...), enc_hook=repr) == value
    }

    assert not told, f"{name}: {sorted(told)} hold their default, so losing them would not be seen"


@pytest.mark.parametrize("name", BATCH_FILES)
def test_a_batch_ever_shipped_is_read_and_keeps_every_value(name: str) -> None:
    body = BATCH_FILES[name].read_bytes()
    batch = decode_batch(body)
    encoded = encode_batch(batch)

    assert json.loads(encoded) == json.loads(body), f"{name} loses or changes a value"
    assert encode_batch(decode_batch(encoded)) == encoded, "the bytes of a batch are a pure function of its value"


def test_every_decision_has_a_sample() -> None:
    told = {type(decision) for path in BATCH_FILES.values() for decision in decode_batch(path.read_bytes()).decisions}
    missing = [decision.__name__ for decision in get_args(AnyDecision) if decision not in told]

    assert not missing, f"{missing}: add them to a new sample in tests/golden/batches"


@pytest.mark.parametrize("struct", [*get_args(AnyDecision), CycleBatch], ids=lambda struct: struct.__name__)
def test_some_sample_of_a_decision_has_every_field(struct: Any) -> None:
    """A field added to a decision gets its own sample; the old ones stay as they were shipped."""
    fields = {field.encode_name for field in msgspec.structs.fields(struct)}
    tag = struct.__struct_config__.tag
    raw = [json.loads(path.read_bytes()) for path in BATCH_FILES.values()]
    found = [set(batch) for batch in raw] if tag is None else [
        set(decision) for batch in raw for decision in batch["decisions"] if decision["type"] == tag
    ]  # fmt: skip

    assert any(fields <= names for names in found), f"no sample of {struct.__name__} has all of {sorted(fields)}"

"""A request is a good event, or it is told which field is wrong, by which rule, and what was found there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apportion.adapters.ingress.check import ACCEPTED, INTERNAL, Accepted, RequestRefused, check_event, checked
from apportion.core.envelope import MAX_BODY_BYTES, decode_envelope, split_subject
from apportion.core.events import EVENTS, NEWEST, BudgetSet, WorkloadSubmitted, decode_data
from apportion.core.reasons import Refusal

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "events"
SUBMITTED = {"workload": "job-1", "budget": "lab/llm", "pools": ["h100"], "gpus_milli": 1000}


def ask(data: Any, event_type: str = "workload.submitted", principal: str = "portal", **envelope: Any) -> Accepted:
    return checked(f"ap.in.{principal}.{event_type}", json.dumps({"data": data, **envelope}).encode(), "fresh")


def refusal(*args: Any, **kwargs: Any) -> tuple[str, str, Any, str]:
    with pytest.raises(RequestRefused) as caught:
        ask(*args, **kwargs)
    problem = caught.value.problem
    assert problem.message
    assert str(caught.value) == problem.message
    return problem.refusal, problem.field, problem.value, problem.rule


def test_a_good_request_becomes_the_event_the_core_reads() -> None:
    accepted = ask(SUBMITTED, at_ms=7, cause="c", flow="f")
    envelope = decode_envelope(accepted.body)

    assert split_subject(accepted.subject) == ("portal", "workload.submitted")
    assert (envelope.id, envelope.type, envelope.v) == ("fresh", "workload.submitted", 1)
    assert (envelope.at_ms, envelope.cause, envelope.flow) == (7, "c", "f")
    assert decode_data(envelope.type, envelope.v, envelope.data) == accepted.event
    assert isinstance(accepted.event, WorkloadSubmitted)
    assert accepted.ignored == ()


@pytest.mark.parametrize("event_type", ACCEPTED)
def test_every_golden_sample_is_a_good_request(event_type: str) -> None:
    sample = (GOLDEN / f"{event_type}.v1.json").read_bytes()
    accepted = checked(f"ap.in.portal.{event_type}", sample, "fresh")

    assert accepted.event_id == json.loads(sample)["id"]
    assert json.loads(accepted.body) == json.loads(sample), "what was sent is what is stored"


def test_an_own_id_is_kept() -> None:
    assert ask(SUBMITTED, id="a1b2").event_id == "a1b2"


@pytest.mark.parametrize("event_id", ["with space", "line\nbreak", "line\r\nNats-Rollup: all", "ü", "x" * 129, "a\n"])
def test_an_id_that_cannot_be_a_header_is_refused(event_id: str) -> None:
    assert refusal(SUBMITTED, id=event_id)[:2] == ("invalid_data", "id")


@pytest.mark.parametrize(
    ("change", "field", "value"),
    [
        ({"gpus_milli": -5}, "data.gpus_milli", -5),
        ({"gpus_milli": 2**63}, "data.gpus_milli", 2**63),
        ({"gpus_milli": 1.5}, "data.gpus_milli", 1.5),
        ({"gpus_milli": "8"}, "data.gpus_milli", "8"),
        ({"pools": []}, "data.pools", []),
        ({"pools": ["h100", "-"]}, "data.pools[1]", "-"),
        ({"budget": "lab//llm"}, "data.budget", "lab//llm"),
        ({"workload": "job\n"}, "data.workload", "job\n"),
        ({"kind": "mining"}, "data.kind", "mining"),
        ({"env": {"A": 1}}, "data.env[...]", {"A": 1}),
        ({"grace_ms": None}, "data.grace_ms", None),
    ],
)
def test_the_wrong_field_is_named_with_its_value(change: dict[str, Any], field: str, value: Any) -> None:
    told_refusal, told_field, told_value, rule = refusal({**SUBMITTED, **change})

    assert (told_refusal, told_field, told_value) == ("invalid_data", field, value)
    assert rule


def test_a_missing_field_is_named() -> None:
    data = {name: value for name, value in SUBMITTED.items() if name != "budget"}

    assert refusal(data) == ("invalid_data", "data.budget", None, "required")


def test_a_long_value_is_shortened() -> None:
    _refusal, field, value, _rule = refusal({**SUBMITTED, "name": "x" * 10_000})

    assert field == "data.name"
    assert len(value) < 300


def test_a_misspelt_field_does_not_pass_in_silence() -> None:
    assert ask({**SUBMITTED, "min_runtime": 5}, idd="x").ignored == ("idd", "data.min_runtime")


@pytest.mark.parametrize(
    ("body", "refusal_of"),
    [
        (b"", Refusal.BROKEN_JSON),
        (b"{", Refusal.BROKEN_JSON),
        (b"\xff\xfe", Refusal.BROKEN_JSON),
        (b"[]", Refusal.BROKEN_JSON),
        (b"null", Refusal.BROKEN_JSON),
        (b'{"data":{},"v":"1"}', Refusal.BROKEN_JSON),
        (b'{"data":{},"v":0}', Refusal.BROKEN_JSON),
        (b'{"id":"x"}', Refusal.BROKEN_JSON),
        (b'{"data":null}', Refusal.INVALID_DATA),
        (b'{"data":[1]}', Refusal.INVALID_DATA),
        (b'{"data":{},"v":2}', Refusal.UNKNOWN_VERSION),
        (b'{"data":{},"type":"node.left"}', Refusal.TYPE_MISMATCH),
        (b" " * (MAX_BODY_BYTES + 1), Refusal.TOO_LARGE),
        (b'{"data":' + b"[" * 100_000, Refusal.BROKEN_JSON),
        (b'{"data":{"workload":"\xff"}}', Refusal.BROKEN_JSON),
        (b'{"data":{"workload":"\\ud800"}}', Refusal.BROKEN_JSON),
        (b'{"data":{},"at_ms":' + b"9" * 5_000 + b"}", Refusal.BROKEN_JSON),
    ],
)
def test_what_is_no_request_is_refused_by_the_cores_own_words(body: bytes, refusal_of: Refusal) -> None:
    with pytest.raises(RequestRefused) as caught:
        checked("ap.in.portal.workload.submitted", body, "fresh")

    assert caught.value.problem.refusal == refusal_of.value


@pytest.mark.parametrize(
    ("subject", "refusal_of"),
    [
        ("ap.in.portal.workload.misspelt", Refusal.UNKNOWN_TYPE),
        ("ap.in.portal.clock.tick", Refusal.UNKNOWN_TYPE),
        ("ap.in.portal.log.opened", Refusal.UNKNOWN_TYPE),
        ("ap.in.portal", Refusal.MALFORMED_SUBJECT),
        ("ap.ev.portal.node.left", Refusal.MALFORMED_SUBJECT),
        ("ap.in.por tal.node.left", Refusal.MALFORMED_SUBJECT),
        ("ap.in.-portal.node.left", Refusal.MALFORMED_SUBJECT),
    ],
)
def test_what_is_on_the_wrong_subject_is_refused(subject: str, refusal_of: Refusal) -> None:
    with pytest.raises(RequestRefused) as caught:
        checked(subject, b'{"data":{"node":"n"}}', "fresh")

    assert caught.value.problem.refusal == refusal_of.value


def test_every_type_is_accepted_or_the_cores_own() -> None:
    assert set(ACCEPTED) | INTERNAL == set(NEWEST)
    assert not set(ACCEPTED) & INTERNAL


@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(st.binary(max_size=200) | st.text('0aü{}[]"\\:,', max_size=50).map(str.encode), st.sampled_from(ACCEPTED))
def test_no_bytes_do_anything_but_pass_or_be_refused(body: bytes, event_type: str) -> None:
    try:
        accepted = checked(f"ap.in.portal.{event_type}", body, "fresh")
    except RequestRefused as refused:
        answer = msgspec.json.encode(refused.problem)
    else:
        envelope = decode_envelope(accepted.body)
        answer = accepted.body
        assert decode_data(envelope.type, envelope.v, envelope.data) == accepted.event

    assert msgspec.json.decode(answer), "the answer can always be sent"


def test_a_struct_that_was_never_checked_is_checked() -> None:
    """Constructors of structs check nothing, so the client asks here before it sends."""
    with pytest.raises(RequestRefused, match="share_ppm is -1"):
        check_event(BudgetSet(pool="h100", budget="lab", share_ppm=-1))

    event = BudgetSet(pool="h100", budget="lab", share_ppm=1)
    assert check_event(event) == event
    assert type(check_event(event)) in EVENTS.values()


def test_a_value_that_json_cannot_hold_is_refused() -> None:
    with pytest.raises(RequestRefused, match="written as JSON"):
        check_event(BudgetSet(pool="h100", budget="lab", share_ppm=object()))  # type: ignore[arg-type]  # the point of it

"""The door: how deep a body may nest, what a subject is, what time a record has, and that bytes are a pure function of a value."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apportion.core import events as ev
from apportion.core.envelope import MAX_DEPTH, encode, split_subject, subject_of, too_deep
from apportion.core.units import MAX_ELAPSED_MS, MAX_TIME_MS, next_time_ms
from tests.core.story import Story
from tests.strategies import poison_bodies

quick = settings(derandomize=True, max_examples=60, deadline=None)
TEXT = st.text(st.sampled_from('[]{}"\\,: a\u00e9\u2028'), max_size=12)


def depth(value: Any) -> int:
    """How many arrays and objects stand inside each other."""
    if isinstance(value, dict):
        return 1 + max((depth(entry) for entry in value.values()), default=0)
    if isinstance(value, list):
        return 1 + max((depth(entry) for entry in value), default=0)
    return 0


@quick
@given(st.recursive(TEXT, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3)), st.data())
def test_nesting_is_counted_outside_of_strings(value: Any, data: st.DataObject) -> None:
    for _ in range(data.draw(st.integers(MAX_DEPTH - 8, MAX_DEPTH + 2))):
        value = [value] if data.draw(st.booleans()) else {"k": value, '"[{\\': "]]]]"}

    for body in (encode(value), json.dumps(value, ensure_ascii=data.draw(st.booleans()), indent=1).encode()):
        assert too_deep(body) == (depth(value) > MAX_DEPTH)


@quick
@given(poison_bodies(), st.sampled_from(["pool.defined", "node.heartbeat", "clock.tick", "log.opened"]))
def test_no_bytes_stop_the_core_before_the_log_is_opened_or_after(body: bytes, event_type: str) -> None:
    story = Story()
    story.send(subject_of("ops", event_type), body)
    story.open()
    story.send(subject_of("ops", event_type), body)

    assert len([d for d in story.tick().decisions if type(d).__name__ == "Rejected"]) == 2


@pytest.mark.parametrize(
    "subject",
    [
        "", "ap", "ap.ev", "ap.ev.", "ap.ev.x", "ap.ev.x.", "ap.ev..pool.defined", "ap.dec.x.pool.defined", "AP.ev.x.y",
        "x.ap.ev.ops.y", "ap.ev.\udcff.pool.defined", "ap.ev.\u00e9.pool.defined",
    ],
)  # fmt: skip
def test_a_subject_of_another_form_is_refused_and_can_be_written(subject: str) -> None:
    assert split_subject(subject) is None
    story = Story()
    story.open()
    story.send(subject, ev.encode_event(ev.PoolDefined(pool="p"), event_id="e", at_ms=story.now_ms))

    (refused,) = story.tick().decisions
    assert getattr(refused, "reason", "") == "malformed_subject"
    story.restart()


@quick
@given(st.permutations(["b", "a", "c", "aa"]), st.integers())
def test_equal_values_have_equal_bytes(order: list[str], number: int) -> None:
    number %= 2**63
    assert encode(dict.fromkeys(order, number)) == encode(dict.fromkeys(sorted(order), number))


def test_a_subject_gives_back_what_it_was_made_of() -> None:
    for name, _ in ev.EVENTS:
        assert split_subject(subject_of("agent-n1", name)) == ("agent-n1", name)


@pytest.mark.parametrize(
    ("time_ms", "claimed_ms", "stated", "stored"),
    [
        (100, 100, 100, 100),
        (100, 101, 101, 101),
        (100, 99, 100, 100),
        (100, -1, None, 100),
        (100, 100 + MAX_ELAPSED_MS, 100 + MAX_ELAPSED_MS, 100 + MAX_ELAPSED_MS),
        (100, 101 + MAX_ELAPSED_MS, None, 100 + MAX_ELAPSED_MS),
        (MAX_TIME_MS - 1, MAX_TIME_MS, MAX_TIME_MS, MAX_TIME_MS),
        (MAX_TIME_MS - 1, MAX_TIME_MS + 1, None, MAX_TIME_MS),
    ],
)
def test_time_never_runs_backwards_and_follows_in_bounded_steps(
    time_ms: int, claimed_ms: int, stated: int | None, stored: int
) -> None:
    assert next_time_ms(time_ms, claimed_ms, stated=True) == stated
    assert next_time_ms(time_ms, claimed_ms, stated=False) == stored

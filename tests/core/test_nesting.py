"""Deeply nested JSON is refused by counting, never by how deep the caller's own stack happens to be."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apportion.core.envelope import MAX_BODY_BYTES, MAX_DEPTH, decode_envelope, too_deep

PADDING = b" " * 512


def depth_of(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + max((depth_of(inner) for inner in value.values()), default=0)
    if isinstance(value, list):
        return 1 + max((depth_of(inner) for inner in value), default=0)
    return 0


def body_of(depth: int) -> bytes:
    """Return an envelope whose data holds ``depth`` arrays inside each other."""
    return b'{"id":"x","type":"node.left","data":' + b"[" * depth + b"]" * depth + b"}" + PADDING


texts = st.text(st.sampled_from('ab[]{}"\\ü\n'), max_size=12)
values = st.recursive(texts, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4))


@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(values, st.integers(0, 2 * MAX_DEPTH), st.booleans())
def test_depth_is_counted_outside_of_texts(value: Any, levels: int, plain: bool) -> None:
    for _ in range(levels):
        value = [value, "]" * 3]
    body = json.dumps(value, ensure_ascii=plain).encode() + PADDING

    assert too_deep(body) == (depth_of(value) > MAX_DEPTH)


@pytest.mark.parametrize("levels", [1, MAX_DEPTH - 1, MAX_DEPTH, 200, 900, 1_100, 100_000])
def test_the_answer_does_not_depend_on_the_callers_stack(levels: int) -> None:
    def answer(frames: int) -> str:
        if frames:
            return answer(frames - 1)
        try:
            decode_envelope(body_of(levels))
        except msgspec.DecodeError as error:
            return str(error)
        return "read"

    assert len({answer(0), answer(100), answer(400)}) == 1
    assert (answer(0) == "read") == (levels < MAX_DEPTH)


@pytest.mark.parametrize("unit", [b"[", b"[]", b'"', b'\\"', b'"\\', b'"[', b"[{", b'"a'])
def test_counting_is_linear_in_the_body(unit: bytes) -> None:
    """A backtracking search would take minutes here; the test's own time limit would tell."""
    for start in (b"", b'"', b"[]" * MAX_DEPTH + b'"'):
        body = (start + unit * MAX_BODY_BYTES)[:MAX_BODY_BYTES]
        assert too_deep(body) in (True, False)

"""Many keys at once: a key index that was filled by lines, and the lines that are read from one, are those of key by key."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from apportion.core.kernels import keys, named

KEYS = st.sampled_from(("", "a", "b#1", "longer-than-that#12", "\u00e9", "x" * (keys.NAME_BYTES - 1), "y" * keys.NAME_BYTES))


@settings(derandomize=True, max_examples=60, deadline=None)
@given(st.lists(KEYS, min_size=1, max_size=12), st.data())
def test_many_at_once_are_as_one_by_one(texts: list[str], data: st.DataObject) -> None:
    told = [text if text and texts.index(text) == row else "" for row, text in enumerate(texts)]
    names, one_by_one = (np.zeros((len(told), keys.NAME_BYTES), dtype=np.uint8) for _way in range(2))
    slots, slots_one_by_one = (np.zeros(64, dtype=np.int64) for _way in range(2))
    fits = [text.encode() if text.isascii() and len(text) < keys.NAME_BYTES else b"" for text in told]
    for row, key in enumerate(fits):
        keys.rename(row, key, one_by_one, slots_one_by_one)

    assert named.enter(np.frombuffer("\n".join(told).encode(), dtype=np.uint8), names, slots) == len(told)

    assert (names.tolist(), slots.tolist()) == (one_by_one.tolist(), slots_one_by_one.tolist())
    rows = data.draw(st.lists(st.integers(0, len(told) - 1), max_size=6))
    assert named.lines(names, np.array(rows, dtype=np.int64)).tobytes() == b"\n".join(fits[row] for row in rows)


def test_more_lines_than_rows_are_told() -> None:
    names, slots = np.zeros((2, keys.NAME_BYTES), dtype=np.uint8), np.zeros(16, dtype=np.int64)

    assert named.enter(np.frombuffer(b"a\nb\nc", dtype=np.uint8), names, slots) == -1

"""A second state, equal to a first: for whoever wants to imagine what would be, and throws it away.

A pure function; the same as a snapshot taken and restored, at a tenth of the price, because nothing is written as bytes or hashed.
What the first remembers of its own page hashes is not taken over: the digest of the second hashes everything once.
"""

from __future__ import annotations

from copy import copy
from dataclasses import fields, replace
from typing import Any

import numpy as np

from apportion.core.state.frames import Frames
from apportion.core.state.memo import Memo
from apportion.core.state.rows import Rows
from apportion.core.state.state import Counters, State
from apportion.core.state.table import Table


def copy_of(state: State) -> State:
    """Return an independent copy, with the same rows, free lists and queue, so the same digest and the same decisions."""
    twin = State()
    for item in fields(State):
        value = getattr(state, item.name)
        if isinstance(value, Table):
            getattr(twin, item.name).copy_from(value)
        else:
            setattr(twin, item.name, _copied(item.name, value))
    return twin


def _copied(name: str, value: Any) -> Any:
    """Return a value of its own; entries of lists and dicts are replaced and never changed, so they may be shared."""
    if isinstance(value, Counters):
        return replace(value)
    if isinstance(value, Rows):
        rows = Rows()
        rows.add_all(value)
        return rows
    if isinstance(value, Frames):
        return value.copied()
    if isinstance(value, Memo):
        return Memo()
    if isinstance(value, np.ndarray | list | dict):
        return copy(value)
    if isinstance(value, int | str | bytes):
        return value
    raise TypeError(f"State.{name} is a {type(value).__name__}: say here how it is copied")

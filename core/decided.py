"""The decisions of one cycle: most as they were made, stretches of many of one kind as columns.

``Decided`` is what a batch holds: a sequence that reads like a tuple of decisions. A *stretch* is made by whoever decides many of
the same kind at once (``listed``); it knows its own JSON, and makes the struct of a decision only when somebody asks for it.

Pure data; equal to any sequence of equal decisions. It must never matter to anybody how a decision is held.
"""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import TypeVar, overload

from apportion.core.envelope import encode

D = TypeVar("D", covariant=True)


class Stretch(Sequence[D]):
    """Decisions of one kind that follow each other."""

    @abstractmethod
    def encoded(self) -> bytes:
        """Return the JSON of its decisions with commas between: exactly the bytes of their structs."""


class Decided(Sequence[D]):
    """Decisions in their order, as parts: plain sequences of structs, and stretches."""

    def __init__(self, parts: Sequence[Sequence[D]]) -> None:
        self._parts = [part for part in parts if len(part)]
        self._ends = list(accumulate(len(part) for part in self._parts))

    def __len__(self) -> int:
        """Return how many decisions there are."""
        return self._ends[-1] if self._ends else 0

    @overload
    def __getitem__(self, index: int) -> D: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[D]: ...
    def __getitem__(self, index: int | slice) -> D | Sequence[D]:
        """Return one decision, or several as a tuple."""
        if isinstance(index, slice):
            return tuple(self)[index]
        at = index + len(self) if index < 0 else index
        if not 0 <= at < len(self):
            raise IndexError(f"decision {index} of {len(self)}")
        part = bisect_right(self._ends, at)
        return self._parts[part][at - self._ends[part] + len(self._parts[part])]

    def __iter__(self) -> Iterator[D]:
        """Walk over the decisions."""
        for part in self._parts:
            yield from part

    def __eq__(self, other: object) -> bool:
        """Tell whether another sequence holds equal decisions in this order."""
        if not isinstance(other, Sequence) or isinstance(other, str | bytes):
            return NotImplemented
        return len(self) == len(other) and all(one == two for one, two in zip(self, other, strict=True))

    def __repr__(self) -> str:
        """Show the decisions."""
        return f"{type(self).__name__}({list(self)!r})"

    def encoded(self) -> bytes:
        """Return the JSON array of the decisions."""
        parts = (part.encoded() if isinstance(part, Stretch) else encode(part)[1:-1] for part in self._parts)
        return b"[%b]" % b",".join(parts)

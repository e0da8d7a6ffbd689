"""The frames of records that are not in the chain yet: part of the state, kept in as few pieces as they came in.

A frame is what the chain hashes of a record (``digest.frame_of``). Whoever folds many records at once adds their frames as one
piece; the digest and the chain hash the pieces one after the other, which is the same bytes. It decides nothing.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


class Frames:
    """Frames in the order of the log. ``pieces`` together are all of their bytes; the first begins with the first frame."""

    __slots__ = ("_count", "_ends", "pieces")

    def __init__(self, frames: list[bytes] | None = None) -> None:
        self.pieces: list[bytes] = list(frames or ())
        self._ends: list[NDArray[np.int64] | None] = [None] * len(self.pieces)  # of each frame in a piece; None: it is one
        self._count = len(self.pieces)

    def __len__(self) -> int:
        """Return the number of frames."""
        return self._count

    def append(self, frame: bytes) -> None:
        """Add one frame."""
        self.pieces.append(frame)
        self._ends.append(None)
        self._count += 1

    def extend(self, frames: list[bytes]) -> None:
        """Add frames, each a piece of its own."""
        self.pieces.extend(frames)
        self._ends.extend([None] * len(frames))
        self._count += len(frames)

    def join(self, piece: bytes, ends: NDArray[np.int64]) -> None:
        """Add many frames that are one piece already; ``ends``: where each ends in it, which must not change afterwards."""
        self.pieces.append(piece)
        self._ends.append(ends)
        self._count += len(ends)

    def split(self) -> list[bytes]:
        """Return each frame by itself."""
        found: list[bytes] = []
        for piece, ends in zip(self.pieces, self._ends, strict=True):
            if ends is None:
                found.append(piece)
                continue
            start = 0
            for end in ends.tolist():
                found.append(piece[start:end])
                start = end
        return found

    def clear(self) -> None:
        """Forget all of them: they are in the chain."""
        self.pieces.clear()
        self._ends.clear()
        self._count = 0

    def copied(self) -> Frames:
        """Return as many frames that go on by themselves."""
        twin = Frames()
        twin.pieces, twin._ends, twin._count = list(self.pieces), list(self._ends), self._count
        return twin

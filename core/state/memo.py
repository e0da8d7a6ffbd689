"""What a cycle found and the next one may find again: kept beside the state, so that nothing is looked for twice.

None of it is part of the state: it is not in the digest, no snapshot holds it, a copy begins without it. And none of it may change
what is decided: a core that was just restored decides the same (a property test drops it before every cycle).

What is kept tells of runs, what they hold, GPUs, nodes and the lines of the tree as they were at one ``State.moved``, a number that
is another as soon as one of these may have changed: every record and every decision that is folded makes it so, but for the few
kinds of which it is known that they leave all this alone (``fold.records``, ``fold.outcomes``). Not covered, so to be looked at
anew in every cycle: time, money, lags and demand, shares, who waits, and when nodes were heard of last.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from apportion.core.kernels import serve
from apportion.core.kernels.release import Releases

I64 = NDArray[np.int64]


class Payers(NamedTuple):
    """Every run has the payer that it should have, until an instant, while twice the allowance of each line is within bounds."""

    until_ms: int
    least: I64  # per budget line, milli-GPU
    most: I64


class Reserved(NamedTuple):
    """Protected time that is promised and not charged, per budget line: ``left_us - milli * (now - from_ms)``, until an instant."""

    from_ms: int
    until_ms: int
    left_us: I64
    milli: I64

    def at(self, now_ms: int) -> I64:
        """Return how much that is now, per line: an array of the caller's own."""
        return self.left_us - self.milli * (now_ms - self.from_ms)


class Offered(NamedTuple):
    """How many nodes have at least k GPUs, and how many GPUs the largest of them has: in service, and free."""

    ever: list[int]
    now: list[int]
    largest: int
    largest_now: int


class Outliving(NamedTuple):
    """What a start leaves as it was, or is made to tell of it: see ``Memo.outliving``."""

    free_ms: I64 | None
    releases: dict[tuple[int, bool], Releases]
    drains: bool | None


class Memo:
    """All that is kept; None, or no entry, = not known."""

    def __init__(self) -> None:
        self._moved = -1
        self.spare_stocks: dict[int, serve.Stock] = {}  # per pool: arrays that are used again, whatever is in them
        self.spare_open: I64 | None = None  # the same: 2 x positions of the queue
        self.forget()

    def forget(self) -> None:
        """Know nothing."""
        self.payers: Payers | None = None
        self.free_ms: I64 | None = None  # per GPU row its last release, as it is known and as it is guessed
        self.releases: dict[tuple[int, bool], Releases] = {}  # by pool, and whether it is guessed
        self.ends: serve.Ends | None = None
        self.stocks: dict[int, tuple[serve.Stock, int]] = {}  # per pool, and what is free there, milli-GPU
        self.offers: dict[int, Offered] = {}  # per pool
        self.capacity_milli: dict[int, int] = {}  # per pool
        self.reserved: Reserved | None = None
        self.runs_in: dict[tuple[int, ...], list[int]] = {}  # by phases: the rows of runs in one of them, ascending
        self.failing: list[int] | None = None  # nodes whose last starts all failed
        self.drains: bool | None = None  # a node is drained
        self.held: list[int] | None = None  # workloads that GPUs are held for, in the order of the queue
        self.proposed: list[int] | None = None  # workloads for which moves were proposed

    def at(self, moved: int) -> Memo:
        """Return what is known at this ``State.moved``."""
        if moved != self._moved:
            self._moved = moved
            self.forget()
        return self

    @property
    def outliving(self) -> Outliving:
        """Return what holds after starts too, once ``free_ms`` and ``releases`` tell of them (``policy.fitting``)."""
        return Outliving(self.free_ms, self.releases, self.drains)

    def put_back(self, kept: Outliving) -> None:
        """Know that at this number too."""
        self.free_ms, self.releases, self.drains = kept

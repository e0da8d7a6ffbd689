"""Plain heartbeats of a range as columns: which agent, when, which count. They tell that a node lives, and nothing else.

A heartbeat that names broken GPUs or runs is not plain and stays a record of its own (``history``). What a plain one says of
use and power decides nothing and is not kept, so the heartbeats of a month fit into memory; ``thinned`` keeps as many as a
timeout needs. Pure data; the instants are those of the log.
"""

from __future__ import annotations

from array import array
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from apportion.core.fold.beats import plain_decoder

I64 = NDArray[np.int64]
_BODY = b'{"at_ms":%d,"data":{"node":"%b","beat":%d},"id":"%b.%d","type":"node.heartbeat","v":1}'
_TYPE = "node.heartbeat"
Item = tuple[
    int, int, int, str, bytes
]  # instant, 0 = of history or 1 = made, number, subject, body: in the order of folding


class Speaker(NamedTuple):
    """Who sends heartbeats for which node."""

    subject: str
    node: str
    wire: bytes


class Beats:
    """Heartbeats in the order of the log."""

    def __init__(self) -> None:
        self.speakers: list[Speaker] = []
        self._number: dict[tuple[str, str], int] = {}
        self._seq, self._time_ms, self._who, self._beat = array("q"), array("q"), array("q"), array("q")
        self._begin = 0

    def __len__(self) -> int:
        return len(self._seq)

    def take(self, seq: int, time_ms: int, subject: str, body: bytes) -> str | None:
        """Keep a heartbeat when it is plain and return its node; else None."""
        if body.count(b"{") > 2 or b"[" in body:
            return None
        said = plain_decoder.decode(body)
        data = said.data
        if said.type != _TYPE or said.v != 1 or data.gpus_down or data.runs is not None:
            return None
        self.add(seq, time_ms, subject, data.node, data.beat)
        return data.node

    def add(self, seq: int, time_ms: int, subject: str, node: str, beat: int) -> None:
        """Keep a heartbeat."""
        who = self._number.get((subject, node))
        if who is None:
            who = self._number[subject, node] = len(self.speakers)
            self.speakers.append(Speaker(subject, node, node.encode()))
        self._seq.append(seq)
        self._time_ms.append(time_ms)
        self._who.append(who)
        self._beat.append(beat)

    def thinned(self, apart_ms: int) -> Beats:
        """Return the beats that a timeout needs: of each node one in ``apart_ms``, and both sides of a gap."""
        seq, time_ms, who, beat = self._columns()
        keep = np.zeros(len(seq), dtype=bool)
        for number in range(len(self.speakers)):
            rows = np.flatnonzero(who == number)
            times = time_ms[rows]
            bucket = times // apart_ms
            keep[rows[np.flatnonzero(np.diff(bucket, prepend=-1))]] = True
            gap = np.flatnonzero(np.diff(times) > apart_ms)
            keep[rows[gap]] = keep[rows[gap + 1]] = True
            keep[rows[-1:]] = True
        found = Beats()
        found.speakers, found._number = self.speakers, self._number
        columns = (found._seq, found._time_ms, found._who, found._beat)
        for target, values in zip(columns, (seq, time_ms, who, beat), strict=True):
            target.frombytes(values[keep].tobytes())
        return found

    def _columns(self) -> tuple[I64, I64, I64, I64]:
        if not len(self._seq):
            none = np.zeros(0, dtype=np.int64)
            return none, none, none, none
        columns = (self._seq, self._time_ms, self._who, self._beat)
        found = tuple(np.frombuffer(column, dtype=np.int64) for column in columns)
        return found[0], found[1], found[2], found[3]


class Cursor:
    """Hands beats out once, in order; those of the nodes that are ``gone`` not at all."""

    def __init__(self, beats: Beats, gone: frozenset[str] = frozenset()) -> None:
        self._seq, self._time_ms, self._who, self._beat = beats._columns()
        self._speakers = beats.speakers
        self._gone = gone
        self._at = 0

    def take(self, to_ms: int, to_seq: int | None = None) -> list[Item]:
        """Return the beats up to an instant, and up to a record where one is named, as records are folded."""
        begin, end = self._at, int(np.searchsorted(self._time_ms, to_ms, side="right"))
        if to_seq is not None:
            end = min(end, int(np.searchsorted(self._seq, to_seq, side="right")))
        if begin >= end:
            return []
        self._at = end
        columns = (self._seq, self._time_ms, self._who, self._beat)
        found: list[Item] = []
        speakers, gone = self._speakers, self._gone
        for number, at_ms, by, count in zip(*(column[begin:end].tolist() for column in columns), strict=True):
            subject, node, wire = speakers[by]
            if not gone or node not in gone:
                found.append((at_ms, 0, number, subject, _BODY % (at_ms, wire, count, wire, count)))
        return found

"""Plain heartbeats of a range as columns: which agent, when, which count. They tell that a node lives, and nothing else.

A heartbeat that names broken GPUs or runs is not plain and stays a record of its own (``history``). What a plain one says of
use and power decides nothing and is not kept, so the heartbeats of a month fit into memory; ``thinned`` keeps as many as a
timeout needs. Pure data; the instants are those of the log.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
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


class Plain(NamedTuple):
    """Plain heartbeats in a row, but for other records: who (a number of ``speakers``: subject, node), when, which beat."""

    speakers: Sequence[tuple[str, str]]
    seq: I64
    time_ms: I64
    who: I64
    beat: I64

    def by_node(self) -> Iterator[tuple[str, I64, I64]]:
        """Yield the records and instants of each node that is heard."""
        names = list(dict.fromkeys(node for _subject, node in self.speakers))
        number = {name: place for place, name in enumerate(names)}
        node = np.array([number[name] for _subject, name in self.speakers], dtype=np.int64)[self.who]
        order = np.argsort(node, kind="stable")
        ends = np.cumsum(np.bincount(node, minlength=len(names)))
        for name, rows in zip(names, np.split(order, ends[:-1]), strict=True):
            if len(rows):
                yield name, self.seq[rows], self.time_ms[rows]


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
        self._seq.append(seq)
        self._time_ms.append(time_ms)
        self._who.append(self._number_of(subject, node))
        self._beat.append(beat)

    def _number_of(self, subject: str, node: str) -> int:
        who = self._number.get((subject, node))
        if who is None:
            who = self._number[subject, node] = len(self.speakers)
            self.speakers.append(Speaker(subject, node, node.encode()))
        return who

    def add_all(self, place: int, beats: Plain) -> None:
        """Keep many; those that are kept from ``place`` on already lie among them."""
        number = np.full(len(beats.speakers), -1, dtype=np.int64)
        for one in np.unique(beats.who).tolist():
            number[one] = self._number_of(*beats.speakers[one])
        columns, mixed = (self._seq, self._time_ms, self._who, self._beat), len(self._seq) > place
        for column, values in zip(columns, (beats.seq, beats.time_ms, number[beats.who], beats.beat), strict=True):
            column.frombytes(values.tobytes())
        if mixed:
            order = np.argsort(np.array(self._seq[place:], dtype=np.int64), kind="stable")
            for column in columns:
                column[place:] = array("q", np.array(column[place:], dtype=np.int64)[order].tobytes())

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
        self.speakers = beats.speakers
        columns = beats._columns()
        if gone:
            here = np.array([speaker.node not in gone for speaker in beats.speakers], dtype=bool)[columns[2]]
            columns = (columns[0][here], columns[1][here], columns[2][here], columns[3][here])
        self._seq, self.time_ms, self.who, self.beat = columns
        self._at = 0

    def take(self, to_ms: int, to_seq: int | None = None) -> slice:
        """Return where the beats up to an instant are, and up to a record where one is named, as records are folded."""
        begin, end = self._at, int(np.searchsorted(self.time_ms, to_ms, side="right"))
        if to_seq is not None:
            end = min(end, int(np.searchsorted(self._seq, to_seq, side="right")))
        self._at = max(begin, end)
        return slice(begin, self._at)

    def items(self, taken: slice) -> list[Item]:
        """Return beats as they are folded."""
        columns = (self._seq[taken], self.time_ms[taken], self.who[taken], self.beat[taken])
        found: list[Item] = []
        for number, at_ms, by, count in zip(*(column.tolist() for column in columns), strict=True):
            subject, _node, wire = self.speakers[by]
            found.append((at_ms, 0, number, subject, _BODY % (at_ms, wire, count, wire, count)))
        return found

    def record(self, position: int) -> tuple[str, bytes]:
        """Return subject and body of one."""
        _at_ms, _kind, _number, subject, body = self.items(slice(position, position + 1))[0]
        return subject, body

    def before(self, taken: slice, items: list[Item]) -> I64:
        """Return how many of the beats taken are folded before each of ``items``, which are in order."""
        seqs, times_ms = self._seq[taken], self.time_ms[taken]
        at_ms = np.array([item[0] for item in items], dtype=np.int64)
        first, last = np.searchsorted(times_ms, at_ms), np.searchsorted(times_ms, at_ms, side="right")
        kinds = np.array([item[1] for item in items], dtype=np.int64)
        found: I64 = np.where(kinds < 0, first, last)
        for place in np.flatnonzero((first < last) & (kinds == 0)).tolist():  # of one instant: in the order of the log
            found[place] = first[place] + np.searchsorted(seqs[first[place] : last[place]], items[place][2])
        return found

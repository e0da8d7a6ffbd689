"""A segment of events as it is read: columns that a fold looks at, and records made again of them, byte for byte.

What a fold looks at is read at once; amounts and ids of heartbeats, which only their bytes need, when the first is asked for.
A pure function of the sections of a verified segment; the inverse of ``columns.sections``. It never writes a file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np

from apportion.adapters.logs import heartbeats as code
from apportion.adapters.logs import packed
from apportion.adapters.logs.columns import FOLDED, TOLD, Expected, names_of
from apportion.core.envelope import MAX_BODY_BYTES, Record
from apportion.core.errors import LogMismatch
from apportion.core.fold.columns import Room
from apportion.core.fold.text import Text
from apportion.core.kernels.reports import READ

_NOTHING = np.zeros(0, dtype=np.uint8)
_USED = (("busy", code.USE), ("memory", code.SPACE), ("watts", code.POWER))  # the same, where they are read
_RUNS = b',"runs":['
_WRONG = (
    *(f"its column {name} has not as many numbers as it has records of their kind" for name, _row in TOLD + FOLDED),
    "its columns name a subject that it has not",
    "its columns name a fragment that it has not",
    "its column length has not as many numbers as it has records of their kind",
)


class Sheet:
    """A segment's records as columns: ``told`` says of each what a fold looks at, its places are in ``data``."""

    def __init__(
        self, subjects: Sequence[str], nodes: Sequence[str], count: int, expected: Expected, section: Callable[[str], bytes],
        room: Room | None = None,
    ) -> None:  # fmt: skip
        """Read what a fold looks at; ``section`` gives a section's text, ``subjects`` and ``nodes`` are the speakers'.

        With ``room`` the sheet before, which was read into the same, is as good as gone.

        Raises ``LogMismatch`` where they do not fit.
        """
        if len(nodes) != len(subjects):
            raise LogMismatch("it has not a node for each of its subjects")
        self.subjects, self.nodes = subjects, nodes
        self._count, self._expected = count, expected
        self._amounts: code.I64 | None = None  # until the bytes are wanted
        self._nothing = np.zeros((code.AMOUNTS, 0), dtype=np.int64)
        self._ids = _NOTHING
        self._section = section
        self._node_names, self._node_starts = names_of(nodes)
        sizes, self._lengths = self._numbers("fragment"), self._numbers("length")
        begins = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(sizes)))
        fragments, bodies = section("fragments"), section("bodies")
        if len(sizes) and (sizes.min() < 0 or begins[-1] > len(fragments)):
            raise LogMismatch("its fragments are not as long as it says")
        self._bodies_at = int(begins[-1])
        self.data = np.frombuffer(b"".join((fragments[: self._bodies_at], bodies, b"\0")), dtype=np.uint8)
        self.told = (room or Room()).of(count)
        self._others = np.empty(len(self._lengths), dtype=np.int64)  # the positions of what is kept as it was
        regular, who, stored, at_ms, beat, down, tail = (
            np.frombuffer(section(name), dtype=np.uint8) for name, _row in TOLD + FOLDED
        )
        wrong = packed.read(
            regular, who, stored, at_ms, beat, down, tail, begins, self._lists(fragments, begins.tolist()), self._lengths,
            MAX_BODY_BYTES, len(subjects), expected.interval_ms, self.told, self._others,
        )  # fmt: skip
        if wrong:
            raise LogMismatch(_WRONG[wrong - 1])
        if self._lengths.min(initial=0) < 0 or int(self._lengths.sum()) > len(bodies):
            raise LogMismatch("its bodies are not as long as it says")
        self._ends = np.cumsum(self._lengths) + self._bodies_at

    @staticmethod
    def _lists(fragments: bytes, begins: list[int]) -> code.U8:
        """Return 1 for each fragment that is a list of runs."""
        spans = pairwise(begins)
        found = [end - begin > len(_RUNS) and fragments.startswith(_RUNS, begin) for begin, end in spans]
        return np.array(found, dtype=np.uint8)

    @property
    def heartbeats(self) -> int:
        """How many records are kept as numbers."""
        return self._count - len(self._lengths)

    def _numbers(self, name: str, count: int | None = None) -> code.I64:
        text = np.frombuffer(self._section(name), dtype=np.uint8)
        values = np.empty(int((text < 128).sum()) if count is None else count, dtype=np.int64)
        if not packed.unpack(text, values):
            raise LogMismatch(f"its column {name} has not as many numbers as it has records of their kind")
        return values

    def _complete(self) -> code.I64:
        """Read what only the bytes need, once: amounts and ids of all records."""
        if self._amounts is not None:
            return self._amounts
        amounts, told = np.zeros((code.AMOUNTS, self._count), dtype=np.int64), self.told
        regular = np.flatnonzero(told.form & READ)
        who = told.who[regular]  # a stable sort of short numbers is one by digits
        order = regular[np.argsort(who.astype(np.uint16) if len(self.subjects) < 1 << 16 else who, kind="stable")]
        for name, row in _USED:
            amounts[row, order] = self._numbers(name, len(order))
        packed.untangle_amounts(amounts, told.who, told.form, len(self.subjects), self._expected.slope)
        ids = self._section("ids")
        explicit = regular[self._numbers("id", len(regular)) == 1]
        sizes = np.array([len(text) for text in ids.split(b"\n")] if len(explicit) else [], dtype=np.int64)
        if len(sizes) != len(explicit):
            raise LogMismatch("it has not as many ids as heartbeats that need one")
        amounts[code.ID_BYTES, explicit] = sizes
        amounts[code.ID_AT, explicit] = np.cumsum(sizes + 1) - sizes - 1
        self._ids, self._amounts = np.frombuffer(ids + b"\0", dtype=np.uint8), amounts
        return amounts

    def _bodies(self, start: int, count: int) -> tuple[code.U8, code.I64]:
        """Return the bodies of ``count`` records from position ``start`` on in one text, byte for byte, and where each ends."""
        return self._put_together(start, count, self._complete(), self._ids)

    def _put_together(self, start: int, count: int, amounts: code.I64, ids: code.U8) -> tuple[code.U8, code.I64]:
        told, part = self.told, slice(start, start + count)
        first, last = np.searchsorted(self._others, (start, start + count)).tolist()
        mine = told.form[part] & READ == READ
        nodes = np.diff(self._node_starts)[told.who[part][mine]]
        size = int(self._lengths[first:last].sum() + 2 * nodes.sum() + amounts[code.ID_BYTES, part].sum())
        size += int(told.length[part][mine].sum() + told.down_length[part][mine].sum())
        size += (len(nodes) + 1) * (8 * (code.MOST_DIGITS + 24) + code.RUNS_BYTES + code.BROKEN_BYTES + 1)
        out, ends = np.empty(size, dtype=np.uint8), np.empty(count, dtype=np.int64)
        begin = int(self._ends[first] - self._lengths[first]) if first < len(self._ends) else 0
        filled = code.put_together(
            told, start, count, self._lengths[first:last], self.data[begin:], amounts, self._node_names, self._node_starts,
            self.data, ids, out, ends,
        )  # fmt: skip
        if filled < 0:
            raise LogMismatch("its bodies are not as long as it says")
        return out[:filled], ends

    def record(self, position: int, first_seq: int) -> Record:
        """Return one record; ``first_seq`` is the first one's sequence."""
        return self._record(position, first_seq, self._complete)

    def folded(self, position: int, first_seq: int) -> Record:
        """Return one record as far as a state depends on it: of a heartbeat without use, memory and power, under its usual id.

        What is left out takes longer to read than all the rest, and of a whole day six heartbeats are asked for.
        """
        return self._record(position, first_seq, self._no_amounts)

    def _no_amounts(self) -> code.I64:
        if self._nothing.shape[1] != self._count:
            self._nothing = np.zeros((code.AMOUNTS, self._count), dtype=np.int64)  # which nobody fills in
        return self._nothing

    def _record(self, position: int, first_seq: int, amounts: Callable[[], code.I64]) -> Record:
        told = self.told
        if told.form[position] & READ:
            body = self._put_together(position, 1, amounts(), self._ids)[0].tobytes()
        else:
            start = int(told.start[position])
            body = self.data[start : start + int(told.length[position])].tobytes()
        return Record(first_seq + position, int(told.stored_ms[position]), self.subjects[told.who[position]], body)

    def text(self, first_seq: int, start: int, count: int) -> Text:
        """Return ``count`` records from position ``start`` on, their bodies in one text; ``first_seq`` is the sheet's."""
        bodies, ends = self._bodies(start, count)
        who, stored_ms = self.told.who[start : start + count], self.told.stored_ms[start : start + count]
        return Text(first_seq + start, self.subjects, who, stored_ms, bodies, ends)

    def records(self, first_seq: int) -> list[Record]:
        """Return the records, the first with ``first_seq``."""
        bodies, places = self._bodies(0, self._count)
        text, ends = bodies.tobytes(), places.tolist()
        stored, who = self.told.stored_ms.tolist(), self.told.who.tolist()
        subjects, make, record = self.subjects, tuple.__new__, Record
        records, start = [], 0
        for seq, (stored_ms, row, end) in enumerate(zip(stored, who, ends, strict=True), first_seq):
            records.append(make(record, (seq, stored_ms, subjects[row], text[start:end])))
            start = end
        return records

"""The contiguous form of a segment of events: heartbeats as small numbers, everything else as the bytes it was.

Nine records in ten are heartbeats in one spelling, and say what could be expected: the next beat of the same node, ten
seconds later. So a segment keeps, per heartbeat, only its difference from that (``packed``), column by column, deflated;
of a list of runs whether it is the last one again; of an id nothing where it is the node's name and beat, as agents make it.
The bytes of every body can be made again exactly; a body of which that is not so is kept as it is. An id that was drawn at
random is as long as it was: sixteen bytes of chance cannot be written in fewer.

A *speaker* is a subject, and the node its heartbeats are of: whoever speaks for several nodes is several speakers.

``sections`` and ``Sheet`` are inverses of each other: pure functions of records, and of the sections of a verified segment.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from itertools import pairwise

import msgspec
import numpy as np

from apportion.adapters.logs import heartbeats as code
from apportion.adapters.logs import packed
from apportion.core.envelope import MAX_BODY_BYTES, Record, split_subject
from apportion.core.errors import LogMismatch
from apportion.core.fold.columns import room_for
from apportion.core.fold.text import Text
from apportion.core.kernels.reports import READ

HEARTBEAT = ".node.heartbeat"
LEVEL = 6
SPEAKERS_MOST = 32_768  # with a node: the header that names them stays far below what is read of one
NODE_BYTES_MOST = 128  # as in the core: no node has a longer name
_NODE = code.NODE.tobytes()
_NODE_STANDS = 9 + 13  # of a heartbeat of these centuries: its instant has thirteen digits
_NODE_BEGINS = 9 + code.MOST_DIGITS  # at most, after `{"at_ms":` and a number
_NONE = np.zeros(0, dtype=np.int64)
_NOTHING = np.zeros(0, dtype=np.uint8)
_TOLD = (("regular", code.REGULAR), ("who", code.WHO), ("stored", code.STORED_MS))  # of every record
_FOLDED = (("at", code.AT_MS), ("beat", code.BEAT), ("down", code.DOWN), ("tail", code.TAIL))  # of heartbeats
_NAMED = (("id", code.ID),)  # of heartbeats, too
_AMOUNTS = (("busy", code.BUSY), ("memory", code.MEMORY), ("watts", code.WATTS))  # of heartbeats, node by node
_USED = (("busy", code.USE), ("memory", code.SPACE), ("watts", code.POWER))  # the same, where they are read
_RUNS = b',"runs":['
_WRONG = (
    *(f"its column {name} has not as many numbers as it has records of their kind" for name, _row in _TOLD + _FOLDED),
    "its columns name a subject that it has not",
    "its columns name a fragment that it has not",
    "its column length has not as many numbers as it has records of their kind",
)


class Expected(msgspec.Struct, frozen=True):
    """What the differences are taken from: the usual time between two beats of a node, and power by use."""

    interval_ms: int = 0
    slope: int = 0


Sections = dict[str, bytes]
Speaker = tuple[str, str]  # subject, node


def deflated(text: bytes) -> bytes:
    """Return ``text`` compressed."""
    return zlib.compress(text, LEVEL)


def node_of(record: Record) -> str:
    """Return the node that a heartbeat names where the one spelling has it; "" for all else."""
    if not record.subject.endswith(HEARTBEAT):
        return ""
    begin = record.body.find(_NODE, 0, _NODE_BEGINS + len(_NODE)) + len(_NODE)
    end = record.body.find(b'"', begin, begin + NODE_BYTES_MOST + 1)
    name = record.body[begin:end]
    return name.decode() if begin >= len(_NODE) and end > 0 and name.isascii() else ""


def principals_of(subjects: Sequence[str]) -> list[str]:
    """Return the node each subject's heartbeats are of where a segment does not say: the principal; "" for others."""
    parts = (split_subject(subject) if subject.endswith(HEARTBEAT) else None for subject in subjects)
    return [part[0] if part is not None else "" for part in parts]


def _joined(nodes: Sequence[str]) -> tuple[code.U8, code.I64]:
    """Return the names as one text, and where each begins."""
    names = [name.encode() for name in nodes]
    starts = np.zeros(len(names) + 1, dtype=np.int64)
    np.cumsum([len(name) for name in names], out=starts[1:])
    return np.frombuffer(b"".join(names), dtype=np.uint8), starts


def sections(records: Sequence[Record], speakers: dict[Speaker, int]) -> tuple[Expected, Sections]:
    """Return the sections of a segment of ``records``; ``speakers`` is filled with who speaks in them, numbered."""
    fields = np.zeros((code.FIELDS, len(records)), dtype=np.int64)
    fields[code.WHO] = _numbered(records, speakers)
    fields[code.STORED_MS] = [record.stored_ms for record in records]
    bodies = [record.body for record in records]
    lengths = np.array([len(body) for body in bodies], dtype=np.int64)
    starts = np.zeros(len(records) + 1, dtype=np.int64)
    np.cumsum(lengths, out=starts[1:])
    joined = b"".join(bodies)
    data = np.frombuffer(joined or b"\0", dtype=np.uint8)
    nodes, node_starts = _joined([node for _subject, node in speakers])
    code.take_apart(data, starts, fields, nodes, node_starts, int(lengths.max(initial=0)))
    regular = fields[code.REGULAR] == 1
    fragments: dict[bytes, int] = {}
    for name in (code.DOWN, code.TAIL):
        spoken = np.flatnonzero(regular & (fields[name + 1] > 0))
        fields[name, regular & (fields[name + 1] == 0)] = 0
        for at in spoken.tolist():
            start = int(fields[name, at])
            text = joined[start : start + int(fields[name + 1, at])]
            fields[name, at] = fragments.setdefault(text, len(fragments)) + 1
    explicit = np.flatnonzero(regular & (fields[code.ID_LENGTH] > 0)).tolist()
    spans = [(int(fields[code.ID, at]), int(fields[code.ID_LENGTH, at])) for at in explicit]
    fields[code.ID] = 0
    fields[code.ID, explicit] = 1
    expected = _expected(fields, regular)
    order = np.argsort(fields[code.WHO, regular], kind="stable")
    packed.tangle(fields, len(speakers), expected.interval_ms, expected.slope)
    found = {name: fields[row] for name, row in _TOLD}
    found |= {name: fields[row, regular] for name, row in _FOLDED + _NAMED}
    found |= {name: fields[row, regular][order] for name, row in _AMOUNTS}
    found |= {"length": lengths[~regular], "fragment": np.array([len(text) for text in fragments], dtype=np.int64)}
    texts = {
        "ids": b"\n".join(joined[start : start + length] for start, length in spans),
        "fragments": b"".join(fragments),
        "bodies": b"".join(bodies[at] for at in np.flatnonzero(~regular).tolist()),
    }
    numbers = {name: packed.pack(np.ascontiguousarray(values)).tobytes() for name, values in found.items()}
    return expected, {name: deflated(text) for name, text in (numbers | texts).items()}


def _numbered(records: Sequence[Record], speakers: dict[Speaker, int]) -> list[int]:
    """Return the number of who speaks in each record.

    One that begins as the last of its subject did, up to the end of the node's name, is by the same speaker: no name is read.
    """
    known: dict[str, tuple[bytes, int]] = {}
    unknown = (b"", -1)
    found = []
    for record in records:
        named, number = known.get(record.subject, unknown)
        if number < 0 or not record.body.startswith(named, _NODE_STANDS):
            number = _number_of(record, speakers)
            node = node_of(record)
            if record.body.startswith(_NODE, _NODE_STANDS) and (record.subject, node) in speakers:
                known[record.subject] = _NODE + node.encode() + b'"', number
        found.append(number)
    return found


def _number_of(record: Record, speakers: dict[Speaker, int]) -> int:
    """Return the number of who speaks; beyond the most that are told apart by node, that of the subject without one."""
    speaker = (record.subject, node_of(record))
    number = speakers.get(speaker)
    if number is None:
        speaker = speaker if len(speakers) < SPEAKERS_MOST else (record.subject, "")
        number = speakers.setdefault(speaker, len(speakers))
    return number


def _expected(fields: code.I64, regular: code.U8) -> Expected:
    """Choose what to expect: the most usual interval, and the slope of power over use that leaves least."""
    order = np.flatnonzero(regular)[np.argsort(fields[code.WHO, regular], kind="stable")]
    who, times = fields[code.WHO, order], fields[code.STORED_MS, order]
    same = np.flatnonzero(who[1:] == who[:-1])
    if not len(same):
        return Expected()
    steps, counts = np.unique((times[1:] - times[:-1])[same], return_counts=True)
    busy, watts = (np.diff(fields[row, order])[same].astype(np.float64) for row in (code.BUSY, code.WATTS))
    square = float(busy @ busy)
    slope = round(float(busy @ watts) / square * (1 << packed.SLOPE_BITS)) if square > 0 else 0
    return Expected(int(steps[counts.argmax()]), slope if abs(slope) < 1 << 20 else 0)


class Sheet:
    """A segment's records as columns: ``told`` says of each what a fold looks at, its places are in ``data``."""

    def __init__(
        self, subjects: Sequence[str], nodes: Sequence[str], count: int, expected: Expected, section: Callable[[str], bytes]
    ) -> None:
        """Read what a fold looks at; ``section`` gives a section's text, ``subjects`` and ``nodes`` are the speakers'.

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
        self._node_names, self._node_starts = _joined(nodes)
        sizes, self._lengths = self._numbers("fragment"), self._numbers("length")
        begins = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(sizes)))
        fragments, bodies = section("fragments"), section("bodies")
        if len(sizes) and (sizes.min() < 0 or begins[-1] > len(fragments)):
            raise LogMismatch("its fragments are not as long as it says")
        self._bodies_at = int(begins[-1])
        self.data = np.frombuffer(b"".join((fragments[: self._bodies_at], bodies, b"\0")), dtype=np.uint8)
        self.told = room_for(count)
        self._others = np.empty(len(self._lengths), dtype=np.int64)  # the positions of what is kept as it was
        regular, who, stored, at_ms, beat, down, tail = (
            np.frombuffer(section(name), dtype=np.uint8) for name, _row in _TOLD + _FOLDED
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

"""The contiguous form of a segment of events: heartbeats as small numbers, everything else as the bytes it was.

Nine records in ten are heartbeats in one spelling, and say what could be expected: the next beat of the same node, ten
seconds later. So a segment keeps, per heartbeat, only its difference from that (``packed``), column by column, deflated;
of a list of runs whether it is the last one again; of an id nothing where it is the node's name and beat, as agents make it.
The bytes of every body can be made again exactly; a body of which that is not so is kept as it is. An id that was drawn at
random is as long as it was: sixteen bytes of chance cannot be written in fewer.

A *speaker* is a subject, and the node its heartbeats are of: whoever speaks for several nodes is several speakers.

``sections`` makes it of records, ``sheets`` reads it: inverses of each other, pure functions of records, and of the sections of a
verified segment.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import msgspec
import numpy as np

from apportion.adapters.logs import heartbeats as code
from apportion.adapters.logs import packed
from apportion.core.envelope import Record, split_subject

HEARTBEAT = ".node.heartbeat"
LEVEL = 6
SPEAKERS_MOST = 32_768  # with a node: the header that names them stays far below what is read of one
NODE_BYTES_MOST = 128  # as in the core: no node has a longer name
_NODE = code.NODE.tobytes()
_NODE_STANDS = 9 + 13  # of a heartbeat of these centuries: its instant has thirteen digits
_NODE_BEGINS = 9 + code.MOST_DIGITS  # at most, after `{"at_ms":` and a number
TOLD = (("regular", code.REGULAR), ("who", code.WHO), ("stored", code.STORED_MS))  # of every record
FOLDED = (("at", code.AT_MS), ("beat", code.BEAT), ("down", code.DOWN), ("tail", code.TAIL))  # of heartbeats
_NAMED = (("id", code.ID),)  # of heartbeats, too
_AMOUNTS = (("busy", code.BUSY), ("memory", code.MEMORY), ("watts", code.WATTS))  # of heartbeats, node by node


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


def names_of(nodes: Sequence[str]) -> tuple[code.U8, code.I64]:
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
    nodes, node_starts = names_of([node for _subject, node in speakers])
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
    found = {name: fields[row] for name, row in TOLD}
    found |= {name: fields[row, regular] for name, row in FOLDED + _NAMED}
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

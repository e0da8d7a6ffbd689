r"""Segments: the files an archive consists of.

A segment is a pure function of what it holds and of the segment before it::

    APSEG3\n | length of header u32 | header (JSON) | sections, deflated | blake2b-256 of everything before

The header names kind, day, first sequence, count, the table of speakers (subjects, and the node each one's heartbeats are
of), where each section is, and the previous segment's hash: a chain. A segment of the format before, ``APSEG2``, names no
nodes: there the node is the principal, and it is read as ever. What is in the sections of a segment of events is told in
``columns``. Files are written beside, synced and renamed, so a segment is there whole or not at all; every hash is verified
when a segment is read. A missing, altered or reordered file is a ``LogMismatch`` that names it, never a silent hole.
"""

from __future__ import annotations

import hashlib
import os
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec
import numpy as np

from apportion.core.envelope import Record, StoredBatch
from apportion.core.errors import LogMismatch

if TYPE_CHECKING:
    from apportion.adapters.logs.sheets import Sheet
    from apportion.core.fold.columns import Room

MAGIC, MAGIC_BEFORE = b"APSEG3\n", b"APSEG2\n"
HASH_BYTES = 32
ROOM_BYTES = 1 << 26  # made at once for an inflated section, if it says that it is so large

Kind = Literal["events", "decisions"]


class Section(msgspec.Struct, frozen=True):
    """A part of the content: its size as stored, and inflated."""

    name: str
    size: int
    raw_size: int


class SegmentHeader(msgspec.Struct, frozen=True, kw_only=True):
    """The JSON header of a segment. ``last_seq`` and ``first_seq`` are sequences of the stream."""

    kind: Kind
    day: str
    first_seq: int
    last_seq: int
    count: int
    previous: str  # hex hash of the segment before, "" for the first
    sections: tuple[Section, ...] = ()
    subjects: tuple[str, ...] = ()  # of the speakers: one stands here once for each of its nodes
    nodes: tuple[str, ...] | None = None  # whose heartbeats they are, "" = nobody's; None: written before there were any
    interval_ms: int = 0  # with ``slope``: what the columns of heartbeats are differences from
    slope: int = 0


class Segment(msgspec.Struct, frozen=True):
    """A file with its header read; its content is not verified yet."""

    path: Path
    header: SegmentHeader
    sections_at: int
    size: int
    hash: str  # the chain value it carries, at its end: unverified


def events_segment(day: str, previous: str, records: Sequence[Record]) -> bytes:
    """Return a whole segment of events: at least one."""
    from apportion.adapters.logs.columns import Speaker, sections  # numba: only where heartbeats are read or written

    speakers: dict[Speaker, int] = {}
    expected, texts = sections(records, speakers)
    return _whole(texts, SegmentHeader(
        kind="events", day=day, first_seq=records[0].seq, last_seq=records[-1].seq, count=len(records), previous=previous,
        subjects=tuple(subject for subject, _node in speakers), nodes=tuple(node for _subject, node in speakers),
        interval_ms=expected.interval_ms, slope=expected.slope,
    ))  # fmt: skip


def decisions_segment(day: str, previous: str, batches: Sequence[StoredBatch]) -> bytes:
    """Return a whole segment of decisions: at least one batch."""
    columns = {
        "seq": [batch.seq for batch in batches],
        "input_seq": [batch.input_seq for batch in batches],
        "length": [len(batch.body) for batch in batches],
    }
    texts = {name: zlib.compress(np.array(values, dtype="<i8").tobytes()) for name, values in columns.items()}
    texts["bodies"] = zlib.compress(b"".join(batch.body for batch in batches))
    return _whole(texts, SegmentHeader(
        kind="decisions", day=day, first_seq=batches[0].seq, last_seq=batches[-1].seq, count=len(batches), previous=previous,
    ))  # fmt: skip


def _whole(texts: dict[str, bytes], header: SegmentHeader) -> bytes:
    sizes = tuple(Section(name, len(text), len(zlib.decompress(text))) for name, text in texts.items())
    head = msgspec.json.encode(msgspec.structs.replace(header, sections=sizes))
    content = b"".join([MAGIC, len(head).to_bytes(4, "little"), head, *texts.values()])
    return content + hashlib.blake2b(content, digest_size=HASH_BYTES).digest()


def write_durably(path: Path, content: bytes) -> None:
    """Write beside, sync, rename, sync the directory: afterwards the file is there whole, also after a power cut."""
    temporary = path.with_name(f".{path.name}.tmp")
    with temporary.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def opened(path: Path, kind: Kind, first_seq: int, previous: str) -> Segment:
    """Open the segment that follows the one with hash ``previous`` and begins at ``first_seq`` (0: anywhere).

    Its header is checked now, its content as it is read. Raises ``LogMismatch``, which names the file.
    """
    segment = _open(path, kind)
    header = segment.header
    if first_seq and header.first_seq != first_seq:
        raise LogMismatch(f"{path} begins with seq {header.first_seq}, expected seq {first_seq}; restore the archive")
    if header.previous != previous:
        raise LogMismatch(
            f"{path} follows a segment with hash {header.previous or 'none'}, but the one before it has "
            f"{previous or 'none'}: a file is missing or was replaced; restore the archive"
        )
    return segment


def _open(path: Path, kind: Kind) -> Segment:
    try:
        file = path.open("rb")
    except FileNotFoundError:
        raise LogMismatch(f"{path} is missing; restore the archive") from None
    with file:
        start = file.read(len(MAGIC) + 4)
        length = int.from_bytes(start[len(MAGIC) :], "little")
        if not start.startswith((MAGIC, MAGIC_BEFORE)) or length > 64 * 1024 * 1024:
            raise LogMismatch(f"{path} is no segment of an archive; restore it")
        try:
            header = msgspec.json.decode(file.read(length), type=SegmentHeader)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise LogMismatch(f"the header of {path} is damaged ({error}); restore the archive") from error
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - HASH_BYTES))
        end = file.read().hex()
    if header.kind != kind:
        raise LogMismatch(f"{path} holds {header.kind}, expected {kind}; restore the archive")
    return Segment(path, header, len(MAGIC) + 4 + length, size, end)


def verified(segment: Segment) -> bytes:
    """Read a segment and check its hash."""
    content = segment.path.read_bytes()
    view = memoryview(content)
    if hashlib.blake2b(view[:-HASH_BYTES], digest_size=HASH_BYTES).digest() != content[-HASH_BYTES:]:
        raise LogMismatch(f"{segment.path} does not carry the hash of its content: it was altered; restore the archive")
    return content


def _reader(segment: Segment) -> Callable[[str], bytes]:
    """Verify a segment's hash; return what gives a section's text."""
    content = verified(segment)
    places, at = {}, segment.sections_at
    for section in segment.header.sections:
        places[section.name] = (at, section)
        at += section.size

    def read(name: str) -> bytes:
        start, section = places[name]
        text = zlib.decompress(memoryview(content)[start : start + section.size], bufsize=min(max(section.raw_size, 1), ROOM_BYTES))
        if len(text) != section.raw_size:
            raise LogMismatch(f"section {name} of {segment.path} is not as long as it says; restore the archive")
        return text

    return read


def read_sheet(segment: Segment, room: Room | None = None) -> Sheet:
    """Return the records of a segment as columns, in ``room`` if there is some. Raises ``LogMismatch`` when it was altered."""
    from apportion.adapters.logs.columns import Expected, principals_of
    from apportion.adapters.logs.sheets import Sheet

    header, read = segment.header, _reader(segment)
    try:
        nodes = principals_of(header.subjects) if header.nodes is None else header.nodes
        return Sheet(header.subjects, nodes, header.count, Expected(header.interval_ms, header.slope), read, room)
    except (LogMismatch, KeyError, zlib.error) as error:
        raise LogMismatch(f"{segment.path} cannot be read: {error}") from error


def read_events(segment: Segment) -> list[Record]:
    """Return the records of a segment. Raises ``LogMismatch`` when it was altered."""
    return read_sheet(segment).records(segment.header.first_seq)


def read_decisions(segment: Segment) -> list[StoredBatch]:
    """Return the batches of a segment. Raises ``LogMismatch`` when it was altered."""
    read, batches, start = _reader(segment), [], 0
    seqs, inputs, lengths = (np.frombuffer(read(name), dtype="<i8").tolist() for name in ("seq", "input_seq", "length"))
    bodies = read("bodies")
    for seq, input_seq, length in zip(seqs, inputs, lengths, strict=True):
        batches.append(StoredBatch(seq, input_seq, bodies[start : start + length]))
        start += length
    return batches

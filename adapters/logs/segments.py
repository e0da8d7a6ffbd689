r"""Segments: the files an archive consists of.

A segment is a pure function of what it holds and of the segment before it::

    APSEG1\n | length of header u32 | header (JSON) | columns (int64, int32) | bodies | blake2b-256 of everything before

The header names kind, first sequence, count, the table of subjects, and the previous segment's hash: a chain. Files are
written beside, synced and renamed, so a segment is there whole or not at all; every hash is verified when a segment is
read. A missing, altered or reordered file is a ``LogMismatch`` that names it, never a silent hole.
"""

from __future__ import annotations

import hashlib
import os
from array import array
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np

from apportion.core.envelope import Record, StoredBatch
from apportion.core.errors import LogMismatch

MAGIC = b"APSEG1\n"
HASH_BYTES = 32

Kind = Literal["events", "decisions"]


class SegmentHeader(msgspec.Struct, frozen=True, kw_only=True):
    """The JSON header of a segment. ``last_seq`` and ``first_seq`` are sequences of the stream."""

    kind: Kind
    day: str
    first_seq: int
    last_seq: int
    count: int
    previous: str  # hex hash of the segment before, "" for the first
    subjects: tuple[str, ...] = ()


class Segment(msgspec.Struct, frozen=True):
    """A file with its header read; its content is not verified yet."""

    path: Path
    header: SegmentHeader
    columns_at: int


def segment_bytes(header: SegmentHeader, columns: list[array[int]], bodies: list[bytes]) -> bytes:
    """Return a whole segment."""
    head = msgspec.json.encode(header)
    lengths = array("i", (len(body) for body in bodies))
    parts = [MAGIC, len(head).to_bytes(4, "little"), head, *(column.tobytes() for column in (*columns, lengths)), *bodies]
    content = b"".join(parts)
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


def hash_of(segment: Segment) -> str:
    """Return the chain value a segment carries: unverified, at its end."""
    with segment.path.open("rb") as file:
        file.seek(-HASH_BYTES, os.SEEK_END)
        return file.read().hex()


def _open(path: Path, kind: Kind) -> Segment:
    try:
        file = path.open("rb")
    except FileNotFoundError:
        raise LogMismatch(f"{path} is missing; restore the archive") from None
    with file:
        start = file.read(len(MAGIC) + 4)
        length = int.from_bytes(start[len(MAGIC) :], "little")
        if not start.startswith(MAGIC) or length > 64 * 1024 * 1024:
            raise LogMismatch(f"{path} is no segment of an archive; restore it")
        try:
            header = msgspec.json.decode(file.read(length), type=SegmentHeader)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise LogMismatch(f"the header of {path} is damaged ({error}); restore the archive") from error
    if header.kind != kind:
        raise LogMismatch(f"{path} holds {header.kind}, expected {kind}; restore the archive")
    return Segment(path, header, len(MAGIC) + 4 + length)


def verified(segment: Segment) -> bytes:
    """Read a segment and check its hash."""
    content = segment.path.read_bytes()
    view = memoryview(content)
    if hashlib.blake2b(view[:-HASH_BYTES], digest_size=HASH_BYTES).digest() != content[-HASH_BYTES:]:
        raise LogMismatch(f"{segment.path} does not carry the hash of its content: it was altered; restore the archive")
    return content


def read_events(segment: Segment) -> list[Record]:
    """Return the records of a segment. Raises ``LogMismatch`` when it was altered."""
    content = verified(segment)
    header, at, count = segment.header, segment.columns_at, segment.header.count
    stored = np.frombuffer(content, np.int64, count, at).tolist()
    rows = np.frombuffer(content, np.int32, count, at + 8 * count).tolist()
    ends = (np.frombuffer(content, np.int32, count, at + 12 * count).cumsum(dtype=np.int64) + at + 16 * count).tolist()
    subjects = header.subjects
    make, record = tuple.__new__, Record
    start = at + 16 * count
    records = []
    for seq, (stored_ms, row, end) in enumerate(zip(stored, rows, ends, strict=True), header.first_seq):
        records.append(make(record, (seq, stored_ms, subjects[row], content[start:end])))
        start = end
    return records


def read_decisions(segment: Segment) -> list[StoredBatch]:
    """Return the batches of a segment. Raises ``LogMismatch`` when it was altered."""
    content = verified(segment)
    at, count = segment.columns_at, segment.header.count
    seqs = np.frombuffer(content, np.int64, count, at).tolist()
    inputs = np.frombuffer(content, np.int64, count, at + 8 * count).tolist()
    lengths = np.frombuffer(content, np.int32, count, at + 16 * count).tolist()
    start = at + 20 * count
    batches = []
    for seq, input_seq, length in zip(seqs, inputs, lengths, strict=True):
        batches.append(StoredBatch(seq, input_seq, content[start : start + length]))
        start += length
    return batches

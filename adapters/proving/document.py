"""What was proved, as one document: range, marks of the states at both ends, hashes of records and decisions, code, result.

The file is JSON with sorted keys, so that equal documents are equal bytes; a signature is over exactly these bytes. The hash of the
range binds the log's id, the chain over all records at both ends, the state at both ends and the hash of all decisions between:
two logs that agree in it agree in every byte the core has read and written there. A pure function of a proof and of this program.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import msgspec

from apportion.adapters.processes.build import build_id, core_id
from apportion.adapters.proving.proof import Proof
from apportion.adapters.proving.stretch import Point
from apportion.adapters.proving.versions import own_version

KIND = "apportion verify"
FORMAT = 1


class Code(msgspec.Struct, frozen=True, kw_only=True):
    """The program that derived."""

    version: str
    core: int  # logic number
    sources: str  # over all sources of the core
    build: str  # over the kernels and what compiles them


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """One proof. ``start`` is trusted, unless its sequence is 0: then everything is proved from the first record."""

    kind: str = KIND
    format: int = FORMAT
    result: str  # "same" or "different"
    log_id: str
    first_seq: int
    last_seq: int
    from_ms: int  # time of the state that it starts from
    to_ms: int
    records: int
    cycles: int
    undecided: int  # 1 = the last record is a tick that was not decided yet
    start: Point
    start_source: str
    trusted: str  # in words, for people
    end: Point
    decisions_sha256: str
    range_sha256: str
    first_difference: dict[str, Any] | None = None
    code: Code
    signer: str = ""  # fingerprint of the key that signs it


class DocumentInvalid(Exception):
    """The file is no document of a proof; the message says why."""


def document_of(proof: Proof, signer: str = "") -> Document:
    """Return what ``proof`` says as a document."""
    from apportion.core.fold.setup import CORE_NUMBER

    start, end = proof.start, proof.end
    log_id = end.log_id or start.log_id
    return Document(
        result="same" if proof.ok else "different",
        log_id=log_id,
        first_seq=start.seq + 1,
        last_seq=end.seq,
        from_ms=start.time_ms,
        to_ms=end.time_ms,
        records=end.seq - start.seq,
        cycles=proof.cycles,
        undecided=proof.undecided,
        start=start,
        start_source=proof.start_source,
        trusted=trusted(start, proof.start_source),
        end=end,
        decisions_sha256=proof.decisions_sha256,
        range_sha256=range_hash(log_id, start, end, proof.decisions_sha256),
        first_difference=proof.first_difference,
        code=Code(version=own_version(), core=CORE_NUMBER, sources=core_id(), build=build_id()),
        signer=signer,
    )


def trusted(start: Point, source: str) -> str:
    """Return in a sentence what the proof takes for granted."""
    if start.seq == 0:
        return "nothing: it starts with the first record"
    return f"the state at seq {start.seq:,} ({source}); what led to it is not proved here"


def range_hash(log_id: str, start: Point, end: Point, decisions_sha256: str) -> str:
    """Return the hash that binds the records, the states at both ends and the decisions of a range."""
    parts = [log_id]
    for point in (start, end):
        parts += [str(point.seq), str(point.time_ms), point.chain, str(point.open_records), point.digest]
    return hashlib.sha256("\n".join([*parts, decisions_sha256]).encode()).hexdigest()


def to_bytes(document: Document) -> bytes:
    """Return the file's bytes: a pure function of the document."""
    return msgspec.json.format(msgspec.json.encode(document, order="sorted"), indent=2) + b"\n"


def read(path: Path) -> tuple[Document, bytes]:
    """Return a document and the file's bytes. Raises ``DocumentInvalid``."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DocumentInvalid(f"{path} cannot be read: {error.strerror}") from None
    try:
        document = msgspec.json.decode(content, type=Document)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise DocumentInvalid(f"{path} is not what `apportion verify --out` writes: {error}") from None
    if document.kind != KIND or document.format != FORMAT:
        raise DocumentInvalid(
            f"{path} is {document.kind!r} of format {document.format}, this program reads {KIND!r} of format {FORMAT}"
        )
    expected = range_hash(document.log_id, document.start, document.end, document.decisions_sha256)
    if expected != document.range_sha256:
        raise DocumentInvalid(
            f"{path} was changed: its range_sha256 is {document.range_sha256}, what it says of the range gives {expected}"
        )
    return document, content

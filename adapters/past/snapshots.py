"""Snapshots of the core's state on disk.

``DiskSnapshots`` keeps the bytes the core made at a sequence, with what is needed to trust them later: their checksum,
the hash of the record at that sequence (so a log that was replaced is recognised), and how far DECISIONS was applied.
The bytes themselves are the core's business; it checks its own digest when it loads them.

A snapshot is written beside, synced and renamed: it is there whole or not at all. A damaged one is reported and passed
over in favour of the one before, never used and never deleted by reading.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
from pathlib import Path

import msgspec

from apportion.adapters.logs.segments import write_durably

logger = logging.getLogger(__name__)

MAGIC = b"APSNAP1\n"
KEEP = 3
ARCHIVED = "snapshots"  # the directory of them in an archive
KEEP_ALL = 10**9  # of an archive


class SnapshotMeta(msgspec.Struct, frozen=True, kw_only=True):
    """What stands before the state's bytes."""

    seq: int  # the last record folded
    size: int
    checksum: str  # blake2b-128 of the state's bytes
    record_hash: str = ""  # of the record at seq (``record_hash``)
    decision_seq: int = 0  # the last batch of DECISIONS applied


def record_hash(subject: str, body: bytes) -> str:
    """Return the hash by which a record is recognised again at its sequence."""
    return hashlib.blake2b(subject.encode() + b"\n" + body, digest_size=16).hexdigest()


class DiskSnapshots:
    """The port ``SnapshotStore`` in one directory; the last ``keep`` snapshots stay."""

    def __init__(self, directory: Path, *, keep: int = KEEP) -> None:
        if keep < 1:
            raise ValueError(f"keep is {keep}; at least one snapshot must stay")
        self._directory = directory
        self._keep = keep

    def save(self, seq: int, data: bytes, *, record_hash: str = "", decision_seq: int = 0) -> None:
        """Keep ``data`` for ``seq`` durably; older ones beyond the retention are removed afterwards."""
        self._directory.mkdir(parents=True, exist_ok=True)
        checksum = hashlib.blake2b(data, digest_size=16).hexdigest()
        meta = SnapshotMeta(
            seq=seq, size=len(data), checksum=checksum, record_hash=record_hash, decision_seq=decision_seq
        )
        head = msgspec.json.encode(meta)
        write_durably(self._path(seq), MAGIC + len(head).to_bytes(4, "little") + head + data)
        for old in self._seqs()[: -self._keep]:
            with contextlib.suppress(FileNotFoundError):
                self._path(old).unlink()

    def load(self, max_seq: int | None = None) -> tuple[int, bytes] | None:
        """Return the newest undamaged snapshot at or before ``max_seq``, or None."""
        found = self.load_with_meta(max_seq)
        return None if found is None else (found[0].seq, found[1])

    def load_with_meta(self, max_seq: int | None = None) -> tuple[SnapshotMeta, bytes] | None:
        """Return the newest undamaged snapshot at or before ``max_seq`` with what was kept beside it, or None."""
        for seq in reversed(self._seqs()):
            if max_seq is not None and seq > max_seq:
                continue
            try:
                return _read(self._path(seq), seq)
            except (OSError, ValueError, msgspec.DecodeError) as error:
                logger.error("snapshot %s is damaged (%s); using the one before", self._path(seq), error)
        return None

    def seqs(self) -> list[int]:
        """Return the sequences kept, oldest first, damaged ones included."""
        return self._seqs()

    def _path(self, seq: int) -> Path:
        return self._directory / f"snapshot-{seq:016d}.bin"

    def _seqs(self) -> list[int]:
        names = self._directory.glob("snapshot-*.bin")
        return sorted(int(name.stem.removeprefix("snapshot-")) for name in names if name.stem[9:].isdigit())


class WithArchived:
    """An installation's own snapshots, and those at an archive's day ends for where its own are gone. The archive is only read."""

    def __init__(self, own: DiskSnapshots, archived: DiskSnapshots) -> None:
        self._own = own
        self._archived = archived

    def save(self, seq: int, data: bytes, *, record_hash: str = "", decision_seq: int = 0) -> None:
        """Keep ``data`` for ``seq`` among the installation's own."""
        self._own.save(seq, data, record_hash=record_hash, decision_seq=decision_seq)

    def load(self, max_seq: int | None = None) -> tuple[int, bytes] | None:
        """Return the newest undamaged snapshot at or before ``max_seq``, or None."""
        found = self.load_with_meta(max_seq)
        return None if found is None else (found[0].seq, found[1])

    def load_with_meta(self, max_seq: int | None = None) -> tuple[SnapshotMeta, bytes] | None:
        """Return the installation's newest at or before ``max_seq``, the archive's where it has none, or None."""
        return self._own.load_with_meta(max_seq) or self._archived.load_with_meta(max_seq)

    def seqs(self) -> list[int]:
        """Return the sequences kept, oldest first, damaged ones included."""
        return sorted({*self._own.seqs(), *self._archived.seqs()})


def _read(path: Path, seq: int) -> tuple[SnapshotMeta, bytes]:
    content = path.read_bytes()
    at = len(MAGIC) + 4
    if not content.startswith(MAGIC):
        raise ValueError("it does not begin as a snapshot does")
    length = int.from_bytes(content[len(MAGIC) : at], "little")
    meta = msgspec.json.decode(content[at : at + length], type=SnapshotMeta)
    data = content[at + length :]
    if meta.seq != seq or meta.size != len(data):
        raise ValueError(f"it is for seq {meta.seq} with {meta.size} bytes, found {len(data)} bytes under seq {seq}")
    if hashlib.blake2b(data, digest_size=16).hexdigest() != meta.checksum:
        raise ValueError("its checksum does not match")
    return meta, data

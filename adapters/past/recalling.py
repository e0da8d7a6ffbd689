"""Where to start from: the newest snapshot before a record that belongs to a log and to this program.

Reads; decides nothing and writes nothing. A snapshot that is damaged, of another log or of another program is passed over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from apportion.adapters.past.snapshots import ARCHIVED, DiskSnapshots, SnapshotMeta, WithArchived, record_hash

if TYPE_CHECKING:
    from apportion.adapters.processes.home import Home
    from apportion.core.engine import Core
    from apportion.core.ports import EventLog


class Recalled(NamedTuple):
    """A snapshot: what was kept beside it, its bytes, and the core that it is."""

    meta: SnapshotMeta
    data: bytes
    core: Core


def kept_by(home: Home) -> WithArchived:
    """Return the snapshots of an installation: its core's, and those of its archive."""
    return WithArchived(DiskSnapshots(home.snapshots), DiskSnapshots(home.archive / ARCHIVED))


async def newest(snapshots: DiskSnapshots | WithArchived, events: EventLog, seq: int, after_seq: int = 0) -> Recalled | None:
    """Return the newest snapshot of the log at or before ``seq``; None: there is none after ``after_seq``."""
    from apportion.adapters.past.replaying import core_from
    from apportion.core.errors import SnapshotInvalid

    if not any(after_seq < one <= seq for one in snapshots.seqs()):
        return None
    found = snapshots.load_with_meta(seq)
    if found is None or found[0].seq <= after_seq:
        return None
    meta, data = found
    records = await events.read(meta.seq - 1, 1)
    if not records or meta.record_hash not in ("", record_hash(records[0].subject, records[0].body)):
        return None
    try:
        return Recalled(meta, data, core_from(data))
    except SnapshotInvalid:
        return None

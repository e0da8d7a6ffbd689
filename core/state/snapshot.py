"""A state as bytes and back.

Layout: 8 bytes magic with the schema number, 32 bytes sha256 of the rest, then msgpack. Restoring gives the same physical
bytes: the digest of the restored state equals the digest stored, or ``SnapshotInvalid`` is raised.

Pure functions; who keeps the bytes, and the hash of the record at the cursor beside them, is an adapter.
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict
from typing import Any

import msgspec

from apportion.core.decisions import AnyDecision
from apportion.core.errors import SnapshotInvalid
from apportion.core.state.digest import digest
from apportion.core.state.frames import Frames
from apportion.core.state.queue import rebuild_queue
from apportion.core.state.state import Counters, State
from apportion.core.state.unsettled import find_unsettled_later

SCHEMA = 14
_MAGIC = b"APSNAP%02d" % SCHEMA


def dump(state: State) -> bytes:
    """Return the state as self-checking bytes."""
    tables = {
        name: {
            "used": table.used,
            "free": table.free,
            "keys": table.keys,
            "columns": {column: table.column(column).tobytes() for column in table.names},
        }
        for name, table in state.tables().items()
    }
    payload = msgspec.msgpack.encode(
        {
            "digest": digest(state),
            "counters": asdict(state.counters),
            "log_id": state.log_id,
            "chain": state.chain,
            "unchained": state.unchained.split(),
            "members": list(state.members.items()),
            "refused": state.refused,
            "tables": tables,
        }
    )
    return _MAGIC + hashlib.sha256(payload).digest() + payload


def load(data: bytes) -> State:
    """Return the state; raises ``SnapshotInvalid`` naming what does not hold."""
    if data[:6] != _MAGIC[:6]:
        raise SnapshotInvalid("not a snapshot of apportion (wrong first bytes); delete it and replay from the log")
    if data[:8] != _MAGIC:
        raise SnapshotInvalid(f"snapshot schema {data[6:8]!r}, this core reads {SCHEMA}; delete it and replay from the log")
    payload = data[40:]
    if hashlib.sha256(payload).digest() != data[8:40]:
        raise SnapshotInvalid("snapshot bytes are damaged (checksum differs); use an older one or replay from the log")
    raw: dict[str, Any] = msgspec.msgpack.decode(payload)
    state = State(counters=Counters(**raw["counters"]), log_id=raw["log_id"], chain=raw["chain"])
    state.unchained = Frames(raw["unchained"])
    state.members = dict(raw["members"])
    state.refused = [msgspec.convert(item, AnyDecision) for item in raw["refused"]]
    for name, table in state.tables().items():
        stored = raw["tables"][name]
        table.restore(stored["used"], stored["free"], stored["keys"], stored["columns"])
    rebuild_queue(state)
    find_unsettled_later(state)
    if digest(state) != raw["digest"]:
        raise SnapshotInvalid("the restored state has another digest than the one saved; report it, replay from the log")
    return state


"""Two hashes: the physical digest of a state, and the chain over all records read.

The digest is taken over the exact bytes of counters and tables, so it differs when a single row number differs. The
chain makes the log tamper-evident: ``chain = sha256(previous chain | frames since the last tick)``, closed at every
tick, so its value stands in each batch. Between ticks the frames themselves are state (bounded by the reader's ticks),
which keeps a snapshot possible at any record.

Pure functions; a frame carries sequence, time as the core counts it, subject and body. (Not the server's stored time as such: in a
log of stated time it is the clock of whoever replayed it, and the same history must give the same chain.)
"""

from __future__ import annotations

import hashlib
from dataclasses import fields
from operator import attrgetter

import numpy as np

from apportion.core.envelope import Record, encode
from apportion.core.state.state import Counters, State

MAX_FRAMES = 4_096
_counters = attrgetter(*(field.name for field in fields(Counters)))


def frame_of(record: Record, time_ms: int) -> bytes:
    """Return what the chain hashes of a record; ``time_ms`` is the time it was given."""
    subject, body = record.subject.encode("utf-8", "surrogatepass"), record.body
    return b"%d %d %b %d\n%b" % (record.seq, time_ms, subject, len(body), body)


def extend_chain(state: State, record: Record) -> None:
    """Take a record into the chain, at the time it was given; closes a block when ``MAX_FRAMES`` are open."""
    state.unchained.append(frame_of(record, state.counters.time_ms))
    if len(state.unchained) >= MAX_FRAMES:
        close_chain(state)


def close_chain(state: State) -> None:
    """Fold the open frames into the chain value."""
    state.chain = hashlib.sha256(state.chain + b"".join(state.unchained.pieces)).digest()
    state.unchained.clear()


def digest(state: State) -> str:
    """Return the hex digest of the state's physical bytes."""
    hasher = hashlib.sha256(state.chain)
    hasher.update(np.array(_counters(state.counters), dtype=np.int64).tobytes())
    for table in state.tables().values():
        for part in table.physical():
            hasher.update(part)
    for piece in state.unchained.pieces:
        hasher.update(piece)
    if state.members or state.refused:
        hasher.update(encode([state.log_id, state.members, state.refused]))
    return hasher.hexdigest()

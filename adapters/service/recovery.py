"""Where a core starts, and whether the log is still the one it knows.

``restore`` decides which snapshot to continue from, or to begin at the first record. ``StoredCycles`` pairs ticks with
the batches that DECISIONS holds. Both only read.

Log protection: a snapshot remembers the record at its sequence. When EVENTS is shorter than that, or holds another
record there, the log was cut, replaced or written over (a damaged store can lose its end silently and give its sequences
out again): starting would decide on another history, so it is refused with ``LogMismatch``.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from apportion.adapters.past.snapshots import SnapshotMeta, record_hash
from apportion.adapters.service.ports import Snapshots
from apportion.core.engine import Core
from apportion.core.envelope import Record, StoredBatch
from apportion.core.errors import Divergence, LogMismatch, SnapshotInvalid
from apportion.core.ports import DecisionLog, EventLog

logger = logging.getLogger(__name__)

READ_BATCHES = 500


@dataclass
class Start:
    """Where to begin: a core, the last batch it has applied, and the record it read last."""

    core: Core
    decision_seq: int
    last_record: Record | None


async def restore(events: EventLog, decisions: DecisionLog, snapshots: Snapshots | None) -> Start:
    """Return the newest snapshot's core whose log is unchanged, or a new one when there is no snapshot.

    A snapshot of another schema is passed over (the log is read from an earlier one, or from the beginning). Raises
    ``LogMismatch`` when the logs are not the ones a snapshot was made from.
    """
    max_seq: int | None = None
    while snapshots is not None:
        found = snapshots.load_with_meta(max_seq)
        if found is None:
            break
        meta, data = found
        record = await _check_log(events, decisions, meta)
        try:
            core = Core.from_snapshot(data)
        except SnapshotInvalid as error:
            logger.error("snapshot of seq %d cannot be used (%s); using an earlier one", meta.seq, error)
            max_seq = meta.seq - 1
            continue
        if core.seq != meta.seq:
            raise LogMismatch(f"the snapshot kept for seq {meta.seq} holds the state of seq {core.seq}; remove it")
        decision_seq = meta.decision_seq or await _position_in(decisions, core)
        return Start(core, decision_seq, record)
    return Start(Core.new(), 0, None)


async def _check_log(events: EventLog, decisions: DecisionLog, meta: SnapshotMeta) -> Record | None:
    last_seq = await events.last_seq()
    if last_seq < meta.seq:
        raise LogMismatch(
            f"EVENTS ends at seq {last_seq}, but a snapshot of this core was made at seq {meta.seq}: the end of the log is "
            "missing, or this is another log. Restore the log from its archive; to start another log, use another directory"
        )
    last_decision = await decisions.last_seq()
    if last_decision < meta.decision_seq:
        raise LogMismatch(
            f"DECISIONS ends at seq {last_decision}, but the snapshot at seq {meta.seq} has applied seq "
            f"{meta.decision_seq}: the end of the decisions is missing. Restore them from their archive"
        )
    if meta.seq == 0:
        return None
    record = (await events.read(meta.seq - 1, 1))[0]
    found = record_hash(record.subject, record.body)
    if meta.record_hash and found != meta.record_hash:
        raise LogMismatch(
            f"EVENTS holds another record at seq {meta.seq} (hash {found}) than the one the snapshot was made at (hash "
            f"{meta.record_hash}): its end was lost and written over, or this is another log. Restore it from its archive"
        )
    return record


async def _position_in(decisions: DecisionLog, core: Core) -> int:
    """Find the last batch a core has applied, for a snapshot that does not tell."""
    position = 0
    while batches := await decisions.read(position, READ_BATCHES):
        for batch in batches:
            if batch.input_seq > core.seq or (batch.input_seq == core.seq and core.tick_pending):
                return position
            position = batch.seq
    return position


class StoredCycles:
    """The batches after a position, handed out tick by tick."""

    def __init__(self, decisions: DecisionLog, after_seq: int) -> None:
        self._decisions = decisions
        self._read_to = after_seq
        self._waiting: list[StoredBatch] = []  # newest first

    async def answer_to(self, tick_seq: int) -> StoredBatch | None:
        """Return the stored batch of the tick at ``tick_seq``, None when it is not decided yet.

        Raises ``Divergence`` when the next stored batch answers another tick.
        """
        batch = await self.peek()
        if batch is None:
            return None
        if batch.input_seq != tick_seq:
            raise Divergence(tick_seq, f"the tick that DECISIONS seq {batch.seq} answers", str(batch.input_seq), str(tick_seq))
        return self._waiting.pop()

    async def peek(self) -> StoredBatch | None:
        """Return the next stored batch without taking it."""
        if not self._waiting:
            found = await self._decisions.read(self._read_to, READ_BATCHES)
            if found:
                self._read_to = found[-1].seq
                self._waiting = found[::-1]
        return self._waiting[-1] if self._waiting else None

"""The state at a sequence of stored logs, made by trusting the stored decisions: faster than deriving them.

Everything here is a pure function of the two logs (and a snapshot to start from); the caller opens the logs. What an archive holds
is read as columns (``trusting``), all else record by record (``driving``). No log is written.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from apportion.adapters.past.driving import OnProgress, Progress, drive
from apportion.core.ports import DecisionLog, EventLog

if TYPE_CHECKING:
    from apportion.core.engine import Core


def core_from(snapshot: bytes | None) -> Core:
    """Return a core at ``snapshot``, or one that has read nothing. Raises ``SnapshotInvalid``."""
    from apportion.core.engine import Core  # numba: only when something is replayed

    return Core.from_snapshot(snapshot) if snapshot is not None else Core.new()


async def trust(
    core: Core, event_log: EventLog, decision_log: DecisionLog, to_seq: int, progress: OnProgress | None = None
) -> None:
    """Take ``core`` along to ``to_seq`` by the stored decisions, hashing no state on the way. Raises as ``state_at``."""
    await drive(core, event_log, decision_log, to_seq, Progress(), progress, derive=False, check=False)


async def state_at(
    event_log: EventLog,
    decision_log: DecisionLog,
    to_seq: int | None = None,
    from_snapshot: bytes | None = None,
    progress: OnProgress | None = None,
) -> Core:
    """Return the core as it was after record ``to_seq`` (None: the newest), trusting the stored decisions.

    Raises ``ValueError`` for a sequence outside the log or before the snapshot, ``LogGap``, ``LogMismatch``, and
    ``Difference`` when a stored cycle does not belong to the log.
    """
    core, _decision_seq = await state_and_position(event_log, decision_log, to_seq, from_snapshot, progress)
    return core


async def state_and_position(
    event_log: EventLog,
    decision_log: DecisionLog,
    to_seq: int | None = None,
    from_snapshot: bytes | None = None,
    progress: OnProgress | None = None,
) -> tuple[Core, int]:
    """Return the core as ``state_at``, and the sequence of the last batch it took (0: none since the snapshot).

    An archive is read as columns, under the hashes of its segments (see ``trusting``): the same state, several times as fast.
    """
    from apportion.adapters.logs.archive import ArchiveDecisionLog, ArchiveEventLog

    if isinstance(event_log, ArchiveEventLog) and isinstance(decision_log, ArchiveDecisionLog):
        from apportion.adapters.past import trusting

        return trusting.state_and_position(event_log.directory, to_seq, from_snapshot, progress)
    core, position = await through_archive(event_log, decision_log, to_seq, from_snapshot, progress)
    batches = await drive(core, event_log, decision_log, to_seq, Progress(), progress, derive=False)
    return core, batches.position or position


async def through_archive(
    event_log: EventLog, decision_log: DecisionLog, to_seq: int | None, from_snapshot: bytes | None, progress: OnProgress | None
) -> tuple[Core, int]:
    """Return the core at a snapshot; taken on, as columns of the archive, through what was cut from the logs after it."""
    from apportion.adapters.logs.joined import JoinedDecisionLog, JoinedEventLog

    core = core_from(from_snapshot)
    if not isinstance(event_log, JoinedEventLog) or not isinstance(decision_log, JoinedDecisionLog):
        return core, 0
    records = await event_log.archived(core.seq)
    batches = await decision_log.behind() if records is not None else None
    if records is None or batches is None or batches.directory != records.directory:
        return core, 0
    end_seq = records.until_seq if to_seq is None else min(to_seq, records.until_seq)
    if end_seq <= core.seq:
        return core, 0
    from apportion.adapters.past import trusting

    return await asyncio.to_thread(trusting.state_and_position, records.directory, end_seq, from_snapshot, progress)

"""The state at a cut, ahead of those who prove what lies before it: made by trusting the stored decisions, as fast as can be.

An archive, and what of a log was cut and is archived, is read as columns in a thread of its own; any other log record by record,
without hashing the state on the way. What is made is only a place to begin: the stretch that ends there proves it. Nothing is
written.
"""

from __future__ import annotations

import asyncio

from apportion.adapters.logs.archive import ArchiveDecisionLog, ArchiveEventLog
from apportion.adapters.past import replaying
from apportion.adapters.past.driving import OnProgress
from apportion.adapters.proving.stretch import Opened


async def state_ahead(logs: Opened, snapshot: bytes | None, to_seq: int, progress: OnProgress) -> bytes:
    """Return the state after record ``to_seq``, made from ``snapshot`` (None: the first record).

    Raises what ``progress`` raises, and ``ApportionError`` where the stored decisions do not fit the log.
    """
    if isinstance(logs.events, ArchiveEventLog) and isinstance(logs.decisions, ArchiveDecisionLog):
        from apportion.adapters.past import trusting

        directory = logs.events.directory
        return (await asyncio.to_thread(trusting.state_from, directory, to_seq, snapshot, progress)).snapshot()
    core, _position = await replaying.through_archive(logs.events, logs.decisions, to_seq, snapshot, progress)
    await replaying.trust(core, logs.events, logs.decisions, to_seq, progress)
    return core.snapshot()

"""Getting a projection that is whole: open the file, or build another beside it from the log and swap.

A projection is disposable. Built by other code, damaged, or given up by the engine: it is built anew, and nobody has to decide
anything. Only a log that is not the one projected stops here, because then the projection may be the only evidence left; who
has looked at it asks for a rebuild.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from apportion.core.errors import LogMismatch
from apportion.core.ports import DecisionLog, EventLog
from apportion.projections import storage
from apportion.projections.runner import Projection, ProjectionBroken, ProjectionStale

logger = logging.getLogger(__name__)

READ_EVENTS = 10_000
READ_BATCHES = 2_000

Tell = Callable[[int, int], None]
"""Called with (projected, last) sequence of DECISIONS while a projection is being built."""


async def open_or_build(
    path: Path, events: EventLog, decisions: DecisionLog, *, rebuild: bool = False, tell: Tell | None = None
) -> Projection:
    """Return the projection at ``path``, ready to follow the logs. Raises ``LogMismatch`` when the log is not the one projected."""
    path.parent.mkdir(parents=True, exist_ok=True)
    storage.clear_beside(path)
    if not rebuild and path.exists():
        try:
            projection = await asyncio.to_thread(Projection, path)
        except ProjectionStale as stale:
            logger.warning("%s; building it anew from the log", stale)
        except ProjectionBroken as broken:
            logger.error("%s; building it anew from the log", broken)
            storage.remove(path)
        else:
            try:
                await _same_log(projection, events, decisions)
            except BaseException:
                projection.close()
                raise
            return projection
    await _build(path, events, decisions, tell)
    return await asyncio.to_thread(Projection, path)


async def _same_log(projection: Projection, events: EventLog, decisions: DecisionLog) -> None:
    """Refuse when the log is shorter than the cursor, or shows another record there."""
    position = projection.position
    if not position.seq:
        return
    if await events.last_seq() < position.seq or await decisions.last_seq() < position.decision_seq:
        projection.check_tip(None)
    records = await events.read(position.seq - 1, 1)
    projection.check_tip(records[0] if records else None)


async def _build(path: Path, events: EventLog, decisions: DecisionLog, tell: Tell | None) -> None:
    """Build a new file beside ``path`` from both logs up to what is decided now, and swap it in."""
    beside = storage.beside(path)
    try:
        projection = await asyncio.to_thread(Projection, beside)
        try:
            await feed(projection, events, decisions, tell)
            await asyncio.to_thread(_finish, projection)
        finally:
            projection.close()
        storage.swap(beside, path)
    except BaseException:
        storage.remove(beside)
        raise


def _finish(projection: Projection) -> None:
    projection.refresh()
    projection.con.execute("checkpoint")


async def feed(projection: Projection, events: EventLog, decisions: DecisionLog, tell: Tell | None = None) -> None:
    """Bring a projection up to what is decided when this is called."""
    last = await decisions.last_seq()
    while projection.wants_after_decision_seq < last:
        batches = await decisions.read(projection.wants_after_decision_seq, READ_BATCHES)
        if not batches:
            raise LogMismatch(f"DECISIONS ends before seq {last}, which it had a moment ago; the log was cut")
        await asyncio.to_thread(projection.ingest, (), batches)
        while projection.wants_after_seq < batches[-1].input_seq:
            wanted = min(READ_EVENTS, batches[-1].input_seq - projection.wants_after_seq)
            records = await events.read(projection.wants_after_seq, wanted)
            if not records:
                raise LogMismatch(f"EVENTS ends before seq {batches[-1].input_seq}, which is decided; the log was cut")
            await asyncio.to_thread(projection.ingest, records, ())
        if tell is not None:
            tell(projection.position.decision_seq, last)

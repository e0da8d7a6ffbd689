"""A core as it was after a record, with what its last cycle knew: made from the log, and where it was begun.

A pure function of the two logs and of a snapshot to begin from. Stored decisions are trusted on the way (and must fit the log: the
chain and the digests are compared); the last cycle is run again on a copy, for what it knew is in no column: what budgets are
entitled to, which nodes are kept for whom, and the numbers of the reasons. Neither log is written.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from apportion.adapters.explaining.moment import Cycle, moment_at
from apportion.adapters.logs.moments import last_decided
from apportion.adapters.past import replaying
from apportion.adapters.past.driving import OnProgress
from apportion.adapters.proving.waypoints import Waypoint
from apportion.core import ledger
from apportion.core.engine import Core
from apportion.core.ports import DecisionLog, EventLog


@dataclass(frozen=True)
class Sight:
    """What there is to see. ``cycle`` is the last one at or before the record, None before the first."""

    core: Core
    digest: str
    snapshot_bytes: int
    cycle: Cycle | None
    cycle_seq: int
    cycle_ms: int
    begun_seq: int  # of the snapshot it was made from; 0 = from the first record
    begun_from: str


Find = Callable[[int], Awaitable[Waypoint | None]]  # the newest kept state at or before a sequence


async def sight_at(
    events: EventLog, decisions: DecisionLog, seq: int, find: Find | None = None, progress: OnProgress | None = None
) -> Sight:
    """Return what the core saw after record ``seq``, made from the nearest state that ``find`` knows, or from the first record.

    Raises what ``replaying.state_at`` raises. Accounts are brought to the record's time after the digest was taken.
    """
    decided = await last_decided(decisions, lambda batch: batch.seq <= seq)
    begin = await find(decided.seq - 1 if decided is not None else seq) if find is not None else None
    snapshot = begin.data if begin is not None else None
    if decided is None:
        core, cycle = await replaying.state_at(events, decisions, seq, snapshot, progress), None
    else:
        moment = await moment_at(events, decisions, decided.seq, snapshot, progress)
        cycle = moment.cycle
        core = await replaying.state_at(events, decisions, seq, moment.core.snapshot())
    digest, size = core.digest(), len(core.snapshot())
    ledger.accrue(core.state, core.time_ms)
    return Sight(
        core=core,
        digest=digest,
        snapshot_bytes=size,
        cycle=cycle,
        cycle_seq=decided.seq if decided is not None else 0,
        cycle_ms=decided.time_ms if decided is not None else 0,
        begun_seq=begin.seq if begin is not None else 0,
        begun_from=begin.source if begin is not None else "the first record",
    )

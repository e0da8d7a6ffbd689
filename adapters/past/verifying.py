"""Verifying stored logs: every cycle is derived again and its bytes are compared with the stored batch.

That covers the inputs (hash chain), the decisions, the books and the state (digest) at once, and stops at the first cycle that
differs. Everything is a pure function of the two logs (and a snapshot to start from); the caller opens the logs and prints the
result. No log is written.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from apportion.adapters.past.differences import Difference
from apportion.adapters.past.driving import OnBatch, OnProgress, Progress, drive
from apportion.adapters.past.replaying import core_from
from apportion.core.errors import CoreMissing, InvariantBroken, LogGap, LogMismatch
from apportion.core.ports import DecisionLog, EventLog

if TYPE_CHECKING:
    from apportion.core.engine import Core


@dataclass(frozen=True)
class VerifyResult:
    """What verify found. ``first_difference`` names the cycle and shows both sides when ``ok`` is false."""

    ok: bool
    cycles: int
    events: int
    digest: str
    first_difference: dict[str, Any] | None = None
    from_seq: int = 0
    to_seq: int = 0
    to_time_ms: int = 0
    undecided: int = 0  # 1 when the last tick's batch was not written yet
    wall_ms: int = 0

    def document(self) -> dict[str, Any]:
        """Return the result as one JSON document."""
        return asdict(self)


async def verify(
    event_log: EventLog,
    decision_log: DecisionLog,
    from_snapshot: bytes | None = None,
    progress: OnProgress | None = None,
    *,
    to_seq: int | None = None,
) -> VerifyResult:
    """Derive every cycle after ``from_snapshot`` (or the start) up to ``to_seq`` and compare each with the stored one.

    A difference, a gap or a log that does not belong to the snapshot makes ``ok`` false; it raises only
    ``SnapshotInvalid``, ``ValueError`` for a ``to_seq`` outside the log, and the ports' own errors.
    """
    started = time.monotonic()
    core = core_from(from_snapshot)
    from_seq = core.seq
    at = Progress()
    difference = await derive(core, event_log, decision_log, to_seq, at, progress)
    return VerifyResult(
        ok=difference is None,
        cycles=at.cycles,
        events=core.seq - from_seq,
        digest=core.digest(),
        first_difference=difference,
        from_seq=from_seq,
        to_seq=core.seq,
        to_time_ms=core.time_ms,
        undecided=int(core.tick_pending),
        wall_ms=int((time.monotonic() - started) * 1000),
    )


async def derive(
    core: Core,
    event_log: EventLog,
    decision_log: DecisionLog,
    to_seq: int | None,
    at: Progress,
    progress: OnProgress | None = None,
    *,
    same: OnBatch | None = None,
) -> dict[str, Any] | None:
    """Derive every cycle up to ``to_seq`` and compare it with the stored one; return the first difference, None without one.

    ``core`` is taken along, ``same`` is called with each batch that is equal. Raises as ``verify``.
    """
    try:
        await drive(core, event_log, decision_log, to_seq, at, progress, derive=True, taken=same)
    except Difference as found:
        return found.document
    except CoreMissing as error:
        return {"what": "core number", "seq": error.seq, "core": error.number, "detail": str(error)}
    except (LogGap, LogMismatch) as error:
        return {"what": "log", "seq": core.seq, "detail": str(error)}
    except InvariantBroken as error:
        return {"what": "invariant", "seq": core.seq, "cycle": core.cycle + 1, "detail": str(error)}
    return None

"""Driving the core over stored logs: verify every decision, rebuild the state at a sequence, make a snapshot.

Everything here is a pure function of the two logs (and a snapshot to start from); the caller opens the logs and prints
the result. ``verify`` derives each cycle again and compares bytes with the stored batch, so it covers the inputs (hash
chain), the decisions, the books and the state (digest) at once, and stops at the first cycle that differs.
``advance`` trusts stored batches, which is faster and is how a state at a sequence is made. Neither ever writes a log.

Alignment of the two logs: one accepted ``clock.tick`` is one batch, in the same order; the batch's ``input_seq`` is the
tick's sequence. A tick at the very end without a batch is a cycle in progress, not a difference.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from apportion.adapters.processes.collector import without_collector
from apportion.core.decisions import decode_batch
from apportion.core.errors import ApportionError, CoreMissing, InvariantBroken, LogGap, LogMismatch
from apportion.core.ports import DecisionLog, EventLog

if TYPE_CHECKING:
    from apportion.core.engine import Core
    from apportion.core.envelope import StoredBatch

READ_EVENTS = 5_000
READ_BATCHES = 500


@dataclass
class Progress:
    """Where a replay is. ``last_seq`` is the sequence it will stop at; ``pause`` says why it goes no further for a while."""

    events: int = 0
    cycles: int = 0
    seq: int = 0
    last_seq: int = 0
    time_ms: int = 0
    pause: str = ""


OnProgress = Callable[[Progress], None]
OnBatch = Callable[["StoredBatch"], None]


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


class StoredBatches:
    """The stored batches from a position on, in order, read ahead in chunks.

    The n-th cycle is usually message n of the decision log; a batch so large that it travelled in parts takes several
    sequences. So cycle n stands at sequence n or later: reading starts there and skips what the core has folded.
    """

    def __init__(self, log: DecisionLog, cycle: int, first_input_seq: int) -> None:
        """Begin after ``cycle`` cycles, with the first batch that answers ``first_input_seq`` or a later tick."""
        self._log = log
        self._after_seq = cycle
        self._first_input_seq = first_input_seq
        self._waiting: list[StoredBatch] = []
        self._placed = False
        self.position = 0  # sequence in the decision log of the last batch handed out

    async def next(self) -> StoredBatch | None:
        """Return the next batch, None at the end of the log."""
        while not self._waiting:
            try:
                found = await self._log.read(self._after_seq, READ_BATCHES)
            except LogMismatch:
                if self._placed or self._after_seq == 0:
                    raise
                self._after_seq = 0  # the middle of a batch in parts
                continue
            if not found:
                return None
            self._after_seq = found[-1].seq
            fresh = [batch for batch in found if batch.input_seq >= self._first_input_seq]
            self._placed = self._placed or bool(fresh)
            self._waiting = fresh[::-1]
        batch = self._waiting.pop()
        self.position = batch.seq
        return batch


class Difference(ApportionError):
    """A stored cycle is not the one the core derives; ``document`` shows where."""

    def __init__(self, document: dict[str, Any]) -> None:
        what, detail = document["what"], document.get("detail", "")
        super().__init__(
            f"the cycle of seq {document['seq']:,} differs from what the core derives ({what}{': ' * bool(detail)}{detail})"
        )
        self.document = document


def core_from(snapshot: bytes | None) -> Core:
    """Return a core at ``snapshot``, or one that has read nothing. Raises ``SnapshotInvalid``."""
    from apportion.core.engine import Core  # numba: only when something is replayed

    return Core.from_snapshot(snapshot) if snapshot is not None else Core.new()


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
        await _drive(core, event_log, decision_log, to_seq, at, progress, derive=True, taken=same)
    except Difference as found:
        return found.document
    except CoreMissing as error:
        return {"what": "core number", "seq": error.seq, "core": error.number, "detail": str(error)}
    except (LogGap, LogMismatch) as error:
        return {"what": "log", "seq": core.seq, "detail": str(error)}
    except InvariantBroken as error:
        return {"what": "invariant", "seq": core.seq, "cycle": core.cycle + 1, "detail": str(error)}
    return None


async def trust(
    core: Core, event_log: EventLog, decision_log: DecisionLog, to_seq: int, progress: OnProgress | None = None
) -> None:
    """Take ``core`` along to ``to_seq`` by the stored decisions, hashing no state on the way. Raises as ``state_at``."""
    await _drive(core, event_log, decision_log, to_seq, Progress(), progress, derive=False, check=False)


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
    batches = await _drive(core, event_log, decision_log, to_seq, Progress(), progress, derive=False)
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


async def _drive(
    core: Core,
    event_log: EventLog,
    decision_log: DecisionLog,
    to_seq: int | None,
    at: Progress,
    progress: OnProgress | None,
    *,
    derive: bool,
    check: bool = True,
    taken: OnBatch | None = None,
) -> StoredBatches:
    last_seq = await event_log.last_seq()
    stop_seq = last_seq if to_seq is None else to_seq
    if stop_seq > last_seq:
        raise ValueError(f"seq {stop_seq:,} is beyond the log, which ends at {last_seq:,}")
    if stop_seq < core.seq:
        raise ValueError(f"seq {stop_seq:,} is before the snapshot to start from, which is at {core.seq:,}")
    batches = StoredBatches(decision_log, core.cycle, core.seq + (0 if core.tick_pending else 1))
    at.last_seq = stop_seq
    how = _How(derive, check, taken, last_seq)
    with without_collector():
        await _go_on(core, event_log, batches, stop_seq, at, progress, how)
    return batches


async def _go_on(
    core: Core, event_log: EventLog, batches: StoredBatches, stop_seq: int, at: Progress, progress: OnProgress | None, how: _How
) -> None:
    start_seq = core.seq
    if core.tick_pending and not await _cycle(core, batches, at, how):
        return
    told_seq = core.seq
    while core.seq < stop_seq:
        read = await _next(core, event_log, stop_seq)
        while read.go_on():
            if core.tick_pending and not await _cycle(core, batches, at, how):
                return
            if core.seq - told_seq >= READ_EVENTS or core.seq == stop_seq:
                at.events, at.seq, at.time_ms = core.seq - start_seq, core.seq, core.time_ms
                told_seq = core.seq
                if progress is not None:
                    progress(at)
                await asyncio.sleep(0)  # not every log waits when it is read


@dataclass
class _Read:
    """What was read last, and how far it is folded: ``fold`` goes from a position up to the next tick, or the end at ``count``."""

    fold: Callable[[int], int]
    position: int
    count: int

    def go_on(self) -> bool:
        """Fold up to the next tick; False when nothing is left."""
        if self.position == self.count:
            return False
        self.position = self.fold(self.position)
        return True


async def _next(core: Core, event_log: EventLog, stop_seq: int) -> _Read:
    """Read what comes after the core's last record: of an archive, many in one text."""
    from apportion.adapters.logs.archive import ArchiveEventLog
    from apportion.adapters.logs.joined import JoinedEventLog

    archive: object = event_log
    if isinstance(event_log, JoinedEventLog) and (behind := await event_log.archived(core.seq)) is not None:
        archive, stop_seq = behind.log, min(stop_seq, behind.until_seq)
    if isinstance(archive, ArchiveEventLog):
        text = archive.text(core.seq, stop_seq)
        return _Read(partial(core.fold_text, text), 0, text.count)
    records = await event_log.read(core.seq, min(READ_EVENTS, stop_seq - core.seq))
    if not records:
        raise LogMismatch(f"the log promised seq {stop_seq:,} but ends at {core.seq:,}")
    return _Read(partial(core.fold_many, records), 0, len(records))


@dataclass(frozen=True)
class _How:
    """What is done with each stored batch: derived again, or trusted; and where the log ends."""

    derive: bool
    check: bool
    taken: OnBatch | None
    last_seq: int


async def _cycle(core: Core, batches: StoredBatches, at: Progress, how: _How) -> bool:
    """Decide the pending cycle; False when its batch is not written yet, which is fine at the end of the log only."""
    stored = await batches.next()
    if stored is None:
        if how.derive and core.seq < how.last_seq:
            later = "the log has records after this tick, but no batch answers it"
            raise Difference({"what": "missing batch", "seq": core.seq, "cycle": core.cycle + 1, "detail": later})
        return False
    if stored.input_seq != core.seq:
        detail = f"the tick is seq {core.seq:,}, the next stored batch answers seq {stored.input_seq:,}"
        raise Difference({"what": "order", "seq": core.seq, "cycle": core.cycle + 1, "detail": detail})
    if not how.derive:
        try:
            core.trust(stored.body, check=how.check)
        except InvariantBroken:
            raise
        except Exception as error:  # stored bytes are not to be believed: whatever they break is their fault
            detail = f"the stored batch cannot be folded: {type(error).__name__}: {error}"
            raise Difference({"what": "batch", "seq": core.seq, "cycle": core.cycle + 1, "detail": detail}) from error
    else:
        derived = core.decide()
        if derived != stored.body:
            raise Difference(describe(stored.body, derived))
    if how.taken is not None:
        how.taken(stored)
    at.cycles += 1
    return True


def describe(stored_body: bytes, derived_body: bytes) -> dict[str, Any]:
    """Return where two batches of one cycle differ: the part, the first differing decision, and both sides of it."""
    try:
        stored = decode_batch(stored_body)
    except msgspec.MsgspecError as error:
        derived = decode_batch(derived_body)
        text = stored_body[:400].decode("utf-8", "replace")
        return {
            "what": "unreadable batch",
            "seq": derived.seq,
            "cycle": derived.cycle,
            "detail": f"the stored bytes are not a batch ({error})",
            "stored": text,
            "derived": msgspec.to_builtins(derived),
        }
    derived = decode_batch(derived_body)
    found: dict[str, Any] = {"seq": derived.seq, "time_ms": derived.time_ms, "cycle": derived.cycle}
    for position in range(max(len(stored.decisions), len(derived.decisions))):
        left = stored.decisions[position] if position < len(stored.decisions) else None
        right = derived.decisions[position] if position < len(derived.decisions) else None
        if left != right:
            left_fields, right_fields = msgspec.to_builtins(left) or {}, msgspec.to_builtins(right) or {}
            names = sorted({*left_fields, *right_fields})
            return {
                **found,
                "what": "decision",
                "position": position,
                "fields": [name for name in names if left_fields.get(name) != right_fields.get(name)],
                "stored": left_fields or None,
                "derived": right_fields or None,
                "decisions_stored": len(stored.decisions),
                "decisions_derived": len(derived.decisions),
            }
    for name in ("books", "chain", "core", "cycle", "seq", "time_ms", "digest"):
        left_part, right_part = getattr(stored, name), getattr(derived, name)
        if left_part != right_part:
            return {
                **found,
                "what": name,
                "detail": _MEANING.get(name, ""),
                "stored": msgspec.to_builtins(left_part),
                "derived": msgspec.to_builtins(right_part),
            }
    return {
        **found,
        "what": "bytes",
        "detail": "the two batches say the same in other bytes",
        "stored": stored_body.decode("utf-8", "replace"),
        "derived": derived_body.decode("utf-8", "replace"),
    }


_MEANING = {
    "chain": "the records in the log are not the ones this cycle was decided on",
    "digest": "the decisions agree and the state after them does not",
    "books": "the decisions agree and the pool's accounts do not",
    "core": "another logic number decided this cycle",
}

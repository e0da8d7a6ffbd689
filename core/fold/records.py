"""Fold of a record: subject, envelope, payload, dispatch, refusal.

A sound record is decoded in one pass, envelope and payload together; one that is not goes through the steps, where each thing
that can be wrong gets its own refusal. The naive equivalent of the one pass are the steps; a property test feeds both.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from apportion.core import events, lag, ledger
from apportion.core.decisions import Rejected, WorkloadRejected
from apportion.core.envelope import MAX_BODY_BYTES, Record, Whole, decode_envelope, split_subject, too_deep
from apportion.core.errors import LogGap
from apportion.core.fold import budgets, grants, nodes, runs, services, setup, workloads
from apportion.core.fold.access import No, is_operator, not_permitted
from apportion.core.fold.beats import UNREADABLE
from apportion.core.reasons import Refusal
from apportion.core.state.digest import close_chain, extend_chain
from apportion.core.state.state import State
from apportion.core.units import MAX_ELAPSED_MS, first_time_ms, next_time_ms

_SUBJECT_CACHE_LIMIT = 100_000


class _Kind(NamedTuple):
    """How one type of event, in its newest version, is read in one pass and folded."""

    version: int
    decoder: msgspec.json.Decoder[Whole[Any]]
    fold: Callable[[State, Any, str, int], No | None]
    quiet: bool  # asks for no cycle by itself
    money: bool  # has no natural key of its own: the envelope's id is the change's
    settles: bool  # comes after what was planned for an instant before it; no heartbeat looks at that
    ticks: bool
    moves: bool  # may change a run, what it holds, a GPU, a node, or the tree (``State.moved``)


_subjects: dict[str, tuple[str, str] | None] = {}  # a pure function remembered; not state


def _split(subject: str) -> tuple[str, str] | None:
    if len(_subjects) >= _SUBJECT_CACHE_LIMIT:
        _subjects.clear()
    parts = _subjects[subject] = split_subject(subject)
    return parts


def fold_record(state: State, record: Record) -> bool:
    """Fold one record; True when it is an accepted ``clock.tick``, so that a cycle must be decided now.

    Raises ``LogGap`` when the record is not the next one.
    """
    seq, _, subject, body = record
    counters = state.counters
    if seq != counters.seq + 1:
        raise LogGap(counters.seq + 1, seq)
    counters.seq = seq
    parts = _subjects[subject] if subject in _subjects else _split(subject)
    kind = _KINDS.get(parts[1]) if parts is not None else None
    if parts is None or kind is None or not counters.opened or len(body) > MAX_BODY_BYTES or too_deep(body):
        return _fold_in_steps(state, record, parts)
    try:
        said = kind.decoder.decode(body)
    except UNREADABLE:
        return _fold_in_steps(state, record, parts)
    if said.type != parts[1] or said.v != kind.version or not _advance(state, record, said.at_ms):
        return _fold_in_steps(state, record, parts)
    extend_chain(state, record)
    return _fold_event(state, seq, parts, kind, said.id, said.data)


def _fold_in_steps(state: State, record: Record, parts: tuple[str, str] | None) -> bool:
    """Fold a record step by step, each with its own refusal."""
    counters = state.counters
    envelope, no = None, None
    if len(record.body) > MAX_BODY_BYTES:
        no = No(Refusal.TOO_LARGE, numbers={"bytes": len(record.body), "limit": MAX_BODY_BYTES})
    else:
        try:
            envelope = decode_envelope(record.body)
        except UNREADABLE as error:
            no = No(Refusal.BROKEN_JSON, *_place_of(error))
    at_ms = envelope.at_ms if envelope is not None else 0
    timely = _advance(state, record, at_ms)
    extend_chain(state, record)
    if parts is None:
        said = record.subject.encode("ascii", "backslashreplace").decode()[:256]  # whatever it was, the batch must be writable
        _refuse(state, record.seq, ("", said[:128]), No(Refusal.MALFORMED_SUBJECT, detail=said), None)
        return False
    if no is None and envelope is not None and envelope.type != parts[1]:
        no = No(Refusal.TYPE_MISMATCH, "type", f"subject says {parts[1][:128]}, body says {envelope.type[:128]}")
    if no is None and not timely:
        limit = counters.time_ms + MAX_ELAPSED_MS
        no = No(Refusal.INVALID_DATA, "at_ms", "no instant that can follow the last one", {"limit_ms": limit})
    event: events.Event | None = None
    if no is None and envelope is not None:
        event, no = _decode(parts[1], envelope.v, envelope.data)
    opens = not counters.opened and isinstance(event, events.LogOpened)
    if no is None and not counters.opened and not opens:
        no = No(Refusal.LOG_NOT_OPENED, detail="the first record must be log.opened")
    if no is not None or event is None or envelope is None:
        _refuse(state, record.seq, parts, no or No(Refusal.INVALID_DATA), event)
        return False
    ticks = _fold_event(state, record.seq, parts, _KINDS[parts[1]], envelope.id, event)
    if opens and counters.opened:
        # time begins here, from the source just stated
        counters.time_ms = first_time_ms(at_ms if counters.stated else record.stored_ms)
        counters.accrued_ms = counters.time_ms
    return ticks


def _fold_event(state: State, seq: int, parts: tuple[str, str], kind: _Kind, event_id: str, event: events.Event) -> bool:
    """Fold what was read; True when it is an accepted ``clock.tick``."""
    if kind.settles and 0 < state.counters.planned_ms <= state.counters.time_ms:
        ledger.accrue(state, state.counters.time_ms)  # what was planned for an instant before this record is in force by now
    if kind.money and event_id in state.change.row_of:
        no: No | None = No(Refusal.DUPLICATE, "id", "this change has been made", entity=event_id[:128])
    else:
        state.moved += kind.moves
        no = kind.fold(state, event, parts[0], seq)
    if no is not None:
        _refuse(state, seq, parts, no, event)
        return False
    if kind.money and event_id:
        change = state.change.add(event_id)  # on a line of its own: where the table grows, its columns are new ones
        state.change.made_ms[change] = state.counters.time_ms
    if not kind.quiet:
        state.counters.dirty = 1  # also when no decision can change: the next batch is the answer to who sent it
    return kind.ticks


def _decode(event_type: str, version: int, data: msgspec.Raw) -> tuple[events.Event | None, No | None]:
    try:
        return events.decode_data(event_type, version, data), None
    except events.UnknownType as error:
        return None, No(Refusal.UNKNOWN_TYPE, detail=str(error)[:256])
    except events.UnknownVersion as error:
        return None, No(Refusal.UNKNOWN_VERSION, "v", str(error)[:256])
    except UNREADABLE as error:
        return None, No(Refusal.INVALID_DATA, *_place_of(error))


def _place_of(error: Exception) -> tuple[str, str]:
    """Return (field, rule) of a decoding error; msgspec writes "<rule> - at `$.field`"."""
    rule, _, place = str(error).partition(" - at `$")
    return place.rstrip("`").lstrip(".")[:128], rule[:256]


def _advance(state: State, record: Record, at_ms: int) -> bool:
    """Give the record its time; False when it states one that cannot follow, which then does not move the clock.

    After a silence of the whole log nobody is late: the log was not written, which does not make nodes dead.
    """
    counters = state.counters
    if not counters.opened:
        return True
    claimed = at_ms if counters.stated else record.stored_ms
    now_ms = next_time_ms(counters.time_ms, claimed, stated=bool(counters.stated))
    if now_ms is None:
        return False
    if now_ms != counters.time_ms:
        if now_ms - counters.time_ms > counters.silence_ms:
            state.node.column("last_seen_ms")[:] = now_ms
        counters.time_ms = now_ms
    return True


def _tick(state: State, _event: events.ClockTick, principal: str, _seq: int) -> No | None:
    if not is_operator(state, principal):
        return not_permitted(principal, "write clock.tick: that is for the leading core")
    ledger.accrue(state, state.counters.time_ms)
    lag.forgive(state)
    close_chain(state)
    state.counters.tick_pending = 1
    return None


def _refuse(state: State, seq: int, parts: tuple[str, str], no: No, event: events.Event | None) -> None:
    principal, event_type = parts
    state.counters.refused += 1
    state.counters.dirty = 1
    if event_type == "workload.submitted" and isinstance(event, events.WorkloadSubmitted):
        state.refused.append(
            WorkloadRejected(
                workload=event.workload, event_seq=seq, principal=principal, reason=no.reason.value,
                field=no.field, detail=no.detail, numbers=no.numbers,
            )
        )  # fmt: skip
        return
    state.refused.append(
        Rejected(
            event_seq=seq, event_type=event_type[:128], principal=principal[:128], reason=no.reason.value,
            entity=no.entity, field=no.field, detail=no.detail, numbers=no.numbers,
        )
    )  # fmt: skip


_FOLDS: dict[type[events.Event], Callable[[State, Any, str, int], No | None]] = {
    events.LogOpened: setup.log_opened,
    events.CoreActivated: setup.core_activated,
    events.PoolDefined: setup.pool_defined,
    events.PolicyActivated: setup.policy_activated,
    events.NodeJoined: nodes.node_joined,
    events.NodeHeartbeat: nodes.node_heartbeat,
    events.NodeCordoned: nodes.node_cordoned,
    events.NodeDrained: nodes.node_drained,
    events.NodeUncordoned: nodes.node_uncordoned,
    events.NodeLeft: nodes.node_left,
    events.BudgetSet: budgets.budget_set,
    events.BudgetGranted: grants.budget_granted,
    events.BudgetTransferred: grants.budget_transferred,
    events.BudgetWithdrawn: grants.budget_withdrawn,
    events.GrantScheduled: grants.grant_scheduled,
    events.BudgetClosed: budgets.budget_closed,
    events.MemberGranted: budgets.member_granted,
    events.MemberRevoked: budgets.member_revoked,
    events.WorkloadSubmitted: workloads.workload_submitted,
    events.WorkloadCancelled: workloads.workload_cancelled,
    events.WorkloadReprioritized: workloads.workload_reprioritized,
    events.RunStarted: runs.run_started,
    events.RunCheckpointed: runs.run_checkpointed,
    events.RunProgressed: runs.run_progressed,
    events.RunFinished: runs.run_finished,
    events.RunLost: runs.run_lost,
    events.DemandObserved: services.demand_observed,
    events.ForecastPublished: services.forecast_published,
    events.ClockTick: _tick,
}
_QUIET = (events.NodeHeartbeat, events.RunProgressed, events.DemandObserved, events.ForecastPublished, events.ClockTick)
_MONEY = (events.BudgetGranted, events.BudgetTransferred, events.BudgetWithdrawn, events.GrantScheduled)
_STILL = (events.ClockTick, events.WorkloadSubmitted)  # a line that a submission makes is another matter (``users``)
_KINDS: dict[str, _Kind] = {
    events.EVENT_TYPES[event]: _Kind(
        version=events.NEWEST[events.EVENT_TYPES[event]],
        decoder=msgspec.json.Decoder(Whole[event]),  # type: ignore[valid-type]  # a type that is a value
        fold=fold,
        quiet=event in _QUIET,
        money=event in _MONEY,
        settles=event is not events.NodeHeartbeat,
        ticks=event is events.ClockTick,
        moves=event not in _STILL,
    )
    for event, fold in _FOLDS.items()
}

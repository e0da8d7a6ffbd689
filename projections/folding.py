"""One cycle: its records and the batch that answers them, folded into rows by the projection's nouns.

Knows which noun takes which event or decision, and checks what was read against what the core says it read: the chain over
the records, the time of the tick. A pure function of the cycle and of what the nouns remember; it neither reads the streams
nor writes the tables.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import duckdb
import msgspec

from apportion.core import decisions, events
from apportion.core.envelope import MAX_BODY_BYTES, Envelope, Record, StoredBatch, decode_envelope, split_subject
from apportion.core.errors import Divergence, LogMismatch
from apportion.projections.allocations import Allocations
from apportion.projections.budgets import Budgets
from apportion.projections.capacity import Capacity
from apportion.projections.clock import LogClock
from apportion.projections.cycles import Cycles, RawBatch, decode_decision, decode_raw_batch
from apportion.projections.drains import Drains
from apportion.projections.heartbeats import HEARTBEAT, Heartbeats, decode_beat
from apportion.projections.ledger import Ledger
from apportion.projections.moment import Decided, Said
from apportion.projections.plans import Plans
from apportion.projections.services import Services
from apportion.projections.sheet import Intervals, OpenRows, Sheet
from apportion.projections.workloads import Workloads


class Folding:
    """The nouns, their tables, and the clock of the log."""

    def __init__(self) -> None:
        self.clock = LogClock()
        self.cycles = Cycles()
        self.drains = Drains()
        self.capacity = Capacity(self.drains)
        self.heartbeats = Heartbeats(self.capacity)
        self.ledger = Ledger()
        self.budgets = Budgets(self.ledger)
        self.services = Services()
        self.plans = Plans()
        self.workloads = Workloads(self.services)
        self.allocations = Allocations(self.workloads, self.ledger)
        self.log = Sheet("dim.log", "seq", "time_ms", "log_id", "time_source", "core", "principal")
        self.operators = Sheet("dim.operator", "seq", "principal")
        self.intervals: tuple[Intervals, ...] = (
            self.workloads.states, self.allocations.runs, self.allocations.allocs, self.capacity.states,
            self.drains.spans,
        )  # fmt: skip
        self.open: tuple[OpenRows, ...] = (
            *(pair.open for pair in self.intervals), self.capacity.now, self.heartbeats.open,
        )  # fmt: skip
        self.sheets: tuple[Sheet, ...] = (
            self.cycles.log, self.cycles.cycles, self.cycles.decisions, self.workloads.asked, self.workloads.wishes,
            self.workloads.priorities, self.services.asked, self.services.sizes, self.services.demands, self.services.forecasts,
            self.plans.made, self.plans.jobs, self.plans.services, self.plans.idle,
            *(pair.closed for pair in self.intervals), self.ledger.lines, self.heartbeats.closed, self.capacity.pools,
            self.capacity.policies, self.capacity.versions, self.budgets.versions, self.budgets.members,
            self.budgets.schedules, self.log,
            self.operators,
        )  # fmt: skip
        self._events = self._event_handlers()
        self._decisions = self._decision_handlers()

    def load(self, con: duckdb.DuckDBPyConnection) -> None:
        """Take up what the nouns remember; the open rows are loaded already, and the tables up to date."""
        for pair in self.intervals:
            pair.load(con)
        for noun in (self.drains, self.capacity, self.heartbeats, self.budgets, self.workloads, self.allocations):
            noun.load(con)

    def cycle(self, records: Sequence[Record], stored: StoredBatch) -> None:
        """Fold one cycle: ``records`` up to the tick that ``stored`` answers.

        Raises ``LogMismatch`` or ``Divergence`` when they are not what the core read.
        """
        batch = decode_raw_batch(stored.body)
        if batch.seq != stored.input_seq:
            raise LogMismatch(f"decision seq {stored.seq} answers seq {batch.seq}, but its header says {stored.input_seq}")
        answers = [decode_decision(body) for body in batch.decisions]
        refused = {
            answer.event_seq: answer.entity if isinstance(answer, decisions.Rejected) else answer.workload
            for answer in answers
            if isinstance(answer, decisions.Rejected | decisions.WorkloadRejected)
        }
        try:
            tick = self._records(records, refused)
        except (LookupError, ValueError, RecursionError) as error:  # msgspec's errors are ValueErrors, but for depth
            raise LogMismatch(
                f"the cycle at seq {batch.seq} cannot be folded ({error!r}); the log is not the one the core read, "
                "or this is a fault of the projector: keep the log and report it"
            ) from error
        if tick is None:
            raise LogMismatch(f"the record at seq {batch.seq} is no accepted clock.tick, but a cycle answers it")
        chain = self.clock.close_chain()
        if chain != batch.chain:
            raise LogMismatch(
                f"the records up to seq {batch.seq} are not those the core read (their chain is {chain[:16]}, "
                f"the core's {batch.chain[:16]}); the log was changed, or it is another log"
            )
        if self.clock.time_ms != batch.time_ms:
            raise Divergence(batch.seq, "time of the tick", str(batch.time_ms), str(self.clock.time_ms))
        try:
            self._decide(batch, answers)
        except LookupError as error:
            raise LogMismatch(
                f"the decisions at seq {batch.seq} do not fit what was projected before ({error!r}); rebuild the projection, "
                "and if it happens again report it"
            ) from error
        self.cycles.cycle(batch, stored.seq, tick.why, records[0].seq, self.heartbeats.take_counts())

    def _records(self, records: Sequence[Record], refused: dict[int, str]) -> events.ClockTick | None:
        """Fold the records of one cycle; returns the tick that ends it, None when the last record is none."""
        heartbeats, clock = self.heartbeats, self.clock
        event: events.Event | None = None
        index = 0
        while True:
            after = heartbeats.fold(records, index, refused, clock)
            if after != index:
                index, event = after, None
            if index == len(records):
                return event if isinstance(event, events.ClockTick) else None
            record = records[index]
            index += 1
            event = None
            parts = split_subject(record.subject)
            if parts is None or record.seq in refused:
                self._refused(record, parts, refused.get(record.seq, ""))
            elif parts[1] == HEARTBEAT:
                heard = decode_beat(record.body)
                heartbeats.beat(record.seq, clock.take(record, heard.at_ms), heard.data)
            else:
                event = self._accepted(record, parts)

    def _refused(self, record: Record, parts: tuple[str, str] | None, entity: str) -> None:
        envelope: Envelope | None = None
        if len(record.body) <= MAX_BODY_BYTES:
            try:
                envelope = decode_envelope(record.body)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                envelope = None
        time_ms = self.clock.take(record, envelope.at_ms if envelope is not None else 0)
        self.cycles.refused(record, time_ms, parts, envelope, entity)

    def _accepted(self, record: Record, parts: tuple[str, str]) -> events.Event:
        envelope = decode_envelope(record.body)
        event = events.decode_data(parts[1], envelope.v, envelope.data)
        time_ms = self.clock.take(record, envelope.at_ms)
        if isinstance(event, events.LogOpened):
            time_ms = self.clock.open(event.time_source == "stated", record.stored_ms, envelope.at_ms)
        self.cycles.accepted(record, time_ms, parts, envelope, event)
        handler = self._events.get(type(event))
        if handler is not None:
            handler(Said(record.seq, time_ms, parts[0]), event)
        return event

    def _log_opened(self, at: Said, event: events.LogOpened) -> None:
        self.log.rows.append((at.seq, at.time_ms, event.log_id, event.time_source, event.core, at.principal))
        self.operators.rows.extend((at.seq, name) for name in dict.fromkeys((at.principal, "core", *event.operators)))

    def _decide(self, batch: RawBatch, answers: list[decisions.AnyDecision]) -> None:
        for position, (decision, body) in enumerate(zip(answers, batch.decisions, strict=True)):
            at = Decided(batch.seq, position, batch.time_ms)
            self.cycles.decided(at, decision, body)
            handler = self._decisions.get(type(decision))
            if handler is not None:
                handler(at, decision)

    def _event_handlers(self) -> dict[type[Any], Callable[[Said, Any], None]]:
        capacity, budgets, workloads, allocations = self.capacity, self.budgets, self.workloads, self.allocations
        return {
            events.LogOpened: self._log_opened,
            events.PoolDefined: capacity.pool_defined,
            events.PolicyActivated: capacity.policy_activated,
            events.NodeJoined: capacity.node_joined,
            events.NodeCordoned: capacity.node_cordoned,
            events.NodeDrained: capacity.node_drained,
            events.NodeUncordoned: capacity.node_uncordoned,
            events.NodeLeft: capacity.node_left,
            events.BudgetSet: budgets.budget_set,
            events.BudgetGranted: budgets.budget_granted,
            events.BudgetTransferred: budgets.budget_transferred,
            events.BudgetWithdrawn: budgets.budget_withdrawn,
            events.GrantScheduled: budgets.grant_scheduled,
            events.BudgetClosed: budgets.budget_closed,
            events.MemberGranted: budgets.member_granted,
            events.MemberRevoked: budgets.member_revoked,
            events.WorkloadSubmitted: workloads.submitted,
            events.WorkloadReprioritized: workloads.reprioritized,
            events.DemandObserved: self.services.observed,
            events.ForecastPublished: self.services.forecast,
            events.RunStarted: allocations.started,
            events.RunCheckpointed: allocations.checkpointed,
            events.RunProgressed: allocations.progressed,
        }

    def _decision_handlers(self) -> dict[type[Any], Callable[[Decided, Any], None]]:
        capacity, budgets, workloads, allocations = self.capacity, self.budgets, self.workloads, self.allocations
        return {
            decisions.WorkloadAdmitted: workloads.admitted,
            decisions.WorkloadClosed: workloads.closed,
            decisions.GpusReserved: workloads.reserved,
            decisions.RunPlaced: allocations.placed,
            decisions.RunPreempted: allocations.stopping,
            decisions.RunCancelled: allocations.stopping,
            decisions.RunDrained: allocations.stopping,
            decisions.RunMoved: allocations.stopping,
            decisions.RunClosed: allocations.closed,
            decisions.FundingChanged: allocations.funding_changed,
            decisions.GrantIssued: budgets.grant_issued,
            decisions.NodeSuspended: capacity.node_suspended,
            decisions.RunRetired: allocations.stopping,
            decisions.ServiceResized: self.services.resized,
            decisions.PlanPublished: self.plans.published,
        }

"""Runs, the GPUs they held, and who paid: intervals, each with exactly one payer for its whole length, and their charges.

A pure function of decisions, plus what agents report about a run (start, checkpoint, progress). GPU time begins with
``run.placed`` and ends at ``run.closed.end_ms``; a payer changes only by ``funding.changed``. Must never round: an
interval's GPU time is milli-GPU x milliseconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import duckdb
import msgspec

from apportion.core import events
from apportion.core.decisions import (
    FundingChanged,
    RunClosed,
    RunPlaced,
    RunStop,
)
from apportion.core.reasons import Outcome, Payer
from apportion.core.units import gpu_us
from apportion.projections import ledger as post
from apportion.projections.ledger import Ledger, Line
from apportion.projections.moment import Decided, Said
from apportion.projections.sheet import Intervals
from apportion.projections.workloads import Workloads

FUNDING_CHANGED = "funding_changed"
_ALLOC = (
    "alloc_id", "workload", "run", "piece", "pool", "node", "gpus", "milli_each", "gpus_milli", "budget", "principal",
    "kind", "payer", "why", "protected_until_ms", "open_seq", "start_ms",
)  # fmt: skip
_PAYER, _WHY, _OPEN_SEQ, _START_MS, _GPUS_MILLI = (_ALLOC.index(c) for c in ("payer", "why", "open_seq", "start_ms", "gpus_milli"))
_RUN = (
    "run_id", "workload", "run", "pool", "budget", "principal", "kind", "gpus_milli", "nodes", "placed_seq", "placed_ms",
    "placed_payer", "placed_why", "beneficiary", "protected_until_ms", "reserved_gpu_us", "resume_from_ms", "started_seq",
    "started_ms", "stop_seq", "stop_ms", "safe_ms", "progress_ms", "payer", "payer_since_ms", "reserved_left_gpu_us",
)  # fmt: skip
_RUN_TAIL = (
    "closed_seq", "end_ms", "outcome", "charged_gpu_us", "unfunded_gpu_us", "refunded_gpu_us", "unfunded_refunded_gpu_us",
    "voided_gpu_us", "lost_gpu_us", "useful_gpu_us", "exit_code", "requeued", "event_seq",
)  # fmt: skip


@dataclass(slots=True)
class Run:
    """A run in progress; the fields are the columns of ``fact.run_open``."""

    run_id: int
    workload: str
    run: int
    pool: str
    budget: str
    principal: str
    kind: str
    gpus_milli: int
    nodes: int
    placed_seq: int
    placed_ms: int
    placed_payer: str
    placed_why: str
    beneficiary: bool
    protected_until_ms: int
    reserved_gpu_us: int
    resume_from_ms: int
    started_seq: int = 0
    started_ms: int = 0
    stop_seq: int = 0
    stop_ms: int = 0
    safe_ms: int = 0
    progress_ms: int = 0
    payer: str = ""
    payer_since_ms: int = 0
    reserved_left_gpu_us: int = 0

    def useful_gpu_us(self, decision: RunClosed) -> int:
        """Return the part of its GPU time that led to something: all of a success, else what is safe at a checkpoint."""
        total = decision.charged_gpu_us + decision.unfunded_gpu_us
        if decision.outcome == Outcome.SUCCEEDED.value:
            return total
        kept = total - decision.refunded_gpu_us - decision.unfunded_refunded_gpu_us
        return min(kept, self.gpus_milli * max(0, self.safe_ms - self.resume_from_ms))


_row_of = attrgetter(*_RUN)


class Allocations:
    """Rows about runs and allocations."""

    def __init__(self, workloads: Workloads, ledger: Ledger) -> None:
        self.workloads = workloads
        self.ledger = ledger
        self.allocs = Intervals("fact.alloc", _ALLOC, ("close_seq", "end_ms", "gpu_us", "end_reason"))
        self.runs = Intervals("fact.run", _RUN, _RUN_TAIL)
        self._run: dict[tuple[str, int], Run] = {}
        self._pieces: dict[tuple[str, int], list[int]] = {}  # open allocations of a run, lead first
        self._lead: dict[tuple[str, int], str] = {}

    def load(self, _con: duckdb.DuckDBPyConnection) -> None:
        """Take up runs and pieces from loaded open rows."""
        self._run = {(row[1], row[2]): Run(*row) for row in self.runs.open.rows.values()}
        self._pieces, self._lead = {}, {}
        for row in sorted(self.allocs.open.rows.values(), key=lambda row: (row[1], row[2], row[3])):
            key = (row[1], row[2])
            self._pieces.setdefault(key, []).append(row[0])
            self._lead.setdefault(key, row[5])

    def placed(self, at: Decided, decision: RunPlaced) -> None:
        """Its GPUs are held, and somebody or nobody pays, from now on."""
        live = self.workloads.live[decision.workload]
        key = (decision.workload, decision.run)
        run_id = self.runs.begin(
            decision.workload, decision.run, decision.pool, decision.budget, live.principal, live.kind, decision.gpus_milli,
            len(decision.pieces), at.seq, at.time_ms, decision.payer, decision.why, decision.beneficiary,
            decision.protected_until_ms, decision.reserved_gpu_us, decision.resume_from_ms, 0, 0, 0, 0,
            decision.resume_from_ms, decision.resume_from_ms, decision.payer, at.time_ms, decision.reserved_gpu_us,
        )  # fmt: skip
        self._run[key] = Run(*self.runs.open.rows[run_id])
        self._lead[key] = decision.pieces[0].node
        self._pieces[key] = [
            self.allocs.begin(
                decision.workload, decision.run, number, decision.pool, piece.node, msgspec.json.encode(piece.gpus).decode(),
                piece.milli_each, len(piece.gpus) * piece.milli_each, decision.budget, live.principal, live.kind,
                decision.payer, decision.why, decision.protected_until_ms, at.seq, at.time_ms,
            )
            for number, piece in enumerate(decision.pieces)
        ]
        self.workloads.placed(at, decision)
        lines = post.reserve(decision.budget, decision.reserved_gpu_us)
        self.ledger.post(at, decision.pool, decision.workload, decision.run, lines)

    def started(self, at: Said, event: events.RunStarted) -> None:
        """The lead's word counts; other nodes of a gang say nothing new."""
        key = (event.workload, event.run)
        if event.node != self._lead[key]:
            return
        run = self._run[key]
        run.started_seq, run.started_ms = at.seq, at.time_ms
        self._put(run)
        self.workloads.started(at, event)

    def checkpointed(self, _at: Said, event: events.RunCheckpointed) -> None:
        """Work up to here is safe."""
        run = self._run[event.workload, event.run]
        run.safe_ms = event.progress_ms
        run.progress_ms = max(run.progress_ms, event.progress_ms)
        self._put(run)

    def progressed(self, _at: Said, event: events.RunProgressed) -> None:
        """Work up to here is done, not yet safe."""
        run = self._run[event.workload, event.run]
        run.progress_ms = max(run.progress_ms, event.progress_ms)
        self._put(run)

    def stopping(self, at: Decided, decision: RunStop) -> None:
        """It was asked to stop."""
        run = self._run[decision.workload, decision.run]
        run.stop_seq, run.stop_ms = at.seq, at.time_ms
        self._put(run)
        self.workloads.stopping(at, decision)

    def funding_changed(self, at: Decided, decision: FundingChanged) -> None:
        """Another payer from now on: the intervals end, and new ones begin."""
        key = (decision.workload, decision.run)
        run = self._run[key]
        self.ledger.post(at, run.pool, run.workload, run.run, self._settle(run, at.time_ms))
        pieces = []
        for alloc_id in self._pieces[key]:
            row = list(self._end_alloc(alloc_id, at.seq, at.time_ms, FUNDING_CHANGED))[: len(_ALLOC)]
            row[_PAYER], row[_WHY], row[_OPEN_SEQ], row[_START_MS] = decision.payer, decision.why, at.seq, at.time_ms
            pieces.append(self.allocs.begin(*row[1:]))
        self._pieces[key] = pieces
        run.payer, run.payer_since_ms = decision.payer, at.time_ms
        self._put(run)

    def closed(self, at: Decided, decision: RunClosed) -> None:
        """The final account."""
        key = (decision.workload, decision.run)
        run = self._run.pop(key)
        lines = self._settle(run, decision.end_ms)
        voided = run.reserved_left_gpu_us
        run.reserved_left_gpu_us = 0
        lines += post.void(run.budget, voided)
        lines += post.refund(run.budget, decision.refunded_gpu_us, decision.unfunded_refunded_gpu_us)
        self.ledger.post(at, run.pool, run.workload, run.run, lines)
        for alloc_id in self._pieces.pop(key):
            self._end_alloc(alloc_id, at.seq, decision.end_ms, decision.outcome)
        del self._lead[key]
        self._put(run)
        self.runs.end(
            run.run_id, at.seq, decision.end_ms, decision.outcome, decision.charged_gpu_us, decision.unfunded_gpu_us,
            decision.refunded_gpu_us, decision.unfunded_refunded_gpu_us, decision.voided_gpu_us, decision.lost_gpu_us,
            run.useful_gpu_us(decision), decision.exit_code, decision.requeued, decision.event_seq,
        )  # fmt: skip
        self.workloads.run_closed(at, decision)

    def _settle(self, run: Run, until_ms: int) -> list[Line]:
        """Return the lines for the time since the payer last changed; a reservation is used up first."""
        amount = gpu_us(run.gpus_milli, until_ms - run.payer_since_ms)
        if run.payer != Payer.BUDGET.value:
            return post.unfunded(run.budget, amount)
        from_reserved = min(amount, run.reserved_left_gpu_us)
        run.reserved_left_gpu_us -= from_reserved
        return post.charge(run.budget, amount, from_reserved)

    def _end_alloc(self, alloc_id: int, seq: int, end_ms: int, reason: str) -> tuple[Any, ...]:
        row = self.allocs.open.rows[alloc_id]
        return self.allocs.end(alloc_id, seq, end_ms, gpu_us(row[_GPUS_MILLI], end_ms - row[_START_MS]), reason)

    def _put(self, run: Run) -> None:
        self.runs.replace(_row_of(run))

"""Oracles over the decisions of a simulation: each rule recomputed from the decisions alone, with its own books.

``Checker`` is shown every batch in order and keeps, in plain dictionaries, who holds which GPU and who pays. It shares
no code with the core; a broken rule raises ``AssertionError`` naming the cycle.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from apportion.core.decisions import (
    CycleBatch,
    FundingChanged,
    GpusReserved,
    MovesProposed,
    NodeSuspended,
    PendingExplained,
    Piece,
    Rejected,
    RunCancelled,
    RunClosed,
    RunDrained,
    RunIdle,
    RunMoved,
    RunPlaced,
    RunPreempted,
    WorkloadAdmitted,
    WorkloadClosed,
    WorkloadRejected,
)
from apportion.core.fold.setup import QUANTUM_MS
from apportion.core.reasons import RESUMABLE, Funding, Outcome, Payer, Pending, Refusal


@dataclass
class Held:
    """A run in progress, as its decisions tell it."""

    placed: RunPlaced
    placed_ms: int
    payer: str
    since_ms: int
    charged: int = 0
    unfunded: int = 0
    stopping: bool = False

    def settle(self, now_ms: int) -> None:
        amount = self.placed.gpus_milli * (now_ms - self.since_ms)
        if self.payer == Payer.BUDGET.value:
            self.charged += amount
        else:
            self.unfunded += amount
        self.since_ms = now_ms


@dataclass
class Checker:
    """Feed it every batch; read ``counts`` afterwards."""

    pool: str = "h100"
    constant_supply_milli: int = 0  # 0 = nodes come and go, do not check
    start_ms: int = 0
    idle_hold_ms: int = 0  # 0 = whatever the pool's limit is; else runs that do no work for so long are demoted
    asleep: dict[str, int] = field(default_factory=dict)  # run -> since when, as told
    admitted: dict[str, WorkloadAdmitted] = field(default_factory=dict)
    runs: dict[str, Held] = field(default_factory=dict)
    running: dict[str, str] = field(default_factory=dict)  # workload -> run
    over: dict[str, str] = field(default_factory=dict)
    used: Counter[tuple[str, int]] = field(default_factory=Counter)
    reasons: dict[str, tuple[str, int]] = field(default_factory=dict)
    promised: dict[str, tuple[int, int]] = field(default_factory=dict)  # when it was told to start, and how late that was
    reserved: dict[str, tuple[Piece, ...]] = field(default_factory=dict)
    run_numbers: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    beneficiaries: dict[str, int] = field(default_factory=dict)  # -> cycle of the preemption
    served: set[str] = field(default_factory=set)
    suspended: set[str] = field(default_factory=set)
    funded_total: int = 0  # closed runs, net of refunds
    unfunded_total: int = 0
    last: CycleBatch | None = None

    def __call__(self, batch: CycleBatch) -> None:
        try:
            self._check(batch)
        except AssertionError as error:
            raise AssertionError(f"cycle {batch.cycle} (seq {batch.seq}, time {batch.time_ms}): {error}") from error

    def _check(self, batch: CycleBatch) -> None:
        last = self.last
        if last is not None:
            assert batch.cycle == last.cycle + 1, f"cycle follows {last.cycle}"
            assert batch.seq > last.seq, f"seq follows {last.seq}"
            assert batch.time_ms >= last.time_ms, f"time runs backwards from {last.time_ms}"
        for decision in batch.decisions:
            name = type(decision).__name__
            self.counts[name] += 1
            getattr(self, f"_{name.lower()}")(decision, batch)
        self._books(batch)
        self.last = batch

    # -- decisions -----------------------------------------------------------------------------------------------------

    def _workloadadmitted(self, decision: WorkloadAdmitted, batch: CycleBatch) -> None:
        assert decision.workload not in self.admitted, f"{decision.workload} is admitted twice"
        assert decision.workload not in self.over, f"{decision.workload} is admitted after its end"
        self.admitted[decision.workload] = decision

    def _workloadrejected(self, decision: WorkloadRejected, batch: CycleBatch) -> None:
        self._refused(decision, batch)

    def _rejected(self, decision: Rejected, batch: CycleBatch) -> None:
        self._refused(decision, batch)

    def _refused(self, decision: Rejected | WorkloadRejected, batch: CycleBatch) -> None:
        Refusal(decision.reason)
        after = self.last.seq if self.last is not None else 0
        assert after < decision.event_seq <= batch.seq, f"{decision.event_seq} is refused in the wrong cycle"
        self.counts[f"refused {decision.reason}"] += 1

    def _runplaced(self, placed: RunPlaced, batch: CycleBatch) -> None:
        key = f"{placed.workload}#{placed.run}"
        admitted = self.admitted.get(placed.workload)
        assert admitted is not None, f"{key} is placed, but the workload is not admitted or over"
        assert placed.workload not in self.running, f"{key}: two runs at once"
        self.run_numbers[placed.workload] += 1
        assert placed.run == self.run_numbers[placed.workload], f"{key} is not the next attempt"
        assert len({piece.node for piece in placed.pieces}) == len(placed.pieces) == admitted.nodes, f"{key}: nodes"
        total = 0
        for piece in placed.pieces:
            assert piece.node not in self.suspended, f"{key} is placed on suspended {piece.node}"
            assert len(set(piece.gpus)) == len(piece.gpus), f"{key}: a GPU twice"
            on_node = len(piece.gpus) * piece.milli_each
            assert on_node == admitted.milli_per_node, f"{key}: {on_node} milli on {piece.node}"
            total += on_node
            for gpu in piece.gpus:
                self.used[piece.node, gpu] += piece.milli_each
                assert self.used[piece.node, gpu] <= 1_000, f"{key}: GPU {gpu} of {piece.node} is taken"
                for owner, pieces in self.reserved.items():
                    taken = any(piece.node == other.node and gpu in other.gpus for other in pieces)
                    assert owner == placed.workload or not taken, f"{key} takes a GPU held for {owner}"
        assert total == placed.gpus_milli, f"{key}: pieces sum to {total}"
        Funding(placed.why)
        if admitted.min_runtime_ms == 0:
            assert placed.payer == Payer.UNFUNDED.value, f"{key}: idle-cycle work is never funded"
            assert placed.protected_until_ms <= batch.time_ms, f"{key}: idle-cycle work is not protected"
        if placed.reserved_gpu_us:
            assert placed.payer == Payer.BUDGET.value, f"{key}: protected time is reserved from a payer"
        self.running[placed.workload] = key
        self.runs[key] = Held(placed, batch.time_ms, placed.payer, batch.time_ms)
        self.reasons.pop(placed.workload, None)
        self.reserved.pop(placed.workload, None)
        if placed.workload in self.beneficiaries:
            self.served.add(placed.workload)
            del self.beneficiaries[placed.workload]
            self.counts["beneficiaries started"] += 1

    def _runclosed(self, closed: RunClosed, batch: CycleBatch) -> None:
        key = f"{closed.workload}#{closed.run}"
        held = self.runs.pop(key, None)
        assert held is not None, f"{key} is closed but not in progress"
        del self.running[closed.workload]
        Outcome(closed.outcome)
        assert closed.placed_ms == held.placed_ms, f"{key}: placed at {held.placed_ms}"
        assert held.placed_ms <= closed.end_ms <= batch.time_ms, f"{key} ends at {closed.end_ms}"
        assert closed.end_ms >= held.since_ms, f"{key} ends before its payer last changed"
        held.settle(closed.end_ms)
        mine = (held.charged, held.unfunded)
        assert mine == (closed.charged_gpu_us, closed.unfunded_gpu_us), f"{key}: my books say {mine}: {closed}"
        assert 0 <= closed.refunded_gpu_us <= closed.charged_gpu_us, f"{key}: refund {closed.refunded_gpu_us}"
        assert 0 <= closed.unfunded_refunded_gpu_us <= closed.unfunded_gpu_us, f"{key}: unfunded refund"
        hardware = (Outcome.NODE_LOST.value, Outcome.LOST.value, Outcome.DRAINED.value, Outcome.MOVED.value)
        if closed.outcome not in hardware:
            assert closed.refunded_gpu_us + closed.unfunded_refunded_gpu_us == 0, f"{key}: refund for {closed.outcome}"
        goes_on = closed.requeued and not closed.not_before_ms and Outcome(closed.outcome) in RESUMABLE
        if not goes_on:
            self.reserved.pop(closed.workload, None)  # where it was to be moved
        self.funded_total += closed.charged_gpu_us - closed.refunded_gpu_us
        self.unfunded_total += closed.unfunded_gpu_us - closed.unfunded_refunded_gpu_us
        for piece in held.placed.pieces:
            for gpu in piece.gpus:
                self.used[piece.node, gpu] -= piece.milli_each
                assert self.used[piece.node, gpu] >= 0
        self.counts[f"run {closed.outcome}"] += 1

    def _workloadclosed(self, closed: WorkloadClosed, batch: CycleBatch) -> None:
        assert closed.workload in self.admitted, f"{closed.workload} ends but was not admitted, or ended before"
        assert closed.workload not in self.running, f"{closed} while it runs"
        assert closed.runs == self.run_numbers[closed.workload], f"{closed}; runs: {self.run_numbers[closed.workload]}"
        del self.admitted[closed.workload]
        self.over[closed.workload] = closed.outcome
        self.reasons.pop(closed.workload, None)
        self.reserved.pop(closed.workload, None)
        self.beneficiaries.pop(closed.workload, None)
        self.counts[f"workload {closed.outcome}"] += 1

    def _runpreempted(self, preempted: RunPreempted, batch: CycleBatch) -> None:
        key = f"{preempted.workload}#{preempted.run}"
        held = self.runs[key]
        proof = preempted.certificate
        assert not held.stopping, f"{key} is asked to stop twice"
        held.stopping = True
        idle_cycles = self.admitted[preempted.workload].min_runtime_ms == 0
        assert held.payer == Payer.UNFUNDED.value, f"{key} is funded and preempted"
        assert batch.time_ms >= held.placed.protected_until_ms, f"{key} is protected and preempted"
        over = 2 * proof.victim_running_milli - proof.victim_gpus_milli > 2 * proof.victim_allowance_milli
        demoted = proof.numbers.get("idle_since_ms", 0)
        if demoted:
            assert self.idle_hold_ms, f"{key}: runs that do no work are not demoted here: {proof}"
            assert self.asleep.get(key) == demoted, f"{key} is called idle since {demoted}, told was {self.asleep.get(key)}"
        idle_cycles = idle_cycles or demoted > 0
        assert idle_cycles or over, f"{key}: the certificate does not allow it: {proof}"
        wants = 2 * proof.beneficiary_running_milli + proof.beneficiary_gpus_milli
        assert wants <= 2 * proof.beneficiary_allowance_milli, f"{key}: the beneficiary is not funded: {proof}"
        assert proof.victim_gpus_milli == held.placed.gpus_milli
        assert proof.beneficiary in self.admitted, f"{key}: no such beneficiary: {proof}"
        assert proof.victim_budget != proof.beneficiary_budget or idle_cycles, f"{key}: preempted by its own budget"
        self.beneficiaries[proof.beneficiary] = batch.cycle

    def _runcancelled(self, cancelled: RunCancelled, batch: CycleBatch) -> None:
        held = self.runs[f"{cancelled.workload}#{cancelled.run}"]
        assert not held.stopping, f"{cancelled}: it is asked to stop twice"
        held.stopping = True

    def _rundrained(self, drained: RunDrained, batch: CycleBatch) -> None:
        key = f"{drained.workload}#{drained.run}"
        held = self.runs[key]
        assert not held.stopping, f"{drained}: it is asked to stop twice"
        assert drained.node in {piece.node for piece in held.placed.pieces}, f"{key} holds nothing on {drained.node}"
        assert drained.payer == held.payer, f"{key}: {drained.payer} is said to pay"
        safe = held.payer == Payer.BUDGET.value or batch.time_ms < held.placed.protected_until_ms
        assert drained.forced == safe, f"{key} is funded or protected: {safe}: {drained}"
        held.stopping = True
        self.counts["drained saved" if drained.saved else "drained at the end"] += 1

    def _runmoved(self, moved: RunMoved, batch: CycleBatch) -> None:
        key = f"{moved.workload}#{moved.run}"
        held, proof = self.runs[key], moved.certificate
        assert not held.stopping, f"{moved}: it is asked to stop twice"
        assert moved.payer == held.payer, f"{key}: {moved.payer} is said to pay"
        assert batch.time_ms >= held.placed.protected_until_ms, f"{key} is protected and moved"
        assert proof.beneficiary in self.admitted, f"{key}: no such beneficiary: {proof}"
        assert proof.needed_milli <= proof.free_milli, f"{key}: moves cannot help: {proof}"
        held.stopping = True
        self.reserved[moved.workload] = moved.pieces
        self.counts["runs moved"] += 1

    def _movesproposed(self, proposal: MovesProposed, _batch: CycleBatch) -> None:
        assert proposal.workload in self.admitted, f"{proposal}: no such workload"
        assert proposal.workload not in self.running, f"{proposal}: it runs"

    def _gpusreserved(self, reserved: GpusReserved, batch: CycleBatch) -> None:
        assert reserved.workload in self.admitted, f"GPUs are held for {reserved.workload}, which is over or unknown"
        self.reserved.pop(reserved.workload, None)
        for owner, pieces in self.reserved.items():
            for piece in pieces:
                for other in reserved.pieces:
                    both = piece.node == other.node and set(piece.gpus) & set(other.gpus)
                    assert not both, f"{reserved.workload} holds GPUs of {owner}"
        if reserved.pieces:
            self.reserved[reserved.workload] = reserved.pieces
        else:
            self.beneficiaries.pop(reserved.workload, None)  # withdrawn
            self.counts["reservations withdrawn"] += 1

    def _nodesuspended(self, suspended: NodeSuspended, batch: CycleBatch) -> None:
        self.counts[f"suspended {suspended.reason}"] += 1

    def _runidle(self, idle: RunIdle, batch: CycleBatch) -> None:
        key = f"{idle.workload}#{idle.run}"
        assert key in self.runs, f"{key} is said to do no work, and does not run"
        if idle.since_ms:
            assert batch.time_ms - idle.since_ms >= idle.limit_ms, f"{key} is called idle before the limit: {idle}"
            assert self.idle_hold_ms in (0, idle.limit_ms)
            self.asleep[key] = idle.since_ms
        else:
            assert self.asleep.pop(key, 0), f"{key} works again, and nobody said that it did not"

    def _fundingchanged(self, changed: FundingChanged, batch: CycleBatch) -> None:
        held = self.runs[f"{changed.workload}#{changed.run}"]
        assert changed.payer != held.payer, f"{changed}: it is so already"
        if held.placed.reserved_gpu_us and batch.time_ms < held.placed.protected_until_ms:
            assert changed.payer == Payer.BUDGET.value, f"{changed}: its protected time is reserved from the budget"
        held.settle(batch.time_ms)
        held.payer = changed.payer
        self.counts[f"funding {changed.why}"] += 1

    def _pendingexplained(self, explained: PendingExplained, batch: CycleBatch) -> None:
        Pending(explained.reason)
        assert explained.workload in self.admitted, f"{explained.workload} is explained but does not wait"
        assert explained.workload not in self.running, f"{explained.workload} is explained but runs"
        told = (explained.reason, explained.numbers.get("funded_since_ms", 0))
        late_ms, earliest_ms = explained.numbers.get("late_ms", 0), explained.numbers.get("earliest_ms", 0)
        if self.reasons.get(explained.workload) == told:  # then its reservation has moved back
            assert explained.reason == Pending.PROTECTED_RUNS.value, f"{explained.workload}: told already"
            before_ms, before_late_ms = self.promised[explained.workload]
            back = late_ms >= 2 * before_late_ms if late_ms else earliest_ms - before_ms >= QUANTUM_MS
            assert back, f"{explained.workload}: told already, {before_ms}, {before_late_ms} late: {explained}"
        if late_ms:
            assert earliest_ms == self.promised[explained.workload][0] + late_ms == batch.time_ms
        self.promised[explained.workload] = earliest_ms - late_ms, late_ms
        self.reasons[explained.workload] = told
        self.counts[f"pending {explained.reason}"] += 1

    # -- books ---------------------------------------------------------------------------------------------------------

    def _books(self, batch: CycleBatch) -> None:
        for books in batch.books:
            whole = books.down + books.idle + books.unfunded + books.funded
            assert books.supply == whole, f"supply {books.supply} is not the sum of its parts {whole}"
            assert min(books.supply, books.down, books.idle, books.unfunded, books.funded) >= 0, f"{books}"
            if self.constant_supply_milli:
                expected = self.constant_supply_milli * (batch.time_ms - self.start_ms)
                assert books.supply == expected, f"supply {books.supply}, should be {expected}"
            charged, unfunded = self.funded_total, self.unfunded_total
            for held in self.runs.values():
                held.settle(batch.time_ms)
                charged += held.charged
                unfunded += held.unfunded
            assert (books.funded, books.unfunded) == (charged, unfunded), f"{books}; my books: {(charged, unfunded)}"

    def finish(self) -> None:
        """Everything submitted is over: nothing is held, and every beneficiary of a preemption started or withdrew."""
        assert not self.admitted, f"not over: {list(self.admitted)[:5]}"
        assert not self.runs
        assert not +self.used
        assert not self.reserved
        assert not self.beneficiaries, f"preempted for and never started: {self.beneficiaries}"

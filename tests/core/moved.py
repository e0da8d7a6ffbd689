"""Moves in plain words: who may be moved, that all have a place, that the beneficiary starts, and that it costs nobody anything.

From the events and decisions alone; shares no code with ``policy.moving``.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from apportion.core import events as ev
from apportion.core.decisions import (
    CycleBatch,
    GpusReserved,
    MovesProposed,
    Piece,
    RunCancelled,
    RunClosed,
    RunDrained,
    RunMoved,
    RunPlaced,
    RunPreempted,
    WorkloadClosed,
)
from apportion.core.engine import Core
from apportion.core.envelope import Record
from apportion.core.reasons import RESUMABLE, Outcome
from apportion.core.state import schema
from tests.core.serving import Asked
from tests.core.story import Accepted

WATCHED = ("workload.submitted", "policy.activated", "run.checkpointed", "run.started", "workload.cancelled")


@dataclass
class Live:
    """A run in progress."""

    placed: RunPlaced
    placed_ms: int
    saved_ms: int
    started: bool = False
    stopping: bool = False


@dataclass
class Moved:
    """Watcher of a story; raises ``AssertionError`` at the cycle that moves somebody wrongly."""

    asked: Asked = field(default_factory=Asked)
    rule: dict[str, str] = field(default_factory=dict)
    live: dict[str, Live] = field(default_factory=dict)
    held: dict[str, tuple[Piece, ...]] = field(default_factory=dict)
    proposed: dict[str, MovesProposed] = field(default_factory=dict)
    cancelled: set[str] = field(default_factory=set)
    accepted: Accepted = field(default_factory=lambda: Accepted(*WATCHED))
    counts: Counter[str] = field(default_factory=Counter)

    def after(self, core: Core, record: Record, batch: CycleBatch | None) -> None:
        """Take in an accepted event; check a cycle."""
        if (event := self.accepted.event(core, record)) is not None:
            self._take(core, event)
        for decision in batch.decisions if batch is not None else ():
            assert batch is not None
            name = f"_{type(decision).__name__.lower()}"
            if hasattr(self, name):
                getattr(self, name)(core, decision, batch)
        if batch is not None:
            self._check(core)

    def _take(self, core: Core, event: ev.Event) -> None:
        if isinstance(event, ev.WorkloadSubmitted):
            self.asked[event.workload] = event
            assert event.auto_resume or not event.movable, "what does not resume cannot be moved"
        elif isinstance(event, ev.PolicyActivated):
            self.rule[event.pool] = event.moves or self.rule.get(event.pool, "none")
        elif isinstance(event, ev.RunCheckpointed):
            self.live[f"{event.workload}#{event.run}"].saved_ms = core.time_ms
        elif isinstance(event, ev.RunStarted):
            run = self.live[f"{event.workload}#{event.run}"]
            run.started |= event.node == run.placed.pieces[0].node
        elif isinstance(event, ev.WorkloadCancelled):
            self.cancelled.add(event.workload)

    def _check(self, core: Core) -> None:
        """No GPU is held for two; what is held for a run that is moved stays so until that run is over."""
        taken = Counter(gpu for pieces in self.held.values() for gpu in gpus_in(pieces))
        assert not taken or max(taken.values()) == 1, f"held twice: {taken}"
        for name in self.proposed:
            row = core.state.workload.row_of[name]
            assert int(core.state.workload.state[row]) == schema.PENDING, f"moves are proposed for {name}, which does not wait"

    def _runplaced(self, _core: Core, placed: RunPlaced, batch: CycleBatch) -> None:
        if held := self.held.pop(placed.workload, None):
            assert gpus_in(held) == gpus_in(placed.pieces), f"not where it was promised: {placed}"
        others = {gpu for pieces in self.held.values() for gpu in gpus_in(pieces)}
        assert not others & gpus_in(placed.pieces), f"on GPUs that are held for others: {placed}"
        self.proposed.pop(placed.workload, None)
        live = Live(placed, batch.time_ms, batch.time_ms)
        self.live[f"{placed.workload}#{placed.run}"] = live

    def _runmoved(self, core: Core, moved: RunMoved, batch: CycleBatch) -> None:
        self.counts["moved"] += 1
        key, asked, proof = f"{moved.workload}#{moved.run}", self.asked[moved.workload], moved.certificate
        run, now_ms = self.live[key], batch.time_ms
        assert self.rule[run.placed.pool] == "carry_out", f"nobody is moved in {run.placed.pool}: {moved}"
        assert asked.movable, f"{key} may not be moved"
        assert run.started, f"{key} has not started"
        assert not run.stopping, f"{key} is asked to stop twice"
        assert moved.workload not in self.cancelled, f"{key} is cancelled"
        assert run.placed.protected_until_ms <= now_ms, f"{key} is protected"
        row = core.state.pool.row_of[run.placed.pool]
        quantum_ms = int(core.state.pool.quantum_ms[row])
        assert asked.min_runtime_ms != 0 or now_ms - run.placed_ms >= quantum_ms, f"{key} has just begun"
        run.stopping = True
        assert moved.grace_until_ms == now_ms + asked.grace_ms
        all_moved = [other for other in batch.decisions if isinstance(other, RunMoved)]
        plan = [other for other in all_moved if other.certificate.beneficiary == proof.beneficiary]
        assert proof.moves == len(plan), f"{key}: {proof.moves} moves are said, {len(plan)} made"
        assert proof.moved_milli == sum(self._milli(other) for other in plan)
        assert proof.gpus_milli == run.placed.gpus_milli
        assert proof.lost_gpu_us == run.placed.gpus_milli * (now_ms - run.saved_ms), f"lost since its last checkpoint: {moved}"
        assert proof.plan_lost_gpu_us == sum(other.certificate.lost_gpu_us for other in plan)
        assert proof.needed_milli <= proof.free_milli, f"moves cannot help: {proof}"
        assert proof.moved_milli <= proof.needed_milli + max(self._milli(other) for other in plan), f"more than is needed: {proof}"
        kept = [other for other in batch.decisions if isinstance(other, GpusReserved) and other.workload == proof.beneficiary]
        assert [other for other in kept if other.pieces], f"{key} is moved and nothing is held for {proof.beneficiary}"
        gains, theirs = gpus_in(kept[-1].pieces), gpus_in(run.placed.pieces)
        nodes = {node for node, _gpu in gains} if self._needs_more(proof.beneficiary) else set()
        assert gains & theirs or {node for node, _gpu in theirs} & nodes, f"{key} goes and gives nothing to {proof.beneficiary}"
        self._free_for(moved.pieces, f"{key} goes where others are")
        free = gains - {gpu for other in plan for gpu in gpus_in(self.live[f"{other.workload}#{other.run}"].placed.pieces)}
        assert not free & gpus_in(moved.pieces), f"{key} goes where {proof.beneficiary} is to start"
        assert len(gpus_in(moved.pieces)) == len(theirs), f"{key} gets as many GPUs as it had"
        self.held[moved.workload] = moved.pieces

    def _milli(self, moved: RunMoved) -> int:
        return self.live[f"{moved.workload}#{moved.run}"].placed.gpus_milli

    def _needs_more(self, workload: str) -> bool:
        asked = self.asked[workload]
        return bool(asked.cpu_milli or asked.memory_mib or asked.gpu_memory_mib)

    def _free_for(self, pieces: tuple[Piece, ...], told: str) -> None:
        """All whole GPUs are nobody's now, and held for nobody; parts of one are free on it."""
        used: Counter[tuple[str, int]] = Counter()
        for run in self.live.values():
            for piece in run.placed.pieces:
                for gpu in piece.gpus:
                    used[piece.node, gpu] += piece.milli_each
        held = {gpu for mine in self.held.values() for gpu in gpus_in(mine)}
        for piece in pieces:
            for gpu in piece.gpus:
                assert used[piece.node, gpu] + piece.milli_each <= 1_000, f"{told}: {piece}"
                assert (piece.node, gpu) not in held, f"{told}, or will be: {piece}"

    def _gpusreserved(self, _core: Core, reserved: GpusReserved, batch: CycleBatch) -> None:
        self.held.pop(reserved.workload, None)
        if not reserved.pieces:
            self.counts["given up"] += 1
            return
        self.held[reserved.workload] = reserved.pieces
        self.proposed.pop(reserved.workload, None)
        causes = [
            other for other in batch.decisions
            if isinstance(other, RunMoved | RunPreempted) and other.certificate.beneficiary == reserved.workload
        ]  # fmt: skip
        assert causes, f"GPUs are held for {reserved.workload} and nobody makes room"
        assert not reserved.unfunded or all(isinstance(other, RunMoved) for other in causes)
        going = {gpu for other in causes for gpu in gpus_in(self.live[f"{other.workload}#{other.run}"].placed.pieces)}
        used = {gpu for run in self.live.values() for gpu in gpus_in(run.placed.pieces)}
        if all(piece.milli_each == 1_000 for piece in reserved.pieces):
            assert not (gpus_in(reserved.pieces) & used) - going, f"held for {reserved.workload} and not free after all: {reserved}"

    def _movesproposed(self, _core: Core, proposal: MovesProposed, _batch: CycleBatch) -> None:
        self.counts["proposed" if proposal.moves else "withdrawn"] += 1
        before = self.proposed.pop(proposal.workload, None)
        if not proposal.moves:
            assert before is not None, f"nothing was proposed for {proposal.workload}"
            return
        assert before is None or before.mark != proposal.mark, f"said twice: {proposal}"
        assert self.rule[self.asked[proposal.workload].pools[0]] == "propose" or len(self.asked[proposal.workload].pools) > 1
        assert all(self.asked[move.workload].movable for move in proposal.moves)
        assert proposal.lost_gpu_us == sum(move.lost_gpu_us for move in proposal.moves)
        self.proposed[proposal.workload] = proposal

    def _runpreempted(self, _core: Core, decision: RunPreempted, _batch: CycleBatch) -> None:
        self.live[f"{decision.workload}#{decision.run}"].stopping = True

    def _runcancelled(self, _core: Core, decision: RunCancelled, _batch: CycleBatch) -> None:
        self.live[f"{decision.workload}#{decision.run}"].stopping = True

    def _rundrained(self, _core: Core, decision: RunDrained, _batch: CycleBatch) -> None:
        self.live[f"{decision.workload}#{decision.run}"].stopping = True

    def _runclosed(self, core: Core, closed: RunClosed, batch: CycleBatch) -> None:
        run = self.live.pop(f"{closed.workload}#{closed.run}")
        if closed.outcome == "moved":
            self.counts["moved and over"] += 1
            assert not closed.not_before_ms, f"{closed} waits although it failed at nothing"
            rule = int(core.state.pool.refund_rule[core.state.pool.row_of[closed.pool]])
            back = closed.refunded_gpu_us + closed.unfunded_refunded_gpu_us
            lost = closed.gpus_milli * (closed.end_ms - run.saved_ms)
            assert back == (0 if rule == schema.REFUND_UNCONFIRMED else lost), f"the time since its last checkpoint: {closed}"
        if closed.workload in self.held:
            goes_on = closed.requeued and not closed.not_before_ms and Outcome(closed.outcome) in RESUMABLE
            placed = [d for d in batch.decisions if isinstance(d, RunPlaced) and d.workload == closed.workload]
            given_up = [d for d in batch.decisions if isinstance(d, GpusReserved) and d.workload == closed.workload]
            if goes_on:  # at once, unless one of its GPUs has gone out of service, or its node is short of something else
                self.counts["went on"] += len(placed)
            else:
                del self.held[closed.workload]
            assert goes_on or not given_up

    def _workloadclosed(self, _core: Core, closed: WorkloadClosed, _batch: CycleBatch) -> None:
        self.held.pop(closed.workload, None)
        self.proposed.pop(closed.workload, None)


def gpus_in(pieces: tuple[Piece, ...]) -> frozenset[tuple[str, int]]:
    """Return the GPUs that pieces name."""
    return frozenset((piece.node, gpu) for piece in pieces for gpu in piece.gpus)

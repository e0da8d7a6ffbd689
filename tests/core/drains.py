"""Drains in plain words: what a drained node may take, and who must leave it when, from the events and placements alone.

Slow, obviously right, shares no code with ``policy.draining`` and ``policy.reserving``: it knows orders, submissions, checkpoints
as the accepted events told them, and placements and payers as the decisions did.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from apportion.core import events as ev
from apportion.core.decisions import (
    CycleBatch,
    FundingChanged,
    NodeSuspended,
    RunCancelled,
    RunClosed,
    RunDrained,
    RunMoved,
    RunPlaced,
    RunPreempted,
    RunRetired,
)
from apportion.core.engine import Core
from apportion.core.envelope import Record
from apportion.core.state import schema
from tests.core.serving import Asked
from tests.core.story import Accepted

WATCHED = ("node.drained", "node.uncordoned", "workload.submitted", "run.checkpointed")


@dataclass
class Order:
    """A node that is wanted empty."""

    set_ms: int
    deadline_ms: int
    force: bool


@dataclass
class Held:
    """A run in progress."""

    nodes: tuple[str, ...]
    payer: str
    protected_until_ms: int
    saves_ms: list[int] = field(default_factory=list)  # its start, and its checkpoints
    progress_ms: int = 0
    stopping: bool = False


class Drains:
    """Watcher of a story; raises ``AssertionError`` at the cycle that does not do what a drain says."""

    def __init__(self) -> None:
        self.orders: dict[str, Order] = {}
        self.asked = Asked()
        self.live: dict[str, Held] = {}
        self.accepted = Accepted(*WATCHED)
        self.drained = 0  # runs asked to go
        self.placed = 0  # runs started on drained nodes

    def after(self, core: Core, record: Record, batch: CycleBatch | None) -> None:
        """Take in an accepted event; check a cycle."""
        if (event := self.accepted.event(core, record)) is not None:
            self._take(core, event)
        if batch is not None:
            self._check(core, batch)

    def _take(self, core: Core, event: ev.Event) -> None:
        if isinstance(event, ev.NodeDrained):
            before = self.orders.get(event.node)
            set_ms = before.set_ms if before else core.time_ms
            self.orders[event.node] = Order(set_ms, max(event.by_ms, core.time_ms), event.force)
        elif isinstance(event, ev.NodeUncordoned):
            self.orders.pop(event.node, None)
        elif isinstance(event, ev.WorkloadSubmitted):
            self.asked[event.workload] = event
        elif isinstance(event, ev.RunCheckpointed):
            run = self.live[f"{event.workload}#{event.run}"]
            run.saves_ms.append(core.time_ms)
            run.progress_ms = event.progress_ms

    def _check(self, core: Core, batch: CycleBatch) -> None:
        for decision in batch.decisions:
            if isinstance(decision, RunPlaced):
                self._placed(decision, batch.time_ms)
            elif isinstance(decision, FundingChanged):
                self.live[f"{decision.workload}#{decision.run}"].payer = decision.payer
            elif isinstance(decision, RunDrained):
                self._asked(decision, batch.time_ms)
            elif isinstance(decision, RunPreempted | RunCancelled | RunMoved | RunRetired):
                self.live[f"{decision.workload}#{decision.run}"].stopping = True
            elif isinstance(decision, RunClosed):
                self._closed(core, decision)
            elif isinstance(decision, NodeSuspended) and decision.reason == "drained":
                assert self.orders[decision.node].deadline_ms <= batch.time_ms, f"{decision} before its time"
        for name, run in self.live.items():
            # whoever became unfunded only by this cycle's starts is asked in the next one
            late = [node for node in run.nodes if node in self.orders and self._when(name, node) <= batch.time_ms]
            if late and not run.stopping and not self._just_demoted(batch, name):
                raise AssertionError(f"{name} should have been asked to leave {late}")
        for node, order in self.orders.items():
            row = core.state.node.row_of[node]
            shut = bool(core.state.node.cordoned[row]) or not core.state.node.gpus[row]
            assert shut or order.deadline_ms > batch.time_ms, f"{node} is open after its deadline"

    def _just_demoted(self, batch: CycleBatch, name: str) -> bool:
        told = (d for d in batch.decisions if isinstance(d, FundingChanged) and d.payer == "unfunded")
        return any(f"{d.workload}#{d.run}" == name and d.why == "balance_spent" for d in told)

    def _placed(self, placed: RunPlaced, now_ms: int) -> None:
        nodes = tuple(piece.node for piece in placed.pieces)
        limit_ms = self.asked[placed.workload].expected_runtime_ms
        for node in nodes:
            if node in self.orders:
                self.placed += 1
                over_ms = now_ms + max(0, limit_ms - placed.resume_from_ms)
                assert limit_ms, f"{placed.workload} states no end and is placed on {node}, which is drained"
                assert over_ms <= self.orders[node].deadline_ms, f"{placed.workload} is not over when {node} should be empty"
                assert now_ms < self.orders[node].deadline_ms, f"{placed.workload} is placed on {node} after its deadline"
        self.live[f"{placed.workload}#{placed.run}"] = Held(
            nodes, placed.payer, placed.protected_until_ms, [now_ms], placed.resume_from_ms
        )

    def _when(self, name: str, node: str) -> int:
        """Return when the run is to be asked to leave the node, by the rule; far away if it is waited for."""
        run, order, asked = self.live[name], self.orders[node], self.asked[name.rpartition("#")[0]]
        if run.payer == "budget" and not order.force:
            return 1 << 62
        last_ms = order.deadline_ms - asked.grace_ms
        when_ms = last_ms
        end_ms = run.saves_ms[-1] + max(0, asked.expected_runtime_ms - run.progress_ms)
        if asked.expected_runtime_ms and end_ms <= order.deadline_ms:
            when_ms = max(last_ms, end_ms)
        elif len(run.saves_ms) > 1 and run.saves_ms[-1] > order.set_ms:
            pace_ms = run.saves_ms[-1] - run.saves_ms[-2]
            if pace_ms and run.saves_ms[-1] + pace_ms > last_ms:
                when_ms = min(when_ms, run.saves_ms[-1])
        return when_ms if order.force else max(when_ms, run.protected_until_ms)

    def _asked(self, drained: RunDrained, now_ms: int) -> None:
        self.drained += 1
        name = f"{drained.workload}#{drained.run}"
        run, order = self.live[name], self.orders[drained.node]
        assert drained.node in run.nodes, f"{name} holds nothing on {drained.node}"
        assert not run.stopping, f"{name} is asked to stop twice"
        assert self._when(name, drained.node) <= now_ms, f"{name} is asked to leave {drained.node} too early: {drained}"
        assert drained.deadline_ms == order.deadline_ms
        assert drained.payer == run.payer
        safe = run.payer == "budget" or run.protected_until_ms > now_ms
        assert drained.forced == (safe and order.force) == safe, f"{name} may stay: {drained}"
        assert drained.grace_until_ms == now_ms + self.asked[drained.workload].grace_ms
        run.stopping = True

    def _closed(self, core: Core, closed: RunClosed) -> None:
        run = self.live.pop(f"{closed.workload}#{closed.run}")
        if closed.outcome == "drained":
            assert run.stopping, f"nobody asked {closed} to go"
            resumes = self.asked[closed.workload].auto_resume
            assert closed.requeued == resumes or closed.workload not in core.state.workload.row_of
            assert not closed.not_before_ms, f"{closed} waits although it failed at nothing"
            rule = int(core.state.pool.refund_rule[core.state.pool.row_of[closed.pool]])
            back = closed.refunded_gpu_us + closed.unfunded_refunded_gpu_us
            lost = closed.gpus_milli * (closed.end_ms - run.saves_ms[-1])
            assert back == (0 if rule == schema.REFUND_UNCONFIRMED else lost), f"the time since its last checkpoint: {closed}"

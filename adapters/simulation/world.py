"""The world a scheduler schedules: nodes with their agents and processes, and people who submit and cancel.

``World.react(batch)`` takes the decisions of a cycle; ``World.advance(until)`` returns the events up to that instant in
order of time. Both are pure functions of the jobs, the options and the decisions so far: no clock, no randomness but
``dice``. Equal decisions give equal bytes, however the calls are spaced. It never decides who gets GPUs; what cannot be
right in a decision (two runs of one workload, two processes on one GPU) it writes into ``complaints``.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field

from apportion.adapters.simulation.agents import Agents
from apportion.adapters.simulation.cluster import Layout, TimeSource, grants, node_name, opening
from apportion.adapters.simulation.job import Job
from apportion.adapters.simulation.machine import Machines, Node, Run
from apportion.adapters.simulation.people import Fate, Habits, fate_of
from apportion.adapters.simulation.stated import OPERATOR, Stated, heartbeat_body, stated
from apportion.adapters.simulation.traffic import STEP_MS, Curve
from apportion.adapters.simulation.trouble import Incident, Rates, incidents
from apportion.core.decisions import (
    CycleBatch,
    NodeSuspended,
    RunClosed,
    RunPlaced,
    RunStop,
    WorkloadClosed,
    WorkloadRejected,
)
from apportion.core.events import Event, NodeHeartbeat, NodeUncordoned, WorkloadCancelled, replica_of
from apportion.core.reasons import NodeReason, Refusal
from apportion.core.units import gpu_us

MINUTE_MS = 60_000
BEAT_MS = MINUTE_MS
LIST_RUNS_EVERY = 30  # beats
REPAIR_MS = 30 * MINUTE_MS
_PASSING = (NodeReason.HEARTBEAT_TIMEOUT.value, NodeReason.DRAINED.value)  # suspensions that nobody has to repair


@dataclass(frozen=True)
class WorldOptions:
    """What kind of world: its length, its layout, its troubles and its people."""

    seed: int = 1
    start_ms: int = 1_767_225_600_000  # 2026-01-01T00:00:00Z
    length_ms: int = 7 * 24 * 3_600_000  # no incident begins and no grant is made after it
    layout: Layout = field(default_factory=Layout)
    habits: Habits = field(default_factory=Habits)
    rates: Rates = field(default_factory=Rates)
    time_source: TimeSource = "stated"
    curves: tuple[Curve, ...] = ()  # realtime services
    beat_ms: int = BEAT_MS  # between two heartbeats of a node

    @property
    def log_id(self) -> str:
        """The name of the log this world fills."""
        return f"simulated-{self.seed}"


class World:
    """The simulated cluster. ``jobs`` are ordered by ``submit_ms``."""

    def __init__(self, jobs: Sequence[Job], options: WorldOptions) -> None:
        layout = options.layout
        self.options = options
        self.now_ms = options.start_ms
        self.submitted = 0
        self.open: dict[str, Fate] = {}  # submitted and, as far as the world was told, not over
        self.asked: dict[str, int] = {}  # budget -> GPU-microseconds its submitted jobs need
        self.outcomes: dict[str, str] = {}  # workload -> how it ended, or why it was refused
        self.machines = Machines([node_name(position) for position in range(layout.nodes)])
        self.agents = Agents(self.machines, self, options.seed, options.habits, layout)
        self._beat_offsets = [1 + position * options.beat_ms // layout.nodes for position in range(layout.nodes)]
        self._next_beat = (0, 0)  # (how many beats each node had, node)
        self._to_come = len(jobs)
        self._heap: list[tuple[int, int, str, object, int]] = []
        self._planned = 0
        self._said = 0
        self._out = opening(layout, options.start_ms, options.log_id, options.time_source)
        for grant in grants(layout, options.start_ms, options.length_ms):
            self.plan(grant.at_ms, "publish", grant)
        self.curves = {curve.name: curve for curve in options.curves}
        for curve in options.curves:
            self.plan(options.start_ms, "open", curve)
        for job in jobs:
            self.plan(options.start_ms + job.submit_ms, "submit", job)
        for incident in incidents(options.seed, options.rates, layout.nodes, layout.gpus_per_node, options.length_ms):
            self.plan(options.start_ms + incident.at_ms, "begin", incident)
            self.plan(options.start_ms + incident.until_ms, "end", incident)

    @property
    def complaints(self) -> list[str]:
        """What was decided and cannot be right; empty in a sound play."""
        return self.machines.complaints

    @property
    def drained(self) -> bool:
        """Tell whether everything submitted is over and nothing more will be submitted."""
        return self._to_come == 0 and not self.open

    # -- the two entrances ---------------------------------------------------------------------------------------------

    def advance(self, until_ms: int) -> list[Stated]:
        """Return the events after the last call, up to and including ``until_ms``; the first call opens the log."""
        if until_ms < self.now_ms:
            raise ValueError(f"advance({until_ms}): the world is already at {self.now_ms}")
        nodes = self.machines.nodes
        turn, position = self._next_beat
        while True:
            at_ms = self.options.start_ms + turn * self.options.beat_ms + self._beat_offsets[position]
            if at_ms > until_ms:
                break
            if self._heap and self._heap[0][0] <= at_ms:
                self._pass(at_ms)
            node = nodes[position]
            if node.reachable:
                self._beat(node, at_ms, turn, position)
            position += 1
            if position == len(nodes):
                turn, position = turn + 1, 0
        self._next_beat = (turn, position)
        self._pass(until_ms)
        self.now_ms = until_ms
        events, self._out = self._out, []
        return events

    def react(self, batch: CycleBatch) -> None:
        """Take a cycle's decisions; their effects begin after the batch's instant."""
        at_ms = max(self.now_ms, batch.time_ms)
        for decision in batch.decisions:
            if isinstance(decision, RunPlaced):
                curve = self.curves.get(replica_of(decision.workload)[0])
                if curve is not None and decision.workload not in self.open:
                    self.open[decision.workload] = curve.fate(decision.workload)
                self.agents.place(at_ms, decision, self.open)
            elif isinstance(decision, RunClosed):
                self.agents.close(f"{decision.workload}#{decision.run}")
            elif isinstance(decision, RunStop):
                self.agents.ask_to_stop(at_ms, f"{decision.workload}#{decision.run}", decision.grace_until_ms)
            elif isinstance(decision, WorkloadClosed):
                self._over(decision.workload, decision.outcome)
            elif isinstance(decision, WorkloadRejected) and decision.reason != Refusal.DUPLICATE.value:
                self._over(decision.workload, decision.reason)  # a copy of a submission is refused, not the workload
            elif isinstance(decision, NodeSuspended) and decision.reason not in _PASSING:
                self.plan(at_ms + REPAIR_MS, "repair", self.machines.by_name[decision.node])

    def _over(self, workload: str, outcome: str) -> None:
        if self.open.pop(workload, None) is not None:
            self.outcomes[workload] = outcome

    # -- the stage of the agents ---------------------------------------------------------------------------------------

    def plan(self, at_ms: int, kind: str, subject: object, token: int = 0) -> None:
        """Let ``kind`` happen to ``subject`` at ``at_ms``; plans of one instant happen in the order they were made."""
        self._planned += 1
        heapq.heappush(self._heap, (at_ms, self._planned, kind, subject, token))

    def say(self, at_ms: int, principal: str, event: Event) -> None:
        """Publish an event."""
        self._said += 1
        self._out.append(stated(at_ms, principal, event, f"s{self.options.seed}.{self._said}"))

    def _pass(self, until_ms: int) -> None:
        heap = self._heap
        while heap and heap[0][0] <= until_ms:
            at_ms, _order, kind, subject, token = heapq.heappop(heap)
            if isinstance(subject, Run):
                if token == subject.token and not subject.over:
                    self.agents.happen(at_ms, kind, subject)
            elif isinstance(subject, Job):
                self._submit(at_ms, subject)
            elif isinstance(subject, Curve):
                self._serve(at_ms, kind, subject)
            elif isinstance(subject, Fate):
                self._cancel(at_ms, subject)
            elif isinstance(subject, Stated):
                self._out.append(subject)
            elif isinstance(subject, Incident):
                (self.agents.begin if kind == "begin" else self.agents.end)(at_ms, subject)
            elif isinstance(subject, Node):
                self.say(at_ms, OPERATOR, NodeUncordoned(node=subject.name, reason="repaired"))

    # -- people and heartbeats -----------------------------------------------------------------------------------------

    def _submit(self, at_ms: int, job: Job) -> None:
        fate = fate_of(self.options.seed, self.options.habits, self.options.layout.pool, job)
        self._to_come -= 1
        self.submitted += 1
        self.open[fate.workload] = fate
        budget = fate.event.budget
        self.asked[budget] = self.asked.get(budget, 0) + gpu_us(fate.event.gpus_milli, job.duration_ms)
        self.say(at_ms, fate.principal, fate.event)
        if fate.cancel_after_ms >= 0:
            self.plan(at_ms + fate.cancel_after_ms, "cancel", fate)

    def _serve(self, at_ms: int, kind: str, curve: Curve) -> None:
        """A minute of a service's traffic; every half hour what is forecast of it."""
        if kind == "open":
            self.say(at_ms, curve.principal, curve.submission)
        if kind == "open" or at_ms % STEP_MS == 0:
            self.say(at_ms, curve.principal, curve.forecast(at_ms))
        self.say(at_ms, curve.principal, curve.observed(at_ms))
        self.plan(at_ms + MINUTE_MS, "traffic", curve)

    def _cancel(self, at_ms: int, fate: Fate) -> None:
        if fate.workload in self.open:
            self.say(at_ms, fate.principal, WorkloadCancelled(workload=fate.workload, reason="no longer needed"))

    def _beat(self, node: Node, at_ms: int, turn: int, position: int) -> None:
        node.beat += 1
        noise = 900 + (turn * 37 + position * 101) % 97  # thousandths of what the runs use
        busy = node.busy_milli * noise // 1_000 + 1
        memory = node.memory_mib + 512
        watts = 640 + busy * 6 // 10
        if not node.list_runs and turn % LIST_RUNS_EVERY != position % LIST_RUNS_EVERY:
            body = heartbeat_body(at_ms, node.wire_name, node.beat, node.wire_down, busy, memory, watts)
            self._out.append(Stated(at_ms, f"ap.ev.{node.name}.node.heartbeat", body))
            return
        node.list_runs = max(0, node.list_runs - 1)
        event = NodeHeartbeat(
            node=node.name,
            beat=node.beat,
            gpus_down=node.down,
            busy_milli=busy,
            memory_mib=memory,
            watts=watts,
            runs=tuple(node.runs),
            idle_runs=tuple(key for key, run in node.runs.items() if run.asleep(at_ms)),
        )
        self._out.append(stated(at_ms, node.name, event, f"{node.name}.{node.beat}"))

"""What happens on the simulated nodes: runs start, save, end, are stopped, die; agents report it, late or never.

Decides how the processes and agents of ``machine`` answer to decisions and to trouble, given a ``Stage`` that plans the
future and publishes. It obeys like a real agent: a placed run starts some seconds later, a stop is SIGTERM, grace,
SIGKILL; what the scheduler closed is killed. It trusts ``resume_from_ms`` of a placement and never chooses GPUs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Protocol

from apportion.adapters.simulation.cluster import Layout
from apportion.adapters.simulation.dice import Dice, hashed
from apportion.adapters.simulation.machine import Machines, Node, Run
from apportion.adapters.simulation.people import Fate, Habits
from apportion.adapters.simulation.stated import OPERATOR
from apportion.adapters.simulation.trouble import Incident, Kind
from apportion.core.decisions import RunPlaced
from apportion.core.events import (
    Event,
    NodeCordoned,
    NodeDrained,
    NodeJoined,
    NodeLeft,
    NodeUncordoned,
    RunCheckpointed,
    RunFinished,
    RunLost,
    RunStarted,
)

SECOND_MS = 1_000
LIST_RUNS_AFTER_RETURN = 5  # beats
KILLED_WHEN_BACK = -1
WATCHDOG_MS = 30 * 60 * SECOND_MS  # a process that waits for a lost peer or GPU gives up after so long


class Stage(Protocol):
    """What the agents need of the world around them."""

    def plan(self, at_ms: int, kind: str, subject: object, token: int = 0) -> None:
        """Let ``kind`` happen to ``subject`` at ``at_ms``, unless its token has changed."""
        ...

    def say(self, at_ms: int, principal: str, event: Event) -> None:
        """Publish an event."""
        ...


class Agents:
    """All agents of the cluster and the runs in their hands."""

    def __init__(self, machines: Machines, stage: Stage, seed: int, habits: Habits, layout: Layout) -> None:
        self.machines = machines
        self.runs: dict[str, Run] = {}  # that the scheduler believes in progress, in order of placement
        self.starts = 0
        self._stage = stage
        self._seed = seed
        self._habits = habits
        self._layout = layout
        self._run_of: dict[str, str] = {}  # workload -> key
        self._numbers: dict[str, int] = {}  # workload -> last run number
        self._saved: dict[str, int] = {}  # workload -> progress of its best checkpoint

    # -- decisions -----------------------------------------------------------------------------------------------------

    def place(self, at_ms: int, placed: RunPlaced, known: Mapping[str, Fate]) -> None:
        """Take a placement; the run starts when its image is there."""
        key = f"{placed.workload}#{placed.run}"
        fate = known.get(placed.workload)
        complain = self.machines.complaints.append
        if fate is None:
            complain(f"{key} placed, but the workload is over or unknown")
            return
        if placed.workload in self._run_of:
            complain(f"{key} placed while {self._run_of[placed.workload]} is in progress")
            return
        if placed.run != self._numbers.get(placed.workload, 0) + 1:
            complain(f"{key} placed after run {self._numbers.get(placed.workload, 0)}")
        if placed.resume_from_ms > self._saved.get(placed.workload, 0):
            complain(f"{key} resumes from {placed.resume_from_ms} ms, which was never saved")
        nodes = [self.machines.by_name[piece.node] for piece in placed.pieces]
        run = Run(key, placed.workload, placed.run, fate, placed.pieces, nodes, placed.resume_from_ms)
        self.runs[key] = run
        self._run_of[placed.workload] = key
        self._numbers[placed.workload] = placed.run
        for node in nodes:
            if not node.present:
                complain(f"{key} placed on {node.name}, which has left")
            if node.alive:
                node.runs[key] = run
        delay_ms = 2 * SECOND_MS + hashed(self._seed, "delay", key) % (25 * SECOND_MS)
        self._stage.plan(at_ms + delay_ms, "start", run, run.token)

    def close(self, key: str) -> None:
        """The scheduler closed the run: agents kill what is left of it, where they can be reached."""
        run = self.runs.pop(key, None)
        if run is None:
            self.machines.complaints.append(f"{key} closed, but no such run is in progress")
            return
        del self._run_of[run.workload]
        for position, node in enumerate(run.nodes):
            if node.reachable or not node.alive:
                self.machines.release(run, position)
                node.runs.pop(key, None)
        if run.nodes[0].reachable:
            run.token += 1
            run.over = True
        else:
            run.stop_by_ms = KILLED_WHEN_BACK

    def ask_to_stop(self, at_ms: int, key: str, grace_until_ms: int) -> None:
        """SIGTERM, if somebody is there to send it."""
        run = self.runs.get(key)
        if run is None or run.over:
            return  # it ended by itself just before
        run.stop_by_ms = max(1, grace_until_ms)
        if run.nodes[0].reachable and key in run.nodes[0].runs:
            self._begin_stop(at_ms, run)

    def _begin_stop(self, at_ms: int, run: Run) -> None:
        wish_ms = at_ms + SECOND_MS + hashed(self._seed, "stop", run.key) % (20 * SECOND_MS)
        ends_ms = max(at_ms + SECOND_MS, min(wish_ms, run.stop_by_ms))
        if not run.started:
            run.token += 1
        self._stage.plan(ends_ms, "stopped", run, run.token)  # an exit before that wins: it ended by itself

    # -- a run's life --------------------------------------------------------------------------------------------------

    def happen(self, at_ms: int, kind: str, run: Run) -> None:
        """What was planned for a run takes place."""
        if kind == "start":
            self._start(at_ms, run)
        elif kind == "save":
            self._write_checkpoint(at_ms, run)
            self._stage.plan(at_ms + run.fate.checkpoint_ms, "save", run, run.token)
        elif kind == "exit" and run.number <= run.fate.fails_runs:
            self._end(at_ms, run, "failed", exit_code=1 + hashed(self._seed, run.workload) % 125)
        elif kind == "exit":
            self._end(at_ms, run, "succeeded")
        elif kind == "watchdog":
            self._end(at_ms, run, "failed", exit_code=134, detail="no progress for 30 minutes")
        elif kind == "crash":
            self._end(at_ms, run, "failed", exit_code=74, detail="the GPU is gone")
        else:
            self._stopped(at_ms, run)

    def _start(self, at_ms: int, run: Run) -> None:
        if not all(node.reachable and run.key in node.runs for node in run.nodes):
            run.waits = True
            return
        if any(gpu in node.down for piece, node in zip(run.pieces, run.nodes, strict=True) for gpu in piece.gpus):
            self._end(at_ms, run, "refused", detail="a GPU is unhealthy")
            return
        if Dice(self._seed, "refuse", run.key).chance(self._habits.refused_start):
            self._end(at_ms, run, "refused", detail="the image could not be fetched")
            return
        fate, lead = run.fate, run.nodes[0]
        run.started = True
        self.starts += 1
        self.machines.hold(run)
        self.report(at_ms, lead, RunStarted(workload=run.workload, run=run.number, node=lead.name, pid=self.starts))
        run.works_from_ms = at_ms + (fate.restart_ms if run.resume_from_ms else 0)
        goal_ms = fate.fails_at_ms if run.number <= fate.fails_runs else fate.duration_ms
        self._stage.plan(run.works_from_ms + max(SECOND_MS, goal_ms - run.resume_from_ms), "exit", run, run.token)
        if fate.checkpoint_ms:
            self._stage.plan(run.works_from_ms + fate.checkpoint_ms, "save", run, run.token)

    def _write_checkpoint(self, at_ms: int, run: Run) -> None:
        progress_ms = run.progress_ms(at_ms)
        self._saved[run.workload] = max(self._saved.get(run.workload, 0), progress_ms)
        event = RunCheckpointed(workload=run.workload, run=run.number, progress_ms=progress_ms)
        self.report(at_ms, run.nodes[0], event)

    def _stopped(self, at_ms: int, run: Run) -> None:
        in_time = at_ms < run.stop_by_ms
        if run.started and not run.stuck and in_time and run.fate.saves_on_stop:
            self._write_checkpoint(at_ms, run)
        self._end(at_ms, run, "stopped", exit_code=-15 if in_time else -9)

    def _end(
        self,
        at_ms: int,
        run: Run,
        outcome: Literal["succeeded", "failed", "stopped", "refused"],
        exit_code: int = 0,
        detail: str = "",
    ) -> None:
        """The processes are gone and the lead says so; the scheduler's run.closed follows."""
        lead = run.nodes[0]
        run.token += 1
        run.over = True
        for position, node in enumerate(run.nodes):
            self.machines.release(run, position)
            node.runs.pop(run.key, None)
        event = RunFinished(
            workload=run.workload, run=run.number, node=lead.name, outcome=outcome, exit_code=exit_code, detail=detail
        )
        self.report(at_ms, lead, event)

    def report(self, at_ms: int, node: Node, event: Event) -> None:
        """Publish as the node's agent; a blip delays it, a dead node says nothing."""
        if node.reachable:
            self._stage.say(at_ms, node.name, event)
        elif node.alive:
            node.late.append(event)

    # -- trouble -------------------------------------------------------------------------------------------------------

    def begin(self, at_ms: int, incident: Incident) -> None:
        """An incident begins."""
        node = self.machines.nodes[incident.node]
        if incident.kind is Kind.MAINTENANCE:
            self._stage.say(at_ms, OPERATOR, self._maintenance(at_ms, incident, node))
        elif incident.kind is Kind.GPU_BROKEN:
            self._break_gpu(at_ms, node, incident.gpu)
        else:
            if incident.kind is Kind.REPLACED:
                self._stage.say(at_ms, node.name, NodeLeft(node=node.name, reason="replaced"))
                node.present = False
            node.reachable = False
            if incident.kind is not Kind.BLIP:
                self._lose_processes(at_ms, node)

    def _maintenance(self, at_ms: int, incident: Incident, node: Node) -> Event:
        """Return how it is announced: by a cordon, or by a drain that leaves half of the time, with and without force."""
        kind = hashed(self._seed, "maintenance", node.name, str(incident.at_ms)) % 3
        if not kind:
            return NodeCordoned(node=node.name, reason="maintenance")
        by_ms = at_ms + (incident.until_ms - incident.at_ms) // 2
        return NodeDrained(node=node.name, by_ms=by_ms, force=kind == 2, reason="maintenance")

    def end(self, at_ms: int, incident: Incident) -> None:
        """An incident is over."""
        node = self.machines.nodes[incident.node]
        if incident.kind is Kind.MAINTENANCE:
            self._stage.say(at_ms, OPERATOR, NodeUncordoned(node=node.name, reason="maintenance is over"))
        elif incident.kind is Kind.GPU_BROKEN:
            node.down, node.wire_down = (), b""
        else:
            self._come_back(at_ms, node, incident.kind)

    def _break_gpu(self, at_ms: int, node: Node, gpu: int) -> None:
        node.down, node.wire_down = (gpu,), b',"gpus_down":[%d]' % gpu
        for key in self.machines.on_gpu(node, gpu):
            run = node.runs[key]
            run.token += 1
            run.stuck = True
            if hashed(self._seed, "gpu", key) % 2:
                self._stage.plan(at_ms + 5 * SECOND_MS, "crash", run, run.token)
            elif run.stop_by_ms > 0:
                self._begin_stop(at_ms, run)
            else:
                self._stage.plan(at_ms + WATCHDOG_MS, "watchdog", run, run.token)

    def _lose_processes(self, at_ms: int, node: Node) -> None:
        node.alive = False
        node.before_crash = list(node.runs.values())
        node.runs.clear()
        for run in node.before_crash:
            self.machines.release(run, run.nodes.index(node))
            run.stuck = True
            if run.nodes[0] is node:
                run.token += 1
                run.over = True
            elif run.stop_by_ms <= 0:
                run.token += 1  # its peers wait for it in vain
                if run.started:
                    self._stage.plan(at_ms + WATCHDOG_MS, "watchdog", run, run.token)

    def _come_back(self, at_ms: int, node: Node, kind: Kind) -> None:
        """Late reports first; then the agent puts in order what was decided meanwhile."""
        node.reachable = node.alive = True
        node.list_runs = LIST_RUNS_AFTER_RETURN
        for event in node.late:
            self._stage.say(at_ms, node.name, event)
        node.late.clear()
        if not node.present:
            node.present = True
            joined = NodeJoined(
                node=node.name, pool=self._layout.pool, gpus=self._layout.gpus_per_node, agent=node.name
            )
            self._stage.say(at_ms, OPERATOR, joined)
        if kind is Kind.CRASH_REPORTED:
            for run in node.before_crash:  # also those closed meanwhile: the scheduler must not mind
                lost = RunLost(workload=run.workload, run=run.number, node=node.name, detail="the node restarted")
                self._stage.say(at_ms, node.name, lost)
        node.before_crash = []
        for run in list(node.runs.values()):
            if run.key not in self.runs:
                self.machines.release(run, run.nodes.index(node))
                del node.runs[run.key]
                if run.nodes[0] is node:
                    run.token += 1
                    run.over = True
            elif run.waits and all(other.reachable and run.key in other.runs for other in run.nodes):
                run.waits = False
                self._stage.plan(at_ms + 5 * SECOND_MS, "start", run, run.token)
            elif run.stop_by_ms > 0 and run.nodes[0] is node:
                self._begin_stop(at_ms, run)

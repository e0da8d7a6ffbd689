"""What the decisions order one node to do: a fold of CycleBatches, nothing else.

``Orders`` is a pure function of the batches read so far and the node's name; the agent makes the world agree with it.
Because it is a state and not a list of commands, batches may be read twice, and a run that was placed and closed while
the agent was away is never started.

It must never read a clock: a grace is a duration, ``grace_until_ms`` less the time of its batch, and the agent measures
it from the moment it saw the order.
"""

from __future__ import annotations

import msgspec

from apportion.core.decisions import (
    CycleBatch,
    NodeSuspended,
    Rejected,
    RunCancelled,
    RunClosed,
    RunDrained,
    RunMoved,
    RunPlaced,
    RunPreempted,
    RunRetired,
    WorkloadAdmitted,
    WorkloadClosed,
)

REMEMBERED_REFUSALS = 100


def run_key(workload: str, run: int) -> str:
    """Return the reference of a run, ``workload#run``: in heartbeats, folder names and messages."""
    return f"{workload}#{run}"


class Stop(msgspec.Struct, frozen=True, kw_only=True):
    """SIGTERM, and SIGKILL after ``grace_ms``."""

    why: str  # "preempted", "cancelled", "drained", "moved", "retired"
    grace_ms: int


class Order(msgspec.Struct, kw_only=True):
    """One run that has a piece on this node, as far as the decisions tell."""

    workload: str
    run: int
    gpus: tuple[int, ...]
    milli_each: int
    nodes: tuple[str, ...]  # of the whole run; the first leads
    rank: int  # of this node in it
    resume_from_ms: int
    placed_ms: int
    event_seq: int  # of workload.submitted in EVENTS; 0 when its admission was not seen
    stop: Stop | None = None
    closed: str = ""  # the outcome, once the core has closed the run

    @property
    def key(self) -> str:
        """The run's reference."""
        return run_key(self.workload, self.run)

    @property
    def leads(self) -> bool:
        """Tell whether this node speaks for the run."""
        return self.rank == 0


class Orders(msgspec.Struct, kw_only=True):
    """All orders of one node, and what is needed to read further batches."""

    node: str
    principal: str  # under which this node's agent publishes
    live: dict[str, Order] = {}  # by run key; dropped by the agent when closed and gone
    admitted: dict[str, int] = {}  # open workload -> sequence of its submission; of all nodes
    refusals: list[Rejected] = []  # of this agent's own events, the newest
    suspended: str = ""  # reason of the newest node.suspended of this node

    def fold(self, batch: CycleBatch) -> None:
        """Take one batch into account. Reading a batch again changes nothing."""
        for decision in batch.decisions:
            match decision:
                case WorkloadAdmitted():
                    self.admitted[decision.workload] = decision.event_seq
                case WorkloadClosed():
                    self.admitted.pop(decision.workload, None)
                case RunPlaced():
                    self._place(decision, batch.time_ms)
                case RunPreempted():
                    self._stop(decision.workload, decision.run, "preempted", decision.grace_until_ms - batch.time_ms)
                case RunCancelled():
                    self._stop(decision.workload, decision.run, "cancelled", decision.grace_until_ms - batch.time_ms)
                case RunDrained():
                    self._stop(decision.workload, decision.run, "drained", decision.grace_until_ms - batch.time_ms)
                case RunMoved():
                    self._stop(decision.workload, decision.run, "moved", decision.grace_until_ms - batch.time_ms)
                case RunRetired():
                    self._stop(decision.workload, decision.run, "retired", decision.grace_until_ms - batch.time_ms)
                case RunClosed():
                    order = self.live.get(run_key(decision.workload, decision.run))
                    if order is not None:
                        order.closed = decision.outcome
                case NodeSuspended():
                    if decision.node == self.node:
                        self.suspended = decision.reason
                case Rejected():
                    if decision.principal == self.principal:
                        self.refusals = [*self.refusals, decision][-REMEMBERED_REFUSALS:]
                case _:
                    pass

    def _place(self, placed: RunPlaced, time_ms: int) -> None:
        key = run_key(placed.workload, placed.run)
        mine = [piece for piece in placed.pieces if piece.node == self.node]
        if not mine or key in self.live:
            return
        nodes = tuple(dict.fromkeys(piece.node for piece in placed.pieces))
        self.live[key] = Order(
            workload=placed.workload,
            run=placed.run,
            gpus=tuple(gpu for piece in mine for gpu in piece.gpus),
            milli_each=mine[0].milli_each,
            nodes=nodes,
            rank=nodes.index(self.node),
            resume_from_ms=placed.resume_from_ms,
            placed_ms=time_ms,
            event_seq=self.admitted.get(placed.workload, 0),
        )

    def _stop(self, workload: str, run: int, why: str, grace_ms: int) -> None:
        order = self.live.get(run_key(workload, run))
        if order is not None and order.stop is None:
            order.stop = Stop(why=why, grace_ms=max(0, grace_ms))

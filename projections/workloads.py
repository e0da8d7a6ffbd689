"""What was asked for, and what each workload was from one sequence to another: pending, placed, running, stopping.

A pure function of accepted submissions and of decisions. A submission becomes a row when the core admits it; one that is
refused never does. Must never guess a state: each begins and ends with the event or decision that said so.
"""

from __future__ import annotations

from dataclasses import dataclass

import duckdb

from apportion.core import events
from apportion.core.decisions import (
    GpusReserved,
    RunClosed,
    RunPlaced,
    RunStop,
    WorkloadAdmitted,
    WorkloadClosed,
)
from apportion.core.envelope import encode
from apportion.projections.moment import Decided, Said
from apportion.projections.services import Services
from apportion.projections.sheet import Intervals, Row, Sheet

PENDING, PLACED, RUNNING, STOPPING = "pending", "placed", "running", "stopping"
_WISHES = (
    "pools", "loose", "within", "near", "labels", "gpu_memory_mib", "cpu_milli", "memory_mib", "exclusive", "block", "apart",
    "apart_level",
)  # fmt: skip
_STATE = ("state_id", "workload", "state", "run", "budget", "pool", "from_seq", "from_ms")
_NO_WISH = (False, "", "", "{}", 0, 0, 0, False, False, "", "")


@dataclass(slots=True)
class Live:
    """A workload that is not over."""

    principal: str
    kind: str
    budget: str
    pool: str  # where it waits or runs: it may accept several
    state_id: int = 0  # its open state; 0 = none


class Workloads:
    """Rows about workloads and their states."""

    def __init__(self, services: Services) -> None:
        self.services = services
        self.asked = Sheet(
            "fact.workload", "workload", "seq", "time_ms", "admitted_seq", "admitted_ms", "principal", "name", "kind", "pool",
            "budget", "gpus_milli", "nodes", "milli_per_node", "min_runtime_ms", "expected_runtime_ms",
            "checkpoint_interval_ms", "grace_ms", "priority", "auto_resume", "movable", "max_failures",
            "command", "service",
        )  # fmt: skip
        self.wishes = Sheet("fact.wish", "workload", "seq", *_WISHES)
        self.priorities = Sheet("fact.priority", "seq", "time_ms", "workload", "priority", "principal", "reason")
        self.states = Intervals("fact.workload_state", _STATE, ("to_seq", "to_ms"))
        self.live: dict[str, Live] = {}
        self._serving: dict[str, Row] = {}  # live services: their row of fact.workload
        self._submitted: dict[int, tuple[Said, events.WorkloadSubmitted]] = {}

    def load(self, con: duckdb.DuckDBPyConnection) -> None:
        """Take up the live workloads from loaded open states."""
        self._submitted = {}
        by_name = {row[1]: row for row in self.states.open.rows.values()}
        self.live = {}
        if by_name:
            found = con.execute(
                "select workload, principal, kind, budget from fact.workload where workload in (select unnest($names::varchar[]))",
                {"names": list(by_name)},
            ).fetchall()
            at = _STATE.index("pool")
            self.live = {w: Live(principal, kind, budget, by_name[w][at], by_name[w][0]) for w, principal, kind, budget in found}
        columns = ", ".join(f"w.{column}" for column in self.asked.columns)
        serving = con.execute(
            f"select {columns} from fact.workload as w join fact.service as s on s.workload = w.workload and s.seq = w.seq "
            "where w.service = '' and w.workload not in (select workload from fact.workload_end)"
        ).fetchall()
        self._serving = {row[0]: row for row in serving}

    def submitted(self, at: Said, event: events.WorkloadSubmitted) -> None:
        """Remember what was asked until the core answers, which is in the same cycle."""
        self._submitted[at.seq] = (at, event)

    def reprioritized(self, at: Said, event: events.WorkloadReprioritized) -> None:
        """Its place inside its budget changes."""
        self.priorities.rows.append((at.seq, at.time_ms, event.workload, event.priority, at.principal, event.reason))

    def admitted(self, at: Decided, decision: WorkloadAdmitted) -> None:
        """It is in its budget's queue; or it is a service, whose replicas will be."""
        known = self._submitted.pop(decision.event_seq, None)
        if known is None:
            self._replica(at, decision)
            return
        said, asked = known
        shape = (decision.nodes, decision.milli_per_node, decision.min_runtime_ms)
        self._ask(said, asked, (at.seq, at.time_ms), decision.pool, shape)
        if asked.service is not None:
            self._serving[decision.workload] = self.asked.rows[-1]
            self.services.admitted(at, decision, asked.service)
            return
        live = Live(said.principal, asked.kind, decision.budget, decision.pool)
        self.live[decision.workload] = live
        self._begin(at.seq, at.time_ms, decision.workload, live, PENDING, 0)

    def _replica(self, at: Decided, decision: WorkloadAdmitted) -> None:
        """A replica of a service, made by the core."""
        service, _number = events.replica_of(decision.workload)
        asked = dict(zip(self.asked.columns, self._serving[service], strict=True))
        asked |= {"workload": decision.workload, "service": service, "time_ms": at.time_ms}
        asked |= {"admitted_seq": at.seq, "admitted_ms": at.time_ms}
        self.asked.rows.append(tuple(asked.values()))
        live = Live(asked["principal"], asked["kind"], decision.budget, decision.pool)
        self.live[decision.workload] = live
        self._begin(at.seq, at.time_ms, decision.workload, live, PENDING, 0)

    def _ask(
        self, said: Said, asked: events.WorkloadSubmitted, admitted: tuple[int, int], pool: str, shape: tuple[int, int, int]
    ) -> None:
        milli = shape[0] * shape[1] or asked.gpus_milli  # an exclusive one has more than it asked for
        row = (
            asked.workload, said.seq, said.time_ms, *admitted, said.principal, asked.name, asked.kind, pool, asked.budget,
            milli, *shape, asked.expected_runtime_ms, asked.checkpoint_interval_ms, asked.grace_ms, asked.priority,
            asked.auto_resume, asked.movable, asked.max_failures, encode(asked.command).decode(), "",
        )  # fmt: skip
        self.asked.rows.append(row)
        wish = (
            asked.loose, asked.within or "", asked.near or "", encode(asked.labels).decode(), asked.gpu_memory_mib, asked.cpu_milli,
            asked.memory_mib, asked.exclusive, asked.block, asked.apart or "", asked.apart_level or "",
        )  # fmt: skip
        if len(asked.pools) > 1 or wish != _NO_WISH:
            self.wishes.rows.append((asked.workload, said.seq, encode(asked.pools).decode(), *wish))

    def _begin(self, seq: int, time_ms: int, workload: str, live: Live, state: str, run: int) -> None:
        live.state_id = self.states.begin(workload, state, run, live.budget, live.pool, seq, time_ms)

    def _turn(self, seq: int, time_ms: int, workload: str, state: str, run: int) -> None:
        """End the open state and begin another; '' begins none."""
        live = self.live[workload]
        if live.state_id:
            self.states.end(live.state_id, seq, time_ms)
            live.state_id = 0
        if state:
            self._begin(seq, time_ms, workload, live, state, run)

    def placed(self, at: Decided, decision: RunPlaced) -> None:
        """A run of it has GPUs, in the pool where it waited or in another that it accepts."""
        self.live[decision.workload].pool = decision.pool
        self._turn(at.seq, at.time_ms, decision.workload, PLACED, decision.run)

    def started(self, at: Said, event: events.RunStarted) -> None:
        """The run's lead reports that it runs."""
        self._turn(at.seq, at.time_ms, event.workload, RUNNING, event.run)

    def stopping(self, at: Decided, decision: RunStop) -> None:
        """The run was asked to stop."""
        self._turn(at.seq, at.time_ms, decision.workload, STOPPING, decision.run)

    def run_closed(self, at: Decided, decision: RunClosed) -> None:
        """The run is over; the workload waits again, there or at home, or is over too."""
        live = self.live[decision.workload]
        live.pool = decision.waits_in or live.pool
        self._turn(at.seq, at.time_ms, decision.workload, PENDING if decision.requeued else "", 0)

    def reserved(self, at: Decided, decision: GpusReserved) -> None:
        """What was held for it away from home is given up: it waits at home."""
        if decision.waits_in:
            self.live[decision.workload].pool = decision.waits_in
            self._turn(at.seq, at.time_ms, decision.workload, PENDING, 0)

    def closed(self, at: Decided, decision: WorkloadClosed) -> None:
        """It is over; or it was withdrawn before the core had admitted it, and is kept as never admitted."""
        if decision.workload in self.live:
            self._turn(at.seq, at.time_ms, decision.workload, "", 0)
            del self.live[decision.workload]
            return
        if self._serving.pop(decision.workload, None) is not None:
            return
        for seq, (said, asked) in self._submitted.items():
            if asked.workload == decision.workload:
                del self._submitted[seq]
                self._ask(said, asked, (0, 0), asked.pools[0], (asked.nodes, 0, asked.min_runtime_ms or 0))
                return

"""Pools, their policy, nodes, and the intervals in which GPUs were out of service.

A pure function of the accepted events and decisions; mirrors the core's rule of what counts as *down*: a GPU that its
node reports broken, or whose node is suspended or cordoned, in that precedence, so that a GPU is in one interval at a
time. Nodes that left are out of supply altogether. Must never look at heartbeats' load: that is ``heartbeats``.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import duckdb
import msgspec

from apportion.core import events
from apportion.core.decisions import NodeSuspended
from apportion.core.fold import setup
from apportion.core.reasons import NodeReason
from apportion.core.units import PLAN_STEP_MS
from apportion.projections.drains import Drains
from apportion.projections.moment import Decided, Said
from apportion.projections.sheet import Intervals, OpenRows, Sheet

BROKEN, SUSPENDED, CORDONED = "broken", "suspended", "cordoned"
_GPU_STATE = ("state_id", "node", "pool", "state", "gpus", "reason", "principal", "from_seq", "from_ms")
_REASON = _GPU_STATE.index("reason")


@dataclass(slots=True)
class Node:
    """One node as last known."""

    node_id: int
    name: str
    pool: str = ""
    gpus: int = 0  # 0: it left
    agent: str = ""
    cordoned: bool = False
    cordon_reason: str = ""
    cordoned_by: str = ""
    suspended: str = ""  # until an operator uncordons it
    silent: bool = False  # until it is heard again
    broken: tuple[int, ...] = ()
    intervals: dict[str, int] = field(default_factory=dict)  # state -> open interval
    shown: dict[str, tuple[int, ...]] = field(default_factory=dict)  # state -> GPUs of that interval

    def row(self) -> tuple[object, ...]:
        """Return its row of ``fact.node_now_open``."""
        broken = msgspec.json.encode(self.broken).decode()
        return (
            self.node_id, self.name, self.pool, self.gpus, self.agent, self.cordoned, self.cordon_reason,
            self.cordoned_by, self.suspended, self.silent, broken,
        )  # fmt: skip

    def out_of_service(self) -> dict[str, tuple[int, ...]]:
        """Return state -> GPUs, each GPU once."""
        every = tuple(range(self.gpus))
        broken = tuple(gpu for gpu in self.broken if gpu < self.gpus)
        rest = tuple(gpu for gpu in every if gpu not in broken)
        out = {BROKEN: broken} if broken else {}
        if rest and (self.suspended or self.silent):
            out[SUSPENDED] = rest
        elif rest and self.cordoned:
            out[CORDONED] = rest
        return out


class Capacity:
    """Rows about pools, nodes and GPUs."""

    def __init__(self, drains: Drains) -> None:
        self.drains = drains
        self.pools = Sheet("dim.pool", "seq", "time_ms", "pool", "gpu_class", "principal")
        self.policies = Sheet(
            "dim.policy_version", "seq", "time_ms", "pool", "policy", "quantum_ms", "horizon_ms", "protected_cap_ms",
            "heartbeat_timeout_ms", "start_timeout_ms", "review_ms", "node_loss_refund", "half_life_ms",
            "bank_ms", "weight_milli", "idle_hold_ms", "idle_hold_action", "packing", "moves", "reservations_max", "backfill",
            "backfill_depth", "step_ms", "wait_bound_ms", "demand_ppm", "principal", "reason",
        )  # fmt: skip
        self.versions = Sheet(
            "dim.node_version", "seq", "time_ms", "node", "pool", "gpus", "agent", "rack", "gpu_memory_mib", "cpu_milli",
            "memory_mib", "principal", "reason",
        )  # fmt: skip
        self.states = Intervals("fact.gpu_state", _GPU_STATE, ("to_seq", "to_ms"))
        self.now = OpenRows(
            "fact.node_now_open", "node_id", "node", "pool", "gpus", "agent", "cordoned", "cordon_reason", "cordoned_by",
            "suspended", "silent", "broken",
        )  # fmt: skip
        self.nodes: dict[str, Node] = {}
        self.policy: dict[str, dict[str, object]] = {}

    def load(self, con: duckdb.DuckDBPyConnection) -> None:
        """Take up the state from loaded open rows and stored versions."""
        self.nodes = {}
        for row in self.now.rows.values():
            node = self.nodes[row[1]] = Node(*row[:-1])
            node.broken = tuple(msgspec.json.decode(row[-1]))
        for row in self.states.open.rows.values():
            state_id, name, state, gpus = row[0], row[1], row[3], row[4]
            node = self.nodes[name]
            node.intervals[state] = state_id
            node.shown[state] = tuple(msgspec.json.decode(gpus))
        columns = self.policies.columns[2:-2]
        found = con.execute(
            f"select {', '.join(columns)} from dim.policy_version "
            "qualify row_number() over (partition by pool order by seq desc) = 1"
        ).fetchall()
        self.policy = {row[0]: dict(zip(columns[1:], row[1:], strict=True)) for row in found}

    def _refresh(self, node: Node, seq: int, time_ms: int, reason: str, principal: str) -> None:
        """End and begin intervals so that they show what the node says now."""
        wanted = node.out_of_service()
        for state in (BROKEN, SUSPENDED, CORDONED):
            gpus = wanted.get(state, ())
            why, by = reason, principal
            if state == SUSPENDED:
                why, by = node.suspended or NodeReason.HEARTBEAT_TIMEOUT.value, "core"
            elif state == CORDONED:
                why, by = node.cordon_reason, node.cordoned_by
            if gpus == node.shown.get(state, ()):
                same = state != SUSPENDED or not gpus or self.states.open.rows[node.intervals[state]][_REASON] == why
                if same:
                    continue
            if state in node.intervals:
                self.states.end(node.intervals.pop(state), seq, time_ms)
                del node.shown[state]
            if gpus:
                text = msgspec.json.encode(gpus).decode()
                node.intervals[state] = self.states.begin(node.name, node.pool, state, text, why, by, seq, time_ms)
                node.shown[state] = gpus
        self.now.put(node.row())

    def pool_defined(self, at: Said, event: events.PoolDefined) -> None:
        """A pool exists, with the default policy."""
        self.pools.rows.append((at.seq, at.time_ms, event.pool, event.gpu_class, at.principal))
        self.policy[event.pool] = {
            "policy": "fair",
            "quantum_ms": setup.QUANTUM_MS,
            "horizon_ms": setup.HORIZON_MS,
            "protected_cap_ms": setup.PROTECTED_CAP_MS,
            "heartbeat_timeout_ms": setup.HEARTBEAT_TIMEOUT_MS,
            "start_timeout_ms": setup.START_TIMEOUT_MS,
            "review_ms": setup.REVIEW_MS,
            "node_loss_refund": "since_checkpoint",
            "half_life_ms": setup.HALF_LIFE_MS,
            "bank_ms": 0,
            "weight_milli": event.weight_milli,
            "idle_hold_ms": setup.IDLE_HOLD_MS,
            "idle_hold_action": "none",
            "packing": "best_fit",
            "moves": "none",
            "reservations_max": setup.RESERVATIONS_MAX,
            "backfill": "easy",
            "backfill_depth": setup.BACKFILL_DEPTH,
            "step_ms": PLAN_STEP_MS,
            "wait_bound_ms": setup.WAIT_BOUND_MS,
            "demand_ppm": setup.DEMAND_PPM,
        }
        self._policy_row(at, event.pool, "default")

    def policy_activated(self, at: Said, event: events.PolicyActivated) -> None:
        """Some rules of the pool changed; absent fields keep their value."""
        rules = self.policy[event.pool]
        for name in rules:
            value = getattr(event, name)
            if value is not None:
                rules[name] = value
        self._policy_row(at, event.pool, event.reason)

    def _policy_row(self, at: Said, pool: str, reason: str) -> None:
        self.policies.rows.append((at.seq, at.time_ms, pool, *self.policy[pool].values(), at.principal, reason))

    def node_joined(self, at: Said, event: events.NodeJoined) -> None:
        """A node is in supply; joining again with the same size and pool is a sign of life, perhaps of another agent."""
        node = self.nodes.get(event.node)
        if node is None:
            node = self.nodes[event.node] = Node(len(self.nodes) + 1, event.node)
        agent = event.agent or at.principal
        if node.gpus == event.gpus and node.pool == event.pool:
            self.sign_of_life(node, at.seq, at.time_ms)
            if node.agent == agent:
                return
        else:
            if node.gpus:
                self._leave(node, at)
            node.pool, node.gpus = event.pool, event.gpus
            node.suspended, node.silent, node.broken = "", False, ()
        node.agent = agent
        self.versions.rows.append(
            (
                at.seq, at.time_ms, event.node, event.pool, event.gpus, node.agent, event.rack, event.gpu_memory_mib,
                event.cpu_milli, event.memory_mib, at.principal, "",
            )
        )
        self._refresh(node, at.seq, at.time_ms, "", at.principal)

    def sign_of_life(self, node: Node, seq: int, time_ms: int) -> None:
        """It is not silent any more."""
        if node.silent:
            node.silent = False
            self._refresh(node, seq, time_ms, "", node.agent)

    def gpus_down(self, node: Node, broken: tuple[int, ...], seq: int, time_ms: int) -> None:
        """Take a node's own word for which of its GPUs are broken."""
        broken = tuple(sorted({gpu for gpu in broken if gpu < node.gpus}))
        if broken != node.broken:
            node.broken = broken
            self._refresh(node, seq, time_ms, "reported by the node", node.agent)

    def node_cordoned(self, at: Said, event: events.NodeCordoned) -> None:
        """No new run may start there."""
        node = self.nodes[event.node]
        if not node.cordoned:
            node.cordoned, node.cordon_reason, node.cordoned_by = True, event.reason, at.principal
        self._refresh(node, at.seq, at.time_ms, "", "")

    def node_drained(self, at: Said, event: events.NodeDrained) -> None:
        """It is to be empty; at once means that no new run may start there."""
        self.drains.order(at, event)
        if event.by_ms <= at.time_ms:
            self._shut(self.nodes[event.node], at.seq, at.time_ms)

    def _shut(self, node: Node, seq: int, time_ms: int) -> None:
        """The deadline of its drain has come: it is cordoned, for the reason of the drain."""
        if not node.cordoned:
            node.cordoned = True
            node.cordon_reason, node.cordoned_by = self.drains.why(node.name)
        self._refresh(node, seq, time_ms, "", "")

    def node_uncordoned(self, at: Said, event: events.NodeUncordoned) -> None:
        """The node may be used again; ends a drain and any suspension too."""
        node = self.nodes[event.node]
        self.drains.end(at, event.node)
        node.cordoned, node.cordon_reason, node.cordoned_by = False, "", ""
        node.suspended, node.silent = "", False
        self._refresh(node, at.seq, at.time_ms, "", "")

    def node_left(self, at: Said, event: events.NodeLeft) -> None:
        """The node is out of supply."""
        node = self.nodes[event.node]
        self._leave(node, at)
        gone = (at.seq, at.time_ms, event.node, node.pool, 0, node.agent, "", 0, 0, 0, at.principal, event.reason)
        self.versions.rows.append(gone)

    def _leave(self, node: Node, at: Said) -> None:
        node.gpus = 0
        self._refresh(node, at.seq, at.time_ms, "", "")

    def node_suspended(self, at: Decided, decision: NodeSuspended) -> None:
        """The core takes the node out of service."""
        node = self.nodes[decision.node]
        if decision.reason == NodeReason.DRAINED.value:
            self._shut(node, at.seq, at.time_ms)
            return
        if decision.reason == NodeReason.HEARTBEAT_TIMEOUT.value:
            node.silent = True
        else:
            node.suspended = decision.reason
        self._refresh(node, at.seq, at.time_ms, "", "core")

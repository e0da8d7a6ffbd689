"""The node's place in its pool: joining it, the heartbeats that keep it, leaving it.

Says what is so and hears whether the core accepts it: a refused join ends the agent, a node that was taken out falls
silent. Heartbeats count up over restarts and list every run the core may believe to be here.

It must never join again by itself after somebody has taken the node out; starting its agent is what asks for that.
"""

from __future__ import annotations

import asyncio
import logging
import os
from dataclasses import dataclass

from apportion.adapters.agent.gpus import GpuSource
from apportion.adapters.agent.memory import Memory
from apportion.adapters.agent.orders import Orders
from apportion.adapters.agent.outbox import Outbox, Publish
from apportion.adapters.agent.reports import wall_ms
from apportion.adapters.agent.runs import Runs
from apportion.adapters.text.wording import words_of
from apportion.core.decisions import Rejected
from apportion.core.envelope import subject_of
from apportion.core.errors import ApportionError
from apportion.core.events import NodeHeartbeat, NodeJoined, NodeLeft, encode_event
from apportion.core.reasons import Refusal

logger = logging.getLogger(__name__)

CLOSED_GRACE_MS = 2_000  # for a run the core has closed already: nobody pays for it any more


class JoinRefused(ApportionError):
    """The core does not take the node. The text names the reason."""


@dataclass(frozen=True)
class AgentSettings:
    """Who an agent is and how it behaves."""

    node: str
    pool: str
    principal: str
    domains: tuple[str, ...] = ()  # where the node is, widest level of the pool first; () = the core keeps what it knows
    place: int | None = None  # in the order of the pool's topology; None = the core keeps what it knows
    labels: dict[str, str] | None = None  # None = the core keeps what it knows
    beat_ms: int = 10_000
    closed_grace_ms: int = CLOSED_GRACE_MS


class Membership:
    """What one node says about itself."""

    def __init__(self, settings: AgentSettings, gpus: GpuSource, memory: Memory, outbox: Outbox) -> None:
        """Nothing is said before ``join``."""
        self._settings = settings
        self._gpus = gpus
        self._memory = memory
        self._outbox = outbox
        self._join_name = ""
        self._join_seq = 0
        self.joined = asyncio.Event()
        self.left = False  # the node is out: nothing more to say about it

    def join(self) -> None:
        """Put the node's offer into the outbox."""
        identity = self._memory.identity
        identity.joins += 1
        identity.gpu_ids = self._gpus.ids
        identity.gpu_kind = self._gpus.kind
        self._memory.save_identity()
        event = NodeJoined(
            node=self._settings.node,
            pool=self._settings.pool,
            gpus=self._gpus.count,
            gpu_memory_mib=self._gpus.memory_mib_each,
            cpu_milli=(os.cpu_count() or 0) * 1_000,
            memory_mib=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20,
            domains=self._settings.domains,
            labels=self._settings.labels,
            place=self._settings.place,
        )
        self._join_name = f"joined {identity.joins}"
        self._outbox.put(self._join_name, event, at_ms=wall_ms())

    def arrived(self, name: str, seq: int) -> bool:
        """Take note of what the log has stored; return True when it is this start's join."""
        if name != self._join_name:
            return False
        self._join_seq = seq
        self.joined.set()
        logger.info("node %s joined pool %s (seq %d)", self._settings.node, self._settings.pool, seq)
        return True

    def leave(self, reason: str) -> None:
        """Put the node's leaving into the outbox."""
        self.left = True
        event = NodeLeft(node=self._settings.node, reason=reason)
        self._outbox.put(f"left {self._memory.identity.joins}", event, at_ms=wall_ms())

    def judge(self, refusals: list[Rejected]) -> None:
        """Look through what the core refused of this agent, and clear it. Raises ``JoinRefused``."""
        if not self.joined.is_set():
            return  # a refusal may be read before the acknowledgement of what it refuses
        for refusal in refusals:
            if refusal.event_type == "node.joined" and refusal.event_seq == self._join_seq:
                told: dict[str, int | str] = {"entity": refusal.entity, "detail": refusal.detail, **refusal.numbers}
                why, do = words_of("refusal", refusal.reason, told)
                raise JoinRefused(
                    f"the core does not take node {self._settings.node!r} with {self._gpus.count} GPUs into pool "
                    f"{self._settings.pool!r}: {why}; {do}, or start the agent with the right --node, --pool and --gpus"
                )
            unknown = refusal.event_type == "node.heartbeat" and refusal.reason == Refusal.UNKNOWN_NODE.value
            if unknown and refusal.event_seq > self._join_seq and not self.left:
                self.left = True
                logger.warning("node %s was taken out; restart its agent to join again", self._settings.node)
        refusals.clear()

    async def beat(self, runs: Runs, orders: Orders, publish: Publish) -> float:
        """Send one heartbeat, unless the node is out."""
        if self.left:
            return 0.0
        reading = self._gpus.read(runs.sessions())
        # Also those whose part here is over: in a gang the run goes on elsewhere, and silence would mean it is lost.
        here = [order.key for order in orders.live.values() if not order.closed]
        resting = runs.resting(reading.idle)
        event = NodeHeartbeat(
            node=self._settings.node,
            beat=self._memory.next_beat(),
            gpus_down=reading.gpus_down,
            busy_milli=reading.busy_milli,
            memory_mib=reading.memory_mib,
            watts=reading.watts,
            runs=tuple(here),
            idle_runs=tuple(key for key in here if key in resting),
        )
        # Its counter tells it from any other, also to the core; an archive need not keep an id that says no more. It is no id for
        # the server: a beat that is late is worth nothing, a day of ids would cost memory, and nobody can be first with one.
        body = encode_event(event, event_id=f"{event.node}.{event.beat}", at_ms=wall_ms())
        await publish(subject_of(self._settings.principal, "node.heartbeat"), body, "")
        return 0.0

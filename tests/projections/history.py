"""Histories for the projection's tests: small ones written by hand, and random ones from the simulated cluster.

Both run through the real core, so decisions, chains and books are what the projection will meet. A history is the two logs.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from apportion.adapters.demo.generator import Shape, generate
from apportion.adapters.simulation.cluster import ROOT, Layout, Policy, member_names
from apportion.adapters.simulation.driver import Logs, Simulation
from apportion.adapters.simulation.faults import ROUGH, Faults
from apportion.adapters.simulation.people import Habits
from apportion.adapters.simulation.traffic import Curve
from apportion.adapters.simulation.trouble import Rates
from apportion.adapters.simulation.world import World, WorldOptions
from apportion.core.decisions import CycleBatch, decode_batch
from apportion.core.engine import Core
from apportion.core.envelope import Record, StoredBatch, subject_of
from apportion.core.events import (
    EVENT_TYPES,
    BudgetSet,
    ClockTick,
    Event,
    LogOpened,
    MemberGranted,
    NodeJoined,
    PoolDefined,
    Service,
    WorkloadSubmitted,
    encode_event,
)

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
START_MS = 20_454 * DAY_MS  # 2026-01-01T00:00:00Z
TROUBLED = Rates(2, 3, 3, 4, 3, 3)
CHAT = Curve(
    "chat", f"{ROOT}/cluster01", member_names("cluster01")[0], "h100", 1_000,
    Service(min_replicas=1, max_replicas=6, gpus_milli_per_traffic=100), 15_000,
)  # fmt: skip


@functools.cache
def simulated(
    seed: int, *, hours: int = 24, nodes: int = 3, rough: bool = True, policy: Policy | None = None
) -> Logs:
    """Return both logs of a small troubled cluster; ``rough`` adds duplicates, disorder, wrong clocks and rubbish."""
    jobs = generate(seed, Shape(days=max(1, hours // 24), gpus=nodes * 8, largest=16))
    layout = Layout(nodes=nodes, policy=policy, moves="carry_out")
    habits = Habits(movable=1_000_000)
    options = WorldOptions(
        seed=seed, length_ms=hours * HOUR_MS, layout=layout, habits=habits, rates=TROUBLED, curves=(CHAT,)
    )
    simulation = Simulation(World(jobs, options), arrive=Faults(seed, ROUGH) if rough else None)
    return simulation.run(options.start_ms + hours * HOUR_MS, 2 * MINUTE_MS)


@dataclass
class Story:
    """A history written by hand: say something, let time pass, and let the core decide."""

    now_ms: int = START_MS
    core: Core = field(default_factory=Core.new)
    logs: Logs = field(default_factory=Logs)

    def say(self, event: Event, principal: str = "ops", *, after_ms: int = 0, refused: bool = False) -> int:
        """Publish an event ``after_ms`` from now; returns its sequence."""
        self.now_ms += after_ms
        seq = len(self.logs.records) + 1
        body = encode_event(event, event_id=f"e{seq}", at_ms=self.now_ms)
        return self.put(subject_of(principal, EVENT_TYPES[type(event)]), body)

    def put(self, subject: str, body: bytes) -> int:
        """Publish bytes as they are; returns the sequence."""
        record = Record(len(self.logs.records) + 1, self.now_ms, subject, body)
        self.logs.records.append(record)
        if self.core.fold(record):
            body = self.core.decide()
            self.logs.batches.append(StoredBatch(len(self.logs.batches) + 1, self.core.seq, body))
        return record.seq

    def tick(self, after_ms: int = 0) -> CycleBatch:
        """Let time pass and a cycle be decided; returns its batch."""
        self.say(ClockTick(why="dirty"), "core", after_ms=after_ms)
        return decode_batch(self.logs.batches[-1].body)


def opened(
    *, nodes: int = 2, gpus: int = 8, budgets: Iterable[tuple[str, int]] = (("lab", 1_000_000),), pool: str = "h100",
    time_source: Literal["stated", "stored"] = "stated",
) -> Story:  # fmt: skip
    """Return a story that begins with a pool, budgets, nodes ``n1``... (each its own agent), and ann who may charge them."""
    story = Story()
    story.say(LogOpened(log_id="story", time_source=time_source, operators=("ops",)))
    story.say(PoolDefined(pool=pool, gpu_class=pool))
    for number in range(1, nodes + 1):
        story.say(NodeJoined(node=f"n{number}", pool=pool, gpus=gpus), f"n{number}")
    for path, share_ppm in budgets:
        story.say(BudgetSet(pool=pool, budget=path, share_ppm=share_ppm, reason="as agreed"))
    story.say(MemberGranted(budget=next(iter(budgets))[0].partition("/")[0], member="ann"))
    return story


def job(workload: str, gpus: int = 1, budget: str = "lab", **rest: object) -> WorkloadSubmitted:
    """Return a submission with the fields a test cares about."""
    fields = {"pools": ("h100",), "gpus_milli": gpus * 1_000, **rest}
    return WorkloadSubmitted(workload=workload, budget=budget, **fields)  # type: ignore[arg-type]

"""Fixtures shared by every test: a real nats-server in its own directory, and a bounded runner for coroutines."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, Literal, TypeVar

import pytest
from hypothesis import settings

from apportion.adapters.bus.server import EmbeddedServer
from apportion.adapters.processes.home import Home
from apportion.core.envelope import subject_of
from apportion.core.events import (
    EVENT_TYPES,
    BudgetSet,
    Event,
    LogOpened,
    NodeHeartbeat,
    NodeJoined,
    PoolDefined,
    WorkloadSubmitted,
    encode_event,
)

T = TypeVar("T")

settings.register_profile("apportion", deadline=None)  # what a busy machine takes for an example is no property of the code
settings.load_profile("apportion")


@pytest.fixture
def start_nats(tmp_path: Path) -> Iterator[Callable[..., EmbeddedServer]]:
    """Start real nats-servers, each in its own home under the test's directory; all are stopped after the test.

    ``start_nats(name="nats", **options)`` passes ``options`` to ``EmbeddedServer``. Syncing is relaxed unless the test
    says otherwise: a killed process is no power cut, and the disk of a test machine is slow.
    """
    servers: list[EmbeddedServer] = []

    def start(name: str = "nats", **options: Any) -> EmbeddedServer:
        server = EmbeddedServer(Home.of(tmp_path / name), **{"sync": "relaxed", **options})
        servers.append(server)
        return server.start()

    yield start
    for server in servers:
        server.stop()


@pytest.fixture
def nats_server(start_nats: Callable[..., EmbeddedServer]) -> EmbeddedServer:
    """A running nats-server on a free loopback port with an empty store of its own (10 ms to start)."""
    return start_nats()


@pytest.fixture
def run_async() -> Callable[[Coroutine[Any, Any, T]], T]:
    """Run a coroutine to its end in a fresh event loop, for at most a minute."""

    def run(coroutine: Coroutine[Any, Any, T], timeout_s: float = 60.0) -> T:
        async def bounded() -> T:
            return await asyncio.wait_for(coroutine, timeout_s)

        return asyncio.run(bounded())

    return run


class Script:
    """What happens in a small cluster: events as ``(subject, body, event id)``, with ids that count up."""

    def __init__(self, time_source: Literal["stored", "stated"] = "stored", at_ms: int = 0) -> None:
        self.time_source: Literal["stored", "stated"] = time_source
        self.at_ms = at_ms
        self.count = 0

    def event(self, principal: str, event: Event) -> tuple[str, bytes, str]:
        self.count += 1
        event_id = f"script-{self.count}"
        body = encode_event(event, event_id=event_id, at_ms=self.at_ms)
        return subject_of(principal, EVENT_TYPES[type(event)]), body, event_id

    def opening(self, nodes: int = 2, gpus: int = 8) -> list[tuple[str, bytes, str]]:
        """A log with one pool, its nodes, and two budgets of halves."""
        return [
            self.event("ops", LogOpened(log_id="test", time_source=self.time_source, operators=("ops", "core"))),
            self.event("ops", PoolDefined(pool="h100")),
            *(
                self.event("ops", NodeJoined(node=f"n{number}", pool="h100", gpus=gpus, agent=f"agent-n{number}"))
                for number in range(nodes)
            ),
            self.event("ops", BudgetSet(pool="h100", budget="lab", share_ppm=1_000_000)),
            self.event("ops", BudgetSet(pool="h100", budget="lab/a", share_ppm=500_000)),
            self.event("ops", BudgetSet(pool="h100", budget="lab/b", share_ppm=500_000)),
        ]

    def submission(self, name: str, gpus: int = 1, budget: str = "lab/a") -> tuple[str, bytes, str]:
        return self.event(
            "ops", WorkloadSubmitted(workload=name, budget=budget, pools=("h100",), gpus_milli=gpus * 1_000, min_runtime_ms=60_000)
        )

    def heartbeat(self, node: int, beat: int) -> tuple[str, bytes, str]:
        return self.event(f"agent-n{node}", NodeHeartbeat(node=f"n{node}", beat=beat))


@pytest.fixture
def script() -> Script:
    """A small cluster in stored time."""
    return Script()


@pytest.fixture
def stated_script() -> Script:
    """A small cluster in stated time."""
    return Script("stated", at_ms=1_000_000)

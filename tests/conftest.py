"""Fixtures shared by every test: a real nats-server in its own directory, and a bounded runner for coroutines."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from apportion.adapters.bus.server import EmbeddedServer
from apportion.adapters.home import Home

T = TypeVar("T")


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

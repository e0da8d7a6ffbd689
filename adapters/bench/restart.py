"""How long the scheduler takes to be ready again with a long log behind its snapshot.

Writes a log of heartbeats with a snapshot near its beginning into a fresh nats-server, then starts the scheduler as its
own process and waits for its word. A measurement, not a test: the number depends on the machine.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from apportion.adapters.bench.reader import NODES, heartbeat
from apportion.adapters.bus.local import Bus
from apportion.adapters.bus.server import EmbeddedServer
from apportion.adapters.bus.topology import SIMULATION_DUPLICATE_WINDOW_S
from apportion.adapters.processes.home import Home
from apportion.core.envelope import subject_of
from apportion.core.events import EVENT_TYPES, Event, LogOpened, NodeJoined, PoolDefined, encode_event


def run(events: int = 1_000_000) -> dict[str, Any]:
    """Return ``ready_s``, from the start of the process to its word, with ``events`` behind the snapshot."""
    with tempfile.TemporaryDirectory(prefix="apportion-bench-") as directory:
        home = Home.of(Path(directory) / "home")
        with EmbeddedServer(home, sync="relaxed") as server:
            asyncio.run(_write(server.url, _opening()))
            first_s, _ = _serve(home)  # makes the snapshot, and loads every kernel into the cache
            began = time.perf_counter()
            asyncio.run(_write(server.url, (heartbeat(number) for number in range(events))))
            written_s = time.perf_counter() - began
            ready_s, word = _serve(home)
    return {
        "ready_s": round(ready_s, 2),
        "events": events,
        "events_per_s": int(events / ready_s),
        "start_without_events_s": round(first_s, 2),
        "written_per_s": int(events / written_s),
        "ready": word,
    }


async def _write(url: str, events: Any) -> None:
    window_s = SIMULATION_DUPLICATE_WINDOW_S
    async with await Bus.open(url, name="bench restart", create=True, duplicate_window_s=window_s) as bus:
        await bus.publisher.send_many(events)
        await bus.publisher.flush()


def _opening() -> list[tuple[str, bytes, str]]:
    events: list[Event] = [
        LogOpened(log_id="bench", time_source="stored", operators=("bench", "core")),
        PoolDefined(pool="h100"),
        *(NodeJoined(node=f"n{number:04d}", pool="h100", gpus=8, agent=f"agent-{number}") for number in range(NODES)),
    ]
    messages = []
    for number, event in enumerate(events):
        subject = subject_of("bench", EVENT_TYPES[type(event)])
        messages.append((subject, encode_event(event, event_id=f"open-{number}"), f"open-{number}"))
    return messages


def _serve(home: Home) -> tuple[float, str]:
    """Start the scheduler, wait until it is ready, stop it cleanly; return the seconds it took and its word."""
    read_end, write_end = os.pipe()
    began = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-m", __name__, str(home.root), str(write_end)], pass_fds=(write_end,))
    os.close(write_end)
    try:
        with os.fdopen(read_end) as pipe:
            word = pipe.readline().strip()
        seconds = time.perf_counter() - began
        if not word:
            raise AssertionError("the scheduler ended before it was ready")
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)
    return seconds, word


def _core(directory: str, descriptor: int) -> None:
    """Be the scheduler process."""
    from apportion.adapters.service import serve

    def ready(line: str) -> None:
        os.write(descriptor, line.encode() + b"\n")

    asyncio.run(serve(Home.of(directory), ready=ready))


if __name__ == "__main__":
    _core(sys.argv[1], int(sys.argv[2]))

"""From a submission to its decision, as a client sees it over NATS with ``sync_interval: always``.

A fresh server, the scheduler as its own process, and a client that submits at a steady rate and follows DECISIONS. Each
submission has passed three synced writes when its decision is seen: the event, the tick, the batch. The clock starts when
the client was *due* to submit, so a stall is not hidden by submitting later. A measurement, not a test.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from apportion.adapters.bus.local import Bus
from apportion.adapters.bus.server import EmbeddedServer
from apportion.adapters.processes.home import Home
from apportion.core.decisions import RunPlaced, WorkloadAdmitted, decode_batch
from apportion.core.envelope import subject_of
from apportion.core.events import (
    EVENT_TYPES,
    BudgetSet,
    Event,
    LogOpened,
    NodeJoined,
    PoolDefined,
    RunFinished,
    WorkloadSubmitted,
    encode_event,
)

PRINCIPAL = "bench"
NODES = 64
RUN_S = 1.0
WARM_UP_S = 2.0
PATIENCE_S = 30.0


def run(rate: int = 200, seconds: float = 10) -> dict[str, Any]:
    """Return ``p50_ms`` and ``p99_ms`` at ``rate`` submissions per second for ``seconds``."""
    with tempfile.TemporaryDirectory(prefix="apportion-bench-") as directory:
        home = Home.of(Path(directory) / "home")
        with EmbeddedServer(home) as server:
            return asyncio.run(_run(home, server.url, rate, seconds))


async def _run(home: Home, url: str, rate: int, seconds: float) -> dict[str, Any]:
    async with await Bus.open(url, name="bench latency", create=True) as bus:
        for event in _opening():
            await _publish(bus, event)
        home.logs.mkdir(parents=True, exist_ok=True)
        with (home.logs / "serve.log").open("ab") as log:
            core = subprocess.Popen([sys.executable, "-m", __name__, str(home.root)], stdout=log, stderr=log)
        try:
            return await _measure(bus, rate, seconds)
        finally:
            core.send_signal(signal.SIGTERM)
            core.wait(30)


async def _measure(bus: Bus, rate: int, seconds: float) -> dict[str, Any]:
    seen: dict[str, float] = {}
    watcher = asyncio.create_task(_watch(bus, seen))
    try:
        await _load(bus, seen, 1, 1, "first")  # the core is there and its kernels are loaded
        await _load(bus, seen, rate, WARM_UP_S, "warm")
        before = await bus.decisions.last_seq()
        due = await _load(bus, seen, rate, seconds, "w")
        waits_ms = sorted((seen[name] - at) * 1_000 for name, at in due.items())
    finally:
        watcher.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watcher
    return {
        "p50_ms": round(waits_ms[len(waits_ms) // 2], 2),
        "p99_ms": round(waits_ms[len(waits_ms) * 99 // 100], 2),
        "max_ms": round(waits_ms[-1], 2),
        "submissions": len(waits_ms),
        "rate": rate,
        "cycles": await bus.decisions.last_seq() - before,
    }


async def _load(bus: Bus, seen: dict[str, float], rate: int, seconds: float, prefix: str) -> dict[str, float]:
    """Submit at ``rate`` and wait until every decision was seen; return when each submission was due."""
    due: dict[str, float] = {}
    began = time.perf_counter()
    for number in range(int(rate * seconds)):
        at = began + number / rate
        if (ahead := at - time.perf_counter()) > 0:
            await asyncio.sleep(ahead)
        name = f"{prefix}{number}"
        due[name] = at
        await _send(bus, _submission(name))
    async with asyncio.timeout(PATIENCE_S):
        while any(name not in seen for name in due):
            await asyncio.sleep(0.01)
    return due


async def _watch(bus: Bus, seen: dict[str, float]) -> None:
    """Note when each decision arrives, and play the agents: every run that was placed ends after ``RUN_S``."""
    loop = asyncio.get_running_loop()
    ending: set[asyncio.Task[None]] = set()
    try:
        async for batches in bus.decisions.follow(0):
            now = time.perf_counter()
            for batch in batches:
                for decision in decode_batch(batch.body).decisions:
                    if isinstance(decision, WorkloadAdmitted):
                        seen[decision.workload] = now
                    elif isinstance(decision, RunPlaced):
                        task = loop.create_task(_end(bus, decision))
                        ending.add(task)
                        task.add_done_callback(ending.discard)
    finally:
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)


async def _end(bus: Bus, placed: RunPlaced) -> None:
    await asyncio.sleep(RUN_S)
    node = placed.pieces[0].node
    await _send(bus, RunFinished(workload=placed.workload, run=placed.run, node=node, outcome="succeeded"))


def _opening() -> list[Event]:
    return [
        LogOpened(log_id="bench", time_source="stored", operators=(PRINCIPAL, "core")),
        PoolDefined(pool="h100"),
        *(NodeJoined(node=f"n{number}", pool="h100", gpus=8) for number in range(NODES)),
        BudgetSet(pool="h100", budget="lab", share_ppm=1_000_000),
    ]


def _submission(name: str) -> Event:
    return WorkloadSubmitted(workload=name, budget="lab", pools=("h100",), gpus_milli=1_000, min_runtime_ms=0)


def _message(event: Event) -> tuple[str, bytes, str]:
    event_id = os.urandom(16).hex()
    body = encode_event(event, event_id=event_id, at_ms=time.time_ns() // 1_000_000)
    return subject_of(PRINCIPAL, EVENT_TYPES[type(event)]), body, event_id


async def _publish(bus: Bus, event: Event) -> None:
    await bus.publisher.publish(*_message(event))


async def _send(bus: Bus, event: Event) -> None:
    await bus.publisher.send(*_message(event))


def _core(directory: str) -> None:
    """Be the scheduler process."""
    from apportion.adapters.service import serve

    asyncio.run(serve(Home.of(directory)))


if __name__ == "__main__":
    _core(sys.argv[1])

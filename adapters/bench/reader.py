"""Reading EVENTS from a real server through the own cursor: events per second.

Publishes heartbeats of a hundred nodes into a fresh nats-server (relaxed syncing: reading is what is measured), then reads
them back as the scheduler does when it catches up. A measurement, not a test: the number depends on the machine.
"""

from __future__ import annotations

import asyncio
import gc
import tempfile
import time
from pathlib import Path
from typing import Any

from apportion.adapters.bus.local import Bus
from apportion.adapters.bus.server import EmbeddedServer
from apportion.adapters.bus.topology import SIMULATION_DUPLICATE_WINDOW_S
from apportion.adapters.processes.home import Home
from apportion.core.envelope import subject_of
from apportion.core.events import NodeHeartbeat, encode_event

NODES = 100
READ_RECORDS = 16_384


def heartbeat(number: int) -> tuple[str, bytes, str]:
    """Return the ``number``-th heartbeat as ``(subject, body, event id)``."""
    node = number % NODES
    event_id = f"{number:032x}"
    event = NodeHeartbeat(node=f"n{node:04d}", beat=number // NODES + 1, busy_milli=7_250, memory_mib=512_000, watts=5_400)
    return subject_of(f"agent-{node}", "node.heartbeat"), encode_event(event, event_id=event_id, at_ms=1_700_000_000_000), event_id


def run(events: int = 200_000, rounds: int = 3) -> dict[str, Any]:
    """Return ``events_per_s`` (the best of ``rounds``), every round's, and the client's CPU time per event."""
    with tempfile.TemporaryDirectory(prefix="apportion-bench-") as directory:
        server = EmbeddedServer(Home.of(Path(directory) / "home"), sync="relaxed")
        with server:
            return asyncio.run(_run(server.url, events, rounds))


async def _run(url: str, events: int, rounds: int) -> dict[str, Any]:
    async with await Bus.open(url, name="bench reader", create=True, duplicate_window_s=SIMULATION_DUPLICATE_WINDOW_S) as bus:
        began = time.perf_counter()
        await bus.publisher.send_many(heartbeat(number) for number in range(events))
        await bus.publisher.flush()
        published_per_s = events / (time.perf_counter() - began)
    rates, cpu_us = [], []
    for _round in range(rounds):
        async with await Bus.open(url, name="bench reader") as bus:
            rate, cpu = await _read(bus, events)
        rates.append(int(rate))
        cpu_us.append(round(cpu, 2))
    return {
        "events_per_s": max(rates),
        "events": events,
        "rounds_events_per_s": rates,
        "client_cpu_us_per_event": min(cpu_us),
        "published_per_s": int(published_per_s),
    }


async def _read(bus: Bus, events: int) -> tuple[float, float]:
    gc.collect()
    gc.disable()  # as the scheduler does while catching up
    try:
        began, began_cpu, position = time.perf_counter(), time.process_time(), 0
        while records := await bus.events.read(position, READ_RECORDS):
            position = records[-1].seq
        seconds, cpu_s = time.perf_counter() - began, time.process_time() - began_cpu
    finally:
        gc.enable()
    if position != events:
        raise AssertionError(f"read {position} of {events} events")
    return events / seconds, cpu_s / events * 1_000_000

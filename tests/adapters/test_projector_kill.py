"""The projector as a process, killed at random points: nothing is lost, nothing is there twice."""

from __future__ import annotations

import asyncio
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import duckdb

from apportion.adapters.bus.local import Bus
from apportion.adapters.bus.server import EmbeddedServer
from apportion.adapters.processes.home import Home
from apportion.adapters.projector.asking import NoAnswer, ask
from apportion.projections import audit
from apportion.projections.digest import digest
from apportion.projections.runner import Projection
from tests.adapters.test_projector import fill
from tests.projections.history import simulated

SEED = 43
KILLS = 4
CHUNK = 25  # cycles published between two kills, at least


def start(home: Home, log: Path) -> subprocess.Popen[bytes]:
    """Start a real projector process."""
    with log.open("ab") as out:
        return subprocess.Popen(
            [sys.executable, "-m", "apportion.adapters.local.component", "projector", "--dir", str(home.root)],
            stdout=out, stderr=out,
        )  # fmt: skip


async def waited(bus: Bus, seq: int) -> bool:
    """Ask until a projector answers that ``seq`` can be read; bounded."""
    for _ in range(60):
        try:
            answer = await ask(bus.connection.client, "wait", {"seq": seq, "timeout_ms": 5_000}, timeout_s=10)
        except NoAnswer:
            answer = {}
        if answer.get("rows") == [{"reached": True}]:
            return True
        await asyncio.sleep(0.2)
    return False


def test_kills_lose_nothing(
    start_nats: Callable[..., EmbeddedServer], tmp_path: Path, run_async: Callable[..., Any]
) -> None:
    logs = simulated(SEED, hours=8, nodes=2, rough=False)
    choose = random.Random(SEED)
    server = start_nats("home")
    home = Home.of(tmp_path / "home")
    log = tmp_path / "projector.log"
    processes: list[subprocess.Popen[bytes]] = []

    async def play() -> None:
        async with await Bus.open(server.url, create=True) as bus:
            process = start(home, log)
            processes.append(process)
            done = 0
            for kill in range(KILLS + 1):
                upto = len(logs.batches) if kill == KILLS else min(len(logs.batches), done + CHUNK + choose.randint(0, 30))
                feeding: Coroutine[Any, Any, None] = fill(bus, logs, after=done, cycles=upto)
                if kill == KILLS:
                    await feeding
                    break
                task = asyncio.create_task(feeding)
                await asyncio.sleep(choose.uniform(0.0, 1.5))
                process.kill()
                process.wait(30)
                await task
                done = upto
                process = start(home, log)
                processes.append(process)
            last = logs.batches[-1].input_seq
            assert await waited(bus, last), log.read_text()[-2_000:]
            audited = await ask(bus.connection.client, "audit", timeout_s=60)
            assert [row["check"] for row in audited["rows"] if row["violations"]] == []
            assert len(audited["rows"]) == len(audit.checks())
            process.send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(process.wait, 30) == 0, log.read_text()[-2_000:]

    try:
        run_async(play(), 150.0)
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
                process.wait(30)
    with Projection() as expected, duckdb.connect(str(home.projection), read_only=True) as con:
        expected.ingest(logs.records, logs.batches)
        assert digest(con) == expected.digest()
    assert "Traceback" not in log.read_text()

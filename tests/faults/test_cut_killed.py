"""A cut is killed, or its server is, after each of its steps: nothing is lost, and the next run finishes it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from apportion.adapters.archiving.cutting.carrying import carry_out
from apportion.adapters.archiving.cutting.plan import plan
from apportion.adapters.archiving.writing import write
from apportion.adapters.bus import topology
from apportion.adapters.bus.connection import BusUnreachable, Connection
from apportion.adapters.bus.cut import is_fenced
from apportion.adapters.bus.local import Bus
from apportion.adapters.bus.server import EmbeddedServer
from apportion.adapters.cli.main import run
from apportion.adapters.logs.manifest import load
from apportion.adapters.processes.home import Home
from apportion.core.envelope import Record, StoredBatch
from tests.archived import played

STEPS = [
    "KEPT stored", *(f"{stream} {step}" for stream in ("DECISIONS", "EVENTS") for step in ("fenced", "limited", "open")),
    "KEPT forgotten",
]  # fmt: skip

KILLED = """
import asyncio, os, signal, sys
from pathlib import Path
from apportion.adapters.bus.connection import Connection
from apportion.adapters.archiving.cutting.carrying import carry_out
from apportion.adapters.archiving.cutting.plan import plan

def after(step):
    if step == sys.argv[3]:
        os.kill(os.getpid(), signal.SIGKILL)

async def cut():
    async with await Connection.open(sys.argv[1], name="cut") as connection:
        wanted = await plan(connection, Path(sys.argv[2]), 2)
        await carry_out(connection, wanted, after)

asyncio.run(cut())
"""

Logs = tuple[list[Record], list[StoredBatch]]


async def whole(bus: Bus) -> Logs:
    return await bus.events.read(0, 10**6), await bus.decisions.read(0, 10**6)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Logs]:
    """An installation with a history and its archive, its server stopped; and what its logs hold."""
    import asyncio

    home = Home.of(tmp_path_factory.mktemp("prepared") / "home")
    history = played(7, rough=False, hours=76)

    async def fill(url: str) -> Logs:
        async with await Bus.open(url, create=True, max_file_bytes=256 * 1024**2) as bus:
            await bus.publisher.send_many((record.subject, record.body, f"r{record.seq}") for record in history.records)
            await bus.publisher.flush()
            for batch in history.batches:
                await bus.decisions.commit(batch.body, batch.input_seq, batch.seq - 1)
            await write(bus.events, bus.decisions, home.archive)
            return await whole(bus)

    server = EmbeddedServer(home, sync="relaxed")
    try:
        server.start()
        logs = asyncio.run(fill(server.url))
    finally:
        server.stop()
    return home.root, logs


@pytest.fixture
def home(prepared: tuple[Path, Logs], tmp_path: Path) -> Home:
    """A copy of it."""
    shutil.copytree(prepared[0], tmp_path / "nats", ignore=shutil.ignore_patterns("*.lock", "server.json"))
    return Home.of(tmp_path / "nats")


def check_whole(url: str, home: Home, logs: Logs, run_async: Any) -> bool:
    """Check that every record and batch can be read, through the fence too; tell whether a fence stands."""

    async def look() -> bool:
        from apportion.adapters.bus.archived import joined_decisions, joined_events

        async with await Connection.open(url, name="look") as connection:
            events, decisions = joined_events(connection, (home.archive,)), joined_decisions(connection, (home.archive,))
            assert (await events.read(0, 10**6), await decisions.read(0, 10**6)) == logs
            await events.close()
            await decisions.close()
            infos = [await topology.stream_info(connection, stream) for stream in ("EVENTS", "DECISIONS")]
            return any(is_fenced(info.config) for info in infos)

    return bool(run_async(look()))


def check_finishes(home: Home, logs: Logs, run_async: Any, capfd: pytest.CaptureFixture[str]) -> None:
    """Check that the verb, run again, cuts what was to be cut, opens both streams, and that they take what comes."""
    assert run(["archive", "cut", "--keep", "2", "--dir", str(home.root), "--json"]) == 0, capfd.readouterr().err
    assert json.loads(capfd.readouterr().out)["days"] in (0, 2)  # none: all of it was cut already
    day = load(home.archive).days[1]

    async def go_on() -> None:
        async with await Bus.at_home(home) as bus:
            first = [(await topology.stream_info(bus.connection, stream)).state.first_seq for stream in ("EVENTS", "DECISIONS")]
            assert first == [day.last_seq + 1, day.last_decision + 1]
            assert await whole(bus) == logs
            records, batches = logs
            assert (await bus.publisher.publish("ap.ev.ops.note.made", b"{}", "more")).seq == len(records) + 1
            assert await bus.decisions.commit(b"{}", len(records) + 1, batches[-1].seq) == batches[-1].seq + 1

    run_async(go_on())


@pytest.mark.parametrize("step", STEPS)
def test_a_cut_that_is_killed_is_finished_by_the_next(
    step: str, prepared: tuple[Path, Logs], home: Home, start_nats: Callable[..., EmbeddedServer], run_async: Any,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    server = start_nats()
    died = subprocess.run([sys.executable, "-c", KILLED, server.url, str(home.archive), step], timeout=60, check=False)
    assert died.returncode == -signal.SIGKILL

    fenced = check_whole(server.url, home, prepared[1], run_async)
    assert fenced == step.endswith(("fenced", "limited"))
    if fenced:
        with pytest.raises(topology.TopologyError, match="`apportion archive cut` again opens it"):
            run_async(Bus.open(server.url))
    check_finishes(home, prepared[1], run_async, capfd)


@pytest.mark.parametrize("step", STEPS)
def test_a_server_that_is_killed_in_a_cut_has_lost_nothing(
    step: str, prepared: tuple[Path, Logs], home: Home, start_nats: Callable[..., EmbeddedServer], run_async: Any,
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr("apportion.adapters.bus.shortening.RETRY_S", 0.01)
    server = start_nats()

    def kill(reached: str) -> None:
        if reached == step:
            os.kill(server.file.pid, signal.SIGKILL)

    async def cut() -> None:
        connection = await Connection.open(server.url, name="cut")
        try:
            wanted = await plan(connection, home.archive, 2)
            assert wanted is not None
            with contextlib.nullcontext() if step == STEPS[-1] else pytest.raises((TimeoutError, BusUnreachable)):
                await carry_out(connection, wanted, kill)
        finally:
            await connection.close()

    run_async(cut())
    server.stop()
    again = EmbeddedServer(home, sync="relaxed").start()
    try:
        check_whole(again.url, home, prepared[1], run_async)
        check_finishes(home, prepared[1], run_async, capfd)
    finally:
        again.stop()

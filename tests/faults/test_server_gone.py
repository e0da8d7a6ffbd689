"""The server is gone for good: every process of ours still ends on SIGTERM, within its bound and with exit code 0.

Killed is one way to be gone; frozen is the other, where connections stand and nothing is answered.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from apportion.adapters.agent import leaving
from apportion.adapters.agent import main as agent_process
from apportion.adapters.bus.local import Bus
from apportion.adapters.bus.server import EmbeddedServer
from apportion.adapters.ingress import app as ingress_process
from apportion.adapters.processes.home import Home
from apportion.adapters.projector import process as projector_process
from apportion.adapters.projector.following import Follower
from apportion.adapters.service import process as core_process
from apportion.core.decisions import CycleBatch, encode_batch
from apportion.projections.runner import Projection

Run = Callable[..., Any]
PATIENCE_S = 60.0  # for a process to become ready on a busy machine
GONE_WITHIN_S = 10.0  # with nothing to do but to notice that nobody answers; the bounds of the processes leave room for work
SLACK_S = 2.0
PROGRAM = [sys.executable, "-m", "apportion.adapters.cli.main"]


class Kind(NamedTuple):
    """One process of ours: its command line, what it says when it is in order, and its own bound."""

    line: str
    ready: str
    bound_s: float
    opened: bool = True  # it is given a log that has been set up


KINDS = {
    "agent": Kind("agent --node n1 --gpus 8 --beat 200ms", "ready: node n1", agent_process.END_WITHIN_S),
    "agent before the log": Kind("agent --node n1 --gpus 8", "waiting for log.opened", agent_process.END_WITHIN_S, opened=False),
    "core": Kind("serve", "ready: leader", core_process.END_WITHIN_S),
    "standby": Kind("serve --standby", "ready: standby", core_process.END_WITHIN_S),
    "projector": Kind("project", "ready: projection", projector_process.END_WITHIN_S),
    "ingress": Kind("ingress", "answers requests", ingress_process.END_WITHIN_S),
}


class Started:
    """One process and its log."""

    def __init__(self, directory: Path, line: str) -> None:
        self._path = directory / "process.log"
        environment = {**os.environ, "APPORTION_DIR": str(directory), "APPORTION_PRINCIPAL": "ops"}
        environment.pop("APPORTION_SERVER", None)
        with self._path.open("wb") as log:
            self.process = subprocess.Popen(
                [*PROGRAM, *line.split()], env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    @property
    def said(self) -> str:
        return self._path.read_text(errors="replace")

    def until(self, words: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while words not in self.said:
            assert self.process.poll() is None, self.said
            assert time.monotonic() < deadline, self.said
            time.sleep(0.02)

    def ends(self, within_s: float) -> float:
        """Tell it to end; return how long it took. Fails with what it said when that was too long."""
        began = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(within_s + SLACK_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"not ended {within_s} s after SIGTERM:\n{self.said}") from None
        return time.monotonic() - began


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[str], Started]]:
    """Start processes with the test's directory as their home; none outlives the test."""
    started: list[Started] = []

    def start(line: str) -> Started:
        started.append(Started(tmp_path / "home", line))
        return started[-1]

    yield start
    for one in started:
        if one.process.poll() is None:
            one.process.kill()
        one.process.wait(10)


async def open_log(server: EmbeddedServer, script: Any, *, opened: bool) -> None:
    async with await Bus.open(server.url, create=True) as bus:
        for event in script.opening() if opened else ():
            await bus.publisher.publish(*event)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "frozen"])
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS.keys())
def test_a_process_ends_though_its_server_is_gone(
    start_nats: Run, run_async: Run, script: Any, start: Callable[[str], Started], kind: Kind, how: signal.Signals
) -> None:
    server = start_nats("home")
    run_async(open_log(server, script, opened=kind.opened))
    one = start(kind.line)
    one.until(kind.ready)
    os.kill(server.pid, how)
    try:
        time.sleep(0.3)
        assert one.process.poll() is None, "an outage is no reason to end"
        one.ends(min(kind.bound_s, GONE_WITHIN_S))
    finally:
        if how == signal.SIGSTOP:
            os.kill(server.pid, signal.SIGCONT)
    assert one.process.returncode == 0, one.said
    assert "Traceback" not in one.said


def test_an_ingress_that_never_met_a_server_ends(tmp_path: Path, start: Callable[[str], Started]) -> None:
    (tmp_path / "home").mkdir()
    one = start("ingress --server nats://127.0.0.1:1")  # nothing listens there
    one.until("ingress connects to")
    time.sleep(0.5)
    assert one.process.poll() is None, one.said
    one.ends(GONE_WITHIN_S)
    assert one.process.returncode == 0, one.said
    assert "Traceback" not in one.said


@pytest.mark.parametrize(
    "how",
    [
        "cannot start again",
        "cannot start again, runs to be stopped",
        pytest.param("frozen, runs to be stopped", marks=pytest.mark.slow),  # the server itself is given half a minute
    ],
)
def test_a_whole_cluster_ends_though_its_server_is_gone(tmp_path: Path, start: Callable[[str], Started], how: str) -> None:
    (tmp_path / "home").mkdir()
    home = Home.of(tmp_path / "home")
    stop_runs = " --stop-runs" if "runs" in how else ""
    one = start(f"up --gpus 8 --node n1 --beat 200ms{stop_runs}")
    lock = (home.root / "server.lock").open("wb")
    server: EmbeddedServer | None = None
    try:
        one.until("ready: node n1")
        server = EmbeddedServer.running(home)
        assert server is not None
        if "frozen" not in how:
            one.process.send_signal(signal.SIGSTOP)
            os.kill(server.pid, signal.SIGKILL)
            fcntl.flock(lock, fcntl.LOCK_EX)  # as a server that hangs in its own start would hold it
            one.process.send_signal(signal.SIGCONT)
            one.until("starting it again")
        else:
            os.kill(server.pid, signal.SIGSTOP)
        parts_s = 3 * GONE_WITHIN_S + (leaving.KILL_S + 2 * leaving.REPORTS_S) * bool(stop_runs)
        one.ends(parts_s + (30.0 if "frozen" in how else 5.0))
    finally:
        lock.close()
        if server is not None and "frozen" in how:
            with contextlib.suppress(ProcessLookupError):
                os.kill(server.pid, signal.SIGKILL)
    assert one.process.returncode == 0, one.said
    assert "Traceback" not in one.said
    assert "was killed" not in one.said, "each part ended by itself"


def test_a_projector_ends_while_it_waits_for_records_that_do_not_come(
    nats_server: EmbeddedServer, run_async: Run, script: Any, tmp_path: Path
) -> None:
    """Decisions that answer a record whose delivery the server's end has cut off."""
    import asyncio

    async def scenario() -> None:
        async with await Bus.open(nats_server.url, create=True) as bus:
            for event in script.opening():
                await bus.publisher.publish(*event)
            last = await bus.events.last_seq()
            batch = CycleBatch(core=1, cycle=1, seq=last + 5, time_ms=1, chain="0", digest="0", decisions=())
            await bus.decisions.commit(encode_batch(batch), batch.seq, 0)
            with Projection(tmp_path / "projection.duckdb") as projection:
                follower = Follower(projection, bus.events, bus.decisions)
                running = asyncio.create_task(follower.run())
                async with asyncio.timeout(10):
                    while follower.decided_seq < batch.seq:
                        await asyncio.sleep(0.01)
                await asyncio.sleep(0.2)
                assert not running.done()
                follower.stop()
                done, _ = await asyncio.wait([running], timeout=5)
                running.cancel()
                await follower.close()
                assert done

    run_async(scenario())

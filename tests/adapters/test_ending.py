"""Closing steps end within their bounds, whatever they wait for; a process that hangs all the same is ended."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from apportion.adapters.bus.connection import Connection, publish_command
from apportion.adapters.bus.local import Bus
from apportion.adapters.bus.server import EmbeddedServer
from apportion.adapters.processes import ending
from apportion.adapters.processes.home import Home
from apportion.adapters.simulation.stated import OPERATOR, stated
from apportion.core.events import LogOpened

Run = Callable[..., Any]


async def deaf(times: int) -> None:
    """A task that hears only the cancellation after ``times`` others."""
    for _ in range(times):
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(3_600)
    await asyncio.sleep(3_600)


def test_a_step_that_gets_no_answer_is_given_up_and_said(run_async: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        began = time.monotonic()
        assert not await ending.within("closing the door", deaf(1), 0.2)
        assert time.monotonic() - began < 3

    run_async(scenario(), 10.0)
    assert "closing the door took longer than 0.2 s and was given up" in caplog.text


def test_a_step_in_time_is_taken_and_its_error_is_the_callers(run_async: Run) -> None:
    async def fails() -> None:
        raise OSError("no such door")

    async def scenario() -> None:
        assert await ending.within("closing the door", asyncio.sleep(0.01), 5.0)
        with pytest.raises(OSError, match="no such door"):
            await ending.within("closing the door", fails(), 5.0)

    run_async(scenario(), 10.0)


def test_a_step_that_cancels_itself_has_ended_and_cancels_nobody(run_async: Run) -> None:
    async def scenario() -> None:
        waited_for = asyncio.get_running_loop().create_future()
        waited_for.cancel()
        assert await ending.within("closing the door", asyncio.wait_for(waited_for, 5.0), 5.0)

        step = asyncio.create_task(ending.within("closing the door", asyncio.sleep(3_600), 3_600))
        await asyncio.sleep(0.01)
        step.cancel()
        with pytest.raises(asyncio.CancelledError):
            await step

    run_async(scenario(), 10.0)


def test_a_connection_whose_library_is_cancelled_while_it_closes_is_closed(nats_server: EmbeddedServer, run_async: Run) -> None:
    """Where a reconnect is given up while it waits for the old socket, whoever waits for that socket next is cancelled."""

    async def scenario() -> None:
        told = list[bool]()
        async with await Connection.open(nats_server.url, name="closing") as connection:
            connection.listen(lambda: told.append(connection.client.is_closed), lambda: None)
            writer = connection.client._transport._io_writer  # type: ignore[union-attr]
            writer._protocol._get_close_waiter(writer).cancel()
        assert connection.client.is_closed
        assert told[-1:] == [True], "whoever waits for an answer is told that none will come"

    run_async(scenario(), 10.0)


@pytest.mark.parametrize("times", [0, 1, 2])
def test_tasks_that_miss_a_cancellation_are_cancelled_again(run_async: Run, times: int) -> None:
    async def scenario() -> None:
        task = asyncio.create_task(deaf(times))
        await asyncio.sleep(0)
        assert await ending.let_go(task, seconds=5.0)
        assert task.cancelled()

    run_async(scenario(), 10.0)


@pytest.mark.parametrize("turns", range(6))
def test_a_loop_with_wait_for_ends_whenever_its_news_comes(run_async: Run, turns: int) -> None:
    """With one ``cancel`` it does not, where the news comes a turn or two before: the reason for this module."""

    async def scenario() -> None:
        news = asyncio.Event()

        async def loop() -> None:
            while True:
                news.clear()
                try:
                    await asyncio.wait_for(news.wait(), 3_600)
                except TimeoutError:
                    continue

        task = asyncio.create_task(loop())
        await asyncio.sleep(0.01)
        news.set()
        for _ in range(turns):
            await asyncio.sleep(0)
        assert await ending.let_go(task, seconds=5.0)

    run_async(scenario(), 10.0)


def test_a_task_that_never_ends_is_named(run_async: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        task = asyncio.create_task(deaf(4), name="the deaf one")
        await asyncio.sleep(0)
        assert not await ending.let_go(task, seconds=0.6)
        while not task.done():  # the test must not leave it behind
            task.cancel()
            await asyncio.sleep(0)

    with caplog.at_level(logging.WARNING):
        run_async(scenario(), 10.0)
    assert "the deaf one did not hear within 0.6 s" in caplog.text


def test_a_step_is_taken_until_it_is_told_to_stop(run_async: Run) -> None:
    async def scenario() -> None:
        stop = asyncio.Event()
        done = await ending.until_stopped(stop, asyncio.sleep(0.01, result=7))
        assert done is not None
        assert done.result() == 7
        asyncio.get_running_loop().call_later(0.05, stop.set)
        assert await ending.until_stopped(stop, asyncio.sleep(3_600)) is None
        assert await ending.until_stopped(stop, asyncio.sleep(0.05, result=8), patience_s=5.0) is not None
        assert await ending.until_stopped(stop, asyncio.sleep(3_600), patience_s=0.05) is None

    run_async(scenario(), 10.0)


HANGING = """
import asyncio, os, signal, time
from apportion.adapters.processes import ending
async def hang():
    with ending.on_signals("the test's process", lambda: None, 0.5):
        print("on", flush=True)
        await {what}
asyncio.run(hang())
"""


@pytest.mark.parametrize("what", ["asyncio.sleep(3600)", "asyncio.to_thread(time.sleep, 3600)"])
def test_the_last_resort_ends_the_process_and_says_so(what: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", HANGING.format(what=what)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "on\n"
        process.terminate()
        _out, err = process.communicate(timeout=20)
    finally:
        process.kill()
    assert process.returncode == ending.FORCED
    assert "the test's process was told to end and had not after 0.5 s" in err
    assert f"exit code {ending.FORCED}" in err


@pytest.mark.parametrize(
    ("told", "ignored"), [(signal.SIGINT, False), (signal.SIGTERM, False), (signal.SIGTERM, True)],
    ids=["interrupted", "terminated", "in the background"],
)  # fmt: skip
def test_whoever_is_told_to_end_takes_the_server_along_that_it_started_for_a_question(
    tmp_path: Path, told: signal.Signals, ignored: bool
) -> None:
    home = Home.of(tmp_path / "i")
    home.ensure()
    server = EmbeddedServer(home, sync="relaxed")
    server.start()
    try:
        asyncio.run(asyncio.wait_for(_made(home), 60))
    finally:
        server.stop()
    process = subprocess.Popen(
        [sys.executable, "-m", "apportion.adapters.cli.main", "events", "tail", "-f", "--dir", str(home.root)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN if ignored else signal.SIG_DFL),
    )  # fmt: skip
    try:
        assert process.stdout is not None
        assert "log.opened" in process.stdout.readline()
        process.send_signal(told)
        _out, err = process.communicate(timeout=30)
    finally:
        process.kill()
        left = EmbeddedServer.running(home)
        if left is not None:
            left.stop()
    assert left is None, "the server stayed"
    assert process.returncode == 130
    assert "interrupted" in err
    assert "Traceback" not in err


async def _made(home: Home) -> None:
    async with await Bus.at_home(home, name="test", create=True) as bus:
        event = stated(0, OPERATOR, LogOpened(log_id="short", time_source="stated", operators=(OPERATOR,)), "opened")
        await bus.connection.write([publish_command(event.subject.encode(), b"", b"", event.body)])
        while not await bus.events.last_seq():
            await asyncio.sleep(0.02)

"""The agent ends when it is told to, within its bound, with or without a server; its runs go on or stop as asked."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

from apportion.adapters.agent import leaving
from apportion.adapters.agent.main import END_WITHIN_S
from apportion.adapters.bus.server import EmbeddedServer

InLab = Callable[[Callable[[Any], Any]], None]
SLACK_S = 2.0  # of this machine: for the process itself to be gone
STUBBORN = "import signal,time;signal.signal(signal.SIGTERM,signal.SIG_IGN);print('on',flush=True);time.sleep(60)"


async def ended(agent: subprocess.Popen[bytes], within_s: float) -> int:
    """Return the exit code; fail when it takes longer."""
    return await asyncio.to_thread(agent.wait, within_s + SLACK_S)


@pytest.mark.parametrize("turns", range(6))
def test_it_ends_though_there_is_news_at_that_very_moment(in_lab: InLab, turns: int) -> None:
    """What a batch of decisions does, some turns of the loop after ``stop``: it must not take the cancellation's place."""

    async def scenario(lab: Any) -> None:
        await lab.start_agent()
        agent, _bus, _memory, running = lab.inside[0]
        await asyncio.sleep(0.1)  # all loops wait
        agent.stop()
        for _ in range(turns):
            await asyncio.sleep(0)
        agent._changed.set()
        done, _ = await asyncio.wait([running], timeout=END_WITHIN_S)
        if not done:
            lab.inside.clear()  # or the end of this test waits for it as well
        assert done

    in_lab(scenario)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "frozen"])
def test_sigterm_without_a_server_leaves_the_runs_to_the_next_agent(in_lab: InLab, how: signal.Signals) -> None:
    async def scenario(lab: Any) -> None:
        agent = await lab.start_agent_process()
        gate = lab.home.root / "gate"
        stays = await lab.run_now("stays", ["sleep", "60"], 3)
        ends = await lab.run_now("ends", ["sh", "-c", f"while [ ! -e {gate} ]; do sleep 0.02; done; exit 7"], 0)
        server: EmbeddedServer = lab.server
        os.kill(server.pid, how)
        try:
            gate.touch()
            await lab.until(lambda: not lab.alive(ends), "a command to end while no server answers")
            outbox = lab.home.agents / "n1" / "outbox"
            await lab.until(lambda: list(outbox.glob("*.json")), "its report to lie on disk")
            agent.send_signal(signal.SIGTERM)
            assert await ended(agent, END_WITHIN_S) == 0
            assert lab.alive(stays)
            assert list(outbox.glob("*.json")), "what was not acknowledged is kept"
        finally:
            if how == signal.SIGSTOP:
                os.kill(server.pid, signal.SIGCONT)
            else:
                await asyncio.to_thread(server.kill)
                await asyncio.to_thread(server.start)
        await lab.start_agent_process()
        assert (await lab.until_report("ends", "run.finished")).exit_code == 7
        await lab.decide(lab.cancelled("stays", 2_000))
        assert (await lab.until_report("stays", "run.finished")).exit_code == -signal.SIGTERM
        assert await lab.reports("stays") == ["run.started", "run.finished"], "it was adopted, not started again"
        assert "Traceback" not in lab.agent_log()

    in_lab(scenario)


def test_it_waits_for_the_log_through_an_outage_and_hears_sigterm_there(nats_server: EmbeddedServer, run_async: Any) -> None:
    """A log that nobody has opened; then no server; then one again; then none for good."""
    from apportion.adapters.bus.local import Bus
    from tests.adapters.agent.conftest import Lab, until

    async def scenario() -> None:
        bus = await Bus.at_home(nats_server.home, name="test", create=True)
        lab = Lab(nats_server, bus)
        async with lab:
            agent = lab.spawn_agent()
            await until(lambda: "waiting for log.opened" in lab.agent_log(), "the agent to wait for the log")
            await asyncio.to_thread(nats_server.kill)
            await asyncio.sleep(1.0)
            assert agent.poll() is None, lab.agent_log()
            await asyncio.to_thread(nats_server.start)
            await asyncio.sleep(1.0)
            assert agent.poll() is None, lab.agent_log()
            await asyncio.to_thread(nats_server.kill)
            await asyncio.sleep(0.3)
            agent.send_signal(signal.SIGTERM)
            assert await ended(agent, END_WITHIN_S) == 0
            assert "nothing was started or stopped" in lab.agent_log()

    run_async(scenario())


def test_leaving_without_a_server_stops_the_runs_and_is_bounded(in_lab: InLab) -> None:
    async def scenario(lab: Any) -> None:
        agent = await lab.start_agent_process()
        pid = await lab.run_now("w", [sys.executable, "-c", STUBBORN], 0, grace_ms=1_000)
        await lab.until(lambda: lab.output("w") == "on\n", "the handler to be in place")
        await asyncio.to_thread(lab.server.kill)
        began = time.monotonic()
        agent.send_signal(signal.SIGUSR1)
        assert await ended(agent, 1.0 + leaving.KILL_S + 2 * leaving.REPORTS_S + END_WITHIN_S) == 0
        assert not lab.alive(pid)
        assert time.monotonic() - began >= 1.0, "its grace was given"
        assert "the runs are stopped; given up" in lab.agent_log()
        assert "next start" in lab.agent_log()
        await asyncio.to_thread(lab.server.start)

    in_lab(scenario)


def test_leaving_says_what_it_waits_for(in_lab: InLab) -> None:
    async def scenario(lab: Any) -> None:
        await lab.start_agent()
        pid = await lab.run_now("w", [sys.executable, "-c", STUBBORN], 0, grace_ms=int(1_000 * (leaving.TELL_EVERY_S + 1)))
        await lab.until(lambda: lab.output("w") == "on\n", "the handler to be in place")
        agent, _bus, _memory, running = lab.inside[0]
        said: list[str] = []
        await agent.leave("a test", said.append)
        assert not lab.alive(pid)
        assert said
        assert all("w#1" in line for line in said), said
        await asyncio.wait_for(running, END_WITHIN_S)
        assert (await lab.events("node.left"))[-1].reason == "a test"

    in_lab(scenario)


@pytest.mark.parametrize("delay_s", [0.0, 0.002, 0.005, 0.01, 0.03])
def test_what_is_placed_while_the_node_leaves_is_not_left_running(in_lab: InLab, delay_s: float) -> None:
    """Whether it was started before or not at all: when the node has left, nothing of it runs."""

    async def scenario(lab: Any) -> None:
        await lab.start_agent()
        agent, _bus, _memory, running = lab.inside[0]
        names = [f"w{number}" for number in range(6)]
        for name in names:
            await lab.submit(name, ["sleep", "60"], grace_ms=2_000)
        await lab.decide(*[lab.placed(name, number) for number, name in enumerate(names)])
        await asyncio.sleep(delay_s)
        began = time.monotonic()
        await agent.leave("a test")
        assert time.monotonic() - began < 10, "no grace had to pass"
        await asyncio.wait_for(running, END_WITHIN_S)
        started = [folder.started() for folder in map(lab.folder, names) if folder.exists]
        assert not [one for one in started if one is not None and lab.alive(one.pid)]
        assert len(await lab.events("node.left")) == 1

    in_lab(scenario)

"""The agent is killed, the log is away, decisions come twice: nothing is lost, nothing is done twice."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
from collections.abc import Callable
from typing import Any

import pytest

InLab = Callable[[Callable[[Any], Any]], None]


def test_running_processes_are_adopted_with_the_same_pid(in_lab: InLab) -> None:
    async def scenario(lab: Any) -> None:
        agent = await lab.start_agent_process()
        pid = await lab.run_now("w", ["sleep", "60"], 3)
        lab.kill(agent)
        assert lab.alive(pid)
        await lab.start_agent_process()

        async def listed() -> bool:
            joins = len(await lab.events("node.joined"))
            beats = await lab.events("node.heartbeat")
            return joins == 2 and bool(beats) and beats[-1].runs == ("w#1",)

        await lab.until(listed, "the run in a heartbeat of the second agent")
        assert lab.alive(pid)
        await lab.decide(lab.cancelled("w", 2_000))
        end = await lab.until_report("w", "run.finished")
        assert (end.outcome, end.exit_code) == ("stopped", -signal.SIGTERM)
        assert not lab.alive(pid)
        assert await lab.reports("w") == ["run.started", "run.finished"]

    in_lab(scenario)


def test_an_exit_code_is_found_though_the_agent_was_away(in_lab: InLab) -> None:
    async def scenario(lab: Any) -> None:
        agent = await lab.start_agent_process()
        gate = lab.home.root / "gate"
        pid = await lab.run_now("w", ["sh", "-c", f"while [ ! -e {gate} ]; do sleep 0.02; done; exit 42"], 0)
        lab.kill(agent)
        gate.touch()
        await lab.until(lambda: lab.folder("w").exit() is not None, "the command to end")
        assert not lab.alive(pid)
        await lab.start_agent_process()
        end = await lab.until_report("w", "run.finished")
        assert (end.outcome, end.exit_code) == ("failed", 42)

    in_lab(scenario)


def test_orders_given_while_the_agent_was_away_are_carried_out(in_lab: InLab) -> None:
    async def scenario(lab: Any) -> None:
        agent = await lab.start_agent_process()
        pid = await lab.run_now("stays", ["sleep", "60"], 0)
        gone = await lab.run_now("goes", ["sleep", "60"], 1)
        lab.kill(agent)
        await lab.submit("over", ["touch", str(lab.home.root / "never")])
        await lab.submit("late", ["true"])
        await lab.decide(lab.placed("over", 2), lab.placed("late", 3), lab.preempted("goes", 500))
        await lab.decide(lab.closed("over", "start_failed"))
        await lab.start_agent_process()
        assert (await lab.until_report("late", "run.finished")).outcome == "succeeded"
        assert (await lab.until_report("goes", "run.finished")).outcome == "stopped"
        assert not lab.alive(gone)
        assert lab.alive(pid)
        assert await lab.reports("over") == []
        assert not (lab.home.root / "never").exists(), "it was placed and closed in the past"

    in_lab(scenario)


def test_decisions_delivered_twice_start_nothing_twice(in_lab: InLab) -> None:
    async def scenario(lab: Any) -> None:
        agent = await lab.start_agent_process()
        mark = lab.home.root / "mark"
        await lab.submit("w", ["sh", "-c", f"echo x >> {mark}; sleep 0.3"])
        placed = lab.placed("w", 0)
        await lab.decide(placed)
        await lab.decide(placed)
        await lab.until_report("w", "run.finished")
        await lab.decide(placed, lab.cancelled("w", 100))
        lab.kill(agent)
        (lab.home.agents / "n1" / "follow.json").unlink()  # the next agent reads every decision again
        await lab.start_agent_process()
        await lab.submit("next", ["true"])
        await lab.decide(lab.placed("next", 0))
        await lab.until_report("next", "run.finished")
        assert mark.read_text() == "x\n"
        assert await lab.reports("w") == ["run.started", "run.finished"]

    in_lab(scenario)


def test_a_second_run_of_a_workload_is_another_run(in_lab: InLab) -> None:
    async def scenario(lab: Any) -> None:
        await lab.start_agent_process()
        await lab.submit("w", ["sh", "-c", "echo $APPORTION_RUN $APPORTION_RESUME_MS"])
        await lab.decide(lab.placed("w", 0))
        await lab.until_report("w", "run.finished", run=1)
        await lab.decide(lab.closed("w", "preempted"), lab.placed("w", 1, run=2, resume_from_ms=500))
        await lab.until_report("w", "run.finished", run=2)
        assert (lab.output("w", 1), lab.output("w", 2)) == ("1 0\n", "2 500\n")

    in_lab(scenario)


def test_an_agent_without_memory_reports_as_lost_what_it_cannot_know(in_lab: InLab) -> None:
    async def scenario(lab: Any) -> None:
        await lab.submit("w", ["touch", str(lab.home.root / "never")])
        await lab.decide(lab.placed("w", 0))
        agent = await lab.start_agent_process()
        lost = await lab.until_report("w", "run.lost")
        assert "no memory" in lost.detail
        lab.kill(agent)
        await lab.start_agent_process()
        await lab.submit("next", ["true"])
        await lab.decide(lab.placed("next", 0))
        await lab.until_report("next", "run.finished")
        assert not (lab.home.root / "never").exists()
        assert await lab.reports("w") == ["run.lost"]

    in_lab(scenario)


def test_a_killed_supervisor_loses_the_exit_status_but_not_the_process(in_lab: InLab) -> None:
    async def scenario(lab: Any) -> None:
        await lab.start_agent_process()
        stopped = await lab.run_now("stopped", ["sh", "-c", "sleep 60 & wait"], 0)
        ended = await lab.run_now("ended", ["sh", "-c", "sleep 2"], 1)
        for name in ("stopped", "ended"):
            os.kill(lab.folder(name).started().shim_pid, signal.SIGKILL)
        lost = await lab.until_report("ended", "run.lost")
        assert "exit status" in lost.detail
        assert not lab.alive(ended)
        assert lab.alive(stopped)
        await lab.decide(lab.cancelled("stopped", 200))
        end = await lab.until_report("stopped", "run.finished")
        assert end.outcome == "stopped"
        assert not lab.alive(stopped)

    in_lab(scenario)


def test_a_recycled_pid_is_not_ours(in_lab: InLab) -> None:
    """After a crash of node and supervisor, another process may carry the number: it is neither adopted nor killed."""

    async def scenario(lab: Any) -> None:
        agent = await lab.start_agent_process()
        pid = await lab.run_now("w", ["sleep", "60"], 0)
        bystander = await lab.run_now("bystander", ["sleep", "60"], 1)
        lab.kill(agent)
        folder = lab.folder("w")
        os.kill(folder.started().shim_pid, signal.SIGKILL)
        os.kill(pid, signal.SIGKILL)
        await lab.until(lambda: not folder.supervised(), "the supervisor to be gone")
        started = (folder.path / "started.json").read_text()
        (folder.path / "started.json").write_text(started.replace(f'"pid": {pid}', f'"pid": {bystander}'))
        await lab.decide(lab.cancelled("w", 100))
        await lab.start_agent_process()
        await lab.until_report("w", "run.lost")
        assert lab.alive(bystander)

    in_lab(scenario)


def test_the_grace_goes_on_while_the_agent_is_dead(in_lab: InLab) -> None:
    async def scenario(lab: Any) -> None:
        agent = await lab.start_agent_process()
        stubborn = (
            "import signal,time\n"
            "signal.signal(signal.SIGTERM,lambda *_:print('term',flush=True)); print('on',flush=True)\n"
            "time.sleep(60)"
        )
        pid = await lab.run_now("w", [sys.executable, "-c", stubborn], 0)
        await lab.until(lambda: lab.output("w") == "on\n", "the handler to be in place")
        await lab.decide(lab.cancelled("w", 700))
        await lab.until(lambda: lab.output("w") == "on\nterm\n", "SIGTERM to arrive")
        lab.kill(agent)
        await lab.until(lambda: not lab.alive(pid), "SIGKILL from the supervisor")
        await lab.start_agent_process()
        end = await lab.until_report("w", "run.finished")
        assert (end.outcome, end.exit_code) == ("stopped", -signal.SIGKILL)

    in_lab(scenario)


def test_reports_wait_for_a_server_that_is_away(in_lab: InLab) -> None:
    async def scenario(lab: Any) -> None:
        await lab.start_agent_process()
        gate = lab.home.root / "gate"
        await lab.run_now("w", ["sh", "-c", f"while [ ! -e {gate} ]; do sleep 0.02; done; exit 5"], 0)
        lab.server.kill()
        gate.touch()
        await lab.until(lambda: lab.folder("w").exit() is not None, "the command to end")
        outbox = lab.home.agents / "n1" / "outbox"
        await lab.until(lambda: len(list(outbox.glob("*.json"))) == 1, "the report to wait on disk")
        lab.server.start()
        end = await lab.until_report("w", "run.finished")
        assert end.exit_code == 5
        assert await lab.reports("w") == ["run.started", "run.finished"]
        await lab.until(lambda: not list(outbox.glob("*.json")), "the outbox to be empty")

    in_lab(scenario)


def test_a_report_left_by_a_dead_agent_is_sent_once(in_lab: InLab) -> None:
    async def scenario(lab: Any) -> None:
        agent = await lab.start_agent_process()
        await lab.run_now("w", ["sleep", "0.5"], 0)
        lab.server.kill()
        outbox = lab.home.agents / "n1" / "outbox"
        await lab.until(lambda: len(list(outbox.glob("*.json"))) == 1, "the report to wait on disk")
        lab.kill(agent)
        lab.server.start()
        await lab.start_agent_process()
        await lab.until_report("w", "run.finished")
        await lab.submit("next", ["true"])
        await lab.decide(lab.placed("next", 1))
        await lab.until_report("next", "run.finished")
        assert await lab.reports("w") == ["run.started", "run.finished"]

    in_lab(scenario)


def test_the_heartbeat_counter_grows_over_kills(in_lab: InLab) -> None:
    async def scenario(lab: Any) -> None:
        for expected in (1, 2, 3):
            agent = await lab.start_agent_process(beat_ms=100)

            async def beaten(expected: int = expected) -> bool:
                return len(await lab.events("node.heartbeat")) >= 2 * expected

            await lab.until(beaten, "two more heartbeats")
            lab.kill(agent)
        beats = [event.beat for event in await lab.events("node.heartbeat")]
        assert beats == sorted(set(beats))

    in_lab(scenario)


def test_a_replaced_log_stops_the_agent(in_lab: InLab) -> None:
    async def scenario(lab: Any) -> None:
        agent = await lab.start_agent_process()
        pid = await lab.run_now("w", ["sleep", "60"], 0)
        agent.terminate()
        agent.wait(10)
        follow = lab.home.agents / "n1" / "follow.json"
        for wrong in ({'"cursor":2': '"cursor":9'}, {'"mark":"': '"mark":"0'}):
            right = follow.read_text()
            for old, new in wrong.items():
                assert old in right
                follow.write_text(right.replace(old, new))
            refused = lab.spawn_agent()
            assert refused.wait(20) == 1
            assert "log was" in lab.agent_log()
            assert "replaced" in lab.agent_log()
            follow.write_text(right)
        assert lab.alive(pid), "what runs is not its to end"
        await lab.start_agent_process()

    in_lab(scenario)


def test_two_agents_of_one_node_do_not_work_at_once(in_lab: InLab) -> None:
    async def scenario(lab: Any) -> None:
        await lab.start_agent_process()
        second = lab.spawn_agent()
        assert second.wait(20) == 1
        assert "another agent" in lab.agent_log()

    in_lab(scenario)


@pytest.mark.parametrize("grace_ms", [300])
def test_leaving_stops_runs_within_their_grace_and_tells(in_lab: InLab, grace_ms: int) -> None:
    async def scenario(lab: Any) -> None:
        agent = await lab.start_agent_process()
        saves = "import signal,sys,time;signal.signal(signal.SIGTERM,lambda *_:sys.exit(75));print('on',flush=True);time.sleep(60)"
        pid = await lab.run_now("w", [sys.executable, "-c", saves], 0, grace_ms=grace_ms)
        await lab.until(lambda: lab.output("w") == "on\n", "the handler to be in place")
        agent.send_signal(signal.SIGUSR1)
        assert agent.wait(20) == 0
        assert not lab.alive(pid)
        assert await lab.reports("w") == ["run.started"], "that it was interrupted goes without saying"
        assert [event.node for event in await lab.events("node.left")] == ["n1"]

    in_lab(scenario)


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 8))])
def test_an_agent_killed_at_random_points_runs_each_command_once(in_lab: InLab, seed: int) -> None:
    async def scenario(lab: Any) -> None:
        dice = random.Random(seed)
        agent = await lab.start_agent_process(gpus=12)
        for number in range(12):
            mark = lab.home.root / f"mark-{number}"
            await lab.submit(
                f"w{number}", ["sh", "-c", f"echo x >> {mark}; sleep 0.{dice.randrange(9)}; exit {number}"]
            )
        for number in range(0, 12, 3):
            await lab.decide(*(lab.placed(f"w{one}", one) for one in range(number, number + 3)))
            await asyncio.sleep(dice.uniform(0.0, 0.5))
            lab.kill(agent)
            agent = lab.spawn_agent(gpus=12)
            await asyncio.sleep(dice.uniform(0.3, 1.5))
        for number in range(12):
            end = await lab.until_report(f"w{number}", "run.finished")
            assert (end.outcome, end.exit_code) == ("succeeded" if number == 0 else "failed", number)
            assert (lab.home.root / f"mark-{number}").read_text() == "x\n"
            assert await lab.reports(f"w{number}") == ["run.started", "run.finished"]

    in_lab(scenario)


def test_a_refused_join_ends_the_agent_with_the_reason(in_lab: InLab) -> None:
    async def scenario(lab: Any) -> None:
        agent = await lab.start_agent_process()
        await lab.decide(lab.rejected("node.joined", 99, "unknown_pool"))
        await lab.decide(lab.rejected("node.joined", 2, "unknown_pool", node="n2"))
        await lab.decide(lab.rejected("node.joined", 2, "unknown_pool"))
        assert await asyncio.to_thread(agent.wait, 20) == 1
        assert "does not take node 'n1' with 8 GPUs into pool 'local': there is no pool; `apportion status`" in lab.agent_log()

    in_lab(scenario)


def test_a_node_that_was_taken_out_falls_silent_and_does_not_join_by_itself(in_lab: InLab) -> None:
    async def scenario(lab: Any) -> None:
        await lab.start_agent(beat_ms=100)
        await lab.decide(lab.rejected("node.heartbeat", 1_000, "unknown_node"))
        await lab.submit("w", ["true"])

        async def silent() -> bool:
            before = len(await lab.events("node.heartbeat"))
            await asyncio.sleep(0.4)
            return len(await lab.events("node.heartbeat")) == before

        await lab.until(silent, "no more heartbeats")
        assert len(await lab.events("node.joined")) == 1
        await lab.decide(lab.placed("w", 0))
        assert await silent()
        assert await lab.reports("w") == [], "a node that is out starts nothing"

    in_lab(scenario)

"""Real processes under a real agent, driven by hand-written decisions."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

InLab = Callable[[Callable[[Any], Any]], None]
IGNORE_TERM = (
    "import signal,sys,time;signal.signal(signal.SIGTERM,signal.SIG_IGN);print('on',flush=True);time.sleep(60)"
)


def test_a_command_runs_with_its_gpus_and_its_exit_code_is_reported(in_lab: InLab) -> None:
    async def scenario(lab: Any) -> None:
        await lab.start_agent()
        script = (
            "import os,sys\n"
            "names=['CUDA_VISIBLE_DEVICES','APPORTION_WORKLOAD','APPORTION_RUN','APPORTION_NODE','APPORTION_NODES',"
            "'APPORTION_RANK','APPORTION_RESUME_MS','APPORTION_GRACE_MS','MINE']\n"
            "print([os.environ[n] for n in names], os.getcwd(), os.getpgid(0)==os.getpid()==os.getsid(0))\n"
            "print('oops',file=sys.stderr)\n"
            "sys.exit(7)"
        )
        env = {"MINE": "1", "CUDA_VISIBLE_DEVICES": "0,1,2,3,4,5,6,7", "APPORTION_RUN": "99"}
        await lab.submit("w", [sys.executable, "-c", script], env=env, cwd=str(lab.home.root))
        await lab.decide(lab.placed("w", 2, 5, resume_from_ms=1234))
        end = await lab.until_report("w", "run.finished")
        assert (end.outcome, end.exit_code, end.node) == ("failed", 7, "n1")
        said = ["2,5", "w", "1", "n1", "1", "0", "1234", "300", "1"]
        assert lab.output("w") == f"{said} {lab.home.root} True\n"
        assert (lab.folder("w").path / "stderr").read_text() == "oops\n"
        assert await lab.reports("w") == ["workload.submitted", "run.started", "run.finished"][1:]

    in_lab(scenario)


def test_ends_that_nobody_ordered(in_lab: InLab) -> None:
    ends = {
        "good": ("pass", "succeeded", 0),
        "bad": ("raise SystemExit(3)", "failed", 3),
        "killed": ("import os; os.kill(os.getpid(), 9)", "failed", -signal.SIGKILL),
        "crashed": ("import os; os.kill(os.getpid(), 11)", "failed", -signal.SIGSEGV),
    }

    async def scenario(lab: Any) -> None:
        await lab.start_agent()
        for name, (script, _outcome, _code) in ends.items():
            await lab.submit(name, [sys.executable, "-c", script])
        await lab.decide(*(lab.placed(name, gpu) for gpu, name in enumerate(ends)))
        for name, (_script, outcome, code) in ends.items():
            end = await lab.until_report(name, "run.finished")
            assert (end.outcome, end.exit_code) == (outcome, code), name

    in_lab(scenario)


def test_what_cannot_be_started_is_refused_with_the_reason(in_lab: InLab) -> None:
    wishes: dict[str, tuple[list[str], str, str]] = {
        "empty": ([], "", "no command"),
        "unknown": (["no-such-program-here"], "", "No such file or directory"),
        "nowhere": ([sys.executable], "/no/such/dir", "'/no/such/dir' does not exist"),
        "folder": (["/"], "", "Permission denied"),
    }

    async def scenario(lab: Any) -> None:
        await lab.start_agent()
        for name, (command, cwd, _says) in wishes.items():
            await lab.submit(name, command, cwd=cwd)
        await lab.decide(*(lab.placed(name, gpu) for gpu, name in enumerate(wishes)))
        for name, (_command, _cwd, says) in wishes.items():
            end = await lab.until_report(name, "run.finished")
            assert end.outcome == "refused"
            assert says in end.detail
            assert await lab.reports(name) == ["run.finished"]

    in_lab(scenario)


def test_gpus_this_node_does_not_have_are_refused(in_lab: InLab) -> None:
    async def scenario(lab: Any) -> None:
        await lab.start_agent(gpus=2)
        await lab.submit("w", ["true"])
        await lab.decide(lab.placed("w", 1, 2))
        end = await lab.until_report("w", "run.finished")
        assert end.outcome == "refused"
        assert "GPUs 0 to 1" in end.detail
        assert "[2]" in end.detail

    in_lab(scenario)


def test_cancel_sends_sigterm_and_a_clean_exit_within_the_grace_is_success(in_lab: InLab) -> None:
    async def scenario(lab: Any) -> None:
        await lab.start_agent()
        script = (
            "import signal,sys,time\n"
            "def save(*_): time.sleep(0.5); sys.exit(0)\n"
            "signal.signal(signal.SIGTERM,save); print('on',flush=True); time.sleep(60)"
        )
        await lab.run_now("clean", [sys.executable, "-c", script], 0)
        await lab.run_now("plain", ["sleep", "60"], 1)
        await lab.until(lambda: lab.output("clean") == "on\n", "the handler to be in place")
        await lab.decide(lab.cancelled("clean", 10_000), lab.preempted("plain", 10_000))
        clean, plain = await lab.until_report("clean", "run.finished"), await lab.until_report("plain", "run.finished")
        assert (clean.outcome, clean.exit_code) == ("succeeded", 0)
        assert (plain.outcome, plain.exit_code) == ("stopped", -signal.SIGTERM)

    in_lab(scenario)


def test_a_process_that_ignores_sigterm_is_killed_at_the_end_of_its_grace(in_lab: InLab) -> None:
    async def scenario(lab: Any) -> None:
        await lab.start_agent()
        pid = await lab.run_now("w", [sys.executable, "-c", IGNORE_TERM], 0)
        await lab.until(lambda: lab.output("w") == "on\n", "the handler to be in place")
        await lab.decide(lab.cancelled("w", 400))
        end = await lab.until_report("w", "run.finished")
        assert (end.outcome, end.exit_code) == ("stopped", -signal.SIGKILL)
        assert "SIGKILL" in end.detail
        assert not lab.alive(pid)
        assert lab.folder("w").exit().killed

    in_lab(scenario)


def test_processes_that_leave_the_session_end_with_the_run(in_lab: InLab) -> None:
    """As the launchers of distributed training do, and daemons that were left behind."""

    async def scenario(lab: Any) -> None:
        await lab.start_agent()
        child = "import os,signal,time;signal.signal(signal.SIGTERM,signal.SIG_IGN);print(os.getpid(),flush=True);time.sleep(60)"
        launcher = (
            "import subprocess,sys,time\n"
            f"for _ in range(3): subprocess.Popen([sys.executable,'-c',{child!r}],start_new_session=True)\n"
            "time.sleep({})"
        )
        await lab.run_now("stopped", [sys.executable, "-c", launcher.format(60)], 0)
        await lab.run_now("ended", [sys.executable, "-c", launcher.format(1)], 1)
        for name in ("stopped", "ended"):
            await lab.until(lambda name=name: lab.output(name).count("\n") == 3, "three workers")
        workers = [int(line) for name in ("stopped", "ended") for line in lab.output(name).split()]
        assert all(lab.alive(pid) for pid in workers[:3])
        await lab.decide(lab.cancelled("stopped", 200))
        assert (await lab.until_report("stopped", "run.finished")).outcome == "stopped"
        assert (await lab.until_report("ended", "run.finished")).outcome == "succeeded"
        assert not any(lab.alive(pid) for pid in workers)

    in_lab(scenario)


def test_progress_lines_become_checkpoints_before_the_end(in_lab: InLab) -> None:
    async def scenario(lab: Any) -> None:
        await lab.start_agent()
        script = (
            "import os,time\n"
            "def say(text):\n"
            "    with open(os.environ['APPORTION_PROGRESS'],'a') as f: f.write(text)\n"
            "say('1000\\nnonsense\\n-5\\n'); time.sleep(2.5); say('2000\\n99999999999999\\n3000')"
        )
        await lab.submit("w", [sys.executable, "-c", script])
        await lab.decide(lab.placed("w", 0))
        await lab.until_report("w", "run.finished")
        safe = [event.progress_ms for event in await lab.events("run.checkpointed")]
        assert safe == [1000, 2000]
        assert (await lab.reports("w"))[-1] == "run.finished"

    in_lab(scenario)


def test_thirty_runs_at_once(in_lab: InLab) -> None:
    async def scenario(lab: Any) -> None:
        await lab.start_agent(gpus=30)
        names = [f"w{number}" for number in range(30)]
        for number, name in enumerate(names):
            await lab.submit(name, ["sh", "-c", f"echo $CUDA_VISIBLE_DEVICES; exit {number}"])
        await lab.decide(*(lab.placed(name, number) for number, name in enumerate(names)))

        async def all_ended() -> bool:
            return len(await lab.events("run.finished")) >= 30

        await lab.until(all_ended, "thirty ends")
        ends = {event.workload: event for event in await lab.events("run.finished")}
        assert [ends[name].exit_code for name in names] == list(range(30))
        assert [lab.output(name) for name in names] == [f"{number}\n" for number in range(30)]
        assert len(await lab.events("run.started")) == 30

    in_lab(scenario)


def test_a_gpu_is_not_given_on_before_its_last_process_is_gone(in_lab: InLab) -> None:
    """The core may close a run it has lost patience with, and place another on its GPUs in the same batch."""

    async def scenario(lab: Any) -> None:
        await lab.start_agent()
        script = (
            "import os,signal,sys,time\n"
            "def last(*_): time.sleep(0.6); os.unlink('mark'); sys.exit(0)\n"
            "signal.signal(signal.SIGTERM,last); open('mark','w'); print('on',flush=True); time.sleep(60)"
        )
        cwd = str(lab.home.root)
        await lab.run_now("old", [sys.executable, "-c", script], 0, 1, cwd=cwd)
        await lab.until(lambda: lab.output("old") == "on\n", "the old run")
        await lab.submit("new", ["sh", "-c", "test ! -e mark"], cwd=cwd)
        await lab.decide(lab.closed("old", "lost"), lab.placed("new", 1, 2))
        end = await lab.until_report("new", "run.finished")
        assert end.outcome == "succeeded", "it ran beside the old one"
        assert await lab.reports("old") == ["run.started"], "the core knows already that it is over"

    in_lab(scenario)


def test_shared_gpus_run_side_by_side(in_lab: InLab) -> None:
    async def scenario(lab: Any) -> None:
        await lab.start_agent()
        for name in ("a", "b"):
            await lab.submit(name, ["sh", "-c", "echo $APPORTION_GPU_MILLI; sleep 60"])
            await lab.decide(lab.placed(name, 0, milli_each=500))
            await lab.until_report(name, "run.started")
        assert lab.output("a") == lab.output("b") == "500\n"

    in_lab(scenario)


def test_two_nodes_of_a_gang(in_lab: InLab) -> None:
    async def scenario(lab: Any) -> None:
        await lab.start_agent(node="n1")
        await lab.start_agent(node="n2")
        script = ["sh", "-c", "echo $APPORTION_RANK/$APPORTION_NODES $APPORTION_HOSTS $CUDA_VISIBLE_DEVICES"]
        await lab.submit("w", script, nodes=2, gpus_milli=4_000)
        await lab.decide(lab.placed("w", 3, 4, nodes=("n2", "n1")))

        async def both() -> bool:
            return len(await lab.events("run.finished")) == 2

        await lab.until(both, "two ends")
        assert lab.output("w", node="n2") == "0/2 n2,n1 3,4\n"
        assert lab.output("w", node="n1") == "1/2 n2,n1 3,4\n"
        assert {event.node for event in await lab.events("run.finished")} == {"n1", "n2"}

    in_lab(scenario)


def test_a_part_of_a_gang_that_is_done_is_accounted_for_until_the_run_is_closed(in_lab: InLab) -> None:
    async def scenario(lab: Any) -> None:
        await lab.start_agent(node="n1")
        await lab.submit("w", ["true"], nodes=2, gpus_milli=2_000)
        await lab.decide(lab.placed("w", 0, nodes=("n2", "n1")))
        await lab.until_report("w", "run.finished")

        async def beats(listed: tuple[str, ...]) -> bool:
            since = [event.beat for event in await lab.events("node.heartbeat") if event.runs == listed]
            return len(since) > 4

        await lab.until(lambda: beats(("w#1",)), "heartbeats that still list it")
        await lab.decide(lab.closed("w", "succeeded"))
        after = len(await lab.events("node.heartbeat"))

        async def unlisted() -> bool:
            return any(event.runs == () for event in (await lab.events("node.heartbeat"))[after:])

        await lab.until(unlisted, "a heartbeat without it")

    in_lab(scenario)


def test_a_run_for_another_node_is_not_ours(in_lab: InLab) -> None:
    async def scenario(lab: Any) -> None:
        await lab.start_agent()
        await lab.submit("theirs", ["true"])
        await lab.submit("ours", ["true"])
        await lab.decide(lab.placed("theirs", 0, nodes=("n9",)), lab.placed("ours", 0))
        await lab.until_report("ours", "run.finished")
        assert await lab.reports("theirs") == []
        assert not lab.folder("theirs").exists

    in_lab(scenario)


def test_heartbeats_list_what_lives_here(in_lab: InLab) -> None:
    async def scenario(lab: Any) -> None:
        await lab.start_agent()
        await lab.run_now("idle", ["sleep", "60"], 0, 1)
        await lab.run_now("busy", [sys.executable, "-c", "while True: pass"], 2, 3, 4)

        async def listed() -> bool:
            beats = await lab.events("node.heartbeat")
            return bool(beats) and set(beats[-1].runs) == {"idle#1", "busy#1"} and beats[-1].busy_milli > 0

        await lab.until(listed, "both in a heartbeat, one of them busy")
        beats = await lab.events("node.heartbeat")
        assert beats[-1].busy_milli <= 3_000, "sleeping is not computing"
        assert [beat.beat for beat in beats] == sorted({beat.beat for beat in beats})

    in_lab(scenario)


def test_an_end_of_a_command_is_an_end_also_with_a_full_pipe_of_children(in_lab: InLab) -> None:
    """A command whose own child was reaped by it, and one that daemonises: neither confuses the supervisor."""

    async def scenario(lab: Any) -> None:
        await lab.start_agent()
        twice = "import os,time\nif os.fork()==0:\n  os.setsid()\n  if os.fork()==0: time.sleep(60)\n  os._exit(0)\nos.wait()"
        await lab.submit("w", [sys.executable, "-c", twice])
        await lab.decide(lab.placed("w", 0))
        assert (await lab.until_report("w", "run.finished")).outcome == "succeeded"
        assert os.path.exists(lab.folder("w").path / "exit.json")

    in_lab(scenario)

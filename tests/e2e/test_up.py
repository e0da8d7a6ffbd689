"""A local cluster end to end: real server, core, agent and processes, each of them killed at some point."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from apportion.adapters.agent import leaving
from apportion.adapters.agent.logs import read_log
from apportion.adapters.agent.rundir import RunDir
from apportion.adapters.bus.local import Bus
from apportion.adapters.bus.server import EmbeddedServer
from apportion.adapters.local import opening
from apportion.adapters.local.children import ChildFailed
from apportion.adapters.local.up import AlreadyUp, UpOptions, up
from apportion.adapters.processes.home import Home
from apportion.core.decisions import Decision, RunClosed, RunPlaced, decode_batch
from apportion.core.envelope import subject_of
from apportion.core.events import EVENT_TYPES, Event, WorkloadCancelled, WorkloadSubmitted, encode_event
from tests.runs import end_all_runs

PATIENCE_S = 150.0  # a hang is a failure; a slow machine is not
STUBBORN = "import signal,time;signal.signal(signal.SIGTERM,signal.SIG_IGN);print('on',flush=True);time.sleep(100)"
Run = Callable[..., Any]


class Cluster:
    """``up`` inside this process; its children are processes of their own."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.said: list[str] = []
        self._stop = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.bus: Bus | None = None

    async def start(self, **options: Any) -> None:
        """Bring the cluster up and wait until it says that it is ready."""
        wanted = {"operator": "ada", "node": "n1", "beat_ms": 200, "components": ("core", "agent"), **options}
        self.said, self._stop = [], asyncio.Event()
        self._task = asyncio.create_task(up(self.home, UpOptions(**wanted), self.said.append, self._stop))
        await self.until(lambda: self._failed() or self.says("ready:"), "ready")
        if self.bus is None:
            self.bus = await Bus.at_home(self.home, name="test")

    async def stop(self) -> None:
        """Stop it as an interrupt would."""
        self._stop.set()
        task, self._task = self._task, None
        if task is not None and not task.done():
            await asyncio.wait_for(task, PATIENCE_S)
        if self.bus is not None:
            await self.bus.close()
            self.bus = None

    async def __aenter__(self) -> Cluster:
        return self

    async def __aexit__(self, *exc: object) -> None:
        if exc[0] is not None:
            print("\n".join(self.said))
            for path in sorted(self.home.logs.glob("*.log")):
                print(f"--- {path.name}\n{path.read_text()[-3_000:]}")
        try:
            await self.stop()
        finally:
            end_all_runs(self.home)

    def _failed(self) -> bool:
        if self._task is not None and self._task.done():
            self._task.result()
        return False

    def says(self, text: str) -> bool:
        return any(text in line for line in self.said)

    def pid(self, component: str) -> int:
        """Return the newest pid it has told for a component."""
        lines = [line.split() for line in self.said if line.startswith(component) and " pid " in line]
        return int(lines[-1][2])

    async def until(self, probe: Callable[[], Any], what: str) -> Any:
        """Wait until ``probe`` (plain or async) returns something true, and return it."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            answer = probe()
            if asyncio.iscoroutine(answer):
                answer = await answer
            if answer:
                return answer
            assert time.monotonic() < deadline, f"did not happen within {PATIENCE_S} s: {what}"
            await asyncio.sleep(0.05)

    async def publish(self, event: Event) -> int:
        assert self.bus is not None
        event_id = os.urandom(12).hex()
        subject = subject_of("ada", EVENT_TYPES[type(event)])
        return (await self.bus.publisher.publish(subject, encode_event(event, event_id=event_id), event_id)).seq

    async def submit(self, workload: str, *command: str, gpus: int = 1, **wishes: Any) -> None:
        await self.publish(
            WorkloadSubmitted(
                workload=workload,
                pools=("local",),
                gpus_milli=gpus * 1_000,
                command=command,
                **{"budget": "lab/llm/olmo", "grace_ms": 300, **wishes},
            )
        )

    async def decisions(self) -> list[tuple[int, Decision]]:
        """Return all decisions so far with the time of their cycle."""
        assert self.bus is not None
        last, after, found = await self.bus.decisions.last_seq(), 0, list[tuple[int, Decision]]()
        while after < last:
            for stored in await self.bus.decisions.read(after, 1_000):
                batch = decode_batch(stored.body)
                found += [(batch.time_ms, decision) for decision in batch.decisions]
                after = stored.seq
        return found

    async def decided(self, kind: type[Decision], workload: str) -> list[Any]:
        return [d for _, d in await self.decisions() if isinstance(d, kind) and getattr(d, "workload", "") == workload]

    async def until_closed(self, workload: str) -> RunClosed:
        closed: list[RunClosed] = await self.until(
            lambda: self.decided(RunClosed, workload), f"{workload} to be closed"
        )
        assert len(closed) == 1
        return closed[0]

    async def running_pid(self, workload: str, run: int = 1) -> int:
        folder = RunDir(self.home.agents / "n1", workload, run)
        started = await self.until(folder.started, f"{workload}#{run} to start")
        return int(started.pid)

    def output(self, workload: str) -> str:
        return "".join(chunk.text for chunk in read_log(self.home, workload) if chunk.stream == "stdout")


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] != b"Z"
    except FileNotFoundError:
        return False


def agent_of(home: Home) -> int:
    """Return the pid of the agent process of this directory, 0 when there is none."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = path.read_bytes().split(b"\0")
            if b"agent" in words and str(home.root).encode() in words:
                return int(path.parent.name)
    return 0


@pytest.fixture
def in_cluster(tmp_path: Path, run_async: Run) -> Callable[[Callable[[Cluster], Any]], None]:
    """Run ``async def scenario(cluster)`` with a cluster that is not started yet."""

    def run(scenario: Callable[[Cluster], Any]) -> None:
        async def inside() -> None:
            async with Cluster(Home.of(tmp_path / "home")) as cluster:
                await scenario(cluster)

        run_async(inside(), 200.0)

    return run


def test_submitted_work_runs_is_charged_and_can_be_stopped(in_cluster: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        await cluster.submit("fails", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES; sleep 0.3; exit 3", gpus=2)
        await cluster.submit("stubborn", sys.executable, "-c", STUBBORN)
        await cluster.submit("impossible", "no-such-program")

        fails = await cluster.until_closed("fails")
        assert (fails.outcome, fails.exit_code) == ("failed", 3)
        assert fails.charged_gpu_us + fails.unfunded_gpu_us == 2_000 * (fails.end_ms - fails.placed_ms)
        assert fails.charged_gpu_us >= 2_000 * 300, "its time is charged from placement to release"
        (placed,) = await cluster.decided(RunPlaced, "fails")
        assert cluster.output("fails") == ",".join(map(str, placed.pieces[0].gpus)) + "\n"

        pid = await cluster.running_pid("stubborn")
        await cluster.until(lambda: cluster.output("stubborn") == "on\n", "the handler to be in place")
        await cluster.publish(WorkloadCancelled(workload="stubborn"))
        stubborn = await cluster.until_closed("stubborn")
        assert (stubborn.outcome, stubborn.exit_code) == ("cancelled", -signal.SIGKILL)
        assert not alive(pid)

        impossible = await cluster.until(lambda: cluster.decided(RunClosed, "impossible"), "a refused start")
        assert impossible[0].outcome == "start_failed"
        assert not cluster.says("ended with"), cluster.said

    in_cluster(scenario)


def test_a_funded_request_takes_gpus_from_idle_cycles(in_cluster: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        await cluster.submit("filler", "sleep", "100", gpus=8, budget="lab/robotics", min_runtime_ms=0)
        pid = await cluster.running_pid("filler")
        await cluster.submit("urgent", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES", gpus=2, min_runtime_ms=1_000)
        urgent = await cluster.until_closed("urgent")
        assert (urgent.outcome, urgent.unfunded_gpu_us) == ("succeeded", 0)
        filler = (await cluster.decided(RunClosed, "filler"))[0]
        assert (filler.outcome, filler.requeued, filler.charged_gpu_us) == ("preempted", True, 0)
        assert not alive(pid)
        again = await cluster.running_pid("filler", run=2)
        assert again != pid

    in_cluster(scenario)


def test_thirty_runs_at_once_on_eight_gpus(in_cluster: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        names = [f"w{number}" for number in range(30)]
        for number, name in enumerate(names):
            await cluster.submit(name, "sh", "-c", f"exit {number % 5}")
        closed = {name: await cluster.until_closed(name) for name in names}
        assert [closed[name].exit_code for name in names] == [number % 5 for number in range(30)]
        placed = [decision.workload for _, decision in await cluster.decisions() if isinstance(decision, RunPlaced)]
        assert sorted(placed) == sorted(names), "each was placed once"

    in_cluster(scenario)


def test_killing_any_component_loses_nothing(in_cluster: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(components=("core", "projector", "agent"))
        gates = {}
        for name in ("core", "server", "agent", "projector"):
            gates[name] = cluster.home.root / f"gate-{name}"
            script = f"while [ ! -e {gates[name]} ]; do sleep 0.02; done; exit 9"
            await cluster.submit(name, "sh", "-c", script)
        pids = {name: await cluster.running_pid(name) for name in gates}
        for name in gates:
            victim = cluster.pid(name)
            os.kill(victim, signal.SIGKILL)
            gates[name].touch()  # its command ends while the component is away
            await cluster.until(lambda victim=victim, name=name: cluster.pid(name) != victim, f"{name} to be back")
            closed = await cluster.until_closed(name)
            assert (closed.outcome, closed.exit_code) == ("failed", 9)
            assert not alive(pids[name])
        await cluster.submit("after", "true")
        assert (await cluster.until_closed("after")).outcome == "succeeded"
        for name in gates:
            assert len(await cluster.decided(RunPlaced, name)) == 1, "it was placed once and ran once"

    in_cluster(scenario)


def test_runs_outlive_the_cluster_and_are_adopted(in_cluster: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start()
        await cluster.submit("stays", "sleep", "100")
        await cluster.submit("ends", "sh", "-c", "sleep 1; exit 4")
        pid, ending = await cluster.running_pid("stays"), await cluster.running_pid("ends")
        await cluster.stop()
        assert EmbeddedServer.running(cluster.home) is None
        assert alive(pid)
        await cluster.until(lambda: not alive(ending), "a command to end while nobody is there")
        await cluster.start()
        ends = await cluster.until_closed("ends")
        assert (ends.outcome, ends.exit_code) == ("failed", 4)
        await cluster.publish(WorkloadCancelled(workload="stays"))
        stays = await cluster.until_closed("stays")
        assert (stays.run, stays.outcome, stays.exit_code) == (1, "cancelled", -signal.SIGTERM)
        assert not alive(pid)

    in_cluster(scenario)


def test_stop_runs_stops_them_and_they_are_resumed_later(in_cluster: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(stop_runs=True)
        await cluster.submit("w", "sleep", "100")
        pid = await cluster.running_pid("w")
        await cluster.stop()
        assert not alive(pid)
        await cluster.start()
        again = await cluster.running_pid("w", run=2)
        assert alive(again)

    in_cluster(scenario)


def test_stop_runs_says_what_it_waits_for_and_ends_when_the_grace_is_over(in_cluster: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        grace_s = leaving.TELL_EVERY_S + 1
        await cluster.start(stop_runs=True)
        await cluster.submit("stubborn", sys.executable, "-c", STUBBORN, grace_ms=int(grace_s * 1_000))
        pid = await cluster.running_pid("stubborn")
        await cluster.until(lambda: cluster.output("stubborn") == "on\n", "the handler to be in place")
        began = time.monotonic()
        await cluster.stop()
        took_s = time.monotonic() - began
        assert not alive(pid)
        assert took_s >= grace_s
        told = [line for line in cluster.said if line.startswith("agent ") and "stubborn#1" in line]
        assert told, cluster.said
        assert not cluster.says("was killed")

    in_cluster(scenario)


def test_stop_runs_is_not_lost_on_an_agent_that_is_just_starting(in_cluster: Run) -> None:
    """It was killed and is being started again when the cluster is told to end: its runs are stopped all the same."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start(stop_runs=True)
        await cluster.submit("w", "sleep", "100")
        pid = await cluster.running_pid("w")
        victim = cluster.pid("agent")
        os.kill(victim, signal.SIGKILL)
        await cluster.until(lambda: agent_of(cluster.home) not in (0, victim), "another agent to be started")
        await cluster.stop()
        assert not alive(pid)

    in_cluster(scenario)


def test_killing_the_parent_ends_the_components_but_no_run(in_cluster: Run, tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        script = (
            "import asyncio,sys\n"
            "from apportion.adapters.processes.home import Home\n"
            "from apportion.adapters.local.up import UpOptions,up\n"
            "options=UpOptions(operator='ada',node='n1',beat_ms=200,components=('core','agent'))\n"
            "asyncio.run(up(Home.of(sys.argv[1]),options,lambda line: print(line,flush=True)))"
        )
        log = tmp_path / "up.txt"
        with log.open("wb") as out:
            parent = subprocess.Popen([sys.executable, "-c", script, str(cluster.home.root)], stdout=out, stderr=out)
        try:
            await cluster.until(lambda: "ready:" in log.read_text(), "ready")
            cluster.bus = await Bus.at_home(cluster.home, name="test")
            await cluster.submit("w", "sleep", "100")
            pid = await cluster.running_pid("w")
            cluster.said = log.read_text().splitlines()
            components = [cluster.pid("core"), cluster.pid("agent")]
        finally:
            parent.kill()
            parent.wait(10)
        await cluster.until(lambda: not any(alive(one) for one in components), "core and agent to follow their parent")
        assert alive(pid)
        await cluster.start()  # attaches to the server that is still there
        await cluster.publish(WorkloadCancelled(workload="w"))
        assert (await cluster.until_closed("w")).outcome == "cancelled"
        assert not alive(pid)

    in_cluster(scenario)


def test_a_second_up_is_told_about_the_first(in_cluster: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(components=())
        with pytest.raises(AlreadyUp, match=f"pid {os.getpid()}"):
            await up(cluster.home, UpOptions(components=()), cluster.said.append)

    in_cluster(scenario)


@pytest.mark.parametrize("done", range(8))
def test_a_set_up_that_was_cut_short_is_completed(start_nats: Run, run_async: Run, done: int) -> None:
    server = start_nats()

    async def scenario() -> None:
        async with await Bus.at_home(server.home, create=True) as bus:
            for event in opening.steps("ada", "local", "simulated")[:done]:
                body = encode_event(event, event_id=os.urandom(8).hex(), flow=opening.FLOW)
                await bus.publisher.publish(subject_of("ada", EVENT_TYPES[type(event)]), body, "")
            first = await opening.complete(bus, "ada", "local", "simulated")
            again = await opening.complete(bus, "ada", "local", "simulated")
            assert (first.published, again.published) == (8 - done, 0)
            assert first.log_id == again.log_id
            assert await bus.events.last_seq() == 8
            with pytest.raises(opening.OtherLog, match="pool 'local', not 'h100'"):
                await opening.complete(bus, "ada", "h100", "simulated")
            with pytest.raises(opening.OtherLog, match="'eve' does not operate"):
                await opening.complete(bus, "eve", "local", "simulated")

    run_async(scenario())


def test_a_component_that_never_comes_up_is_given_up_with_its_words(in_cluster: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        with pytest.raises(
            ChildFailed, match=r"nonsense ended with exit code 2 5 times(.|\n)*invalid choice: 'nonsense'"
        ):
            await cluster.start(components=("nonsense",))
        assert EmbeddedServer.running(cluster.home) is None

    in_cluster(scenario)

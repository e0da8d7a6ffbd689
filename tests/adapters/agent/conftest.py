"""A log, hand-written decisions, and a real agent with real processes: what the agent's tests share."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from apportion.adapters.agent.agent import Agent, AgentSettings
from apportion.adapters.agent.gpus import SimulatedGpus
from apportion.adapters.agent.memory import Memory
from apportion.adapters.agent.rundir import RunDir
from apportion.adapters.bus.local import Bus
from apportion.adapters.bus.server import EmbeddedServer
from apportion.adapters.processes.home import Home
from apportion.core.decisions import (
    Certificate,
    CycleBatch,
    Decision,
    Piece,
    Rejected,
    RunCancelled,
    RunClosed,
    RunPlaced,
    RunPreempted,
    WorkloadAdmitted,
    encode_batch,
)
from apportion.core.envelope import decode_envelope, split_subject, subject_of
from apportion.core.events import EVENT_TYPES, Event, LogOpened, WorkloadSubmitted, decode_data, encode_event
from tests.runs import end_all_runs

NODE = "n1"
PATIENCE_S = 20.0
PYTHON = sys.executable


class Lab:
    """One server, one log. Decisions are written by the test in the core's place; time is a counter."""

    def __init__(self, server: EmbeddedServer, bus: Bus) -> None:
        self.server = server
        self.home: Home = server.home
        self.bus = bus
        self.time_ms = 1_000_000
        self.cycle = 0
        self.agents: list[subprocess.Popen[bytes]] = []
        self.inside: list[tuple[Agent, Bus, Memory, asyncio.Task[None]]] = []

    @classmethod
    async def open(cls, server: EmbeddedServer) -> Lab:
        lab = cls(server, await Bus.at_home(server.home, name="test", create=True))
        if await lab.bus.events.last_seq() == 0:
            await lab.event("op", LogOpened(log_id="log-1", time_source="stored", operators=("op",)))
        return lab

    async def __aenter__(self) -> Lab:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        for agent, bus, memory, task in self.inside:
            agent.stop()
            await asyncio.gather(task, return_exceptions=True)
            await bus.close()
            memory.close()
        for process in self.agents:
            if process.poll() is None:
                process.kill()
            process.wait(10)
        end_all_runs(self.home)
        await self.bus.close()

    # -- the log -------------------------------------------------------------------------------------------------------

    async def event(self, principal: str, event: Event) -> int:
        """Publish one event; return its sequence."""
        event_id = os.urandom(8).hex()
        subject = subject_of(principal, EVENT_TYPES[type(event)])
        return (await self.bus.publisher.publish(subject, encode_event(event, event_id=event_id), event_id)).seq

    async def decide(self, *decisions: Decision, after_ms: int = 10) -> int:
        """Write one batch in the core's place; return its sequence."""
        self.time_ms += after_ms
        self.cycle += 1
        batch = CycleBatch(
            core=1,
            cycle=self.cycle,
            seq=await self.bus.events.last_seq(),
            time_ms=self.time_ms,
            chain="0",
            digest="0",
            decisions=decisions,  # type: ignore[arg-type]  # any of them
        )
        last = await self.bus.decisions.last_seq()
        return await self.bus.decisions.commit(encode_batch(batch), batch.seq, last)

    async def events(self, event_type: str = "") -> list[Event]:
        """Return the payloads of all events, or of one type, in order."""
        last, after, found = await self.bus.events.last_seq(), 0, []
        while after < last:
            for record in await self.bus.events.read(after, 1_000):
                after = record.seq
                _principal, name = split_subject(record.subject) or ("", "")
                if not event_type or name == event_type:
                    envelope = decode_envelope(record.body)
                    found.append(decode_data(envelope.type, envelope.v, envelope.data))
        return found

    async def reports(self, workload: str) -> list[str]:
        """Return the types of the reports about a workload, in order."""
        return [EVENT_TYPES[type(event)] for event in await self.events() if is_report(event, workload)]

    async def until_report(self, workload: str, event_type: str, run: int = 1) -> Any:
        """Wait for a report and return it."""
        return await until(lambda: self._report(workload, event_type, run), f"{event_type} of {workload}#{run}")

    async def _report(self, workload: str, event_type: str, run: int) -> Any:
        for event in await self.events(event_type):
            if is_report(event, workload) and event.run == run:  # type: ignore[attr-defined]  # reports have it
                return event
        return None

    # -- what a core would do ------------------------------------------------------------------------------------------

    async def submit(self, workload: str, command: list[str], **wishes: Any) -> int:
        """Publish a submission and admit it; return its sequence."""
        seq = await self.event(
            "ada",
            WorkloadSubmitted(
                workload=workload,
                budget="lab/x",
                pools=("local",),
                command=tuple(command),
                **{"grace_ms": 300, "gpus_milli": 1_000, **wishes},
            ),
        )
        await self.decide(
            WorkloadAdmitted(
                workload=workload,
                event_seq=seq,
                budget="lab/x",
                pool="local",
                nodes=1,
                milli_per_node=1_000,
                min_runtime_ms=0,
            )
        )
        return seq

    def placed(
        self, workload: str, *gpus: int, run: int = 1, nodes: tuple[str, ...] = (NODE,), **more: Any
    ) -> RunPlaced:
        """Return the decision that places a run."""
        return RunPlaced(
            workload=workload,
            run=run,
            budget="lab/x",
            pool="local",
            gpus_milli=1_000 * len(gpus) * len(nodes),
            pieces=tuple(Piece(node, gpus, more.pop("milli_each", 1_000)) for node in nodes),
            payer="budget",
            why="within_allowance",
            protected_until_ms=0,
            reserved_gpu_us=0,
            **more,
        )

    async def run_now(self, workload: str, command: list[str], *gpus: int, **wishes: Any) -> int:
        """Submit, admit and place; return the pid of the command once it is reported."""
        await self.submit(workload, command, **wishes)
        await self.decide(self.placed(workload, *(gpus or (0,))))
        return int((await self.until_report(workload, "run.started")).pid)

    def cancelled(self, workload: str, grace_ms: int, run: int = 1) -> RunCancelled:
        """Return the decision that stops a run; ``grace_ms`` counts from the next batch."""
        return RunCancelled(workload=workload, run=run, event_seq=1, grace_until_ms=self.time_ms + 10 + grace_ms)

    def preempted(self, workload: str, grace_ms: int, run: int = 1) -> RunPreempted:
        """Return the decision that takes a run's GPUs away."""
        zero = dict.fromkeys(Certificate.__struct_fields__, 0)
        words = {"beneficiary": "b", "beneficiary_budget": "lab/b", "victim_budget": "lab/x", "policy": "fair"}
        certificate = msgspec.convert({**zero, **words, "numbers": {}}, Certificate)
        return RunPreempted(
            workload=workload, run=run, grace_until_ms=self.time_ms + 10 + grace_ms, certificate=certificate
        )

    def rejected(self, event_type: str, event_seq: int, reason: str, node: str = NODE) -> Rejected:
        """Return the decision that refuses an event of an agent."""
        return Rejected(event_seq=event_seq, event_type=event_type, principal=f"agent-{node}", reason=reason)

    def closed(self, workload: str, outcome: str, run: int = 1) -> RunClosed:
        """Return the decision that closes a run."""
        return RunClosed(
            workload=workload,
            run=run,
            budget="lab/x",
            pool="local",
            outcome=outcome,
            placed_ms=0,
            end_ms=0,
            gpus_milli=1_000,
            charged_gpu_us=0,
            unfunded_gpu_us=0,
        )

    # -- agents --------------------------------------------------------------------------------------------------------

    def spawn_agent(self, node: str = NODE, gpus: int = 8, beat_ms: int = 200) -> subprocess.Popen[bytes]:
        """Start an agent as a process."""
        self.home.logs.mkdir(parents=True, exist_ok=True)
        log = (self.home.logs / f"agent-{node}.log").open("ab")
        arguments = ["--dir", str(self.home.root), "--node", node, "--gpus", str(gpus), "--beat-ms", str(beat_ms)]
        agent = subprocess.Popen(
            [PYTHON, "-m", "apportion.adapters.agent.main", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
        log.close()
        self.agents.append(agent)
        return agent

    async def joined(self, count: int = 1) -> None:
        """Wait until nodes have joined so many times."""

        async def enough() -> bool:
            return len(await self.events("node.joined")) >= count

        await until(enough, f"{count} node.joined\n{self.agent_log()}")

    async def start_agent(self, node: str = NODE, gpus: int = 8, beat_ms: int = 200) -> None:
        """Start an agent inside this process and wait until it has joined: for tests that do not kill it."""
        bus = await Bus.at_home(self.home, name=f"agent {node}")
        settings = AgentSettings(node=node, pool="local", principal=f"agent-{node}", beat_ms=beat_ms)
        memory = Memory(self.home.agents / node, node, settings.principal)
        agent = Agent(settings, SimulatedGpus(gpus), bus, memory)
        joined = asyncio.Event()
        task = asyncio.create_task(agent.run(joined.set))
        self.inside.append((agent, bus, memory, task))
        waiting = asyncio.create_task(joined.wait())
        await asyncio.wait([task, waiting], timeout=PATIENCE_S, return_when=asyncio.FIRST_COMPLETED)
        assert joined.is_set(), task

    async def start_agent_process(self, **options: Any) -> subprocess.Popen[bytes]:
        """Start an agent as a process and wait until it has joined."""
        before = len(await self.events("node.joined"))
        agent = self.spawn_agent(**options)
        await self.joined(before + 1)
        return agent

    def folder(self, workload: str, run: int = 1, node: str = NODE) -> RunDir:
        """Return a run's folder."""
        return RunDir(self.home.agents / node, workload, run)

    def output(self, workload: str, run: int = 1, node: str = NODE) -> str:
        """Return what a run wrote on its standard output so far."""
        try:
            return (self.folder(workload, run, node).path / "stdout").read_text()
        except FileNotFoundError:
            return ""

    async def until(self, probe: Callable[[], Any], what: str) -> Any:
        """Wait until ``probe`` (plain or async) returns something true, and return it."""
        return await until(probe, what)

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        """End a process of ours as a crash would."""
        process.send_signal(signal.SIGKILL)
        process.wait(10)

    def alive(self, pid: int) -> bool:
        """Tell whether a process runs (a zombie does not)."""
        try:
            return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] != b"Z"
        except FileNotFoundError:
            return False

    def agent_log(self, node: str = NODE) -> str:
        """Return the agent's own log."""
        path = self.home.logs / f"agent-{node}.log"
        return path.read_text() if path.exists() else ""


def is_report(event: Event, workload: str) -> bool:
    return EVENT_TYPES[type(event)].startswith("run.") and getattr(event, "workload", "") == workload


async def until(probe: Callable[[], Any], what: str, patience_s: float = PATIENCE_S) -> Any:
    """Wait until ``probe`` (plain or async) returns something true, and return it; fail after ``patience_s``."""
    deadline = time.monotonic() + patience_s
    while True:
        answer = probe()
        if asyncio.iscoroutine(answer):
            answer = await answer
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise AssertionError(f"did not happen within {patience_s} s: {what}")
        await asyncio.sleep(0.03)


@pytest.fixture
def in_lab(nats_server: EmbeddedServer, run_async: Callable[..., Any]) -> Callable[[Callable[[Lab], Any]], None]:
    """Run ``async def scenario(lab)`` against a fresh server."""

    def run(scenario: Callable[[Lab], Any]) -> None:
        async def inside() -> None:
            async with await Lab.open(nats_server) as lab:
                try:
                    await scenario(lab)
                except BaseException:
                    print(lab.agent_log())
                    raise

        run_async(inside())

    return run

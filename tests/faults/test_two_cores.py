"""Two cores that both believe to lead, acknowledgements that get lost, and a standby that must take over.

Safety: every tick has exactly one batch, in order, and every core that read the log has the same state. Liveness: whoever
is left goes on by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from apportion.adapters.bus.decisions import NatsDecisionLog
from apportion.adapters.bus.local import Bus
from apportion.adapters.bus.server import EmbeddedServer
from apportion.adapters.service import SchedulerService
from apportion.core.decisions import RunPlaced, decode_batch
from apportion.core.engine import Core
from apportion.core.errors import ApportionError, Fenced

CORE = """
import asyncio, sys
from apportion.adapters.processes.home import Home
from apportion.adapters.service import serve
asyncio.run(serve(Home.of(sys.argv[1]), url=sys.argv[2], standby=sys.argv[3] == "standby", takeover_after_s=0.3))
"""


class LossyDecisions(NatsDecisionLog):
    """Loses what a network may lose: the answer to a batch that was stored, or the batch itself."""

    def __init__(self, connection: Any, seed: int) -> None:
        super().__init__(connection)
        self._dice = random.Random(seed)
        self.lost_answers = self.lost_batches = self.sent = 0

    async def _send(self, parts: list[bytes], input_seq: int, expected_last_seq: int) -> Any:
        fate = self._dice.random()
        if fate < 0.2:
            self.lost_batches += 1
            raise TimeoutError("the batch was lost")
        self.sent += 1
        answer = await super()._send(parts, input_seq, expected_last_seq)
        if fate < 0.5:
            self.lost_answers += 1
            raise TimeoutError("the answer was lost")
        return answer


async def audited(bus: Bus) -> tuple[Core, list[str]]:
    """Derive everything again; return the core and what was placed. Any difference, gap or repeat fails."""
    core, placed = Core.new(), []
    batches: list[Any] = []
    while more := await bus.decisions.read(batches[-1].seq if batches else 0, 1_000):
        batches += more
    waiting = batches[::-1]
    position = 0
    while records := await bus.events.read(position, 5_000):
        position = records[-1].seq
        for record in records:
            if core.tick_pending:  # written while the cores were being stopped, and left to the next start
                assert not waiting
                assert record.subject == "ap.ev.core.clock.tick"
            elif core.fold(record) and waiting:
                batch = waiting.pop()
                assert batch.input_seq == record.seq
                core.verify(batch.body)
                placed += [one.workload for one in decode_batch(batch.body).decisions if isinstance(one, RunPlaced)]
    assert not waiting
    return core, placed


@contextlib.asynccontextmanager
async def many_buses(url: str, count: int) -> AsyncIterator[list[Bus]]:
    async with contextlib.AsyncExitStack() as stack:
        first = await stack.enter_async_context(await Bus.open(url, create=True))
        yield [first, *[await stack.enter_async_context(await Bus.open(url)) for _number in range(count - 1)]]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_two_leaders_with_lost_answers_write_one_history(
    nats_server: EmbeddedServer, run_async: Any, script: Any, seed: int
) -> None:
    async def scenario() -> None:
        async with many_buses(nats_server.url, 3) as (client, *owns):
            logs = [LossyDecisions(own.connection, seed * 10 + number) for number, own in enumerate(owns)]
            services = [
                SchedulerService(own.events, log, own.publisher) for own, log in zip(owns, logs, strict=True)
            ]
            running = [asyncio.create_task(service.run()) for service in services]
            for event in script.opening(nodes=10):
                await client.publisher.publish(*event)
            names = [f"w{number}" for number in range(60)]
            for name in names:
                await client.publisher.send(*script.submission(name))
                await asyncio.sleep(0.01)
            await client.publisher.flush()
            async with asyncio.timeout(30):
                while True:
                    last_seq = await client.events.last_seq()
                    if not any(one.core.dirty or one.core.tick_pending or one.core.seq < last_seq for one in services):
                        break
                    for task in running:
                        if task.done():
                            task.result()
                    await asyncio.sleep(0.01)
            for service in services:
                service.stop()
            await asyncio.wait_for(asyncio.gather(*running), 30)

            core, placed = await audited(client)
            assert placed == names
            assert {one.core.digest() for one in services if one.core.cycle == core.cycle} <= {core.digest()}
            assert any(one.core.cycle == core.cycle for one in services)
            assert sum(log.lost_answers for log in logs) > 0  # else nothing was tried
            assert sum(log.lost_batches for log in logs) > 0

    run_async(scenario(), timeout_s=90)


def test_a_core_that_would_decide_otherwise_is_stopped_by_the_fence(
    nats_server: EmbeddedServer, run_async: Any, stated_script: Any
) -> None:
    """Two leaders of different make: the second at every place is stopped, and writes nothing."""

    async def scenario() -> None:
        async with many_buses(nats_server.url, 3) as (client, good, bad):
            for event in stated_script.opening():
                await client.publisher.publish(*event)
            service = SchedulerService(good.events, good.decisions, good.publisher)
            other = SchedulerService(bad.events, _Altering(bad.connection), bad.publisher)
            running = [asyncio.create_task(one.run()) for one in (service, other)]
            await service.ready.wait()
            await other.ready.wait()
            async with asyncio.timeout(20):
                for number in range(20):
                    await client.publisher.publish(*stated_script.submission(f"w{number}"))
                    with contextlib.suppress(ApportionError):
                        await service.tick(1_060_000 + number)
                while not any(task.done() for task in running):
                    await asyncio.sleep(0.01)
            service.stop()
            other.stop()
            failures = await asyncio.gather(*running, return_exceptions=True)
            assert len([failure for failure in failures if isinstance(failure, Fenced)]) == 1
            assert failures.count(None) == 1
            batches = await client.decisions.read(0, 1_000)
            ends = {batch.body.endswith(b" ") for batch in batches}
            assert len(ends) == 1  # one author from beginning to end

    run_async(scenario())


class _Altering(NatsDecisionLog):
    """The log of a core whose bytes differ from everybody else's."""

    async def commit(self, body: bytes, input_seq: int, expected_last_seq: int) -> int:
        return await super().commit(body + b" ", input_seq, expected_last_seq)


def test_standby_takes_over_from_a_killed_leader_and_back(
    nats_server: EmbeddedServer, run_async: Any, script: Any, tmp_path: Path
) -> None:
    """Real processes: leader and standby, SIGKILL to whoever leads, a new standby in its place, twice."""

    def start(number: int, role: str) -> subprocess.Popen[bytes]:
        with (tmp_path / f"core-{number}.log").open("wb") as log:
            return subprocess.Popen(
                [sys.executable, "-c", CORE, str(tmp_path / f"home-{number}"), nats_server.url, role], stdout=log, stderr=log
            )

    async def scenario() -> None:
        async with await Bus.open(nats_server.url, create=True) as client:
            for event in script.opening(nodes=10):
                await client.publisher.publish(*event)
            names: list[str] = []
            placed: list[str] = []
            tail = client.decisions.tail(0)

            async def submit_and_see(count: int) -> None:
                for _number in range(count):
                    names.append(f"w{len(names)}")
                    await client.publisher.publish(*script.submission(names[-1]))
                async with asyncio.timeout(40):
                    while len(placed) < len(names):
                        for batch in await tail.take(100, 1.0):
                            placed.extend(
                                one.workload for one in decode_batch(batch.body).decisions if isinstance(one, RunPlaced)
                            )

            await submit_and_see(3)
            for round_number in range(2):
                cores.append(start(len(cores), "standby"))
                await submit_and_see(4)
                victim = cores[round_number]
                victim.send_signal(signal.SIGKILL)
                victim.wait(10)
                await submit_and_see(4)
            await tail.close()

            core, decided = await audited(client)
            assert decided == placed == names
            assert core.cycle == len(await client.decisions.read(0, 10_000))

    cores = [start(0, "leader")]
    try:
        run_async(scenario(), timeout_s=150)
    finally:
        for process in cores:
            process.send_signal(signal.SIGTERM)
        for process in cores:
            process.wait(30)
    assert cores[-1].returncode == 0, (tmp_path / f"core-{len(cores) - 1}.log").read_text()

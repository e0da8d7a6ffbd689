"""A real nats-server killed with SIGKILL in the middle of publishing, reading and committing: nothing lost, nothing twice."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from apportion.adapters.bus.decisions import PART_BYTES
from apportion.adapters.bus.local import Bus
from apportion.adapters.bus.server import EmbeddedServer
from apportion.adapters.service import SchedulerService, scheduler
from apportion.core.decisions import RunPlaced, decode_batch
from apportion.core.engine import Core

SUBJECT = "ap.ev.a.node.heartbeat"
ROUNDS = 3


async def killing(server: EmbeddedServer, seed: int, rounds: int = ROUNDS) -> None:
    """Kill and start the server a few times, at moments a seeded dice chooses."""
    dice = random.Random(seed)
    for _round in range(rounds):
        await asyncio.sleep(dice.uniform(0.05, 0.3))
        await asyncio.to_thread(server.kill)
        await asyncio.sleep(dice.choice([0.0, 0.05]))
        await asyncio.to_thread(server.start)


@pytest.mark.parametrize("bulk", [True, False], ids=["bulk", "plain"])
def test_publisher_and_live_reader_survive(nats_server: EmbeddedServer, run_async: Any, bulk: bool) -> None:
    async def scenario() -> None:
        url = nats_server.url
        async with await Bus.open(url, create=True, window=300) as writer, await Bus.open(url, bulk=bulk) as reader:
            seen: list[tuple[int, bytes]] = []
            done = asyncio.Event()

            async def read() -> None:
                tail = reader.events.tail(0)
                while not (done.is_set() and len(seen) >= await reader.events.last_seq()):
                    seen.extend((record.seq, record.body) for record in await tail.take(1_000, 0.2))
                await tail.close()

            reading = asyncio.create_task(read())
            kills = asyncio.create_task(killing(nats_server, seed=1))
            futures = []
            while not kills.done() or len(futures) < 2_000:
                futures.append(await writer.publisher.send(SUBJECT, b"%d" % len(futures), f"id{len(futures)}"))
                if len(futures) % 50 == 0:
                    await asyncio.sleep(0.002)
            await kills
            await writer.publisher.flush()
            done.set()
            await asyncio.wait_for(reading, 30)

            expected = [(number + 1, b"%d" % number) for number in range(len(futures))]
            assert [(future.result().seq, b"%d" % number) for number, future in enumerate(futures)] == expected
            assert seen == expected

    run_async(scenario())


def test_replay_survives(nats_server: EmbeddedServer, run_async: Any) -> None:
    async def scenario() -> None:
        async with await Bus.open(nats_server.url, create=True) as bus:
            count = 30_000
            await bus.publisher.send_many((SUBJECT, b"%d" % number, f"id{number}") for number in range(count))
            await bus.publisher.flush()
            kills = asyncio.create_task(killing(nats_server, seed=2))
            position, rounds = 0, 0
            while not kills.done() or position < count:
                if position >= count:
                    position, rounds = 0, rounds + 1
                records = await bus.events.read(position, 700)
                expected = range(position, position + len(records))
                assert [record.body for record in records] == [b"%d" % number for number in expected]
                position += len(records)
                await asyncio.sleep(0)
            await kills

    run_async(scenario(), timeout_s=120)


def test_commits_survive(nats_server: EmbeddedServer, run_async: Any) -> None:
    """Batches of one message and of several parts; a commit that was cut off is there once, or is made once."""

    async def scenario() -> None:
        async with await Bus.open(nats_server.url, create=True) as bus:
            kills = asyncio.create_task(killing(nats_server, seed=3))
            dice = random.Random(4)
            bodies: list[bytes] = []
            seq = 0
            while not kills.done() or len(bodies) < 100:
                size = dice.choice([10, 300, 300, 2_000, 2_000, 2_000, PART_BYTES + 7])
                bodies.append(b"%d:" % len(bodies) + b"x" * size)
                seq = await bus.decisions.commit(bodies[-1], len(bodies), seq)
            await kills

            stored: list[Any] = []
            while more := await bus.decisions.read(stored[-1].seq if stored else 0, 100):
                stored += more
            assert [batch.body for batch in stored] == bodies
            assert stored[-1].seq == seq == await bus.decisions.last_seq()

    run_async(scenario())


def test_scheduler_survives_and_everything_is_decided_once(nats_server: EmbeddedServer, run_async: Any, script: Any) -> None:
    async def scenario() -> None:
        async with await Bus.open(nats_server.url, create=True) as client, await Bus.open(nats_server.url) as own:
            service = SchedulerService(own.events, own.decisions, own.publisher)
            running = asyncio.create_task(service.run())
            for event in script.opening(nodes=40):
                await client.publisher.publish(*event)
            kills = asyncio.create_task(killing(nats_server, seed=5))
            names = []
            while not kills.done() or len(names) < 40:
                names.append(f"w{len(names)}")
                await client.publisher.send(*script.submission(names[-1]))
                await asyncio.sleep(0.01)
            await kills
            await client.publisher.flush()
            async with asyncio.timeout(30):
                while service.core.dirty or service.core.seq < await client.events.last_seq():
                    await asyncio.sleep(0.01)
            service.stop()
            await asyncio.wait_for(running, 30)

            core, placed = Core.new(), []
            batches = await client.decisions.read(0, 10_000)
            waiting = batches[::-1]
            for record in await client.events.read(0, 100_000):
                if core.fold(record):
                    batch = waiting.pop()
                    assert batch.input_seq == record.seq
                    core.verify(batch.body)
                    placed += [one.workload for one in decode_batch(batch.body).decisions if isinstance(one, RunPlaced)]
            assert not waiting
            assert placed == names
            assert core.digest() == service.core.digest()

    run_async(scenario(), timeout_s=120)


@pytest.mark.parametrize("moment", ["catching up", "following"])
def test_scheduler_stops_when_told_though_the_server_is_away(
    nats_server: EmbeddedServer, run_async: Any, script: Any, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    monkeypatch.setattr(scheduler, "STOP_PATIENCE_S", 0.3)

    async def scenario() -> None:
        async with await Bus.open(nats_server.url, create=True) as client, await Bus.open(nats_server.url) as own:
            for event in script.opening():
                await client.publisher.publish(*event)
            service = SchedulerService(own.events, own.decisions, own.publisher)
            if moment == "catching up":
                await asyncio.to_thread(nats_server.kill)
            running = asyncio.create_task(service.run())
            if moment == "following":
                await service.ready.wait()
                await asyncio.to_thread(nats_server.kill)
            await asyncio.sleep(0.2)
            assert not running.done()  # an outage is no reason to end
            service.stop()
            await asyncio.wait_for(running, 20)

    run_async(scenario())

"""The gap-free reader: live latency path, large bodies, damage to the log, and what it does when the server comes back."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from typing import Any

import pytest

from apportion.adapters.bus import stream
from apportion.adapters.bus.connection import BusUnreachable, Connection
from apportion.adapters.bus.local import Bus
from apportion.adapters.bus.reader import NatsEventLog
from apportion.adapters.bus.server import EmbeddedServer
from apportion.adapters.bus.topology import EVENTS, StreamInfo
from apportion.core.errors import LogGap, LogMismatch

SUBJECT = "ap.ev.a.node.heartbeat"


async def fill(bus: Bus, count: int, first: int = 0, body: Callable[[int], bytes] = lambda number: b"%d" % number) -> None:
    await bus.publisher.send_many((SUBJECT, body(number), f"id{number}") for number in range(first, first + count))
    await bus.publisher.flush()


async def take_until(tail: Any, count: int, timeout_s: float = 20.0) -> list[Any]:
    items: list[Any] = []
    async with asyncio.timeout(timeout_s):
        while len(items) < count:
            items += await tail.take(count - len(items))
    return items


@pytest.mark.parametrize("bulk", [True, False], ids=["bulk", "plain"])
@pytest.mark.parametrize("compiled", [True, False], ids=["compiled", "interpreted"])
def test_more_than_one_pull_of_large_and_small_bodies(
    nats_server: EmbeddedServer, run_async: Any, bulk: bool, compiled: bool
) -> None:
    """Crosses the pull request's limits of messages and of bytes."""

    async def scenario() -> None:
        async with await Bus.open(nats_server.url, create=True, bulk=bulk) as bus:

            def body(number: int) -> bytes:
                return b"%d" % number * (60_000 if number % 100 == 0 else 1)

            await fill(bus, 9_000, body=body)
            tail = NatsEventLog(bus.connection).tail(0, compiled=compiled)
            records = await take_until(tail, 9_000)
            await tail.close()
            assert [record.seq for record in records] == list(range(1, 9_001))
            assert all(record.body == body(record.seq - 1) for record in records)

    run_async(scenario())


def test_live_record_is_handed_over_at_once(nats_server: EmbeddedServer, run_async: Any) -> None:
    async def scenario() -> None:
        async with await Bus.open(nats_server.url, create=True) as bus:
            tail = NatsEventLog(bus.connection).tail(0)
            for number in range(50):
                taking = asyncio.ensure_future(tail.take(100))
                await asyncio.sleep(0)
                ack = await bus.publisher.publish(SUBJECT, b"%d" % number, f"id{number}")
                [record] = await asyncio.wait_for(taking, 5)
                assert (record.seq, record.body) == (ack.seq, b"%d" % number)
            await tail.close()
            with pytest.raises(BusUnreachable, match="closed"):
                await tail.take(1)

    run_async(scenario())


def test_nothing_is_lost_when_a_take_is_cancelled(nats_server: EmbeddedServer, run_async: Any) -> None:
    async def scenario() -> None:
        async with await Bus.open(nats_server.url, create=True) as bus:
            tail = NatsEventLog(bus.connection).tail(0)
            got: list[int] = []
            writer = asyncio.create_task(fill(bus, 2_000))
            async with asyncio.timeout(20):
                while len(got) < 2_000:
                    taking = asyncio.ensure_future(tail.take(37))
                    await asyncio.sleep(0)
                    taking.cancel()
                    try:
                        got += [record.seq for record in await taking]
                    except asyncio.CancelledError:
                        got += [record.seq for record in await tail.take(37, 1.0)]
            await writer
            assert got == list(range(1, 2_001))
            await tail.close()

    run_async(scenario())


def test_read_that_was_cancelled_reads_the_same_again(nats_server: EmbeddedServer, run_async: Any) -> None:
    async def scenario() -> None:
        async with await Bus.open(nats_server.url, create=True) as bus:
            await fill(bus, 20_000)
            for spins in (0, 3, 30, 300):
                reading = asyncio.ensure_future(bus.events.read(100, 15_000))
                for _spin in range(spins):
                    await asyncio.sleep(0)
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)
                assert [record.seq for record in await bus.events.read(100, 500)] == list(range(101, 601))

    run_async(scenario())


def test_idle_tail_outlives_its_pull_requests(nats_server: EmbeddedServer, run_async: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests expire and heartbeats come; the consumer stays the same and nothing is asked in vain."""
    monkeypatch.setattr(stream, "PULL_EXPIRES_S", 0.25)
    monkeypatch.setattr(stream, "IDLE_HEARTBEAT_S", 0.1)
    monkeypatch.setattr(stream, "SILENCE_S", 0.5)

    async def scenario() -> None:
        async with await Bus.open(nats_server.url, create=True) as bus:
            tail = NatsEventLog(bus.connection).tail(0)
            assert await tail.take(1, 1.5) == []
            consumer = tail._consumer
            await fill(bus, 5)
            assert [record.seq for record in await take_until(tail, 5)] == [1, 2, 3, 4, 5]
            assert tail._consumer == consumer
            assert 0 < tail._credit <= 2 * stream.PULL_MESSAGES
            await tail.close()

    run_async(scenario())


@pytest.mark.parametrize("how", ["deleted", "silent"])
def test_lost_consumer_is_built_again(
    nats_server: EmbeddedServer, run_async: Any, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(stream, "IDLE_HEARTBEAT_S", 0.1)
    monkeypatch.setattr(stream, "SILENCE_S", 0.4)

    async def scenario() -> None:
        async with await Bus.open(nats_server.url, create=True) as bus:
            await fill(bus, 10)
            tail = NatsEventLog(bus.connection).tail(0)
            assert len(await take_until(tail, 10)) == 10
            consumer = tail._consumer
            if how == "deleted":
                await bus.connection.api(f"CONSUMER.DELETE.EVENTS.{consumer}", None, dict)
            else:  # its subscription is gone, as after a half-broken reconnect: nothing will ever arrive
                assert tail._tap is not None
                await tail._tap.close()
            await fill(bus, 10, first=10)
            assert [record.seq for record in await take_until(tail, 10)] == list(range(11, 21))
            assert tail._consumer != consumer
            await tail.close()

    run_async(scenario())


def test_dropped_delivery_is_noticed_and_read_again(nats_server: EmbeddedServer, run_async: Any) -> None:
    async def scenario() -> None:
        async with await Bus.open(nats_server.url, create=True) as bus:
            tail = NatsEventLog(bus.connection).tail(0)
            on_message, dropped = tail._on_message, []

            def lossy(subject: bytes, reply: bytes, body: bytes, header: bytes) -> None:
                if len(dropped) < 3 and body in (b"100", b"101", b"700"):
                    dropped.append(body)
                    return
                on_message(subject, reply, body, header)

            tail._on_message = lossy  # type: ignore[method-assign]
            await fill(bus, 1_000)
            records = await take_until(tail, 1_000)
            assert [record.body for record in records] == [b"%d" % number for number in range(1_000)]
            assert len(dropped) == 3
            await tail.close()

    run_async(scenario())


def test_follow_gives_everything_in_order(nats_server: EmbeddedServer, run_async: Any) -> None:
    async def scenario() -> None:
        async with await Bus.open(nats_server.url, create=True) as bus:
            writer = asyncio.create_task(fill(bus, 3_000))
            seqs: list[int] = []
            async for records in bus.events.follow(0):
                seqs += [record.seq for record in records]
                if len(seqs) >= 3_000:
                    break
            await writer
            assert seqs == list(range(1, 3_001))

    run_async(scenario())


# -- a log that is not what it was ------------------------------------------------------------------------------------


async def _stream_that_may_be_edited(bus: Bus) -> None:
    """Make EVENTS anew without its denials: the tests play a damaged store."""
    await bus.connection.api("STREAM.DELETE.EVENTS", None, dict)
    config = {"name": EVENTS, "subjects": ["ap.ev.*.>"], "storage": "file", "num_replicas": 1, "duplicate_window": 120 * 10**9}
    await bus.connection.api("STREAM.CREATE.EVENTS", config, StreamInfo)


def test_missing_record_is_a_gap_with_both_numbers(nats_server: EmbeddedServer, run_async: Any) -> None:
    async def scenario() -> None:
        async with await Bus.open(nats_server.url, create=True) as bus:
            await _stream_that_may_be_edited(bus)
            await fill(bus, 10)
            await bus.connection.api("STREAM.MSG.DELETE.EVENTS", {"seq": 6}, dict)
            with pytest.raises(LogGap, match="expected seq 6, got 7"):
                await bus.events.read(0, 100)
            tail = NatsEventLog(bus.connection).tail(5)
            with pytest.raises(LogGap, match="expected seq 6, got 7"):
                await tail.take(1)
            await tail.close()
            await bus.connection.api("STREAM.PURGE.EVENTS", {"keep": 2}, dict)
            with pytest.raises(LogGap, match="expected seq 1, got 9"):
                await bus.events.read(0, 100)

    run_async(scenario())


@pytest.mark.parametrize("refilled", [0, 4, 12], ids=["shorter", "still shorter", "written over"])
def test_log_that_lost_its_end_stops_a_live_reader(
    nats_server: EmbeddedServer, run_async: Any, tmp_path: Any, refilled: int
) -> None:
    """The server comes back with an older store: sequences are given out again. A reader that went on would mix two logs."""

    async def scenario() -> None:
        store = nats_server.home.jetstream
        async with await Bus.open(nats_server.url, create=True) as bus:
            await fill(bus, 3)
            nats_server.stop()
            shutil.copytree(store, tmp_path / "older")
            nats_server.start()
            await bus.connection.wait_until_up()
            await fill(bus, 7, first=3)
            tail = NatsEventLog(bus.connection).tail(0)
            assert len(await take_until(tail, 10)) == 10
            nats_server.stop()
            shutil.rmtree(store)
            shutil.copytree(tmp_path / "older", store)
            nats_server.start()
            await bus.connection.wait_until_up()
            async with await Bus.open(nats_server.url) as other:
                await fill(other, refilled, first=1_000)
            with pytest.raises(LogMismatch, match="written over" if refilled == 12 else "end is missing"):
                await asyncio.wait_for(take_until(tail, 1), 20)
            await tail.close()

    run_async(scenario())


def test_waiting_reader_ends_when_the_connection_is_closed(nats_server: EmbeddedServer, run_async: Any) -> None:
    async def scenario() -> None:
        bus = await Bus.open(nats_server.url, create=True)
        other = await Connection.open(nats_server.url, name="other")
        tail = NatsEventLog(bus.connection).tail(0)
        taking = asyncio.create_task(tail.take(1))
        await asyncio.sleep(0.05)
        await bus.close()
        with pytest.raises(BusUnreachable):
            await asyncio.wait_for(taking, 10)
        await other.close()

    run_async(scenario())

"""The publisher: every message gets its own answer, errors included; ids make repeats harmless; order is kept."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from apportion.adapters.bus.local import Bus
from apportion.adapters.bus.publisher import OutcomeUnknown, Publisher, PublishRefused
from apportion.adapters.bus.server import EmbeddedServer

SUBJECT = "ap.ev.a.node.heartbeat"


@pytest.mark.parametrize("bulk", [True, False], ids=["bulk", "plain"])
def test_answers_carry_the_stored_sequence_and_tell_repeats(nats_server: EmbeddedServer, run_async: Any, bulk: bool) -> None:
    async def scenario() -> None:
        async with await Bus.open(nats_server.url, create=True, bulk=bulk) as bus:
            assert await bus.publisher.publish(SUBJECT, b"1", "one") == (1, False)
            assert await bus.publisher.publish(SUBJECT, b"2", "two") == (2, False)
            assert await bus.publisher.publish(SUBJECT, b"other", "one") == (1, True)
            assert [record.body for record in await bus.events.read(0, 10)] == [b"1", b"2"]

    run_async(scenario())


def test_an_error_answers_its_own_message_and_the_rest_goes_on(nats_server: EmbeddedServer, run_async: Any) -> None:
    async def scenario() -> None:
        async with await Bus.open(nats_server.url, create=True, window=8) as bus:
            futures = [
                await bus.publisher.send(SUBJECT, b"%d" % number, f"id{number}", expected_last_seq=7 if number % 5 == 3 else None)
                for number in range(40)
            ]
            answers = await asyncio.gather(*futures, return_exceptions=True)

            refused = [number for number, answer in enumerate(answers) if isinstance(answer, PublishRefused)]
            # 7 is the right expectation for exactly one of them: the first refusal leaves the 8th message as seq 8 - 1.
            assert refused == [number for number in range(40) if number % 5 == 3 and number != 8]
            assert all(answer.err_code == 10071 for answer in answers if isinstance(answer, PublishRefused))
            assert bus.publisher.in_flight == 0
            with pytest.raises(PublishRefused):
                await bus.publisher.flush()  # whoever looked at no future learns it here
            await bus.publisher.flush()
            assert await bus.events.last_seq() == 40 - len(refused)

    run_async(scenario())


def test_order_is_kept_and_the_window_bounds_what_is_in_flight(nats_server: EmbeddedServer, run_async: Any) -> None:
    async def scenario() -> None:
        async with await Bus.open(nats_server.url, create=True, window=50) as bus:
            most = 0

            def events() -> Any:
                nonlocal most
                for number in range(3_000):
                    most = max(most, bus.publisher.in_flight)
                    yield SUBJECT, b"%d" % number, f"id{number}"

            await bus.publisher.send_many(events())
            await bus.publisher.flush()

            assert 1 < most <= 50
            assert [record.body for record in await bus.events.read(0, 5_000)] == [b"%d" % number for number in range(3_000)]

    run_async(scenario())


@pytest.mark.parametrize(
    ("subject", "event_id"),
    [
        ("", "id"), ("ap.ev..x", "id"), ("ap.ev.a b.x", "id"), ("ap.ev.*.x", "id"), ("ap.ev.>", "id"),
        ("ap.ev.a.x\r\nPUB ap.dec.cycle 1\r\nx", "id"), ("ap.ev.a.x\t", "id"),
        (SUBJECT, "id\r\nNats-Rollup: all"), (SUBJECT, "x" * 300),
    ],
)  # fmt: skip
def test_nothing_gets_past_the_wire_protocol(nats_server: EmbeddedServer, run_async: Any, subject: str, event_id: str) -> None:
    async def scenario() -> None:
        async with await Bus.open(nats_server.url, create=True) as bus:
            with pytest.raises(PublishRefused):
                await bus.publisher.publish(subject, b"body", event_id)
            with pytest.raises(PublishRefused):
                await bus.publisher.send_many([(subject, b"body", event_id)])
            assert await bus.publisher.publish(SUBJECT, b"still fine", "fine") == (1, False)

    run_async(scenario())


def test_subject_of_no_stream_is_sent_again_until_closed(nats_server: EmbeddedServer, run_async: Any) -> None:
    async def scenario() -> None:
        async with await Bus.open(nats_server.url, create=True) as bus:
            publisher = await Publisher.open(bus.connection)
            waiting = asyncio.ensure_future(publisher.publish("elsewhere.x", b"", "id"))
            await asyncio.sleep(0.1)
            assert not waiting.done()
            await publisher.close()
            with pytest.raises(OutcomeUnknown):
                await waiting

    run_async(scenario())


def test_outage_loses_nothing_and_keeps_the_order(nats_server: EmbeddedServer, run_async: Any) -> None:
    async def scenario() -> None:
        async with await Bus.open(nats_server.url, create=True, window=200) as bus:
            futures = []
            for number in range(3_000):
                if number in (700, 1_900):
                    nats_server.kill()
                    nats_server.start()
                futures.append(await bus.publisher.send(SUBJECT, b"%d" % number, f"id{number}"))
                if number % 20 == 0:
                    await asyncio.sleep(0)
            await bus.publisher.flush()

            records = await bus.events.read(0, 5_000)
            assert [record.body for record in records] == [b"%d" % number for number in range(3_000)]
            assert [future.result().seq for future in futures] == [record.seq for record in records]

    run_async(scenario())


def test_who_gets_no_answer_in_time_is_sent_again_only_with_an_id(
    nats_server: EmbeddedServer, run_async: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("apportion.adapters.bus.publisher.ACK_TIMEOUT_S", 0.2)

    async def scenario() -> None:
        async with await Bus.open(nats_server.url, create=True) as bus:
            os.kill(nats_server.pid, signal.SIGSTOP)  # the connection stands
            try:
                while any(b") T " not in path.read_bytes() for path in Path(f"/proc/{nats_server.pid}/task").glob("*/stat")):
                    await asyncio.sleep(0.01)
                with_id = await bus.publisher.send(SUBJECT, b"with", "one")
                without = await bus.publisher.send(SUBJECT, b"without", "")
                await asyncio.sleep(1.5)
            finally:
                os.kill(nats_server.pid, signal.SIGCONT)
            assert (await with_id).seq == 1
            with pytest.raises(OutcomeUnknown, match="no answer came"):
                await without
            await bus.publisher.publish(SUBJECT, b"after", "two")
            assert [record.body for record in await bus.events.read(0, 10)] == [b"with", b"without", b"after"]

    run_async(scenario())


def test_messages_without_an_id_are_not_sent_twice(nats_server: EmbeddedServer, run_async: Any) -> None:
    async def scenario() -> None:
        async with await Bus.open(nats_server.url, create=True) as bus:
            await bus.publisher.publish(SUBJECT, b"before", "")
            nats_server.kill()
            future = await bus.publisher.send(SUBJECT, b"lost?", "")
            nats_server.start()
            with pytest.raises(OutcomeUnknown, match="look"):
                await future
            await bus.connection.wait_until_up()
            assert (await bus.publisher.publish(SUBJECT, b"after", "after")).seq == await bus.events.last_seq()

    run_async(scenario())

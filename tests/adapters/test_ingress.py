"""The ingress over a real nats-server: what it stores, what it answers, and what it never touches."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import nats
import nats.errors
import pytest
from nats.aio.client import Client as NatsClient

from apportion.adapters.bus import topology
from apportion.adapters.bus.connection import Connection
from apportion.adapters.bus.reader import NatsEventLog
from apportion.adapters.bus.server import EmbeddedServer
from apportion.adapters.ingress.app import STATUS_SUBJECT, Ingress
from apportion.adapters.ingress.check import ACCEPTED
from apportion.core.envelope import Record, decode_envelope
from apportion.core.events import decode_data

Run = Callable[[Coroutine[Any, Any, Any]], Any]
SUBMITTED = {"workload": "job-1", "budget": "lab/llm", "pools": ["h100"], "gpus_milli": 1000}
CANCELLED = {"workload": "job-1"}


class World:
    """A program that sends requests, and a look into the log."""

    def __init__(self, client: NatsClient, connection: Connection, ingress: Ingress) -> None:
        self.client = client
        self.connection = connection
        self.ingress = ingress

    async def ask(self, subject: str, data: Any, **envelope: Any) -> dict[str, Any]:
        return await self.send(subject, json.dumps({"data": data, **envelope}).encode())

    async def send(self, subject: str, body: bytes) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads((await self.client.request(subject, body, timeout=10)).data)
        return answer

    async def records(self) -> list[Record]:
        log = NatsEventLog(self.connection)
        records = await log.read(0, 10_000)
        await log.close()
        return records


@asynccontextmanager
async def world(server: EmbeddedServer, *, streams: bool = True) -> AsyncIterator[World]:
    connection = await Connection.open(server.url, name="test")
    if streams:
        await topology.create(connection, max_file_bytes=64 * 1024**2)
    client = await nats.connect(server.url)
    async with Ingress(server.url).running() as ingress:
        yield World(client, connection, ingress)
    await client.close()
    await connection.close()


def test_a_good_request_is_stored_once_under_its_principal_and_answered(
    nats_server: EmbeddedServer, run_async: Run
) -> None:
    async def story() -> None:
        async with world(nats_server) as place:
            answer = await place.ask("ap.in.portal.workload.submitted", SUBMITTED, cause="portal page")
            (record,) = await place.records()
            envelope = decode_envelope(record.body)

            assert answer == {"ok": True, "seq": 1, "id": envelope.id, "duplicate": False, "ignored": []}
            assert record.subject == "ap.ev.portal.workload.submitted"
            assert len(envelope.id) == 32
            assert envelope.cause == "portal page"
            assert msgspec.to_builtins(decode_data(envelope.type, envelope.v, envelope.data)) == SUBMITTED | {
                "pools": ("h100",)
            }

    run_async(story())


def test_a_repeated_request_is_stored_once_and_told_where(nats_server: EmbeddedServer, run_async: Run) -> None:
    async def story() -> None:
        async with world(nats_server) as place:
            answers = [
                await place.ask("ap.in.portal.workload.submitted", SUBMITTED, id="mine", **extra)
                for extra in ({}, {}, {"v": 1, "type": "workload.submitted"})
            ]

            assert [(answer["seq"], answer["duplicate"]) for answer in answers] == [(1, False), (1, True), (1, True)]
            assert len(await place.records()) == 1

    run_async(story())


@pytest.mark.parametrize(
    ("subject", "data"),
    [
        ("ap.in.portal.workload.submitted", {**SUBMITTED, "gpus_milli": 2000}),
        ("ap.in.portal.workload.cancelled", CANCELLED),
        ("ap.in.other.workload.submitted", SUBMITTED),
    ],
)
def test_an_id_names_one_event(subject: str, data: Any, nats_server: EmbeddedServer, run_async: Run) -> None:
    """Ids are one name space: whoever uses another's id must not be told that his own event is stored."""

    async def story() -> None:
        async with world(nats_server) as place:
            await place.ask("ap.in.portal.workload.submitted", SUBMITTED, id="mine")
            answer = await place.ask(subject, data, id="mine")

            assert answer["ok"] is False
            assert answer["error"]["refusal"] == "duplicate"
            assert "seq 1" in answer["error"]["message"]
            assert len(await place.records()) == 1

    run_async(story())


def test_a_bad_request_is_told_what_is_wrong_and_stores_nothing(nats_server: EmbeddedServer, run_async: Run) -> None:
    async def story() -> None:
        async with world(nats_server) as place:
            answer = await place.ask("ap.in.portal.workload.submitted", {**SUBMITTED, "gpus_milli": -5}, id="x1")
            broken = await place.send("ap.in.portal.node.left", b"{")
            empty = await place.send("ap.in.portal.node.left", b"")
            large = await place.send("ap.in.portal.node.left", b'{"data":{"node":"' + b"n" * 300_000 + b'"}}')
            deep = await place.send("ap.in.portal.node.left", b'{"data":' + b"[" * 200_000)

            assert answer["id"] == "x1"
            assert answer["error"] == {
                "refusal": "invalid_data",
                "field": "data.gpus_milli",
                "rule": "Expected `int` >= 1",
                "value": -5,
                "message": "data.gpus_milli is -5: expected `int` >= 1",
            }
            assert [reply["error"]["refusal"] for reply in (broken, empty, large, deep)] == [
                "broken_json", "broken_json", "too_large", "broken_json",
            ]  # fmt: skip
            assert await place.records() == []
            assert place.ingress.refused == {"invalid_data": 1, "broken_json": 3, "too_large": 1}

    run_async(story())


@pytest.mark.parametrize("event_type", ["workload.misspelt", "clock.tick", "log.opened", "nonsense"])
def test_a_type_that_nobody_may_ask_for_gets_an_answer_too(
    event_type: str, nats_server: EmbeddedServer, run_async: Run
) -> None:
    async def story() -> None:
        async with world(nats_server) as place:
            answer = await place.ask(f"ap.in.portal.{event_type}", {})

            assert answer["error"]["refusal"] == "unknown_type"
            assert answer["error"]["value"] == event_type
            assert await place.records() == []

    run_async(story())


def test_every_type_has_one_handler_that_answers_once(nats_server: EmbeddedServer, run_async: Run) -> None:
    async def story() -> None:
        async with world(nats_server) as place:
            inbox = place.client.new_inbox()
            answers: list[bytes] = []

            async def keep(message: Any) -> None:
                answers.append(message.data)

            await place.client.subscribe(inbox, cb=keep)
            for event_type in ACCEPTED:
                await place.client.publish(f"ap.in.portal.{event_type}", b"[]", reply=inbox)
            for _ in range(200):
                if len(answers) >= len(ACCEPTED):
                    break
                await asyncio.sleep(0.02)
            await place.client.flush()
            await asyncio.sleep(0.1)

            assert len(answers) == len(ACCEPTED)

    run_async(story())


def test_several_requests_at_once_are_each_stored_once(nats_server: EmbeddedServer, run_async: Run) -> None:
    async def story() -> None:
        async with world(nats_server) as place, Ingress(nats_server.url).running():
            wanted = [f"job-{number}" for number in range(200)]
            answers = await asyncio.gather(
                *(place.ask("ap.in.portal.workload.submitted", {**SUBMITTED, "workload": name}) for name in wanted)
            )
            stored = {record.seq: json.loads(record.body)["data"]["workload"] for record in await place.records()}

            assert {answer["seq"]: name for answer, name in zip(answers, wanted, strict=True)} == stored

    run_async(story())


def test_the_status_tells_whether_the_log_answers(nats_server: EmbeddedServer, run_async: Run) -> None:
    async def story() -> None:
        async with world(nats_server) as place:
            await place.ask("ap.in.portal.workload.submitted", SUBMITTED)
            await place.ask("ap.in.portal.workload.submitted", {})
            status = await place.send(STATUS_SUBJECT, b"")

            assert status["ok"] is True
            assert (status["stored"], status["refused"], status["log_last_seq"]) == (1, {"invalid_data": 1}, 1)

    run_async(story())


def test_without_a_log_nothing_is_promised(nats_server: EmbeddedServer, run_async: Run) -> None:
    async def story() -> None:
        async with world(nats_server, streams=False) as place:
            answer = await place.ask("ap.in.portal.workload.submitted", SUBMITTED, id="mine")
            status = await place.send(STATUS_SUBJECT, b"")

            assert (answer["ok"], answer["error"]["refusal"], answer["id"]) == (False, "not_stored", "mine")
            assert status["ok"] is False
            assert "EVENTS" in status["log_problem"]

    run_async(story())


def test_a_full_log_is_told_as_such(nats_server: EmbeddedServer, run_async: Run) -> None:
    async def story() -> None:
        async with world(nats_server, streams=False) as place:
            await topology.create(place.connection, max_file_bytes=16_384)
            answers = []
            for number in range(60):
                data = {**SUBMITTED, "workload": f"job-{number}", "env": {"A": "x" * 1000}}
                answers.append(await place.ask("ap.in.portal.workload.submitted", data))
                if not answers[-1]["ok"]:
                    break

            assert answers[0]["ok"] is True
            assert answers[-1]["error"]["refusal"] == "not_stored"
            assert "maximum bytes" in answers[-1]["error"]["message"]

    run_async(story())


def test_the_ingress_declares_nothing_and_consumes_nothing(nats_server: EmbeddedServer, run_async: Run) -> None:
    async def story() -> None:
        async with world(nats_server) as place:
            before = [(await topology.stream_info(place.connection, name)).config for name in topology.REQUIRED]
            await place.ask("ap.in.portal.workload.submitted", SUBMITTED)
            after = [(await topology.stream_info(place.connection, name)).config for name in topology.REQUIRED]
            consumers = [await place.client.jetstream().consumers_info(name) for name in topology.REQUIRED]

            assert before == after
            assert consumers == [[], []]
            assert await topology.audit(place.connection) == []

    run_async(story())


def test_it_answers_again_when_the_server_is_back(start_nats: Callable[..., EmbeddedServer], run_async: Run) -> None:
    server = start_nats(sync="always")

    async def story() -> None:
        async with world(server) as place:
            first = await place.ask("ap.in.portal.workload.submitted", SUBMITTED, id="one")
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.start)
            for _ in range(100):
                try:
                    second = await place.ask("ap.in.portal.workload.submitted", SUBMITTED, id="one")
                    third = await place.ask("ap.in.portal.workload.cancelled", CANCELLED, id="two")
                    break
                except (nats.errors.Error, OSError):
                    await asyncio.sleep(0.1)

            assert (first["seq"], second["seq"], second["duplicate"], third["seq"]) == (1, 1, True, 2)
            assert len(await place.records()) == 2

    run_async(story())

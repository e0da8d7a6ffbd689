"""Streams as data: created once, never changed, audited at start, and refusing what they must refuse."""

from __future__ import annotations

import asyncio
import copy
import random
from collections.abc import Callable
from typing import Any

import pytest

from apportion.adapters.bus import topology
from apportion.adapters.bus.connection import ApiError, BusUnreachable, Connection
from apportion.adapters.bus.local import Bus
from apportion.adapters.bus.publisher import PublishRefused
from apportion.adapters.bus.server import EmbeddedServer
from apportion.adapters.bus.topology import DECISIONS, EVENTS, StreamInfo, StreamState

UPDATE = "STREAM.UPDATE"


def test_created_streams_pass_their_audit_and_creating_again_changes_nothing(nats_server: EmbeddedServer, run_async: Any) -> None:
    async def scenario() -> None:
        async with await Connection.open(nats_server.url, name="test") as connection:
            assert await topology.audit(connection) == ["stream EVENTS does not exist", "stream DECISIONS does not exist"]
            await topology.create(connection)
            assert await topology.audit(connection) == []
            before = [await topology.stream_info(connection, name) for name in (EVENTS, DECISIONS)]
            await topology.create(connection, duplicate_window_s=600)
            assert [await topology.stream_info(connection, name) for name in (EVENTS, DECISIONS)] == before

    run_async(scenario())


def test_bus_refuses_to_start_without_its_streams(nats_server: EmbeddedServer, run_async: Any) -> None:
    async def scenario() -> None:
        with pytest.raises(topology.TopologyError, match="stream EVENTS does not exist"):
            await Bus.open(nats_server.url)

    run_async(scenario())


def test_unreachable_server_is_told_with_its_url(run_async: Any) -> None:
    async def scenario() -> None:
        with pytest.raises(BusUnreachable, match=r"127\.0\.0\.1:9"):
            await Bus.open("nats://127.0.0.1:9", timeout_s=0.5)

    run_async(scenario())


@pytest.mark.parametrize(
    ("stream", "change"),
    [
        (EVENTS, {"discard": "old"}),
        (EVENTS, {"compression": "none", "duplicate_window": 1_000_000_000}),
        (EVENTS, {"max_msgs": 10}),
        (EVENTS, {"max_age": 3_600_000_000_000}),
        (EVENTS, {"allow_direct": True}),
        (EVENTS, {"allow_atomic": True}),
        (EVENTS, {"max_msg_size": 2_000_000}),
        (EVENTS, {"max_bytes": -1}),
        (DECISIONS, {"subjects": ["ap.dec.>"]}),
        (DECISIONS, {"allow_atomic": False}),
    ],
    ids=lambda value: value if isinstance(value, str) else "+".join(value),
)
def test_audit_names_every_setting_that_differs(
    nats_server: EmbeddedServer, run_async: Any, stream: str, change: dict[str, Any]
) -> None:
    async def scenario() -> None:
        async with await Connection.open(nats_server.url, name="test") as connection:
            await topology.create(connection)
            config = {**(await topology.stream_info(connection, stream)).config, **change}
            await connection.api(f"{UPDATE}.{stream}", config, StreamInfo)
            findings = await topology.audit(connection)

            for setting in change:
                assert any(f"stream {stream}: {setting} is" in finding for finding in findings), findings
            with pytest.raises(topology.TopologyError, match="not as required"):
                await Bus.open(nats_server.url)

    run_async(scenario())


@pytest.mark.parametrize("denial", ["deny_delete", "deny_purge"])
def test_the_server_lets_nobody_take_back_a_denial(nats_server: EmbeddedServer, run_async: Any, denial: str) -> None:
    async def scenario() -> None:
        async with await Connection.open(nats_server.url, name="test") as connection:
            await topology.create(connection)
            config = {**(await topology.stream_info(connection, EVENTS)).config, denial: False}
            with pytest.raises(ApiError) as refused:
                await connection.api(f"{UPDATE}.{EVENTS}", config, StreamInfo)
            assert refused.value.err_code == 10052

    run_async(scenario())


def test_a_log_without_its_beginning_is_found() -> None:
    required = topology.REQUIRED[EVENTS]
    config = {**copy.deepcopy(required), "max_bytes": 1, "duplicate_window": 10**12}

    assert topology.differences(required, StreamInfo(config, StreamState(first_seq=1))) == []
    assert topology.differences(required, StreamInfo(config, StreamState(first_seq=7, last_seq=9)))[0].startswith("its first")
    mirrored = StreamInfo({**config, "mirror": {"name": "X"}}, StreamState())
    assert topology.differences(required, mirrored) == ["mirror is set, must not be"]


def test_history_cannot_be_edited(nats_server: EmbeddedServer, run_async: Any, script: Any) -> None:
    async def scenario() -> None:
        async with await Bus.open(nats_server.url, create=True) as bus:
            for subject, body, event_id in script.opening():
                await bus.publisher.publish(subject, body, event_id)
            for verb, request in (("STREAM.MSG.DELETE.EVENTS", {"seq": 2}), ("STREAM.PURGE.EVENTS", {})):
                with pytest.raises(ApiError):
                    await bus.connection.api(verb, request, dict)

    run_async(scenario())


def test_size_limits_let_in_what_the_core_must_refuse_and_nothing_larger(nats_server: EmbeddedServer, run_async: Any) -> None:
    async def scenario() -> None:
        async with await Bus.open(nats_server.url, create=True) as bus:
            subject = "ap.ev.ops.workload.submitted"
            assert (await bus.publisher.publish(subject, b"x" * (300 * 1024), "large")).seq == 1
            with pytest.raises(PublishRefused) as refused:
                await bus.publisher.publish(subject, b"x" * (600 * 1024), "too large for the stream")
            assert refused.value.err_code == 10054
            with pytest.raises(PublishRefused, match="more than the server takes"):
                await bus.publisher.publish(subject, b"x" * (10 * 1024 * 1024), "too large for the server")
            assert await bus.events.last_seq() == 1

    run_async(scenario())


def test_full_log_refuses_new_events_loudly_and_keeps_the_old(
    start_nats: Callable[..., EmbeddedServer], run_async: Any
) -> None:
    async def scenario() -> None:
        server = start_nats(max_file_bytes=8 * 1024 * 1024)
        async with await Bus.open(server.url, create=True, max_file_bytes=8 * 1024 * 1024) as bus:
            body = random.Random(1).randbytes(100_000)
            futures = [await bus.publisher.send("ap.ev.a.x", body, f"{number}") for number in range(200)]
            answers = await asyncio.gather(*futures, return_exceptions=True)
            stored = [answer for answer in answers if not isinstance(answer, BaseException)]
            refused = [answer for answer in answers if isinstance(answer, PublishRefused)]
            assert len(stored) + len(refused) == 200
            assert {error.err_code for error in refused} <= {10077, 10047, 10023}
            assert 10 < len(stored) < 200
            assert len(await bus.events.read(0, 1_000)) == len(stored) == await bus.events.last_seq()

    run_async(scenario())


@pytest.mark.parametrize("room_mib", [96, 130, 200, 225, 300, 400, 490])
def test_small_servers_give_both_streams_the_room_they_have(
    room_mib: int, start_nats: Callable[..., EmbeddedServer], run_async: Any
) -> None:
    """In some of these EVENTS alone would fit into what is tried first, and leave nothing for DECISIONS."""

    async def scenario() -> None:
        server = start_nats(max_file_bytes=room_mib * 1024 * 1024)
        async with await Connection.open(server.url, name="test") as connection:
            await topology.create(connection)
            events, decisions = [(await topology.stream_info(connection, name)).config["max_bytes"] for name in (EVENTS, DECISIONS)]
            assert events + decisions <= room_mib * 1024 * 1024
            assert events >= room_mib * 1024 * 1024 * 3 // 8 - 1
            assert decisions >= room_mib * 1024 * 1024 // 10 - 1

    run_async(scenario())


def test_events_that_took_all_room_before_decisions_were_made_leave_some(
    start_nats: Callable[..., EmbeddedServer], run_async: Any
) -> None:
    async def scenario() -> None:
        server = start_nats(max_file_bytes=200 * 1024 * 1024)
        async with await Connection.open(server.url, name="test") as connection:
            alone = {**topology.REQUIRED[EVENTS], "name": EVENTS, "num_replicas": 1, "max_bytes": 199 * 1024 * 1024}
            await connection.api(f"STREAM.CREATE.{EVENTS}", alone, StreamInfo)
            await topology.create(connection)
            assert await topology.audit(connection) == []

    run_async(scenario())


def test_events_with_an_event_are_not_made_smaller(start_nats: Callable[..., EmbeddedServer], run_async: Any) -> None:
    async def scenario() -> None:
        server = start_nats(max_file_bytes=200 * 1024 * 1024)
        async with await Connection.open(server.url, name="test") as connection:
            alone = {**topology.REQUIRED[EVENTS], "name": EVENTS, "num_replicas": 1, "max_bytes": 199 * 1024 * 1024}
            await connection.api(f"STREAM.CREATE.{EVENTS}", alone, StreamInfo)
            await connection.client.jetstream().publish("ap.ev.ops.log.opened", b"{}")
            with pytest.raises(ApiError, match="insufficient storage"):
                await topology.create(connection)
            assert (await topology.stream_info(connection, EVENTS)).config["max_bytes"] == 199 * 1024 * 1024

    run_async(scenario())

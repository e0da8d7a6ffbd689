"""The contract of the port ``EventLog``: one class, run over memory, NATS (both ways of reading), the archive, and a cut log."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from apportion.adapters.bus.local import Bus
from apportion.adapters.bus.server import EmbeddedServer
from apportion.adapters.logs.archive import ArchiveEventLog
from apportion.adapters.logs.memory import MemoryDecisionLog, MemoryEventLog, check_contiguous
from apportion.core.envelope import MAX_BODY_BYTES
from apportion.core.errors import LogMismatch
from tests.archived import cut_in_half, export

Events = list[tuple[str, bytes]]
Open = Callable[..., Any]

AWKWARD: Events = [
    ("ap.ev.core.log.opened", b"{}"),
    ("ap.ev.a.node.heartbeat", b""),
    ("ap.ev.b.node.heartbeat", b"\xff\xfe not text \r\n MSG fake 1 5\r\nhello\r\n"),
    ("ap.ev.c.workload.submitted", bytes(range(256)) * 4),
    ("ap.ev.a.no.such.type", b"[" * 2_000),
    ("ap.ev.d.workload.submitted", b"x" * (MAX_BODY_BYTES + 1)),
    ("ap.ev.caf\u00e9.run.finished", "caf\u00e9".encode()),
]


def many(count: int) -> Events:
    return [(f"ap.ev.agent{number % 7}.node.heartbeat", b'{"beat":%d}' % number) for number in range(count)]


@pytest.fixture(params=["memory", "nats", "nats-plain", "archive", "cut"])
def open_log(
    request: pytest.FixtureRequest, tmp_path: Path, start_nats: Callable[..., EmbeddedServer]
) -> Callable[[Events], contextlib.AbstractAsyncContextManager[Any]]:
    """Return ``open_log(events)``: an async context with a log that holds exactly these events."""

    @contextlib.asynccontextmanager
    async def memory(events: Events) -> AsyncIterator[Any]:
        log = MemoryEventLog()
        for number, (subject, body) in enumerate(events):
            log.append(subject, body, stored_ms=1_000 + number)
        yield log

    @contextlib.asynccontextmanager
    async def nats(events: Events) -> AsyncIterator[Any]:
        server = start_nats()
        async with await Bus.open(server.url, create=True, bulk=request.param == "nats") as bus:
            await bus.publisher.send_many((subject, body, "") for subject, body in events)
            await bus.publisher.flush()
            yield bus.events

    @contextlib.asynccontextmanager
    async def archive(events: Events) -> AsyncIterator[Any]:
        async with memory(events) as log:
            await export(log, MemoryDecisionLog(), tmp_path / "archive")
        yield ArchiveEventLog(tmp_path / "archive")

    @contextlib.asynccontextmanager
    async def cut(events: Events) -> AsyncIterator[Any]:
        async with await Bus.open(start_nats().url, create=True, archives=(tmp_path / "archive",)) as bus:
            await bus.publisher.send_many((subject, body, "") for subject, body in events)
            await bus.publisher.flush()
            await cut_in_half(bus, tmp_path / "archive")
            yield bus.events

    return {"memory": memory, "nats": nats, "nats-plain": nats, "archive": archive, "cut": cut}[request.param]


class TestEventLog:
    """Gap-free, exact, and with a definite end."""

    def test_empty_log_has_no_end_to_reach(self, open_log: Open, run_async: Any) -> None:
        async def scenario() -> None:
            async with open_log([]) as log:
                assert await log.last_seq() == 0
                assert await log.read(0, 10) == []

        run_async(scenario())

    def test_every_byte_comes_back_in_order(self, open_log: Open, run_async: Any) -> None:
        async def scenario() -> None:
            async with open_log(AWKWARD) as log:
                records = await log.read(0, 100)

                assert [(record.subject, record.body) for record in records] == AWKWARD
                assert [record.seq for record in records] == list(range(1, len(AWKWARD) + 1))
                assert all(type(record.stored_ms) is int and record.stored_ms > 0 for record in records)
                assert [record.stored_ms for record in records] == sorted(record.stored_ms for record in records)

        run_async(scenario())

    def test_any_position_and_limit_reads_the_same_log(self, open_log: Open, run_async: Any) -> None:
        async def scenario() -> None:
            async with open_log(many(300)) as log:
                whole = await log.read(0, 1_000)
                assert len(whole) == 300
                for after, limit in [(0, 1), (1, 7), (299, 5), (300, 5), (150, 1_000), (17, 100), (117, 100), (0, 300)]:
                    assert await log.read(after, limit) == whole[after : after + limit]

        run_async(scenario())

    def test_reading_on_from_the_last_record_meets_the_end_once(self, open_log: Open, run_async: Any) -> None:
        async def scenario() -> None:
            async with open_log(many(1_000)) as log:
                position, calls = 0, 0
                while records := await log.read(position, 64):
                    check_contiguous(records, position)
                    position = records[-1].seq
                    calls += 1

                assert position == await log.last_seq() == 1_000
                assert calls == 16  # filled lists: a reader may count on them
                assert await log.read(position, 64) == []

        run_async(scenario())

    def test_position_beyond_the_end_is_another_log(self, open_log: Open, run_async: Any) -> None:
        async def scenario() -> None:
            async with open_log(many(3)) as log:
                with pytest.raises(LogMismatch, match="seq 3"):
                    await log.read(4, 10)

        run_async(scenario())

    def test_body_at_a_sequence(self, open_log: Open, run_async: Any) -> None:
        async def scenario() -> None:
            async with open_log(AWKWARD) as log:
                assert await log.body_at(3) == AWKWARD[2][1]
                assert await log.body_at(len(AWKWARD) + 1) is None

        run_async(scenario())

    def test_live_readers_are_independent_and_see_what_is_appended(self, open_log: Open, run_async: Any) -> None:
        async def scenario() -> None:
            async with open_log(many(20)) as log:
                if isinstance(log, ArchiveEventLog):
                    assert not hasattr(log, "tail")  # an archive does not grow, and does not pretend to
                    return
                first, second = log.tail(0), log.tail(15)
                try:
                    seen = []
                    while len(seen) < 20:
                        seen += await first.take(6)
                    assert [record.seq for record in seen] == list(range(1, 21))
                    assert (await second.take(100))[0].seq == 16
                    assert await first.take(5, timeout_s=0.05) == []
                    waiting = asyncio.ensure_future(first.take(5))
                    await asyncio.sleep(0.02)
                    first.wake()
                    assert await waiting == []
                finally:
                    await first.close()
                    await second.close()

        run_async(scenario())

"""A log that is cut more than once: by one who cuts every month, by two who know of each other only through the server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from apportion.adapters.archiving.cutting.carrying import carry_out
from apportion.adapters.archiving.cutting.plan import plan
from apportion.adapters.archiving.writing import write
from apportion.adapters.bus import topology
from apportion.adapters.bus.archived import chain_of, end_of
from apportion.adapters.bus.kept import kept_record
from apportion.adapters.bus.local import Bus
from apportion.adapters.bus.server import EmbeddedServer
from apportion.adapters.bus.shortening import STREAMS, open_again, shorten
from apportion.adapters.logs import manifest
from apportion.core.envelope import Record, StoredBatch
from apportion.core.errors import LogMismatch
from tests.archived import played

Logs = tuple[list[Record], list[StoredBatch]]
PATIENCE_S = 240.0  # kernels may have to be compiled first


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    return tmp_path / "nats" / "archive"


@pytest.fixture
def with_bus(nats_server: EmbeddedServer, archive: Path, run_async: Any) -> Callable[[Callable[[Bus, Logs], Any]], Any]:
    """Return ``with_bus(work)``: what ``work(bus, logs)`` returns, on a server that has a history, archived."""
    history = played(7, rough=False, hours=76)

    def act(work: Callable[[Bus, Logs], Any]) -> Any:
        async def opened() -> Any:
            async with await Bus.open(nats_server.url, create=True, archives=(archive,)) as bus:
                await bus.publisher.send_many((record.subject, record.body, f"r{record.seq}") for record in history.records)
                await bus.publisher.flush()
                for batch in history.batches:
                    await bus.decisions.commit(batch.body, batch.input_seq, batch.seq - 1)
                await write(bus.events, bus.decisions, archive)
                return await work(bus, (await bus.events.read(0, 10**6), await bus.decisions.read(0, 10**6)))

        return run_async(opened(), PATIENCE_S)

    return act


async def cut(bus: Bus, archive: Path, days: int) -> None:
    """Cut so that ``days`` sealed days stay."""
    wanted = await plan(bus.connection, archive, days)
    assert wanted is not None
    await carry_out(bus.connection, wanted)


def test_who_has_read_across_one_cut_reads_across_the_next(archive: Path, with_bus: Any) -> None:
    async def scenario(bus: Bus, logs: Logs) -> None:
        records, batches = logs
        sealed = manifest.load(archive).sealed
        await cut(bus, archive, len(sealed) - 1)
        assert await bus.events.read(0, 10**6) == records
        assert await bus.decisions.read(0, 10**6) == batches
        heard = bus.events.tail(0)
        seen = await heard.take(10)
        await cut(bus, archive, len(sealed) - 2)
        assert await bus.events.read(0, 10**6) == records
        assert await bus.decisions.read(0, 10**6) == batches
        end = sealed[0].last_seq
        assert await bus.events.read(end - 3, 10) == records[end - 3 : end + 7]
        while len(seen) < len(records):
            seen += await heard.take(10_000)
        assert seen == records
        await heard.close()

    with_bus(scenario)


def test_two_cutters_at_once_disturb_each_other_and_lose_nothing(archive: Path, with_bus: Any) -> None:
    """Each takes the other's fence for one that was left behind, and opens it, at any of its steps; and somebody writes."""

    async def scenario(bus: Bus, logs: Logs) -> None:
        records, batches = logs
        wanted = await plan(bus.connection, archive, 2)
        assert wanted is not None
        stop, acks, opening = asyncio.Event(), list[int](), list[asyncio.Task[list[str]]]()

        async def publish() -> None:
            while not stop.is_set():
                acks.append((await bus.publisher.publish("ap.ev.ops.note.made", b"%d" % len(acks), f"note-{len(acks)}")).seq)

        def after(_step: str) -> None:
            opening.append(asyncio.create_task(open_again(bus.connection)))

        writing = asyncio.create_task(publish())
        outcomes = await asyncio.gather(*(carry_out(bus.connection, wanted, after) for _ in range(3)), return_exceptions=True)
        await asyncio.gather(*opening)
        stop.set()
        await writing
        assert outcomes == [()] * 3
        assert acks == list(range(len(records) + 1, len(records) + 1 + len(acks)))
        assert await topology.audit(bus.connection) == []
        await bus.events.last_seq()
        found = await bus.events.read(0, 10**6), await bus.decisions.read(0, 10**6)
        assert (found[0][: len(records)], found[1]) == (records, batches)
        assert [record.body for record in found[0][len(records) :]] == [b"%d" % number for number in range(len(acks))]
        assert await kept_record(bus.connection, wanted.open.seqs[0]) == records[wanted.open.seqs[0] - 1].body

    with_bus(scenario)


def test_a_cut_that_was_planned_before_another_went_beyond_its_archive_is_refused(archive: Path, with_bus: Any) -> None:
    """It would declare an archive that does not reach what is left: no process would start on that log again."""

    async def scenario(bus: Bus, logs: Logs) -> None:
        wanted = await plan(bus.connection, archive, 2)
        assert wanted is not None
        day = manifest.load(archive).days[0]
        await carry_out(bus.connection, wanted)
        for stream, cut in zip(STREAMS, (wanted.decisions, wanted.events), strict=True):
            end = end_of(stream, day)
            late = msgspec.structs.replace(cut, cut_seq=end - 1, archived_seq=end, chain=chain_of(stream, (day,)))
            with pytest.raises(LogMismatch, match="was cut beyond"):
                await shorten(bus.connection, stream, late)
        assert await topology.audit(bus.connection) == []
        assert (await bus.events.read(0, 10**6), await bus.decisions.read(0, 10**6)) == logs

    with_bus(scenario)

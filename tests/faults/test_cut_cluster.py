"""A log with three replicas is cut: with all there, with one that dies in the middle, and with the leader that does."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from apportion.adapters.archiving.cutting.carrying import carry_out
from apportion.adapters.archiving.cutting.plan import plan
from apportion.adapters.archiving.writing import write
from apportion.adapters.bus import topology
from apportion.adapters.bus.connection import ApiError, Connection
from apportion.adapters.bus.local import Bus
from apportion.adapters.bus.shortening import STREAMS
from apportion.adapters.cli.main import run
from apportion.adapters.logs.manifest import load
from apportion.core.envelope import Record, StoredBatch
from apportion.core.errors import ApportionError
from tests.archived import played
from tests.faults.cluster import NAMES, Cluster, three_servers

PATIENCE_S = 280.0  # kernels may have to be compiled first, and elections take their time
Logs = tuple[list[Record], list[StoredBatch]]
T = TypeVar("T")


async def patiently(step: Callable[[], Awaitable[T]], timeout_s: float = 60.0) -> T:
    """Try a step until it works: a cluster has no leader for a while after each loss."""
    async with asyncio.timeout(timeout_s):
        while True:
            try:
                return await step()
            except (ApiError, ApportionError, TimeoutError):
                await asyncio.sleep(0.2)


async def current(connection: Connection) -> dict[str, str]:
    """Wait until every replica of both streams is current; return the leaders."""

    async def look() -> dict[str, str]:
        infos = {stream: await topology.stream_info(connection, stream) for stream in STREAMS}
        for info in infos.values():
            if info.lagging or len((info.cluster or {}).get("replicas") or ()) != 2:
                raise TimeoutError
        return {stream: str((info.cluster or {}).get("leader")) for stream, info in infos.items()}

    return await patiently(look, 200.0)


async def whole(bus: Bus) -> Logs:
    return await bus.events.read(0, 10**6), await bus.decisions.read(0, 10**6)


@pytest.fixture
def cluster(tmp_path: Path) -> Any:
    with three_servers(tmp_path) as cluster:
        yield cluster


async def fill(cluster: Cluster, archive: Path) -> Logs:
    """Give the cluster a history and archive it."""
    history = played(7, rough=False, hours=76)
    async with await Connection.open(cluster.url("one"), name="admin") as connection:
        await patiently(lambda: topology.create(connection, replicas=3, max_file_bytes=64 * 1024**2))
        await current(connection)
    async with await Bus.open(cluster.url("one")) as bus:
        await bus.publisher.send_many((record.subject, record.body, f"r{record.seq}") for record in history.records)
        await bus.publisher.flush()
        for batch in history.batches:
            await bus.decisions.commit(batch.body, batch.input_seq, batch.seq - 1)
        await write(bus.events, bus.decisions, archive)
        return await whole(bus)


async def lead(connection: Connection, stream: str, name: str) -> None:
    """Let a server lead a stream."""

    async def step() -> None:
        info = await topology.stream_info(connection, stream)
        if (info.cluster or {}).get("leader") != name:
            await connection.api(f"STREAM.LEADER.STEPDOWN.{stream}", {"placement": {"preferred": name}}, dict[str, object])
            raise TimeoutError

    await patiently(step)


async def check_each(cluster: Cluster, archive: Path, expected: Logs) -> dict[str, list[int]]:
    """Let each server lead, and check that the log is whole; return where the streams begin on each."""
    found = {}
    async with await Connection.open(cluster.url("one"), name="look") as connection:
        await current(connection)
        for name in NAMES:
            for stream in STREAMS:
                await lead(connection, stream, name)
            # one that was away has the settings of then for a second
            async with await patiently(functools.partial(Bus.open, cluster.url(name), archives=(archive,))) as bus:
                assert await whole(bus) == expected
            found[name] = [(await topology.stream_info(connection, stream)).state.first_seq for stream in STREAMS]
    return found


async def written(bus: Bus, logs: Logs, count: int) -> Logs:
    """Write so many records more; return what the logs hold then."""
    records, batches = logs
    for number in range(count):
        ack = await bus.publisher.publish("ap.ev.ops.note.made", b"%d" % number, f"note-{number}")
        assert ack.seq == len(records) + number + 1
    return await bus.events.read(0, 10**6), batches


def test_a_log_with_three_replicas_is_cut_while_somebody_writes(cluster: Cluster, tmp_path: Path, run_async: Any) -> None:
    archive = tmp_path / "archive"

    async def scenario() -> None:
        logs = await fill(cluster, archive)
        day = load(archive).days[1]
        async with await Bus.open(cluster.url("two"), archives=(archive,)) as bus:
            await current(bus.connection)
            wanted = await plan(bus.connection, archive, 2)
            assert wanted is not None
            writing = asyncio.create_task(written(bus, logs, 600))
            assert await carry_out(bus.connection, wanted) == ()
            expected = await writing
        assert len(expected[0]) == len(logs[0]) + 600
        begins = await check_each(cluster, archive, expected)
        assert list(begins.values()) == [[day.last_decision + 1, day.last_seq + 1]] * 3

    run_async(scenario(), PATIENCE_S)


@pytest.mark.slow
@pytest.mark.parametrize("step", ["DECISIONS fenced", "EVENTS fenced", "EVENTS limited"])
@pytest.mark.parametrize("leads", [False, True], ids=["a replica", "the leader"])
def test_a_replica_that_dies_in_a_cut_comes_back_to_a_whole_log(
    cluster: Cluster, tmp_path: Path, run_async: Any, capfd: pytest.CaptureFixture[str], step: str, leads: bool
) -> None:
    """It may have more than was kept, or, with the limit still on its disk, less: the archive has that."""
    archive, told = tmp_path / "archive", list[tuple[str, ...]]()

    async def cut() -> tuple[Logs, str]:
        logs = await fill(cluster, archive)
        async with await Bus.open(cluster.url("one")) as bus:
            leaders = await current(bus.connection)
        leader = leaders[step.split()[0]]
        victim = leader if leads else next(name for name in NAMES if name not in leaders.values())
        async with await Connection.open(cluster.url(next(name for name in NAMES if name != victim)), name="cut") as connection:
            wanted = await plan(connection, archive, 2)
            assert wanted is not None
            with contextlib.suppress(TimeoutError, ApiError):  # an election; the verb finishes it
                told.append(await carry_out(connection, wanted, lambda reached: cluster.kill(victim) if reached == step else None))
        return logs, victim

    async def more(logs: Logs) -> Logs:
        async with await patiently(lambda: Bus.open(cluster.url(near), archives=(archive,))) as bus:
            return await written(bus, logs, 300)

    async def back() -> None:
        async with await Connection.open(cluster.url(victim), name="look") as connection:
            await current(connection)

    def verb(name: str) -> int:
        return run(["archive", "cut", str(archive), "--keep", "2", "--server", cluster.url(name), "--json"])

    logs, victim = run_async(cut(), PATIENCE_S)
    near, day = next(name for name in NAMES if name != victim), load(archive).days[1]
    if told:
        assert told == [(victim,)]
    else:
        assert verb(near) == 1  # it takes the fence away, and goes no further without a replica
        assert "replicas" in capfd.readouterr().err
    logs = run_async(more(logs), PATIENCE_S)
    cluster.start(victim)
    run_async(back(), PATIENCE_S)
    assert verb(victim) == 0, capfd.readouterr().err

    begins = run_async(check_each(cluster, archive, logs), PATIENCE_S)

    assert all(begun <= [day.last_decision + 1, day.last_seq + 1] for name, begun in begins.items() if name != victim)
    if told and step == "EVENTS limited":
        assert begins[victim][1] > day.last_seq + 100, "what a replica drops more was the reason for the archive to reach further"

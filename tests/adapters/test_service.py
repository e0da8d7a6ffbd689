"""The scheduler process over logs in memory and over a real server: leading, restarting, standing by, refusing to start."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from apportion.adapters.bus.local import Bus
from apportion.adapters.bus.server import EmbeddedServer
from apportion.adapters.logs.memory import MemoryDecisionLog, MemoryEventLog, MemoryPublisher
from apportion.adapters.past.snapshots import DiskSnapshots
from apportion.adapters.service import SchedulerService, Settings
from apportion.adapters.service.ticking import wall_ms
from apportion.core.decisions import RunPlaced, decode_batch
from apportion.core.engine import Core
from apportion.core.envelope import StoredBatch
from apportion.core.errors import ApportionError, Divergence, Fenced, LogMismatch
from apportion.core.reasons import TickWhy

Open = Callable[[], contextlib.AbstractAsyncContextManager["Place"]]
Event = tuple[str, bytes, str]


@dataclass
class Place:
    """Logs, a way to publish, and a way to make services on them."""

    events: Any
    decisions: Any
    publisher: Any
    snapshots: DiskSnapshots
    connect: Callable[[], Coroutine[Any, Any, tuple[Any, Any, Any]]]

    async def service(self, **options: Any) -> SchedulerService:
        events, decisions, publisher = await self.connect()
        options.setdefault("snapshots", self.snapshots)
        return SchedulerService(events, decisions, publisher, **options)

    async def publish(self, *events: Event) -> int:
        seq = 0
        for subject, body, event_id in events:
            seq = (await self.publisher.publish(subject, body, event_id))[0]
        return seq


@pytest.fixture(params=["memory", "nats"])
def open_place(
    request: pytest.FixtureRequest, tmp_path: Path, start_nats: Callable[..., EmbeddedServer]
) -> Callable[[], contextlib.AbstractAsyncContextManager[Place]]:
    snapshots = DiskSnapshots(tmp_path / "snapshots")

    @contextlib.asynccontextmanager
    async def memory() -> AsyncIterator[Place]:
        events, decisions = MemoryEventLog(wall_ms), MemoryDecisionLog()
        publisher = MemoryPublisher(events)

        async def connect() -> tuple[Any, Any, Any]:
            return events, decisions, publisher

        yield Place(events, decisions, publisher, snapshots, connect)

    @contextlib.asynccontextmanager
    async def nats() -> AsyncIterator[Place]:
        url = start_nats().url
        async with contextlib.AsyncExitStack() as stack:
            bus = await stack.enter_async_context(await Bus.open(url, create=True))

            async def connect() -> tuple[Any, Any, Any]:
                other = await stack.enter_async_context(await Bus.open(url))
                return other.events, other.decisions, other.publisher

            yield Place(bus.events, bus.decisions, bus.publisher, snapshots, connect)

    return {"memory": memory, "nats": nats}[request.param]


@contextlib.asynccontextmanager
async def running(service: SchedulerService) -> AsyncIterator[SchedulerService]:
    """Run the service until the block ends, then stop it cleanly; its errors come out here."""
    task = asyncio.create_task(service.run())
    ready = asyncio.create_task(service.ready.wait())
    await asyncio.wait([task, ready], return_when=asyncio.FIRST_COMPLETED, timeout=30)
    ready.cancel()
    if task.done():
        task.result()
    try:
        yield service
    finally:
        service.stop()
        await asyncio.wait_for(task, 30)


async def until(condition: Callable[[], bool], timeout_s: float = 20.0) -> None:
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(0.005)


async def settled(service: SchedulerService, place: Place, timeout_s: float = 20.0) -> None:
    """Wait until the service has read and decided everything."""
    async with asyncio.timeout(timeout_s):
        while service.core.dirty or service.core.tick_pending or service.core.seq < await place.events.last_seq():
            await asyncio.sleep(0.005)


def placed(batches: list[StoredBatch]) -> list[str]:
    return [one.workload for batch in batches for one in decode_batch(batch.body).decisions if isinstance(one, RunPlaced)]


async def everything(log: Any) -> list[Any]:
    items: list[Any] = []
    while more := await log.read(items[-1].seq if items else 0, 1_000):
        items += more
    return items


async def replayed(place: Place) -> Core:
    """Derive everything again from the first record; any difference raises."""
    core, position = Core.new(), 0
    batches = await everything(place.decisions)
    for record in await everything(place.events):
        if core.fold(record):
            core.verify(batches[position].body)
            position += 1
    assert position == len(batches)
    return core


class TestLeading:
    """The leader decides what arrives, and acts on nothing that is not stored."""

    def test_submissions_are_placed_and_seen_only_when_stored(self, open_place: Open, run_async: Any, script: Any) -> None:
        async def scenario() -> None:
            async with open_place() as place:
                seen: list[StoredBatch] = []
                missing: list[int] = []

                async def look(batch: StoredBatch) -> None:
                    seen.append(batch)
                    if await place.decisions.last_seq() < batch.seq:
                        missing.append(batch.seq)

                service = await place.service()
                service.on_batch(look)
                async with running(service):
                    await place.publish(*script.opening())
                    for number in range(5):
                        await place.publish(script.submission(f"w{number}"))
                    await until(lambda: len(placed(seen)) == 5)

                assert placed(seen) == [f"w{number}" for number in range(5)]
                assert not missing
                assert [batch.body for batch in await everything(place.decisions)] == [batch.body for batch in seen]
                assert (await replayed(place)).digest() == service.core.digest()

        run_async(scenario())

    def test_a_burst_shares_cycles_and_nothing_is_left_over(self, open_place: Open, run_async: Any, script: Any) -> None:
        async def scenario() -> None:
            async with open_place() as place:
                service = await place.service()
                async with running(service):
                    await place.publish(*script.opening(nodes=8))
                    await asyncio.gather(*(place.publish(script.submission(f"w{number}")) for number in range(60)))
                    await place.publish(script.submission("last"))
                    await settled(service, place)

                batches = await everything(place.decisions)
                assert len(placed(batches)) == 61
                assert len(batches) < 61
                assert (await replayed(place)).digest() == service.core.digest()

        run_async(scenario())

    def test_a_failing_callback_stops_nobody(self, open_place: Open, run_async: Any, script: Any) -> None:
        async def scenario() -> None:
            async with open_place() as place:
                service = await place.service()
                seen: list[StoredBatch] = []
                service.on_batch(lambda _batch: 1 // 0)
                service.on_batch(seen.append)
                async with running(service):
                    await place.publish(*script.opening(), script.submission("w"))
                    await until(lambda: placed(seen) == ["w"])

        run_async(scenario())

    def test_a_principal_that_may_not_tick_is_told_so(self, open_place: Open, run_async: Any, script: Any) -> None:
        async def scenario() -> None:
            async with open_place() as place:
                await place.publish(*script.opening())
                service = await place.service(settings=Settings(principal="nobody"))
                with pytest.raises(ApportionError, match=r"'nobody' at seq \d+ was refused"):
                    await asyncio.wait_for(service.run(), 20)

        run_async(scenario())

    def test_a_log_that_is_not_opened_gets_no_tick(self, open_place: Open, run_async: Any, script: Any) -> None:
        async def scenario() -> None:
            async with open_place() as place:
                service = await place.service()
                async with running(service):
                    last = await place.publish(script.submission("early"))
                    await until(lambda: service.core.seq == last)
                    assert service.core.dirty
                    await asyncio.sleep(0.05)
                assert await place.events.last_seq() == last

        run_async(scenario())


class TestStatedTime:
    """A driver writes the ticks, at times it states."""

    def test_driver_ticks_and_gets_the_batch(self, open_place: Open, run_async: Any, stated_script: Any) -> None:
        async def scenario() -> None:
            async with open_place() as place:
                service = await place.service()
                async with running(service):
                    await place.publish(*stated_script.opening(), stated_script.submission("w"))
                    first = await service.tick(1_060_000, TickWhy.DIRTY)
                    second = await service.tick(1_120_000)
                    assert placed([first]) == ["w"]
                    assert [decode_batch(batch.body).time_ms for batch in (first, second)] == [1_060_000, 1_120_000]
                    assert [batch.seq for batch in await everything(place.decisions)] == [1, 2]
                with pytest.raises(ApportionError, match="ended"):
                    await service.tick(1_180_000)

        run_async(scenario())

    def test_refused_tick_is_an_error_for_the_driver(self, open_place: Open, run_async: Any, stated_script: Any) -> None:
        async def scenario() -> None:
            async with open_place() as place:
                await place.publish(*stated_script.opening())
                service = await place.service(settings=Settings(principal="nobody"))
                async with running(service):
                    with pytest.raises(ApportionError, match="nobody"):
                        await service.tick(1_060_000)

        run_async(scenario())


class TestRestarting:
    """What was decided stays decided; what was not is decided now, once."""

    def test_goes_on_from_its_snapshot_with_the_same_state(self, open_place: Open, run_async: Any, script: Any) -> None:
        async def scenario() -> None:
            async with open_place() as place:
                service = await place.service()
                async with running(service):
                    await place.publish(*script.opening(), script.submission("w0"))
                    await settled(service, place)
                assert place.snapshots.seqs()
                await place.publish(script.submission("w1"), script.submission("w2"))

                again = await place.service()
                async with running(again):
                    await settled(again, place)
                    assert len(again.core.state.run) == 3

                assert (await replayed(place)).digest() == again.core.digest()

        run_async(scenario())

    def test_snapshots_at_any_moment_lead_to_the_same_state(
        self, open_place: Open, run_async: Any, script: Any, tmp_path: Path
    ) -> None:
        async def scenario() -> None:
            async with open_place() as place:
                store = DiskSnapshots(tmp_path / "often", keep=1_000)
                service = await place.service(snapshots=store, settings=Settings(snapshot_every_records=1))
                async with running(service):
                    await place.publish(*script.opening())
                    for number in range(10):
                        seq = await place.publish(script.submission(f"w{number}"), script.heartbeat(number % 2, 10 + number))
                        await until(lambda last=seq: service.core.seq >= last)  # type: ignore[misc]
                    await settled(service, place)
                digest = (await replayed(place)).digest()
                seqs = store.seqs()
                assert len(seqs) >= 5
                for seq in seqs:
                    only = DiskSnapshots(tmp_path / f"from-{seq}")
                    meta, data = store.load_with_meta(seq) or pytest.fail("a snapshot is damaged")
                    only.save(seq, data, record_hash=meta.record_hash, decision_seq=meta.decision_seq)
                    again = await place.service(snapshots=only, role="standby")
                    async with running(again):
                        await until(lambda one=again: one.core.seq == service.core.seq)  # type: ignore[misc]
                    assert again.core.digest() == digest

        run_async(scenario())

    @pytest.mark.parametrize("others", [0, 3], ids=["at the end", "with records behind it"])
    def test_a_tick_left_undecided_is_decided_at_the_next_start(
        self, open_place: Open, run_async: Any, stated_script: Any, others: int
    ) -> None:
        async def scenario() -> None:
            async with open_place() as place:
                service = await place.service()
                async with running(service):
                    await place.publish(*stated_script.opening(), stated_script.submission("w"))
                    await service.tick(1_060_000)
                # A leader wrote its tick and died before it could commit; the world went on.
                await place.publish(stated_script.submission("v"))
                tick = stated_script.event("core", _tick())
                last = await place.publish(tick, *(stated_script.submission(f"x{number}") for number in range(others)))

                again = await place.service()
                async with running(again):
                    await until(lambda: again.core.cycle == 2 and again.core.seq == last)

                assert placed(await everything(place.decisions)) == ["w", "v"]
                assert (await replayed(place)).digest() == again.core.digest()

        run_async(scenario())

    def test_snapshot_that_cannot_be_used_is_passed_over(self, open_place: Open, run_async: Any, script: Any) -> None:
        async def scenario() -> None:
            async with open_place() as place:
                service = await place.service()
                async with running(service):
                    await place.publish(*script.opening(), script.submission("w"))
                    await settled(service, place)
                last = service.core.seq
                place.snapshots.save(last, b"the state of another program")

                again = await place.service(role="standby")
                async with running(again):
                    await until(lambda: again.core.seq == last)
                assert again.core.digest() == service.core.digest()

        run_async(scenario())


class TestStandingBy:
    """A standby checks every batch, writes nothing, and can lead at any moment."""

    def test_verifies_and_takes_over(self, open_place: Open, run_async: Any, script: Any) -> None:
        async def scenario() -> None:
            async with open_place() as place:
                leader, standby = await place.service(), await place.service(role="standby", snapshots=None)
                async with running(standby):
                    async with running(leader):
                        await place.publish(*script.opening(), script.submission("w0"))
                        await until(lambda: len(standby.core.state.run) == 1 and standby.core.seq == leader.core.seq)
                    assert standby.core.digest() == leader.core.digest()
                    last = await place.publish(script.submission("w1"))
                    await until(lambda: standby.core.seq == last)
                    await asyncio.sleep(0.05)
                    assert await place.events.last_seq() == last  # it wrote nothing
                    standby.promote()
                    await until(lambda: len(standby.core.state.run) == 2)

                assert placed(await everything(place.decisions)) == ["w0", "w1"]
                assert (await replayed(place)).digest() == standby.core.digest()

        run_async(scenario())

    @pytest.mark.parametrize("tick_written", [False, True], ids=["dirty", "tick written"])
    def test_takes_over_by_itself_when_nothing_is_decided(
        self, open_place: Open, run_async: Any, script: Any, tick_written: bool
    ) -> None:
        async def scenario() -> None:
            async with open_place() as place:
                await place.publish(*script.opening(), script.submission("w"))
                if tick_written:
                    await place.publish(script.event("core", _tick()))
                standby = await place.service(role="standby", settings=Settings(takeover_after_s=0.1))
                async with running(standby):
                    await until(lambda: len(standby.core.state.run) == 1)
                assert placed(await everything(place.decisions)) == ["w"]

        run_async(scenario())

    def test_stops_at_a_batch_it_does_not_derive(self, open_place: Open, run_async: Any, stated_script: Any) -> None:
        async def scenario() -> None:
            async with open_place() as place:
                leader, standby = await place.service(), await place.service(role="standby", snapshots=None)
                async with running(leader):
                    await place.publish(*stated_script.opening(), stated_script.submission("w"))
                    good = (await leader.tick(1_060_000)).body
                task = asyncio.create_task(standby.run())
                await until(lambda: standby.core.cycle == 1)
                tick_seq = await place.publish(stated_script.event("core", _tick()))
                await place.decisions.commit(good, tick_seq, 1)
                with pytest.raises(Divergence):
                    await asyncio.wait_for(task, 20)

        run_async(scenario())

    def test_leader_is_fenced_by_other_bytes(self, open_place: Open, run_async: Any, stated_script: Any) -> None:
        async def scenario() -> None:
            async with open_place() as place:
                service = await place.service()
                task = asyncio.create_task(service.run())
                await service.ready.wait()
                await place.publish(*stated_script.opening())
                await service.tick(1_060_000)
                await place.decisions.commit(b"other bytes", 999, 1)
                with pytest.raises(ApportionError, match="ended"):
                    await service.tick(1_120_000)
                with pytest.raises(Fenced):
                    await asyncio.wait_for(task, 20)
                assert len(await everything(place.decisions)) == 2

        run_async(scenario())


class TestLogProtection:
    """A core refuses to continue on a log that is not the one it knows."""

    def test_refuses_every_wrong_log(self, open_place: Open, run_async: Any, stated_script: Any, tmp_path: Path) -> None:
        async def scenario() -> None:
            async with open_place() as place:
                service = await place.service()
                async with running(service):
                    await place.publish(*stated_script.opening(), stated_script.submission("w"))
                    await service.tick(1_060_000)
                    await service.tick(1_120_000)
                meta, data = place.snapshots.load_with_meta() or pytest.fail("no snapshot")
                for number, (seq, record_hash, decision_seq, complaint) in enumerate([
                    (meta.seq + 1, meta.record_hash, 2, "EVENTS ends at seq"),
                    (meta.seq, "0" * 32, 2, "another record at seq"),
                    (meta.seq, meta.record_hash, 3, "DECISIONS ends at seq 2"),
                ]):
                    store = DiskSnapshots(tmp_path / f"wrong-{number}")
                    store.save(seq, data, record_hash=record_hash, decision_seq=decision_seq)
                    with pytest.raises(LogMismatch, match=complaint):
                        await asyncio.wait_for((await place.service(snapshots=store)).run(), 20)

        run_async(scenario())

    def test_refuses_decisions_about_records_that_are_gone(
        self, open_place: Open, run_async: Any, stated_script: Any
    ) -> None:
        async def scenario() -> None:
            async with open_place() as place:
                await place.publish(*stated_script.opening())
                await place.decisions.commit(b"{}", 500, 0)
                for role in ("leader", "standby"):
                    with pytest.raises(LogMismatch, match="answers the tick at seq 500"):
                        await asyncio.wait_for((await place.service(role=role)).run(), 20)

        run_async(scenario())


def _tick() -> Any:
    from apportion.core.events import ClockTick

    return ClockTick(why="dirty")

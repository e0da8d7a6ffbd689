"""Cutting the live log behind its archive, on a real server: what goes, what is refused, and that all of it can still be read."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from apportion.adapters.archiving.cutting.carrying import carry_out
from apportion.adapters.archiving.cutting.plan import CutRefused, Plan, plan
from apportion.adapters.archiving.cutting.proof import prove
from apportion.adapters.archiving.writing import write
from apportion.adapters.bus import topology
from apportion.adapters.bus.archived import ArchiveMissing, joined_decisions, joined_events
from apportion.adapters.bus.cut import declared
from apportion.adapters.bus.kept import kept_record, kept_submission
from apportion.adapters.bus.local import Bus
from apportion.adapters.bus.server import EmbeddedServer
from apportion.adapters.bus.topology import TopologyError
from apportion.adapters.cli.main import run
from apportion.adapters.logs.manifest import load
from apportion.adapters.past.replaying import state_and_position, state_at
from apportion.adapters.past.snapshots import DiskSnapshots, WithArchived, record_hash
from apportion.adapters.past.verifying import verify
from apportion.adapters.projector.building import open_or_build
from apportion.adapters.service import SchedulerService, Settings
from apportion.adapters.service.recovery import restore
from apportion.core.engine import Core
from apportion.core.envelope import Record, StoredBatch
from apportion.core.errors import LogGap, LogMismatch
from apportion.projections.runner import Projection
from tests.archived import played

SEED, HOURS = 7, 76  # parts of five days on one node; jobs of the second are still open at the end

PATIENCE_S = 240.0  # kernels may have to be compiled first


async def fill(bus: Bus) -> None:
    """Give a server the records and the batches of a history."""
    history = played(SEED, rough=False, hours=HOURS)
    await bus.publisher.send_many((record.subject, record.body, f"r{record.seq}") for record in history.records)
    await bus.publisher.flush()
    for batch in history.batches:
        await bus.decisions.commit(batch.body, batch.input_seq, batch.seq - 1)


async def whole(bus: Bus) -> tuple[list[Record], list[StoredBatch]]:
    """Return all that the logs hold."""
    return await bus.events.read(0, 10**6), await bus.decisions.read(0, 10**6)


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    return tmp_path / "nats" / "archive"


@pytest.fixture
def log(nats_server: EmbeddedServer, archive: Path, run_async: Any) -> tuple[list[Record], list[StoredBatch]]:
    """A server with a history, archived; returns what its logs hold."""

    async def make() -> tuple[list[Record], list[StoredBatch]]:
        async with await Bus.open(nats_server.url, create=True) as bus:
            await fill(bus)
            await write(bus.events, bus.decisions, archive)
            return await whole(bus)

    return run_async(make(), PATIENCE_S)  # type: ignore[no-any-return]  # what it makes


@pytest.fixture
def with_bus(nats_server: EmbeddedServer, archive: Path, run_async: Any) -> Callable[[Callable[[Bus], Any]], Any]:
    """Return ``with_bus(work)``: what ``work(bus)`` returns, on a connection of its own that knows the archive."""

    def act(work: Callable[[Bus], Any]) -> Any:
        async def opened() -> Any:
            async with await Bus.open(nats_server.url, archives=(archive,)) as bus:
                return await work(bus)

        return run_async(opened(), PATIENCE_S)

    return act


@pytest.fixture
def told(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """Return ``told(verb, ..., code=0)``: what the command prints as JSON."""

    def run_verb(*arguments: str, code: int = 0) -> Any:
        assert run([*arguments, "--dir", str(tmp_path / "nats"), "--json"]) == code, capfd.readouterr().err
        captured = capfd.readouterr()
        return json.loads(captured.out if code == 0 else captured.err)

    return run_verb


async def cut_now(bus: Bus, archive: Path, keep: int = 2) -> Plan:
    wanted = await plan(bus.connection, archive, keep)
    assert wanted is not None
    await prove(bus.connection, wanted)
    await carry_out(bus.connection, wanted)
    return wanted


def test_a_cut_drops_what_it_said_and_nothing_is_lost(log: Any, archive: Path, told: Any, with_bus: Any) -> None:
    records, batches = log
    last_day = load(archive).days[1]

    async def infos(bus: Bus) -> list[topology.StreamInfo]:
        return [await topology.stream_info(bus.connection, stream) for stream in ("EVENTS", "DECISIONS")]

    before = with_bus(infos)
    dry = told("archive", "cut", "--keep", "2", "--dry-run")
    assert [info.state for info in with_bus(infos)] == [info.state for info in before]
    assert (dry["cut"], dry["up_to_day"], dry["days"], dry["records"]) == (False, last_day.day, 2, last_day.last_seq)
    assert dry["bytes"] == sum(len(one.subject) + len(one.body) for one in records[: last_day.last_seq]) + sum(
        len(one.body) for one in batches if one.seq <= last_day.last_decision
    )
    assert dry["kept_submissions"] == dry["open_jobs"] > 0

    done = told("archive", "cut", "--keep", "2")
    assert {name: done[name] for name in ("cut_seq", "cut_decision", "records", "bytes", "snapshots")} == {
        name: dry[name] for name in ("cut_seq", "cut_decision", "records", "bytes", "snapshots")
    }
    after = with_bus(infos)
    assert [info.state.first_seq for info in after] == [last_day.last_seq + 1, last_day.last_decision + 1]
    assert [info.state.last_seq for info in after] == [len(records), batches[-1].seq]
    for was, now in zip(before, after, strict=True):
        cut = declared(now.config)
        assert cut is not None
        assert cut.log_id == "simulated-7"
        settings = {name: value for name, value in now.config.items() if name != "metadata"}
        assert settings == {name: value for name, value in was.config.items() if name != "metadata"}
    assert with_bus(whole) == log
    assert told("archive", "cut", "--keep", "5")["cut"] is False
    assert told("archive", "cut", "--keep", "2")["cut"] is False
    assert told("archive", "thin", "--keep", "2")["thinned"] == [], "the first day stays, and the one that was cut at"


def test_every_verb_reads_across_the_seam(log: Any, archive: Path, told: Any) -> None:
    end = load(archive).days[1].last_seq
    asked: list[tuple[str, ...]] = [
        ("verify",), ("verify", "--from", "0", "--to", str(end - 5)), ("verify", "--to", str(end + 1), "--workers", "1"),
        ("replay", "--seq", str(end - 50), "--from-start"), ("replay", "--seq", str(end + 50), "--from-start"),
        ("events", "show", "1"), ("events", "show", str(end)), ("events", "show", str(end + 1)), ("cycle", "3"),
        ("audit", "--from-log"),
    ]  # fmt: skip
    timing = ("wall_ms", "as_of")

    def answers() -> list[Any]:
        return [{name: value for name, value in told(*verb).items() if name not in timing} for verb in asked]

    before = answers()
    told("archive", "cut", "--keep", "2")

    assert answers() == before


def test_a_core_starts_from_its_snapshot_and_from_the_archives(log: Any, archive: Path, with_bus: Any, tmp_path: Path) -> None:
    records, _batches = log

    async def starts(bus: Bus) -> None:
        await cut_now(bus, archive)
        day = load(archive).days[2]
        state = DiskSnapshots(archive / "snapshots").load(day.last_seq)
        assert state is not None
        own = DiskSnapshots(tmp_path / "own")
        known_by = record_hash(records[day.last_seq - 1].subject, records[day.last_seq - 1].body)
        own.save(day.last_seq, state[1], record_hash=known_by, decision_seq=day.last_decision)
        start = await restore(bus.events, bus.decisions, own)
        assert (start.core.seq, start.decision_seq) == (day.last_seq, day.last_decision)

        behind = await bus.events.behind()
        assert behind is not None
        empty = WithArchived(DiskSnapshots(tmp_path / "empty"), DiskSnapshots(behind.directory / "snapshots"))
        start = await restore(bus.events, bus.decisions, empty)
        assert start.core.seq == load(archive).sealed[-1].last_seq
        begun = await restore(bus.events, bus.decisions, None)  # without any: the archive is read from its first record
        assert begun.core.seq == 0
        assert await bus.events.read(0, 5) == records[:5]

    with_bus(starts)


def test_a_core_that_runs_decides_on_and_one_that_starts_later_agrees(
    log: Any, nats_server: EmbeddedServer, archive: Path, with_bus: Any, tmp_path: Path
) -> None:
    records, _batches = log

    async def started(service: SchedulerService) -> asyncio.Task[None]:
        task = asyncio.create_task(service.run())
        ready = asyncio.create_task(service.ready.wait())
        await asyncio.wait((task, ready), return_when=asyncio.FIRST_COMPLETED)
        assert service.ready.is_set(), task
        return task

    async def decide_on(bus: Bus) -> None:
        first = SchedulerService(bus.events, bus.decisions, bus.publisher, DiskSnapshots(tmp_path / "own"))
        task = await started(first)
        await cut_now(bus, archive)
        batch = await first.tick(first.core.time_ms + 600_000)
        assert batch.input_seq == len(records) + 1
        first.stop()
        await task
        archived = WithArchived(DiskSnapshots(tmp_path / "none"), DiskSnapshots(archive / "snapshots"))
        for snapshots in (DiskSnapshots(tmp_path / "own"), archived, None):
            async with await Bus.open(nats_server.url, archives=(archive,)) as other:
                again = Settings(verify_from_start=True)
                later = SchedulerService(other.events, other.decisions, other.publisher, snapshots, role="standby", settings=again)
                task = await started(later)
                assert (later.core.seq, later.core.digest()) == (first.core.seq, first.core.digest())
                later.stop()
                await task

    with_bus(decide_on)


def test_replays_through_the_archive_are_the_naive_ones(log: Any, archive: Path, with_bus: Any) -> None:
    """As columns of the archive up to the seam, then record by record: the same state as record by record alone."""
    records, batches = log

    async def replay(bus: Bus) -> None:
        wanted = await cut_now(bus, archive)
        seam, expected, core = wanted.events.cut_seq, {}, Core.new()
        ends = [seam - 400, seam - 1, seam, seam + 1, seam + 300, len(records)]
        answers = {batch.input_seq: batch.body for batch in batches}
        for record in records:
            if core.fold(record):
                core.trust(answers[record.seq])
            if record.seq in ends:
                expected[record.seq] = core.digest()
        start = DiskSnapshots(archive / "snapshots").load(load(archive).days[0].last_seq)
        assert start is not None
        for end in ends:
            for snapshot in (None, start[1]):
                events, decisions = joined_events(bus.connection, (archive,)), joined_decisions(bus.connection, (archive,))
                core, position = await state_and_position(events, decisions, end, snapshot)
                assert (core.seq, core.digest()) == (end, expected[end])
                assert position == max(batch.seq for batch in batches if batch.input_seq <= end)
                derived = await verify(events, decisions, snapshot, to_seq=end)
                assert (derived.ok, derived.digest) == (True, expected[end])
                await events.close()
                await decisions.close()

    with_bus(replay)


def test_a_projection_goes_on_and_is_built_anew(log: Any, archive: Path, with_bus: Any, tmp_path: Path) -> None:
    def rows(projection: Projection) -> Any:
        projection.refresh()
        found = projection.con.execute("select count(*), sum(seq) from fact.cycle").fetchall()
        return projection.position.seq, found, projection.position

    async def build(bus: Bus) -> None:
        first = await open_or_build(tmp_path / "first.duckdb", bus.events, bus.decisions)
        expected = rows(first)
        first.close()
        await cut_now(bus, archive)
        for name, rebuild in (("first", False), ("first", True), ("second", False)):
            projection = await open_or_build(tmp_path / f"{name}.duckdb", bus.events, bus.decisions, rebuild=rebuild)
            assert rows(projection) == expected
            projection.close()

    with_bus(build)


def test_submissions_of_open_jobs_are_kept_for_agents(log: Any, archive: Path, with_bus: Any) -> None:
    records, _batches = log

    async def look(bus: Bus) -> None:
        wanted = await cut_now(bus, archive)
        core = await state_at(bus.events, bus.decisions, len(records))
        table = core.state.workload
        open_now = {table.keys[row]: int(table.event_seq[row]) for row in table.live_rows()}
        before = {name: seq for name, seq in open_now.items() if seq <= wanted.events.cut_seq}
        assert before
        for name, seq in before.items():
            assert await kept_submission(bus.connection, name) == seq
            assert await kept_record(bus.connection, seq) == records[seq - 1].body

    with_bus(look)


def test_readers_that_were_at_work_notice_nothing(log: Any, archive: Path, with_bus: Any) -> None:
    records, batches = log

    async def read_on(bus: Bus) -> None:
        slow, quick = bus.events.tail(0), bus.events.tail(len(records) - 1)
        seen = await slow.take(100)
        assert (await quick.take(1))[0] == records[-1]
        wanted = await plan(bus.connection, archive, 2)
        assert wanted is not None
        await carry_out(bus.connection, wanted)
        while len(seen) < len(records):
            seen += await slow.take(1_000)
        assert seen == records
        late = bus.decisions.tail(0)
        heard: list[StoredBatch] = []
        while len(heard) < len(batches):
            heard += await late.take(50)
        assert heard == batches
        assert await bus.events.body_at(1) == records[0].body
        await bus.publisher.publish("ap.ev.ops.note.made", b"{}", "after-the-cut")
        assert (await quick.take(10))[0].seq == len(records) + 1
        for tail in (slow, quick, late):
            await tail.close()

    with_bus(read_on)


def test_who_writes_meanwhile_waits_and_loses_nothing(log: Any, archive: Path, with_bus: Any) -> None:
    records, batches = log

    async def written(bus: Bus) -> None:
        wanted = await plan(bus.connection, archive, 2)
        assert wanted is not None
        stop = asyncio.Event()

        async def publish() -> list[int]:
            acks = []
            while not stop.is_set():
                acks.append((await bus.publisher.publish("ap.ev.ops.note.made", b"%d" % len(acks), f"note-{len(acks)}")).seq)
            return acks

        async def commit() -> list[int]:
            seqs = [batches[-1].seq]
            while not stop.is_set():
                seqs.append(await bus.decisions.commit(b'{"more":%d}' % len(seqs), len(records) + len(seqs), seqs[-1]))
            return seqs[1:]

        writing = asyncio.create_task(publish()), asyncio.create_task(commit())
        await asyncio.sleep(0.1)
        await carry_out(bus.connection, wanted)
        await asyncio.sleep(0.1)
        stop.set()
        acks, seqs = await asyncio.gather(*writing)
        assert acks == list(range(len(records) + 1, len(records) + 1 + len(acks)))
        assert seqs == list(range(batches[-1].seq + 1, batches[-1].seq + 1 + len(seqs)))
        found_records, found_batches = await whole(bus)
        assert found_records[: len(records)] == records
        assert [record.body for record in found_records[len(records) :]] == [b"%d" % number for number in range(len(acks))]
        assert found_batches[: len(batches)] == batches
        assert len(found_batches) == len(batches) + len(seqs)

    with_bus(written)


def test_without_its_archive_nothing_reads_what_was_cut(
    log: Any, archive: Path, with_bus: Any, told: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records, _batches = log
    told("archive", "cut", "--keep", "2")
    elsewhere = archive.rename(tmp_path / "elsewhere")

    async def refused(bus: Bus) -> None:
        with pytest.raises(ArchiveMissing, match="APPORTION_ARCHIVE"):
            await bus.events.read(0, 10)
        with pytest.raises(ArchiveMissing, match="DECISIONS was cut"):
            await bus.decisions.tail(0).take(1)
        assert (await bus.events.read(len(records) - 1, 5))[0].seq == len(records)  # beyond the cut nobody needs it

    with_bus(refused)
    assert "is no archive" in told("events", "show", "1", code=1)["error"]["what"]
    monkeypatch.setenv("APPORTION_ARCHIVE", str(elsewhere))
    assert told("events", "show", "1")["type"] == "log.opened"

    async def other(bus: Bus) -> None:
        shutil.copytree(elsewhere, archive)
        text = (archive / "archive.json").read_text()
        (archive / "archive.json").write_text(text.replace(load(archive).days[-1].events[-1].hash, "0" * 64))
        with pytest.raises(LogMismatch, match="archive of another log"):
            await bus.events.read(0, 10)

    with_bus(other)


def test_a_stream_that_was_cut_by_others_is_refused(
    log: Any, nats_server: EmbeddedServer, with_bus: Any, run_async: Any, told: Any
) -> None:
    async def limit(bus: Bus) -> None:
        info = await topology.stream_info(bus.connection, "EVENTS")
        for config in ({**info.config, "discard": "old", "max_msgs": 100}, info.config):
            await bus.connection.api("STREAM.UPDATE.EVENTS", config, topology.StreamInfo)
        with pytest.raises(LogGap):
            await bus.events.read(0, 10)

    with_bus(limit)
    with pytest.raises(TopologyError, match="no cut is declared"):
        run_async(Bus.open(nats_server.url))
    assert "no cut is declared" in told("archive", "cut", code=1)["error"]["what"]


def test_what_a_cut_rests_on_is_checked(log: Any, archive: Path, with_bus: Any, tmp_path: Path) -> None:
    sound = tmp_path / "sound"
    shutil.copytree(archive, sound)
    day, pair = load(archive).days[0], load(archive).days[-2:]

    def flipped(path: Path) -> None:
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 4
        path.write_bytes(bytes(content))

    async def refused(bus: Bus, match: str) -> None:
        with pytest.raises((CutRefused, LogMismatch), match=match):
            await cut_now(bus, archive)
        assert (await topology.stream_info(bus.connection, "EVENTS")).state.first_seq == 1
        shutil.rmtree(archive)
        shutil.copytree(sound, archive)

    async def all_of_them(bus: Bus) -> None:
        flipped(archive / day.events[0].name)
        await refused(bus, "hash")
        flipped(archive / day.decisions[0].name)
        await refused(bus, "hash")
        for entry in pair:
            assert entry.snapshot is not None
            flipped(archive / entry.snapshot.name)
            await refused(bus, "not the file that was written")
        (archive / "archive.json").unlink()
        await refused(bus, "is no archive")
        slow = {"name": "slow", "deliver_policy": "all", "ack_policy": "none", "inactive_threshold": 60_000_000_000}
        await bus.connection.api("CONSUMER.CREATE.EVENTS.slow", {"stream_name": "EVENTS", "config": slow}, dict)
        await refused(bus, r"a reader of EVENTS \(slow\) is at seq 0")

    with_bus(all_of_them)


def test_another_log_in_the_archive_is_found_before_anything_goes(log: Any, archive: Path, start_nats: Any, run_async: Any) -> None:
    """The same events, published again, are other records: their stored times differ."""

    async def other() -> None:
        async with await Bus.open(start_nats("other").url, create=True) as bus:
            await asyncio.sleep(0.01)
            await fill(bus)
            with pytest.raises(CutRefused, match="EVENTS differ at seq 1"):
                await cut_now(bus, archive)
            assert (await topology.stream_info(bus.connection, "EVENTS")).state.first_seq == 1

    run_async(other())

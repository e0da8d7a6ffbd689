"""The projector over a real server: it follows, answers, publishes copies, and is replaced when its file is no good."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import duckdb
import pytest

from apportion.adapters.bus.local import Bus
from apportion.adapters.bus.server import EmbeddedServer
from apportion.adapters.processes.home import Home
from apportion.adapters.projector import answering
from apportion.adapters.projector.asking import NoAnswer, ask
from apportion.adapters.projector.building import feed, open_or_build
from apportion.adapters.projector.process import Projector
from apportion.adapters.simulation.driver import Logs
from apportion.core.errors import LogMismatch
from apportion.projections import audit, storage
from apportion.projections.digest import digest
from apportion.projections.runner import Projection
from tests.projections.history import job, opened, simulated

RunAsync = Callable[[Coroutine[Any, Any, Any]], Any]


async def fill(bus: Bus, logs: Logs, *, after: int = 0, cycles: int | None = None) -> None:
    """Write a history into the real streams, from cycle ``after`` on."""
    batches = logs.batches[:cycles]
    at = logs.batches[after - 1].input_seq if after else 0
    expected = await bus.decisions.last_seq()
    for batch in batches[after:]:
        records = logs.records[at : batch.input_seq]
        await asyncio.gather(*(bus.publisher.publish(r.subject, r.body, f"r{r.seq}") for r in records))
        at = batch.input_seq
        expected = await bus.decisions.commit(batch.body, batch.input_seq, expected)


def built(logs: Logs) -> str:
    """The digest of a projection made in memory."""
    with Projection() as projection:
        projection.ingest(logs.records, logs.batches)
        return projection.digest()


@contextlib.asynccontextmanager
async def projecting(home: Home, bus: Bus, **options: Any) -> AsyncIterator[Projector]:
    """A running projector that is ready."""
    ready = asyncio.Event()
    projector = Projector(home, bus, ready=lambda _line: ready.set(), **{"publish_every_s": 3_600.0, **options})
    running = asyncio.create_task(projector.run())
    waiting = asyncio.create_task(ready.wait())
    try:
        await asyncio.wait((running, waiting), return_when=asyncio.FIRST_COMPLETED, timeout=30)
        if running.done():
            running.result()
        assert ready.is_set()
        yield projector
    finally:
        waiting.cancel()
        projector.stop()
        await asyncio.wait_for(running, 30)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home.of(tmp_path / "home").ensure()


def test_it_follows_and_answers(nats_server: EmbeddedServer, home: Home, run_async: RunAsync) -> None:
    logs = simulated(41, hours=6, nodes=2, rough=False)
    half = len(logs.batches) // 2

    async def play() -> None:
        async with await Bus.open(nats_server.url, create=True) as bus, await Bus.open(nats_server.url) as writer:
            await fill(writer, logs, cycles=half)
            client = writer.connection.client
            async with projecting(home, bus):
                status = await ask(client, "status")
                assert status["as_of"]["seq"] == logs.batches[half - 1].input_seq
                assert status["as_of"]["lag"] == 0
                assert status["rows"][0]["pool"] == "h100"

                waiting = asyncio.create_task(ask(client, "wait", {"seq": len(logs.records) - 50, "timeout_ms": 20_000}))
                await fill(writer, logs, after=half)
                answer = await waiting
                assert answer["rows"] == [{"reached": True}]
                last = logs.batches[-1].input_seq
                assert (await ask(client, "wait", {"seq": last}))["rows"] == [{"reached": True}]

                report = (await ask(client, "report"))["rows"][0]["report"]
                assert report["conservation_error"] == 0
                assert report["cycles"] == len(logs.batches)
                audited = (await ask(client, "audit"))["rows"]
                assert [row["check"] for row in audited if row["violations"]] == []
                assert len(audited) == len(audit.checks())
                while "rows" not in (first := await ask(client, "explain", {"seq": last, "workload": "nobody"})):
                    assert first["error"]["kind"] == "time", "it is still reading the log, or compiling kernels"
                told = first["rows"][0]["explanation"]
                assert (told["state"], told["seq"]) == ("unknown", last)
                waits = (await ask(client, "queue", {"state": "pending", "seq": last}))["rows"]
                for row in waits[:2]:
                    answer = await ask(client, "explain", {"seq": last, "workload": row["workload"], "trials": False})
                    cause = answer["rows"][0]["explanation"]["causes"][0]
                    assert (cause["enum"], answer["as_of"]["seq"]) == ("pending", last)
                refused = [{"seq": logs.batches[9].input_seq}, {"seq": last, "more": 1}, {}]
                kinds = [(await ask(client, "explain", {**one, "workload": "nobody"}))["error"]["kind"] for one in refused]
                assert kinds == ["stale", "usage", "usage"]
                early = await ask(client, "totals", {"seq": logs.batches[9].input_seq + 1})
                assert early["rows"][0]["cycles"] == 10
                assert early["as_of"]["seq"] == logs.batches[9].input_seq

        # stopped: the file and the copy are whole
        copy = storage.newest(home.published)
        assert copy is not None
        for path in (home.projection, copy):
            with duckdb.connect(str(path), read_only=True) as con:
                assert digest(con) == built(logs)

    run_async(play())


def test_large_answers_come_in_parts_and_arrive_whole(
    nats_server: EmbeddedServer, home: Home, run_async: RunAsync
) -> None:
    story = opened()
    for number in range(300):
        story.say(job(f"w{number}", command=("x" * 9_000,)), "ann")
    story.tick(1_000)

    async def play() -> None:
        async with await Bus.open(nats_server.url, create=True) as bus:
            await fill(bus, story.logs)
            async with projecting(home, bus):
                answer = await ask(bus.connection.client, "events", {"row_limit": 10_000})
                assert [row["seq"] for row in answer["rows"]] == list(range(1, len(story.logs.records) + 1))
                assert sum(row["body_bytes"] for row in answer["rows"]) > 2_500_000

    run_async(play())


def test_wrong_questions_are_told_what_was_wrong(
    nats_server: EmbeddedServer, home: Home, run_async: RunAsync, monkeypatch: pytest.MonkeyPatch
) -> None:
    story = opened()
    story.tick()

    async def play() -> None:
        async with await Bus.open(nats_server.url, create=True) as bus:
            client = bus.connection.client
            with pytest.raises(NoAnswer, match=r"no projector answers ap\.q\.status"):
                await ask(client, "status", timeout_s=5)
            await fill(bus, story.logs)
            async with projecting(home, bus):
                wrong = [
                    ("nothing", {}, "usage", "no query is called 'nothing'"),
                    ("job", {}, "usage", "needs workload"),
                    ("job", {"workload": 3}, "usage", "workload must be varchar, got 3"),
                    ("wait", {"seq": -1}, "usage", "seq must be a whole number"),
                    ("audit", {"check": "x"}, "usage", "no check is called 'x'"),
                    ("report", {"x": 1}, "usage", "no parameter x"),
                    ("status", {"seq": 99}, "stale", "seq 99 is not projected yet"),
                    ("usage", {"by": ["moon"]}, "usage", "cannot be split by moon"),
                ]
                for name, params, kind, what in wrong:
                    error = (await ask(client, name, params))["error"]
                    assert (error["kind"], what in error["what"]) == (kind, True), (name, error)
                raw = await client.request("ap.q.status", b"[1]", timeout=5)
                assert b"not one JSON object" in raw.data
                late = await ask(client, "wait", {"seq": 10_000, "timeout_ms": 50})
                assert late["rows"] == [{"reached": False}]
                monkeypatch.setattr(answering, "LIMIT_S", 0.0)
                error = (await ask(client, "share"))["error"]
                assert error["kind"] == "time"
                monkeypatch.undo()
                assert (await ask(client, "share"))["rows"]

    run_async(play())


@pytest.mark.parametrize("fault", ["stale", "damaged", "asked"])
def test_a_file_that_is_no_good_is_built_anew(
    fault: str, nats_server: EmbeddedServer, home: Home, run_async: RunAsync
) -> None:
    logs = simulated(41, hours=6, nodes=2, rough=False)

    async def play() -> None:
        async with await Bus.open(nats_server.url, create=True) as bus:
            await fill(bus, logs, cycles=60)
            (await open_or_build(home.projection, bus.events, bus.decisions)).close()
            if fault == "stale":
                with duckdb.connect(str(home.projection)) as con:
                    con.execute("update meta.projection set fingerprint = 'of older code'")
            elif fault == "damaged":
                size = home.projection.stat().st_size
                with home.projection.open("r+b") as file:
                    for at in range(0, size, 4_096):
                        file.seek(at)
                        file.write(b"\xa5" * 512)
            told: list[tuple[int, int]] = []
            projection = await open_or_build(
                home.projection,
                bus.events,
                bus.decisions,
                rebuild=fault == "asked",
                tell=lambda done, last: told.append((done, last)),
            )
            try:
                assert told[-1] == (60, 60), "it was not built anew"
                assert projection.position.decision_seq == 60
                with Projection() as expected:
                    expected.ingest(logs.records, logs.batches[:60])
                    assert projection.digest() == expected.digest()
            finally:
                projection.close()
            left = sorted(path.name for path in home.root.iterdir() if path.is_file())
            assert left == [home.projection.name]

    run_async(play())


@pytest.mark.parametrize("cut", [0.2, 0.5, 0.9])
def test_a_damaged_write_ahead_log_costs_nothing(
    cut: float, nats_server: EmbeddedServer, home: Home, run_async: RunAsync
) -> None:
    """What the engine can still read is a prefix of whole commits, and the rest comes from the log again; else all of it does."""
    logs = simulated(41, hours=6, nodes=2, rough=False)
    copy = home.root / "left" / home.projection.name
    copy.parent.mkdir()

    async def play() -> None:
        async with await Bus.open(nats_server.url, create=True) as bus:
            await fill(bus, logs, cycles=60)
            with Projection(home.projection) as projection:
                for number in range(60):
                    after = projection.position.seq
                    projection.ingest(logs.records[after : logs.batches[number].input_seq], logs.batches[number : number + 1])
                # as a killed process would leave them
                for path in (home.projection, storage.wal_of(home.projection)):
                    copy.with_name(path.name).write_bytes(path.read_bytes())
            wal = storage.wal_of(copy)
            content = bytearray(wal.read_bytes())
            at = int(len(content) * cut)
            content[at : at + 64] = b"\xa5" * 64
            wal.write_bytes(content)
            projection = await open_or_build(copy, bus.events, bus.decisions)
            try:
                await feed(projection, bus.events, bus.decisions)
                with Projection() as expected:
                    expected.ingest(logs.records, logs.batches[:60])
                    assert projection.digest() == expected.digest()
            finally:
                projection.close()

    run_async(play())


def test_another_log_is_refused_and_the_file_is_kept(
    start_nats: Callable[..., EmbeddedServer], home: Home, run_async: RunAsync
) -> None:
    logs, other = simulated(41, hours=6, nodes=2, rough=False), simulated(42, hours=6, nodes=3, rough=False)

    async def play() -> None:
        async with await Bus.open(start_nats("one").url, create=True) as bus:
            await fill(bus, logs, cycles=50)
            (await open_or_build(home.projection, bus.events, bus.decisions)).close()
        before = home.projection.read_bytes()
        async with await Bus.open(start_nats("two").url, create=True) as bus:
            with pytest.raises(LogMismatch, match="the log was cut"):
                await open_or_build(home.projection, bus.events, bus.decisions)
            await fill(bus, other, cycles=100)
            with pytest.raises(LogMismatch, match="belongs to another log"):
                await open_or_build(home.projection, bus.events, bus.decisions)
        assert home.projection.read_bytes() == before

    run_async(play())


def test_decision_of_waits_for_the_answer(nats_server: EmbeddedServer, home: Home, run_async: RunAsync) -> None:
    story = opened()
    story.tick()
    refused = story.say(job("theirs"), "mallory")
    story.tick(1_000)

    async def play() -> None:
        async with await Bus.open(nats_server.url, create=True) as bus, await Bus.open(nats_server.url) as writer:
            await fill(writer, story.logs, cycles=1)
            async with projecting(home, bus):
                question = {"event_seq": refused, "wait_ms": 20_000}
                asking = asyncio.create_task(ask(writer.connection.client, "decision_of", question))
                await fill(writer, story.logs, after=1)
                rows = (await asking)["rows"]
                assert [(row["type"], row["reason"]) for row in rows] == [("workload.rejected", "not_permitted")]

    run_async(play())


def test_copies_are_published_while_it_runs(nats_server: EmbeddedServer, home: Home, run_async: RunAsync) -> None:
    logs = simulated(41, hours=6, nodes=2, rough=False)

    async def play() -> None:
        async with await Bus.open(nats_server.url, create=True) as bus, await Bus.open(nats_server.url) as writer:
            await fill(writer, logs, cycles=20)
            async with projecting(home, bus, publish_every_s=0.05):
                for cycles in (40, 60, 80):
                    await fill(writer, logs, after=cycles - 20, cycles=cycles)
                    seq = logs.batches[cycles - 1].input_seq
                    await ask(writer.connection.client, "wait", {"seq": seq})
                    for _ in range(400):
                        copy = storage.newest(home.published)
                        if copy is not None and f"{seq:015d}" in copy.name:
                            break
                        await asyncio.sleep(0.05)
                    copies = storage.published(home.published)
                    assert 1 <= len(copies) <= storage.PUBLISHED_KEPT + 1  # the oldest may be about to go
                    with duckdb.connect(str(copies[-1]), read_only=True) as con:
                        assert con.execute("select max(seq) from fact.cycle").fetchone() == (seq,)
                        assert con.execute("select mart.readable_seq()").fetchone() == (seq,)
                # making copies must not have given our lock on the file away
                with pytest.raises(duckdb.Error, match="lock"):
                    await _open_elsewhere(home.projection)

    run_async(play())


async def _open_elsewhere(path: Path) -> None:
    """Open the file from another process."""
    import sys

    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", f"import duckdb; duckdb.connect({str(path)!r})", stderr=asyncio.subprocess.PIPE
    )
    _, errors = await process.communicate()
    if process.returncode:
        raise duckdb.Error(errors.decode())

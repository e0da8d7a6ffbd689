"""Who may not do something is told so, with the subject, in bounded time: a real server with users of little permission."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from apportion.adapters.archiving.writing import write
from apportion.adapters.bus import topology
from apportion.adapters.bus.connection import Connection
from apportion.adapters.bus.decisions import NatsDecisionLog
from apportion.adapters.bus.kept import keep
from apportion.adapters.bus.local import Bus
from apportion.adapters.bus.permission import NotPermitted, refusal
from apportion.adapters.bus.publisher import Publisher
from apportion.adapters.bus.reader import NatsEventLog
from apportion.adapters.cli.main import run
from apportion.adapters.projector.asking import ask
from tests.adapters.test_deploy_nats import Url, serving
from tests.archived import played

API = '"$JS.API.>"'
USERS = {
    "full": 'publish: ">", subscribe: ">"',
    "cutter": f'publish: [{API}], subscribe: ["_INBOX_cutter.>"]',  # may change streams, and not keep what agents need
    "deaf": 'publish: ">", subscribe: ["_INBOX_other.>"]',
    "starved": 'publish: { allow: ">", deny: ["$JS.API.CONSUMER.MSG.NEXT.>"] }, subscribe: ["_INBOX_starved.>"]',
    "blind": f'publish: {{ allow: ">", deny: [{API}] }}, subscribe: ["_INBOX_blind.>"]',
    "mute": f'publish: [{API}], subscribe: ["_INBOX_mute.>"]',
}
SOON_S = 30.0  # a wait without end is longer


@pytest.fixture
def url_of(tmp_path: Path) -> Iterator[Url]:
    listed = "\n".join(
        f'{{ user: "{name}", password: "secret-APPORTION_{name.upper()}_PASSWORD", permissions: {{ {may} }} }}'
        for name, may in USERS.items()
    )
    configuration = tmp_path / "nats.conf"
    store = f'jetstream {{ store_dir: "{tmp_path}/store" }}'
    configuration.write_text(f"listen: $APPORTION_NATS_LISTEN\n{store}\nauthorization {{ users: [\n{listed}\n] }}\n")
    with serving(tmp_path, configuration) as url:
        yield url


@asynccontextmanager
async def connected(url_of: Url, user: str) -> AsyncIterator[Connection]:
    async with await Connection.open(url_of("full"), name="full") as full:
        await topology.create(full, max_file_bytes=64 * 1024**2)
    async with await Connection.open(url_of(user), name=user) as connection, asyncio.timeout(SOON_S):
        yield connection


def test_what_the_server_says_is_read() -> None:
    assert refusal('nats: permissions violation for publish to "ap.kept.record.1"') == ("publish", "ap.kept.record.1")
    assert refusal('Permissions Violation for Subscription to "ap.q.>" using queue "A"') == ("subscription", "ap.q.>")
    assert refusal("nats: stale connection") is None


@pytest.mark.parametrize(("user", "named"), [("mute", "publish to ap.ev.Ann.note.made"), ("deaf", "subscribe to _INBOX_deaf.>")])
def test_an_event_that_is_dropped_is_not_waited_for(url_of: Url, run_async: Any, user: str, named: str) -> None:
    async def many(publisher: Publisher) -> None:
        await publisher.send_many(("ap.ev.Ann.note.made", b"{}", str(number)) for number in range(5_000))
        await publisher.flush()

    async def act() -> None:
        async with connected(url_of, user) as connection:
            publisher = await Publisher.open(connection)
            try:
                with pytest.raises(NotPermitted, match=named):
                    await publisher.publish("ap.ev.Ann.note.made", b"{}", "1")
                with pytest.raises(NotPermitted, match=named):
                    await many(publisher)
            finally:
                await publisher.close()

    run_async(act(), 2 * SOON_S)


def test_a_cut_keeps_nothing_where_it_may_not(url_of: Url, run_async: Any) -> None:
    async def act() -> None:
        async with connected(url_of, "cutter") as connection:
            with pytest.raises(NotPermitted, match=r"publish to ap\.kept\.record\.1"):
                await keep(connection, [(1, b"{}"), (2, b"{}")], [])

    run_async(act(), 2 * SOON_S)


def test_a_reader_and_a_writer_say_what_they_may_not(url_of: Url, run_async: Any) -> None:
    async def act() -> None:
        async with connected(url_of, "starved") as connection:
            with pytest.raises(NotPermitted, match=r"publish to \$JS\.API\.CONSUMER\.MSG\.NEXT\.EVENTS\.\*"):
                await NatsEventLog(connection).tail(0).take(1)
        async with connected(url_of, "blind") as connection:
            with pytest.raises(NotPermitted, match=r"publish to \$JS\.API\.STREAM\.INFO\.EVENTS"):
                await NatsEventLog(connection).tail(0).take(1)
        async with connected(url_of, "mute") as connection:
            with pytest.raises(NotPermitted, match=r"publish to ap\.dec\.cycle"):
                await NatsDecisionLog(connection).commit(b"{}", 1, 0)
            with pytest.raises(NotPermitted, match=r"publish to ap\.q\.queue at 127\.0\.0\.1"):
                await ask(connection.client, "queue", timeout_s=SOON_S)  # nobody waits that long

    run_async(act(), 5 * SOON_S)


def test_the_doctor_finds_it(url_of: Url, run_async: Any, capfd: pytest.CaptureFixture[str]) -> None:
    async def made() -> None:
        async with connected(url_of, "full"):
            pass

    run_async(made())
    assert run(["doctor", "--server", url_of("blind")]) == 1
    said = capfd.readouterr()
    assert "may not publish to $JS.API.STREAM.INFO.EVENTS" in said.out + said.err
    assert "error:" not in said.err, "the other findings are told too"


def test_the_cut_of_a_user_who_may_not_keep_says_so_and_drops_nothing(
    url_of: Url, tmp_path: Path, run_async: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    history, archive = played(7, rough=False, hours=76), tmp_path / "archive"

    async def fill() -> None:
        async with await Bus.open(url_of("full"), create=True) as bus:
            await bus.publisher.send_many((record.subject, record.body, f"r{record.seq}") for record in history.records)
            await bus.publisher.flush()
            for batch in history.batches:
                await bus.decisions.commit(batch.body, batch.input_seq, batch.seq - 1)
            await write(bus.events, bus.decisions, archive)

    async def first() -> int:
        async with connected(url_of, "full") as connection:
            return (await topology.stream_info(connection, "EVENTS")).state.first_seq

    run_async(fill(), 240.0)
    assert run(["archive", "cut", str(archive), "--keep", "2", "--server", url_of("cutter")]) == 1
    said = capfd.readouterr().err
    assert "may not publish to ap.kept." in said
    assert "archivist" in said
    assert "Traceback" not in said
    assert run_async(first()) == 1

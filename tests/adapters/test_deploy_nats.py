"""deploy/nats.conf with a real server: each role can do its work, and nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import nats
import nats.errors
import pytest

from apportion.adapters import site
from apportion.adapters.bus import topology
from apportion.adapters.bus.connection import BusUnreachable, Connection
from apportion.adapters.bus.local import Bus
from apportion.adapters.bus.server import find_binary
from apportion.adapters.client import Client
from apportion.adapters.ingress.app import Ingress
from apportion.adapters.processes.home import Home
from apportion.adapters.projector import asking, process
from apportion.adapters.service import SchedulerService
from apportion.core.decisions import WorkloadAdmitted
from apportion.core.events import BudgetSet, LogOpened, MemberGranted, NodeJoined, PoolDefined

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
ROLES = ("admin", "core", "projector", "ingress", "operator", "agent-node-1", "portal")
Run = Callable[[Coroutine[Any, Any, Any]], Any]
Url = Callable[[str], str]


@pytest.fixture
def url_of(tmp_path: Path) -> Iterator[Url]:
    """Start a server with the deployed configuration on a free port; returns the URL of a user."""
    with serving(tmp_path, DEPLOY / "nats.conf") as url:
        yield url


@contextlib.contextmanager
def serving(tmp_path: Path, configuration: Path) -> Iterator[Url]:
    names = [line.split("=")[0] for line in (DEPLOY / "nats.env.example").read_text().splitlines() if "=" in line]
    environment = {
        **os.environ,
        **{name: f"secret-{name}" for name in names},
        "APPORTION_NATS_NAME": "test",
        "APPORTION_NATS_LISTEN": "127.0.0.1:-1",
        "APPORTION_NATS_HTTP": "127.0.0.1:-1",
        "APPORTION_NATS_STORE": str(tmp_path / "store"),
    }
    with (tmp_path / "log").open("wb") as log:
        server = subprocess.Popen(
            [str(find_binary()), "-c", str(configuration), "--ports_file_dir", str(tmp_path)],
            env=environment, stdout=log, stderr=log,
        )  # fmt: skip
    try:
        yield lambda user: f"nats://{user}:{secret(user)}@127.0.0.1:{port_of(server, tmp_path)}"
    finally:
        server.kill()
        server.wait(10)


def secret(user: str) -> str:
    return f"secret-APPORTION_{user.split('-')[0].upper()}_PASSWORD"


def port_of(server: subprocess.Popen[bytes], directory: Path) -> int:
    for _ in range(500):
        ports = list(directory.glob("nats-server_*.ports"))
        if ports and (text := ports[0].read_text()):
            return int(json.loads(text)["nats"][0].rsplit(":", 1)[1])
        if server.poll() is not None:
            break
        time.sleep(0.01)
    raise AssertionError(f"the server did not start:\n{(directory / 'log').read_text()}")


@asynccontextmanager
async def streams(url_of: Url) -> AsyncIterator[None]:
    async with await Connection.open(url_of("admin"), name="admin") as admin:
        await topology.create(admin, max_file_bytes=64 * 1024**2)
        yield


async def stored(url_of: Url) -> list[str]:
    """Return the subjects of everything in EVENTS."""
    async with await Bus.open(url_of("projector")) as bus:
        return [record.subject for record in await bus.events.read(0, 1_000)]


async def allowed(url: str, subject: str, body: bytes = b"{}") -> bool:
    """Tell whether a user may publish there: the server names a violation on the same connection, in order."""
    violations: list[str] = []

    async def note(error: Exception) -> None:
        violations.append(str(error))

    user = url.split("//")[1].split(":")[0]
    client = await nats.connect(url, inbox_prefix=f"_INBOX_{user}".encode(), error_cb=note)
    await client.publish(subject, body, reply=client.new_inbox())
    for _ in range(3):
        await client.flush()
    await client.close()
    return not any("permissions violation" in violation.lower() for violation in violations)


def test_every_role_does_its_work(url_of: Url, run_async: Run) -> None:
    async def story() -> None:
        async with streams(url_of), Client.connect(url_of("operator"), "operator") as operator:
            for event in (
                LogOpened(log_id="test", time_source="stored", operators=("operator", "core")),
                PoolDefined(pool="h100"),
                BudgetSet(pool="h100", budget="lab", share_ppm=1_000_000),
                MemberGranted(budget="lab", member="portal"),
                NodeJoined(node="node-1", pool="h100", gpus=8, agent="agent-node-1"),
            ):
                await operator.publish(event)
            async with (
                await Bus.open(url_of("core")) as core,
                Ingress(url_of("ingress")).running(),
                Client.connect(url_of("portal"), "portal") as portal,
                await Bus.open(url_of("agent-node-1")) as agent,
            ):
                service = SchedulerService(core.events, core.decisions, core.publisher)
                task = asyncio.create_task(service.run())
                job = await portal.submit(budget="lab", pools=["h100"], gpus=1)
                (admitted,) = (await portal.wait(job.seq)).decisions
                asked = await ask(url_of("portal"), "ap.in.portal.workload.cancelled", {"workload": job.workload})
                again = await ask(
                    url_of("portal"), "ap.in.portal.workload.cancelled", {"workload": job.workload}, asked["id"]
                )
                status = await ask(url_of("portal"), "ap.status.ingress", {})
                heartbeat = await agent.publisher.publish(
                    "ap.ev.agent-node-1.node.heartbeat",
                    b'{"id":"b1","type":"node.heartbeat","data":{"node":"node-1","beat":1}}',
                    "b1",
                )
                order = await agent.events.body_at(job.seq)  # where an agent finds the command it is told to run
                service.stop()
                await asyncio.wait_for(task, 20)

                assert isinstance(admitted, WorkloadAdmitted)
                assert order is not None
                assert job.workload.encode() in order
                assert asked["ok"]
                assert (again["seq"], again["duplicate"]) == (asked["seq"], True)
                assert status["ok"]
                assert heartbeat.seq > asked["seq"]
                assert await agent.decisions.last_seq() >= 1

    run_async(story())


def test_the_projector_answers_whoever_may_ask(url_of: Url, run_async: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with streams(url_of), Client.connect(url_of("operator"), "operator") as operator:
            await operator.publish(LogOpened(log_id="test", time_source="stored", operators=("operator", "core")))
            ready = asyncio.Event()
            home = Home.of(tmp_path / "projector").ensure()
            task = asyncio.create_task(process.serve(home, url=url_of("projector"), ready=lambda _line: ready.set()))
            await asyncio.wait_for(ready.wait(), 60)
            for user in ("portal", "operator"):
                client = await nats.connect(url_of(user), inbox_prefix=f"_INBOX_{user}".encode())
                answer = await asking.ask(client, "pools", timeout_s=30)
                await client.close()
                assert "rows" in answer, answer
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    run_async(story())


async def ask(url: str, subject: str, data: Any, event_id: str = "") -> dict[str, Any]:
    user = url.split("//")[1].split(":")[0]
    client = await nats.connect(url, inbox_prefix=f"_INBOX_{user}".encode())
    body = {"data": data, "id": event_id} if event_id else {"data": data}
    answer: dict[str, Any] = json.loads((await client.request(subject, json.dumps(body).encode(), timeout=10)).data)
    await client.close()
    return answer


@pytest.mark.parametrize("user", ["portal", "agent-node-1", "operator", "core", "projector", "admin"])
def test_nobody_publishes_under_another_name(user: str, url_of: Url, run_async: Run) -> None:
    async def story() -> None:
        async with streams(url_of):
            others = [name for name in ("portal", "agent-node-1", "operator", "core", "somebody") if name != user]
            for other in others:
                assert not await allowed(url_of(user), f"ap.ev.{other}.node.left"), other
                assert not await allowed(url_of(user), f"ap.in.{other}.node.left"), other
            assert await stored(url_of) == []

    run_async(story())


@pytest.mark.parametrize("user", ["portal", "agent-node-1", "operator", "projector", "ingress", "admin"])
def test_only_the_core_writes_decisions(user: str, url_of: Url, run_async: Run) -> None:
    async def story() -> None:
        async with streams(url_of):
            assert not await allowed(url_of(user), "ap.dec.cycle")
            assert await allowed(url_of("core"), "ap.dec.cycle")

    run_async(story())


@pytest.mark.parametrize("user", ROLES)
def test_nobody_deletes_purges_or_changes_a_stream(user: str, url_of: Url, run_async: Run) -> None:
    async def story() -> None:
        async with streams(url_of):
            for stream in topology.REQUIRED:
                for verb in ("DELETE", "PURGE", "UPDATE", "MSG.DELETE", "RESTORE", "SNAPSHOT", "LEADER.STEPDOWN"):
                    assert not await allowed(url_of(user), f"$JS.API.STREAM.{verb}.{stream}"), verb
            async with await Connection.open(url_of("admin"), name="check") as admin:
                assert await topology.audit(admin) == []

    run_async(story())


@pytest.mark.parametrize("user", ["portal", "ingress"])
@pytest.mark.parametrize("event", ["log.opened", "clock.tick", "core.activated"])
def test_only_the_core_and_operators_write_what_moves_the_core(
    user: str, event: str, url_of: Url, run_async: Run
) -> None:
    async def story() -> None:
        async with streams(url_of):
            assert not await allowed(url_of(user), f"ap.ev.{user}.{event}")

    run_async(story())


def test_nobody_listens_to_anothers_answers(url_of: Url, run_async: Run) -> None:
    async def story() -> None:
        violations: list[str] = []

        async def note(error: Exception) -> None:
            violations.append(str(error))

        async with streams(url_of):
            client = await nats.connect(url_of("portal"), inbox_prefix=b"_INBOX_portal", error_cb=note)
            wanted = ("_INBOX_core.>", "_INBOX.>", ">", "ap.ev.>", "ap.in.>", "_INBOX_operator.>")
            for subject in wanted:
                await client.subscribe(subject)
            for _ in range(3):
                await client.flush()
            await client.close()

        assert len(violations) == len(wanted), violations

    run_async(story())


def test_a_consumer_cannot_be_pointed_at_anothers_subject(url_of: Url, run_async: Run) -> None:
    """Whoever may read decisions may make a consumer; its deliveries must not become somebody else's events."""

    async def story() -> None:
        async with streams(url_of):
            user = await nats.connect(url_of("portal"), inbox_prefix=b"_INBOX_portal")
            config = {"name": "x", "deliver_subject": "ap.ev.operator.budget.granted", "ack_policy": "none"}
            request = {"stream_name": "DECISIONS", "config": {**config, "deliver_policy": "all"}, "action": "create"}
            await user.request("$JS.API.CONSUMER.CREATE.DECISIONS.x", json.dumps(request).encode(), timeout=5)
            assert await allowed(url_of("core"), "ap.dec.cycle", b'{"id":"x","type":"budget.granted"}')
            await asyncio.sleep(0.5)
            await user.close()

            assert await stored(url_of) == []

    run_async(story())


def test_a_site_is_set_up_once_and_the_step_may_be_repeated(
    url_of: Url, run_async: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    urls = ["--admin", url_of("admin"), "--operator", url_of("operator")]

    assert site.main([*urls, "--log-id", "institute"]) == 0
    assert site.main([*urls, "--log-id", "institute"]) == 0
    assert capsys.readouterr().out.count("institute is open") == 2
    assert site.main([*urls, "--log-id", "another"]) == 1
    assert site.main([*urls, "--log-id", "not a name"]) == 1
    told = capsys.readouterr().err
    assert "institute" in told
    assert "data.log_id" in told
    assert "secret" not in told
    assert run_async(stored(url_of)) == ["ap.ev.operator.log.opened"]


def test_a_wrong_password_is_told_as_such_and_not_shown(url_of: Url, run_async: Run) -> None:
    wrong = url_of("portal").replace("secret-", "guess-")

    async def story() -> None:
        with pytest.raises(BusUnreachable, match=r"portal:\*\*\*@.*Authorization") as caught:
            await Connection.open(wrong, name="test", timeout_s=1.0)
        assert "guess" not in str(caught.value)

    run_async(story())


def test_without_a_password_nobody_enters(url_of: Url, run_async: Run) -> None:
    async def story() -> None:
        with pytest.raises((nats.errors.Error, OSError)):
            await nats.connect(f"nats://{url_of('x').split('@')[1]}", allow_reconnect=False, connect_timeout=2)

    run_async(story())


def test_acknowledged_means_on_disk() -> None:
    assert "sync_interval: always" in (DEPLOY / "nats.conf").read_text()

"""The bus in containers: streams made in one, killed with SIGKILL, started again, and nothing acknowledged is lost.

Needs a Docker daemon (``tests/containers/daemon.sh start DIR`` makes a private one) and skips with the reason where none
answers. The image is built from the nats-server that is installed here; nothing is pulled. Everything that does not need
a container is tested with the server as a process, which starts in milliseconds.
"""

from __future__ import annotations

import asyncio
import io
import os
import socket
import tarfile
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from apportion.adapters.bus.local import Bus
from apportion.adapters.bus.server import find_binary
from apportion.adapters.client import Client
from apportion.adapters.service import SchedulerService
from apportion.core.decisions import WorkloadAdmitted
from apportion.core.events import BudgetSet, LogOpened, NodeJoined, PoolDefined

docker = pytest.importorskip("docker", reason="the package docker (with testcontainers) is not installed")

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
IMAGE = "apportion-nats:test"
Run = Callable[[Coroutine[Any, Any, Any]], Any]

pytestmark = pytest.mark.container


@pytest.fixture(scope="module")
def image() -> Iterator[str]:
    """Build the image from ``deploy/nats.Dockerfile`` and the installed server; skip where no daemon answers."""
    if reason := os.environ.get("APPORTION_NO_DOCKER"):
        pytest.skip(f"no Docker daemon: {reason}")
    try:
        client = docker.from_env(timeout=30)
        client.ping()
    except docker.errors.DockerException as error:
        pytest.skip(f"no Docker daemon answers ({error}); tests/containers/daemon.sh start DIR makes one")
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        tar.add(find_binary(), "nats-server")
        tar.add(DEPLOY / "nats.Dockerfile", "Dockerfile")
    packed.seek(0)
    client.images.build(fileobj=packed, custom_context=True, tag=IMAGE, network_mode="none", rm=True, timeout=120)
    yield IMAGE
    client.images.remove(IMAGE, force=True)
    client.close()


@pytest.fixture
def container(image: str) -> Iterator[Any]:
    """Run a server with JetStream in a container, its port bound to a fixed one so that a restart keeps it."""
    from testcontainers.community.nats import NatsContainer

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with NatsContainer(image, jetstream=True).with_bind_ports(4222, port) as started:
        yield started


async def open_log(url: str) -> None:
    async with await Bus.open(url, create=True, max_file_bytes=64 * 1024**2), Client.connect(url, "operator") as client:
        for event in (
            LogOpened(log_id="test", time_source="stored", operators=("operator", "core")),
            PoolDefined(pool="h100"),
            NodeJoined(node="n1", pool="h100", gpus=8, agent="agent-n1"),
            BudgetSet(pool="h100", budget="lab", share_ppm=1_000_000),
        ):
            await client.publish(event)


def test_what_was_acknowledged_survives_kill_and_restart(container: Any, run_async: Run) -> None:
    url = container.nats_uri()
    handle = container.get_wrapped_container()

    async def story() -> None:
        await open_log(url)
        acknowledged: dict[str, int] = {}
        async with Client.connect(url, "operator", timeout_s=20) as client:

            async def submit() -> None:
                while True:
                    job = await client.submit(budget="lab", pools=["h100"], gpus=1)
                    acknowledged[job.workload] = job.seq

            for _ in range(2):
                before = len(acknowledged)
                submitting = asyncio.create_task(submit())
                for _ in range(400):
                    if len(acknowledged) >= before + 50:
                        break
                    await asyncio.sleep(0.02)
                await asyncio.to_thread(handle.kill)
                await asyncio.to_thread(handle.start)
                first_after = await client.submit(budget="lab", pools=["h100"], gpus=1, timeout_s=45)
                acknowledged[first_after.workload] = first_after.seq
                submitting.cancel()
        assert len(acknowledged) >= 100
        async with await Bus.open(url) as bus:
            records = {record.seq: record.body for record in await bus.events.read(0, 100_000)}
            assert sorted(records) == list(range(1, len(records) + 1))
            for workload, seq in acknowledged.items():
                assert f'"{workload}"'.encode() in records[seq], "acknowledged at this sequence, and gone"

    run_async(story(), 150)


def test_a_core_decides_in_a_container_and_goes_on_after_a_restart(container: Any, run_async: Run) -> None:
    url = container.nats_uri()
    handle = container.get_wrapped_container()

    async def story() -> None:
        await open_log(url)
        async with await Bus.open(url) as bus, Client.connect(url, "operator") as client:
            service = SchedulerService(bus.events, bus.decisions, bus.publisher)
            deciding = asyncio.create_task(service.run())
            seqs = []
            for round_number in range(2):
                job = await client.submit(budget="lab", pools=["h100"], gpus=1)
                (admitted,) = (await client.wait(job.seq)).decisions
                assert isinstance(admitted, WorkloadAdmitted)
                seqs.append(job.seq)
                if round_number == 0:
                    await asyncio.to_thread(handle.restart, timeout=10)
            service.stop()
            await asyncio.wait_for(deciding, 30)
            assert seqs == sorted(seqs)
            assert await bus.decisions.last_seq() == service.decision_seq

    run_async(story(), 120)

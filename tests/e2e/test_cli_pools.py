"""Several acceptable pools, as a user: a second pool, a job that starts there when the first is full, and why another waits."""

from __future__ import annotations

import asyncio
import re
import signal
from collections.abc import Iterator

import pytest

from apportion.adapters.bus.server import EmbeddedServer
from apportion.adapters.client import Client
from apportion.adapters.processes.home import Home
from apportion.core.events import PoolDefined
from tests.e2e.user import PATIENCE_S, User


@pytest.fixture(scope="module")
def spare(user: User) -> Iterator[User]:
    """Return the user of a cluster with a pool of four GPUs beside its own of eight; only robotics has a budget there."""

    async def define() -> None:
        server = EmbeddedServer.running(Home(user.directory))
        assert server is not None
        async with Client.connect(server.url, "ana") as client:
            await client.publish(PoolDefined(pool="spare", gpu_class="old"))

    asyncio.run(define())
    user.until("the pool is known", lambda: "spare" in user.run("status").out)
    for budget in ("lab", "lab/robotics"):
        user.run(f"budget set {budget} --share 50% --pool spare")
    agent = user.start("agent --node m1 --pool spare --gpus 4 --beat 500ms")
    try:
        user.until("two nodes", lambda: "m1" in user.run("node list").out)
        yield user
    finally:
        agent.send_signal(signal.SIGTERM)
        agent.communicate(timeout=PATIENCE_S)


def test_who_finds_no_place_starts_in_the_next_pool_of_his_wish_and_is_told_why_not(spare: User) -> None:
    user, jobs = spare, list[str]()

    def submit(name: str, gpus: int, pools: str) -> str:
        done = user.run(f"submit --budget lab/robotics --gpus {gpus} --pool {pools} --name {name} -- sleep 1000")
        jobs.append(name)
        return done.out + done.err

    try:
        submit("first", 8, "local")
        user.until("running", lambda: user.state("first") == "running")

        told = submit("second", 4, "local,spare")
        user.until("running", lambda: user.state("second") == "running")

        assert "when it cannot start there it may start in spare" in told
        assert re.search(r"placed as run 1 on m1 GPUs 0-3 in pool spare", told)
        why = user.run("why second").out
        assert "in pool spare" in why
        assert "it found no place in pool local, where it waits when it is queued again" in why

        submit("third", 2, "local,spare,moon")
        why = user.run("why third").out

        assert re.search(r"waits for .* in pool local", why)
        assert re.search(r"in pool spare neither: .*it needs 2 GPUs", why)
        assert "pool moon is left out: there is no pool" in why
        rows = {row["name"]: row["pool"] for row in user.run("queue --state all --json").json["rows"]}
        assert {name: rows[name] for name in jobs} == {"first": "local", "second": "spare", "third": "local"}
    finally:
        for name in reversed(jobs):
            user.run(f"cancel {name}", code=None)
    user.until("over", lambda: user.state("first") == "cancelled")
    assert "all" in user.run("audit").out

"""The client of other services, against a real server and a real core: what it promises its caller."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import re
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from apportion.adapters import client as client_module
from apportion.adapters.bus.local import Bus
from apportion.adapters.bus.server import EmbeddedServer
from apportion.adapters.client import Client, Unanswered, Undecided
from apportion.adapters.ingress.check import RequestRefused
from apportion.adapters.service import SchedulerService
from apportion.core.decisions import Rejected, RunPlaced, WorkloadAdmitted, WorkloadRejected
from apportion.core.events import BudgetSet, ClockTick, LogOpened, MemberGranted, NodeJoined, PoolDefined

Run = Callable[[Coroutine[Any, Any, Any]], Any]


@contextlib.asynccontextmanager
async def cluster(server: EmbeddedServer, *, core: bool = True) -> AsyncIterator[str]:
    """A log with one pool of 16 GPUs, a budget that the principal ``portal`` may charge, and a core that decides."""
    async with await Bus.open(server.url, create=True, max_file_bytes=64 * 1024**2) as bus:
        async with Client.connect(server.url, "operator") as operator:
            for event in (
                LogOpened(log_id="test", time_source="stored", operators=("operator", "core")),
                PoolDefined(pool="h100"),
                *(NodeJoined(node=f"n{number}", pool="h100", gpus=8, agent=f"agent-{number}") for number in (1, 2)),
                BudgetSet(pool="h100", budget="lab", share_ppm=1_000_000),
                BudgetSet(pool="h100", budget="lab/llm", share_ppm=500_000),
                BudgetSet(pool="h100", budget="lab/llm/olmo", share_ppm=1_000_000),
                MemberGranted(budget="lab/llm", member="portal"),
            ):
                await operator.publish(event)
        service = SchedulerService(bus.events, bus.decisions, bus.publisher)
        task = asyncio.create_task(service.run()) if core else None
        try:
            yield server.url
        finally:
            service.stop()
            if task is not None:
                await asyncio.wait_for(task, 30)


def test_a_submission_is_answered_with_the_cores_decision(nats_server: EmbeddedServer, run_async: Run) -> None:
    async def story() -> None:
        async with cluster(nats_server) as url, Client.connect(url, "portal") as client:
            job = await client.submit(budget="lab/llm/olmo", pools=["h100"], gpus=8, min_runtime_ms=60_000)
            answer = await client.wait(job.seq)
            (admitted,) = answer.decisions

            assert isinstance(admitted, WorkloadAdmitted)
            assert (admitted.workload, admitted.event_seq, admitted.pool) == (job.workload, job.seq, "h100")
            assert answer.batch.seq > job.seq

    run_async(story())


def test_a_refusal_of_the_core_carries_its_reason(nats_server: EmbeddedServer, run_async: Run) -> None:
    async def story() -> None:
        async with cluster(nats_server) as url, Client.connect(url, "portal") as client:
            never = await client.submit(budget="lab/llm/olmo", pools=["h100"], gpus=640)
            foreign = await client.publish(BudgetSet(pool="h100", budget="lab/llm", share_ppm=1))
            (too_large,) = (await client.wait(never.seq)).decisions
            (not_mine,) = (await client.wait(foreign.seq)).decisions

            assert isinstance(too_large, WorkloadRejected)
            assert too_large.reason == "never_fits"
            assert isinstance(not_mine, Rejected)
            assert not_mine.reason == "not_permitted"

    run_async(story())


def test_a_bad_event_is_refused_before_it_is_sent(nats_server: EmbeddedServer, run_async: Run) -> None:
    async def story() -> None:
        async with cluster(nats_server, core=False) as url, Client.connect(url, "portal") as client:
            with pytest.raises(RequestRefused, match=r"data\.gpus_milli is -8000: expected `int` >= 1") as caught:
                await client.submit(budget="lab/llm/olmo", pools=["h100"], gpus=-8)
            assert caught.value.problem.field == "data.gpus_milli"
            with pytest.raises(RequestRefused, match=r"data\.pools is \[\]"):
                await client.submit(budget="lab/llm/olmo", pools=[], gpus=8)
            with pytest.raises(TypeError, match="min_runtime"):
                await client.submit(budget="lab/llm/olmo", pools=["h100"], gpus=8, min_runtime=5)

    run_async(story())


def test_an_id_stores_once_and_tells_where(nats_server: EmbeddedServer, run_async: Run) -> None:
    async def story() -> None:
        async with cluster(nats_server, core=False) as url, Client.connect(url, "portal") as client:
            first = await client.cancel("job-1")
            again = await client.publish(PoolDefined(pool="h100"), event_id=first.event_id)

            assert not first.duplicate
            assert (again.seq, again.duplicate) == (first.seq, True)

    run_async(story())


def test_decisions_are_followed_from_any_position_without_a_gap(nats_server: EmbeddedServer, run_async: Run) -> None:
    async def story() -> None:
        async with cluster(nats_server) as url, Client.connect(url, "portal") as client:
            jobs = []
            for _ in range(12):
                jobs.append(await client.submit(budget="lab/llm/olmo", pools=["h100"], gpus=1))
                await client.wait(jobs[-1].seq)
            last = (await client.wait(jobs[-1].seq)).batch

            async def up_to_last(after_seq: int) -> list[int]:
                seqs = []
                async with contextlib.aclosing(client.batches(after_seq)) as batches:
                    async for batch in batches:
                        seqs.append(batch.seq)
                        if batch.seq >= last.seq:
                            break
                return seqs

            everything = await up_to_last(0)
            assert everything == sorted(set(everything))
            for after_seq in range(last.seq):
                assert await up_to_last(after_seq) == [seq for seq in everything if seq > after_seq]
            for job in jobs:
                assert any(
                    getattr(one, "workload", "") == job.workload for one in (await client.wait(job.seq)).decisions
                )

    run_async(story())


def test_new_decisions_only_when_asked_for_no_position(nats_server: EmbeddedServer, run_async: Run) -> None:
    async def story() -> None:
        async with cluster(nats_server) as url, Client.connect(url, "portal") as client:
            early = await client.submit(budget="lab/llm/olmo", pools=["h100"], gpus=1)
            await client.wait(early.seq)
            followed = client.decisions()
            following = asyncio.create_task(anext(followed))
            await asyncio.sleep(0.3)
            assert not following.done()
            late = await client.submit(budget="lab/llm/olmo", pools=["h100"], gpus=1)
            decided = await following
            await followed.aclose()

            assert decided.seq > late.seq
            assert getattr(decided.decision, "workload", "") == late.workload

    run_async(story())


def test_without_a_core_the_caller_learns_that_his_event_waits(nats_server: EmbeddedServer, run_async: Run) -> None:
    async def story() -> None:
        async with cluster(nats_server, core=False) as url, Client.connect(url, "portal") as client:
            job = await client.submit(budget="lab/llm/olmo", pools=["h100"], gpus=1)
            with pytest.raises(Undecided, match=f"seq {job.seq}"):
                await client.wait(job.seq, timeout_s=0.3)

    run_async(story())


def test_without_a_server_the_outcome_is_unknown_and_the_same_id_stores_once(
    start_nats: Callable[..., EmbeddedServer], run_async: Run
) -> None:
    server = start_nats()

    async def story() -> None:
        async with cluster(server, core=False) as url, Client.connect(url, "portal") as client:
            await asyncio.to_thread(server.kill)
            with pytest.raises(Unanswered, match="event_id='mine'"):
                await client.publish(ClockTick(), event_id="mine", timeout_s=0.5)
            await asyncio.to_thread(server.start)
            first = await client.publish(ClockTick(), event_id="mine", timeout_s=30)
            second = await client.publish(ClockTick(), event_id="mine", timeout_s=30)

            assert (second.seq, second.duplicate) == (first.seq, True)

    run_async(story())


def test_the_example_of_the_docstring_runs(
    nats_server: EmbeddedServer, run_async: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    block = re.search(r"::\n\n(.*?)\n\n(?=\S)", inspect.getdoc(client_module) or "", re.DOTALL)
    assert block is not None
    code = textwrap.dedent(block[1])

    async def story() -> None:
        async with cluster(nats_server) as url:
            await run_example(code.replace("nats://portal:secret@nats.example:4222", url))

    run_async(story())
    printed = capsys.readouterr().out
    assert "WorkloadAdmitted" in printed
    assert re.search(r"starts at \d+ on \(Piece\(node='n\d'", printed)
    assert RunPlaced.__struct_config__.tag == "run.placed"


def test_the_example_of_the_readme_runs(
    nats_server: EmbeddedServer, run_async: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    readme = Path(__file__).resolve().parents[2] / "README.md"
    (code,) = (code for code in re.findall(r"```python\n(.*?)```", readme.read_text(), re.DOTALL) if "Client" in code)
    code = code.replace("lab/llm/eval", "lab/llm/olmo").replace('"ci"', '"portal"')

    async def story() -> None:
        async with cluster(nats_server) as url:
            await run_example(code.replace("nats://127.0.0.1:4222", url))

    run_async(story())
    assert "WorkloadAdmitted(workload='eval-17'" in capsys.readouterr().out


async def run_example(code: str) -> None:
    scope: dict[str, Any] = {}
    exec("async def example():\n" + textwrap.indent(code, "    "), scope)
    await scope["example"]()


def test_a_service_that_uses_the_client_loads_no_kernels_and_no_database() -> None:
    heavy = ("numba", "duckdb", "faststream", "pydantic", "typer", "rich")
    script = f"import sys, apportion.adapters.client; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)

    assert done.stdout.strip() == "[]"

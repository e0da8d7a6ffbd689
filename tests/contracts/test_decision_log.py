"""The contract of the port ``DecisionLog``: one class, run over memory, NATS, the archive, and a cut log."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from apportion.adapters.bus.decisions import PART_BYTES
from apportion.adapters.bus.local import Bus
from apportion.adapters.bus.server import EmbeddedServer
from apportion.adapters.logs.archive import ArchiveDecisionLog
from apportion.adapters.logs.memory import MemoryDecisionLog, MemoryEventLog
from apportion.core.errors import Fenced, LogMismatch
from apportion.core.ports import DecisionLog
from tests.archived import cut_in_half, export

Bodies = list[bytes]
Open = Callable[..., Any]

SMALL: Bodies = [b'{"cycle":%d}' % number for number in range(1, 31)]
# Around the size where a batch begins to travel in parts, and well above it.
LARGE: Bodies = [
    b"a",
    b"b" * PART_BYTES,
    b"c" * (PART_BYTES + 1),
    b"",
    bytes(range(256)) * 6_000,
    b"d" * (4 * PART_BYTES),
    b"e",
]


async def commit_all(log: DecisionLog, bodies: Bodies) -> list[int]:
    seqs: list[int] = []
    for number, body in enumerate(bodies):
        seqs.append(await log.commit(body, 10 * (number + 1), seqs[-1] if seqs else 0))
    return seqs


@pytest.fixture(params=["memory", "nats", "nats-plain", "archive", "cut"])
def open_log(
    request: pytest.FixtureRequest, tmp_path: Path, start_nats: Callable[..., EmbeddedServer]
) -> Callable[[Bodies], contextlib.AbstractAsyncContextManager[Any]]:
    """Return ``open_log(bodies)``: an async context with a log that holds these batches, one per tenth input."""

    @contextlib.asynccontextmanager
    async def memory(bodies: Bodies) -> AsyncIterator[Any]:
        log = MemoryDecisionLog()
        await commit_all(log, bodies)
        yield log

    @contextlib.asynccontextmanager
    async def nats(bodies: Bodies) -> AsyncIterator[Any]:
        async with await Bus.open(start_nats().url, create=True, bulk=request.param == "nats") as bus:
            await commit_all(bus.decisions, bodies)
            yield bus.decisions

    @contextlib.asynccontextmanager
    async def archive(bodies: Bodies) -> AsyncIterator[Any]:
        async with memory(bodies) as log:
            await export(MemoryEventLog(), log, tmp_path / "archive")
        yield ArchiveDecisionLog(tmp_path / "archive")

    @contextlib.asynccontextmanager
    async def cut(bodies: Bodies) -> AsyncIterator[Any]:
        async with await Bus.open(start_nats().url, create=True, archives=(tmp_path / "archive",)) as bus:
            await commit_all(bus.decisions, bodies)
            await cut_in_half(bus, tmp_path / "archive")
            yield bus.decisions

    return {"memory": memory, "nats": nats, "nats-plain": nats, "archive": archive, "cut": cut}[request.param]


class TestDecisionLog:
    """One writer, one batch per cycle, exact bytes."""

    def test_empty(self, open_log: Open, run_async: Any) -> None:
        async def scenario() -> None:
            async with open_log([]) as log:
                assert await log.last_seq() == 0
                assert await log.read(0, 10) == []

        run_async(scenario())

    @pytest.mark.parametrize("bodies", [SMALL, LARGE], ids=["small", "large"])
    def test_batches_come_back_whole_and_in_order(self, open_log: Open, run_async: Any, bodies: Bodies) -> None:
        async def scenario() -> None:
            async with open_log(bodies) as log:
                batches = await log.read(0, 1_000)

                assert [batch.body for batch in batches] == bodies
                assert [batch.input_seq for batch in batches] == [10 * (k + 1) for k in range(len(bodies))]
                assert [batch.seq for batch in batches] == sorted({batch.seq for batch in batches})
                assert batches[-1].seq == await log.last_seq()
                for number, batch in enumerate(batches):  # any batch's sequence is a position to read on from
                    assert await log.read(batch.seq, 2) == batches[number + 1 : number + 3]

        run_async(scenario())

    def test_position_beyond_the_end_is_another_log(self, open_log: Open, run_async: Any) -> None:
        async def scenario() -> None:
            async with open_log(SMALL) as log:
                with pytest.raises(LogMismatch):
                    await log.read(len(SMALL) + 1, 10)

        run_async(scenario())

    @pytest.mark.parametrize("body", [b"mine", b"m" * (PART_BYTES + 9)], ids=["one message", "parts"])
    def test_commit_is_fenced_and_repeatable(self, open_log: Open, run_async: Any, body: bytes) -> None:
        async def scenario() -> None:
            async with open_log(SMALL) as log:
                if isinstance(log, ArchiveDecisionLog):
                    with pytest.raises(LogMismatch, match="closed"):
                        await log.commit(body, 999, 30)
                    return
                seq = await log.commit(body, 999, 30)
                assert seq == await log.last_seq() > 30
                # The acknowledgement was lost, or an equal core was faster: the same bytes are a commit.
                assert await log.commit(body, 999, 30) == seq
                assert await log.last_seq() == seq
                # Other bytes at that place, at any place before, and behind a hole.
                with pytest.raises(Fenced, match="seq 31"):
                    await log.commit(b"other" * (len(body) // 5), 999, 30)
                with pytest.raises(Fenced):
                    await log.commit(body, 999, 0)
                with pytest.raises(LogMismatch):
                    await log.commit(body, 999, seq + 1)
                assert await log.last_seq() == seq
                assert [batch.body for batch in await log.read(30, 10)] == [body]

        run_async(scenario())

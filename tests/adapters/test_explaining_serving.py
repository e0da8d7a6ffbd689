"""The core that is kept for questions says what one read anew from the log says, tick after tick; and begins anew when it must."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from apportion.adapters.explaining import serving
from apportion.adapters.explaining.moment import moment_at
from apportion.adapters.explaining.report import explanation, node_explanation
from apportion.adapters.explaining.serving import Behind, Explainer, Past
from apportion.adapters.logs.memory import MemoryDecisionLog, MemoryEventLog
from apportion.adapters.past.replaying import state_at
from apportion.adapters.past.snapshots import DiskSnapshots, record_hash
from apportion.core.errors import ApportionError
from apportion.core.events import EVENT_TYPES, ClockTick
from tests.adapters.explained import RESERVED, played
from tests.core.story import Story

LINES = RESERVED + """
    tick
    tick 10m
    submit late B 8
    tick
    tick 1h
"""
Logs = tuple[MemoryEventLog, MemoryDecisionLog, list[int]]


@pytest.fixture(scope="module")
def story() -> Story:
    return played(LINES).story


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels may have to be compiled first."""
    monkeypatch.setattr(serving, "PATIENCE_S", 250)


@pytest.fixture
def logs(story: Story) -> Logs:
    """Return both logs of the story, and the sequences of its ticks at which the job waits."""
    events, decisions = MemoryEventLog(), MemoryDecisionLog()
    for record in story.records:
        events.append(record.subject, record.body, stored_ms=record.stored_ms)
    for number, (seq, body) in enumerate(story.batches.items()):
        asyncio.run(decisions.commit(body, seq, number))
    return events, decisions, list(story.batches)[1:]


async def anew(logs: Logs, seq: int) -> dict[str, Any]:
    return explanation(await moment_at(logs[0], logs[1], seq), "job")


def test_each_tick_is_explained_as_from_the_log(logs: Logs) -> None:
    async def ask() -> None:
        explainer = Explainer(logs[0], logs[1])
        for seq in (logs[2][0], logs[2][0], logs[2][2], logs[2][3]):
            assert await explainer.explain(seq, "job") == await anew(logs, seq)
        fast = await explainer.explain(logs[2][3], "job", trials=False)
        assert "changes" not in fast
        node = await explainer.explain_node(logs[2][3], "n2", "job")
        assert node == node_explanation(await moment_at(logs[0], logs[1], logs[2][3]), "n2", "job") is not None
        with pytest.raises(Past, match="after the tick"):
            await explainer.explain(logs[2][1], "job")
        await explainer.close()

    asyncio.run(ask())


def test_a_snapshot_that_is_far_ahead_is_started_from(logs: Logs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events, decisions, ticks = logs

    async def ask() -> None:
        core = await state_at(events, decisions, ticks[2])
        record = (await events.read(ticks[2] - 1, 1))[0]
        known_by = record_hash(record.subject, record.body)
        store = DiskSnapshots(tmp_path)
        explainer = Explainer(events, decisions, store)
        await explainer.explain(ticks[0], "job")
        store.save(ticks[2], core.snapshot(), record_hash=known_by, decision_seq=4)
        monkeypatch.setattr(serving, "FAR_RECORDS", 0)
        read = list[int]()
        original = events.read

        async def counted(after_seq: int, limit: int) -> Any:
            read.append(after_seq)
            return await original(after_seq, limit)

        monkeypatch.setattr(events, "read", counted)
        found = await explainer.explain(ticks[3], "job")
        assert min(read) >= ticks[2] - 1
        assert found == await anew(logs, ticks[3])
        await explainer.close()

    asyncio.run(ask())


def test_a_core_that_broke_on_the_way_is_not_asked_again(logs: Logs) -> None:
    events, decisions, ticks = logs

    async def ask() -> None:
        short = MemoryDecisionLog()
        explainer = Explainer(events, short)
        with pytest.raises(ApportionError, match="no stored batch"):
            await explainer.explain(ticks[1], "job")
        for batch in await decisions.read(0, 10):
            await short.commit(batch.body, batch.input_seq, batch.seq - 1)
        assert await explainer.explain(ticks[1], "job") == await anew(logs, ticks[1])
        await explainer.close()

    asyncio.run(ask())


def test_who_asks_too_early_is_told_to_ask_again_and_reading_goes_on(logs: Logs, monkeypatch: pytest.MonkeyPatch) -> None:
    async def ask() -> None:
        monkeypatch.setattr(serving, "PATIENCE_S", 0)
        explainer = Explainer(logs[0], logs[1])
        with pytest.raises(Behind, match="caught up"):
            await explainer.explain(logs[2][3], "job")
        monkeypatch.setattr(serving, "PATIENCE_S", 250)
        assert await explainer.explain(logs[2][3], "job") == await anew(logs, logs[2][3])
        await explainer.close()

    asyncio.run(ask())


def test_a_record_that_is_no_tick_is_refused(story: Story, logs: Logs) -> None:
    async def ask() -> None:
        explainer = Explainer(logs[0], logs[1])
        no_tick = next(record.seq for record in story.records if not record.subject.endswith(EVENT_TYPES[ClockTick]))
        with pytest.raises(ApportionError, match="no tick"):
            await explainer.explain(no_tick, "job")
        await explainer.close()

    asyncio.run(ask())

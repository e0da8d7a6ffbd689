"""A range that is read out of an archive is the one that the logs hold, however nodes speak, fall silent and come back."""

from __future__ import annotations

import asyncio
import random
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from apportion.adapters.logs import parts
from apportion.adapters.logs.archive import ArchiveDecisionLog, ArchiveEventLog
from apportion.adapters.logs.memory import MemoryDecisionLog, MemoryEventLog
from apportion.adapters.simulation.driver import Logs
from apportion.adapters.whatif import archived, reading
from apportion.adapters.whatif.hearing import Hearing
from apportion.adapters.whatif.history import History
from apportion.core.engine import Core
from apportion.core.envelope import Record
from tests.archived import export
from tests.whatif.past import cut, played_logs
from tests.whatif.test_any_past import told
from tests.whatif.test_nothing_changed import PASTS

SPACED, LISTING = 7, 3  # each so-many-th heartbeat is in another spelling; all but so many list what is broken: nothing


def spelled(logs: Logs) -> Logs:
    """Let some heartbeats be written in another way; what they say is the same."""
    return Logs([_spelled(record) for record in logs.records], logs.batches)


def _spelled(record: Record) -> Record:
    body = record.body
    if record.subject.endswith("node.heartbeat") and record.seq % SPACED == 0:
        body = body.replace(b'"v":1}', b'"v": 1}')
    elif record.subject.endswith("node.heartbeat") and record.seq % LISTING and b"[" not in body:
        body = body.replace(b'"busy_milli"', b'"gpus_down":[],"busy_milli"')
    return record._replace(body=body)


def kept(history: History) -> dict[str, Any]:
    """Return all that a history holds."""
    found = {field.name: getattr(history, field.name) for field in fields(history) if field.name not in ("beats", "recorder")}
    beats = history.beats
    named = [beats.speakers[who] for who in beats._who]
    return found | vars(history.recorder) | {"beats": list(zip(beats._seq, beats._time_ms, named, beats._beat, strict=True))}


async def both(logs: Logs, core: Core, directory: Path, to_seq: int) -> tuple[tuple[History, Any], tuple[History, Any]]:
    """Return the history after a core as the logs hold it, and as their archive does."""
    events, decisions = MemoryEventLog(), MemoryDecisionLog()
    for record in logs.records:
        events.append(record.subject, record.body, stored_ms=record.stored_ms)
    for number, batch in enumerate(logs.batches):
        await decisions.commit(batch.body, batch.input_seq, number)
    await export(events, decisions, directory)
    from_logs = await reading.read(core, events, decisions, to_seq)
    return from_logs, await reading.read(core, ArchiveEventLog(directory), ArchiveDecisionLog(directory), to_seq)


@pytest.mark.parametrize("all_beats", [0, reading.ALL_BEATS], ids=["thinned", "all"])
@pytest.mark.parametrize("logs", [*PASTS, 0, 1, 3], ids=lambda logs: f"seed{getattr(logs, 'seed', logs)}")
def test_it_is_the_same_history(logs: Any, all_beats: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "PART_ITEMS", 1_000)
    monkeypatch.setattr(archived, "RECORDS", 300)
    monkeypatch.setattr(reading, "ALL_BEATS", all_beats)
    whole = told(logs) if isinstance(logs, int) else played_logs(logs)
    core, rest = cut(whole, 0.2)
    whole = spelled(whole)
    read: list[Record] = []
    monkeypatch.setattr(archived, "take", _counting(archived.take, read))

    (from_logs, before), (from_archive, before_too) = asyncio.run(both(whole, core, tmp_path, rest.records[-3].seq))

    assert kept(from_archive) == kept(from_logs)
    assert before_too == before
    assert from_archive.records == len(rest.records) - 2
    assert len(read) > 0


def _counting(take: Any, read: list[Any]) -> Any:
    def counted(reader: Any, piece: Any) -> None:
        read.append(piece)
        take(reader, piece)

    return counted


def test_a_time_that_cannot_follow_is_left_out_as_ever(tmp_path: Path) -> None:
    logs = played_logs(PASTS[0])
    core, rest = cut(logs, 0.5)
    records = list(logs.records)
    submitted = [number for number, one in enumerate(records) if one.seq > core.seq and one.subject.endswith("workload.submitted")]
    for number, at_ms in zip(submitted[:2], (b'{"at_ms":-7,', b'{"at_ms":9007199254740991,'), strict=True):
        body = records[number].body
        records[number] = records[number]._replace(body=at_ms + body[body.index(b",") + 1 :])

    (from_logs, _), (from_archive, _) = asyncio.run(both(Logs(records, logs.batches), core, tmp_path, rest.records[-1].seq))

    assert kept(from_archive) == kept(from_logs)


def test_heartbeats_taken_ahead_count_as_they_would_have() -> None:
    dice, gaps = random.Random(3), 0
    for _round in range(50):
        at_ms, heard = 0, list[tuple[int, int]]()
        for seq in range(60):
            at_ms += dice.choice((0, 9, 10, 11, 10, 30, 200))
            heard.append((seq, at_ms))
        one, many, found = Hearing(), Hearing(), [0, 0]
        many.ahead("a", np.array([seq for seq, _ in heard]), np.array([at_ms for _, at_ms in heard]))
        for seq, time_ms in heard:
            found[0] += one.heard("a", time_ms)
            if dice.random() < 0.2:
                found[1] += many.catch_up("a", seq + 1)
                later_ms = time_ms + dice.choice((1, 40))
                assert one.silent("a", later_ms) == many.silent("a", later_ms)
                assert bool(found[0]) == bool(found[1])
                if dice.random() < 0.3:
                    assert one.gap_of("a") == many.gap_of("a")
        gaps += found[0]
    assert gaps > 50

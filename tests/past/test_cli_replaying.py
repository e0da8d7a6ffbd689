"""Verify and replay over two stored logs: what is right passes, and every kind of damage is found where it is."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from apportion.adapters.cli.proving import difference_lines
from apportion.adapters.past import differences, replaying, verifying
from apportion.adapters.proving.versions import RELEASES, own_version, what_to_install
from apportion.core.decisions import decode_batch, encode_batch
from apportion.core.engine import Core
from apportion.core.envelope import Record, StoredBatch, subject_of
from apportion.core.errors import LogMismatch
from apportion.core.events import (
    EVENT_TYPES,
    BudgetSet,
    ClockTick,
    CoreActivated,
    Event,
    LogOpened,
    NodeJoined,
    PoolDefined,
    RunFinished,
    RunStarted,
    WorkloadSubmitted,
    encode_event,
)
from apportion.core.fold.setup import CORE_NUMBER

START_MS = 1_700_000_000_000


@dataclass
class MemoryEvents:
    """EVENTS in a list."""

    records: list[Record] = field(default_factory=list)

    async def last_seq(self) -> int:
        return self.records[-1].seq if self.records else 0

    async def read(self, after_seq: int, limit: int) -> list[Record]:
        return [record for record in self.records if record.seq > after_seq][:limit]


@dataclass
class MemoryDecisions:
    """DECISIONS in a list. With ``parts`` each batch takes that many sequences, and reading inside one fails."""

    batches: list[StoredBatch] = field(default_factory=list)
    parts: int = 1

    async def last_seq(self) -> int:
        return self.batches[-1].seq if self.batches else 0

    async def read(self, after_seq: int, limit: int) -> list[StoredBatch]:
        if after_seq % self.parts:
            raise LogMismatch(f"seq {after_seq} is in the middle of a batch")
        return [batch for batch in self.batches if batch.seq > after_seq][:limit]

    async def commit(self, body: bytes, input_seq: int, expected_last_seq: int) -> int:
        raise AssertionError("replaying never writes")


def _story(parts: int = 1) -> tuple[MemoryEvents, MemoryDecisions]:
    """Return the logs of a small cluster: sixteen workloads come, run and end on two nodes."""
    events, decisions = MemoryEvents(), MemoryDecisions(parts=parts)
    core = Core.new()
    placed: list[tuple[str, int, str]] = []

    def say(event: Event, principal: str = "op") -> None:
        seq = len(events.records) + 1
        body = encode_event(event, event_id=f"e{seq}")
        record = Record(seq, START_MS + seq * 1_000, subject_of(principal, EVENT_TYPES[type(event)]), body)
        events.records.append(record)
        if core.fold(record):
            batch = core.decide()
            decisions.batches.append(StoredBatch((len(decisions.batches) + 1) * parts, seq, batch))
            placed.extend(
                (decision.workload, decision.run, decision.pieces[0].node)
                for decision in decode_batch(batch).decisions
                if type(decision).__name__ == "RunPlaced"
            )

    say(LogOpened(log_id="story", time_source="stored", operators=("op",)))
    say(PoolDefined(pool="p"))
    for node in ("n1", "n2"):
        say(NodeJoined(node=node, pool="p", gpus=8, agent="op"))
    say(BudgetSet(pool="p", budget="lab", share_ppm=1_000_000))
    say(BudgetSet(pool="p", budget="lab/a", share_ppm=600_000))
    say(BudgetSet(pool="p", budget="lab/b", share_ppm=400_000))
    say(ClockTick())
    for number in range(16):
        say(
            WorkloadSubmitted(
                workload=f"w{number}", budget="lab/a" if number % 3 else "lab/b", pools=("p",), gpus_milli=4_000
            )
        )
        say(ClockTick())
        if number % 2 and placed:
            workload, run, node = placed.pop(0)
            say(RunStarted(workload=workload, run=run, node=node))
            say(RunFinished(workload=workload, run=run, node=node, outcome="succeeded"))
            say(ClockTick())
    return events, decisions


def _verify(events: MemoryEvents, decisions: MemoryDecisions, *args: Any, **kwargs: Any) -> verifying.VerifyResult:
    return asyncio.run(verifying.verify(events, decisions, *args, **kwargs))


def test_what_the_core_wrote_is_derived_again_byte_for_byte() -> None:
    events, decisions = _story()

    result = _verify(events, decisions)

    assert result.ok
    assert result.first_difference is None
    assert (result.cycles, result.events) == (len(decisions.batches), len(events.records))
    assert result.digest == decode_batch(decisions.batches[-1].body).digest


@pytest.mark.parametrize("parts", [1, 3])
def test_from_any_snapshot_on_the_end_is_the_same(parts: int) -> None:
    events, decisions = _story(parts)
    whole = _verify(events, decisions)

    for seq in range(1, len(events.records) + 1):
        core = asyncio.run(replaying.state_at(events, decisions, seq))
        data = core.snapshot()
        rest = _verify(events, decisions, data)

        assert rest.ok, (seq, rest.first_difference)
        assert rest.digest == whole.digest
        assert core.cycle + rest.cycles == whole.cycles


def test_a_changed_decision_is_pointed_out_with_both_sides() -> None:
    events, decisions = _story()
    position, batch = next(
        (position, decode_batch(batch.body))
        for position, batch in enumerate(decisions.batches)
        if any(type(decision).__name__ == "RunPlaced" for decision in decode_batch(batch.body).decisions)
    )
    number = next(n for n, decision in enumerate(batch.decisions) if type(decision).__name__ == "RunPlaced")
    forged = msgspec.structs.replace(batch.decisions[number], protected_until_ms=1)
    changed = (*batch.decisions[:number], forged, *batch.decisions[number + 1 :])
    decisions.batches[position] = decisions.batches[position]._replace(
        body=encode_batch(msgspec.structs.replace(batch, decisions=changed))
    )

    result = _verify(events, decisions)
    found = result.first_difference

    assert not result.ok
    assert found is not None
    assert (found["what"], found["seq"], found["cycle"]) == ("decision", batch.seq, batch.cycle)
    assert found["fields"] == ["protected_until_ms"]
    assert (found["stored"]["protected_until_ms"], found["derived"]["protected_until_ms"] > 1) == (1, True)
    assert result.cycles == position


def test_a_changed_event_breaks_the_chain() -> None:
    events, decisions = _story()
    record = events.records[9]
    events.records[9] = record._replace(body=record.body.replace(b'"op"', b'"oq"').replace(b'"id":"e', b'"id":"f'))

    found = _verify(events, decisions).first_difference

    assert found is not None
    assert found["what"] == "chain"
    assert found["seq"] == next(batch.input_seq for batch in decisions.batches if batch.input_seq >= record.seq)


def test_a_missing_record_is_a_gap_not_a_skip() -> None:
    events, decisions = _story()
    del events.records[11]

    found = _verify(events, decisions).first_difference

    assert found is not None
    assert found["what"] == "log"
    assert "expected seq 12" in found["detail"]


def test_a_missing_batch_is_found_at_its_tick() -> None:
    events, decisions = _story()
    gone = decisions.batches.pop(5)

    found = _verify(events, decisions).first_difference

    assert found is not None
    assert (found["what"], found["seq"]) == ("order", gone.input_seq)


def test_batches_missing_at_the_end_are_a_cycle_in_progress_only_for_the_last_tick() -> None:
    events, decisions = _story()
    decisions.batches.pop()
    one = _verify(events, decisions)
    decisions.batches.pop()
    two = _verify(events, decisions)

    assert one.ok
    assert one.undecided == 1
    assert not two.ok
    assert two.first_difference is not None
    assert two.first_difference["what"] == "missing batch"


def test_bytes_that_are_no_batch_are_shown_as_they_are() -> None:
    events, decisions = _story()
    decisions.batches[3] = decisions.batches[3]._replace(body=b'{"core":1')

    found = _verify(events, decisions).first_difference

    assert found is not None
    assert (found["what"], found["stored"]) == ("unreadable batch", '{"core":1')
    with pytest.raises(differences.Difference, match="batch"):
        asyncio.run(replaying.state_at(events, decisions))


def test_a_snapshot_of_a_longer_log_is_refused() -> None:
    events, decisions = _story()
    data = asyncio.run(replaying.state_at(events, decisions)).snapshot()
    del events.records[20:]

    with pytest.raises(ValueError, match="before the snapshot"):
        _verify(events, decisions, data)


@pytest.mark.parametrize("to_seq", [0, 1, 8, 9, 30])
def test_stops_after_the_record_asked_for(to_seq: int) -> None:
    events, decisions = _story()

    core = asyncio.run(replaying.state_at(events, decisions, to_seq))

    assert core.seq == to_seq


def test_a_sequence_beyond_the_log_is_an_error() -> None:
    events, decisions = _story()

    with pytest.raises(ValueError, match="seq 999 is beyond the log"):
        asyncio.run(replaying.state_at(events, decisions, 999))


def test_progress_reaches_the_end() -> None:
    events, decisions = _story()
    seen: list[tuple[int, int]] = []

    _verify(events, decisions, None, lambda at: seen.append((at.seq, at.last_seq)))

    assert seen[-1] == (len(events.records), len(events.records))


def test_a_log_of_another_core_says_which_version_to_install() -> None:
    number = 7
    events, decisions = _story()
    body = encode_event(CoreActivated(core=number), event_id="other")
    seq = decisions.batches[5].input_seq + 1
    del events.records[seq - 1 :], decisions.batches[6:]
    events.records.append(Record(seq, START_MS + seq * 1_000, subject_of("op", "core.activated"), body))

    result = _verify(events, decisions)
    found = result.first_difference

    assert not result.ok
    assert found is not None
    assert (found["what"], found["seq"], found["core"], result.cycles) == ("core number", seq, number, 6)
    lines = difference_lines(found, result.cycles)
    assert "pip install --upgrade apportion" in lines[1]
    assert f"--to {seq - 1}" in lines[2]
    assert _verify(events, decisions, to_seq=seq - 1).ok


def test_a_log_opened_for_another_core_is_not_begun() -> None:
    events, decisions = _story()
    opened = LogOpened(log_id="story", time_source="stored", operators=("op",), core=2)
    events.records[0] = events.records[0]._replace(body=encode_event(opened, event_id="e1"))

    found = _verify(events, decisions).first_difference

    assert found is not None
    assert (found["what"], found["seq"], found["core"]) == ("core number", 1, 2)


def test_every_core_has_a_version_that_implements_it() -> None:
    assert "apportion 0.1" in what_to_install(CORE_NUMBER, CORE_NUMBER)
    assert own_version().startswith(RELEASES[CORE_NUMBER])
    assert "no released version implements core 0" in what_to_install(0, CORE_NUMBER)

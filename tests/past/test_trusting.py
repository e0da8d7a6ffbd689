"""A replay of segments comes to the state that a replay of the records comes to, at any record, and believes nothing damaged."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from apportion.adapters.archiving.writing import write
from apportion.adapters.cli.showing import progress
from apportion.adapters.demo.generator import Shape, generate
from apportion.adapters.logs import parts
from apportion.adapters.logs.archive import ArchiveDecisionLog, ArchiveEventLog, segments_of
from apportion.adapters.logs.manifest import load
from apportion.adapters.logs.memory import MemoryDecisionLog, MemoryEventLog
from apportion.adapters.logs.segments import read_sheet
from apportion.adapters.past import trusting
from apportion.adapters.past.differences import Difference
from apportion.adapters.past.replaying import state_and_position, state_at
from apportion.adapters.past.snapshots import DiskSnapshots
from apportion.adapters.past.trusting import columns_of, state_from
from apportion.adapters.past.verifying import verify
from apportion.adapters.simulation.cluster import Layout, TimeSource
from apportion.adapters.simulation.driver import Logs, Simulation
from apportion.adapters.simulation.faults import ROUGH, Faults
from apportion.adapters.simulation.world import World, WorldOptions
from apportion.core.engine import Core
from apportion.core.envelope import subject_of
from apportion.core.errors import ApportionError, LogMismatch
from apportion.core.events import NodeHeartbeat, NodeJoined, encode_event
from apportion.core.kernels import reports
from tests.projections.history import HOUR_MS, MINUTE_MS, START_MS, TROUBLED, job, opened

pytestmark = pytest.mark.timeout(900)  # whoever comes first compiles the kernel of stretches
needs_machine_code = pytest.mark.skipif(not reports.COMPILED, reason="Numba is told not to compile")


@functools.cache
def played(seed: int, time_source: TimeSource, *, rough: bool) -> Logs:
    """Return the logs of two troubled nodes around a midnight."""
    start_ms, hours = START_MS + 20 * HOUR_MS, 9
    options = WorldOptions(
        seed=seed, start_ms=start_ms, length_ms=hours * HOUR_MS, layout=Layout(nodes=2), rates=TROUBLED, time_source=time_source
    )
    jobs = generate(seed, Shape(days=1, gpus=16, largest=16))
    simulation = Simulation(World(jobs, options), arrive=Faults(seed, ROUGH) if rough else None)
    return simulation.run(start_ms + hours * HOUR_MS, cycle_ms=5 * MINUTE_MS)


def archived(
    history: Logs, directory: Path, run_async: Any, monkeypatch: pytest.MonkeyPatch
) -> tuple[MemoryEventLog, MemoryDecisionLog]:
    monkeypatch.setattr(parts, "PART_ITEMS", 300)
    events, decisions = MemoryEventLog(), MemoryDecisionLog()
    events._records, decisions._batches = history.records, history.batches
    run_async(write(events, decisions, directory, with_open_day=True))
    return events, decisions


@pytest.mark.parametrize(("seed", "time_source", "rough"), [(1, "stated", True), (2, "stored", True), (3, "stored", False)])
def test_segments_give_the_state_that_the_records_give(
    tmp_path: Path, run_async: Any, monkeypatch: pytest.MonkeyPatch, seed: int, time_source: TimeSource, rough: bool
) -> None:
    history = played(seed, time_source, rough=rough)
    logs = archived(history, tmp_path, run_async, monkeypatch)
    last_seq = len(history.records)
    ticks = [batch.input_seq for batch in history.batches]
    ends = [segment.header.last_seq for segment in segments_of(tmp_path, "events")]
    for seq in (1, 5, ticks[0], ticks[0] - 1, ticks[9] + 1, ends[0], ends[1] + 1, load(tmp_path).days[0].last_seq, last_seq):
        assert state_from(tmp_path, seq).digest() == run_async(state_at(*logs, seq)).digest()
    archive = ArchiveEventLog(tmp_path), ArchiveDecisionLog(tmp_path)
    from_text, from_records = (run_async(verify(*both)) for both in (archive, logs))
    assert (from_text.ok, from_text.cycles, from_text.events) == (True, len(ticks), last_seq)
    assert from_text.digest == from_records.digest, "an archive's bytes, in one text, are derived like records"
    by_segments, by_records = (run_async(state_and_position(*both, ticks[7] + 2)) for both in (archive, logs))
    assert (by_segments[0].snapshot(), by_segments[1]) == (by_records[0].snapshot(), by_records[1])

    found = DiskSnapshots(tmp_path / "snapshots").load(last_seq)
    assert found is not None
    whole = state_from(tmp_path, from_snapshot=found[1])
    assert whole.snapshot() == run_async(state_at(*logs)).snapshot()
    assert (whole.last_batch is not None) == (ticks[-1] > found[0])


def slow_ones(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that fills with the subjects of records that are folded from their bytes."""
    slow = list[str]()
    fold = trusting.Columns.__init__

    def counted(self: Any, *args: Any) -> None:
        fold(self, *args)
        record = self.record
        self.record = lambda position: slow.append(self._subjects[self.told.who[position]]) or record(position)

    monkeypatch.setattr(trusting.Columns, "__init__", counted)
    return slow


@needs_machine_code
def test_hardly_a_heartbeat_goes_the_slow_way(tmp_path: Path, run_async: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    archived(played(3, "stored", rough=False), tmp_path, run_async, monkeypatch)
    slow = slow_ones(monkeypatch)
    core = state_from(tmp_path)

    beats = sum(subject.endswith(".node.heartbeat") for subject in slow)
    assert core.state.counters.heartbeats > 900
    assert beats < core.state.counters.heartbeats // 10


@pytest.mark.parametrize(
    "agents",
    [("agent-n1", "agent-n2", "agent-n3"), ("n2", "n1", "n3"), ("rack", "rack", "rack"), ("n1", "n1", "n2")],
    ids=["of their own", "named after each other", "one for all", "some for others"],
)
def test_a_node_is_not_taken_for_who_speaks_for_it(
    tmp_path: Path, run_async: Any, monkeypatch: pytest.MonkeyPatch, agents: tuple[str, str, str]
) -> None:
    story = opened(nodes=0)
    names = dict(zip(("n1", "n2", "n3"), agents, strict=True))
    for node, agent in names.items():
        story.say(NodeJoined(node=node, pool="h100", gpus=8), agent)
    story.say(job("w", 8), "ann")
    for beat in range(1, 400):
        for node, agent in names.items():
            sick = (3,) if beat > 300 and node == "n3" else ()
            event = NodeHeartbeat(node=node, beat=beat, busy_milli=1_000 * beat, gpus_down=sick)
            body = encode_event(event, event_id=f"{node}.{beat}", at_ms=story.now_ms)
            story.now_ms += 1_000
            story.put(subject_of(agent, "node.heartbeat"), body)
        if beat % 60 == 1:
            story.tick()
    logs = archived(story.logs, tmp_path, run_async, monkeypatch)
    slow = slow_ones(monkeypatch)

    assert state_from(tmp_path).snapshot() == run_async(state_at(*logs)).snapshot()
    assert sum(subject.endswith(".node.heartbeat") for subject in slow) < (120 if reports.COMPILED else 2_000)


def test_damage_and_what_does_not_belong_together_is_refused(
    tmp_path: Path, run_async: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = played(3, "stored", rough=False)
    archived(history, tmp_path, run_async, monkeypatch)
    with pytest.raises(ValueError, match="is not from 0"):
        state_from(tmp_path, len(history.records) + 1)
    entry = load(tmp_path).days[0]
    path = tmp_path / entry.events[1].name
    whole = path.read_bytes()
    path.write_bytes(whole[:900] + bytes([whole[900] ^ 1]) + whole[901:])
    with pytest.raises(LogMismatch, match=path.name):
        state_from(tmp_path)
    path.write_bytes(whole)

    monkeypatch.setattr(trusting, "_batches", lambda segments, first: iter([history.batches[1:]]))
    with pytest.raises(Difference, match="the next stored batch answers"):
        state_from(tmp_path)
    first = history.batches[0]
    other = first._replace(body=first.body.replace(b'"cycle":1', b'"cycle":2'))
    monkeypatch.setattr(trusting, "_batches", lambda segments, first: iter([[other, *history.batches[1:]]]))
    with pytest.raises(Difference, match="cannot be folded"):
        state_from(tmp_path)


def test_a_core_without_its_chain_is_not_used(tmp_path: Path, run_async: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    history = played(3, "stored", rough=False)
    archived(history, tmp_path, run_async, monkeypatch)
    segment = segments_of(tmp_path, "events")[0]
    core = Core.new()
    core.fold_columns(columns_of(read_sheet(segment), 1, 20))
    for forbidden in (core.snapshot, core.digest, core.decide):
        with pytest.raises(ApportionError):
            forbidden()


@pytest.mark.parametrize("kept", [True, False])
def test_who_waits_for_the_compiler_is_told(
    tmp_path: Path, run_async: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], kept: bool
) -> None:
    archived(played(3, "stored", rough=False), tmp_path, run_async, monkeypatch)
    monkeypatch.setattr(trusting, "is_kept", lambda kernel: kept)
    pauses = list[str]()
    with progress("core") as show:
        state_from(tmp_path, 400, progress=lambda at: pauses.append(at.pause) or show(at))

    assert pauses[0] == ("" if kept else trusting.COMPILES)
    assert not any(pauses[1:])
    assert (capsys.readouterr().err == f"core: {trusting.COMPILES}\n") is not kept


def test_what_a_replay_passes_over_is_refused_before_it_is_archived(
    tmp_path: Path, run_async: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No state depends on such a field of a stored decision, so the kernel does not look at it: who writes the archive does."""
    history = played(3, "stored", rough=False)
    number = next(at for at, batch in enumerate(history.batches) if b'"type":"workload.admitted"' in batch.body)
    batch, batches = history.batches[number], list(history.batches)
    changed = re.sub(rb'(admitted","workload":"[^"]*","event_seq":)\d+', rb'\1"x"', batch.body, count=1)
    batches[number] = batch._replace(body=changed)
    assert changed != batch.body

    with pytest.raises(msgspec.ValidationError, match="event_seq"):
        archived(Logs(records=history.records, batches=batches), tmp_path, run_async, monkeypatch)

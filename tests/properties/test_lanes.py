"""All ways through the fold are one function: by kernel, from one text, in the loop, one by one, in steps; to the last byte."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Any
from unittest import mock

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apportion.adapters.simulation.driver import Simulation
from apportion.core import events as ev
from apportion.core.engine import Core
from apportion.core.envelope import Record, encode, subject_of
from apportion.core.errors import ApportionError, LogGap
from apportion.core.fold import beats, lane, records
from apportion.core.fold.text import Text
from apportion.core.kernels import reports as kernel
from apportion.core.state.holdings import runs_on_node
from apportion.core.state.keyindex import KeyIndex
from apportion.core.state.schema import RunTable
from apportion.core.units import MAX_DURATION_MS, MAX_TIME_MS
from tests.core.story import START_MS, Story
from tests.simulation.worlds import Setting, world_of
from tests.strategies import POISON_NUMBERS

LANES = ("kernel", "loop", "one by one", "text", "in steps")
needs_machine_code = pytest.mark.skipif(not kernel.COMPILED, reason="Numba is told not to compile")


class NeverMatches:
    """A one-pass decoder that can read nothing."""

    def decode(self, _body: bytes) -> Any:
        """Refuse, as for a body of another shape."""
        raise msgspec.DecodeError("not in one pass")


@contextmanager
def only(way: str) -> Iterator[None]:
    """Close the lanes that are faster than ``way``."""
    with ExitStack() as closed:
        if way not in ("kernel", "text"):
            closed.enter_context(mock.patch.object(kernel, "COMPILED", False))
        if way == "in steps":
            closed.enter_context(mock.patch.object(beats, "plain_decoder", NeverMatches()))
            steps = {name: kind._replace(decoder=NeverMatches()) for name, kind in records._KINDS.items()}
            closed.enter_context(mock.patch.dict(records._KINDS, steps))
        yield


@contextmanager
def spied() -> Iterator[list[tuple[int, int]]]:
    """Yield what each call of the kernel has taken: records, and how many of them were heartbeats."""
    seen, fold = list[tuple[int, int]](), kernel.fold

    def counted(numbers: Any, data: Any, told: Any, speakers: Any, first: int, *rest: Any) -> int:
        reached = int(fold(numbers, data, told, speakers, first, *rest))
        seen.append((reached - first, int(numbers[kernel.BEATS])))
        return reached

    with mock.patch.object(kernel, "fold", counted):
        yield seen


def text_of(records: list[Record]) -> Text:
    """Return records as a store of whole segments hands them out."""
    subjects: dict[str, int] = {}
    who = np.array([subjects.setdefault(record.subject, len(subjects)) for record in records], dtype=np.int64)
    stored_ms = np.array([record.stored_ms for record in records], dtype=np.int64)
    ends = np.cumsum([len(record.body) for record in records])
    data = np.frombuffer(b"".join(record.body for record in records), dtype=np.uint8)
    return Text(records[0].seq, list(subjects), who, stored_ms, data, ends)


def read(log: list[Record], sizes: list[int], way: str) -> list[str]:
    """Fold a log in lists of the given sizes, deciding its cycles; return the digest after each list, and of the last snapshot."""
    core, found, position = Core.new(), list[str](), 0
    with only(way):
        while position < len(log):
            some = log[position : position + sizes[len(found) % len(sizes)]]
            text, done = text_of(some), 0
            while done < len(some):
                if way == "one by one":
                    core.fold(some[done])
                    done += 1
                elif way == "text":
                    done = core.fold_text(text, done)
                else:
                    done = core.fold_many(some, done)
                if core.tick_pending:
                    core.decide()
            position += len(some)
            found.append(core.digest())
    return [*found, core.snapshot().hex()[:128]]


def assert_all_ways_are_one(log: list[Record], sizes: list[int]) -> None:
    """Compare what each lane makes of the log after every list of records."""
    expected = read(log, sizes, LANES[-1])
    for way in LANES[:-1]:
        assert read(log, sizes, way) == expected, way


# -- odd spellings, rights and times -----------------------------------------------------------------------------------


def heartbeat_body(rng: random.Random, node: str, number: int, at_ms: int) -> bytes:
    """Return a heartbeat, plain or with something unusual in its envelope or payload."""
    if rng.random() < 0.3:
        busy, beat = rng.choice([0, 7_250, 7_250, 2**53, 2**53 + 1]), rng.choice([number] * 9 + [2**53 + 1])
        event = ev.NodeHeartbeat(node=node, beat=beat, busy_milli=busy, runs=rng.choice([None, ()]))
        return ev.encode_event(event, event_id=rng.choice(["e1", ""]), at_ms=at_ms)
    data: dict[str, Any] = {"node": node, "beat": number}
    body: dict[str, Any] = {"id": "x", "type": "node.heartbeat", "at_ms": at_ms, "data": data}
    if rng.random() < 0.3:
        data |= rng.choice(
            [
                {"gpus_down": [0]}, {"gpus_down": []}, {"gpus_down": [72]}, {"runs": []}, {"runs": ["w#1"]}, {"runs": None},
                {"busy_milli": 8_000, "watts": 700}, {"unknown": {"a": [1, {"b": 2}]}}, {"beat": rng.choice(POISON_NUMBERS)},
                {"beat": 1}, {"node": "a*b"}, {"beat": "7"}, {"beat": 1.0}, {"unknown": "a{{{{[[["}, {"beat": None},
            ]
        )  # fmt: skip
    if rng.random() < 0.2:
        body |= rng.choice(
            [
                {"v": 2}, {"v": "1"}, {"cause": 5}, {"cause": "e1"}, {"flow": None}, {"at_ms": -1}, {"at_ms": 2**63}, {"id": 5},
                {"at_ms": "now"}, {"type": "pool.defined"}, {"id": ""}, {"at_ms": at_ms + 10**9}, {"more": [[[[]]]]}, {"data": []},
            ]
        )  # fmt: skip
    encoded = encode(body)
    return encoded if rng.random() < 0.95 else rng.choice([encoded[:-1], encoded + b" ", b" " + encoded, b"\xff" + encoded])


def opened(time_source: Any = "stated") -> Story:
    """Return a log with a pool and three nodes, each with its own agent."""
    story = Story()
    story.open(time_source)
    story.tell(ev.PoolDefined(pool="p"))
    for node in ("n1", "n2", "n3"):
        story.tell(ev.NodeJoined(node=node, pool="p", gpus=8, agent=f"agent-{node}"))
    return story


@pytest.mark.parametrize("time_source", ["stated", "stored"])
def test_odd_heartbeats_are_the_same_in_every_lane(time_source: Any) -> None:
    rng = random.Random(5)
    story = opened(time_source)
    for number in range(1, 2_000):
        step_ms = rng.choice([0, 0, 1, 10_000, -5_000, 80_000 if number % 50 else 100_000])
        story.now_ms = max(story.now_ms, story.core.time_ms) + step_ms
        node = rng.choice(["n1", "n1", "n2", "n3" if number % 300 < 200 else "n2", "gone"])
        who = rng.choice([f"agent-{node}"] * 8 + ["agent-n1", "ops", "stranger"])
        if rng.random() < 0.02:
            story.tick()
        if rng.random() < 0.01:
            left = story.core.state.node.gpus[1] == 0
            story.tell(ev.NodeJoined(node="n2", pool="p", gpus=8, agent="agent-n2") if left else ev.NodeLeft(node="n2"))
        subject = rng.choice([subject_of(who, "node.heartbeat")] * 30 + [f"ap.ev.{who}.x.node.heartbeat", "node.heartbeat"])
        row = story.core.state.node.row_of.get(node, 0)
        beat = number if rng.random() < 0.9 else min(number, int(story.core.state.node.beat[row])) + rng.choice([0, 0, 1])
        story.send(subject, heartbeat_body(rng, node, beat, story.now_ms))
    assert story.core.state.counters.heartbeats > 300
    assert story.refused() > 100
    assert sum(b"heartbeat_timeout" in body for body in story.batches.values()) > 3, "nodes fall silent and return"

    assert_all_ways_are_one(story.records, [lane.WORTH + 6, 3, 300, 1, 40])


def running(time_source: Any = "stated") -> Story:
    """Return a log in which ``w#1`` runs on node n1."""
    story = opened(time_source)
    story.tell(ev.BudgetSet(pool="p", budget="b", share_ppm=1_000_000))
    story.tell(ev.WorkloadSubmitted(workload="w", budget="b", pools=("p",), gpus_milli=4_000))
    story.tick()
    run = story.core.state.run
    assert story.core.state.node.keys[int(run.lead[run.row_of["w#1"]])] == "n1"
    story.tell(ev.RunStarted(workload="w", run=1, node="n1"), "agent-n1")
    return story


@pytest.mark.parametrize("time_source", ["stated", "stored"])
def test_no_changed_byte_of_a_report_is_read_otherwise_by_the_kernel(time_source: Any) -> None:
    """Each byte of the one spelling, changed, doubled or left out: accepted or refused, and effective, as in the other lanes."""
    story, number, taken = running(time_source), 0, list[int]()
    listed = ev.NodeHeartbeat(node="n1", beat=1, busy_milli=10, memory_mib=7, watts=300, runs=("a#1", "w#1"))
    bare = ev.NodeHeartbeat(node="n1", beat=1, runs=("w#1",))
    safe = ev.RunCheckpointed(workload="w", run=1, progress_ms=1)
    sick = ev.NodeHeartbeat(node="n1", beat=1, gpus_down=(5, 6), busy_milli=10)
    for event in (listed, bare, safe, sick):
        body = ev.encode_event(event, event_id="e", at_ms=START_MS).replace(b'"beat":1', b'"beat":%d')
        body = body.replace(b'"progress_ms":1', b'"progress_ms":%d')
        before = story.refused()
        for at in range(len(body)):
            for piece in (*b'09"\\,]# \x1f\x7f\xc3', b"", body[at : at + 1] * 2):
                number += 1
                changed = body[:at] + (bytes([piece]) if isinstance(piece, int) else piece) + body[at + 1 :]
                story.send(subject_of("agent-n1", ev.EVENT_TYPES[type(event)]), changed.replace(b"%d", b"%d" % number))
                if story.core.state.alloc.column("missed").max() == 2:
                    number += 1  # or the run would be lost
                    story.tell(ev.NodeHeartbeat(node="n1", beat=number, runs=("w#1",)), "agent-n1")
        taken.append(story.refused() - before)
    assert 300 < story.core.state.counters.heartbeats < number // 2
    assert all(count > 300 for count in taken)
    assert story.core.state.workload.progress_ms[0] > number // 2, "checkpoints are taken"

    assert_all_ways_are_one(story.records, [100])


@needs_machine_code
@pytest.mark.parametrize("time_source", ["stated", "stored"])
def test_odd_checkpoints_are_the_same_in_every_lane(time_source: Any) -> None:
    """From the wrong agent, of other runs, backwards, too far, of ended runs, funded or not; shares change by plan between."""
    rng, story, ended_at = random.Random(9), running(time_source), 0
    story.tell(ev.WorkloadSubmitted(workload="u", budget="b", pools=("p",), gpus_milli=2_000, min_runtime_ms=0))
    for number in range(1, 1_500):
        story.now_ms += rng.choice([0, 1, 900, 5_000])
        if rng.random() < 0.05:
            from_ms = story.now_ms + rng.choice([1, 40_000])
            story.tell(ev.BudgetSet(pool="p", budget="b", share_ppm=rng.choice([1, 700_000]), from_ms=from_ms))
        if rng.random() < 0.03 and number > ended_at + 30:
            for node in ("n1", "n2", "n3"):
                story.tell(ev.NodeHeartbeat(node=node, beat=number), f"agent-{node}")
            story.tick()
            for started, node in leads(story).items():
                story.tell(ev.RunStarted(workload=started[0], run=int(started[2:]), node=node), f"agent-{node}")
                if started == "w#2":  # an attempt that brings nothing
                    story.tell(ev.RunLost(workload="w", run=2, node=node), f"agent-{node}")
        live = leads(story)
        key = rng.choice(["w#1", "w#3", "u#1", "v#1", *live, *live, *live])
        node = live.get(key, "n1")
        progress_ms = rng.choice([number] * 9 + [number - 3, 0, MAX_DURATION_MS + 1] + [MAX_DURATION_MS] * (number > 1_400))
        event: ev.Event = ev.RunCheckpointed(workload=key[0], run=int(key[2:]), progress_ms=progress_ms)
        if number in (200, 1_200):
            run = 1 if number == 200 else 3
            node, ended_at = live[f"w#{run}"], number
            event = ev.RunLost(workload="w", run=run, node=node)
        story.tell(event, rng.choice([f"agent-{node}"] * 12 + ["ops", "agent-n2", "stranger"] * (number != ended_at)))
    assert story.refused() > 100
    assert len(story.batches) > 10
    assert "w#4" in leads(story)

    with spied() as seen:
        assert_all_ways_are_one(story.records, [300, 1, 70])
    assert sum(records - heartbeats for records, heartbeats in seen) > 500, "checkpoints go through the kernel"


def leads(story: Story) -> dict[str, str]:
    """Return the nodes that speak for the runs in progress."""
    state = story.core.state
    return {key: state.node.keys[int(state.run.lead[row])] for row, key in enumerate(state.run.keys) if key}


@needs_machine_code
def test_a_checkpoint_is_news_for_the_next_cycle_and_a_heartbeat_is_not() -> None:
    for way in LANES:
        story = running()
        story.tick()
        seq = story.core.seq
        some = [record._replace(seq=seq + 1 + at) for at, record in enumerate(plain(200))]
        safe = ev.encode_event(ev.RunCheckpointed(workload="w", run=1, progress_ms=5), event_id="e", at_ms=START_MS)
        with only(way):
            story.core.fold_many(some[:100])
            assert not story.core.dirty, way
            some.append(Record(seq + 201, START_MS, subject_of("agent-n1", "run.checkpointed"), safe))
            story.core.fold_many(some[100:])
        assert story.core.dirty, way


def test_the_last_instants_of_time_are_the_same_in_every_lane() -> None:
    for time_source in ("stated", "stored"):
        story = Story(start_ms=MAX_TIME_MS - 500)
        story.open(time_source)
        story.tell(ev.PoolDefined(pool="p"))
        story.tell(ev.NodeJoined(node="n1", pool="p", gpus=8))
        for beat in range(1, 100):
            story.now_ms += 10
            story.tell(ev.NodeHeartbeat(node="n1", beat=beat))
        assert story.core.time_ms == MAX_TIME_MS

        assert_all_ways_are_one(story.records, [100, lane.WORTH])


# -- a world -----------------------------------------------------------------------------------------------------------


@cache
def world_log(time_source: Any) -> list[Record]:
    """A small troubled world whose nodes list their runs in half of their beats, many lists wrong, some beats spoilt."""
    rng = random.Random(7)
    simulation = Simulation(world_of(Setting(3, nodes=6, hours=10, largest=32, time_source=time_source)))
    simulation.run(simulation.world.options.start_ms + 10 * 3_600_000)
    core, log, missed = Core.new(), list[Record](), 0
    for record in simulation.logs.records:
        body = record.body
        if record.subject.endswith(".node.heartbeat") and rng.random() < 0.5:
            body = with_list(rng, core, body)
        if record.subject.endswith((".node.heartbeat", ".run.checkpointed")) and rng.random() < 0.03:
            body = spoilt(rng, body)
        log.append(Record(record.seq, record.stored_ms - rng.choice([0, 0, 0, 90_000]), record.subject, body))
        if core.fold(log[-1]):
            core.decide()
        missed += bool(core.state.alloc.column("missed").any())
    assert missed > 100, "lists that leave out a run are in it"
    return log


def with_list(rng: random.Random, core: Core, body: bytes) -> bytes:
    """Return the heartbeat with a list of the runs that the core knows at its node, now and then a wrong one."""
    envelope = msgspec.json.decode(body)
    node = core.state.node.row_of.get(envelope["data"]["node"])
    runs = [] if node is None else [core.state.run.keys[run] for run in runs_on_node(core.state, node)]
    if rng.random() < 0.3:
        wrong = [runs[1:], runs[:-1], [*runs, *runs], [*runs, "gone#1"], ["é#1", *runs], [f"x#{n}" for n in range(70)], runs[::-1]]
        runs = rng.choice(wrong)
        runs += rng.choice([[], [key for key in core.state.run.keys if key][:3]])
    event = ev.NodeHeartbeat(node=envelope["data"]["node"], beat=envelope["data"]["beat"], runs=tuple(runs))
    return ev.encode_event(event, event_id=envelope["id"], at_ms=envelope["at_ms"])


def spoilt(rng: random.Random, body: bytes) -> bytes:
    at = rng.randrange(len(body))
    return body[:at] + rng.choice([b"", b"7", bytes([rng.randrange(256)])]) + body[at + 1 :]


@needs_machine_code
@pytest.mark.parametrize("time_source", ["stated", "stored"])
def test_a_world_is_the_same_in_every_lane(time_source: Any) -> None:
    log = world_log(time_source)
    with spied() as seen:
        assert_all_ways_are_one(log, [200, 17, lane.WINDOW + 300, 64, 1, 90])
    beats_in_log = sum(record.subject.endswith(".node.heartbeat") for record in log)
    assert sum(heartbeats for _, heartbeats in seen) > beats_in_log * 6 // 10, "most of them went through the kernel"
    assert len(seen) > 100


# -- what the lane relies on -------------------------------------------------------------------------------------------


def plain(count: int, first_seq: int = 6) -> list[Record]:
    """Return heartbeats that follow ``opened``."""
    return [
        Record(
            first_seq + number,
            START_MS,
            subject_of("agent-n1", "node.heartbeat"),
            ev.encode_event(ev.NodeHeartbeat(node="n1", beat=number + 1), event_id=f"e{number}", at_ms=START_MS),
        )
        for number in range(count)
    ]


@needs_machine_code
def test_a_list_that_changes_while_it_is_folded_stops_the_core() -> None:
    core = opened().core
    some = plain(200)
    tick = ev.encode_event(ev.ClockTick(), event_id="t", at_ms=START_MS)
    some[99] = Record(105, START_MS, subject_of("core", "clock.tick"), tick)
    done = core.fold_many(some)
    core.decide()
    assert done == 100
    some[150] = plain(200)[150]._replace(body=b"another")

    with pytest.raises(ApportionError, match="changed while"):
        core.fold_many(some, done)


def test_a_text_that_does_not_follow_is_a_gap() -> None:
    core = opened().core
    with pytest.raises(LogGap, match="expected seq 6, got 7"):
        core.fold_text(text_of(plain(200, first_seq=7)))
    assert core.fold_text(text_of(plain(200))) == 200


def test_a_pending_cycle_is_answered_before_a_text_goes_on() -> None:
    core = opened().core
    tick = ev.encode_event(ev.ClockTick(), event_id="t", at_ms=START_MS)
    text = text_of([Record(6, START_MS, subject_of("core", "clock.tick"), tick), *plain(100, first_seq=7)])
    done = core.fold_text(text)
    with pytest.raises(ApportionError, match="undecided"):
        core.fold_text(text, done)
    core.decide()
    assert (done, core.fold_text(text, done)) == (1, 101)


@needs_machine_code
@pytest.mark.parametrize("missing", [0, 1, 70, 199])
def test_a_gap_is_met_in_every_lane(missing: int) -> None:
    for way in LANES[:2]:
        core, some = opened().core, plain(200)
        del some[missing]
        with only(way):
            if missing == 199:
                assert core.fold_many(some) == 199
                continue
            with pytest.raises(LogGap) as caught:
                core.fold_many(some)
        assert (caught.value.expected_seq, core.seq) == (6 + missing, 5 + missing)


@settings(derandomize=True, deadline=None, max_examples=30)
@given(st.lists(st.tuples(st.sampled_from(["add", "add", "remove", "sync"]), st.integers(0, 400)), max_size=300))
def test_a_key_index_finds_what_row_of_finds(steps: list[tuple[str, int]]) -> None:
    table = RunTable()
    index = KeyIndex(table)
    for what, number in steps:
        key = f"workload-{number % 97}#{number}"
        row = table.row_of.get(key)
        if what == "add" and row is None:
            table.add(key)
        elif what == "remove" and row is not None:
            table.remove(row)
        elif what == "sync":
            index.sync()
    for key in ("é#1", "x" * kernel.NAME_BYTES, "x" * (kernel.NAME_BYTES - 1)):
        table.add(key)
    index.sync()

    for found in (index, KeyIndex(table)):
        for number in range(401):
            key = f"workload-{number % 97}#{number}"
            assert found.find(key) == table.row_of.get(key), key
        assert found.find("x" * (kernel.NAME_BYTES - 1)) is not None
        assert found.find("é#1") is None, "only ASCII is indexed"
        assert found.find("x" * kernel.NAME_BYTES) is None
        assert found.find("") is None

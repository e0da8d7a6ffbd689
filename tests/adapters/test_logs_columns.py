"""The contiguous form of segments: any bytes come back exactly, and regular heartbeats take hardly any room."""

from __future__ import annotations

import json
import random
import re
import tempfile
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from apportion.adapters.logs import columns, packed, sheets
from apportion.adapters.logs.segments import (
    decisions_segment,
    events_segment,
    opened,
    read_decisions,
    read_events,
    read_sheet,
)
from apportion.core.envelope import Record, StoredBatch
from apportion.core.errors import LogMismatch
from apportion.core.events import NodeHeartbeat, encode_event
from apportion.core.kernels.reports import READ

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "archive"
AMOUNTS = st.one_of(st.just(0), st.integers(0, 9_000), st.integers(0, 2**53))
NAMES = st.sampled_from(["n1", "node-0002", "a" * 60, "b" * 129])
DOWN = st.one_of(st.just(()), st.lists(st.integers(0, 7), max_size=3, unique=True).map(tuple))
RUNS = st.lists(st.sampled_from(["job-1#1", "job-1#2", "x-00017#1", "a b#9"]), max_size=4, unique=True).map(tuple)


@st.composite
def said(draw: st.DrawFn) -> tuple[str, bytes]:
    """Draw a heartbeat as an agent publishes it, with an id of any kind."""
    node, beat = draw(NAMES), draw(st.integers(1, 2**53))
    event = NodeHeartbeat(
        node=node, beat=beat, gpus_down=draw(DOWN),
        busy_milli=draw(AMOUNTS), memory_mib=draw(AMOUNTS), watts=draw(AMOUNTS),
        runs=draw(st.one_of(st.none(), RUNS)), idle_runs=draw(st.one_of(st.just(()), RUNS)),
    )  # fmt: skip
    event_id = draw(st.one_of(st.just(f"{node}.{beat}"), st.text(min_size=0, max_size=40), st.just("0123456789abcdef" * 2)))
    principal = draw(st.one_of(st.just(node), st.just(f"agent-{node}"), NAMES))
    return f"ap.ev.{principal}.node.heartbeat", encode_event(event, event_id=event_id, at_ms=draw(st.integers(0, 2**45)))


@st.composite
def damaged(draw: st.DrawFn) -> tuple[str, bytes]:
    """Draw a heartbeat with a byte changed, put in, taken out, or its end cut off."""
    subject, body = draw(said())
    at, byte = draw(st.integers(0, len(body) - 1)), draw(st.sampled_from([0, 9, 10, 34, 44, 48, 57, 92, 93, 125, 200]))
    put = body[:at] + bytes([byte])
    return subject, draw(st.sampled_from([put + body[at + 1 :], put + body[at:], body[:at] + body[at + 1 :], body[:at]]))


SUBJECTS = st.sampled_from(["ap.ev.n1.node.heartbeat", "ap.ev.a.x", "", "nonsense", "ap.ev..node.heartbeat"])
ANY = st.tuples(SUBJECTS, st.binary(max_size=60))
BY_N1 = "ap.ev.n1.node.heartbeat"
HEAD, END = b'{"at_ms":1,"data":{"node":"n1","beat":', b'},"id":"n1.1","type":"node.heartbeat","v":1}'
LOGS = st.lists(st.tuples(st.one_of(said(), said(), damaged(), ANY), st.integers(-(2**62), 2**62)), min_size=1, max_size=12)

AMOUNTS_AND_ID = re.compile(
    rb'(\{"at_ms":\d+,"data":\{"node":"([^"]*)","beat":(\d+)(?:,"gpus_down":\[[^\]]*\])?)'
    rb'(?:,"busy_milli":\d+)?(?:,"memory_mib":\d+)?(?:,"watts":\d+)?(.*)',
    re.DOTALL,
)


def again(folder: Path, records: list[Record]) -> list[Record]:
    path = folder / "one.seg"
    path.write_bytes(events_segment("2026-01-01", "", records))
    return read_events(opened(path, "events", records[0].seq, ""))


@settings(max_examples=120, deadline=None)
@given(LOGS)
@example([((BY_N1, HEAD + b"01" + END), 5)])
@example([((BY_N1, HEAD + b'1,"watts":0' + END), 5), ((BY_N1, HEAD + b"1" + END), 5)])
def test_any_bytes_come_back_exactly(log: list[tuple[tuple[str, bytes], int]]) -> None:
    records = [Record(seq, stored_ms, subject, body) for seq, ((subject, body), stored_ms) in enumerate(log, 7)]

    with tempfile.TemporaryDirectory() as folder:
        assert again(Path(folder), records) == records
        sheet = read_sheet(opened(Path(folder) / "one.seg", "events", 7, ""))
    for start in range(len(records)):
        for count in range(1, len(records) - start + 1):
            text = sheet.text(7, start, count)
            assert [text.record(position) for position in range(count)] == records[start : start + count]
        assert sheet.record(start, 7) == records[start]


@settings(max_examples=60, deadline=None)
@given(LOGS)
def test_what_a_state_depends_on_is_the_same_without_amounts(log: list[tuple[tuple[str, bytes], int]]) -> None:
    records = [Record(seq, stored_ms, subject, body) for seq, ((subject, body), stored_ms) in enumerate(log, 7)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "one.seg"
        path.write_bytes(events_segment("2026-01-01", "", records))
        sheet = read_sheet(opened(path, "events", 7, ""))

    for position, record in enumerate(records):
        folded = sheet.folded(position, 7)
        found = AMOUNTS_AND_ID.fullmatch(record.body) if sheet.told.form[position] & READ else None
        if found is None:
            assert folded == record
        else:
            head, node, beat, rest = found.groups()
            tail = rest[: rest.rindex(b'},"id":"')]
            expected = b'%s%s},"id":"%s.%s","type":"node.heartbeat","v":1}' % (head, tail, node, beat)
            assert folded == record._replace(body=expected)
        assert (found is None) == (not sheet.told.form[position] & READ)
    assert [sheet.record(position, 7) for position in range(len(records))] == records


@settings(max_examples=60, deadline=None)
@given(LOGS, st.integers(0, 3))
def test_bytes_come_back_also_where_more_speak_than_are_told_apart(log: list[tuple[tuple[str, bytes], int]], most: int) -> None:
    records = [Record(seq, stored_ms, subject, body) for seq, ((subject, body), stored_ms) in enumerate(log, 1)]

    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "SPEAKERS_MOST", most)
        assert again(Path(folder), records) == records


def test_a_segment_of_the_format_before_is_read_as_ever() -> None:
    """It names no nodes: heartbeats of a principal are of the node of its name, or were kept as they were."""
    told = json.loads((GOLDEN / "events.json").read_text())

    records = read_events(opened(GOLDEN / "events.apseg2.seg", "events", 1, ""))

    assert [[record.seq, record.stored_ms, record.subject, record.body.decode()] for record in records] == told


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=30))
def test_numbers_come_back_from_seven_bits_a_byte(numbers: list[int]) -> None:
    values = np.array(numbers, dtype=np.int64)
    text, back = packed.pack(values), np.empty(len(values), dtype=np.int64)

    assert packed.unpack(text, back)
    assert back.tolist() == numbers
    assert not packed.unpack(text, np.empty(len(values) + 1, dtype=np.int64))
    if numbers:
        assert not packed.unpack(text, np.empty(len(values) - 1, dtype=np.int64))


def night(nodes: int, beats: int, noise: int, principal: str = "n{}") -> list[Record]:
    """Return heartbeats of a night: busy runs that come and go, with independent noise, and jitter of the agents' clocks."""
    dice, records = random.Random(3), []
    load = [dice.randrange(9) * 1_000 for _node in range(nodes)]
    for beat in range(1, beats + 1):
        for node in range(nodes):
            if dice.random() < 0.01:
                load[node] = dice.randrange(9) * 1_000
            at_ms = 10**12 + beat * 10_000 + node * 70 + dice.randrange(3)
            busy = load[node] * (1_000 - dice.randrange(noise)) // 1_000 if noise else load[node]
            event = NodeHeartbeat(
                node=f"n{node}", beat=beat, busy_milli=busy, memory_mib=512 + load[node] * 60, watts=640 + busy * 6 // 10,
                runs=(f"job-{node}-{load[node]}#1",) if beat % 30 == node % 30 else None,
            )  # fmt: skip
            body = encode_event(event, event_id=f"n{node}.{beat}", at_ms=at_ms)
            subject = f"ap.ev.{principal.format(node)}.node.heartbeat"
            records.append(Record(len(records) + 1, at_ms + 1 + dice.randrange(3), subject, body))
    return records


def test_a_heartbeat_takes_two_bytes_at_most_where_what_it_says_is_to_be_expected(tmp_path: Path) -> None:
    for noise, principal, most in ((0, "n{}", 1.5), (10, "n{}", 2.0), (10, "agent-n{}", 2.0), (10, "agents", 2.0)):
        records = night(40, 400, noise, principal)
        segment = events_segment("2026-01-01", "", records)

        assert len(segment) / len(records) < most
        assert again(tmp_path, records) == records


def test_decisions_come_back_exactly(tmp_path: Path) -> None:
    batches = [StoredBatch(3, 1, b""), StoredBatch(9, 40, bytes(range(256))), StoredBatch(10, 41, b"{}" * 50_000)]
    path = tmp_path / "one.seg"
    path.write_bytes(decisions_segment("2026-01-01", "ab", batches))

    assert read_decisions(opened(path, "decisions", 0, "ab")) == batches


def test_columns_that_do_not_fit_are_refused_by_name() -> None:
    speakers = dict[tuple[str, str], int]()
    records = night(3, 40, 10)
    expected, texts = columns.sections(records, speakers)
    whole = {name: zlib.decompress(text) for name, text in texts.items()}
    subjects, nodes = ([speaker[side] for speaker in speakers] for side in (0, 1))

    def sheet(**other: bytes) -> sheets.Sheet:
        return sheets.Sheet(subjects, nodes, len(records), expected, (whole | other).__getitem__)

    assert sheet().records(1) == records
    for name in ("regular", "who", "stored", "at", "beat", "down", "tail", "id"):
        for wrong in (whole[name][:-1], whole[name] + b"\0", b"", whole[name][:-1] + b"\x80"):
            with pytest.raises(LogMismatch, match=f"column {name} "):
                sheet(**{name: wrong}).records(1)  # ids are read with the bytes
    with pytest.raises(LogMismatch, match="a subject that it has not"):
        sheet(who=bytes([2 * (len(subjects) + 1)]) + whole["who"][1:])
    with pytest.raises(LogMismatch, match="a fragment that it has not"):
        sheet(down=b"\x7e" + whole["down"][1:])
    with pytest.raises(LogMismatch, match="fragments are not as long"):
        sheet(fragments=whole["fragments"][:-1])

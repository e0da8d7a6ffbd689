"""Ingest: rows and position together, whatever the pieces the input comes in; and what stops it."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from apportion.adapters.simulation.driver import Logs
from apportion.core.envelope import Record, StoredBatch
from apportion.core.errors import LogGap, LogMismatch
from apportion.core.events import BudgetGranted, NodeHeartbeat, RunFinished, RunStarted, WorkloadCancelled
from apportion.projections import audit, runner
from apportion.projections.digest import table_digests
from apportion.projections.heartbeats import Heartbeats
from apportion.projections.runner import Position, Projection, tip_of
from tests.projections.history import HOUR_MS, job, opened, simulated

SEED = 11


@pytest.fixture(scope="module")
def logs() -> Logs:
    return simulated(SEED, hours=6)


@pytest.fixture(scope="module")
def whole(logs: Logs) -> dict[str, tuple[int, int]]:
    """The tables of a projection that got everything at once."""
    with Projection() as projection:
        projection.ingest(logs.records, logs.batches)
        projection.refresh()
        return table_digests(projection.con)


@settings(max_examples=6, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(
    seed=st.integers(0, 2**32),
    largest=st.sampled_from((30, 300, 3_000)),
    from_disk=st.booleans(),
    journal_rows=st.sampled_from((0, 400, runner.JOURNAL_ROWS)),
)
def test_tables_do_not_depend_on_how_the_input_is_cut(
    seed: int,
    largest: int,
    from_disk: bool,
    journal_rows: int,
    logs: Logs,
    whole: dict[str, tuple[int, int]],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Any pieces and any journal, with redelivery, refreshes and restarts in between: equal rows in every table."""
    choose = random.Random(seed)
    path = tmp_path_factory.mktemp("cut") / "p.duckdb" if from_disk else Path(":memory:")
    patch = pytest.MonkeyPatch()
    patch.setattr(runner, "JOURNAL_ROWS", journal_rows)
    projection = Projection(path)
    try:
        while projection.position.seq < logs.batches[-1].input_seq:
            after, decided = projection.wants_after_seq, projection.wants_after_decision_seq
            again = choose.randint(0, 5)
            records = logs.records[max(0, after - again) : after + choose.randint(0, largest)]
            batches = logs.batches[max(0, decided - again) : decided + choose.randint(0, largest // 5)]
            projection.ingest(records, batches)
            if choose.random() < 0.1:
                projection.refresh()
            if from_disk and choose.random() < 0.1:
                projection.close()
                projection = Projection(path)
        projection.refresh()
        assert table_digests(projection.con) == whole
        assert audit.audit(projection.con, "position").findings[0].holds
    finally:
        projection.close()
        patch.undo()


def test_digest_tells_when_a_single_row_differs(logs: Logs) -> None:
    with Projection() as one, Projection() as other:
        for projection in (one, other):
            projection.ingest(logs.records, logs.batches[:200])
        assert one.digest() == other.digest()

        other.con.execute("update fact.ledger set amount_gpu_us = amount_gpu_us + 1 where rowid = 0")

        assert one.digest() != other.digest()


def test_position_is_the_last_decided_tick_and_the_rest_is_held_back() -> None:
    story = opened()
    story.tick()
    seq = story.say(job("late"), "ann")
    with Projection() as projection:
        projection.ingest(story.logs.records, story.logs.batches)

        assert projection.position.seq == seq - 1
        assert projection.position.decision_seq == 1
        assert projection.wants_after_seq == seq
        projection.refresh()
        asked = "select count(*) from raw.event_log where type = 'workload.submitted'"
        assert projection.con.execute(asked).fetchone() == (0,)

        batch = story.tick(1_000)
        projection.ingest(story.logs.records, story.logs.batches)

        assert projection.position == Position(batch.seq, 2, batch.time_ms, tip_of(story.logs.records[-1]))
        projection.refresh()
        assert projection.con.execute("select workload from fact.workload").fetchall() == [("late",)]


def test_batches_may_come_before_their_records_and_after() -> None:
    story = opened()
    for number in range(4):
        story.say(job(f"w{number}"), "ann", after_ms=10)
        story.tick(10)
    with Projection() as early, Projection() as late:
        early.ingest([], story.logs.batches)
        for record in story.logs.records:
            early.ingest([record], [])
        late.ingest(story.logs.records, [])
        for batch in story.logs.batches:
            late.ingest([], [batch])

        assert early.position == late.position != Position()
        assert early.digest() == late.digest()


def test_a_missing_record_stops_and_the_projection_goes_on_from_its_position(logs: Logs) -> None:
    with Projection() as projection:
        projection.ingest(logs.records[:500], logs.batches)
        position = projection.position

        with pytest.raises(LogGap, match="expected seq 501, got 502"):
            projection.ingest(logs.records[501:600], [])

        assert projection.position == position
        assert projection.wants_after_seq == position.seq
        projection.ingest(logs.records[position.seq :], logs.batches)
        assert projection.position.seq == logs.batches[-1].input_seq


@pytest.mark.parametrize("what", ["body", "subject", "order", "depth"])
def test_records_the_core_did_not_read_stop_the_projection(logs: Logs, what: str) -> None:
    """The chain over all records stands in each batch: a changed log is found at the next cycle, and nothing of it is written."""
    records = list(logs.records[:3_000])
    at = next(i for i, r in enumerate(records) if i > 1_000 and r.subject.endswith("node.heartbeat") and b'"busy_milli"' in r.body)
    record = records[at]
    if what == "body":
        records[at] = record._replace(body=record.body.replace(b'"busy_milli":', b'"busy_milli":1'))
    elif what == "depth":
        records[at] = record._replace(body=record.body[:-1] + b',"x":' + b"[" * 50_000 + b"]" * 50_000 + b"}")
    elif what == "subject":
        records[at] = record._replace(subject="ap.ev.ops.node.heartbeat")
    else:
        at = next(i for i in range(at, 3_000) if all(r.subject.endswith("node.heartbeat") for r in records[i : i + 2]))
        one, other = records[at : at + 2]
        records[at : at + 2] = [other._replace(seq=one.seq), one._replace(seq=other.seq)]
    with Projection() as projection:
        with pytest.raises(LogMismatch, match="not the one the core read" if what == "depth" else "not those the core read"):
            projection.ingest(records, logs.batches)

        assert projection.position == Position()
        projection.refresh()
        for table in ("meta.journal", "raw.event_log"):
            assert projection.con.execute(f"select count(*) from {table}").fetchone() == (0,)


def test_a_batch_that_answers_no_tick_is_refused() -> None:
    story = opened()
    story.tick()
    batch = story.logs.batches[0]
    with Projection() as projection, pytest.raises(LogMismatch, match=r"no accepted clock\.tick"):
        projection.ingest(story.logs.records, [StoredBatch(1, 3, batch.body.replace(b'"seq":%d' % batch.input_seq, b'"seq":3'))])


def test_the_record_at_the_cursor_must_still_be_there(logs: Logs) -> None:
    with Projection() as projection:
        projection.check_tip(None)  # nothing projected, nothing to compare
        projection.ingest(logs.records, logs.batches[:50])
        tip = logs.records[projection.position.seq - 1]

        projection.check_tip(tip)
        with pytest.raises(LogMismatch, match="the log was cut"):
            projection.check_tip(None)
        with pytest.raises(LogMismatch, match="another log"):
            projection.check_tip(tip._replace(body=tip.body + b" "))


def test_refused_input_is_kept_and_changes_nothing_else() -> None:
    story = opened()
    story.tick()
    with Projection() as projection:
        projection.ingest(story.logs.records, story.logs.batches)
        projection.refresh()
        before = table_digests(projection.con)
        story.put("ap.ev.ops.budget.granted", b"{broken")
        story.put("ap.ev.ops.budget.granted", b"\xff\x00" * 3_000)
        story.put("somewhere.else", b'{"id":"x","type":"node.left","data":{"node":"n1"}}')
        story.put("ap.ev.ops.node.heartbeat", b'{"id":"x","type":"node.heartbeat","data":{"node":"nowhere","beat":1}}')
        story.say(BudgetGranted(pool="h100", budget="lab", gpu_us=1), "mallory")
        story.say(job("theirs"), "mallory")
        story.say(RunStarted(workload="none", run=1, node="n1"), "n1")
        story.put("ap.ev.ops.no.such", b'{"id":"x","type":"no.such","v":1,"at_ms":99999999999999999999999,"data":{}}')
        story.tick(1_000)
        projection.ingest(story.logs.records, story.logs.batches)
        projection.refresh()
        after = table_digests(projection.con)
        changed = {table for table in before if before[table] != after[table]}

        assert changed == {"raw.event_log", "fact.cycle", "fact.decision"}
        rows = projection.con.execute("select event_seq, reason, principal, entity from fact.rejection order by 1").fetchall()
        first = rows[0][0]
        assert [(seq - first, *rest) for seq, *rest in rows] == [
            (0, "broken_json", "ops", ""),
            (1, "broken_json", "ops", ""),
            (2, "malformed_subject", "", ""),
            (3, "unknown_node", "ops", "nowhere"),
            (4, "not_permitted", "mallory", ""),
            (5, "not_permitted", "mallory", "theirs"),
            (6, "stale", "n1", "none#1"),
            (7, "invalid_data", "ops", ""),
        ]
        kept = projection.con.execute("select body, body_bytes from raw.event_log where seq = ?", [first + 1]).fetchone()
        assert kept is not None
        assert kept[1] == 6_000
        assert kept[0].startswith("\\xff\\0\\xff\\0")
        assert not audit.audit(projection.con).failed


def test_time_before_the_log_is_opened_is_zero_and_then_its_own() -> None:
    story = opened()
    story.tick()
    records = [Record(r.seq, 999, r.subject, r.body) for r in story.logs.records]  # stored by another clock
    with Projection() as projection:
        projection.ingest(records, story.logs.batches)
        projection.refresh()

        assert projection.position.time_ms == story.now_ms
        assert projection.con.execute("select min(time_ms) from raw.event_log").fetchone() == (story.now_ms,)


def test_a_submission_withdrawn_before_its_cycle_is_kept_as_never_admitted() -> None:
    story = opened()
    story.tick()
    story.say(job("oops"), "ann")
    story.say(WorkloadCancelled(workload="oops"), "ann")
    story.tick(1_000)
    with Projection() as projection:
        projection.ingest(story.logs.records, story.logs.batches)
        projection.refresh()

        kept = projection.con.execute("select workload, admitted_seq, principal from fact.workload").fetchall()
        assert kept == [("oops", 0, "ann")]
        assert projection.con.execute("select outcome from fact.workload_end").fetchall() == [("cancelled",)]
        assert not audit.audit(projection.con).failed


def test_run_rows_tell_the_whole_run() -> None:
    story = opened()
    story.say(job("w", 2, min_runtime_ms=HOUR_MS), "ann")
    placed = story.tick(1_000)
    story.say(RunStarted(workload="w", run=1, node="n1"), "n1", after_ms=5_000)
    story.say(RunFinished(workload="w", run=1, node="n1", outcome="succeeded"), "n1", after_ms=60_000)
    story.tick(500)
    with Projection() as projection:
        projection.ingest(story.logs.records, story.logs.batches)
        projection.refresh()
        row = projection.con.execute(
            "select gpus_milli, placed_ms, started_ms, end_ms, outcome, charged_gpu_us, unfunded_gpu_us, voided_gpu_us, "
            "useful_gpu_us from fact.run_closed"
        ).fetchone()
        charged = 2_000 * 65_000

        assert row == (
            2_000, placed.time_ms, placed.time_ms + 5_000, placed.time_ms + 65_000, "succeeded", charged, 0,
            2_000 * HOUR_MS - charged, charged,
        )  # fmt: skip
        lines = projection.con.execute(
            "select kind, account, amount_gpu_us from fact.ledger order by seq, position, line"
        ).fetchall()
        assert lines == [
            ("reserve", "budget", -2_000 * HOUR_MS),
            ("reserve", "reserved", 2_000 * HOUR_MS),
            ("charge", "reserved", -charged),
            ("charge", "used", charged),
            ("void", "reserved", charged - 2_000 * HOUR_MS),
            ("void", "budget", 2_000 * HOUR_MS - charged),
        ]


def in_both_lanes(logs: Logs, monkeypatch: pytest.MonkeyPatch) -> tuple[dict[str, tuple[int, int]], dict[str, tuple[int, int]]]:
    """The tables by the fast lane of heartbeats, and by the slow one alone."""

    def tables() -> dict[str, tuple[int, int]]:
        with Projection() as projection:
            projection.ingest(logs.records, logs.batches)
            projection.refresh()
            return table_digests(projection.con)

    fast = tables()
    monkeypatch.setattr(Heartbeats, "fold", lambda _self, _records, start, _refused, _clock: start)
    return fast, tables()


@pytest.mark.parametrize("seed", [12, 13])
def test_the_fast_lane_of_heartbeats_folds_like_the_slow_one(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    fast, slow = in_both_lanes(simulated(seed, hours=6), monkeypatch)

    assert fast == slow


@pytest.mark.parametrize("time_source", ["stated", "stored"])
def test_both_lanes_take_gaps_leaps_and_steps_back_of_time_alike(
    time_source: Literal["stated", "stored"], monkeypatch: pytest.MonkeyPatch
) -> None:
    minute, day, leap = 60_000, 24 * HOUR_MS, 800 * 24 * HOUR_MS
    choose = random.Random(SEED)
    story, beat = opened(time_source=time_source), 1
    steps = (0, 1, minute, 5 * minute - 1, 5 * minute, 5 * minute + 1, HOUR_MS, day, leap, 10, minute, 0, 4 * minute)
    for step_ms in steps * 4:
        if step_ms == leap:
            story.tick()
        to_next_ms = 5 * minute - story.now_ms % (5 * minute)
        story.now_ms += to_next_ms if step_ms == minute else step_ms
        for late_ms in (0,) if step_ms == leap else (0, 20, 0):
            said = NodeHeartbeat(node="n1", beat=beat, busy_milli=choose.randint(0, 9_000), watts=choose.randint(0, 9))
            story.say(said, "n1", after_ms=-late_ms)
            story.now_ms += late_ms
            beat += choose.choice((1, 1, 1, 2, 0))
        if step_ms == leap:  # more than the core follows; the clock is set right again
            story.now_ms -= 100 * day
            story.now_ms = story.tick().time_ms
        elif choose.random() < 0.6:
            story.tick(10)
    story.tick(10)
    fast, slow = in_both_lanes(story.logs, monkeypatch)

    assert fast == slow
    assert fast["fact.heartbeat_5m_closed"][0] > 15


def test_a_tick_that_is_not_the_last_record_answers_nothing() -> None:
    story = opened()
    story.tick()
    story.say(NodeHeartbeat(node="n1", beat=1), "n1")
    batch = story.logs.batches[0]
    seq = batch.input_seq + 1
    later = StoredBatch(1, seq, batch.body.replace(b'"seq":%d' % batch.input_seq, b'"seq":%d' % seq))
    with Projection() as projection, pytest.raises(LogMismatch, match=r"no accepted clock\.tick"):
        projection.ingest(story.logs.records, [later])

"""What is told of drained nodes, at every sequence: state, deadline, force, who and why, what still runs, and the audit of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from apportion.core.decisions import RunDrained
from apportion.core.events import NodeDrained, NodeUncordoned, RunFinished, RunStarted
from apportion.projections import audit, queries
from apportion.projections.runner import Projection
from tests.projections.history import HOUR_MS, MINUTE_MS, START_MS, Story, job, opened

DEADLINE_MS = START_MS + 2 * HOUR_MS


def nodes_at(projection: Projection, seq: int) -> dict[str, dict[str, Any]]:
    return {row["node"]: row for row in queries.run(projection.con, "nodes", seq=seq).dicts()}


def told() -> tuple[Story, dict[str, int]]:
    """Return a story in which n1 is drained, extended with force, emptied and given back, and a sequence in each part of it."""
    story, at = opened(nodes=2), {}
    story.say(job("long", 8, min_runtime_ms=HOUR_MS), "ann")
    at["before"] = story.tick(1_000).seq
    story.say(RunStarted(workload="long", run=1, node="n1"), "n1")
    story.say(NodeDrained(node="n1", by_ms=DEADLINE_MS, reason="new fans"))
    story.say(job("short", 4, expected_runtime_ms=HOUR_MS), "ann")
    at["draining"] = story.tick(1_000).seq
    story.say(RunFinished(workload="short", run=1, node="n2", outcome="succeeded"), "n2", after_ms=1_000)
    for _ in range(4):
        story.tick(30 * MINUTE_MS)
    story.say(NodeDrained(node="n1", by_ms=DEADLINE_MS + HOUR_MS, force=True, reason="it cannot wait"), "ops")
    at["late"] = story.tick(1_000).seq
    asked = story.tick(HOUR_MS - MINUTE_MS // 2)
    assert [d.workload for d in asked.decisions if isinstance(d, RunDrained)] == ["long"]
    at["asked"] = asked.seq
    story.say(RunFinished(workload="long", run=1, node="n1", outcome="stopped"), "n1", after_ms=5_000)
    at["empty"] = story.tick(30_000).seq
    story.say(NodeUncordoned(node="n1", reason="fans are in"), after_ms=MINUTE_MS)
    at["back"] = story.tick(1_000).seq
    return story, at


@pytest.fixture(scope="module")
def drained() -> Iterator[tuple[Projection, dict[str, int]]]:
    story, at = told()
    with Projection() as projection:
        projection.ingest(story.logs.records, story.logs.batches)
        projection.refresh()
        yield projection, at


def test_a_node_tells_its_drain_at_every_sequence(drained: tuple[Projection, dict[str, int]]) -> None:
    projection, at = drained
    found = {name: nodes_at(projection, seq)["n1"] for name, seq in at.items()}

    assert {name: row["state"] for name, row in found.items()} == {
        "before": "in service", "draining": "draining", "late": "draining", "asked": "draining", "empty": "drained",
        "back": "in service",
    }  # fmt: skip
    deadlines = [found[name]["drain_by_ms"] for name in ("before", "draining", "late", "back")]
    assert deadlines == [None, DEADLINE_MS, DEADLINE_MS + HOUR_MS, None]
    assert [found[name]["drain_force"] for name in ("draining", "late")] == [False, True]
    told = found["draining"]
    assert (told["reason"], told["principal"], told["since_ms"]) == ("new fans", "ops", START_MS + 1_000)
    assert (found["late"]["reason"], found["late"]["since_ms"]) == ("it cannot wait", START_MS + 1_000)
    assert found["asked"]["runs"] == ["long#1"]
    assert (found["empty"]["runs"], found["empty"]["used_milli"]) == ([], 0)


def test_what_a_node_takes_until_its_deadline_is_in_service_and_afterwards_is_not(
    drained: tuple[Projection, dict[str, int]],
) -> None:
    projection, at = drained
    out = {
        name: queries.run(projection.con, "status", seq=seq).dicts()[0]["down_milli"] for name, seq in at.items()
    }

    assert out["draining"] == 0
    assert out["empty"] == 8_000
    assert out["back"] == 0


def test_the_audit_finds_nothing_and_each_fault_of_a_drain(drained: tuple[Projection, dict[str, int]]) -> None:
    projection, _at = drained
    con = projection.con
    assert [(found.name, found.rows[:2]) for found in audit.audit(con).failed] == []
    assert con.execute("select outcome, refunded_gpu_us > 0 from fact.run_closed where workload = 'long'").fetchall() == [
        ("drained", True)
    ]
    faults = {
        "drained_rightly": (
            "update fact.drain_closed set force = false",
            "update fact.drain_closed set deadline_ms = deadline_ms - 1",
            "update fact.drain_closed set node = 'n2'",
            "update fact.decision set node = 'n2' where type = 'run.drained'",
        ),
        "refunds_for_loss": ("update fact.run_closed set outcome = 'preempted' where outcome = 'drained'",),
        "preempted_stops": ("delete from fact.decision where type = 'run.closed' and reason = 'drained'",),
        "drains_respected": (
            "update fact.drain_closed set from_seq = 0, node = 'n2'",
            "update fact.drain_closed set from_seq = 0, deadline_ms = 0",
        ),
    }
    for name, statements in faults.items():
        for statement in statements:
            con.execute("begin")
            con.execute(statement)
            finding = audit.audit_at(con, queries.as_of(con), name).findings[0]
            con.execute("rollback")
            assert not finding.holds, f"{name} is blind to: {statement}"


def test_an_order_at_once_is_a_cordon_with_the_reason_of_the_drain() -> None:
    story = opened(nodes=1)
    story.say(NodeDrained(node="n1", reason="smoke"), after_ms=1_000)
    story.tick(1_000)
    with Projection() as projection:
        projection.ingest(story.logs.records, story.logs.batches)
        projection.refresh()
        row = queries.run(projection.con, "nodes").dicts()[0]
        out = projection.con.execute("select state, reason, principal from fact.gpu_state_open").fetchall()

        assert (row["state"], row["reason"], row["drain_by_ms"]) == ("drained", "smoke", START_MS + 1_000)
        assert out == [("cordoned", "smoke", "ops")]
        assert audit.audit(projection.con).failed == []


def test_what_states_to_be_over_in_time_may_be_placed_on_a_drained_node() -> None:
    story = opened(nodes=1)
    story.say(NodeDrained(node="n1", by_ms=DEADLINE_MS))
    story.say(job("short", 4, expected_runtime_ms=HOUR_MS), "ann")
    story.tick(1_000)
    with Projection() as projection:
        projection.ingest(story.logs.records, story.logs.batches)
        projection.refresh()
        con = projection.con
        assert queries.run(con, "nodes").dicts()[0]["runs"] == ["short#1"]
        assert audit.audit(con, "drains_respected").failed == []
        con.execute("update fact.workload set expected_runtime_ms = 0")
        assert audit.audit(con, "drains_respected").failed

"""What is told of moves: the proposal under ``why``, the run that was moved, and the audit of both."""

from __future__ import annotations

import json
from typing import Any

from apportion.adapters.cli.telling import decision_lines, moves_words
from apportion.core.decisions import RunPlaced
from apportion.core.events import PolicyActivated, RunFinished, RunStarted
from apportion.projections import audit, queries
from apportion.projections.runner import Projection
from tests.projections.history import HOUR_MS, MINUTE_MS, Story, job, opened


def told(rule: Any) -> Story:
    """Return a story in which four GPUs are free on each of two nodes, and who wants eight on one can have them by a move."""
    story = opened(nodes=2)
    story.say(PolicyActivated(pool="h100", quantum_ms=10 * MINUTE_MS, moves=rule))
    for name in ("a", "x", "b", "y"):
        story.say(job(name, 4, movable=name in "ab"), "ann")
    story.tick(1_000)
    for name, node in (("a", "n1"), ("x", "n1"), ("b", "n2"), ("y", "n2")):
        story.say(RunStarted(workload=name, run=1, node=node), node)
    for name, node in (("x", "n1"), ("y", "n2")):
        story.say(RunFinished(workload=name, run=1, node=node, outcome="succeeded"), node, after_ms=1_000)
    story.tick(1_000)
    story.say(job("whole", 8), "ann", after_ms=HOUR_MS)
    story.tick(1_000)
    return story


def test_a_proposal_is_told_to_who_would_start_by_it() -> None:
    story = told("propose")
    with Projection() as projection:
        projection.ingest(story.logs.records, story.logs.batches)
        projection.refresh()
        rows = queries.run(projection.con, "why", workload="whole").dicts()
        failed = audit.audit(projection.con).failed

    moves = [row["numbers"] for row in rows if row["section"] == "moves"]
    assert [move["workload"] for move in moves[0]["moves"]] == ["b"]
    assert moves_words(moves[0]) == "it would start if these were moved, at a loss of 4.0 GPU-h: b to n1 GPUs 4-7"
    assert failed == []


def test_a_move_is_told_and_audited_and_no_proposal_is_left() -> None:
    story = told("carry_out")
    story.say(RunFinished(workload="b", run=1, node="n2", outcome="stopped"), "n2", after_ms=5_000)
    batch = story.tick(1_000)
    with Projection() as projection:
        projection.ingest(story.logs.records, story.logs.batches)
        projection.refresh()
        con = projection.con
        failed = audit.audit(con).failed
        why = queries.run(con, "why", workload="whole").dicts()
        moved = con.execute("select body from fact.decision where type = 'run.moved'").fetchone()
        outcomes = con.execute("select workload, outcome, requeued from fact.run_closed order by closed_seq, workload").fetchall()
        con.execute("delete from fact.decision where type = 'run.placed' and workload = 'whole'")
        con.execute("delete from fact.decision where type = 'gpus.reserved'")
        lost = audit.audit(con, "moves_served").findings[0]

    assert [finding.name for finding in failed] == []
    assert not [row for row in why if row["section"] == "moves"]
    assert ("b", "moved", True) in outcomes
    assert {d.workload for d in batch.decisions if isinstance(d, RunPlaced)} == {"b", "whole"}
    assert moved is not None
    lines = decision_lines("b", json.loads(moved[0]))
    assert lines[0].startswith("b: run 1 moves to n1 GPUs 4-7, so that whole of")
    assert not lost.holds

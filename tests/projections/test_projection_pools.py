"""Who accepts several pools: where it waits and runs is told from one sequence to another, on the books of the right pool."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest

from apportion.adapters.cli.telling import decision_lines
from apportion.core.events import (
    BudgetSet,
    NodeCordoned,
    NodeHeartbeat,
    NodeJoined,
    NodeLeft,
    PolicyActivated,
    PoolDefined,
    RunFinished,
    RunStarted,
)
from apportion.projections import audit, queries
from apportion.projections.runner import Projection
from tests.projections.history import HOUR_MS, MINUTE_MS, Story, job, opened


def two_pools() -> Story:
    """Return a story in which h100 is full, and a guest of it runs in a100 and has run there before."""
    story = opened(nodes=1)
    story.say(PoolDefined(pool="a100", gpu_class="a100"))
    story.say(NodeJoined(node="m1", pool="a100", gpus=8), "m1")
    story.say(BudgetSet(pool="a100", budget="lab", share_ppm=1_000_000))
    story.say(job("full", 8), "ann")
    story.say(job("guest", 8, pools=("h100", "a100", "nowhere")), "ann")
    story.tick(1_000)
    story.say(RunStarted(workload="full", run=1, node="n1"), "n1")
    story.say(RunStarted(workload="guest", run=1, node="m1"), "m1")
    return story


def hour(story: Story, *nodes: str) -> None:
    """Let an hour pass; the nodes live."""
    story.now_ms += HOUR_MS
    for node in nodes:
        story.say(NodeHeartbeat(node=node, beat=1), node)


def read(story: Story, steps: int = 1) -> Projection:
    """Return the projection of a story, read in so many steps, each by a projector that has just begun."""
    projection = Projection()
    cut = [len(story.logs.batches) * step // steps for step in range(steps + 1)]
    for first, last in pairwise(cut):
        batches = story.logs.batches[first:last]
        seqs = (story.logs.batches[first - 1].input_seq if first else 0, batches[-1].input_seq if batches else 0)
        projection.ingest([record for record in story.logs.records if seqs[0] < record.seq <= seqs[1]], batches)
    projection.refresh()
    return projection


def states(projection: Projection) -> list[tuple[Any, ...]]:
    """Return what the guest was, where."""
    sql = (
        "select state, pool from (select from_seq, state_id, state, pool, workload from fact.workload_state_closed union all "
        "select from_seq, state_id, state, pool, workload from fact.workload_state_open) where workload = 'guest' "
        "order by from_seq, state_id"
    )
    return projection.con.execute(sql).fetchall()


def test_its_time_is_in_the_books_of_the_pool_where_it_ran() -> None:
    story = two_pools()
    hour(story, "n1")
    story.say(NodeLeft(node="m1"), "m1")
    story.tick(1_000)
    with read(story) as projection:
        failed = [finding.name for finding in audit.audit(projection.con).failed]
        sql = "select pool, budget, outcome, requeued, charged_gpu_us, refunded_gpu_us > 0 from fact.run_closed"
        runs = projection.con.execute(f"{sql} where workload = 'guest'").fetchall()
        told = states(projection)

    assert failed == []
    assert runs == [("a100", "lab", "node_lost", True, 8_000 * HOUR_MS, True)]
    assert told == [("pending", "h100"), ("placed", "a100"), ("running", "a100"), ("pending", "h100")]


def test_why_tells_of_every_pool_that_it_named() -> None:
    story = two_pools()
    story.say(job("more", 8, pools=("nowhere", "h100", "a100")), "ann")
    batch = story.tick(1_000)
    with read(story) as projection:
        more = queries.run(projection.con, "why", workload="more").dicts()
        guest = queries.run(projection.con, "why", workload="guest").dicts()
        queue = queries.run(projection.con, "queue", state="all").dicts()
        failed = [finding.name for finding in audit.audit(projection.con).failed]

    assert failed == []
    assert [(row["reason"], row["numbers"]["pool"]) for row in more if row["section"] == "elsewhere"] == [("no_free_gpus", "a100")]
    assert [(row["reason"], row["numbers"]["pool"]) for row in more if row["section"] == "skipped"] == [("unknown_pool", "nowhere")]
    assert {(row["workload"], row["pool"]) for row in queue} == {("full", "h100"), ("guest", "a100"), ("more", "h100")}
    now = guest[0]["numbers"]
    assert (now["pool"], now["home"]) == ("a100", "h100")
    assert not [row for row in guest if row["section"] == "elsewhere"]
    lines = [line for decision in batch.decisions for line in decision_lines("more", json.loads(json.dumps(_plain(decision))))]
    assert "  when it cannot start there it may start in a100" in lines
    assert "  pool nowhere is left out: there is no pool" in "\n".join(lines)
    assert any(line.startswith("  in pool a100 neither: ") for line in lines)


def _plain(decision: Any) -> Any:
    import msgspec

    return msgspec.to_builtins(decision)


@pytest.mark.parametrize("steps", [1, 5])
def test_a_move_that_came_to_nothing_away_from_home_ends_at_home(steps: int) -> None:
    """It is held there while it was to go on there, and waits at home when that is given up."""
    story = opened(nodes=1)
    story.say(PoolDefined(pool="a100", gpu_class="a100"))
    story.say(PolicyActivated(pool="a100", quantum_ms=10 * MINUTE_MS, moves="carry_out"))
    for node in ("m1", "m2"):
        story.say(NodeJoined(node=node, pool="a100", gpus=8), node)
    story.say(BudgetSet(pool="a100", budget="lab", share_ppm=1_000_000))
    story.say(job("full", 8), "ann")
    story.say(job("left", 4, pools=("a100",)), "ann")
    story.tick(1_000)
    story.say(job("right", 4, pools=("a100",)), "ann")
    story.say(job("guest", 4, pools=("h100", "a100"), movable=True), "ann")
    story.tick(1_000)
    for name, node in (("full", "n1"), ("left", "m1"), ("right", "m1"), ("guest", "m2")):
        story.say(RunStarted(workload=name, run=1, node=node), node)
    hour(story, "n1", "m1", "m2")
    story.say(RunFinished(workload="left", run=1, node="m1", outcome="succeeded"), "m1")
    story.say(job("whole", 8, pools=("a100",)), "ann")
    story.tick(1_000)
    story.say(NodeCordoned(node="m1"))
    story.say(RunFinished(workload="guest", run=1, node="m2", outcome="stopped"), "m2")
    story.tick(1_000)
    with read(story, steps) as projection:
        told = states(projection)
        failed = [finding.name for finding in audit.audit(projection.con).failed]

    assert told == [
        ("pending", "h100"), ("placed", "a100"), ("running", "a100"), ("stopping", "a100"), ("pending", "a100"), ("pending", "h100")
    ]  # fmt: skip
    assert failed == []

"""A service in the projection: how large it is and should be, its curve, its replicas as workloads, and the audit of all that."""

from __future__ import annotations

from pathlib import Path

import pytest

from apportion.core.decisions import RunPlaced
from apportion.core.events import (
    DemandObserved,
    ForecastPublished,
    NodeHeartbeat,
    RunFinished,
    RunStarted,
    Service,
    WorkloadCancelled,
)
from apportion.projections import audit, queries
from apportion.projections.runner import Projection
from tests.projections.history import MINUTE_MS, Story, job, opened


def told(traffic_milli: tuple[int, ...] = (2_000, 6_000, 6_000)) -> Story:
    """Return a story of a service on two nodes, with a batch job beside it; its agent starts and stops what it is told to."""
    story = opened(nodes=2)
    service = Service(min_replicas=1, max_replicas=4, gpus_milli_per_traffic=1_000, hold_ms=MINUTE_MS)
    story.say(job("chat", 1, kind="realtime", service=service, name="gpt"), "ann")
    story.say(job("batch", 2), "ann")
    minute(story)
    for milli in traffic_milli:
        story.say(DemandObserved(workload="chat", traffic_milli=milli), "ann")
        minute(story)
    return story


def minute(story: Story) -> None:
    """Let a minute pass; nodes beat, and agents answer the cycle after it."""
    for node in ("n1", "n2"):
        story.say(NodeHeartbeat(node=node, beat=len(story.logs.records)), node)
    batch = story.tick(MINUTE_MS)
    for decision in batch.decisions:
        if isinstance(decision, RunPlaced):
            node = decision.pieces[0].node
            story.say(RunStarted(workload=decision.workload, run=decision.run, node=node), node, after_ms=1_000)


def projected(story: Story, path: Path | None = None) -> Projection:
    projection = Projection(path) if path else Projection()
    projection.ingest(story.logs.records, story.logs.batches)
    projection.refresh()
    return projection


def test_a_service_tells_what_it_is_and_what_it_should_be() -> None:
    story = told()
    with projected(story) as projection:
        row = queries.run(projection.con, "services", workload="gpt").dicts()[0]
        state = queries.run(projection.con, "workload", workload="chat").dicts()[0]
        replica = queries.run(projection.con, "workload", workload="chat:2").dicts()[0]
        findings = audit.audit(projection.con)

    assert (row["replicas"], row["running"], row["need"], row["bound"], row["unmet_replicas"]) == (4, 4, 6, "most", 2)
    assert (state["state"], replica["state"], replica["service"], replica["kind"]) == ("serving", "running", "chat", "realtime")
    assert [finding.name for finding in findings.failed] == []


def test_the_curve_has_traffic_need_and_what_was_held() -> None:
    with projected(told()) as projection:
        curve = queries.run(projection.con, "service_curve", workload="chat", step_ms=MINUTE_MS).dicts()

    assert [row["traffic_milli"] for row in curve] == [2_000, 6_000, 6_000, None]
    assert [row["need_milli"] for row in curve] == [2_000, 6_000, 6_000, None]
    assert [row["wanted_milli"] for row in curve] == [1_000, 2_000, 4_000, 4_000]
    assert [row["held_milli"] // 1_000 for row in curve] == [1, 1, 3, 0], "the last minute has just begun"


def test_a_projector_that_starts_again_knows_services(tmp_path: Path) -> None:
    """What it makes after a restart is what it makes without one."""
    story = told()
    half = len(story.logs.batches) - 2
    with Projection(tmp_path / "half.duckdb") as projection:
        records = [record for record in story.logs.records if record.seq <= story.logs.batches[half - 1].input_seq]
        projection.ingest(records, story.logs.batches[:half])
    with Projection(tmp_path / "half.duckdb") as projection:
        rest = [record for record in story.logs.records if record.seq > story.logs.batches[half - 1].input_seq]
        projection.ingest(rest, story.logs.batches[half:])
        projection.refresh()
        again = projection.con.execute("from fact.workload order by all").fetchall()
    with projected(story) as projection:
        once = projection.con.execute("from fact.workload order by all").fetchall()

    assert again == once
    assert len(once) == 6


def test_a_service_that_shrinks_and_ends_leaves_nothing() -> None:
    story = told((4_000, 1_000, 1_000, 1_000))
    for _ in range(2):
        stop_what_must(story)
        minute(story)
    story.say(WorkloadCancelled(workload="chat"), "ann")
    minute(story)
    stop_what_must(story)
    minute(story)
    with projected(story) as projection:
        con = projection.con
        ended = con.execute("select workload, outcome from fact.workload_end order by seq, position").fetchall()
        left = queries.run(con, "services").dicts()
        lost = con.execute("select sum(lost_gpu_us), count(*) from fact.run_closed where workload like 'chat:%'").fetchone()
        failed = audit.audit(con).failed

    assert [outcome for name, outcome in ended if name in ("chat:2", "chat:3", "chat:4")] == ["retired"] * 3
    assert ended[-1] == ("chat", "cancelled")
    assert left == []
    assert lost == (0, 4)
    assert [finding.name for finding in failed] == []


def stop_what_must(story: Story) -> None:
    state = story.core.state
    for name, row in list(state.run.row_of.items()):
        if int(state.run.state[row]) == 3:
            node = state.node.keys[int(state.run.lead[row])]
            workload, _, run = name.partition("#")
            story.say(RunFinished(workload=workload, run=int(run), node=node, outcome="stopped"), node, after_ms=1_000)


def test_forecasts_are_rows_and_decide_sizes() -> None:
    story = told(())
    forecast = ForecastPublished(
        model="profile", target="chat", horizon_ms=60 * MINUTE_MS, step_ms=30 * MINUTE_MS, quantiles_ppm=(500_000, 900_000),
        values=(1_000, 2_000, 2_000, 3_000),
    )  # fmt: skip
    story.say(forecast, "ann")
    minute(story)
    with projected(story) as projection:
        rows = projection.con.execute("select quantile_ppm, value, until_ms - from_ms from fact.forecast order by all").fetchall()
        size = queries.run(projection.con, "services").dicts()[0]
        failed = audit.audit(projection.con).failed

    step = 30 * MINUTE_MS
    assert rows == [(500_000, 1_000, step), (500_000, 2_000, step), (900_000, 2_000, step), (900_000, 3_000, step)]
    assert (size["why"], size["replicas"]) == ("forecast", 2)
    assert failed == []


@pytest.mark.parametrize(
    ("check", "wrong"),
    [
        ("services_sized", "update fact.resize set replicas = 3 where bound = 'most'"),
        ("services_sized", "update fact.resize set need = 1 where why = 'traffic'"),
        ("services_sized", "update fact.resize set before = before + 1"),
        ("replicas_counted", "delete from fact.resize where bound = 'most'"),
        ("replicas_counted", "update fact.workload set service = '' where workload = 'chat:4'"),
    ],
)
def test_the_audit_finds_what_is_wrong_with_a_size(check: str, wrong: str) -> None:
    with projected(told()) as projection:
        assert audit.audit(projection.con, check).findings[0].holds
        projection.con.execute(wrong)
        assert not audit.audit(projection.con, check).findings[0].holds

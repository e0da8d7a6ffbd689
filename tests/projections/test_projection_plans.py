"""Plans in the projection: as they were published, what became of each by a naive account, and the audit of all that."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from apportion.core.decisions import PlanPublished, RunClosed, RunPlaced, decode_batch
from apportion.core.envelope import decode_envelope, split_subject
from apportion.core.events import (
    DemandObserved,
    ForecastPublished,
    NodeHeartbeat,
    PolicyActivated,
    RunFinished,
    RunStarted,
    Service,
    WorkloadCancelled,
    decode_data,
)
from apportion.projections import audit, queries
from apportion.projections.runner import Projection
from tests.projections.history import CHAT, HOUR_MS, MINUTE_MS, START_MS, Story, job, opened, simulated

TABLES = ("fact.plan", "fact.plan_job", "fact.plan_service", "fact.plan_idle")


@pytest.fixture(scope="module")
def day() -> Iterator[Projection]:
    """A troubled day of a cluster under ``horizon``, with a service."""
    logs = simulated(31, hours=24, nodes=4, policy="horizon")
    with Projection() as projection:
        projection.ingest(logs.records, logs.batches)
        projection.refresh()
        yield projection


def plans_of_the_day() -> list[PlanPublished]:
    logs = simulated(31, hours=24, nodes=4, policy="horizon")
    decided = [decision for batch in logs.batches for decision in decode_batch(batch.body).decisions]
    return [decision for decision in decided if isinstance(decision, PlanPublished)]


def tide() -> Story:
    """Return a story of a pool under ``horizon``: a service that will grow, a job that starts beside it, and two that wait."""
    story = opened(nodes=2)
    story.say(PolicyActivated(pool="h100", policy="horizon"))
    service = Service(min_replicas=1, max_replicas=8, gpus_milli_per_traffic=1_000, swap_replicas=4)
    story.say(job("chat", 1, kind="realtime", service=service), "ann")
    forecast = ForecastPublished(
        model="m", target="chat", from_ms=START_MS, horizon_ms=4 * HOUR_MS, step_ms=HOUR_MS, quantiles_ppm=(500_000, 900_000),
        values=(1_000, 2_000, 4_000, 2_000, 1_000, 2_000, 8_000, 2_000),
    )  # fmt: skip
    story.say(forecast, "ann")
    for name, gpus, hours in (("long", 8, 6), ("short", 8, 1), ("dropped", 8, 1)):
        story.say(job(name, gpus, expected_runtime_ms=hours * HOUR_MS, min_runtime_ms=MINUTE_MS), "ann")
    hear(story)
    return story


def hear(story: Story, after_ms: int = 0) -> None:
    """Let time pass; nodes beat, agents start what is placed."""
    story.now_ms += after_ms
    for node in ("n1", "n2"):
        story.say(NodeHeartbeat(node=node, beat=len(story.logs.records)), node)
    for decision in story.tick().decisions:
        if isinstance(decision, RunPlaced):
            node = decision.pieces[0].node
            story.say(RunStarted(workload=decision.workload, run=decision.run, node=node), node, after_ms=1_000)


def projected(story: Story) -> Projection:
    projection = Projection()
    projection.ingest(story.logs.records, story.logs.batches)
    projection.refresh()
    return projection


def test_a_plan_is_read_as_it_was_published(day: Projection) -> None:
    """Every value of every plan of the day."""
    published = plans_of_the_day()
    assert len(published) > 48
    assert any(plan.late for plan in published) or any(plan.jobs for plan in published)
    for plan in published:
        head = queries.run(day.con, "plan", plan=plan.plan).dicts()[0]
        names = ("objective", "bound", "candidates", "waiting", "unmet_gpu_steps", "gpus", "from_ms", "step_ms", "steps", "pool")
        assert {name: head[name] for name in names} == {name: getattr(plan, name) for name in names}
        jobs = queries.run(day.con, "plan_jobs", plan=plan.plan).dicts()
        told = {(row["workload"], row["start"], row["steps"], row["first"], row["gpus"]) for row in jobs if row["start"] >= 0}
        assert told == {(one.workload, one.start, one.steps, one.first, one.gpus) for one in plan.jobs}
        assert {row["workload"] for row in jobs if row["late"]} == set(plan.late)
        services = queries.run(day.con, "plan_services", plan=plan.plan).dicts()
        for one in plan.services:
            mine = [row for row in services if row["workload"] == one.workload]
            assert tuple(row["held"] for row in mine) == one.held
            assert tuple(row["needs"] for row in mine) == one.needs
            assert tuple(row["median"] for row in mine) == one.median
        idle = queries.run(day.con, "plan_idle", plan=plan.plan).dicts()
        assert [(row["from_ms"], row["until_ms"], row["gpus"]) for row in idle] == [tuple(vars_of(one)) for one in plan.idle]
        steps = queries.run(day.con, "plan_risk", plan=plan.plan).dicts()
        assert tuple(row["risk_ppm"] for row in steps) == (plan.risk_ppm or (0,) * plan.steps)
        assert sum(row["uncovered"] for row in steps) == plan.unmet_gpu_steps


def vars_of(struct: Any) -> list[Any]:
    return [getattr(struct, name) for name in struct.__struct_fields__]


def test_the_last_plan_of_a_pool_is_the_one_of_the_moment_that_is_asked_for(day: Projection) -> None:
    published = plans_of_the_day()
    listed = queries.run(day.con, "plans", pool="h100", row_limit=10_000).dicts()

    assert [row["plan"] for row in listed] == [plan.plan for plan in reversed(published)]
    assert queries.run(day.con, "plan").dicts()[0]["plan"] == published[-1].plan
    middle = listed[len(listed) // 2]
    assert queries.run(day.con, "plan", seq=middle["seq"]).dicts()[0]["plan"] == middle["plan"]
    assert queries.run(day.con, "plan", seq=middle["seq"] - 1).dicts()[0]["plan"] == listed[len(listed) // 2 + 1]["plan"]
    assert queries.run(day.con, "plan", plan=published[-1].plan, seq=middle["seq"]).dicts() == [], "nobody knew it then"
    assert queries.run(day.con, "plan", pool="nowhere").dicts() == []


def test_a_projector_that_starts_again_knows_plans(tmp_path: Path, day: Projection) -> None:
    logs = simulated(31, hours=24, nodes=4, policy="horizon")
    path, half = tmp_path / "half.duckdb", len(logs.batches) // 2
    cut = logs.batches[half - 1].input_seq
    with Projection(path) as projection:
        projection.ingest([record for record in logs.records if record.seq <= cut], logs.batches[:half])
    with Projection(path) as projection:
        projection.ingest([record for record in logs.records if record.seq > cut], logs.batches[half:])
        projection.refresh()
        for table in TABLES:
            again = projection.con.execute(f"from {table} order by all").fetchall()
            assert again == day.con.execute(f"from {table} order by all").fetchall()
            assert len(again) > 48


def test_an_answer_about_plans_does_not_know_what_came_later(day: Projection) -> None:
    """Asked of the whole at seq N = asked of a projection that was built up to N."""
    logs = simulated(31, hours=24, nodes=4, policy="horizon")
    count = len(logs.batches) * 2 // 3
    seq = logs.batches[count - 1].input_seq
    with Projection() as prefix:
        prefix.ingest(logs.records[:seq], logs.batches[:count])
        prefix.refresh()
        new, old = (row["plan"] for row in queries.run(prefix.con, "plans", row_limit=2).dicts())
        asked: dict[str, dict[str, Any]] = {
            "plan": {}, "plans": {}, "plan_jobs": {}, "plan_services": {}, "plan_idle": {}, "plan_risk": {}, "plan_regret": {},
            "plan_changes": {"old": old, "new": new}, "pool_curve": {"pool": "h100"},
        }  # fmt: skip
        for name, params in asked.items():
            then = queries.run(prefix.con, name, **params).dicts()
            assert then
            assert queries.run(day.con, name, seq=seq, **params).dicts() == then, name


# -- what became of it -----------------------------------------------------------------------------------------------------


class Held(NamedTuple):
    """A run, as its decisions tell of it."""

    workload: str
    seq: int
    from_ms: int
    until_ms: int
    milli: int


def naive_regret(hours: int) -> dict[str, dict[str, int | None]]:
    """Return what each plan promised and what happened after so many hours, added up run by run and minute by minute."""
    logs = simulated(31, hours=24, nodes=4, policy="horizon")
    batches = [decode_batch(batch.body) for batch in logs.batches if decode_batch(batch.body).time_ms <= START_MS + hours * HOUR_MS]
    last_ms, seq = batches[-1].time_ms, batches[-1].seq
    runs: dict[tuple[str, int], Held] = {}
    refused = {decision.event_seq for batch in batches for decision in batch.decisions if type(decision).__name__ == "Rejected"}
    for batch in batches:
        for decision in batch.decisions:
            if isinstance(decision, RunPlaced):
                key = (decision.workload, decision.run)
                runs[key] = Held(decision.workload, batch.seq, batch.time_ms, last_ms, decision.gpus_milli)
            elif isinstance(decision, RunClosed):
                key = (decision.workload, decision.run)
                runs[key] = runs[key]._replace(until_ms=decision.end_ms)
    news = []
    for record in logs.records[:seq]:
        parts = split_subject(record.subject)
        if parts is not None and parts[1] == "demand.observed" and record.seq not in refused:
            envelope = decode_envelope(record.body)
            event = decode_data(parts[1], envelope.v, envelope.data)
            assert isinstance(event, DemandObserved)
            news.append((record.seq, event.traffic_milli))
    with Projection() as clock:  # only for the instants of the log
        clock.ingest(logs.records, logs.batches)
        clock.refresh()
        times = dict(clock.con.execute("select seq, time_ms from fact.demand").fetchall())
    each = CHAT.gpus_milli
    needs = [(times[at], -(-milli * CHAT.service.gpus_milli_per_traffic // (1_000 * each)) * each) for at, milli in news]
    replicas = [run for run in runs.values() if run.workload.startswith("chat:")]
    found = {}
    for batch in batches:
        for plan in batch.decisions:
            if isinstance(plan, PlanPublished):
                found[plan.plan] = _naive(plan, batch.seq, last_ms, list(runs.values()), replicas, needs)
    return found


def _naive(plan: PlanPublished, seq: int, now_ms: int, runs: list[Held], replicas: list[Held], needs: Any) -> dict[str, Any]:
    step = plan.step_ms
    passed = min((now_ms - plan.from_ms) // step, plan.steps)
    end_ms = plan.from_ms + passed * step

    def inside(run: Held) -> int:
        return max(0, min(run.until_ms, end_ms) - max(run.from_ms, plan.from_ms)) * run.milli

    due = [one for one in plan.jobs if plan.from_ms + one.start * step <= now_ms]
    late = []
    for one in due:
        starts = [run.from_ms for run in runs if run.workload == one.workload and run.seq >= seq]
        if starts:
            late.append(max(0, min(starts) - plan.from_ms - one.start * step) * 1_000 // step)
    names = {one.workload for one in plan.jobs}
    marks = {plan.from_ms, end_ms} | {at for at, _need in needs} | {at for run in replicas for at in (run.from_ms, run.until_ms)}
    cuts = sorted(at for at in marks if plan.from_ms <= at <= end_ms)
    unmet = 0
    for begin, until in pairwise(cuts):
        known = bisect_right(needs, begin, key=lambda need: need[0])
        held = sum(run.milli for run in replicas if run.from_ms <= begin < run.until_ms)
        unmet += max(0, (needs[known - 1][1] if known else 0) - held) * (until - begin)
    return {
        "steps_passed": passed, "jobs_due": len(due), "jobs_started": len(late),
        "later_max_steps_milli": max(late) if late else None, "later_mean_steps_milli": sum(late) // len(late) if late else None,
        "jobs_promised_gpu_us": sum(
            one.gpus * 1_000 * step * max(0, min(one.start + one.steps, passed) - one.start) for one in plan.jobs
        ),
        "jobs_held_gpu_us": sum(inside(run) for run in runs if run.workload in names and run.seq >= seq),
        "services_promised_gpu_us": sum(sum(one.held[:passed]) for one in plan.services) * 1_000 * step,
        "services_held_gpu_us": sum(inside(run) for run in replicas) if plan.services else 0,
        "unmet_promised_gpu_us": sum(
            max(0, need - held) * 1_000 * step
            for one in plan.services
            for need, held in zip(one.needs[:passed], one.held[:passed], strict=True)
        ),
        "unmet_gpu_us": unmet if plan.services else 0,
    }  # fmt: skip


@pytest.mark.parametrize("hours", [7, 24])
def test_regret_is_what_a_naive_account_says(day: Projection, hours: int) -> None:
    expected = naive_regret(hours)
    rows = queries.run(day.con, "plan_regret", at_ms=START_MS + hours * HOUR_MS, row_limit=10_000).dicts()

    assert {row["plan"] for row in rows} == expected.keys()
    for row in rows:
        assert {name: row[name] for name in expected[row["plan"]]} == expected[row["plan"]], row["plan"]
    assert any(row["jobs_started"] for row in rows)
    assert any(row["services_held_gpu_us"] for row in rows)
    assert hours < 24 or any(row["unmet_gpu_us"] for row in rows)


def test_the_time_of_a_pool_is_all_told_and_the_same_as_its_capacity(day: Projection) -> None:
    capacity = queries.run(day.con, "capacity", pool="h100").dicts()
    for step_ms in (600_000, HOUR_MS):
        rows = queries.run(day.con, "pool_curve", pool="h100", step_ms=step_ms).dicts()
        for row in rows:
            parts = sum(row[f"{name}_gpu_us"] for name in ("services", "others", "down", "idle"))
            assert parts == row["installed_gpu_us"]
        for name in ("installed", "down", "idle"):
            assert sum(row[f"{name}_gpu_us"] for row in rows) == sum(row[f"{name}_gpu_us"] for row in capacity)
        held = sum(row["services_gpu_us"] + row["others_gpu_us"] for row in rows)
        assert held == sum(row["funded_gpu_us"] + row["unfunded_gpu_us"] for row in capacity)
        assert sum(row["services_gpu_us"] for row in rows) > 0


def test_what_changed_between_two_plans_is_told_with_its_reason() -> None:
    story = tide()
    story.say(RunFinished(workload="long", run=1, node="n1", outcome="succeeded"), "n1", after_ms=10 * MINUTE_MS)
    story.say(WorkloadCancelled(workload="dropped"), "ann")
    story.say(job("fresh", 4, expected_runtime_ms=HOUR_MS, min_runtime_ms=MINUTE_MS), "ann")
    hear(story)
    with projected(story) as projection:
        old, new = (row["plan"] for row in reversed(queries.run(projection.con, "plans").dicts()))
        rows = queries.run(projection.con, "plan_changes", old=old, new=new).dicts()
        same = queries.run(projection.con, "plan_changes", old=new, new=new).dicts()

    changes = {row["workload"]: row["change"] for row in rows}
    assert changes == {"long": "started", "short": "earlier", "dropped": "over", "fresh": "new"}
    assert -6 * HOUR_MS < next(row["shift_ms"] for row in rows if row["workload"] == "short") < -5 * HOUR_MS
    assert {row["change"] for row in same} == {"same"}


# -- the audit -------------------------------------------------------------------------------------------------------------


def test_nothing_to_find_in_plans_that_were_made(day: Projection) -> None:
    assert [(finding.name, finding.rows[:2]) for finding in audit.audit(day.con).failed] == []
    with projected(tide()) as projection:
        assert [finding.name for finding in audit.audit(projection.con).failed] == []


@pytest.mark.parametrize(
    ("check", "wrong"),
    [
        ("plans_laid_out", "update fact.plan_job set first = first + 1 where workload = 'short'"),
        ("plans_laid_out", "update fact.plan_job set gpus = 3 where workload = 'short'"),
        ("plans_laid_out", "update fact.plan_job set first = 16 where workload = 'short'"),
        ("plans_laid_out", "update fact.plan_job set start = 48 where workload = 'dropped'"),
        ("plans_laid_out", "update fact.plan_job set start = 1 where workload = 'dropped'"),
        ("plans_laid_out", "update fact.plan set gpus = 24"),
        ("plans_laid_out", "update dim.node_version set gpus = 0 where node = 'n2'"),
        ("plans_swap", "update fact.plan_service set held = 7 where step = 7"),
        ("plans_swap", "update fact.plan_service set held = 9 where held = 8"),
        ("plans_swap", "delete from fact.service"),
        ("plans_bounded", "update fact.plan set bound = objective - 1"),
        ("plans_bounded", "update fact.plan set unmet_gpu_steps = unmet_gpu_steps + 1"),
        ("planned_runs", "update fact.plan_job set start = 1 where workload = 'long'"),
        ("planned_runs", "delete from fact.plan_job"),
        ("planned_runs", "update fact.workload set service = '' where service <> ''"),
        ("planned_runs", "update fact.decision set type = 'run.preempted' where type = 'run.placed' and workload = 'long'"),
    ],
)
def test_the_audit_finds_what_is_wrong_with_a_plan(check: str, wrong: str) -> None:
    with projected(tide()) as projection:
        assert audit.audit(projection.con, check).findings[0].holds
        projection.con.execute(wrong)
        assert not audit.audit(projection.con, check).findings[0].holds

"""The forecaster over a real server and a real projection: what it reads, what it says, what the core makes of it."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from apportion.adapters.bus.local import Bus
from apportion.adapters.bus.server import EmbeddedServer
from apportion.adapters.forecasting import process, runtimes
from apportion.adapters.forecasting.features import features
from apportion.adapters.forecasting.history import KINDS, history_of
from apportion.adapters.processes.home import Home
from apportion.core.decisions import RunPlaced, RunRetired, ServiceResized
from apportion.core.envelope import Record, decode_envelope
from apportion.core.events import (
    DemandObserved,
    ForecastPublished,
    MemberGranted,
    NodeHeartbeat,
    RunFinished,
    RunStarted,
    Service,
    decode_data,
)
from apportion.core.state import schema
from apportion.projections import queries
from apportion.projections.runner import Projection
from tests.adapters.test_projector import fill, projecting
from tests.projections.history import HOUR_MS, MINUTE_MS, Story, job, opened, simulated

RunAsync = Callable[[Coroutine[Any, Any, Any]], Any]
HALF_MS = HOUR_MS // 2


@pytest.fixture(scope="module")
def troubled() -> Projection:
    """A day of a simulated cluster with failures, preemptions and a service."""
    logs = simulated(43, hours=24, nodes=2, rough=False)
    projection = Projection()
    projection.ingest(logs.records, logs.batches)
    projection.refresh()
    return projection


def rows_of(projection: Projection, name: str, **params: Any) -> list[dict[str, Any]]:
    return queries.run(projection.con, name, **params).dicts()


def test_runtimes_are_what_runs_took(troubled: Projection) -> None:
    """Against plain reading of the runs: work that succeeded at once took from start to end."""
    rows = {row["workload"]: row for row in rows_of(troubled, "forecast_workloads")}
    runs = troubled.con.execute(
        "select workload, end_ms - started_ms from fact.run_closed where run = 1 and outcome = 'succeeded' and not requeued"
    ).fetchall()
    checked = [name for name, took_ms in runs if name in rows and rows[name]["runtime_ms"] == took_ms]

    assert len(checked) == len([name for name, _took_ms in runs if name in rows]) > 5
    assert not any(":" in name for name in rows), "replicas are no work"
    assert {row["kind"] for row in rows.values()} <= set(KINDS)
    started = troubled.con.execute("select count(*) from fact.run_closed where resume_from_ms > 0").fetchone()
    assert started is not None
    assert started[0] > 0, "some resumed, or nothing is tested of it"


def test_a_history_is_the_same_whenever_it_is_asked_for(troubled: Projection) -> None:
    """Features as of an earlier instant are those that a later answer gives for the same workloads: nothing leaks back."""
    middle_ms = troubled.position.time_ms - 8 * HOUR_MS
    then = history_of(rows_of(troubled, "forecast_workloads", at_ms=middle_ms))
    now = history_of(rows_of(troubled, "forecast_workloads"))
    before, after = features(then.asked), features(now.asked)
    row_of = {one.workload: row for row, one in enumerate(now.asked)}
    same = [row_of[one.workload] for one in then.asked]

    assert len(then.asked) > 10
    assert len(now.asked) > len(then.asked)
    assert before.tobytes() == after[same].tobytes()
    assert any(one.elapsed_ms > 0 for one in then.open)


def test_traffic_is_told_by_steps_that_are_over(troubled: Projection) -> None:
    rows = rows_of(troubled, "forecast_traffic", step_ms=HALF_MS)
    most = troubled.con.execute(
        f"select time_ms // {HALF_MS} * {HALF_MS}, max(traffic_milli) from fact.demand group by 1 order by all"
    ).fetchall()

    assert {row["workload"] for row in rows} == {"chat"}
    assert [(row["from_ms"], row["traffic_milli"]) for row in rows] == most[: len(rows)]
    assert len(most) - len(rows) <= 1
    assert rows_of(troubled, "forecast_said")[0]["model"] == "day-profile"


def beaten(story: Story, after_ms: int) -> list[Any]:
    """Let time pass; nodes beat, and a cycle is decided. Returns its decisions."""
    story.now_ms += after_ms
    for node in ("n1", "n2"):
        story.say(NodeHeartbeat(node=node, beat=len(story.logs.records)), node)
    return list(story.tick().decisions)


def obey(story: Story, decisions: list[Any]) -> None:
    """Start what is placed, and stop what is retired, at once."""
    for decision in decisions:
        if isinstance(decision, RunPlaced):
            node = decision.pieces[0].node
            story.say(RunStarted(workload=decision.workload, run=decision.run, node=node), node)
        elif isinstance(decision, RunRetired):
            row = story.core.state.run.row_of[f"{decision.workload}#{decision.run}"]
            node = story.core.state.node.keys[int(story.core.state.run.lead[row])]
            story.say(RunFinished(workload=decision.workload, run=decision.run, node=node, outcome="stopped"), node)


def told(days: int = 2) -> Story:
    """Return days up to now of a service that is large in each second half of a day, and of work of ten minutes; one waits."""
    story = opened(nodes=2)
    story.now_ms = time.time_ns() // 1_000_000 // HALF_MS * HALF_MS - days * 48 * HALF_MS
    service = Service(min_replicas=1, max_replicas=8, gpus_milli_per_traffic=1_000, hold_ms=MINUTE_MS)
    story.say(job("chat", 1, kind="realtime", service=service), "ann")
    story.say(MemberGranted(budget="lab", member="forecaster", role="administer"))
    beaten(story, 1_000)
    for half in range(days * 48):
        noon = story.now_ms % (48 * HALF_MS) >= 24 * HALF_MS
        story.say(DemandObserved(workload="chat", traffic_milli=6_000 if noon else 1_000), "ann")
        story.say(job(f"work-{half}", 8, name=f"train-lora-{half}", min_runtime_ms=0, expected_runtime_ms=4 * HOUR_MS), "ann")
        obey(story, beaten(story, 1_000))
        beaten(story, 10 * MINUTE_MS)
        for name, row in list(story.core.state.run.row_of.items()):
            if name.startswith("work") and int(story.core.state.run.state[row]) == schema.STARTED:
                node = story.core.state.node.keys[int(story.core.state.run.lead[row])]
                story.say(RunFinished(workload=name.partition("#")[0], run=1, node=node, outcome="succeeded"), node)
        obey(story, beaten(story, HALF_MS - 10 * MINUTE_MS - 1_000))
    story.say(job("waits", 16, name="train-lora-last", expected_runtime_ms=4 * HOUR_MS), "ann")
    beaten(story, 1_000)
    return story


def test_a_forecast_is_published_and_decides(
    nats_server: EmbeddedServer, tmp_path: Path, run_async: RunAsync, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One round on a real server; the core that reads its events makes the service as large as they say, and knows the runtime."""
    monkeypatch.setattr(runtimes, "LEAST_ROWS", 60)
    story = told()
    lines: list[str] = []

    async def play() -> tuple[process.Round, process.Round, list[Record]]:
        async with await Bus.open(nats_server.url, create=True) as bus, await Bus.open(nats_server.url) as writer:
            await fill(writer, story.logs)
            async with projecting(Home.of(tmp_path / "home"), bus):
                done = await once(nats_server.url, tmp_path, lines)
                last = await bus.events.last_seq()
                records = await writer.events.read(len(story.logs.records), 100)
                again = await once(nats_server.url, tmp_path, lines)
                assert await bus.events.last_seq() == last + again.runtimes + again.traffic
                return done, again, records

    done, again, records = run_async(play())
    forecasts = {event.of: event for event in map(event_of, records)}

    assert (done.runtimes, done.traffic, done.refused) == (1, 1, {})
    assert forecasts["runtime"].target == "waits"
    assert 9 * MINUTE_MS < forecasts["runtime"].values[2] < 11 * MINUTE_MS, "the median is what such work took, not its limit"
    assert {event.model for event in forecasts.values()} == set(done.models)
    assert forecasts["traffic"].model.startswith("traffic-day-")
    assert again.models == done.models, "the model on the shelf is asked again"
    assert sum("fitted" in line for line in lines) == 1

    state = story.core.state
    for record in records:
        story.core.fold(record)
        story.logs.records.append(record)
    row = state.workload.row_of["waits"]
    assert int(state.workload.forecast_ms[row]) == forecasts["runtime"].values[3], "at the quantile that the pool keeps ready for"
    at = forecasts["traffic"]
    steps = len(at.values) // 3
    sizes = []
    for step in range(4, 52):  # a day and more: whatever the time of day is, the service is to grow in it, and to shrink
        told_milli = at.values[steps + step]
        story.now_ms = max(story.now_ms, at.from_ms + step * at.step_ms + MINUTE_MS)
        sizes.append((-(-told_milli // 1_000), beaten(story, 0)))
    resized = [d for _need, decisions in sizes for d in decisions if isinstance(d, ServiceResized)]
    assert any(d.why == "forecast" and d.replicas >= 5 for d in resized), "it is large when that is forecast, without any traffic"
    assert any(d.replicas <= 3 for d in resized)


async def once(url: str, tmp_path: Path, lines: list[str]) -> process.Round:
    return await process.serve(url, tmp_path / "models", "forecaster", every_s=60, once=True, tell=lines.append)


def event_of(record: Record) -> ForecastPublished:
    envelope = decode_envelope(record.body)
    event = decode_data(envelope.type, envelope.v, envelope.data)
    assert isinstance(event, ForecastPublished)
    return event


def test_it_ends_when_it_is_told_to(nats_server: EmbeddedServer, tmp_path: Path, run_async: RunAsync) -> None:
    """A process of its own that waits for its next round, and one that nobody answers: SIGTERM ends both, with exit code 0."""
    run_async(opened_streams(nats_server.url))
    program = [sys.executable, "-m", "apportion.adapters.cli.main", "forecast", "--every", "10s", "--server", nats_server.url]
    running = subprocess.Popen([*program, "--dir", str(tmp_path)], stderr=subprocess.PIPE, text=True)
    assert running.stderr is not None
    first = running.stderr.readline()
    running.send_signal(signal.SIGTERM)
    _out, rest = running.communicate(timeout=30)

    assert "this round is left out: no projector answers" in first
    assert running.returncode == 0, rest
    assert "Traceback" not in rest


async def opened_streams(url: str) -> None:
    async with await Bus.open(url, create=True):
        pass

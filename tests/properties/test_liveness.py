"""Liveness: when the trouble ends, everything that can run does run and is closed; clocks of nodes decide nothing."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apportion.core import events as ev
from apportion.core.decisions import RunPlaced, decode_batch
from apportion.core.state import schema
from apportion.core.units import MAX_ELAPSED_MS, MS_PER_DAY
from tests.core.books import Books
from tests.core.chaos import NODES, Chaos, Seeded
from tests.core.invariants import Inspector
from tests.core.story import Story

MINUTES = 400


def heal(story: Story, chaos: Chaos) -> None:
    """Bring every node back as it was at first, in service, and give every budget time."""
    for node, (pool, gpus) in NODES.items():
        for name in [name for name, nodes in chaos.live.items() if node in nodes]:
            workload, _, run = name.partition("#")
            where = chaos.live[name][0]
            story.tell(ev.RunFinished(workload=workload, run=int(run), node=where, outcome="stopped"), f"agent-{where}")
        story.tell(ev.NodeJoined(node=node, pool=pool, gpus=gpus, agent=f"agent-{node}"))
        story.tell(ev.NodeUncordoned(node=node))


@pytest.mark.parametrize("seed", [21, 22])
def test_liveness_all_work_ends_once_the_trouble_does(seed: int) -> None:
    """Every workload that fits on what there is comes to its end within a bounded time, whatever state chaos left."""
    story = Story()
    chaos = Chaos(story, Seeded(seed))
    story.watchers = (chaos, Books(), Inspector())
    chaos.begin()
    for _ in range(70):
        chaos.act()
    heal(story, chaos)
    state = story.core.state

    for _ in range(MINUTES):
        story.now_ms = max(story.now_ms, story.core.time_ms) + 60_000
        for node in NODES:
            chaos.beats[node] = chaos.beats.get(node, 0) + 10
            story.tell(ev.NodeHeartbeat(node=node, beat=chaos.beats[node]), f"agent-{node}")
        batch = story.tick()
        placed = {f"{d.workload}#{d.run}" for d in batch.decisions if isinstance(d, RunPlaced)}
        for name, nodes in list(chaos.live.items()):
            workload, _, run = name.partition("#")
            about = {"workload": workload, "run": int(run), "node": nodes[0]}
            if name in placed:
                story.tell(ev.RunStarted(**about), f"agent-{nodes[0]}")  # type: ignore[arg-type]  # a dict of the right fields
            else:
                outcome = "stopped" if name in chaos.stopping else "succeeded"
                story.tell(ev.RunFinished(outcome=outcome, **about), f"agent-{nodes[0]}")  # type: ignore[arg-type]  # as above
        if not len(state.workload):
            break

    left = {state.workload.keys[row]: int(state.workload.reason[row]) for row in state.workload.live_rows()}
    assert not left, f"seed {seed}: still waiting after {MINUTES} minutes: {left}"
    assert not len(state.run)
    assert not state.gpu.column("held_by").any()
    assert story.core.due_ms() is not None, "nodes are watched even when there is no work"


def test_3f_98_node_clocks_decide_nothing() -> None:
    """The same history with every producer's clock 30 s ahead, 30 s behind, or stepping back: the same decisions."""

    def told(skew_ms: list[int]) -> list[object]:
        story = Story()
        story.open("stored")
        claims = iter(skew_ms * 1_000)

        def tell(event: ev.Event, by: str = "ops") -> None:
            story.tell(event, by, at_ms=max(0, story.now_ms + next(claims)))

        tell(ev.PoolDefined(pool="p"))
        tell(ev.BudgetSet(pool="p", budget="A", share_ppm=1_000_000))
        tell(ev.NodeJoined(node="n1", pool="p", gpus=8, agent="agent-n1"))
        tell(ev.WorkloadSubmitted(workload="w", budget="A", pools=("p",), gpus_milli=8_000))
        decided: list[object] = []
        for minute in range(1, 40):
            story.now_ms += 60_000
            if minute < 30:
                tell(ev.NodeHeartbeat(node="n1", beat=minute), "agent-n1")
            tell(ev.ClockTick(), "core")
            if minute == 1:
                tell(ev.RunStarted(workload="w", run=1, node="n1"), "agent-n1")
            decided.append(decode_batch(story.batches[max(story.batches)]).decisions)
        assert min(int(x) for x in story.core.state.budget.column("charged_us")) >= 0
        return decided

    exact = told([0])
    assert told([30_000]) == exact
    assert told([-30_000]) == exact
    assert told([30_000, -30_000, 0, -3_600_000]) == exact
    assert any("node_lost" in str(decisions) for decisions in exact)


@pytest.mark.parametrize("time_source", ["stated", "stored"])
@settings(deadline=None)
@given(leaps_days=st.lists(st.integers(0, 900), min_size=2, max_size=4), run=st.booleans())
def test_a_clock_that_leaps_by_years_is_followed_in_steps_and_every_step_is_accounted_for(
    time_source: str, leaps_days: list[int], run: bool
) -> None:
    """Heartbeats change no rate, so two leaps may lie between two postings; a record follows at most two years of one."""
    story = Story()
    story.open(time_source)
    story.tell(ev.PoolDefined(pool="p"))
    story.tell(ev.BudgetSet(pool="p", budget="A", share_ppm=1_000_000))
    story.tell(ev.NodeJoined(node="n1", pool="p", gpus=8, agent="agent-n1"))
    if run:
        story.tell(ev.WorkloadSubmitted(workload="w", budget="A", pools=("p",), gpus_milli=8_000))
    story.tick()
    state = story.core.state
    expected_ms = from_ms = state.counters.time_ms
    for beat, days in enumerate(leaps_days, 1):
        leap_ms = days * MS_PER_DAY
        if time_source == "stated" and leap_ms > MAX_ELAPSED_MS:
            leap_ms = MAX_ELAPSED_MS  # who states more is refused
        story.now_ms += leap_ms
        expected_ms = min(story.now_ms, expected_ms + MAX_ELAPSED_MS)
        story.tell(ev.NodeHeartbeat(node="n1", beat=beat), "agent-n1")
        assert state.counters.time_ms == expected_ms
    assert not story.refused()
    story.now_ms = expected_ms
    story.tick()
    root, elapsed_us = int(state.pool.root[0]), (expected_ms - from_ms) * 8_000
    assert int(state.pool.supply_us[0]) + int(state.pool.down_us[0]) == elapsed_us
    assert int(state.budget.charged_us[root]) + int(state.budget.unfunded_us[root]) <= elapsed_us


def test_states_of_the_tables_are_the_ones_named_here() -> None:
    """``schema`` numbers stand in snapshots: a new meaning for an old number is a new snapshot schema."""
    assert (schema.NEW, schema.PENDING, schema.HELD, schema.RUNNING, schema.OVER) == (1, 2, 3, 4, 5)
    assert (schema.PLACED, schema.STARTED, schema.STOPPING, schema.ENDED) == (1, 2, 3, 4)

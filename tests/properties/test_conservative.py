"""Conservative backfill: who is in the plan starts no later than it said, and exactly then when everybody takes his time."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apportion.core import events as ev
from apportion.core.decisions import CycleBatch, PendingExplained, RunPlaced
from apportion.core.policy import planning
from apportion.core.policy.funding import shares_of
from apportion.core.policy.reserving import Reservations
from apportion.core.policy.turn import Turn
from apportion.core.units import MS_PER_DAY
from tests.core.story import START_MS, Story

MINUTE_MS = 60_000
NODES = 5
quick = settings(derandomize=True, deadline=None, max_examples=25)


class Job(NamedTuple):
    """What somebody asks for: single GPUs on so many nodes."""

    at: int  # minute
    nodes: int
    limit: int  # minutes he states
    takes: int  # minutes it takes


def cluster(backfill: str, depth: int = 100, size: int = 1) -> Story:
    story = Story()
    story.open()
    story.tell(ev.PoolDefined(pool="p"))
    rules = ev.PolicyActivated(
        pool="p", heartbeat_timeout_ms=MS_PER_DAY, backfill=backfill, backfill_depth=depth,  # type: ignore[arg-type]  # a word
    )  # fmt: skip
    story.tell(rules)
    story.tell(ev.BudgetSet(pool="p", budget="A", share_ppm=1_000_000))
    for number in range(NODES):
        story.tell(ev.NodeJoined(node=f"n{number}", pool="p", gpus=size, agent=f"agent-{number}"))
    return story


def promises(story: Story) -> dict[str, int]:
    """Return when each workload that waits is to start, by the plan as it is after the cycle."""
    state = story.core.state
    turn = Turn(state, shares_of(state), 0, Reservations.none(state))
    order, starts_ms = planning.plan(state, turn)
    return {state.workload.keys[row]: at_ms for row, at_ms in zip(order.tolist(), starts_ms.tolist(), strict=True)}


def play(story: Story, jobs: list[Job], minutes: int, size: int = 1) -> tuple[dict[str, int], dict[str, list[int]]]:
    """Return when each started, and every instant that the plan said of it before."""
    started: dict[str, int] = {}
    said: dict[str, list[int]] = {}
    ends: dict[int, list[tuple[str, str]]] = {}
    for minute in range(minutes):
        story.now_ms = START_MS + minute * MINUTE_MS
        for workload, node in ends.pop(minute, []):
            story.tell(ev.RunFinished(workload=workload, run=1, node=node, outcome="succeeded"), f"agent-{node[1:]}")
        for number, job in enumerate(jobs):
            if job.at == minute:
                submission = ev.WorkloadSubmitted(
                    workload=f"w{number}", budget="A", pools=("p",), gpus_milli=job.nodes * size * 1_000, nodes=job.nodes,
                    expected_runtime_ms=job.limit * MINUTE_MS,
                )  # fmt: skip
                story.tell(submission)
        for placed in starts_of(story.tick()):
            node, job = placed.pieces[0].node, jobs[int(placed.workload[1:])]
            started[placed.workload] = story.now_ms
            story.tell(ev.RunStarted(workload=placed.workload, run=1, node=node), f"agent-{node[1:]}")
            ends.setdefault(minute + job.takes, []).append((placed.workload, node))
        for workload, at_ms in promises(story).items():
            said.setdefault(workload, []).append(at_ms)
    return started, said


def starts_of(batch: CycleBatch) -> list[RunPlaced]:
    return [decision for decision in batch.decisions if isinstance(decision, RunPlaced)]


def jobs_of(data: st.DataObject, exact: bool) -> list[Job]:
    jobs = []
    for _job in range(data.draw(st.integers(1, 9))):
        limit = data.draw(st.integers(1, 12))
        takes = limit if exact else data.draw(st.integers(1, limit))
        jobs.append(Job(data.draw(st.integers(0, 6)), data.draw(st.integers(1, NODES)), limit, takes))
    return sorted(jobs, key=lambda job: job.at)


@quick
@given(st.sampled_from([1, 4]), st.data())
def test_safety_nobody_starts_later_than_the_plan_said(size: int, data: st.DataObject) -> None:
    """Whole nodes of one GPU or of four: what the plan counts is all there is to know."""
    jobs = jobs_of(data, exact=False)

    started, said = play(cluster("conservative", size=size), jobs, 130, size)

    assert len(started) == len(jobs), "everybody starts"
    for workload, instants in said.items():
        assert started[workload] <= min(instants), f"{workload} of {jobs}"


@quick
@given(st.data())
def test_safety_with_exact_times_everybody_starts_just_when_the_first_plan_said(data: st.DataObject) -> None:
    jobs = jobs_of(data, exact=True)

    started, said = play(cluster("conservative"), jobs, 130)

    for workload, instants in said.items():
        assert set(instants) == {started[workload]}, f"{workload} of {jobs}"


@pytest.mark.parametrize("backfill", ["easy", "conservative"])
def test_who_is_over_in_time_starts_before_others(backfill: str) -> None:
    """Four of five GPUs run for two minutes; w1 and w2 want all; w3 wants one for two minutes."""
    jobs = [Job(0, 4, 2, 2), Job(0, 5, 1, 1), Job(0, 5, 2, 2), Job(0, 1, 2, 2)]

    started, _said = play(cluster(backfill), jobs, 20)

    assert started["w3"] == START_MS, "it is over before anybody needs its GPU"
    assert (started["w1"], started["w2"]) == (START_MS + 2 * MINUTE_MS, START_MS + 3 * MINUTE_MS)


def test_an_overrun_moves_what_was_told_and_says_so() -> None:
    """The run was to end after two minutes and takes five: the head's instant moves by a minute at a time."""
    story = cluster("conservative")
    told: list[dict[str, int]] = []

    class Ear:
        def after(self, _core: object, _record: object, batch: CycleBatch | None) -> None:
            for decision in batch.decisions if batch is not None else ():
                if isinstance(decision, PendingExplained):
                    told.append(decision.numbers)

    story.watchers = (Ear(),)
    started, _said = play(story, [Job(0, 5, 2, 5), Job(0, 5, 1, 1)], 10)

    assert started["w1"] == START_MS + 5 * MINUTE_MS
    first = START_MS + 2 * MINUTE_MS
    assert told[0]["planned_ms"] == first
    assert told[1]["moved_from_ms"] == first
    assert told[1]["planned_ms"] > first


def test_only_the_first_are_planned_and_those_behind_delay_none_of_them() -> None:
    """Depth 1: w1 is planned and w2 is not; w2 starts beside the first run only as long as w1 does not wait for it."""
    jobs = [Job(0, 4, 3, 3), Job(0, 5, 1, 1), Job(0, 1, 3, 3), Job(0, 1, 4, 4)]

    started, _said = play(cluster("conservative", depth=1), jobs, 20)

    assert started["w2"] == START_MS
    assert started["w1"] == START_MS + 3 * MINUTE_MS
    assert started["w3"] > started["w1"]

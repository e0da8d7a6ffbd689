"""What a tick says it was written for: the step of a rolling plan, or any other deadline."""

from __future__ import annotations

from apportion.core.events import BudgetSet, NodeJoined, PolicyActivated, PoolDefined, WorkloadSubmitted
from apportion.core.reasons import TickWhy
from tests.core.story import Story

MINUTE_MS = 60_000
STEP_MS = 30 * MINUTE_MS


def waiting(policy: str) -> Story:
    """Return a pool of one node with more work than it can run, past its first cycle, five minutes into a step."""
    story = Story(start_ms=1_000_000 * STEP_MS + 5 * MINUTE_MS)
    story.open()
    for event in (
        PoolDefined(pool="h100", gpu_class="h100"),
        PolicyActivated(pool="h100", policy=policy),
        NodeJoined(node="n1", pool="h100", gpus=8),
        BudgetSet(pool="h100", budget="lab", share_ppm=1_000_000, reason="all of it"),
    ):
        story.tell(event)
    for name in ("a", "b"):
        story.tell(WorkloadSubmitted(workload=name, budget="lab", pools=("h100",), gpus_milli=8_000, expected_runtime_ms=STEP_MS))
    story.tick()
    return story


def test_the_first_deadline_is_no_step_of_the_plan_and_the_next_step_is_one() -> None:
    story = waiting("horizon")
    due_ms = story.core.due_ms()
    step_ms = (story.now_ms // STEP_MS + 1) * STEP_MS

    assert due_ms is not None
    assert due_ms < step_ms
    assert story.core.why_due(due_ms) is TickWhy.DUE
    assert story.core.why_due(step_ms - 1) is TickWhy.DUE
    assert story.core.why_due(step_ms) is TickWhy.PLAN


def test_a_pool_without_a_plan_is_never_planned() -> None:
    story = waiting("fair")

    assert story.core.why_due(story.now_ms + 100 * STEP_MS) is TickWhy.DUE

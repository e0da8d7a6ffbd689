"""Scheduled grants over months of random spending: what lapses, what is carried, never twice; ``Books`` recomputes each period.

And the calendar itself, against the one of the standard library.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from apportion.core import events as ev
from apportion.core.calendar import month_of, month_start_ms, period_end_ms
from apportion.core.decisions import CycleBatch, GrantIssued
from apportion.core.units import GPU_US_PER_GPU_HOUR, MAX_TIME_MS, MS_PER_DAY, MS_PER_HOUR
from tests.core.books import Books
from tests.core.followers import FastTwin, Forgetful, Twin
from tests.core.invariants import Inspector
from tests.core.story import Story

START_MS = 1_769_731_200_000  # 2026-01-30, near the end of a month
ACTIONS = (
    "schedule", "schedule", "run", "run", "run", "end", "grant", "grant", "transfer", "withdraw", "close", "restart",
    "tick",
)  # fmt: skip
WAITS_MS = (0, 0, MS_PER_HOUR, 10 * MS_PER_HOUR, 2 * MS_PER_DAY, 31 * MS_PER_DAY, 100 * MS_PER_DAY)


def instant_of(at_ms: int) -> datetime:
    return datetime.fromtimestamp(at_ms // 1_000, UTC)


@settings(derandomize=True, max_examples=300, deadline=None)
@given(st.integers(0, MAX_TIME_MS), st.sampled_from([1, 3]))
@example(0, 1)
@example(951_782_400_000, 1)  # the 29th of February 2000
@example(MAX_TIME_MS, 3)
def test_months_are_those_of_the_calendar(at_ms: int, months: int) -> None:
    there = instant_of(at_ms)
    month = (there.year - 1970) * 12 + there.month - 1

    assert month_of(at_ms) == month
    begin = instant_of(month_start_ms(month))
    assert (begin.year, begin.month, begin.day, begin.hour) == (there.year, there.month, 1, 0)
    end_ms = period_end_ms(at_ms, months)
    end = instant_of(end_ms)
    assert (end.day, end.hour, end.minute, end.second, end_ms % 1_000) == (1, 0, 0, 0, 0)
    assert (end.month - 1) % months == 0
    assert at_ms < end_ms
    assert month_of(end_ms) - months <= month < month_of(end_ms)


@st.composite
def steps(draw: st.DrawFn) -> list[tuple[int, str, Any]]:
    """Draw (time to wait, what, about what)."""
    pick = st.sampled_from
    told: list[tuple[int, str, Any]] = []
    for number in range(draw(st.integers(2, 16))):
        what = draw(pick(ACTIONS))
        line = draw(pick(["A", "A", "A/x", "B"]))
        about: Any = line
        if what == "schedule":
            ahead, length = (draw(pick([0, 0, 10 * MS_PER_HOUR, 40 * MS_PER_DAY])) for _ in range(2))
            about = (
                line, draw(pick([0, 1, 16, 400])) * GPU_US_PER_GPU_HOUR, draw(pick(["monthly", "monthly", "quarterly", "none"])),
                draw(pick(["none", "all", "cap"])), ahead, length,
            )  # fmt: skip
        elif what == "run":
            about = (f"w{number}", draw(pick(["A/x", "B"])), draw(pick([1_000, 4_000, 8_000])), draw(pick([1, 20])))
        told.append((draw(pick(WAITS_MS)), what, about))
    return told


def event_of(what: str, about: Any, now_ms: int) -> ev.Event | None:
    if what == "schedule":
        line, amount, period, carry, ahead, length = about
        return ev.GrantScheduled(
            pool="p", budget=line, gpu_us=amount, period=period, carry=carry, carry_cap_ppm=500_000,
            from_ms=now_ms + ahead if ahead else 0, until_ms=now_ms + ahead + length if length else 0,
        )  # fmt: skip
    if what == "run":
        name, line, milli, hours = about
        return ev.WorkloadSubmitted(workload=name, budget=line, pools=("p",), gpus_milli=milli, min_runtime_ms=hours * MS_PER_HOUR)
    if what == "grant":
        return ev.BudgetGranted(pool="p", budget=about, gpu_us=500 * GPU_US_PER_GPU_HOUR)
    if what == "transfer":
        return ev.BudgetTransferred(pool="p", from_budget=about, to_budget="B", gpu_us=GPU_US_PER_GPU_HOUR)
    if what == "withdraw":
        return ev.BudgetWithdrawn(pool="p", budget=about, gpu_us=GPU_US_PER_GPU_HOUR)
    if what == "close":
        return ev.BudgetClosed(pool="p", budget=about)
    return None


class Issued:
    """Watcher: how often a period began, and that a line never had less than nothing because of a lapse."""

    def __init__(self) -> None:
        self.count = 0

    def after(self, core: Any, record: Any, batch: CycleBatch | None) -> None:
        for decision in batch.decisions if batch is not None else ():
            if isinstance(decision, GrantIssued):
                self.count += 1
                assert decision.lapsed_gpu_us >= 0
                assert decision.carried_gpu_us >= 0


def tell(told: list[tuple[int, str, Any]]) -> tuple[Story, int]:
    """Play a story; agents start and, when told to stop, end what is placed."""
    issued = Issued()
    story = Story(Books(), Inspector(), Twin(), Forgetful(), FastTwin(), issued, start_ms=START_MS)
    story.open()
    story.tell(ev.PoolDefined(pool="p"))
    story.tell(ev.PolicyActivated(pool="p", protected_cap_ms=MS_PER_DAY))
    for line, share in (("A", 500_000), ("A/x", 1_000_000), ("B", 500_000)):
        story.tell(ev.BudgetSet(pool="p", budget=line, share_ppm=share))
    story.tell(ev.NodeJoined(node="n1", pool="p", gpus=8, agent="agent"))
    for beat, (wait_ms, what, about) in enumerate([*told, (100 * MS_PER_DAY, "tick", ""), (0, "tick", "")], 1):
        story.now_ms += wait_ms
        story.tell(ev.NodeHeartbeat(node="n1", beat=beat), "agent")
        event = event_of(what, about, story.now_ms)
        if event is not None:
            story.tell(event)
        elif what == "restart":
            story.restart()
        state = story.core.state
        for run in [state.run.keys[row] for row in state.run.live_rows() if state.run.state[row] == 1]:
            story.tell(ev.RunStarted(workload=run.split("#")[0], run=int(run.split("#")[1]), node="n1"), "agent")
        for run in [state.run.keys[row] for row in state.run.live_rows() if what == "end" or state.run.state[row] == 3]:
            name, number = run.split("#")
            story.tell(ev.RunFinished(workload=name, run=int(number), node="n1", outcome="stopped"), "agent")
        story.tick()
    return story, issued.count


@settings(derandomize=True, max_examples=60, deadline=None)
@given(steps())
def test_every_period_begins_once_and_takes_back_only_what_was_not_spent(told: list[tuple[int, str, Any]]) -> None:
    story, _ = tell(told)

    due_ms = story.core.due_ms()
    assert due_ms is None or due_ms > story.core.time_ms


def test_a_year_of_months_with_spending_is_a_dozen_grants() -> None:
    spend: list[tuple[int, str, Any]] = [(0, "schedule", ("A", 400 * GPU_US_PER_GPU_HOUR, "monthly", "cap", 0, 0))]
    for number in range(24):
        spend.append((5 * MS_PER_DAY, "run", (f"w{number}", "A/x", 4_000, 1)))
        spend.append((10 * MS_PER_HOUR, "end", ""))
        spend.append((10 * MS_PER_DAY, "tick", ""))
    story, count = tell(spend)

    # 24 times 15 days and 10 hours, and 100 days at the end, from the 30th of January 2026
    assert count == 1 + month_of(story.now_ms) - month_of(START_MS)

"""Users below budgets: whoever submits, in whatever order, the tree stays a tree, lags add up, and who asks alike gets alike."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from apportion.core import events as ev
from apportion.core.decisions import RunPlaced
from tests.core.books import Books
from tests.core.followers import FastTwin, Forgetful, Twin
from tests.core.invariants import Inspector
from tests.core.outlook import Timeline
from tests.core.story import Story

USERS = ("ann", "bob", "cy")
MINUTE_MS = 60_000


def begun(users: Any) -> Story:
    """Return a story with a budget that its users share, beside one that nobody shares."""
    story = Story(Books(), Timeline(), Inspector(), Twin(), Forgetful(), FastTwin())
    story.open()
    story.tell(ev.PoolDefined(pool="p"))
    story.tell(ev.PolicyActivated(pool="p", quantum_ms=5 * MINUTE_MS, horizon_ms=5 * MINUTE_MS))
    story.tell(ev.BudgetSet(pool="p", budget="lab", share_ppm=600_000, users=users))
    story.tell(ev.BudgetSet(pool="p", budget="rest", share_ppm=400_000))
    story.tell(ev.NodeJoined(node="n1", pool="p", gpus=8, agent="agent"))
    for name in USERS:
        story.tell(ev.MemberGranted(budget="lab", member=name))
    return story


@st.composite
def deeds(draw: st.DrawFn) -> list[tuple[str, str, int]]:
    """Draw (what, who, how much)."""
    what = st.sampled_from(["submit", "submit", "submit", "weight", "revoke", "mode", "end", "close", "restart"])
    return [
        (draw(what), draw(st.sampled_from(USERS)), draw(st.sampled_from([1, 2, 4]))) for _ in range(draw(st.integers(1, 20)))
    ]


@settings(derandomize=True, max_examples=40, deadline=None)
@given(deeds())
def test_whatever_users_do_the_books_add_up(told: list[tuple[str, str, int]]) -> None:
    story = begun("equal")
    for number, (what, who, much) in enumerate(told):
        story.now_ms += MINUTE_MS
        story.tell(ev.NodeHeartbeat(node="n1", beat=number + 1), "agent")
        if what == "submit":
            budget = "rest" if number % 5 == 4 else "lab"
            by = "ops" if budget == "rest" else who
            event = ev.WorkloadSubmitted(workload=f"w{number}", budget=budget, pools=("p",), gpus_milli=much * 1_000)
            story.tell(event, by)
        elif what == "weight":
            story.tell(ev.MemberGranted(budget="lab", member=who, weight_milli=much * 1_000))
        elif what == "revoke":
            story.tell(ev.MemberRevoked(budget="lab", member=who))
        elif what == "mode":
            users: Any = ("equal", "weighted", "none")[much // 2]
            story.tell(ev.BudgetSet(pool="p", budget="lab", share_ppm=600_000, users=users))
        elif what == "close":
            story.tell(ev.BudgetClosed(pool="p", budget="lab"))
            story.tell(ev.BudgetSet(pool="p", budget="lab", share_ppm=600_000))
        elif what == "restart":
            story.restart()
        state = story.core.state
        for run in [state.run.keys[row] for row in state.run.live_rows() if what == "end" or state.run.state[row] == 3]:
            name, attempt = run.split("#")
            story.tell(ev.RunFinished(workload=name, run=int(attempt), node="n1", outcome="succeeded"), "agent")
        story.tick()

    budget = story.core.state.budget
    own = [row for row in range(budget.used) if budget.user[row]]
    assert sum(int(budget.share_ppm[row]) for row in own) == (1_000_000 if own else 0)
    assert len({budget.keys[row] for row in own}) == len(own) <= len(USERS)


def test_users_who_always_ask_get_alike_however_much_they_ask() -> None:
    """Ann floods the queue before anybody else comes; an hour later all three have had the same, to one job."""
    story = begun("equal")
    for who, jobs in (("ann", 60), ("bob", 24), ("cy", 24)):
        for number in range(jobs):
            event = ev.WorkloadSubmitted(
                workload=f"{who}{number}", budget="lab", pools=("p",), gpus_milli=2_000, min_runtime_ms=5 * MINUTE_MS
            )
            story.tell(event, who)
    got = dict.fromkeys(USERS, 0)
    running: dict[str, int] = {}
    for beat in range(60):
        story.tell(ev.NodeHeartbeat(node="n1", beat=beat + 1), "agent")
        for run in [run for run, since_ms in running.items() if story.now_ms - since_ms >= 5 * MINUTE_MS]:
            name, attempt = run.split("#")
            story.tell(ev.RunFinished(workload=name, run=int(attempt), node="n1", outcome="succeeded"), "agent")
            del running[run]
        for decision in story.tick().decisions:
            if isinstance(decision, RunPlaced):
                run = f"{decision.workload}#{decision.run}"
                running[run] = story.now_ms
                got[decision.budget.partition("~")[2]] += 1
                story.tell(ev.RunStarted(workload=decision.workload, run=decision.run, node="n1"), "agent")
        story.now_ms += MINUTE_MS

    assert max(got.values()) - min(got.values()) <= 1, got
    assert sum(got.values()) == 48

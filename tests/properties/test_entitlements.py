"""Entitlements over time: any sequence of set and close, begun early, late or never, against the account of ``Timeline``.

With work running and waiting meanwhile, so that ``Books`` sees that lags change exactly at the planned instants.
"""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from apportion.core import events as ev
from apportion.core import planned
from tests.core.books import Books
from tests.core.followers import FastTwin, Forgetful, Twin
from tests.core.invariants import Inspector
from tests.core.outlook import Timeline
from tests.core.story import Story

LINES = ("A", "B", "A/x", "A/y")
SHARES = (0, 1, 250_000, 500_000, 750_000, 1_000_000)
MINUTE = 60_000


@st.composite
def changes(draw: st.DrawFn) -> list[tuple[int, str, ev.Event | None]]:
    """Draw (minutes to wait, who looks, event)."""
    told: list[tuple[int, str, ev.Event | None]] = []
    for _ in range(draw(st.integers(1, 14))):
        line = draw(st.sampled_from(LINES))
        wait, then = (
            draw(st.sampled_from([0, 0, 1, 5, 30])),
            draw(st.sampled_from(["tick", "beat", "nothing", "restart"])),
        )
        if draw(st.sampled_from([True, True, True, True, False])):
            ahead = draw(st.sampled_from([0, 0, 1, 5, 10, 31]))
            length = draw(st.sampled_from([0, 0, 1, 5, 20]))
            told.append((wait, then, _set(line, draw(st.sampled_from(SHARES)), ahead, length)))
        else:
            told.append((wait, then, ev.BudgetClosed(pool="p", budget=line)))
    return told


def _set(line: str, share_ppm: int, ahead: int, length: int) -> ev.BudgetSet:
    """Return the event with its minutes as they are; the test adds the time of the telling."""
    until = ahead + length if length else 0
    return ev.BudgetSet(pool="p", budget=line, share_ppm=share_ppm, from_ms=ahead, until_ms=until)


def _dated(event: ev.Event, now_ms: int) -> ev.Event:
    if not isinstance(event, ev.BudgetSet):
        return event
    times = [now_ms + minutes * MINUTE if minutes else 0 for minutes in (event.from_ms, event.until_ms)]
    return ev.BudgetSet(
        pool="p", budget=event.budget, share_ppm=event.share_ppm, from_ms=times[0], until_ms=times[1]
    )  # fmt: skip


@settings(derandomize=True, max_examples=60, deadline=None)
@given(changes())
@example([(0, "tick", _set("A", 0, 0, 0)), (0, "tick", _set("A/x", 0, 5, 0)), (0, "tick", _set("A/x", 0, 0, 1))])
def test_a_line_is_entitled_to_what_the_last_event_for_the_instant_said(
    told: list[tuple[int, str, ev.Event | None]],
) -> None:
    story = Story(Books(), Timeline(), Inspector(), Twin(), Forgetful(), FastTwin())
    story.open()
    story.tell(ev.PoolDefined(pool="p"))
    story.tell(ev.NodeJoined(node="n1", pool="p", gpus=8, agent="agent"))
    for line in ("Z", "B"):
        story.tell(ev.BudgetSet(pool="p", budget=line, share_ppm=250_000))
        story.tell(ev.WorkloadSubmitted(workload=f"{line}1", budget=line, pools=("p",), gpus_milli=6_000))
    story.tick()
    beat = 0
    for wait, then, event in told:
        story.now_ms += wait * MINUTE
        if then == "beat":
            beat += 1
            story.tell(ev.NodeHeartbeat(node="n1", beat=beat), "agent")
        if event is not None:
            story.tell(_dated(event, story.now_ms))
        if then == "tick":
            story.tick()
        elif then == "restart":
            story.restart()
    story.now_ms += 120 * MINUTE
    story.tick()

    assert story.core.state.counters.planned_ms == 0, "everything planned has come true"
    assert len(story.core.state.planned) == 0


@settings(derandomize=True, max_examples=60, deadline=None)
@given(changes(), st.sets(st.sampled_from(LINES)), st.integers(0, 40), st.integers(1, 60))
def test_sums_of_shares_are_those_of_every_line_at_every_instant(
    told: list[tuple[int, str, ev.Event | None]], among: set[str], ahead: int, length: int
) -> None:
    story = Story()
    story.open()
    story.tell(ev.PoolDefined(pool="p"))
    for _wait, _then, event in told:
        if event is not None:
            story.tell(_dated(event, story.now_ms))
    state = story.core.state
    lines = [state.budget.row_of[key] for line in sorted(among) if (key := state.budget_key("p", line)) in state.budget.row_of]
    from_ms, until_ms = story.now_ms + ahead * MINUTE, story.now_ms + (ahead + length) * MINUTE

    naive = []
    for at_ms in planned.instants(state, lines, from_ms, until_ms):
        said = [planned.entitlement_at(state, line, at_ms) for line in lines]
        naive.append((at_ms, sum(share_ppm for share_ppm, closed in said if not closed)))
    assert list(planned.sums(state, lines, from_ms, until_ms)) == naive

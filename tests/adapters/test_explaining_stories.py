"""In stories nobody wrote: what is explained is what the core told, and every change that is suggested really starts the job."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from apportion.adapters.explaining.causes import causes_of
from apportion.adapters.explaining.changes import smallest_changes
from apportion.core.decisions import PendingExplained, decode_batch
from apportion.core.state import schema
from tests.adapters.explained import applied, moment_of, played

sizes = st.sampled_from(("0.5", "1", "2", "3", "4", "8"))
wishes = st.sampled_from(
    ("", "min=0", "min=10m", "limit=2h", "limit=30m min=0", "is=gen:a", "cpu=14", "block=yes", "exclusive=yes", "prio=2",
     "loose=yes")
)
news = st.sampled_from(("", "cordon n1", "drain n2 until=90m", "grant A 6h", "close A", "tick 65m", "uncordon n1", "tick"))


@st.composite
def stories(draw: st.DrawFn) -> str:
    """Return a story of a few nodes, two budgets and a dozen jobs, that ends before a tick."""
    lines = ["watch off"]  # the books are not what is looked at
    for number in (1, 2, 3):
        gpus, label, rack = draw(st.sampled_from((4, 8))), draw(st.sampled_from("ab")), 1 + number // 3
        lines.append(f"node n{number} {gpus} cpu=16 memory=64 is=gen:{label} rack=r{rack}")
    if draw(st.booleans()):
        lines.append("grant B 20h")
    for number in range(draw(st.integers(6, 14))):
        size, wish = draw(sizes), draw(wishes)
        if wish == "loose=yes":
            size = draw(st.sampled_from(("1", "2", "4")))
        lines.append(f"submit j{number} {draw(st.sampled_from('AB'))} {size} {wish}")
        lines += [line for line in [draw(news)] if line]
    if draw(st.booleans()):
        lines.append("submit gang B 16 nodes=2")
    return "\n".join(lines)


@settings(derandomize=True, max_examples=60, deadline=None)
@given(stories())
def test_who_is_told_something_is_explained_so_first(story: str) -> None:
    scenario = played(story)
    moment, _live = moment_of(scenario)
    state = moment.cycle.state
    told = decode_batch(scenario.story.batches[moment.tick.seq]).decisions

    for said in (one for one in told if isinstance(one, PendingExplained)):
        found = causes_of(moment.cycle, state.workload.row_of[said.workload])
        assert (found[0].enum, found[0].reason) == ("pending", said.reason)
        shared = said.numbers.keys() & found[0].numbers.keys()
        beside = {"funded_since_ms", "moved_from_ms", "late_ms"}  # from the cycles before, and of what was told then
        assert said.numbers.keys() - shared <= beside
        assert {name: found[0].numbers[name] for name in shared - beside} == {name: said.numbers[name] for name in shared - beside}
        assert len({(cause.enum, cause.reason) for cause in found}) == len(found) <= 12


@settings(derandomize=True, max_examples=30, deadline=None)
@given(stories(), st.data())
def test_every_change_that_is_suggested_starts_the_job(story: str, data: st.DataObject) -> None:
    scenario = played(story)
    moment, live = moment_of(scenario)
    table = moment.cycle.state.workload
    waiting = [table.keys[row] for row in table.live_rows() if int(table.state[row]) == schema.PENDING]
    if not waiting:
        return
    job = data.draw(st.sampled_from(waiting))

    for change in smallest_changes(moment, job, 60)[0]:
        assert change.job in applied(scenario, live, change), (job, change)

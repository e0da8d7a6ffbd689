"""Every cause can be met, the first is the one the core reported, and the smallest change really starts it on a live core."""

from __future__ import annotations

import pytest

from apportion.adapters.explaining.causes import Cause, causes_of
from apportion.adapters.explaining.changes import smallest_changes
from apportion.adapters.explaining.commands import change_words, commands_of, submit_words
from apportion.adapters.explaining.moment import Moment
from apportion.adapters.explaining.report import explanation
from apportion.adapters.explaining.trying import AFTER_STOPS
from apportion.core.decisions import PendingExplained, decode_batch
from apportion.core.engine import Core
from apportion.core.events import WorkloadSubmitted
from apportion.core.reasons import Funding, Pending
from apportion.core.state.copying import copy_of
from tests.adapters.explained import RESERVED, applied, moment_of, played
from tests.core.story import Story

# Each story ends before a tick, after which "job" waits for that reason.
STORIES = {
    Pending.HELD: """
        node n1 4
        node n2 4
        submit b1 B 4 min=1h
        submit b2 B 4 min=1m
        tick
        tick 2m
        submit job A 4
    """,
    Pending.BACKOFF: """
        node n1 8
        submit job A 1 retries=3
        tick
        wait 1m
        finished job#1 failed
    """,
    Pending.NO_CAPACITY: """
        node n1 8
        node n2 8
        cordon n2
        submit job A 16
    """,
    Pending.DRAINING: """
        node n1 8
        node n2 8
        submit a1 A 8
        tick
        drain n2 until=2h
        submit job B 8 min=0
    """,
    Pending.PROTECTED_RUNS: """
        node n1 8
        node n2 8
        submit a1 A 6
        submit a2 A 6
        tick
        submit job B 4
    """,
    Pending.RESERVED: RESERVED,
    Pending.NO_DOMAIN: """
        node n1 8 rack=r1
        node n2 8 rack=r1
        node n3 8 rack=r2
        node n4 8 rack=r2
        submit a1 A 8
        submit a2 A 8 apart=g/rack
        cordon n1
        tick
        submit b2 B 8
        cordon n3
        uncordon n1
        tick
        uncordon n3
        finished a1#1 succeeded
        submit job B 16 within=rack min=0
    """,
    Pending.NO_ROOM: """
        node n1 8 is=gen:a
        node n2 8 is=gen:b
        submit a1 A 8 is=gen:a
        tick
        submit job B 4 is=gen:a min=0
    """,
    Pending.NO_BLOCK: """
        node n1 8
        node n2 8
        submit a1 A 5
        submit a2 A 5
        tick
        submit job B 6 min=0
    """,
    Pending.NO_FREE_GPUS: """
        node n1 8
        submit a1 A 6
        tick
        submit job B 4 min=0
    """,
    Pending.BUDGET_ORDER: """
        node n1 4
        node n2 4
        node n3 4
        node n4 4
        submit a1 A 4 limit=1h
        submit a2 A 4 limit=2h
        submit a3 A 4 limit=3h
        submit a4 A 4
        tick
        submit g1 A 16 limit=1h
        submit a5 A 4 limit=90m
        submit a6 A 4 limit=1h
        tick
        wait 1h
        finished a1#1 succeeded
        tick
        wait 30m
        finished a6#1 succeeded
        submit job A 4 limit=2h
    """,
    Pending.PLANNED: """
        policy p kind=horizon step=30m quantum=10m
        node n1 8
        node n2 8
        submit b1 B 8 limit=10h
        serve chat A 1 least=2 most=8 per=1
        forecast chat 50%:2,2,6 85%:2,2,8 step=1h
        tick
        submit job A 4 limit=4h
        tick 5m
        wait 1m
    """,
}


def reported(story: Story, workload: str) -> PendingExplained:
    """Return what the core said last of why it waits."""
    said = [one for body in story.batches.values() for one in decode_batch(body).decisions]
    return [one for one in said if isinstance(one, PendingExplained) and one.workload == workload][-1]


def causes(moment: Moment, workload: str = "job") -> list[Cause]:
    return causes_of(moment.cycle, moment.cycle.state.workload.row_of[workload])


@pytest.mark.parametrize("reason", list(Pending), ids=lambda reason: reason.value)
def test_each_cause_occurs_and_its_smallest_changes_start_the_job(reason: Pending) -> None:
    scenario = played(STORIES[reason])
    moment, live = moment_of(scenario)

    found = causes(moment)

    assert (found[0].enum, found[0].reason) == ("pending", reason.value) == ("pending", reported(scenario.story, "job").reason)
    assert len(found) <= 12
    assert len({(cause.enum, cause.reason) for cause in found}) == len(found)
    changes, trials = smallest_changes(moment, "job")
    assert bool(changes) == (reason is not Pending.HELD)
    assert trials <= 120
    for change in changes:
        assert change.job in applied(scenario, live, change), change


def test_all_causes_have_a_story() -> None:
    assert list(STORIES) == list(Pending)
    assert len(Pending) == 12


def test_several_causes_at_once_each_with_its_numbers() -> None:
    scenario = played("""
        node n1 8
        node n2 8
        node n3 8
        submit a1 A 8 limit=10h
        submit a2 A 6 limit=10h
        tick
        drain n3 until=2h
        submit g1 B 16 limit=1h
        submit job A 4
    """)

    found = {cause.reason: cause.numbers for cause in causes(moment_of(scenario)[0])}

    assert found["draining"]["until_ms"] == scenario.story.start_ms + 2 * 3_600_000
    assert found["above_allowance"] == {
        "need_milli": 4_000, "allowance_milli": 12_000, "running_milli": 14_000, "entitled_milli": 12_000
    }  # fmt: skip
    assert "reserved" not in found, "two GPUs are free on the node that is kept: no room for four"


def test_money_that_is_spent_tells_how_much_is_missing_and_the_least_grant_starts_it() -> None:
    scenario = played("""
        node n1 4
        node n2 4
        grant A 1h
        submit b1 B 4 min=1m
        submit b2 B 4 min=1m
        tick
        tick 2m
        submit job A 4 min=2h
    """)
    moment, live = moment_of(scenario)

    found = {cause.reason: cause.numbers for cause in causes(moment)}
    (grant,) = [change for change in smallest_changes(moment, "job")[0] if change.kind == "grant"]

    missing_us = int(found["balance_spent"]["needs_gpu_us"]) - int(found["balance_spent"]["left_gpu_us"])
    hour_us = 1_000 * 3_600_000
    assert 0 < missing_us <= int(grant.numbers["grant_gpu_us"]) < missing_us + hour_us
    assert grant.outcome.starts == AFTER_STOPS
    assert [(stop["budget"], stop["gpus_milli"]) for stop in grant.outcome.stops] == [("B", 4_000)]
    assert applied(scenario, live, grant) == ["job"]


def test_where_no_single_run_is_enough_the_fewest_that_are_come_together() -> None:
    scenario = played("""
        node n1 4
        node n2 8
        submit big B 4 min=2h
        submit b1 B 1 min=1h
        submit b2 B 1 min=1h
        submit b3 B 1 min=1h
        submit b4 B 1 min=1h
        submit b5 B 1 min=1h
        submit b6 B 1 min=1h
        submit b7 B 1 min=1h
        submit b8 B 1 min=1h
        tick
        tick 2m
        submit job A 3
    """)
    moment, live = moment_of(scenario)

    changes = {change.kind: change for change in smallest_changes(moment, "job")[0]}
    story = played("node n1 8\n" + "\n".join(f"submit b{n} B 2 min=1h" for n in range(1, 5)) + "\ntick\ntick 2m\nsubmit job A 4")
    held, _live = moment_of(story)
    several = {change.kind: change for change in smallest_changes(held, "job")[0]}

    assert "holds" not in changes, "one is enough"
    assert changes["hold"].numbers["holder"] == "big"
    assert applied(scenario, live, changes["hold"]) == ["job"]
    assert "hold" not in several
    assert several["holds"].numbers["count"] == 2
    assert several["holds"].numbers["gpus_milli"] == 4_000
    assert len(commands_of(several["holds"], "job", "p")) == 2
    assert change_words(several["holds"], 4_000) == "these 2 runs end: b1, b2 (4 GPUs together)"


def test_the_budget_that_has_too_little_is_named_not_the_one_that_is_rich() -> None:
    scenario = played("""
        node n1 4
        node n2 4
        budget A/x 100%
        grant A 1h
        grant A/x 100h
        submit b1 B 4 min=1m
        submit b2 B 4 min=1m
        tick
        tick 2m
        submit job A/x 4 min=2h
    """)
    moment, live = moment_of(scenario)

    found = {cause.reason: cause.numbers for cause in causes(moment)}
    (grant,) = [change for change in smallest_changes(moment, "job")[0] if change.kind == "grant"]

    assert found["balance_spent"]["line"] == grant.numbers["budget"] == "A"
    assert int(found["balance_spent"]["left_gpu_us"]) <= 1_000 * 3_600_000
    assert applied(scenario, live, grant) == ["job"]


def test_a_command_asks_again_for_all_that_the_job_asked_for() -> None:
    asks = WorkloadSubmitted(
        workload="w", budget="A", pools=("p", "q"), gpus_milli=3_000, grace_ms=90_000, auto_resume=False, min_runtime_ms=0,
        labels={"gen": "a b"}, priority=3,
    )  # fmt: skip

    assert submit_words(asks) == (
        "apportion submit --budget A --gpus 3 --priority 3 --grace 90s --no-auto-resume --label 'gen=a b' --min-runtime 0h "
        "--pool p,q -- COMMAND"
    )
    assert "--grace" not in submit_words(WorkloadSubmitted(workload="w", budget="A", pools=("p",), gpus_milli=1_000))


def test_what_explains_changes_nothing() -> None:
    moment, _live = moment_of(played(STORIES[Pending.RESERVED]))
    before, cycle = moment.core.digest(), moment.cycle
    explained = Core(copy_of(cycle.state)).digest()

    assert explanation(moment, "job") == explanation(moment, "job")

    assert moment.core.digest() == before
    assert Core(cycle.state).digest() == explained


def test_a_copy_of_a_state_decides_the_same_and_is_another() -> None:
    scenario = played(STORIES[Pending.BUDGET_ORDER])
    moment, live = moment_of(scenario)
    twin = moment.copy()

    assert twin.digest() == moment.core.digest()
    twin.fold(moment.tick)
    assert twin.decide() == scenario.story.batches[moment.tick.seq]
    assert moment.core.digest() == live.digest() != twin.digest()


def test_trials_are_bounded_and_what_was_found_by_then_is_told() -> None:
    moment, _live = moment_of(played(STORIES[Pending.RESERVED]))

    changes, trials = smallest_changes(moment, "job", 22)

    assert trials == 22
    assert {change.kind for change in changes} < {change.kind for change in smallest_changes(moment, "job")[0]}


def test_who_runs_or_is_unknown_is_not_explained() -> None:
    moment, _live = moment_of(played(STORIES[Pending.PROTECTED_RUNS]))

    assert explanation(moment, "a1")["state"] == "running"
    assert explanation(moment, "nobody")["state"] == "unknown"
    assert smallest_changes(moment, "a1") == smallest_changes(moment, "nobody") == ([], 0)


def test_funding_reasons_are_among_the_causes() -> None:
    moments = [moment_of(played(STORIES[reason]))[0] for reason in (Pending.RESERVED, Pending.NO_ROOM)]
    reasons = {cause.reason for moment in moments for cause in causes(moment)}

    assert {Funding.ABOVE_ALLOWANCE.value, Funding.IDLE_CYCLES.value} <= reasons

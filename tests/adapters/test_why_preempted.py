"""A preemption is proved by its certificate: every rule is checked on its numbers, and a forged number fails its rule."""

from __future__ import annotations

from typing import Any

import pytest

from apportion.adapters.cli.why_preempted import checks_of, considered_lines
from apportion.adapters.explaining.moment import Moment, NotATick
from apportion.adapters.explaining.victims import considered, standing
from apportion.core.engine import Core
from apportion.core.envelope import StoredBatch
from apportion.projections import queries
from apportion.projections.runner import Projection
from tests.adapters.explained import moment_of, played

STORY = """
    node n1 4
    node n2 4
    node n3 4
    submit b1 B 4 min=2h
    submit b2 B 4 min=1m
    submit c1 B 4 min=0
    tick
    tick 2m
    submit job A 4
"""


@pytest.fixture(scope="module")
def proof() -> dict[str, Any]:
    """Return what the projection and the core say of the one preemption of a story."""
    scenario = played(STORY)
    moment, _live = moment_of(scenario)
    scenario.play([(1, "agents prompt"), (2, "finished c1#1 stopped"), (3, "tick")])
    story = scenario.story
    batches = [StoredBatch(number, seq, body) for number, (seq, body) in enumerate(story.batches.items(), 1)]
    with Projection() as projection:
        projection.ingest(story.records, batches)
        projection.refresh()
        (certificate,) = queries.run(projection.con, "preemptions").dicts()
        (workload,) = queries.run(projection.con, "workload", workload=certificate["victim"]).dicts()
        runs = queries.run(projection.con, "runs", workload=certificate["victim"]).dicts()
    ended = next(row for row in runs if row["run"] == certificate["victim_run"])
    return {"moment": moment, "certificate": certificate, "workload": workload, "ended": ended}


def checks(proof: dict[str, Any], **forged: Any) -> dict[str, bool]:
    certificate = {**proof["certificate"], **forged}
    victim = standing(proof["moment"], certificate["victim"], certificate["victim_run"])
    found = checks_of(certificate, [certificate], proof["ended"], proof["workload"], victim)
    return {row["what"]: row["holds"] for row in found}


def test_every_rule_holds_for_a_preemption_that_was_made(proof: dict[str, Any]) -> None:
    found = checks(proof)

    assert proof["certificate"]["beneficiary"] == "job"
    assert proof["certificate"]["victim"] == "c1", "what was promised nothing goes first"
    assert len(found) == 6
    assert all(found.values())


@pytest.mark.parametrize(
    ("forged", "rule"),
    [
        ({"time_ms": 0}, "protected time was over"),
        ({"beneficiary_running_milli": 90_000}, "the beneficiary was funded"),
        ({"freed_milli": 5_000}, "all that was freed is told"),
        ({"needed_milli": -1}, "no more than was needed, but for one run"),
    ],
)
def test_a_forged_number_fails_its_rule(proof: dict[str, Any], forged: dict[str, int], rule: str) -> None:
    assert not checks(proof, **forged)[rule]


def test_a_budget_that_could_have_paid_again_is_no_victim(proof: dict[str, Any]) -> None:
    paid = {**proof, "workload": {**proof["workload"], "min_runtime_ms": 60_000}}
    rule = "its budget could not have funded it again at once"

    assert checks(paid, victim_running_milli=12_000, victim_allowance_milli=8_000)[rule]
    assert not checks(paid, victim_running_milli=10_000, victim_allowance_milli=8_000)[rule]


def test_baselines_are_checked_by_their_own_numbers(proof: dict[str, Any]) -> None:
    higher = {"beneficiary_priority": 2, "victim_priority": 1}
    lines = {"beneficiary_line_milli": 4_000, "beneficiary_weight_ppm": 500_000, "victim_weight_ppm": 500_000}

    assert checks(proof, policy="priority", numbers=higher)["the beneficiary has the higher priority"]
    assert not checks(proof, policy="priority", numbers={**higher, "victim_priority": 2})["the beneficiary has the higher priority"]
    for theirs, holds in ((8_001, True), (8_000, False)):
        found = checks(proof, policy="drf", numbers={**lines, "victim_line_milli": theirs})
        assert found["the beneficiary's line has less for its weight, with it"] == holds


def test_who_else_was_considered_and_which_rule_kept_whom(proof: dict[str, Any]) -> None:
    found = considered(proof["moment"], "job")

    assert found is not None
    rules = {rule: told["runs"] for rule, told in found["rules"].items() if told["runs"]}
    assert rules == {"may_go": 1, "funded": 2}
    assert [row["workload"] for row in found["cheapest"]] == ["c1"]
    assert "1 (4 GPUs) could go, 2 (8 GPUs) were funded" in considered_lines(found)[0]
    assert considered(proof["moment"], "nobody") is None


def test_a_record_that_is_no_tick_has_no_cycle(proof: dict[str, Any]) -> None:
    scenario = played("node n1 4")
    core = Core.from_snapshot(scenario.story.core.snapshot())
    scenario.play([(1, "submit job A 4")])

    with pytest.raises(NotATick, match="no tick"):
        _ = Moment(core, scenario.story.records[-1]).cycle

"""Looking ahead: what is foretold of a job is what happens to it when it is really submitted and nothing else arrives."""

from __future__ import annotations

import pytest

from apportion.adapters.cli.ahead import document_of, lines_of
from apportion.adapters.simulation.driver import replay
from apportion.adapters.whatif.forward import look_ahead
from apportion.core.decisions import RunPlaced, RunPreempted
from apportion.core.engine import Core
from apportion.core.events import RunFinished, RunStarted
from apportion.core.units import MS_PER_HOUR
from tests.projections.history import HOUR_MS, Story, job, opened

LAB = (("lab", 1_000_000), ("lab/a", 500_000), ("lab/b", 500_000))


def running(story: Story, workload: str) -> None:
    """Let the agent say that the run has started."""
    batch = story.tick()
    placed = next(d for d in batch.decisions if isinstance(d, RunPlaced) and d.workload == workload)
    node = placed.pieces[0].node
    story.say(RunStarted(workload=workload, run=placed.run, node=node), node)


def core_of(story: Story) -> Core:
    """Return a core of its own at the end of the story."""
    story.tick(after_ms=1_000)
    return replay(story.logs, verify=False)


def test_a_job_that_fits_starts_at_once_and_nobody_is_late() -> None:
    story = opened(nodes=2, budgets=LAB)
    core = core_of(story)
    before = core.digest()

    found = look_ahead(core, job("new", 8, "lab/a", expected_runtime_ms=HOUR_MS), "ann")

    assert found.start_ms is not None
    assert found.start_ms - found.from_ms <= 2_000
    assert found.placed is not None
    assert found.placed.payer == "budget"
    assert found.later == []
    assert found.victims == []
    assert found.funded_gpu_us == pytest.approx(8_000 * MS_PER_HOUR, rel=0.05)
    assert core.digest() == before, "the core that is asked is left as it was"
    assert "it would start at once" in lines_of(found, job("new"))[0]


def test_a_job_that_has_to_wait_starts_when_the_limit_says_and_so_it_comes() -> None:
    story = opened(nodes=1, budgets=LAB)
    story.say(job("first", 8, "lab/a", expected_runtime_ms=2 * HOUR_MS, min_runtime_ms=2 * HOUR_MS), "ann")
    running(story, "first")
    core = core_of(story)
    asked = job("second", 8, "lab/a", expected_runtime_ms=HOUR_MS, min_runtime_ms=HOUR_MS)

    found = look_ahead(core, asked, "ann")

    assert found.start_ms is not None
    assert 2 * HOUR_MS <= found.start_ms - found.from_ms <= 2 * HOUR_MS + 10 * 60_000
    assert found.waits is not None
    assert document_of(found)["start_ms"] == found.start_ms
    story.say(asked, "ann")
    story.tick()
    story.say(RunFinished(workload="first", run=1, node="n1", outcome="succeeded"), "n1", after_ms=2 * HOUR_MS)
    batch = story.tick()
    assert [d.pieces for d in batch.decisions if isinstance(d, RunPlaced)] == [found.placed.pieces if found.placed else None]


def test_who_makes_room_is_told_with_the_certificate_that_the_core_then_writes() -> None:
    story = opened(nodes=1, budgets=LAB)
    story.say(job("guest", 8, "lab/b", expected_runtime_ms=20 * HOUR_MS, min_runtime_ms=0), "ann")
    running(story, "guest")
    story.tick(after_ms=HOUR_MS)
    core = core_of(story)
    asked = job("owner", 4, "lab/a", expected_runtime_ms=HOUR_MS)

    found = look_ahead(core, asked, "ann")

    assert [victim.workload for victim in found.victims] == ["guest"]
    assert found.start_ms is not None
    story.say(asked, "ann")
    batch = story.tick()
    written = [d.certificate for d in batch.decisions if isinstance(d, RunPreempted)]
    assert [one.beneficiary for one in written] == ["owner"]
    assert written[0].victim_allowance_milli == found.victims[0].certificate.victim_allowance_milli
    assert any("guest of lab/b" in line for line in lines_of(found, asked))


def test_who_would_start_later_is_named() -> None:
    story = opened(nodes=1, budgets=LAB)
    story.say(job("now", 8, "lab/a", expected_runtime_ms=HOUR_MS, min_runtime_ms=HOUR_MS), "ann")
    running(story, "now")
    story.say(job("waits", 8, "lab/a", expected_runtime_ms=HOUR_MS, min_runtime_ms=HOUR_MS), "ann")
    core = core_of(story)

    found = look_ahead(core, job("urgent", 8, "lab/a", expected_runtime_ms=HOUR_MS, min_runtime_ms=HOUR_MS, priority=5), "ann")

    assert [one[0] for one in found.later] == ["waits"]


def test_what_the_core_would_refuse_is_its_refusal() -> None:
    core = core_of(opened(nodes=1, budgets=LAB))

    too_large = look_ahead(core, job("huge", 64, "lab/a"), "ann")
    not_his = look_ahead(core, job("his", 1, "lab/a"), "bob")

    assert too_large.refusal is not None
    assert too_large.refusal.reason == "never_fits"
    assert not_his.refusal is not None
    assert not_his.refusal.reason == "not_permitted"


def test_what_is_said_of_no_end_is_counted_and_the_end_is_that_of_the_run() -> None:
    story = opened(nodes=2, budgets=LAB)
    story.say(job("silent", 8, "lab/a", min_runtime_ms=HOUR_MS), "ann")
    running(story, "silent")
    core = core_of(story)

    stated = look_ahead(core, job("new", 8, "lab/b", expected_runtime_ms=7 * HOUR_MS), "ann")
    silent = look_ahead(core, job("new", 8, "lab/b"), "ann")

    assert stated.start_ms is not None
    assert stated.end_ms is not None
    assert abs(stated.end_ms - stated.start_ms - 7 * HOUR_MS) <= 2_000, "not when a coarse cycle learns of it"
    assert (stated.unstated, silent.unstated) == (1, 2)
    with_end = job("new", expected_runtime_ms=HOUR_MS)
    assert any("1 job says nothing of how long it takes: taken" in line for line in lines_of(stated, with_end))
    told = lines_of(silent, job("new"))
    assert any("2 jobs say nothing of how long they take, this one among them" in line for line in told)
    assert document_of(silent)["unstated"] == 2

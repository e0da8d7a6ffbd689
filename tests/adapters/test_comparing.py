"""Comparing policies: equal input for all, waits that forget nobody, parts that add up, pictures that can be read."""

from __future__ import annotations

import json
import os
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest

from apportion.adapters.charts.svg import Picture
from apportion.adapters.cli.main import run
from apportion.adapters.comparing import charts
from apportion.adapters.comparing.measures import Shares
from apportion.adapters.comparing.playing import (
    POLICIES,
    WAIT_BOUNDS_MS,
    Outcome,
    PlayerDied,
    misplaced_pct,
    play,
    play_all,
)
from apportion.adapters.comparing.report import document, lines
from apportion.adapters.comparing.story import Story, StoryRefused, story
from apportion.adapters.comparing.timeline import Timeline
from apportion.adapters.comparing.waits import Waits
from apportion.adapters.demo.generator import Shape, generate
from apportion.adapters.simulation.cluster import Layout
from apportion.adapters.simulation.people import CALM
from apportion.adapters.simulation.trouble import QUIET
from apportion.adapters.simulation.world import WorldOptions
from apportion.core.decisions import CycleBatch, RunPlaced, WorkloadAdmitted, WorkloadClosed
from apportion.core.units import MS_PER_DAY, MS_PER_HOUR, PPM

HOUR_MS = MS_PER_HOUR
TREE = (("itp", PPM), ("itp/a", 750_000), ("itp/b", 250_000))


def batch(time_ms: int, *decisions: object) -> CycleBatch:
    """Return a batch with only these decisions."""
    return CycleBatch(core=1, cycle=1, seq=1, time_ms=time_ms, chain="", digest="", decisions=decisions)  # type: ignore[arg-type]  # decisions they are


def admitted(name: str, budget: str = "itp/a", gpus: int = 1) -> WorkloadAdmitted:
    return WorkloadAdmitted(
        workload=name, event_seq=1, budget=budget, pool="p", nodes=1, milli_per_node=gpus * 1_000, min_runtime_ms=1
    )


def placed(name: str, budget: str = "itp/a", gpus: int = 1) -> RunPlaced:
    return RunPlaced(
        workload=name, run=1, budget=budget, pool="p", gpus_milli=gpus * 1_000, pieces=(), payer="budget", why="",
        protected_until_ms=0, reserved_gpu_us=0,
    )  # fmt: skip


def small(hours: int = 8) -> Story:
    """A cluster of 32 GPUs, two programs of which one asks for nearly all."""
    layout = Layout(nodes=4, shares=(("a", 250_000), ("b", 750_000)), grants=())
    jobs = [
        job._replace(program="b" if number % 5 == 0 else "a")
        for number, job in enumerate(generate(3, Shape(1, layout.gpus, 4_000, 8)))
    ]
    world = WorldOptions(seed=3, length_ms=hours * HOUR_MS, layout=layout, habits=CALM._replace(idle_cycles=0), rates=QUIET)
    return Story("small", jobs, world, (("itp", PPM), ("itp/a", 250_000), ("itp/b", 750_000)))


@pytest.fixture(scope="module")
def outcomes() -> dict[str, Outcome]:
    """What came of the small story under each policy."""
    return {policy: play(small(), policy) for policy in POLICIES}


# -- story -----------------------------------------------------------------------------------------------------------------


def test_generated_jobs_ask_for_what_was_wanted_and_nobody_for_idle_cycles() -> None:
    made = story(None, 2, 3_000, 5)

    assert made.demand_milli == pytest.approx(3_000, rel=0.2)
    assert made.world.habits.idle_cycles == 0
    assert made.world.layout.grants == ()
    assert sum(ppm for path, ppm in made.tree if path.count("/") == 1) == PPM
    assert made == story(None, 2, 3_000, 5)


def test_a_trace_is_made_more_or_less_by_the_size_of_the_cluster(tmp_path: Path) -> None:
    rows = [f"2017-10-{19 + n % 4} 0{n % 10}:00:00,7200.0,{(1, 8, 12, 16)[n % 4]},1.0,vc{n % 3}" for n in range(400)]
    (tmp_path / "philly.csv").write_text("timestamp,duration,num_gpus,gpu_time,cluster\n" + "\n".join(rows) + "\n")

    once = story(tmp_path / "philly.csv", 4, 1_000, 1)
    thrice = story(tmp_path / "philly.csv", 4, 3_000, 1)

    assert once.demand_milli == pytest.approx(1_000, rel=0.15)
    assert thrice.demand_milli == pytest.approx(3_000, rel=0.35)
    assert once.jobs == thrice.jobs
    assert {path for path, _ppm in once.tree} == {"itp", "itp/vc0", "itp/vc1", "itp/vc2"}


def test_what_is_no_trace_is_refused_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(StoryRefused, match="nowhere"):
        story(tmp_path / "nowhere", 1, None, 1)
    (tmp_path / "philly.csv").write_text("something else\n")
    with pytest.raises(StoryRefused, match=r"philly\.csv"):
        story(tmp_path, 1, None, 1)
    with pytest.raises(StoryRefused, match="at most"):
        story(tmp_path / "philly.csv", 30, None, 1)


# -- measures --------------------------------------------------------------------------------------------------------------


def test_waits_count_who_has_not_started() -> None:
    """Four ask: after one hour one starts, after three another; one is withdrawn; the last, late one waits since two hours."""
    waits = Waits(0, 10 * HOUR_MS)
    waits.take(batch(0, admitted("w1"), admitted("w2"), admitted("w3")))
    waits.take(batch(HOUR_MS, placed("w1")))
    waits.take(batch(2 * HOUR_MS, WorkloadClosed(workload="w3", outcome="cancelled", runs=0)))
    waits.take(batch(3 * HOUR_MS, placed("w2")))
    waits.take(batch(8 * HOUR_MS, admitted("w4")))
    waits.take(batch(10 * HOUR_MS, admitted("too late")))

    # at 1 h: 1 of 3; at 3 h: 1 of the 1 that waited so long (w4 was lost from sight after 2 h)
    assert waits.distribution() == [(HOUR_MS, 333_333), (3 * HOUR_MS, PPM)]
    assert (waits.quantile(30).wait_ms, waits.quantile(90).wait_ms) == (HOUR_MS, 3 * HOUR_MS)
    assert waits.within([1, HOUR_MS, 2 * HOUR_MS, 3 * HOUR_MS]) == [0, 333_333, 333_333, PPM]


def test_a_quantile_that_was_not_reached_says_so() -> None:
    waits = Waits(0, 10 * HOUR_MS)
    waits.take(batch(0, admitted("w1"), admitted("w2")))
    waits.take(batch(HOUR_MS, placed("w1")))

    assert not waits.quantile(50).open
    assert waits.quantile(90).open
    assert waits.quantile(90).wait_ms == 10 * HOUR_MS
    assert Waits(0, 1).quantile(50).open


def test_intervals_of_the_timeline_add_up_to_the_whole() -> None:
    story_played = small(4)
    timeline, shares = Timeline(TREE, 0, 4 * HOUR_MS, 4), Shares(TREE, 0, 4 * HOUR_MS)
    for taken in (
        batch(0, admitted("w1", gpus=4), placed("w1", gpus=4)),
        batch(HOUR_MS, admitted("w2", "itp/b", 4), placed("w2", "itp/b", 4)),
        batch(2 * HOUR_MS), batch(3 * HOUR_MS), batch(4 * HOUR_MS),
    ):  # fmt: skip
        timeline.take(taken)
        shares.take(None, taken)

    assert story_played.world.layout.gpus == 32
    assert all(len(values) == 4 for values in timeline.got_ppm.values())
    assert misplaced_pct(shares) == pytest.approx(0.0, abs=0.1), "nobody waits: each has what he asks for"


def test_equal_stories_give_equal_outcomes_and_policies_differ(outcomes: dict[str, Outcome]) -> None:
    again = play(small(), "drf")

    assert again == outcomes["drf"]
    assert all(not outcome.complaints for outcome in outcomes.values())
    assert {outcome.jobs for outcome in outcomes.values()} == {outcomes["fair"].jobs}, "the same input for all"
    assert outcomes["fifo"].preemptions == outcomes["fair_tree"].preemptions == 0
    assert outcomes["fair"].alternations == 0
    assert outcomes["fair"].misplaced_pct < outcomes["fifo"].misplaced_pct, "by submission the greedy one gets too much"
    for outcome in outcomes.values():
        assert outcome.started_within_ppm == sorted(outcome.started_within_ppm)
        assert all(a.wait_ms <= b.wait_ms for a, b in pairwise(outcome.waits))


def test_parts_of_the_cluster_never_exceed_it(outcomes: dict[str, Outcome]) -> None:
    for outcome in outcomes.values():
        for position in range(len(outcome.got_ppm["itp"])):
            parts = [outcome.got_ppm[path][position] for path in ("itp/a", "itp/b")]
            assert 0 <= sum(parts) <= outcome.got_ppm["itp"][position] + 2 <= PPM + 2


# -- telling ---------------------------------------------------------------------------------------------------------------


def test_the_table_has_a_column_per_policy_and_says_what_it_is_about(outcomes: dict[str, Outcome]) -> None:
    told = "\n".join(lines(small(), list(outcomes.values()), ["x/shares.svg"]))
    written = document(small(), list(outcomes.values()), [])

    for word in (*POLICIES, "misplaced", "wait p99", "occupancy", "picture  x/shares.svg", "WRONG"):
        assert (word in told) == (word != "WRONG"), word
    assert json.loads(json.dumps(written))["policies"]["fair"]["waits"][0]["percent"] == 50


def test_pictures_are_whole_labelled_and_inside_their_frame(outcomes: dict[str, Outcome]) -> None:
    for draw in (charts.shares_over_time, charts.waiting_times):
        text = draw(small(), list(outcomes.values()))
        root = ElementTree.fromstring(text)
        words = [node.text or "" for node in root.iter("{http://www.w3.org/2000/svg}text")]
        curves = list(root.iter("{http://www.w3.org/2000/svg}polyline"))

        assert text == draw(small(), list(outcomes.values())), "equal outcomes, equal bytes"
        assert set(POLICIES) <= set(words)
        assert any("%" in word for word in words)
        assert len(curves) >= len(POLICIES)
        for curve in curves:
            for place in curve.attrib["points"].split():
                x, y = (float(part) for part in place.split(","))
                assert 0 <= x <= float(root.attrib["width"])
                assert 0 <= y <= float(root.attrib["height"])


def test_names_cannot_break_a_picture() -> None:
    picture = Picture(100, 50, 'a "title" & <more>')
    picture.text((1, 2), "<script>alert(1)</script> & so on")
    root = ElementTree.fromstring(picture.render())

    assert root.attrib["aria-label"] == 'a "title" & <more>'
    assert [node.text for node in root.iter("{http://www.w3.org/2000/svg}text")] == ["<script>alert(1)</script> & so on"]


def test_bounds_of_waits_rise() -> None:
    assert sorted(set(WAIT_BOUNDS_MS)) == WAIT_BOUNDS_MS


# -- the verb --------------------------------------------------------------------------------------------------------------


def test_what_cannot_be_compared_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["compare", "--policies", "fair,lottery"]) == 2
    assert "lottery" in capsys.readouterr().err
    assert run(["compare", "--demand", "0"]) == 2
    assert run(["compare", "--trace", "nowhere"]) == 2


def test_the_verb_plays_prints_and_draws(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("apportion.adapters.comparing.story.Layout", lambda grants: Layout(nodes=2, grants=grants))

    code = run(["compare", "--policies", "fifo", "--days", "1", "--demand", "0.5", "--out", str(tmp_path / "out"), "--json"])
    told = json.loads(capsys.readouterr().out)

    assert code == 0
    assert told["days"] == 1
    assert told["policies"]["fifo"]["jobs"] > 0
    assert [Path(name).name for name in told["files"]] == ["shares.svg", "waits.svg"]
    assert (tmp_path / "out" / "waits.svg").read_text().startswith("<svg")
    assert told["to_ms"] - told["from_ms"] == MS_PER_DAY


class Deadly(str):
    """A policy that ends whoever is given it to play."""

    def __reduce__(self) -> tuple[object, ...]:
        return os._exit, (9,)


def test_a_player_that_is_gone_is_told_in_words() -> None:
    with pytest.raises(PlayerDied, match="a process that played fair was ended from outside"):
        play_all(None, [Deadly("fair")], print)  # type: ignore[arg-type, list-item]  # nobody comes to play it

"""A node on which every test holds is one that the feasibility function takes, and the other way round; each can fail alone."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apportion.adapters.explaining.nodes import TESTS, verdict_on
from apportion.adapters.explaining.report import node_explanation
from tests.adapters.explained import RESERVED, moment_of, played

# What is done to a node of 8 GPUs that would do, what is asked, and the test that then fails first.
CASES = {
    "in_service": ("cordon n1", "submit job B 4 min=0"),
    "drain": ("drain n1 until=2h", "submit job B 4 min=0"),
    "label": ("", "submit job B 4 min=0 is=gen:b"),
    "gpu_memory": ("", "submit job B 4 min=0 gpumem=90"),
    "cpu": ("submit a1 A 1 cpu=30\ntick", "submit job B 4 min=0 cpu=8"),
    "memory": ("submit a1 A 1 memory=500\ntick", "submit job B 4 min=0 memory=100"),
    "exclusive": ("", "submit job B 16 min=0 exclusive=yes"),
    "size": ("", "submit job B 16 min=0 nodes=1"),
    "free_gpus": ("submit a1 A 6\ntick", "submit job B 4 min=0"),
    "apart": ("submit b1 B 1 apart=g\ntick", "submit job B 4 min=0 apart=g"),
    "kept": ("submit a1 A 4 limit=10h\nsubmit a2 A 16 limit=9h\ntick\nsubmit g1 B 8 limit=1h", "submit job A 4"),
    "domain": ("submit b1 B 4\ntick", "submit job B 16 nodes=4 min=0 within=rack"),
    "others": ("submit b1 B 4\ntick", "submit job B 40 nodes=5 min=0"),
}
OPENING = """
    node n1 8 rack=r1 cpu=32 memory=512 gpumem=80 is=gen:a
    {before}
    node n2 16 rack=r2 cpu=64 memory=1024 gpumem=96 is=gen:b
    {job}
"""


@pytest.mark.parametrize("name", [name for name in CASES if name not in ("domain", "others", "kept")])
def test_each_test_fails_alone_where_it_must(name: str) -> None:
    before, job = CASES[name]
    scenario = played(OPENING.format(before=before, job=f"submit filler A 16 min=0\ntick\n{job}"))
    cycle = moment_of(scenario)[0].cycle

    verdict = verdict_on(cycle, cycle.state.node.row_of["n1"], cycle.state.workload.row_of["job"])

    assert verdict.failing[0].name == name
    assert not verdict.node_would_do


def test_a_node_that_is_kept_says_for_whom_and_until_when() -> None:
    scenario = played(RESERVED)
    document = node_explanation(moment_of(scenario)[0], "n2", "job")

    assert document is not None
    (kept,) = [row for row in document["tests"] if row["test"] == "kept"]
    assert not kept["holds"]
    assert kept["numbers"] == {"holder": "g1", "until_ms": scenario.story.start_ms + 10 * 3_600_000}
    assert document["first_failing"] == "kept"
    assert [run["workload"] for run in document["runs"]] == ["a2"]
    assert node_explanation(moment_of(scenario)[0], "n9", "job") is None


def test_a_gang_is_told_how_many_nodes_of_a_domain_and_of_all_would_do() -> None:
    scenario = played("""
        node n1 8 rack=r1
        node n2 8 rack=r1
        node n3 8 rack=r2
        submit a1 A 8
        tick
        submit job B 16 nodes=2 min=0 within=rack
    """)
    document = node_explanation(moment_of(scenario)[0], "n2", "job")

    assert document is not None
    found = {row["test"]: (row["holds"], row["numbers"]) for row in document["tests"]}
    assert found["domain"] == (False, {"nodes_able": 1, "nodes_needed": 2})
    assert found["others"] == (True, {"nodes_able": 2, "nodes_needed": 2})
    assert document["node_would_do"]
    assert not document["job_would_fit"]


@settings(derandomize=True, max_examples=40, deadline=None)
@given(st.data())
def test_all_tests_hold_exactly_where_the_core_would_take_the_node(data: st.DataObject) -> None:
    draw = data.draw
    lines = list[str]()
    for number in (1, 2, 3):
        gpus, label = draw(st.sampled_from((4, 8))), draw(st.sampled_from("ab"))
        lines.append(f"node n{number} {gpus} cpu=16 memory=64 gpumem=80 is=gen:{label}")
    for number in range(draw(st.integers(0, 4))):
        lines.append(f"submit r{number} A {draw(st.sampled_from(('0.5', '1', '2', '4')))} cpu=4 limit={draw(st.integers(1, 9))}h")
    lines.append("tick")
    lines += draw(st.sampled_from(([], ["cordon n1"], ["drain n2 until=3h"], ["submit g1 B 24 nodes=3"])))
    asked = draw(st.sampled_from(("0.5", "1", "2", "3", "4", "8")))
    wish = draw(st.sampled_from(("", "is=gen:a", "cpu=14", "block=yes", "limit=2h", "gpumem=90", "exclusive=yes")))
    lines.append(f"submit job B {asked} min=0 {wish}")
    moment, _live = moment_of(played("\n".join(lines)))
    cycle = moment.cycle
    row = cycle.state.workload.row_of.get("job")
    if row is None or int(cycle.state.workload.state[row]) != 2:
        return

    for node in range(cycle.state.node.used):
        verdict = verdict_on(cycle, node, row)
        own = [test for test in verdict.tests if test.name not in ("domain", "others")]
        assert verdict.node_would_do == all(test.holds for test in own), (lines, cycle.state.node.keys[node], own)
        assert [test.name for test in verdict.tests] == sorted((test.name for test in verdict.tests), key=TESTS.index)

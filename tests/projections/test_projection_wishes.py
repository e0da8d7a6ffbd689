"""What was asked for beside GPUs can be read and typed again; jobs without a wish take no row."""

from __future__ import annotations

from typing import Any

import pytest

from apportion.adapters.cli.wishes import options_of
from apportion.core.events import NodeJoined
from apportion.projections import queries
from apportion.projections.runner import Projection
from tests.projections.history import Story, job, opened

PLAIN = {
    "pools": ["h100"], "loose": False, "within": "", "near": "", "labels": {}, "gpu_memory_mib": 0, "cpu_milli": 0, "memory_mib": 0,
    "exclusive": False, "block": False, "apart": "", "apart_level": "",
}  # fmt: skip
WISHES: dict[str, tuple[dict[str, Any], str]] = {
    "plain": ({}, ""),
    "loose": ({"loose": True, "within": "rack"}, "--loose --within rack"),
    "near": ({"near": "rack", "gpus": 16, "nodes": 2}, "--near rack"),
    "labels": ({"labels": {"gen": "a", "disk": ""}}, "--label disk= --label gen=a"),
    "rooms": ({"cpu_milli": 2_500, "memory_mib": 1_024, "gpu_memory_mib": 40}, "--gpu-memory 40MiB --memory 1024MiB --cpu 2.5"),
    "alone": ({"exclusive": True}, "--exclusive"),
    "block": ({"block": True, "gpus": 2}, "--block"),
    "apart": ({"apart": "chat"}, "--apart chat"),
    "racks": ({"apart": "web", "apart_level": "rack"}, "--apart web/rack"),
    "pools": ({"pools": ("h100", "a100")}, "--pool h100 --pool a100"),
}


def asked() -> Story:
    """Return a story in which each wish is admitted."""
    story = opened(nodes=0)
    for number in range(3):
        name = f"n{number}"
        story.say(
            NodeJoined(node=name, pool="h100", gpus=8, cpu_milli=64_000, memory_mib=65_536, gpu_memory_mib=80,
                       labels={"gen": "a", "disk": ""}, domains=("r1",)), name)  # fmt: skip
    for name, (wish, _options) in WISHES.items():
        story.say(job(name, **wish), "ann")
    story.tick()
    return story


@pytest.fixture(scope="module")
def projection() -> Any:
    story = asked()
    with Projection() as made:
        made.ingest(story.logs.records, story.logs.batches)
        made.refresh()
        yield made


@pytest.mark.parametrize("name", WISHES)
def test_a_wish_is_told_as_it_was_stated(projection: Projection, name: str) -> None:
    wish, options = WISHES[name]
    (row,) = queries.run(projection.con, "workload", workload=name).dicts()

    stated = {key: list(wish[key]) if key == "pools" else wish[key] for key in PLAIN if key in wish}
    assert {key: row[key] for key in PLAIN} == PLAIN | stated
    assert options_of(row) == options


def test_who_wishes_nothing_has_no_row(projection: Projection) -> None:
    found = projection.con.execute("select workload from fact.wish order by workload").fetchall()

    assert [name for (name,) in found] == sorted(set(WISHES) - {"plain"})

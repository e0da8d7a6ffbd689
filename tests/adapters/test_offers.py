"""What is said to fit starts when it is submitted, so many and not one more; what is kept for others is left out."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apportion.adapters.seen import offers as module
from apportion.adapters.seen.offers import offers
from apportion.core import events as ev
from apportion.core.decisions import CycleBatch, RunPlaced
from apportion.core.engine import Core
from apportion.core.units import MILLI, MS_PER_HOUR
from tests.core.story import Story

NODES, GPUS = 6, 4
sizes = st.sampled_from([250, 500, 1_000, 2_000, 3_000, 4_000, 8_000, 12_000])


def begun() -> Story:
    """Return a pool of six nodes of four GPUs in three racks, in topology order."""
    story = Story()
    story.open()
    story.tell(ev.PoolDefined(pool="h100", levels=("rack",)))
    for number in range(NODES):
        joined = ev.NodeJoined(node=f"n{number}", pool="h100", gpus=GPUS, domains=(f"r{number // 2}",), place=number)
        story.tell(joined, by=f"n{number}")
    story.tell(ev.BudgetSet(pool="h100", budget="lab", share_ppm=1_000_000))
    story.tick()
    return story


def submit(story: Story, name: str, milli: int, *, nodes: int = 0, runtime_ms: int = 0, **wish: Any) -> None:
    """Ask for GPUs."""
    story.tell(
        ev.WorkloadSubmitted(
            workload=name, budget="lab", pools=("h100",), gpus_milli=milli, nodes=nodes, expected_runtime_ms=runtime_ms,
            **wish,
        )
    )  # fmt: skip


def placed(batch: CycleBatch) -> set[str]:
    """Return the workloads that start."""
    return {one.workload for one in batch.decisions if isinstance(one, RunPlaced)}


def asked(story: Story, runtime_ms: int = 0) -> dict[str, Any]:
    """Return the one pool's offers, from a copy of the core."""
    (pool,) = offers(Core.from_snapshot(story.core.snapshot()), runtime_ms)
    return pool


@settings(derandomize=True, max_examples=40, deadline=None)
@given(st.lists(sizes, max_size=12), st.data())
def test_so_many_start_as_are_said_to_fit_and_not_one_more(running: list[int], data: st.DataObject) -> None:
    story = begun()
    free = NODES * GPUS * MILLI
    for number, milli in enumerate(running):
        if milli <= free:  # and nobody waits
            submit(story, f"r{number}", milli)
            if f"r{number}" not in placed(story.tick()):
                story.tell(ev.WorkloadCancelled(workload=f"r{number}"))
                story.tick()
            else:
                free -= milli
    rows = asked(story)["rows"]
    row = data.draw(st.sampled_from(rows))

    for more in (0, 1):
        other = copy.copy(story)
        other.core, other.records, other.batches = Core.from_snapshot(story.core.snapshot()), list(story.records), {}
        count = row["fits"] + more
        for number in range(count):
            within = row["shape"].partition("within ")[2] or None
            block = row["shape"] == "block"
            submit(other, f"w{number}", row["gpus_milli"], nodes=row["nodes"], within=within, block=block)
        assert len(placed(other.tick())) == row["fits"]


def test_every_way_in_which_gpus_can_lie_has_its_rows() -> None:
    story = begun()
    for number in range(NODES):
        submit(story, f"one-{number}", MILLI, exclusive=False, apart="spread")  # one GPU on each node
    assert len(placed(story.tick())) == NODES

    rows = {(row["nodes"], row["milli_per_node"], row["shape"]): row["fits"] for row in asked(story)["rows"]}

    assert rows[1, 250, "any"] == NODES * 3 * 4
    assert rows[1, 1_000, "any"] == NODES * 3
    assert rows[1, 2_000, "any"] == NODES
    assert rows[1, 2_000, "block"] == NODES  # the lone GPU is at an end
    assert rows[1, 4_000, "any"] == 0
    assert rows[2, 4_000, "within rack"] == 0
    assert (1, 3_000, "any") not in rows
    assert (8, 4_000, "any") not in rows, "six nodes never hold eight"
    assert (4, 4_000, "within rack") not in rows, "a rack has two nodes"


def test_nodes_that_are_kept_are_offered_only_to_what_is_over_before() -> None:
    story = begun()
    for number in range(NODES - 1):
        submit(story, f"long-{number}", GPUS * MILLI, runtime_ms=(number + 1) * MS_PER_HOUR)
    submit(story, "gang", 2 * GPUS * MILLI)  # needs the free node and that of the first to end
    story.tick()

    pool = asked(story)
    rows = {(row["nodes"], row["milli_per_node"]): row for row in pool["rows"] if row["shape"] == "any"}

    assert pool["kept_nodes"] == 2
    assert pool["kept_until_ms"] == story.now_ms + MS_PER_HOUR
    assert [one["workload"] for one in pool["kept_for"]] == ["gang"]
    assert (rows[1, 4_000]["fits"], rows[1, 4_000]["fits_short"]) == (0, 1)
    assert rows[1, 4_000]["earliest_ms"] == story.now_ms + 2 * MS_PER_HOUR, "not on the nodes that are kept"
    short = asked(story, runtime_ms=MS_PER_HOUR)
    assert {row["fits"] for row in short["rows"] if row["gpus_milli"] == 4_000} == {1}


def test_work_that_says_nothing_leaves_nobody_knowing() -> None:
    story = begun()
    for number in range(NODES):
        submit(story, f"silent-{number}", GPUS * MILLI)
    story.tick()

    assert {row["earliest_ms"] for row in asked(story)["rows"] if row["milli_per_node"] == 4_000} == {None}


def test_counting_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FITS_MAX", 5)
    rows = asked(begun())["rows"]

    assert {(row["fits"], row["fits_or_more"]) for row in rows if row["gpus_milli"] == 1_000} == {(5, True)}
    assert {(row["fits"], row["fits_or_more"]) for row in rows if row["gpus_milli"] == 8_000} == {(3, False)}
